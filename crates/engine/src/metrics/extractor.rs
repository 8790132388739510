// SPDX-License-Identifier: MPL-2.0

//! Extractors: what libvmaf calls the parts that users and models ask for by name, each with options and features.
//!
//! A metric implements [`Extract`] for the type of the options; everybody else handles an [`Extractor`], which
//! knows its type no more.

use std::any::Any;
use std::fmt::Debug;

use super::options::{OptionError, Options};
use super::score::{OptionsError, Source, Values};
use super::work::Work;

/// What users read about some of the features of an extractor; a row of the list in docs/metrics.md, in Markdown.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The names of the features.
    pub reported: &'static str,
    /// What they tell.
    pub tells: &'static str,
    /// What values they take.
    pub range: &'static str,
    /// What two equal videos give.
    pub equal: &'static str,
    /// Where it was published.
    pub source: &'static str,
}

/// What an extractor is, besides its options.
pub trait Extract: Options + PartialEq + Debug + Send + Sync {
    /// What tells its features apart.
    type Output: Copy + Send + Sync;
    /// Its features: the names that they are reported under, without option suffix.
    const FEATURES: &'static [(&'static str, Self::Output)];
    /// What users read about them.
    const ABOUT: &'static [About];

    /// The option that is off and without which there is no such feature.
    fn lacks(&self, _output: Self::Output) -> Option<&'static str> {
        None
    }

    /// The default options, but for those without which there is no such feature.
    fn yielding(_output: Self::Output) -> Self {
        Self::default()
    }

    /// It takes pixel work of its own, so nobody gets it without asking.
    fn is_costly(_output: Self::Output) -> bool {
        false
    }

    /// Its name is followed by the options that differ from their defaults.
    fn has_suffix(_output: Self::Output) -> bool {
        true
    }

    /// What models call a feature, where that is not its name.
    fn in_models(name: &str) -> Option<String> {
        Some(format!("VMAF_integer_feature_{}_score", name.strip_prefix("integer_")?))
    }

    /// Adds its work to that of others, the costly features' too if `costly`, and says where its features are found.
    fn plan(&self, costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError>;

    /// The values of all features.
    fn values(value: impl Fn(Self::Output) -> f64) -> Values {
        Self::FEATURES.iter().map(|(_, output)| value(*output)).collect()
    }
}

/// [`Extract`] for whoever does not know the type. Features go by their number in the list.
trait Erased: Any + Debug + Send + Sync {
    fn boxed(&self) -> Box<dyn Erased>;
    fn equals(&self, other: &dyn Erased) -> bool;
    fn name(&self) -> &'static str;
    fn options(&self) -> Vec<&'static str>;
    fn set(&mut self, name: &str, text: &str) -> Result<bool, OptionError>;
    fn suffix(&self) -> String;
    fn features(&self) -> Vec<&'static str>;
    fn about(&self) -> &'static [About];
    fn yielding(&self, output: usize) -> Box<dyn Erased>;
    fn lacks(&self, output: usize) -> Option<&'static str>;
    fn is_costly(&self, output: usize) -> bool;
    fn has_suffix(&self, output: usize) -> bool;
    fn in_models(&self, name: &str) -> Option<String>;
    fn plan(&self, costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError>;
}

impl<E: Extract> Erased for E {
    fn boxed(&self) -> Box<dyn Erased> {
        Box::new(*self)
    }

    fn equals(&self, other: &dyn Erased) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }

