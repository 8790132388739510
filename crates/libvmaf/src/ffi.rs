// SPDX-License-Identifier: MPL-2.0

//! The functions and structures of `libvmaf.h`, `model.h`, `picture.h` and `feature.h`.
//!
//! Functions return 0 or a negative error number; those of pairs also 1, for pictures too small for `float_ms_ssim`. Null
//! pointers are refused. No panic leaves a function.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::Errno;
use crate::backend::Choice;
use crate::context::{Context, State, VERSION_C};
use crate::dictionary::Dictionary;
use crate::log;
use crate::model::{self, Config, Model};
use crate::picture::{self, Format, View, VmafPicture};
use crate::predict::CollectionScores;
use crate::registered::{self, Registered};
use crate::report;

/// Settings of a context.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct VmafConfiguration {
    /// 0 for no messages, to 4 for all.
    pub log_level: u32,
    /// Computing threads; 0 for one, with errors of pairs known at once.
    pub n_threads: u32,
    /// Every so many pairs are scored.
    pub n_subsample: u32,
    /// Accepted, and without effect.
    pub cpumask: u64,
    /// Other than 0: no GPU.
    pub gpumask: u64,
}

/// A pool of pictures.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct VmafPictureConfiguration {
    /// Samples of a row.
    pub w: u32,
    /// Rows.
    pub h: u32,
    /// Bits of a sample.
    pub bpc: u32,
    /// As in [`VmafPicture`].
    pub pix_fmt: u32,
    /// Pictures in the pool.
    pub pic_cnt: u32,
}

/// Settings of a model that is loaded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmafModelConfig {
    /// The name of its scores; null for `vmaf`.
    pub name: *const c_char,
    /// 1: scores are not limited; 2: they are transformed even where the model leaves that off.
    pub flags: u64,
}

/// The scores of a collection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct VmafModelCollectionScore {
    /// 1 once the scores are there.
    pub kind: u32,
    /// The mean of the members.
    pub bagging_score: f64,
    /// Their standard deviation.
    pub stddev: f64,
    /// The lower end of the 95 % confidence interval.
    pub ci_p95_lo: f64,
    /// The upper end.
    pub ci_p95_hi: f64,
}

impl VmafModelCollectionScore {
    const BOOTSTRAP: u32 = 1;

    fn new([bagging_score, stddev, ci_p95_lo, ci_p95_hi]: CollectionScores) -> Self {
        Self { kind: Self::BOOTSTRAP, bagging_score, stddev, ci_p95_lo, ci_p95_hi }
    }
}

/// A context.
pub struct VmafContext(Context);

/// A model.
pub struct VmafModel(Model);

/// The members of a collection, but the first.
pub struct VmafModelCollection(Model);

/// Options by name.
pub struct VmafFeatureDictionary(Dictionary);

/// Runs a function of the interface; a panic becomes an error.
pub(crate) fn guarded(function: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(())) => 0,
        Ok(Err(Errno(code))) => code,
        Err(_) => Errno::INVALID.0,
    }
}

/// The string that a caller points to.
///
/// # Safety
///
/// The pointer is null or that of a string, which lives until the function that was called returns.
unsafe fn string<'a>(text: *const c_char) -> Result<&'a CStr, Errno> {
    // SAFETY: as promised.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }).ok_or(Errno::INVALID)
}

/// The string that a caller points to, as text.
///
/// # Safety
///
/// As of [`string`].
unsafe fn text<'a>(text: *const c_char) -> Result<std::borrow::Cow<'a, str>, Errno> {
    // SAFETY: as promised.
    Ok(unsafe { string(text) }?.to_string_lossy())
}

/// The context that a caller points to.
///
/// # Safety
///
/// The pointer is null or that of a context, which lives until the function that was called returns.
pub(crate) unsafe fn context<'a>(context: *mut VmafContext) -> Result<&'a Context, Errno> {
    // SAFETY: as promised.
    let VmafContext(context) = unsafe { context.as_ref() }.ok_or(Errno::INVALID)?;
    context.is_here().then_some(context).ok_or(Errno::INVALID)
}

