// SPDX-License-Identifier: MPL-2.0

//! What backends are asked for, and what they answer: the work and the sums of each metric, by the type of the metric.
//!
//! That both are found by type is what keeps a list of all metrics out of everything between a plan and its scores.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Formatter};

use serde::{Deserialize, Serialize};

use super::metric::{Metric, Misfit};
use crate::frame::Geometry;

/// A value of whatever type a metric says.
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

/// What follows from the work for a metric, for whoever does not know the metric.
#[derive(Clone, Copy)]
struct Rules {
    of_reference: bool,
    chroma: fn(&Work) -> bool,
    lags: fn(&Work) -> usize,
    check: fn(&Work, Geometry) -> Result<(), Misfit>,
}

impl Rules {
    const fn of<M: Metric>() -> Self {
        Self {
            of_reference: M::OF_REFERENCE,
            chroma: |work| work.get::<M>().is_some_and(M::chroma),
            lags: |work| work.get::<M>().map_or(0, M::lags),
            check: |work, geometry| work.get::<M>().map_or(Ok(()), |work| M::check(work, geometry)),
        }
    }
}

/// What a backend computes for each pair: the smallest set that serves every requested feature.
#[derive(Clone, Default)]
pub struct Work {
    parts: Parts,
    /// Those of each metric that has a part.
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
    /// The work for a metric, if there is any.
    pub fn get<M: Metric>(&self) -> Option<&M::Work> {
        self.parts.get(M::NAME)
    }

    /// Sets the work for a metric.
    pub fn set<M: Metric>(&mut self, work: M::Work) {
        self.parts.0.insert(M::NAME, Box::new(work));
        self.rules.insert(M::NAME, Rules::of::<M>());
    }

    /// With this work for a metric besides.
    pub fn with<M: Metric>(mut self, work: M::Work) -> Self {
        self.set::<M>(work);
        self
    }

    /// Extends the work for a metric, which is none so far if there is none.
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

    /// Some metric looks at Cb and Cr, where the frames have them.
    pub fn chroma(&self) -> bool {
        self.rules.values().any(|rules| (rules.chroma)(self))
    }

    /// How many earlier reference pictures the metrics look at.
    pub fn lags(&self) -> usize {
        self.rules.values().map(|rules| (rules.lags)(self)).max().unwrap_or(0)
    }

    /// Copies those sums of a pair that depend on the reference pictures alone.
    pub(crate) fn of_reference(&self, sums: &FrameSums) -> FrameSums {
        let names = self.rules.iter().filter(|(_, rules)| rules.of_reference).map(|(name, _)| *name);
        let parts = names.filter_map(|name| Some((name, (**sums.0.0.get(name)?).boxed())));
        FrameSums(Parts(parts.collect()))
    }

    /// Refuses frames for which a metric is not defined.
    pub fn check(&self, geometry: Geometry) -> Result<(), Misfit> {
        self.rules.values().try_for_each(|rules| (rules.check)(self, geometry))
    }

    /// The metrics that are computed, by name.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &dyn Debug)> {
        self.parts.0.iter().map(|(name, part)| (*name, part as &dyn Debug))
    }
}

/// What a backend computed for one pair: plain numbers, no history.
///
/// A part is present when the [`Work`] asked for it and the pair was not submitted as
/// `history_only` (what has history is present even then).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameSums(Parts);

impl FrameSums {
    /// The sums of a metric.
    pub fn get<M: Metric>(&self) -> Option<&M::Sums> {
        self.0.get(M::NAME)
    }

    /// Takes the sums of a metric out.
    pub fn take<M: Metric>(&mut self) -> Option<M::Sums> {
        (self.0.0.remove(M::NAME)? as Box<dyn Any>).downcast().ok().map(|sums| *sums)
    }

    /// Puts the sums of a metric in.
    pub(crate) fn put<M: Metric>(&mut self, sums: M::Sums) {
        self.0.0.insert(M::NAME, Box::new(sums));
    }

    /// The metrics whose sums are not those of another pair.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let differs = |name: &&str| match (self.0.0.get(*name), other.0.0.get(*name)) {
            (Some(a), Some(b)) => !(**a).equals(&**b),
            _ => true,
        };
        let names: BTreeSet<_> = self.0.0.keys().chain(other.0.0.keys()).copied().collect();
        names.into_iter().filter(differs).collect()
    }

    /// The first thing in which the sums that were got are not these, which were expected.
    pub fn difference(&self, got: &Self) -> Option<Difference> {
        let metric = *self.differences(got).first()?;
        let text = |sums: &Self| sums.0.0.get(metric).map_or("nothing".into(), |sums| format!("{sums:#?}"));
        let (expected, got) = (text(self), text(got));
        // One member a line. Where one has more lines than the other, the last of them says so.
        let mut lines = expected.lines().zip(got.lines());
        let differing = lines.find(|(expected, got)| expected != got).unwrap_or((&expected, &got));
        let line = |text: &str| text.trim().trim_end_matches(',').to_owned();
        Some(Difference { metric: metric.into(), expected: line(differing.0), got: line(differing.1) })
    }
}

/// Where the sums of two backends differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{metric} has {got} where the CPU has {expected}")]
pub struct Difference {
    /// The metric, by the name that logs have.
    pub metric: String,
    /// The first member that differs, as it should be.
    pub expected: String,
    /// What it is instead.
    pub got: String,
}

/// Where a value is in a list that has it once; it is appended if it is not there.
pub(super) fn place<T: PartialEq>(all: &mut Vec<T>, value: T) -> usize {
    let found = all.iter().position(|other| *other == value);
    found.unwrap_or_else(|| {
        all.push(value);
        all.len() - 1
    })
}
