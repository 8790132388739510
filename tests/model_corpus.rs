// SPDX-License-Identifier: MPL-2.0

//! The seeds of the fuzzer: `good_*` must load and score, `bad_*` must be refused, nothing may panic.

use std::path::Path;

use gsthipvmaf::model::{Model, ScoreOptions};

#[test]
fn corpus_loads_or_is_refused_as_its_names_say() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/model");
    let mut files = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match Model::load(path.to_str().unwrap()) {
            Ok(model) => {
                assert!(name.starts_with("good_"), "{name} loads");
                let values = vec![0.5; model.features().len()];
                assert!(model.score(&values, ScoreOptions::default()).score.is_finite(), "{name}");
            }
            Err(error) => assert!(name.starts_with("bad_"), "{error}"),
        }
        files += 1;
    }
    assert!(files > 0);
}
