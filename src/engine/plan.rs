// SPDX-License-Identifier: MPL-2.0

//! The smallest set of work that serves all requested models and features.

use super::EngineError;
use crate::metrics::Work;
use crate::metrics::adm::{AdmOptions, AdmWork};
use crate::metrics::feature::{Extractor, Feature, Output};
use crate::metrics::motion::{MotionOptions, MotionWork};
use crate::metrics::psnr::{PsnrOptions, PsnrWork};
use crate::metrics::speed::{SpeedOptions, SpeedWork};
use crate::metrics::vif::{VifOptions, VifWork};
use crate::model::{Model, ScoreOptions};

/// Where the features of one extractor come from in the backend's sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    Adm { options: AdmOptions, pass: usize },
    Motion(MotionOptions),
    Psnr(PsnrOptions),
    Speed { options: SpeedOptions, scaling: usize },
    Vif { options: VifOptions, gain: usize },
}

/// A reported feature: which source yields it, and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFeature {
    pub source: usize,
    pub output: Output,
    pub key: String,
}

/// A model and the features it reads.
#[derive(Debug)]
pub struct PlannedModel {
    pub model: Model,
    /// Indices into [`Plan::features`], in the model's order.
    pub inputs: Vec<usize>,
    /// Column of its score; its bootstrap columns follow.
    pub column: usize,
}

/// What to compute and where each reported number comes from. Plain data.
#[derive(Debug)]
pub struct Plan {
    pub work: Work,
    pub sources: Vec<Source>,
    pub features: Vec<PlannedFeature>,
    pub models: Vec<PlannedModel>,
    pub score_options: ScoreOptions,
    /// Names of all reported numbers: the features, then each model with its bootstrap results.
    pub columns: Vec<String>,
}

/// Suffixes of the columns that follow a collection's members, in libvmaf's naming.
const BOOTSTRAP_COLUMNS: [&str; 4] = ["bagging", "stddev", "ci_p95_lo", "ci_p95_hi"];

impl PlannedModel {
    /// Columns of a collection's standard deviation and of the ends of its confidence interval, low and high.
    pub fn confidence_columns(&self) -> Option<[usize; 3]> {
        let bagging = self.column + 1 + self.model.bootstrap_members()?;
        Some([bagging + 1, bagging + 2, bagging + 3])
    }
}

impl Plan {
    /// `extra` are features wanted besides those that the models read.
    pub fn new(
        models: Vec<Model>,
        extra: &[Feature],
        score_options: ScoreOptions,
    ) -> Result<Self, EngineError> {
        let mut plan = Self {
            work: Work::default(),
            sources: vec![],
            features: vec![],
            models: vec![],
            score_options,
            columns: vec![],
        };
        let wanted: Vec<Feature> =
            models.iter().flat_map(|model| model.features()).chain(extra).cloned().collect();
        let mut extractors: Vec<Extractor> = vec![];
        for feature in &wanted {
            if !extractors.contains(&feature.extractor) {
                extractors.push(feature.extractor);
            }
        }
        for extractor in extractors {
            let aim = wanted
                .iter()
                .any(|f| f.extractor == extractor && matches!(f.output, Output::Aim | Output::Adm3));
            plan.add(extractor, aim)?;
        }
        plan.columns = plan.features.iter().map(|feature| feature.key.clone()).collect();
        for model in models {
            plan.add_model(model)?;
        }
        Ok(plan)
    }

    /// Adds the work of an extractor and everything it yields at no further cost.
    fn add(&mut self, extractor: Extractor, aim: bool) -> Result<(), EngineError> {
        let source = match extractor {
            Extractor::Adm(options) => {
                let passes = &mut self.work.adm.get_or_insert(AdmWork { passes: vec![] }).passes;
                let new = options.pass(aim)?;
                let same =
                    passes.iter().position(|p| p.gain_limit == new.gain_limit && p.weights == new.weights);
                let pass = same.unwrap_or(passes.len());
                match passes.get_mut(pass) {
                    Some(pass) => pass.aim |= aim,
                    None => passes.push(new),
                }
                Source::Adm { options, pass }
            }
            Extractor::Motion(options) => {
                let (work, new) = (self.work.motion.get_or_insert(MotionWork::default()), options.work());
                work.lag1 |= new.lag1;
                work.lag2 |= new.lag2;
                Source::Motion(options)
            }
            Extractor::Psnr(options) => {
                let work = self.work.psnr.get_or_insert(PsnrWork { chroma: false });
                work.chroma |= options.enable_chroma;
                Source::Psnr(options)
            }
            Extractor::Speed(options) => {
                let scalings = &mut self.work.speed.get_or_insert(SpeedWork::default()).scalings;
                let new = options.scaling()?;
                let same = scalings.iter().position(|scaling| *scaling == new);
                let scaling = same.unwrap_or_else(|| {
                    scalings.push(new);
                    scalings.len() - 1
                });
                Source::Speed { options, scaling }
            }
            Extractor::Vif(options) => {
                let work = self.work.vif.get_or_insert(VifWork { gain_limits: vec![], scale0: false });
                work.scale0 |= !options.skip_scale0;
                let limit = options.enhn_gain_limit;
                let same = work.gain_limits.iter().position(|gain| *gain == limit);
                let gain = same.unwrap_or_else(|| {
                    work.gain_limits.push(limit);
                    work.gain_limits.len() - 1
                });
                Source::Vif { options, gain }
            }
        };
        let index = self.sources.len();
        self.sources.push(source);
        self.features.extend(extractor.features(aim).into_iter().map(|feature| PlannedFeature {
            source: index,
            output: feature.output,
            key: feature.key,
        }));
        Ok(())
    }

