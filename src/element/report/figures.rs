// SPDX-License-Identifier: MPL-2.0

//! The figures of one frame and of many, as messages, metadata, statistics and the metrics file report them.

use std::sync::Arc;

use engine::model::pool::Pooled;
use engine::plan::{Followed, Plan};
use engine::session::StreamTotals;
use watch::summary::{Distribution, Summary};

use super::super::error::Error;
use super::super::settings::{PoolMethod, Settings};
use super::message::{Common, Confidence, Stats, Values};

/// Computes the figures that are reported from the values of the plan's columns.
pub struct Figures {
    pub plan: Arc<Plan>,
    /// The value that the property `score` names.
    pub followed: Followed,
    confidence: bool,
    psnr: bool,
    ssim: bool,
    ms_ssim: bool,
}

/// The figures of many frames together.
pub struct Together {
    /// The pooled score; NaN without frames.
    pub score: f64,
    pub stats: Stats,
    /// Figures that are no mean of values of frames, by name.
    pub aggregates: Values,
}

impl Figures {
    pub fn new(settings: &Settings, plan: Arc<Plan>) -> Result<Self, Error> {
        Ok(Self {
            followed: followed(settings, &plan)?,
            plan,
            confidence: settings.conf_interval,
            psnr: settings.psnr,
            ssim: settings.ssim,
            ms_ssim: settings.ms_ssim,
        })
    }

    /// Returns the part of a message or meta that follows from column values, be they of a frame or pooled.
    pub fn of_values(&self, values: &[f64]) -> Common {
        let Plan { models, features, .. } = &*self.plan;
        let value = |column: usize| values.get(column).copied().unwrap_or(f64::NAN);
        let named = |(column, name): (usize, &str)| (name.to_string(), value(column));
        let confidence = models
            .first()
            .filter(|_| self.confidence)
            .and_then(|first| first.confidence_columns())
            .map(|columns| columns.map(value))
            .map(|[stddev, low, high]| Confidence { stddev, low, high });
        let metric = |on: bool, key: &str| features.iter().position(|f| on && f.key == key).map(value);
        Common {
            model: self.plan.columns[self.followed.column].clone(),
            score: value(self.followed.column),
            confidence,
            psnr_y: metric(self.psnr, "psnr_y"),
            ssim: metric(self.ssim, "float_ssim"),
            ms_ssim: metric(self.ms_ssim, "float_ms_ssim"),
            models: models.iter().map(|m| (m.column, m.model.name())).map(named).collect(),
            // Chroma features of grey video have no value.
            features: features
                .iter()
                .enumerate()
                .map(|(column, feature)| named((column, &feature.key)))
                .filter(|(_, value)| !value.is_nan())
                .collect(),
            ..Common::default()
        }
    }

    /// Returns the name of the score of many frames.
    pub fn name(&self) -> &str {
        self.followed.aggregate.as_deref().unwrap_or(&self.plan.columns[self.followed.column])
    }

    /// Computes the figures of many frames from their scores and totals.
    pub fn together(
        &self,
        summary: &Summary<impl Distribution>,
        totals: &StreamTotals,
        method: PoolMethod,
    ) -> Together {
        let aggregates = totals.aggregates(&self.plan);
        let nan = f64::NAN;
        let none = Pooled { count: 0, min: nan, max: nan, mean: nan, harmonic_mean: nan, stddev: nan };
        let pooled = summary.pool.pooled().unwrap_or(none);
        // A metric that defines the figure of many frames has no mean of single ones.
        let own = self.followed.aggregate.as_ref();
        let own =
            own.map(|own| aggregates.iter().find(|(name, _)| name == own).map_or(nan, |(_, value)| *value));
        Together {
            score: own.unwrap_or(method.of(&summary.pool)),
            stats: Stats {
                min: pooled.min,
                max: pooled.max,
                mean: own.unwrap_or(pooled.mean),
                harmonic_mean: own.map_or(pooled.harmonic_mean, |_| nan),
                stddev: pooled.stddev,
                p1: summary.percentile(1.0),
                p5: summary.percentile(5.0),
                p10: summary.percentile(10.0),
                p50: summary.percentile(50.0),
            },
            aggregates: aggregates.into_iter().map(|(name, value)| (name.into_owned(), value)).collect(),
        }
    }

    /// Returns the only score of many frames, as the list of models or else as that of features.
    pub fn only(&self, score: f64) -> Common {
        let named = vec![(self.name().to_string(), score)];
        let is_model = self.plan.models.iter().any(|model| model.column == self.followed.column);
        let (models, features) = if is_model { (named, vec![]) } else { (vec![], named) };
        Common { model: self.name().into(), score, models, features, ..Common::default() }
    }
}

/// Returns what the property `score` names in a plan: the first model unless it is set, without models the first feature.
fn followed(settings: &Settings, plan: &Plan) -> Result<Followed, Error> {
    let named = settings.score.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let followed = named.map_or_else(|| plan.first_followed(), |name| plan.followed(name));
    followed.ok_or_else(|| {
        let (name, known) = (named.unwrap_or_default(), plan.followable().join(", "));
        Error::Setting {
            property: "score",
            reason: format!("nothing that is computed is called {name}; there are {known}"),
        }
    })
}
