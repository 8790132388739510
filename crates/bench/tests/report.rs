// SPDX-License-Identifier: MPL-2.0

//! The report of `hipvmaf-bench` on the software device of `tests/swhip`: complete if everything works, else as
//! complete as possible.

#[path = "../../../tests/swhip/library.rs"]
mod swhip;

use std::process::{Command, Output};

use serde_json::Value;

use swhip::library;

/// The kinds of sections in their order.
const SECTIONS: [&str; 15] = [
    "gpus",
    "self-test",
    "self-test",
    "self-test",
    "self-test",
    "check",
    "check",
    "speed",
    "kernels",
    "speed",
    "speed",
    "speed",
    "speed",
    "speed",
    "kernels",
];

/// The smallest possible amount of each section.
const SMALL: &str = "--report --size 288x216 --pairs 3 --in-flight 1 --seconds 0 --runs 1 --repeat 1 \
                     --check-sizes 176x144 --check-random 0";

/// Runs a small report in this environment, without stored self-test results.
fn run(further: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hipvmaf-bench"))
        .args(SMALL.split_whitespace())
        .args(further)
        .env("HIPVMAF_HIP_LIBRARY", library("libamdhip64.so.6"))
        .env("HIPVMAF_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
        .env("XDG_CACHE_HOME", "/proc/nowhere")
        .env("SWHIP_ARCH", "gfx1100")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// Returns the sections of a report, and whether the program succeeded.
#[track_caller]
fn report(environment: &[(&str, &str)]) -> (Vec<Value>, bool) {
    let output = run(&["--json"], environment);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {stderr}"));
    assert!(report["program"].as_str().unwrap().starts_with(env!("CARGO_PKG_VERSION")));
    assert!(!report["system"]["kernel"].as_str().unwrap().is_empty());
    assert!(report["system"]["cpus"].as_u64().unwrap() > 0);
    let sections = report["sections"].as_array().unwrap().clone();
    let names: Vec<_> = sections.iter().map(|section| section["section"].as_str().unwrap()).collect();
    assert_eq!(names, SECTIONS);
    (sections, output.status.success())
}

/// Returns the error of a section.
#[track_caller]
fn error(section: &Value) -> &str {
    section["error"].as_str().unwrap_or_else(|| panic!("nothing is wrong with {section}"))
}

#[test]
fn a_sound_device_has_all_of_it() {
    let (sections, content) = report(&[]);
    for section in &sections {
        assert!(section["error"].is_null(), "{section}");
        let result = &section["result"];
        match section["section"].as_str().unwrap() {
            "gpus" => assert_eq!(result[0]["opened"]["code"], "gfx1100"),
            "self-test" => assert_eq!(result["verdict"], "passed"),
            "check" => assert_eq!(result["differing"].as_array().map(Vec::len), Some(0), "{section}"),
            "speed" => assert!(result["fps"][0].as_f64().unwrap() > 0.0, "{section}"),
            _ => assert_eq!(result[0][0], "frame_begin"),
        }
    }
    // A slow machine compares fewer clips within the time limit.
    let count = |section: usize, kind| sections[section]["result"][kind].as_u64();
    assert!(matches!(count(5, "clips"), Some(1..=12)), "{}", sections[5]);
    // The recent model rejects clips of this size, on the CPU too.
    assert_eq!((count(6, "clips"), count(6, "refused")), (Some(0), Some(12)));
    assert!(content);
}

#[test]
fn a_device_that_computes_nothing_is_measured_all_the_same() {
    let (sections, content) = report(&[("SWHIP_FAIL", "drop:3+")]);
    for section in &sections {
        match section["section"].as_str().unwrap() {
            "self-test" => assert!(error(section).contains("failed its self-test"), "{section}"),
            "check" if section["result"]["clips"] != 0 => {
                let clips = &section["result"]["clips"];
                assert!(error(section).contains(&format!("{clips} of {clips} clips differ")), "{section}");
            }
            _ => assert!(section["error"].is_null(), "{section}"),
        }
        assert_eq!(section["result"].is_null(), section["section"] == "self-test", "{section}");
    }
    assert!(!content);
}

/// A lost device is not used again.
#[test]
fn nothing_follows_the_loss_of_the_device() {
    let (sections, content) = report(&[("SWHIP_FAIL", "async:700@5")]);
    assert!(sections[0]["error"].is_null(), "{}", sections[0]);
    assert!(error(&sections[1]).contains("was lost"), "{}", sections[1]);
    assert!(sections[2..].iter().all(|section| error(section).starts_with("skipped")));
    assert!(!content);
}

#[test]
fn without_a_device_it_says_why() {
    let nowhere = [("HIPVMAF_HIP_LIBRARY", "/nowhere/libamdhip64.so.6")];
    let (sections, content) = report(&nowhere);
    assert!(error(&sections[0]).contains("there is no usable GPU"), "{}", sections[0]);
    assert!(error(&sections[0]).contains("/nowhere"), "{}", sections[0]);
    assert!(sections[1..].iter().all(|section| error(section).starts_with("skipped")));
    assert!(!content);
    let output = run(&[], &nowhere);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("FAILED: there is no usable GPU"), "{text}");
    assert!(!output.status.success());
}