/// Reads the settings of a model that a caller points to.
///
/// # Safety
///
/// The pointer is null or that of a structure, whose name is null or a string.
unsafe fn config(config: *const VmafModelConfig) -> Result<Config, Errno> {
    // SAFETY: as promised.
    let VmafModelConfig { name, flags } = *unsafe { config.as_ref() }.ok_or(Errno::INVALID)?;
    // SAFETY: as promised.
    let name = if name.is_null() { b"vmaf" } else { unsafe { CStr::from_ptr(name) }.to_bytes() };
    Ok(Config { name: name.to_vec(), flags })
}

/// Gives a value to a caller, who ends it with the function for that.
///
/// # Safety
///
/// The pointer can be written to.
unsafe fn give<T>(to: *mut *mut T, value: T) {
    // SAFETY: as promised.
    unsafe { to.write(Box::into_raw(Box::new(value))) };
}

/// Takes back what [`give`] has given.
///
/// # Safety
///
/// The pointer came from [`give`], and is not used any more.
unsafe fn take_back<T>(value: *mut T) -> Option<Box<T>> {
    // SAFETY: as promised.
    (!value.is_null()).then(|| unsafe { Box::from_raw(value) })
}

/// Fails where a pointer is null.
pub(crate) fn not_null<T>(pointer: *const T) -> Result<(), Errno> {
    if pointer.is_null() { Err(Errno::INVALID) } else { Ok(()) }
}

/// Makes a context.
///
/// # Safety
///
/// `vmaf` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_init(vmaf: *mut *mut VmafContext, cfg: VmafConfiguration) -> c_int {
    guarded(|| {
        not_null(vmaf)?;
        log::set_level(cfg.log_level);
        let choice = if cfg.gpumask == 0 { Choice::from_environment() } else { Choice::Cpu };
        // SAFETY: checked, and promised by the caller.
        unsafe { give(vmaf, VmafContext(Context::new(cfg.n_threads, cfg.n_subsample, choice))) };
        Ok(())
    })
}

/// Ends a context. Waits for pairs that are being computed, and for pictures of its pools.
///
/// # Safety
///
/// `vmaf` is null or a context that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_close(vmaf: *mut VmafContext) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        unsafe { context(vmaf) }?;
        // SAFETY: as above.
        if let Some(vmaf) = unsafe { take_back(vmaf) } {
            vmaf.0.close();
        }
        Ok(())
    })
}

fn use_features(context: &Context, model: &Model) -> Result<(), Errno> {
    let mut state = context.state();
    for input in &model.inputs {
        if input.is_broken {
            return Err(Errno::INVALID);
        }
        state.reader.register(Registered::new(Some(input.options.clone())));
    }
    Ok(())
}

/// Computes the features that a model reads, for the pairs that follow.
///
/// # Safety
///
/// `vmaf` and `model` are null or what this library has made of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_use_features_from_model(
    vmaf: *mut VmafContext,
    model: *mut VmafModel,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        // SAFETY: as above.
        let VmafModel(model) = unsafe { model.as_ref() }.ok_or(Errno::INVALID)?;
        use_features(context, model)
    })
}

/// Computes the features that a collection reads, for the pairs that follow.
///
/// # Safety
///
/// `vmaf` and `collection` are null or what this library has made of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_use_features_from_model_collection(
    vmaf: *mut VmafContext,
    collection: *mut VmafModelCollection,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        // SAFETY: as above.
        let VmafModelCollection(model) = unsafe { collection.as_ref() }.ok_or(Errno::INVALID)?;
        use_features(context, model)
    })
}

