// SPDX-License-Identifier: MPL-2.0

//! Any bytes as a model file: loading ends in a model or an error, and a model scores.

#![no_main]

use hipvmaf_engine::model::{Model, ScoreOptions};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    if let Ok(model) = Model::from_json("fuzz", text) {
        let values = vec![0.5; model.features().len()];
        for (clip, transform) in [(true, false), (false, true)] {
            model.score(&values, ScoreOptions { clip, transform });
        }
    }
});
