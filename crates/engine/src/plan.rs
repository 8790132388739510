// SPDX-License-Identifier: MPL-2.0

//! Plans: the smallest set of work for all requested models and features.

use std::fmt;

use crate::EngineError;
use crate::heatmap::HeatSums;
use crate::metrics::feature::Feature;
use crate::metrics::{Extractor, Pooled, Source, Work};
use crate::model::{Model, ScoreOptions};

/// An extractor, and the source of its features in the backend's sums.
#[derive(Debug)]
pub(crate) struct PlannedSource {
    pub extractor: Extractor,
    pub source: Box<dyn Source>,
}

/// A feature that is reported.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFeature {
    pub(crate) source: usize,
    pub(crate) output: usize,
    /// The name under which it is reported.
    pub key: String,
}

/// A value of pairs that a caller follows over time, and the figure of many pairs that belongs to it.
#[derive(Clone, Debug)]
pub struct Followed {
    /// The column that it is computed from.
    pub column: usize,
    /// The figure of many pairs together, by its name in [`Totals::aggregates`](crate::session::Totals::aggregates), in
    /// place of a mean of the values; `None` where the mean is right.
    pub aggregate: Option<String>,
    of_pair: fn(f64) -> f64,
}

impl Followed {
    fn column(column: usize) -> Self {
        Self { column, aggregate: None, of_pair: |value| value }
    }

    /// Returns the value of a pair, from those of all columns.
    pub fn value(&self, values: &[f64]) -> Option<f64> {
        values.get(self.column).copied().map(self.of_pair)
    }
}

/// A model and the features it reads.
#[derive(Debug)]
pub struct PlannedModel {
    /// The model itself.
    pub model: Model,
    /// Indices into [`Plan::features`], in the model's order.
    pub inputs: Vec<usize>,
    /// Column of its score; its bootstrap columns follow.
    pub column: usize,
}

/// The work, and the source of each reported number. Plain data.
#[derive(Debug)]
pub struct Plan {
    /// The work of backends.
    pub work: Work,
    /// The sources of features in the sums.
    pub(crate) sources: Vec<PlannedSource>,
    /// The features, in the order of their columns.
    pub features: Vec<PlannedFeature>,
    /// The models, in the order of their columns.
    pub models: Vec<PlannedModel>,
    /// Options of the last steps of scores.
    pub score_options: ScoreOptions,
    /// Names of all reported numbers: the features, then each model with its bootstrap results.
    pub columns: Vec<String>,
}

/// Suffixes of the columns that follow a collection's members, in libvmaf's naming.
const BOOTSTRAP_COLUMNS: [&str; 4] = ["bagging", "stddev", "ci_p95_lo", "ci_p95_hi"];

impl PlannedModel {
    /// Returns the columns of a collection's standard deviation and of the ends of its confidence interval, low and
    /// high.
    pub fn confidence_columns(&self) -> Option<[usize; 3]> {
        let bagging = self.column + 1 + self.model.bootstrap_members()?;
        Some([bagging + 1, bagging + 2, bagging + 3])
    }
}