    fn add_model(&mut self, model: Model) -> Result<(), EngineError> {
        if self.models.iter().any(|other| other.model.name() == model.name()) {
            return Err(EngineError::DuplicateModel(model.name().to_string()));
        }
        // Every feature a model reads was planned above, so each is found.
        let inputs = model
            .features()
            .iter()
            .filter_map(|feature| self.features.iter().position(|planned| planned.key == feature.key))
            .collect();
        let column = self.columns.len();
        let name = model.name();
        self.columns.push(name.to_string());
        if let Some(members) = model.bootstrap_members() {
            self.columns.extend((1..=members).map(|i| format!("{name}_{i:04}")));
            self.columns.extend(BOOTSTRAP_COLUMNS.iter().map(|suffix| format!("{name}_{suffix}")));
        }
        self.models.push(PlannedModel { model, inputs, column });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(models: &[&str]) -> Plan {
        let models = models.iter().map(|name| Model::load(name).unwrap()).collect();
        let psnr = Output::PsnrY.extractor();
        Plan::new(models, &psnr.features(false), ScoreOptions::default()).unwrap()
    }

    #[test]
    fn models_share_what_they_have_in_common() {
        let one = plan(&["vmaf_v0.6.1"]);
        assert_eq!(one.work.adm.as_ref().unwrap().passes.len(), 1);
        assert!(!one.work.adm.as_ref().unwrap().passes[0].aim, "no v0 model reads aim");
        assert_eq!(one.work.vif.as_ref().unwrap().gain_limits, [100.0]);

        // 4k and the bootstrap model read the same features; neg needs other gain limits.
        let all =
            plan(&["vmaf_v0.6.1", "vmaf_4k_v0.6.1", "vmaf_b_v0.6.3", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1neg"]);
        assert_eq!(all.work.adm.as_ref().unwrap().passes.len(), 2);
        assert_eq!(all.work.vif.as_ref().unwrap().gain_limits, [100.0, 1.0]);
        assert_eq!(all.work.motion, Some(MotionWork { lag1: true, lag2: false }));
        assert_eq!(all.sources.len(), 6, "adm, vif twice, motion and psnr once");
        for model in &all.models {
            assert_eq!(model.inputs.len(), 6);
            assert_eq!(all.columns[model.column], model.model.name());
        }
    }

    #[test]
    fn what_comes_after_the_planes_of_speed_chroma_shares_them() {
        let feature =
            |options: &[(&str, &str)]| Feature::resolve("speed_chroma_uv", options.iter().copied()).unwrap();
        let wanted = [
            feature(&[]),
            feature(&[("speed_sigma_nn", "0.19"), ("speed_weight_var_mode", "5")]),
            feature(&[("speed_prescale", "0.6"), ("speed_prescale_method", "bilinear")]),
        ];
        let plan = Plan::new(vec![], &wanted, ScoreOptions::default()).unwrap();
        assert_eq!(plan.work.speed.as_ref().unwrap().scalings.len(), 2);
        assert_eq!(plan.sources.len(), 3);
        assert!(plan.work.chroma());
        let unknown = feature(&[("speed_kernelscale", "0.9")]);
        let error = Plan::new(vec![], &[unknown], ScoreOptions::default()).unwrap_err();
        assert!(error.to_string().contains("speed_kernelscale of 0.9"), "{error}");
    }

    #[test]
    fn a_model_cannot_be_given_twice() {
        let models = vec![Model::load("vmaf_v0.6.1").unwrap(), Model::load("vmaf_v0.6.1").unwrap()];
        let twice = Plan::new(models, &[], ScoreOptions::default());
        assert_eq!(twice.unwrap_err().to_string(), "the model vmaf_v0.6.1 is given twice");
    }
}
