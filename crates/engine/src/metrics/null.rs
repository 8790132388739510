// SPDX-License-Identifier: MPL-2.0

//! libvmaf's `null`, which computes nothing.

use super::extractor::{About, Extract};
use super::options::{Options, Row};
use super::score::{OptionsError, Scorer, Source, plain};
use super::work::Work;
use crate::frame::Geometry;

/// `null`, which has no options.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NullOptions;

impl Options for NullOptions {
    const EXTRACTOR: &'static str = "null";
    const TABLE: &'static [Row<Self>] = &[];
}

impl Extract for NullOptions {
    type Output = ();
    const FEATURES: &'static [(&'static str, ())] = &[];
    const ABOUT: &'static [About] =
        &[About { reported: "nothing", tells: "nothing is computed", range: "", equal: "", source: "" }];

    fn plan(&self, _costly: bool, _work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        Ok(Box::new(NullSource))
    }
}

#[derive(Debug)]
struct NullSource;

impl Source for NullSource {
    fn scorer(&self, _geometry: Geometry) -> Result<Box<dyn Scorer>, OptionsError> {
        Ok(plain(|_| vec![]))
    }
}
