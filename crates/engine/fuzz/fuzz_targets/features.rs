// SPDX-License-Identifier: MPL-2.0

//! Any text as a list of features: reading it ends in extractors or an error that quotes the text.

#![no_main]

use hipvmaf_engine::metrics::feature_list;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match feature_list::parse(text, &[]) {
        Ok(extractors) => {
            for extractor in extractors {
                assert!(!extractor.features(true).is_empty());
            }
        }
        Err(error) => assert!(text.contains(&error.item)),
    }
});
