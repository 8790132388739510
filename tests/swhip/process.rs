// SPDX-License-Identifier: MPL-2.0

//! Tests that run in processes of their own. A process detects its GPUs once, so a test that describes a device by
//! environment variables starts its own program again, to run one function.

use std::process::Command;

use libtest_mimic::{Arguments, Trial};

use super::swhip::library;

/// Names the function to run in a process.
const FUNCTION: &str = "HIPVMAF_TEST_FUNCTION";

/// A function with its path in this program.
pub type Function = (&'static str, fn());

/// A name for a device, the path of a function, and the environment that describes the device.
pub type Case = (&'static str, &'static str, Vec<(&'static str, &'static str)>);

/// Lists functions with their paths.
macro_rules! functions {
    ($($function:path),* $(,)?) => {
        &[$((crate::process::in_crate(concat!(module_path!(), "::", stringify!($function))), $function)),*]
    };
}
pub(crate) use functions;

/// Removes the name of the crate from a path.
pub const fn in_crate(path: &'static str) -> &'static str {
    let mut at = 0;
    while path.as_bytes()[at] != b':' {
        at += 1;
    }
    path.split_at(at + 2).1
}

/// Runs the function that the environment names, else the tests. The functions are those that tests start.
pub fn main(functions: &[Function], tests: impl FnOnce() -> Vec<Trial>) {
    let Some(wanted) = std::env::var_os(FUNCTION) else {
        libtest_mimic::run(&Arguments::from_args(), tests()).exit()
    };
    let (_, function) =
        functions.iter().find(|(name, _)| wanted == *name).expect("a function of this program");
    function();
}

/// Returns the command that runs a function in a process with this environment, by default on AMD's software device. The
/// device is trusted unless the environment changes that: tests compare more than a self-test, and some count calls.
pub fn command(function: &str, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .env(FUNCTION, function)
        .env("HIPVMAF_HIP_LIBRARY", library("libamdhip64.so.6"))
        .env("HIPVMAF_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
        .env("HIPVMAF_SELF_TEST", "never")
        .env_remove("HIPVMAF_REGISTER_MAX")
        .envs(environment.iter().copied());
    command
}

/// Runs a function in a process with this environment, where it must succeed. Returns its standard output.
#[track_caller]
pub fn passes(function: &str, environment: &[(&str, &str)]) -> String {
    let output = command(function, environment).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{function} with {environment:?}: {}\n{stdout}{stderr}", output.status);
    stdout
}

/// Makes a test of a function in this process.
#[allow(dead_code, reason = "not all crates have such tests")]
pub fn here((name, function): Function) -> Trial {
    Trial::test(name, move || {
        function();
        Ok(())
    })
}

/// Makes a test of a function in a process with the environment of a device.
pub fn on((device, function, environment): Case) -> Trial {
    Trial::test(format!("{device}::{function}"), move || {
        passes(function, &environment);
        Ok(())
    })
}
