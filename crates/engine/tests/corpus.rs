// SPDX-License-Identifier: MPL-2.0

//! The seeds of the fuzzers: `good_*` must be accepted, `bad_*` must be rejected, and none may panic.

use std::path::{Path, PathBuf};

use hipvmaf_engine::metrics::feature_list;
use hipvmaf_engine::model::{Model, ScoreOptions};

/// Tries every seed of a fuzzer. `take` may fail only on those whose names begin with `bad_`.
fn check<E: std::fmt::Display>(fuzzer: &str, take: impl Fn(&Path) -> Result<(), E>) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(fuzzer);
    let files: Vec<PathBuf> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        match take(&path) {
            Ok(()) => assert!(name.starts_with("good_"), "{name} is taken"),
            Err(error) => assert!(name.starts_with("bad_"), "{name}: {error}"),
        }
    }
}

#[test]
fn models_load_or_are_refused_as_their_names_say() {
    check("model", |path| {
        let model = Model::load(path.to_str().unwrap())?;
        let values = vec![0.5; model.features().len()];
        assert!(model.score(&values, ScoreOptions::default()).score.is_finite(), "{}", path.display());
        Ok::<_, hipvmaf_engine::model::ModelError>(())
    });
}

#[test]
fn lists_of_features_are_read_or_refused_as_their_names_say() {
    check("features", |path| feature_list::parse(&std::fs::read_to_string(path).unwrap(), &[]).map(drop));
}