/// Computes the features of an extractor, for the pairs that follow. Options belong to the library once the extractor is known.
///
/// # Safety
///
/// `vmaf` and `options` are null or what this library has made of them, `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_use_feature(
    vmaf: *mut VmafContext,
    name: *const c_char,
    options: *mut VmafFeatureDictionary,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        // SAFETY: as above.
        let name = unsafe { text(name) }?;
        // SAFETY: as above.
        let dictionary = unsafe { options.as_ref() }.map(|VmafFeatureDictionary(dictionary)| dictionary);
        let registered = registered::named(&name, dictionary).ok_or(Errno::INVALID)?;
        // SAFETY: as above; the caller gives the options away.
        drop(unsafe { take_back(options) });
        context.state().reader.register(registered?);
        Ok(())
    })
}

/// Stores a score.
///
/// # Safety
///
/// `vmaf` is null or a context, `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_import_feature_score(
    vmaf: *mut VmafContext,
    name: *const c_char,
    value: f64,
    index: u32,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        // SAFETY: as above.
        let name = unsafe { string(name) }?;
        let mut state = context.state();
        let State { reader, collector } = &mut *state;
        reader.drain(collector);
        collector.append(name.to_bytes(), value, index)
    })
}

/// Takes a pair of pictures; without pictures, ends the input. After an error the caller keeps both pictures.
///
/// # Safety
///
/// `vmaf` is null or a context. The structures are null, zero, or filled in by this library, and nothing writes to the
/// pictures any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_read_pictures(
    vmaf: *mut VmafContext,
    reference: *mut VmafPicture,
    distorted: *mut VmafPicture,
    index: u32,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        let mut state = context.state();
        let State { reader, collector } = &mut *state;
        if reference.is_null() && distorted.is_null() {
            return reader.flush(collector);
        }
        if reference.is_null() || distorted.is_null() || std::ptr::eq(reference, distorted) {
            return Err(Errno::INVALID);
        }
        // SAFETY: promised by the caller, checked, and two structures.
        let (reference, distorted) = unsafe { (&mut *reference, &mut *distorted) };
        if std::ptr::eq(reference.reference, distorted.reference) {
            return Err(Errno::INVALID);
        }
        // SAFETY: promised by the caller.
        let pair = unsafe { [View::new(reference)?, View::new(distorted)?] };
        reader.check(pair.each_ref().map(|view| view.format))?;
        context.add_pool_if_none(pair[0].format, reader.threads())?;
        let take = || {
            // SAFETY: promised by the caller.
            let (first, second) = unsafe { (picture::take(reference)?, picture::take(distorted)?) };
            Ok([first, second])
        };
        reader.read(collector, pair, take, index)
    })
}

/// Returns the score of a model for a pair.
///
/// # Safety
///
/// `vmaf` and `model` are null or what this library has made of them, `score` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_score_at_index(
    vmaf: *mut VmafContext,
    model: *mut VmafModel,
    score: *mut f64,
    index: u32,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        // SAFETY: as above.
        let VmafModel(model) = unsafe { model.as_ref() }.ok_or(Errno::INVALID)?;
        not_null(score)?;
        let value = context.state().model_score(model, index)?;
        // SAFETY: checked, and promised by the caller.
        unsafe { score.write(value) };
        Ok(())
    })
}

/// Returns the scores of a collection for a pair.
///
/// # Safety
///
/// As of [`vmaf_score_at_index`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_score_at_index_model_collection(
    vmaf: *mut VmafContext,
    collection: *mut VmafModelCollection,
    score: *mut VmafModelCollectionScore,
    index: u32,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        // SAFETY: as above.
        let VmafModelCollection(model) = unsafe { collection.as_ref() }.ok_or(Errno::INVALID)?;
        not_null(score)?;
        let scores = context.state().collection_scores(model, index)?;
        // SAFETY: checked, and promised by the caller.
        unsafe { score.write(VmafModelCollectionScore::new(scores)) };
        Ok(())
    })
}

