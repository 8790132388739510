// SPDX-License-Identifier: MPL-2.0

//! The work that backends do and the sums that they return, one of each per metric, found by the type of the metric.
//!
//! Because they are found by type, no code between a plan and its scores needs a list of all metrics.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Formatter};

use serde::{Deserialize, Serialize};

use super::metric::{Metric, Misfit};
use crate::frame::Geometry;
use crate::video::Video;

/// A value of a type that a metric chooses.
trait Value: Any + Debug + Send + Sync {
    fn boxed(&self) -> Box<dyn Value>;
    fn equals(&self, other: &dyn Value) -> bool;
}

impl<T: Any + Clone + PartialEq + Debug + Send + Sync> Value for T {
    fn boxed(&self) -> Box<dyn Value> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn Value) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }
}

/// At most one value for each metric, by its name.
#[derive(Debug, Default)]
struct Parts(BTreeMap<&'static str, Box<dyn Value>>);

impl Clone for Parts {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|(name, value)| (*name, (**value).boxed())).collect())
    }
}

impl PartialEq for Parts {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|((a, x), (b, y))| a == b && (**x).equals(&**y))
    }
}

impl Parts {
    fn get<T: Value>(&self, name: &str) -> Option<&T> {
        (&**self.0.get(name)? as &dyn Any).downcast_ref()
    }
}

/// Properties that follow from the work for a metric, without the metric's type.
#[derive(Clone, Copy)]
struct Rules {
    of_reference: bool,
    takes_rgb: bool,
    suit: fn(&mut Work, &Video, Geometry),
    doubt: fn(&Work, &Video) -> Option<String>,
    readings: fn(&Work, Geometry) -> Vec<String>,
    chroma: fn(&Work) -> bool,
    lags: fn(&Work) -> usize,
    history: fn(&Work) -> usize,
    check: fn(&Work, Geometry) -> Result<(), Misfit>,
}

impl Rules {
    const fn of<M: Metric>() -> Self {
        Self {
            of_reference: M::OF_REFERENCE,
            takes_rgb: M::TAKES_RGB,
            suit: |work, video, geometry| {
                if let Some(mut own) = work.get::<M>().cloned() {
                    M::suit(&mut own, video, M::part(geometry));
                    work.set::<M>(own);
                }
            },
            doubt: |work, video| work.get::<M>().and_then(|work| M::doubt(work, video)),
            readings: |work, geometry| {
                work.get::<M>().map(|work| M::readings(work, M::part(geometry))).unwrap_or_default()
            },
            chroma: |work| work.get::<M>().is_some_and(M::chroma),
            lags: |work| work.get::<M>().map_or(0, M::lags),
            history: |work| work.get::<M>().map_or(0, M::history),
            check: |work, geometry| work.get::<M>().map_or(Ok(()), |work| M::check(work, M::part(geometry))),
        }
    }
}

/// The work of a backend for each pair: the smallest set that serves all requested features.
#[derive(Clone, Default)]
pub struct Work {
    parts: Parts,
    /// The rules of each metric that has a part.
    rules: BTreeMap<&'static str, Rules>,
}

impl PartialEq for Work {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Debug for Work {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.parts()).finish()
    }
}

impl Work {
    /// Returns the work for a metric, if there is any.
    pub fn get<M: Metric>(&self) -> Option<&M::Work> {
        self.parts.get(M::NAME)
    }

    /// Sets the work for a metric.
    pub fn set<M: Metric>(&mut self, work: M::Work) {
        self.parts.0.insert(M::NAME, Box::new(work));
        self.rules.insert(M::NAME, Rules::of::<M>());
    }

    /// Returns the same work with this work for a metric.
    pub fn with<M: Metric>(mut self, work: M::Work) -> Self {
        self.set::<M>(work);
        self
    }

    /// Extends the work for a metric, starting from none.
    pub(crate) fn extend<M: Metric, R>(
        &mut self,
        none: M::Work,
        extend: impl FnOnce(&mut M::Work) -> R,
    ) -> R {
        let mut work = self.get::<M>().cloned().unwrap_or(none);
        let result = extend(&mut work);
        self.set::<M>(work);
        result
    }

    /// Returns the same work for a stream with these properties.
    pub fn suited(&self, video: &Video, geometry: Geometry) -> Self {
        let mut work = self.clone();
        self.rules.values().for_each(|rules| (rules.suit)(&mut work, video, geometry));
        work
    }

    /// Returns why values of metrics may not be meant for a stream with these properties, and what to do.
    pub fn doubts(&self, video: &Video) -> impl Iterator<Item = String> {
        self.rules.values().filter_map(|rules| (rules.doubt)(self, video))
    }