    fn name(&self) -> &'static str {
        E::EXTRACTOR
    }

    fn options(&self) -> Vec<&'static str> {
        Options::names(self)
    }

    fn set(&mut self, name: &str, text: &str) -> Result<bool, OptionError> {
        Options::set(self, name, text)
    }

    fn suffix(&self) -> String {
        Options::suffix(*self)
    }

    fn features(&self) -> Vec<&'static str> {
        E::FEATURES.iter().map(|(name, _)| *name).collect()
    }

    fn about(&self) -> &'static [About] {
        E::ABOUT
    }

    fn yielding(&self, output: usize) -> Box<dyn Erased> {
        Box::new(E::yielding(E::FEATURES[output].1))
    }

    fn lacks(&self, output: usize) -> Option<&'static str> {
        Extract::lacks(self, E::FEATURES[output].1)
    }

    fn is_costly(&self, output: usize) -> bool {
        E::is_costly(E::FEATURES[output].1)
    }

    fn has_suffix(&self, output: usize) -> bool {
        E::has_suffix(E::FEATURES[output].1)
    }

    fn in_models(&self, name: &str) -> Option<String> {
        E::in_models(name)
    }

    fn plan(&self, costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        Extract::plan(self, costly, work)
    }
}

/// An extractor with its options.
#[derive(Debug)]
pub struct Extractor(Box<dyn Erased>);

impl Clone for Extractor {
    fn clone(&self) -> Self {
        Self((*self.0).boxed())
    }
}

impl PartialEq for Extractor {
    fn eq(&self, other: &Self) -> bool {
        (*self.0).equals(&*other.0)
    }
}

impl Extractor {
    /// With default options.
    pub(super) fn of<E: Extract>() -> Self {
        Self::with(E::default())
    }

    pub(super) fn with<E: Extract>(options: E) -> Self {
        Self(Box::new(options))
    }

    /// Its name in libvmaf, and in the property `features`.
    pub fn name(&self) -> &'static str {
        (*self.0).name()
    }

    /// What users read about its features.
    pub fn about(&self) -> &'static [About] {
        (*self.0).about()
    }

    /// Returns its options, if they are of this type.
    pub(super) fn options_as<E: Extract>(&self) -> Option<&E> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// Names of its options.
    pub fn options(&self) -> Vec<&'static str> {
        (*self.0).options()
    }

    /// Both yield the same features under the same names. As in libvmaf, options that names do not mention
    /// make no difference: whoever asks first decides on them.
    pub fn is_same(&self, other: &Self) -> bool {
        self.name() == other.name() && self.suffix() == other.suffix()
    }

    /// Sets an option from text; `false` when this extractor has no option of that name.
    pub fn set(&mut self, name: &str, text: &str) -> Result<bool, OptionError> {
        (*self.0).set(name, text)
    }

    /// What libvmaf appends to the names of all features of this extractor: the options that differ from their defaults.
    pub fn suffix(&self) -> String {
        (*self.0).suffix()
    }

    /// With the options that yield the feature of this number: the defaults, but for those without which it is not there.
    pub(super) fn with_feature(&self, output: usize) -> Self {
        Self((*self.0).yielding(output))
    }

    /// The option that is off and without which this extractor does not yield the feature of this number.
    pub(super) fn lacks(&self, output: usize) -> Option<&'static str> {
        (*self.0).lacks(output)
    }

    /// The feature takes pixel work of its own.
    pub(crate) fn is_costly(&self, output: usize) -> bool {
        (*self.0).is_costly(output)
    }

    /// The names of all its features, without option suffix.
    pub(super) fn names(&self) -> Vec<&'static str> {
        (*self.0).features()
    }

    /// The name of the feature of this number, without option suffix.
    pub(super) fn feature(&self, output: usize) -> &'static str {
        self.names()[output]
    }

    /// The number of the feature that a model or a user calls by this name.
    pub(super) fn output(&self, name: &str) -> Option<usize> {
        let is = |short: &&str| *short == name || (*self.0).in_models(short).is_some_and(|n| n == name);
        self.names().iter().position(is)
    }

    /// The key of a feature.
    pub(super) fn key(&self, output: usize) -> String {
        let name = self.feature(output);
        if (*self.0).has_suffix(output) { format!("{name}{}", self.suffix()) } else { name.to_string() }
    }

    /// Adds its work to that of others, see [`Extract::plan`].
    pub(crate) fn plan(&self, costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        (*self.0).plan(costly, work)
    }
}