/// Returns the score of a name for a pair.
///
/// # Safety
///
/// `vmaf` is null or a context, `name` is null or a string, `score` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_feature_score_at_index(
    vmaf: *mut VmafContext,
    name: *const c_char,
    score: *mut f64,
    index: u32,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        // SAFETY: as above.
        let name = unsafe { string(name) }?;
        not_null(score)?;
        let mut state = context.state();
        let value = state.feature(name.to_bytes(), index).or_else(|| state.early_feature(name, index));
        // SAFETY: checked, and promised by the caller.
        unsafe { score.write(value.ok_or(Errno::INVALID)?) };
        Ok(())
    })
}

/// Returns one number for the scores of a model.
///
/// # Safety
///
/// As of [`vmaf_score_at_index`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_score_pooled(
    vmaf: *mut VmafContext,
    model: *mut VmafModel,
    method: u32,
    score: *mut f64,
    index_low: u32,
    index_high: u32,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        // SAFETY: as above.
        let VmafModel(model) = unsafe { model.as_ref() }.ok_or(Errno::INVALID)?;
        not_null(score)?;
        let value = context.state().pooled_model(model, method, index_low, index_high)?;
        // SAFETY: checked, and promised by the caller.
        unsafe { score.write(value) };
        Ok(())
    })
}

/// Returns one number for each of the scores of a collection.
///
/// # Safety
///
/// As of [`vmaf_score_at_index`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_score_pooled_model_collection(
    vmaf: *mut VmafContext,
    collection: *mut VmafModelCollection,
    method: u32,
    score: *mut VmafModelCollectionScore,
    index_low: u32,
    index_high: u32,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        // SAFETY: as above.
        let VmafModelCollection(model) = unsafe { collection.as_ref() }.ok_or(Errno::INVALID)?;
        not_null(score)?;
        let scores = context.state().pooled_collection(model, method, index_low, index_high)?;
        // SAFETY: checked, and promised by the caller.
        unsafe { score.write(VmafModelCollectionScore::new(scores)) };
        Ok(())
    })
}

/// Returns one number for the scores of a name.
///
/// # Safety
///
/// As of [`vmaf_feature_score_at_index`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_feature_score_pooled(
    vmaf: *mut VmafContext,
    name: *const c_char,
    method: u32,
    score: *mut f64,
    index_low: u32,
    index_high: u32,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        // SAFETY: as above.
        let name = unsafe { string(name) }?;
        not_null(score)?;
        let value = context.state().pooled(name.to_bytes(), method, index_low, index_high)?;
        // SAFETY: checked, and promised by the caller.
        unsafe { score.write(value) };
        Ok(())
    })
}

/// Makes a pool of pictures.
///
/// # Safety
///
/// `vmaf` is null or a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_preallocate_pictures(
    vmaf: *mut VmafContext,
    cfg: VmafPictureConfiguration,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        context.add_pool(Format::new(cfg.pix_fmt, cfg.bpc, cfg.w, cfg.h)?, cfg.pic_cnt)
    })
}

/// Hands out a picture of the pool; waits while there is none.
///
/// # Safety
///
/// `vmaf` is null or a context, `picture` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_fetch_preallocated_picture(
    vmaf: *mut VmafContext,
    picture: *mut VmafPicture,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        not_null(picture)?;
        let fetched = context.pool().ok_or(Errno::INVALID)?.fetch()?;
        // SAFETY: checked, and promised by the caller.
        unsafe { picture.write(fetched) };
        Ok(())
    })
}

/// Writes a report: XML, JSON, CSV and SUB are 1 to 4.
///
/// # Safety
///
/// `vmaf` is null or a context, `path` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_write_output(
    vmaf: *mut VmafContext,
    path: *const c_char,
    format: u32,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let context = unsafe { context(vmaf) }?;
        // SAFETY: as above.
        let path = unsafe { string(path) }?;
        let Ok(mut file) = std::fs::File::create(Path::new(OsStr::from_bytes(path.to_bytes()))) else {
            log::print(&format!("could not open file: {}\n", path.to_string_lossy()));
            return Err(Errno::INVALID);
        };
        let format = report::Format::new(format).ok_or(Errno::INVALID)?;
        let report = context.state().report(format);
        std::io::Write::write_all(&mut file, &report).map_err(|_| Errno::INVALID)
    })
}

