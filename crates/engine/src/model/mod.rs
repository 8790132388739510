// SPDX-License-Identifier: MPL-2.0

//! Models: they turn features into scores that are bit-identical to libvmaf 3.2.0's.

mod bootstrap;
pub mod builtin;
mod error;
mod json;
pub mod pool;
mod predict;
mod present;
mod svm;
mod transform;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub use bootstrap::Bootstrap;
pub use error::{ModelError, Problem};

use sha2::{Digest, Sha256};

use crate::metrics::feature::{Feature, FeatureError};
use json::{Definition, ModelType};
use predict::Predictor;

/// Size of the largest model file that is read: ten times the largest known one.
const MAX_BYTES: u64 = 4 << 20;

/// A model, or a collection of models that also gives a confidence interval.
#[derive(Debug)]
pub struct Model {
    name: String,
    sha256: String,
    features: Vec<Feature>,
    main: Member,
    /// Empty for a single model.
    bootstrap: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    predictor: Predictor,
    /// Indices into the features of the model.
    inputs: Vec<usize>,
}

/// Options of the last steps of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreOptions {
    /// Limits scores to the range of the model, usually 0 to 100.
    pub clip: bool,
    /// Applies the score transform even if the model leaves it off: the "phone" variant.
    pub transform: bool,
}

impl Default for ScoreOptions {
    fn default() -> Self {
        Self { clip: true, transform: false }
    }
}

/// The result of a model for one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The score; NaN when a feature is NaN.
    pub score: f64,
    /// The confidence interval; only collections have one.
    pub bootstrap: Option<Bootstrap>,
}

impl Model {
    /// Loads a built-in model by its name in [`builtin::names`], with or without `.json`, or else the model file at a
    /// path.
    pub fn load(name_or_path: &str) -> Result<Self, ModelError> {
        Self::load_with(name_or_path, &[])
    }

    /// Loads a model like [`load`](Self::load), with values for options of the features that override those of the
    /// model.
    pub fn load_with(name_or_path: &str, options: &[(&str, &str)]) -> Result<Self, ModelError> {
        let name = name_or_path.strip_suffix(".json").unwrap_or(name_or_path);
        match builtin::find(name) {
            Some(builtin) => {
                Self::build(name, name, builtin.json().as_bytes(), &[builtin.options, options].concat())
            }
            None => Self::open(name_or_path, options),
        }
    }

    fn open(path: &str, options: &[(&str, &str)]) -> Result<Self, ModelError> {
        let read = || -> io::Result<Vec<u8>> {
            let mut text = Vec::new();
            File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut text)?;
            Ok(text)
        };
        match read() {
            Ok(text) if text.len() as u64 > MAX_BYTES => Err(ModelError::TooLarge { path: path.into() }),
            Ok(text) => {
                let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str());
                Self::build(stem.unwrap_or(path), path, &text, options)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ModelError::Unknown { name: path.into() })
            }
            Err(source) => Err(ModelError::Read { path: path.into(), source }),
        }
    }

    /// Parses the text of a model file. Its scores get the name `name`.
    pub fn from_json(name: &str, text: &[u8]) -> Result<Self, ModelError> {
        Self::build(name, name, text, &[])
    }

    /// Builds a model. Errors name `origin`; `options` are merged into those of all features.
    fn build(name: &str, origin: &str, text: &[u8], options: &[(&str, &str)]) -> Result<Self, ModelError> {
        let content = |(member, problem)| ModelError::Content { origin: origin.to_string(), member, problem };
        let file = json::File::parse(text).map_err(content)?;
        let place = |i: usize, member: &str| match file.bootstrap.is_empty() {
            true => format!("model_dict.{member}"),
            false => format!("{i}.model_dict.{member}"),
        };

        let kind = file.bootstrap.first().and_then(|first| first.model_type);
        let fits = |definition: &Definition| {
            definition.model_type == kind && !matches!(kind, None | Some(ModelType::Svr))
        };
        if let Some(i) = file.bootstrap.iter().position(|definition| !fits(definition)) {
            let what = "a bootstrap type, the same for all members".to_string();
            return Err(content((place(i + 1, "model_type"), Problem::Expected(what))));
        }

        let mut features = Vec::new();
        let mut member = |(i, definition)| {
            Member::new(definition, options, &mut features)
                .map_err(|(member, problem)| content((place(i, &member), problem)))
        };
        let main = member((0, &file.main))?;
        let bootstrap = (1..).zip(&file.bootstrap).map(member).collect::<Result<_, _>>()?;
        let sha256 = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { name: name.to_string(), sha256, features, main, bootstrap })
    }

    /// Returns the SHA-256 of the model file in hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns the name of the built-in model, or the file name without its extension.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the features that the model needs for each frame, in the order of the regressor, without repeats.
    pub fn features(&self) -> &[Feature] {
        &self.features
    }

    /// Returns the number of bootstrap members of a collection besides its main model; `None` for a single model.
    pub fn bootstrap_members(&self) -> Option<usize> {
        (!self.bootstrap.is_empty()).then_some(self.bootstrap.len())
    }

    /// Scores a frame from the values of its [`features`](Self::features). Missing values count as NaN.
    pub fn score(&self, values: &[f64], options: ScoreOptions) -> Score {
        let raw = |member: &Member| {
            let value = |&input: &usize| values.get(input).copied().unwrap_or(f64::NAN);
            member.predictor.raw(member.inputs.iter().map(value))
        };
        let bootstrap = self.bootstrap.first().map(|first| {
            let raws: Vec<f64> = self.bootstrap.iter().map(raw).collect();
            let finish = |(member, raw): (&Member, &f64)| member.predictor.finish(*raw, options);
            let members = self.bootstrap.iter().zip(&raws).map(finish).collect();
            Bootstrap::new(members, raws, |raw| first.predictor.finish(raw, options))
        });
        Score { score: self.main.predictor.finish(raw(&self.main), options), bootstrap }
    }
}

impl Member {
    /// Builds a member and adds its missing features to `features`. An error names the member of `model_dict`.
    fn new(
        definition: &Definition,
        options: &[(&str, &str)],
        features: &mut Vec<Feature>,
    ) -> Result<Self, (String, Problem)> {
        let predictor =
            Predictor::new(definition).map_err(|(member, problem)| (member.to_string(), problem))?;
        if definition.feature_opts_dicts.len() > definition.feature_names.len() {
            let what = "no more objects than there are features".to_string();
            return Err(("feature_opts_dicts".into(), Problem::Expected(what)));
        }
        let own = definition.feature_opts_dicts.iter().map(Some).chain(std::iter::repeat(None));
        let mut inputs = Vec::new();
        for (i, (name, own)) in definition.feature_names.iter().zip(own).enumerate() {
            let own = own.into_iter().flatten().map(|(option, text)| (option.as_str(), text.0.as_str()));
            let feature = Feature::resolve(name, own.chain(options.iter().copied())).map_err(|error| {
                let member = match error {
                    FeatureError::Unsupported(_) => "feature_names",
                    FeatureError::Option(_) | FeatureError::Disabled { .. } => "feature_opts_dicts",
                };
                (format!("{member}[{i}]"), error.into())
            })?;
            let known = features.iter().position(|other| other.key == feature.key);
            inputs.push(known.unwrap_or(features.len()));
            if known.is_none() {
                features.push(feature);
            }
        }
        Ok(Self { predictor, inputs })
    }
}

#[cfg(test)]
mod tests;
