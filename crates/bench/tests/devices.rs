// SPDX-License-Identifier: MPL-2.0

//! Measurements of several GPUs at once, on software devices.

#[path = "../../../tests/swhip/library.rs"]
mod swhip;

use std::process::{Command, Output};

use serde_json::Value;

use swhip::library;

const SMALL: &str = "--size 64x48 --pairs 3 --in-flight 2 --seconds 0 --runs 1 --repeat 0";

/// Runs the program on a machine with two GPUs.
fn run(further: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hipvmaf-bench"))
        .args(SMALL.split_whitespace())
        .args(further)
        .env("HIPVMAF_HIP_LIBRARY", library("libamdhip64.so.6"))
        .env("HIPVMAF_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
        .env("HIPVMAF_SELF_TEST", "never")
        .env("SWHIP_ARCH", "gfx1100,gfx1030")
        .output()
        .unwrap()
}

/// Returns the rows of a measurement as number and GPU target, and checks their sum.
#[track_caller]
fn measured(further: &[&str]) -> Vec<(i64, String)> {
    let output = run(&[further, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rate = |of: &Value| of["fps"][0].as_f64().unwrap();
    let rows = report["devices"].as_array().unwrap();
    let sum: f64 = rows.iter().map(rate).sum();
    assert!(rows.iter().all(|row| rate(row) > 0.0 && row["latency"]["p50"].as_f64() > Some(0.0)), "{report}");
    assert!((rate(&report) / sum - 1.0).abs() < 1e-9, "{report}");
    let target = |row: &Value| row["device"].as_str().unwrap().split(['(', ',']).nth(1).unwrap().to_owned();
    rows.iter().map(|row| (row["number"].as_i64().unwrap(), target(row))).collect()
}

#[test]
fn every_gpu_has_a_row() {
    let both = [(0, "gfx1100".to_string()), (1, "gfx1030".to_string())];
    assert_eq!(measured(&["--devices", "all"]), both);
    assert_eq!(
        measured(&["--devices", "1,0", "--streams", "2", "--memory", "pinned"]),
        [both[1].clone(), both[0].clone()]
    );
    assert_eq!(measured(&["--devices", "1", "--renditions", "2"]), both[1..]);
    let output = run(&["--devices", "all"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let begins = |with: &str| text.lines().filter(|line| line.starts_with(with)).count();
    assert_eq!((begins("AMD 0: "), begins("AMD 1: "), begins("all 2: ")), (1, 1, 1), "{text}");
}

/// The command to build code for a GPU is printed if this build has none for it, unless that GPU is not supported.
#[test]
fn a_gpu_without_code_is_listed_with_the_command_that_builds_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_hipvmaf-bench"))
        .arg("--list")
        .env("HIPVMAF_HIP_LIBRARY", library("libamdhip64.so.6"))
        .env("HIPVMAF_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
        .env("SWHIP_ARCH", "gfx1201,gfx803")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |arch: &str| text.lines().find(|line| line.contains(arch)).unwrap_or_else(|| panic!("{text}"));
    let (built, command) = ("code gfx1201", "no code for it in this build: `make plugin GPUS=gfx1201`");
    assert!(line("gfx1201").contains(built) || line("gfx1201").contains(command), "{text}");
    assert!(line("gfx803").contains("no code for it in this build: there is none"), "{text}");
}

#[test]
fn what_is_not_there_or_takes_one_gpu_is_refused() {
    let refused = |further: &[&str], said: &str| {
        let output = run(further);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(said), "{text}");
    };
    refused(&["--devices", "0,2"], "number 2");
    refused(&["--devices", "both"], "all");
    refused(&["--devices", "all", "--device", "0"], "cannot be used with");
    refused(&["--devices", "all", "--check"], "--device");
    refused(&["--devices", "all", "--start"], "--device");
    refused(&["--devices", "all", "--report"], "--device");
    refused(&["--devices", "all", "--backend", "cpu"], "cpu");
}
