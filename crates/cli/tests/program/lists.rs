// SPDX-License-Identifier: MPL-2.0

//! What the program says of itself and of this machine.

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
    assert_eq!((large, fast), (6, 4));
}

/// There may be none, which is no failure.
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