/// Returns the version, which begins with that of libvmaf.
#[unsafe(no_mangle)]
pub extern "C" fn vmaf_version() -> *const c_char {
    VERSION_C.as_ptr()
}

/// Loads a built-in model.
///
/// # Safety
///
/// `model` is null or can be written to, `cfg` is null or a structure whose name is null or a string, `version` is null or
/// a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_model_load(
    model: *mut *mut VmafModel,
    cfg: *mut VmafModelConfig,
    version: *const c_char,
) -> c_int {
    guarded(|| {
        not_null(model)?;
        // SAFETY: promised by the caller.
        let (config, version) = unsafe { (config(cfg)?, text(version)?) };
        let loaded = model::load(&config, &version)?;
        // SAFETY: checked, and promised by the caller.
        unsafe { give(model, VmafModel(loaded)) };
        Ok(())
    })
}

/// Loads a model file.
///
/// # Safety
///
/// As of [`vmaf_model_load`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_model_load_from_path(
    model: *mut *mut VmafModel,
    cfg: *mut VmafModelConfig,
    path: *const c_char,
) -> c_int {
    guarded(|| {
        not_null(model)?;
        // SAFETY: promised by the caller.
        let (config, path) = unsafe { (config(cfg)?, string(path)?) };
        let loaded = model::load_from_path(&config, path.to_bytes())?;
        // SAFETY: checked, and promised by the caller.
        unsafe { give(model, VmafModel(loaded)) };
        Ok(())
    })
}

/// Sets options of the features of a model that an extractor computes. The options belong to the library then.
///
/// # Safety
///
/// `model` and `options` are null or what this library has made of them, `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_model_feature_overload(
    model: *mut VmafModel,
    name: *const c_char,
    options: *mut VmafFeatureDictionary,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let VmafModel(model) = unsafe { model.as_mut() }.ok_or(Errno::INVALID)?;
        // SAFETY: as above.
        let name = unsafe { text(name) }?;
        // SAFETY: as above; the caller gives the options away.
        let options = unsafe { take_back(options) }.ok_or(Errno::INVALID)?;
        model.overload(&name, &options.0);
        Ok(())
    })
}

/// Frees a model. Contexts may still use what was taken from it.
///
/// # Safety
///
/// `model` is null or a model that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_model_destroy(model: *mut VmafModel) {
    guarded(|| {
        // SAFETY: promised by the caller.
        drop(unsafe { take_back(model) });
        Ok(())
    });
}

/// Loads a built-in collection: its first member as a model, and the others.
///
/// # Safety
///
/// As of [`vmaf_model_load`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_model_collection_load(
    model: *mut *mut VmafModel,
    collection: *mut *mut VmafModelCollection,
    cfg: *mut VmafModelConfig,
    version: *const c_char,
) -> c_int {
    guarded(|| {
        not_null(model)?;
        not_null(collection)?;
        // SAFETY: promised by the caller.
        let (config, version) = unsafe { (config(cfg)?, text(version)?) };
        let (first, others) = model::load_collection(&config, &version)?;
        // SAFETY: checked, and promised by the caller.
        unsafe {
            give(model, VmafModel(first));
            give(collection, VmafModelCollection(others));
        }
        Ok(())
    })
}

/// Loads the file of a collection: its first member as a model, and the others.
///
/// # Safety
///
/// As of [`vmaf_model_load`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_model_collection_load_from_path(
    model: *mut *mut VmafModel,
    collection: *mut *mut VmafModelCollection,
    cfg: *mut VmafModelConfig,
    path: *const c_char,
) -> c_int {
    guarded(|| {
        not_null(model)?;
        not_null(collection)?;
        // SAFETY: promised by the caller.
        let (config, path) = unsafe { (config(cfg)?, string(path)?) };
        let (first, others) = model::load_collection_from_path(&config, path.to_bytes())?;
        // SAFETY: checked, and promised by the caller.
        unsafe {
            give(model, VmafModel(first));
            give(collection, VmafModelCollection(others));
        }
        Ok(())
    })
}

