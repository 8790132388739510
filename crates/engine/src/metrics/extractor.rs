// SPDX-License-Identifier: MPL-2.0

//! Extractors: libvmaf's name for the parts that users and models request by name, each with options and features.
//!
//! A metric implements [`Extract`] for its options type. Other code handles an [`Extractor`], which hides the type.

use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;

use super::options::{OptionError, Options};
use super::score::{OptionsError, Source, Values};
use super::work::Work;

/// Documentation of some features of an extractor: a row of the table in docs/metrics.md, in Markdown.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The names of the features.
    pub reported: &'static str,
    /// Their meaning.
    pub tells: &'static str,
    /// The range of their values.
    pub range: &'static str,
    /// Their values for two equal videos.
    pub equal: &'static str,
    /// The publication.
    pub source: &'static str,
}

/// Describes an extractor besides its options.
pub trait Extract: Options + PartialEq + Debug + Send + Sync {
    /// Identifies one of its features.
    type Output: Copy + Send + Sync;
    /// Its features: the names that they are reported under, without option suffix.
    const FEATURES: &'static [(&'static str, Self::Output)];
    /// Their documentation.
    const ABOUT: &'static [About];

    /// Returns the option that is off and that this feature requires.
    fn lacks(&self, _output: Self::Output) -> Option<&'static str> {
        None
    }

    /// Returns the default options plus those that this feature requires.
    fn yielding(_output: Self::Output) -> Self {
        Self::default()
    }

    /// Returns true if the feature needs pixel work of its own, so that it is computed only on request.
    fn is_costly(_output: Self::Output) -> bool {
        false
    }

    /// Returns true if the name of the feature ends with the options that differ from their defaults.
    fn has_suffix(_output: Self::Output) -> bool {
        true
    }

    /// Returns the name of a feature in models, if it differs.
    fn in_models(name: &str) -> Option<String> {
        Some(format!("VMAF_integer_feature_{}_score", name.strip_prefix("integer_")?))
    }

    /// Adds its work to `work`, including that of costly features if `costly`. Returns the source of its features.
    fn plan(&self, costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError>;

    /// Collects the values of all features.
    fn values(value: impl Fn(Self::Output) -> f64) -> Values {
        Self::FEATURES.iter().map(|(_, output)| value(*output)).collect()
    }
}

/// [`Extract`] without its type. Features are identified by their index in the list.
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
    /// Creates an extractor with default options.
    pub(super) fn of<E: Extract>() -> Self {
        Self::with(E::default())
    }

    pub(super) fn with<E: Extract>(options: E) -> Self {
        Self(Box::new(options))
    }

    /// Returns its name in libvmaf and in the property `features`.
    pub fn name(&self) -> &'static str {
        (*self.0).name()
    }

    /// Returns the documentation of its features.
    pub fn about(&self) -> &'static [About] {
        (*self.0).about()
    }

    /// Returns its options, if they are of this type.
    pub(super) fn options_as<E: Extract>(&self) -> Option<&E> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// Returns the names of its options.
    pub fn options(&self) -> Vec<&'static str> {
        (*self.0).options()
    }

    /// Returns true if both yield the same features under the same names. As in libvmaf, options that names do not
    /// mention are ignored: the first request decides on them.
    pub fn is_same(&self, other: &Self) -> bool {
        self.name() == other.name() && self.suffix() == other.suffix()
    }

    /// Sets an option from text. Returns `false` if this extractor has no option of that name.
    pub fn set(&mut self, name: &str, text: &str) -> Result<bool, OptionError> {
        (*self.0).set(name, text)
    }

    /// Returns the suffix that libvmaf appends to the names of all its features: the options that differ from their
    /// defaults.
    pub fn suffix(&self) -> String {
        (*self.0).suffix()
    }

    /// Sets the options that the feature of this index requires; the others stay at their defaults.
    pub(super) fn with_feature(&self, output: usize) -> Self {
        Self((*self.0).yielding(output))
    }

    /// Returns the option that is off and that the feature of this index requires.
    pub(super) fn lacks(&self, output: usize) -> Option<&'static str> {
        (*self.0).lacks(output)
    }

    /// Returns true if the feature needs pixel work of its own.
    pub(crate) fn is_costly(&self, output: usize) -> bool {
        (*self.0).is_costly(output)
    }

    /// Returns the names of all its features, without option suffix.
    pub(super) fn names(&self) -> Vec<&'static str> {
        (*self.0).features()
    }

    /// Returns the name of the feature of this index, without option suffix.
    pub(super) fn feature(&self, output: usize) -> &'static str {
        self.names()[output]
    }

    /// Returns the index of the feature with this name in models or lists.
    pub(super) fn output(&self, name: &str) -> Option<usize> {
        let is = |short: &&str| *short == name || (*self.0).in_models(short).is_some_and(|n| n == name);
        self.names().iter().position(is)
    }

    /// Returns the key of a feature.
    pub(super) fn key(&self, output: usize) -> String {
        let name = self.feature(output);
        if (*self.0).has_suffix(output) { format!("{name}{}", self.suffix()) } else { name.to_string() }
    }

    /// Returns the name of a figure of the stream.
    pub(crate) fn named_figure(&self, name: &'static str) -> Cow<'static, str> {
        match self.suffix() {
            suffix if suffix.is_empty() => name.into(),
            suffix => format!("{name}{suffix}").into(),
        }
    }

    /// Adds its work to `work`; see [`Extract::plan`].
    pub(crate) fn plan(&self, costly: bool, work: &mut Work) -> Result<Box<dyn Source>, OptionsError> {
        (*self.0).plan(costly, work)
    }
}
