// SPDX-License-Identifier: MPL-2.0

//! Models and collections of models as callers hold them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use engine::model::{self, ScoreOptions, builtin};

use crate::Errno;
use crate::dictionary::Dictionary;
use crate::log::{Level, log};
use crate::registered::{Options, stored_name};

/// No model file is larger.
const MAX_BYTES: u64 = 64 << 20;

/// Scores are not limited to the range of the model.
const DISABLE_CLIP: u64 = 1 << 0;
/// Scores are transformed even where the model leaves that off.
const ENABLE_TRANSFORM: u64 = 1 << 1;

/// Settings of a model that is loaded.
pub struct Config {
    /// The name of its scores.
    pub name: Vec<u8>,
    pub flags: u64,
}

/// A feature that a model reads.
#[derive(Clone)]
pub struct Input {
    pub options: Options,
    output: usize,
    /// The name under which the table has it; `None` where the options do not yield it.
    pub stored: Option<String>,
    /// An option that was set later has a value that it does not take.
    pub is_broken: bool,
}

impl Input {
    fn new(options: Options, output: usize) -> Self {
        let stored = stored_name(options.extractor(), output);
        Self { options, output, stored, is_broken: false }
    }
}

/// A model, or all members of a collection but the first.
#[derive(Clone)]
pub struct Model {
    pub name: Vec<u8>,
    pub model: Arc<model::Model>,
    pub inputs: Vec<Input>,
    pub finish: ScoreOptions,
}

impl Model {
    fn new(model: Arc<model::Model>, config: &Config) -> Self {
        let input = |feature: &engine::metrics::feature::Feature| {
            Input::new(Options::from(&feature.extractor), feature.output)
        };
        Self {
            name: config.name.clone(),
            inputs: model.features().iter().map(input).collect(),
            finish: ScoreOptions {
                clip: config.flags & DISABLE_CLIP == 0,
                transform: config.flags & ENABLE_TRANSFORM != 0,
            },
            model,
        }
    }

    /// Sets options of the features that an extractor computes. What is wrong with a value shows when the features are
    /// used.
    pub fn overload(&mut self, extractor: &str, dictionary: &Dictionary) {
        for input in self.inputs.iter_mut().filter(|input| input.options.extractor().name() == extractor) {
            let is_broken = input.is_broken | input.options.set_all(dictionary).is_err();
            *input = Input { is_broken, ..Input::new(input.options.clone(), input.output) };
        }
    }
}

/// Reads a model by the name that it is built in under.
pub fn load(config: &Config, version: &str) -> Result<Model, Errno> {
    let model = built_in(version, "model")?;
    single(model, config)
}

/// Reads a collection by the name that it is built in under: its first member, and the others.
pub fn load_collection(config: &Config, version: &str) -> Result<(Model, Model), Errno> {
    let model = built_in(version, "model collection")?;
    collection(model, config)
}

/// Reads a model file.
pub fn load_from_path(config: &Config, path: &[u8]) -> Result<Model, Errno> {
    let model = open(config, path).and_then(|model| single(model, config));
    model.inspect_err(|_| unreadable("model", path))
}

/// Reads the file of a collection: its first member, and the others.
pub fn load_collection_from_path(config: &Config, path: &[u8]) -> Result<(Model, Model), Errno> {
    let both = open(config, path).and_then(|model| collection(model, config));
    both.inspect_err(|_| unreadable("model collection", path))
}

fn built_in(version: &str, what: &str) -> Result<Arc<model::Model>, Errno> {
    if !builtin::names().any(|name| name == version) {
        log(Level::Warning, format_args!("no such built-in {what}: \"{version}\""));
        return Err(Errno::INVALID);
    }
    Ok(Arc::new(model::Model::load(version).map_err(|error| refused(&error))?))
}

fn open(config: &Config, path: &[u8]) -> Result<Arc<model::Model>, Errno> {
    let mut text = Vec::new();
    let read = File::open(Path::new(OsStr::from_bytes(path)))
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut text));
    if read.is_err() || text.len() as u64 > MAX_BYTES {
        return Err(Errno::INVALID);
    }
    let name = String::from_utf8_lossy(&config.name);
    Ok(Arc::new(model::Model::from_json(&name, &text).map_err(|error| refused(&error))?))
}

fn refused(error: &model::ModelError) -> Errno {
    log(Level::Debug, error);
    Errno::INVALID
}

fn unreadable(what: &str, path: &[u8]) {
    let text = String::from_utf8_lossy(path);
    log(Level::Error, format_args!("could not read {what} from path: \"{text}\""));
    if path.ends_with(b".pkl") {
        log(Level::Error, "support for pkl model files has been removed, use json");
    }
}

fn single(model: Arc<model::Model>, config: &Config) -> Result<Model, Errno> {
    match model.bootstrap_members() {
        None => Ok(Model::new(model, config)),
        Some(_) => Err(Errno::INVALID),
    }
}

fn collection(model: Arc<model::Model>, config: &Config) -> Result<(Model, Model), Errno> {
    model.bootstrap_members().ok_or(Errno::INVALID)?;
    let model = Model::new(model, config);
    Ok((model.clone(), model))
}