impl Plan {
    /// Creates a plan. `extra`: features besides those that the models read.
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
            if !extractors.iter().any(|extractor| extractor.is_same(&feature.extractor)) {
                extractors.push(feature.extractor.clone());
            }
        }
        for extractor in extractors {
            let costly = |feature: &Feature| {
                feature.extractor.is_same(&extractor) && extractor.is_costly(feature.output)
            };
            let costly = wanted.iter().any(costly);
            plan.add(extractor, costly)?;
        }
        plan.columns = plan.features.iter().map(|feature| feature.key.clone()).collect();
        for model in models {
            plan.add_model(model)?;
        }
        Ok(plan)
    }

    /// Returns how many later pairs may be needed before a score is known.
    pub fn lookahead(&self) -> usize {
        self.sources.iter().map(|source| source.source.lookahead()).max().unwrap_or(0)
    }

    /// Returns how many earlier pairs of the run a score may depend on, in any stream. Frames that are scored apart from the
    /// others need as many frames before them. Of metrics that keep pictures themselves ([`Work::history`]), only the frame
    /// before counts, which shows whether their history goes on.
    pub fn lookback(&self) -> usize {
        self.lookback_of(&self.work)
    }

    /// Returns the same for a stream that this work suits.
    pub(crate) fn lookback_of(&self, work: &Work) -> usize {
        let pictures = work.lags().max(usize::from(work.history() > 0));
        self.sources.iter().map(|source| source.source.lookback()).max().unwrap_or(0).max(pictures)
    }

    /// Finds a value to follow: a model or a feature by its name, or a figure of many pairs, such as `cvvdp`, that stands in
    /// place of a feature's mean. The suffix of options may be left out where that leaves one value.
    pub fn followed(&self, name: &str) -> Option<Followed> {
        let all = self.all_followed();
        let with_name = |named: &&(String, String, Followed)| named.0 == name;
        let mut without_suffix = all.iter().filter(|(_, plain, _)| plain == name);
        let found =
            all.iter().find(with_name).or_else(|| match (without_suffix.next(), without_suffix.next()) {
                (Some(only), None) => Some(only),
                _ => None,
            });
        found.map(|(_, _, followed)| followed.clone())
    }

    /// Returns the value to follow without a choice: the first model, else the first feature, or the figure in place of
    /// its mean.
    pub fn first_followed(&self) -> Option<Followed> {
        match self.models.first() {
            Some(model) => Some(Followed::column(model.column)),
            None if self.features.is_empty() => None,
            None => Some(self.figure(0).unwrap_or(Followed::column(0))),
        }
    }

    /// Returns the names of all values to follow.
    pub fn followable(&self) -> Vec<String> {
        self.all_followed().into_iter().map(|(name, ..)| name).collect()
    }

    /// Returns all values to follow: name, name without the suffix of options, value.
    fn all_followed(&self) -> Vec<(String, String, Followed)> {
        let model = |planned: &PlannedModel| {
            let name = planned.model.name().to_string();
            (name.clone(), name, Followed::column(planned.column))
        };
        let mut all: Vec<_> = self.models.iter().map(model).collect();
        for (column, PlannedFeature { source, key, .. }) in self.features.iter().enumerate() {
            let suffix = self.sources[*source].extractor.suffix();
            let plain = |name: &str| name.strip_suffix(&suffix).unwrap_or(name).to_string();
            all.push((key.clone(), plain(key), Followed::column(column)));
            if let Some(figure) = self.figure(column)
                && let Some(name) = figure.aggregate.clone()
            {
                all.push((name.clone(), plain(&name), figure));
            }
        }
        all
    }

    /// Returns the figure of many pairs that stands in place of the mean of a feature.
    fn figure(&self, column: usize) -> Option<Followed> {
        let PlannedFeature { source, output, .. } = *self.features.get(column)?;
        let PlannedSource { extractor, source } = self.sources.get(source)?;
        let Pooled { name, of_pair } = source.pooled(output)?;
        Some(Followed { column, aggregate: Some(extractor.named_figure(name).into_owned()), of_pair })
    }

    /// Adds a heat map to the work: of visible differences where ColorVideoVDP is computed, and else of damage.
    pub fn add_heat_map(&mut self) {
        HeatSums::plan(&mut self.work);
    }

    /// Adds the work of an extractor and all features that need no further work; costly ones too if `costly`.
    fn add(&mut self, extractor: Extractor, costly: bool) -> Result<(), EngineError> {
        let source = extractor.plan(costly, &mut self.work).map_err(EngineError::Options)?;
        let index = self.sources.len();
        for Feature { output, key, .. } in extractor.features(costly) {
            // The names of some features do not include options.
            if !self.features.iter().any(|planned| planned.key == key) {
                self.features.push(PlannedFeature { source: index, output, key });
            }
        }
        self.sources.push(PlannedSource { extractor, source });
        Ok(())
    }

    fn add_model(&mut self, model: Model) -> Result<(), EngineError> {
        if self.models.iter().any(|other| other.model.name() == model.name()) {
            return Err(EngineError::DuplicateModel(model.name().to_string()));
        }
        // All features of the models were planned above, so each is found.
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

/// Writes the plan for the debug log: the work of each metric, the features it yields, and the models that read them.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = |features: &mut dyn Iterator<Item = &PlannedFeature>| {
            features.map(|feature| feature.key.as_str()).collect::<Vec<_>>().join(", ")
        };
        write!(f, "plan")?;
        for (metric, work) in self.work.parts() {
            write!(f, "\n  work for {metric}: {work:?}")?;
        }
        for (i, source) in self.sources.iter().enumerate() {
            let mut mine = self.features.iter().filter(|feature| feature.source == i);
            let (extractor, part) = (source.extractor.name(), source.source.part());
            write!(f, "\n  features of {extractor}{part}: {}", keys(&mut mine))?;
        }
        for PlannedModel { model, inputs, .. } in &self.models {
            let inputs = keys(&mut inputs.iter().map(|input| &self.features[*input]));
            write!(f, "\n  model {}: {inputs}", model.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::adm::Adm;
    use crate::metrics::cambi::Cambi;
    use crate::metrics::feature_list;
    use crate::metrics::motion::{Motion, MotionWork};
    use crate::metrics::psnr::Psnr;
    use crate::metrics::speed::Speed;
    use crate::metrics::ssim::Ssim;
    use crate::metrics::vif::Vif;

    fn plan(models: &[&str]) -> Plan {
        let models = models.iter().map(|name| Model::load(name).unwrap()).collect();
        let psnr = Extractor::named("psnr").unwrap();
        Plan::new(models, &psnr.features(false), ScoreOptions::default()).unwrap()
    }

    #[test]
    fn models_share_what_they_have_in_common() {
        let one = plan(&["vmaf_v0.6.1"]);
        assert_eq!(one.work.get::<Adm>().unwrap().passes.len(), 1);
        assert!(!one.work.get::<Adm>().unwrap().passes[0].aim, "no v0 model reads aim");
        assert_eq!(one.work.get::<Vif>().unwrap().gain_limits, [100.0]);

        // 4k and the bootstrap model read the same features; neg needs other gain limits.
        let all =
            plan(&["vmaf_v0.6.1", "vmaf_4k_v0.6.1", "vmaf_b_v0.6.3", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1neg"]);
        assert_eq!(all.work.get::<Adm>().unwrap().passes.len(), 2);
        assert_eq!(all.work.get::<Vif>().unwrap().gain_limits, [100.0, 1.0]);
        assert_eq!(all.work.get::<Motion>(), Some(&MotionWork { lag1: true, lag2: false }));
        assert_eq!(all.sources.len(), 6, "adm, vif twice, motion and psnr once");
        for model in &all.models {
            assert_eq!(model.inputs.len(), 6);
            assert_eq!(all.columns[model.column], model.model.name());
        }
    }

    fn with_features(models: &[&str], features: &str) -> Plan {
        let models = models.iter().map(|name| Model::load(name).unwrap()).collect();
        let features: Vec<_> =
            feature_list::parse(features, &[]).unwrap().iter().flat_map(|e| e.features(true)).collect();
        Plan::new(models, &features, ScoreOptions::default()).unwrap()
    }

    #[test]
    fn features_that_models_read_anyway_cost_nothing_more() {
        let plain = plan(&["vmaf_v0.6.1", "vmaf_v0.6.1neg"]);
        let same = with_features(
            &["vmaf_v0.6.1", "vmaf_v0.6.1neg"],
            "vif;vif=vif_enhn_gain_limit=1;motion;psnr=enable_chroma=true",
        );
        let sources = |plan: &Plan| format!("{:?}", plan.sources);
        assert_eq!((&same.work, sources(&same)), (&plain.work, sources(&plain)));
        assert_eq!(same.columns, plain.columns);
        // Features of ADM that no model reads are reported if they are requested.
        let adm = with_features(&["vmaf_v0.6.1"], "adm");
        assert!(adm.work.get::<Adm>().unwrap().passes[0].aim);
        assert_eq!(adm.sources.len(), plain.sources.len() - 3);
        assert!(adm.columns.iter().any(|column| column == "integer_adm3"));
    }

    /// Options that names do not include: the first request decides on them, as in libvmaf, and no column is
    /// duplicated.
    #[test]
    fn columns_are_unique() {
        let plan = with_features(
            &["vmaf_v0.6.1"],
            "adm=adm_skip_aim=true;motion=motion_moving_average=true;cambi=full_ref=true;cambi=full_ref=true:topk=0.5",
        );
        let mut columns = plan.columns.clone();
        columns.sort();
        columns.dedup();
        assert_eq!(columns.len(), plan.columns.len());
        assert_eq!(plan.work.get::<Motion>(), Some(&MotionWork { lag1: true, lag2: false }));
        let first = format!("{:?}", plan.sources[0].source);
        assert!(first.contains("skip_aim: false"), "the model asks first: {first}");
    }

    /// Passes over the wavelets are shared as far as the specification allows.
    #[test]
    fn adm_of_both_generations_shares_passes() {
        let v1 = |more: &str| {
            format!("adm=adm_csf_mode=2:adm_dlm_weight=0.7:adm_enhn_gain_limit=1:adm_noise_weight=0.02{more}")
        };
        let near = v1(":adm_norm_view_dist=1.5:adm_ref_display_height=2160");
        let far = v1(":adm_norm_view_dist=5");
        let all = with_features(&["vmaf_v0.6.1", "vmaf_v0.6.1neg"], &[v1(""), near, far].join(";"));
        let passes = &all.work.get::<Adm>().unwrap().passes;
        let kinds: Vec<_> = passes.iter().map(|pass| (pass.gain_limit, pass.aim)).collect();
        assert_eq!(kinds, [(100.0, false), (1.0, false), (1.0, true), (1.0, true)]);
        let adm = all.sources.iter().filter(|source| source.extractor.name() == "adm");
        let parts: Vec<_> = adm.map(|adm| adm.source.part()).collect();
        assert_eq!(parts, [" pass 0", " pass 1", " pass 2", " pass 2", " pass 3"]);
    }

    /// The v1 models share one pass, except for the parts that viewing distance and frame rate change.
    #[test]
    fn v1_models_share_what_they_have_in_common() {
        let v1 = |name: &str| format!("vmaf_v1.0.16_{name}");
        let near = with_features(&[&v1("3d0h"), &v1("1d5h_2160"), &v1("hfr_3d0h"), &v1("hfr_1d5h_2160")], "");
        assert_eq!(near.work.get::<Adm>().unwrap().passes.len(), 1);
        assert_eq!(
            (
                near.work.get::<Cambi>().unwrap().analyses.len(),
                near.work.get::<Speed>().unwrap().scalings.len()
            ),
            (1, 1)
        );
        assert_eq!(near.work.get::<Motion>(), Some(&MotionWork { lag1: true, lag2: true }));
        assert_eq!(near.work.get::<Vif>(), None);

        let names = crate::model::builtin::names().collect::<Vec<_>>();
        let all = with_features(&names, "");
        let gains: Vec<_> =
            all.work.get::<Adm>().unwrap().passes.iter().map(|p| (p.gain_limit, p.aim)).collect();
        assert_eq!(gains, [(100.0, false), (1.0, false), (1.0, true), (1.0, true), (1.0, true)]);
        assert_eq!(all.work.get::<Vif>().unwrap().gain_limits, [100.0, 1.0]);
        assert_eq!(
            (
                all.work.get::<Cambi>().unwrap().analyses.len(),
                all.work.get::<Speed>().unwrap().scalings.len()
            ),
            (1, 3)
        );
        assert_eq!((all.work.get::<Ssim>(), all.work.get::<Psnr>()), (None, None));
    }

    #[test]
    fn values_are_followed_by_name() {
        let plan = with_features(&["vmaf_v0.6.1"], "xpsnr;cvvdp=display=standard_fhd");
        let column = |name: &str| plan.columns.iter().position(|column| column == name).unwrap();
        for name in ["vmaf_v0.6.1", "xpsnr_y", "cvvdp_q_display_standard_fhd"] {
            let followed = plan.followed(name).unwrap();
            assert_eq!((followed.column, followed.aggregate.clone()), (column(name), None));
            let values: Vec<_> = (0..plan.columns.len()).map(|column| column as f64).collect();
            assert_eq!(followed.value(&values), Some(followed.column as f64));
            assert_eq!(followed.value(&[]), None);
        }
        let figure = "cvvdp_display_standard_fhd";
        let followed = plan.followed(figure).unwrap();
        assert_eq!(followed.aggregate.as_deref(), Some(figure));
        let mut values = vec![f64::NAN; plan.columns.len()];
        values[column("cvvdp_q_display_standard_fhd")] = 0.0;
        assert_eq!(followed.value(&values), Some(10.0));
        assert_eq!(plan.followed("cvvdp").unwrap().aggregate.as_deref(), Some(figure));
        let several = with_features(&[], "vif=vif_enhn_gain_limit=1.5;vif=vif_enhn_gain_limit=2");
        for name in ["", "axpsnr_y", "vmaf"] {
            assert!(plan.followed(name).is_none(), "{name}");
        }
        assert!(several.followed("integer_vif_scale0").is_none(), "either may be meant");
        assert!(plan.followable().iter().all(|name| plan.followed(name).is_some()));
        assert!(plan.followable().iter().any(|name| name == figure));

        assert_eq!(plan.first_followed().unwrap().column, column("vmaf_v0.6.1"));
        let first = |features| with_features(&[], features).first_followed();
        assert_eq!(first("cvvdp;xpsnr").unwrap().aggregate.as_deref(), Some("cvvdp"));
        assert_eq!(first("xpsnr;cvvdp").unwrap().aggregate, None);
        assert!(first("").is_none());
    }

    #[test]
    fn the_plan_reads_well() {
        let text = plan(&["vmaf_v0.6.1", "vmaf_v0.6.1neg"]).to_string();
        for line in [
            "  work for vif: VifWork { gain_limits: [100.0, 1.0], scale0: true }",
            "  work for motion: MotionWork { lag1: true, lag2: false }",
            "  features of vif gain limit 1: integer_vif_scale0_egl_1, integer_vif_scale1_egl_1, \
             integer_vif_scale2_egl_1, integer_vif_scale3_egl_1",
            "  features of psnr: psnr_y, psnr_cb, psnr_cr",
            "  model vmaf_v0.6.1neg: integer_adm2_egl_1, integer_motion2, integer_vif_scale0_egl_1, \
             integer_vif_scale1_egl_1, integer_vif_scale2_egl_1, integer_vif_scale3_egl_1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn limits_of_cambi_share_its_pixel_work() {
        let cambi = |options: &[(&'static str, &'static str)]| {
            Feature::resolve("cambi", options.iter().copied()).unwrap()
        };
        let wanted =
            [cambi(&[]), cambi(&[("cambi_max_val", "17")]), cambi(&[("cambi_high_res_speedup", "1080")])];
        let plan = Plan::new(vec![], &wanted, ScoreOptions::default()).unwrap();
        assert_eq!(plan.work.get::<Cambi>().unwrap().analyses.len(), 2);
        assert_eq!(plan.columns, ["cambi", "cambi_cmxv_17", "cambi_hrs_1080"]);
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
        assert_eq!(plan.work.get::<Speed>().unwrap().scalings.len(), 2);
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
