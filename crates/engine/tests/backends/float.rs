// SPDX-License-Identifier: MPL-2.0

//! libvmaf's floating-point features: all 17 digits equal those of Netflix's library for the clips of `tests/data/float.json`.

use std::collections::BTreeMap;

use hipvmaf_engine::EngineError;
use hipvmaf_engine::backend::BackendError;
use hipvmaf_engine::metrics::feature::Feature;
use hipvmaf_engine::metrics::feature_list;
use serde_json::Value;

use crate::clip::clips;
use crate::features::{geometry, run, session};

/// Options that GPUs have no code for.
const CPU_ONLY: [&str; 2] = ["motion_add_scale1", "motion_add_uv"];

fn features(item: &str) -> Vec<Feature> {
    feature_list::parse(item, &[]).unwrap().iter().flat_map(|extractor| extractor.features(true)).collect()
}

pub fn features_are_those_of_netflixs_library() {
    let golden: Value = serde_json::from_str(include_str!("../../../../tests/data/float.json")).unwrap();
    let is_gpu = std::env::var("HIPVMAF_TEST_BACKEND").is_ok_and(|backend| backend == "hip");
    for clip in clips() {
        let (mut wanted, mut expected) = (vec![], BTreeMap::new());
        for (item, of_clips) in golden.as_object().unwrap() {
            let Some(values) = of_clips[&clip.name].as_object() else { continue };
            if is_gpu && CPU_ONLY.iter().any(|option| item.contains(option)) {
                let error = session(&features(item), geometry(&clip)).err();
                assert!(matches!(error, Some(EngineError::Backend(BackendError::CpuOnly(_)))), "{item}");
                continue;
            }
            wanted.extend(features(item));
            expected.extend(values);
        }
        assert_eq!(wanted.len(), expected.len(), "{}", clip.name);
        let (_, values, _) = run(&clip, &wanted);
        for (i, Feature { key, .. }) in wanted.iter().enumerate() {
            let found: Vec<_> = values.iter().map(|values| Some(values[i])).collect();
            let expected: Vec<_> = expected[key].as_array().unwrap().iter().map(Value::as_f64).collect();
            assert_eq!(found, expected, "{}: {key}", clip.name);
        }
    }
}