    /// Describes how metrics read a stream that the work suits: their names, and a text.
    pub fn readings(&self, geometry: Geometry) -> Vec<(&'static str, String)> {
        let text = |rules: &Rules| (rules.readings)(self, geometry).join("; ");
        let lines = self.rules.iter().map(|(name, rules)| (*name, text(rules)));
        lines.filter(|(_, text)| !text.is_empty()).collect()
    }

    /// Returns true if a metric reads Cb and Cr, where the frames have them.
    pub fn chroma(&self) -> bool {
        self.rules.values().any(|rules| (rules.chroma)(self))
    }

    /// Returns how many earlier reference pictures the metrics read.
    pub fn lags(&self) -> usize {
        self.rules.values().map(|rules| (rules.lags)(self)).max().unwrap_or(0)
    }

    /// Returns how many earlier pictures of every stream the metrics read, the distorted ones too. They keep them
    /// themselves, so groups have to be computed in their order.
    pub fn history(&self) -> usize {
        self.rules.values().map(|rules| (rules.history)(self)).max().unwrap_or(0)
    }

    /// Copies the sums of a pair that depend on the reference pictures alone.
    pub(crate) fn of_reference(&self, sums: &FrameSums) -> FrameSums {
        let names = self.rules.iter().filter(|(_, rules)| rules.of_reference).map(|(name, _)| *name);
        let parts = names.filter_map(|name| Some((name, (**sums.0.0.get(name)?).boxed())));
        FrameSums(Parts(parts.collect()))
    }

    /// Rejects frames for which a metric is not defined.
    pub fn check(&self, geometry: Geometry) -> Result<(), Misfit> {
        self.rules.values().try_for_each(|rules| (rules.check)(self, geometry))
    }

    /// Returns true if all metrics are defined for R'G'B'.
    pub fn takes_rgb(&self) -> bool {
        self.rules.values().all(|rules| rules.takes_rgb)
    }

    /// Rejects a stream for which a metric is not defined.
    pub fn check_video(&self, video: &Video) -> Result<(), Misfit> {
        let unfit = self.rules.iter().find(|(_, rules)| video.colorimetry.is_rgb() && !rules.takes_rgb);
        unfit.map_or(Ok(()), |(metric, _)| Err(Misfit::Rgb { metric }))
    }

    /// Returns the metrics that are computed, by name.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &dyn Debug)> {
        self.parts.0.iter().map(|(name, part)| (*name, part as &dyn Debug))
    }
}

/// The sums of one pair: plain numbers without history.
///
/// A part is present if the [`Work`] requests it and the pair was not submitted as `history_only`. Sums with history
/// are present even then.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameSums(Parts);

impl FrameSums {
    /// Returns the sums of a metric.
    pub fn get<M: Metric>(&self) -> Option<&M::Sums> {
        self.0.get(M::NAME)
    }

    /// Removes and returns the sums of a metric.
    pub fn take<M: Metric>(&mut self) -> Option<M::Sums> {
        (self.0.0.remove(M::NAME)? as Box<dyn Any>).downcast().ok().map(|sums| *sums)
    }

    /// Inserts the sums of a metric.
    pub(crate) fn put<M: Metric>(&mut self, sums: M::Sums) {
        self.0.0.insert(M::NAME, Box::new(sums));
    }

    /// Returns the metrics whose sums differ from those of another pair.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let differs = |name: &&str| match (self.0.0.get(*name), other.0.0.get(*name)) {
            (Some(a), Some(b)) => !(**a).equals(&**b),
            _ => true,
        };
        let names: BTreeSet<_> = self.0.0.keys().chain(other.0.0.keys()).copied().collect();
        names.into_iter().filter(differs).collect()
    }

    /// Returns the first difference between these expected sums and the actual ones.
    pub fn difference(&self, got: &Self) -> Option<Difference> {
        let metric = *self.differences(got).first()?;
        let text = |sums: &Self| sums.0.0.get(metric).map_or("nothing".into(), |sums| format!("{sums:#?}"));
        let (expected, got) = (text(self), text(got));
        // Compares one member per line. If one text is longer than the other, its last line is the difference.
        let mut lines = expected.lines().zip(got.lines());
        let differing = lines.find(|(expected, got)| expected != got).unwrap_or((&expected, &got));
        let line = |text: &str| text.trim().trim_end_matches(',').to_owned();
        Some(Difference { metric: metric.into(), expected: line(differing.0), got: line(differing.1) })
    }
}

/// A difference between the sums of two backends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{metric} has {got} where the CPU has {expected}")]
pub struct Difference {
    /// The metric, by its name in logs.
    pub metric: String,
    /// The expected value of the first member that differs.
    pub expected: String,
    /// Its actual value.
    pub got: String,
}

/// Returns the index of a value in a list of distinct values; appends the value if it is missing.
pub(super) fn place<T: PartialEq>(all: &mut Vec<T>, value: T) -> usize {
    let found = all.iter().position(|other| *other == value);
    found.unwrap_or_else(|| {
        all.push(value);
        all.len() - 1
    })
}