/// Sets options of the features that an extractor computes, of all members of a collection. The options belong to the
/// library then.
///
/// # Safety
///
/// As of [`vmaf_model_feature_overload`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_model_collection_feature_overload(
    model: *mut VmafModel,
    collection: *mut *mut VmafModelCollection,
    name: *const c_char,
    options: *mut VmafFeatureDictionary,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let collection = *unsafe { collection.as_ref() }.ok_or(Errno::INVALID)?;
        // SAFETY: as above.
        let VmafModelCollection(others) = unsafe { collection.as_mut() }.ok_or(Errno::INVALID)?;
        // SAFETY: as above.
        let VmafModel(first) = unsafe { model.as_mut() }.ok_or(Errno::INVALID)?;
        // SAFETY: as above.
        let name = unsafe { text(name) }?;
        // SAFETY: as above; the caller gives the options away.
        let options = unsafe { take_back(options) }.ok_or(Errno::INVALID)?;
        others.overload(&name, &options.0);
        first.overload(&name, &options.0);
        Ok(())
    })
}

/// Frees a collection.
///
/// # Safety
///
/// `collection` is null or a collection that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_model_collection_destroy(collection: *mut VmafModelCollection) {
    guarded(|| {
        // SAFETY: promised by the caller.
        drop(unsafe { take_back(collection) });
        Ok(())
    });
}

/// Makes a picture, all of it zero.
///
/// # Safety
///
/// `picture` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_picture_alloc(
    picture: *mut VmafPicture,
    pix_fmt: u32,
    bpc: u32,
    w: u32,
    h: u32,
) -> c_int {
    guarded(|| {
        not_null(picture)?;
        let made = picture::allocate(Format::new(pix_fmt, bpc, w, h)?)?;
        // SAFETY: checked, and promised by the caller.
        unsafe { picture.write(made) };
        Ok(())
    })
}

/// Gives a picture back. The structure is zeroed.
///
/// # Safety
///
/// `picture` is null, zero, or filled in by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_picture_unref(picture: *mut VmafPicture) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let picture = unsafe { picture.as_mut() }.ok_or(Errno::INVALID)?;
        // SAFETY: as above.
        unsafe { picture::take(picture) }.map(drop)
    })
}

/// Sets an option; makes the dictionary if there is none.
///
/// # Safety
///
/// `dict` is null or points to null or a dictionary, `key` and `value` are null or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_feature_dictionary_set(
    dict: *mut *mut VmafFeatureDictionary,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    guarded(|| {
        not_null(dict)?;
        // SAFETY: promised by the caller.
        let (key, value) = unsafe { (string(key)?, string(value)?) };
        // SAFETY: checked, and promised by the caller.
        if unsafe { *dict }.is_null() {
            // SAFETY: as above.
            unsafe { give(dict, VmafFeatureDictionary(Dictionary::default())) };
        }
        // SAFETY: as above.
        let VmafFeatureDictionary(dictionary) = unsafe { (*dict).as_mut() }.ok_or(Errno::INVALID)?;
        dictionary.set(key, value);
        Ok(())
    })
}

/// Frees a dictionary that the library does not own.
///
/// # Safety
///
/// `dict` is null or points to null or a dictionary.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_feature_dictionary_free(dict: *mut *mut VmafFeatureDictionary) -> c_int {
    guarded(|| {
        not_null(dict)?;
        // SAFETY: checked, and promised by the caller.
        drop(unsafe { take_back(*dict) });
        // SAFETY: as above.
        unsafe { dict.write(std::ptr::null_mut()) };
        Ok(())
    })
}
