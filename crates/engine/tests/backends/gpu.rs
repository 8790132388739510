// SPDX-License-Identifier: MPL-2.0

//! The GPU backend on the software device of `tests/swhip`, which runs the shipped kernels on the CPU and behaves like
//! AMD's runtime.
//!
//! What a process knows of its GPUs it learns once, so each kind of device gets a process of its own: the tests
//! here start this very program again, with the ignored tests below or with others.

use std::path::PathBuf;
use std::process::{Command, Output};

/// The software device, as `make swhip` builds it.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "target"));
    let library = target.expect("tests are built in `target`").join("swhip/libamdhip64.so.6");
    assert!(library.exists(), "no {}: build it with `make swhip`", library.display());
    library
}

/// Runs tests of this program on a software device that the environment describes.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(arguments)
        .env("HIPVMAF_HIP_LIBRARY", library())
        .env("HIPVMAF_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[track_caller]
fn assert_passes(output: &Output) {
    let text = text(output);
    assert!(
        output.status.success() && text.contains("test result: ok") && !text.contains(" 0 passed"),
        "{text}"
    );
}

const RDNA: (&str, &str) = ("SWHIP_ARCH", "gfx1100");
const CDNA: (&str, &str) = ("SWHIP_ARCH", "gfx90a:sramecc+:xnack-");

#[test]
fn features_hold_on_every_kind() {
    for (arch, seed) in [(RDNA, "0"), (CDNA, "2")] {
        let environment = [arch, ("SWHIP_SEED", seed), ("HIPVMAF_TEST_BACKEND", "hip")];
        assert_passes(&run(&["features::"], &environment));
    }
}

/// On either kind of GPU, with blocks and lanes in different orders. `tests/swhip/check` has each kernel in each order.
#[test]
fn sums_are_those_of_the_processor_on_every_kind() {
    for (arch, seed) in [(RDNA, "0"), (CDNA, "3")] {
        assert_passes(&run(&["--ignored", "sums::"], &[arch, ("SWHIP_SEED", seed)]));
    }
}

#[test]
fn a_forked_process_is_told_to_open_the_gpu_itself() {
    let run = run(&["--exact", "gpu::forker", "--ignored", "--test-threads=1"], &[RDNA]);
    assert_passes(&run);
}

#[test]
#[ignore = "started by others, on a device that they describe"]
fn forker() {
    use gpu::{Error, Selection};
    use hipvmaf_engine::backend::BackendError;
    use hipvmaf_engine::backend::hip::Hip;
    let open = || Hip::open(&Selection::default(), 1);
    let parents = open().unwrap();
    // SAFETY: the child calls nothing that other threads of the parent could hold a lock of, and ends at once.
    match unsafe { libc::fork() } {
        0 => {
            let refused = matches!(open(), Err(BackendError::Device(Error::Forked)));
            // What the parent has is not given back twice.
            drop(parents);
            // SAFETY: ends the process without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(!refused)) }
        }
        child => {
            let mut status = -1;
            // SAFETY: the address is valid for a write.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
    drop(parents);
}
