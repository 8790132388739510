// SPDX-License-Identifier: MPL-2.0

//! Commands about the program and this machine.

use std::fs;

use serde_json::Value;

use crate::common::{Ended, hipvmaf};

#[test]
fn models_are_listed_with_the_hashes_of_their_files() {
    let mut command = hipvmaf("models");
    command.arg("--json");
    let ended = Ended::of(command);
    let models: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    let names: Vec<_> = models.iter().map(|model| model["name"].as_str().unwrap()).collect();
    assert_eq!(names, engine::model::builtin::names().collect::<Vec<_>>());
    let table = Ended::of(hipvmaf("models"));
    for model in &models {
        assert_eq!(model["sha256"].as_str().unwrap().len(), 64, "{model}");
        assert!(table.stdout.contains(&model["sha256"].as_str().unwrap()[..12]), "{}", table.stdout);
    }
    let large = models.iter().filter(|model| model["height"] == 2160).count();
    let fast = models.iter().filter(|model| model["high_frame_rate"] == true).count();
    assert_eq!((large, fast), (7, 4));
}

/// A machine without a GPU is not an error.
#[test]
fn gpus_are_listed_for_programs() {
    let mut command = hipvmaf("devices");
    command.arg("--json");
    let ended = Ended::of(command);
    assert!(ended.status.success(), "{}", ended.stderr);
    let gpus: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    assert!(gpus.iter().all(|gpu| gpu["name"].is_string()), "{}", ended.stdout);
    assert_eq!(Ended::of(hipvmaf("devices")).stdout.lines().count(), gpus.len().max(1));
}

/// Each section runs in its own process. The first one reports that there is no GPU.
#[test]
fn a_check_says_why_there_is_no_gpu() {
    let mut command = hipvmaf("check");
    command.arg("--json").env("HIPVMAF_HIP_LIBRARY", "/nowhere").env("HIPVMAF_CUDA_LIBRARY", "/nowhere");
    let ended = Ended::of(command);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let sections = report["sections"].as_array().unwrap();
    let errors: Vec<_> = sections.iter().map(|section| section["error"].as_str().unwrap()).collect();
    assert!(errors[0].contains("there is no usable GPU"), "{errors:?}");
    assert!(errors.len() > 1 && errors[1..].iter().all(|error| error.starts_with("skipped")), "{errors:?}");
}

#[test]
fn the_cpu_is_measured_where_there_is_no_gpu() {
    let bench = |backend: &str| {
        let mut command = hipvmaf("bench");
        command.args([
            "--size",
            "176x144",
            "--pairs",
            "3",
            "--seconds",
            "0",
            "--runs",
            "2",
            "--json",
            "--backend",
            backend,
        ]);
        command.env("HIPVMAF_HIP_LIBRARY", "/nowhere").env("HIPVMAF_CUDA_LIBRARY", "/nowhere");
        Ended::of(command)
    };
    for backend in ["auto", "cpu"] {
        let ended = bench(backend);
        assert_eq!(ended.stderr.contains("so this is the CPU"), backend == "auto", "{}", ended.stderr);
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert!(report["device"].as_str().is_some_and(|device| device.starts_with("cpu")), "{report}");
        assert_eq!((&report["memory"], report["fps"].as_array().map(Vec::len)), (&"host".into(), Some(2)));
        assert!(report["fps"][0].as_f64().is_some_and(|fps| fps > 0.0), "{report}");
    }
    let ended = bench("hip");
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("there is no usable GPU"), "{}", ended.stderr);
}

#[test]
fn pages_and_completions_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = hipvmaf("generate");
    command.arg(folder.path());
    assert!(Ended::of(command).status.success());
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("man/hipvmaf-score.1").contains("Exit codes"));
    assert!(read("man/hipvmaf.1").contains("hipvmaf\\-monitor"));
    assert!(read("completions/hipvmaf.bash").contains("--results"));
}
