// SPDX-License-Identifier: MPL-2.0

//! One trained model as a function of its features. The order of all operations is libvmaf's.

use super::ScoreOptions;
use super::error::Problem;
use super::json::{Definition, NormType};
use super::svm::Svr;
use super::transform::Transform;

/// A trained model, independent of the source of its features.
#[derive(Debug)]
pub(super) struct Predictor {
    score: Rescale,
    features: Vec<Rescale>,
    chroma: Option<ChromaCorrection>,
    svr: Svr,
    transform: Option<Transform>,
    clip: Option<[f64; 2]>,
}

/// Normalisation of one number.
#[derive(Clone, Copy, Debug)]
struct Rescale {
    slope: f64,
    intercept: f64,
}

impl Rescale {
    fn apply(self, value: f64) -> f64 {
        self.slope * value + self.intercept
    }

    fn undo(self, value: f64) -> f64 {
        (value - self.intercept) / self.slope
    }
}

/// Replaces a chroma difference of exactly zero, which is missing from the training data, with a value derived from
/// ADM.
#[derive(Debug)]
struct ChromaCorrection {
    parameter: f64,
    /// Indices of the features.
    luma: usize,
    chroma: usize,
}

impl Predictor {
    /// Most features and knots that a model may have; the limits are libvmaf's.
    const MAX_FEATURES: usize = 64;
    const MAX_KNOTS: usize = 10;

    /// Checks and prepares a model. An error names the member of `model_dict`.
    pub fn new(definition: &Definition) -> Result<Self, (&'static str, Problem)> {
        let expected = |member, what| (member, Problem::Expected(what));
        let names = &definition.feature_names;
        let n = names.len();
        if !(1..=Self::MAX_FEATURES).contains(&n) {
            return Err(expected("feature_names", format!("1 to {} names", Self::MAX_FEATURES)));
        }

        // The first is for the score, the others are for the features. Without normalisation, the neutral figures
        // change nothing, to the last bit.
        let figures =
            |member, values: &Option<Vec<f64>>, neutral| match (definition.norm_type, values.as_deref()) {
                (NormType::None, _) => Ok((neutral, vec![neutral; n])),
                (NormType::LinearRescale, Some([score, features @ ..])) if features.len() == n => {
                    Ok((*score, features.to_vec()))
                }
                _ => Err(expected(member, format!("{} numbers: for the score and each feature", n + 1))),
            };
        let slopes = figures("slopes", &definition.slopes, 1.0)?;
        let intercepts = figures("intercepts", &definition.intercepts, 0.0)?;
        let rescale = |(slope, intercept)| Rescale { slope, intercept };

        let transform = definition.score_transform.clone();
        if transform.as_ref().is_some_and(|transform| transform.knots.len() > Self::MAX_KNOTS) {
            return Err(expected("score_transform.knots", format!("at most {} knots", Self::MAX_KNOTS)));
        }
        let chroma = match definition.chroma_correction_parameter {
            None => None,
            Some(parameter) => Some(ChromaCorrection::new(parameter, names).ok_or_else(|| {
                let what = "a number but 0, and one feature each with adm3 and speed_chroma in its name";
                expected("chroma_correction_parameter", what.into())
            })?),
        };
        Ok(Self {
            score: rescale((slopes.0, intercepts.0)),
            features: slopes.1.into_iter().zip(intercepts.1).map(rescale).collect(),
            chroma,
            svr: Svr::parse(&definition.model).map_err(|problem| ("model", problem))?,
            transform,
            clip: definition.score_clip,
        })
    }

    /// Computes the score before transform and clip from one value for each feature.
    pub fn raw(&self, values: impl IntoIterator<Item = f64>) -> f64 {
        let mut x: Vec<f64> = self.features.iter().zip(values).map(|(f, value)| f.apply(value)).collect();
        if let Some(correction) = &self.chroma {
            correction.apply(&self.features, &mut x);
        }
        self.score.undo(self.svr.predict(&x))
    }

    /// Applies transform and clip to a raw score.
    pub fn finish(&self, raw: f64, options: ScoreOptions) -> f64 {
        let mut score = match &self.transform {
            Some(transform) if transform.enabled || options.transform => transform.apply(raw),
            _ => raw,
        };
        // Unlike `clamp`, this allows min > max.
        if let (Some([min, max]), true) = (self.clip, options.clip) {
            if score < min {
                score = min;
            }
            if score > max {
                score = max;
            }
        }
        score
    }
}

impl ChromaCorrection {
    fn new(parameter: f64, names: &[String]) -> Option<Self> {
        let only = |part| {
            let mut found = names.iter().enumerate().filter(|(_, name)| name.contains(part));
            found.next().filter(|_| found.next().is_none()).map(|(index, _)| index)
        };
        (parameter != 0.0).then_some(())?;
        Some(Self { parameter, luma: only("adm3")?, chroma: only("speed_chroma")? })
    }

    /// Changes the normalised values `x`. The rounding of the conversion back is part of the result.
    fn apply(&self, features: &[Rescale], x: &mut [f64]) {
        let raw = |index: usize| features[index].undo(x[index]);
        if raw(self.chroma) == 0.0 {
            let corrected = -self.parameter * raw(self.luma) + self.parameter;
            x[self.chroma] = features[self.chroma].apply(corrected);
        }
    }
}
