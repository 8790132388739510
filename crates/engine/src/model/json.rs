// SPDX-License-Identifier: MPL-2.0

//! The JSON form of libvmaf's models, before its values are checked.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::error::Problem;
use super::present::present;
use super::transform::Transform;
use crate::metrics::options::number_text;

/// One model: the members of `model_dict` that are used. Others are ignored.
#[derive(serde::Deserialize)]
pub(super) struct Definition {
    #[serde(default, deserialize_with = "present")]
    pub model_type: Option<ModelType>,
    pub norm_type: NormType,
    pub feature_names: Vec<String>,
    #[serde(default)]
    pub feature_opts_dicts: Vec<BTreeMap<String, OptionText>>,
    #[serde(default, deserialize_with = "present")]
    pub slopes: Option<Vec<f64>>,
    #[serde(default, deserialize_with = "present")]
    pub intercepts: Option<Vec<f64>>,
    #[serde(default, deserialize_with = "present")]
    pub score_clip: Option<[f64; 2]>,
    #[serde(default, deserialize_with = "present")]
    pub score_transform: Option<Transform>,
    #[serde(default, deserialize_with = "present")]
    pub chroma_correction_parameter: Option<f64>,
    /// The regressor as text.
    pub model: String,
}

#[derive(Clone, Copy, PartialEq, serde::Deserialize)]
pub(super) enum ModelType {
    #[serde(rename = "LIBSVMNUSVR")]
    Svr,
    #[serde(rename = "BOOTSTRAP_LIBSVMNUSVR")]
    Bootstrap,
    #[serde(rename = "RESIDUEBOOTSTRAP_LIBSVMNUSVR")]
    ResidueBootstrap,
}

#[derive(Clone, Copy, PartialEq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NormType {
    LinearRescale,
    None,
}

/// The value of an option as the text that libvmaf keeps.
pub(super) struct OptionText(pub String);

impl<'de> Deserialize<'de> for OptionText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "expected a number, a boolean or a string")]
        enum Value {
            Number(f64),
            Bool(bool),
            Text(String),
        }
        Ok(Self(match Value::deserialize(deserializer)? {
            Value::Number(number) => number_text(number),
            Value::Bool(bool) => bool.to_string(),
            Value::Text(text) => text,
        }))
    }
}

/// A model file: one model, or a collection of the main model and its bootstrap members.
pub(super) struct File {
    pub main: Definition,
    /// Empty unless the file is a collection.
    pub bootstrap: Vec<Definition>,
}

impl File {
    /// Parses the text of a file. An error includes its place.
    pub fn parse(text: &[u8]) -> Result<Self, (String, Problem)> {
        let mut json = serde_json::Deserializer::from_slice(text);
        let file = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| (error.path().to_string(), error.into_inner().into()))?;
        json.end().map_err(|error| (".".to_string(), error.into()))?;
        Ok(file)
    }
}

/// The object around each `model_dict`.
#[derive(serde::Deserialize)]
#[serde(expecting = "an object with the member `model_dict`")]
struct Wrapper {
    model_dict: Definition,
}

impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Walk;

        impl<'de> Visitor<'de> for Walk {
            type Value = File;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object with the member `model_dict`, or with the models `0`, `1`, …")
            }

            /// Visits a file. As in libvmaf, members of a collection count only if they are in the order `0`, `1`, `2`, …
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<File, A::Error> {
                let mut single = None;
                let mut members = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "model_dict" {
                        single = Some(map.next_value()?);
                    } else if key == members.len().to_string() {
                        members.push(map.next_value::<Wrapper>()?.model_dict);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                let mut members = members.into_iter();
                match (single, members.next()) {
                    (Some(main), _) => Ok(File { main, bootstrap: Vec::new() }),
                    (None, Some(main)) if members.len() > 0 => {
                        Ok(File { main, bootstrap: members.collect() })
                    }
                    _ => Err(A::Error::custom("neither a `model_dict` nor at least two models `0`, `1`, …")),
                }
            }
        }

        deserializer.deserialize_map(Walk)
    }
}
