// SPDX-License-Identifier: MPL-2.0

//! The interface as callers use it, where libvmaf itself cannot be asked: what is different here on purpose, what it leaves
//! open, and what makes it crash. `scripts/check-libvmaf` compares everything else.

use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};

use vmaf::*;

const INVALID: i32 = -libc::EINVAL;
const WIDTH: usize = 64;
const HEIGHT: usize = 48;

/// A context that is closed in the end.
struct Context(*mut VmafContext);

// SAFETY: contexts may be used from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn new(threads: u32) -> Self {
        let mut context = null_mut();
        let cfg = VmafConfiguration { n_threads: threads, gpumask: 7, ..Default::default() };
        // SAFETY: the pointer can be written to.
        assert_eq!(unsafe { vmaf_init(&mut context, cfg) }, 0);
        Self(context)
    }

    fn with_model(threads: u32, model: &Model) -> Self {
        let context = Self::new(threads);
        // SAFETY: both are there.
        assert_eq!(unsafe { vmaf_use_features_from_model(context.0, model.0) }, 0);
        context
    }

    /// Hands a pair over; after an error the pictures are given back here.
    fn read(&self, index: u32) -> i32 {
        let (mut reference, mut distorted) = (picture(index, false), picture(index, true));
        // SAFETY: pictures of the library.
        let code = unsafe { vmaf_read_pictures(self.0, &mut reference, &mut distorted, index) };
        for picture in [&mut reference, &mut distorted] {
            // SAFETY: as above.
            assert_eq!(unsafe { vmaf_picture_unref(picture) }, if code == 0 { INVALID } else { 0 });
        }
        code
    }

    fn flush(&self) -> i32 {
        // SAFETY: no pictures.
        unsafe { vmaf_read_pictures(self.0, null_mut(), null_mut(), 0) }
    }

    fn model(&self, model: &Model, index: u32) -> Result<f64, i32> {
        let mut score = f64::NAN;
        // SAFETY: all pointers are there.
        match unsafe { vmaf_score_at_index(self.0, model.0, &mut score, index) } {
            0 => Ok(score),
            code => Err(code),
        }
    }

    fn feature(&self, name: &str, index: u32) -> Result<f64, i32> {
        let name = CString::new(name).unwrap();
        let mut score = f64::NAN;
        // SAFETY: all pointers are there.
        match unsafe { vmaf_feature_score_at_index(self.0, name.as_ptr(), &mut score, index) } {
            0 => Ok(score),
            code => Err(code),
        }
    }

    fn import(&self, name: &str, score: f64, index: u32) -> i32 {
        let name = CString::new(name).unwrap();
        // SAFETY: all pointers are there.
        unsafe { vmaf_import_feature_score(self.0, name.as_ptr(), score, index) }
    }

    fn use_feature(&self, name: &str) -> i32 {
        let name = CString::new(name).unwrap();
        // SAFETY: all pointers are there.
        unsafe { vmaf_use_feature(self.0, name.as_ptr(), null_mut()) }
    }

    fn report(&self, format: u32) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = CString::new(file.path().to_str().unwrap()).unwrap();
        // SAFETY: all pointers are there.
        assert_eq!(unsafe { vmaf_write_output(self.0, path.as_ptr(), format) }, 0);
        std::fs::read_to_string(file.path()).unwrap()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: not used any more.
        assert_eq!(unsafe { vmaf_close(self.0) }, 0);
    }
}

/// A built-in model that is destroyed in the end.
struct Model(*mut VmafModel);

// SAFETY: models are not changed after they were loaded.
unsafe impl Sync for Model {}

impl Model {
    fn load(name: &str) -> Self {
        let name = CString::new(name).unwrap();
        let mut config = VmafModelConfig { name: null(), flags: 0 };
        let mut model = null_mut();
        // SAFETY: all pointers are there.
        assert_eq!(unsafe { vmaf_model_load(&mut model, &mut config, name.as_ptr()) }, 0);
        Self(model)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: not used any more.
        unsafe { vmaf_model_destroy(self.0) }
    }
}

/// A picture of something that moves; coarser if it is the distorted one.
fn picture(frame: u32, distorted: bool) -> VmafPicture {
    let mut picture = VmafPicture::default();
    // SAFETY: the pointer can be written to.
    assert_eq!(unsafe { vmaf_picture_alloc(&mut picture, 1, 8, WIDTH as u32, HEIGHT as u32) }, 0);
    for row in 0..HEIGHT {
        for column in 0..WIDTH {
            let value = (column * 7 + row * 5 + frame as usize * 3 + column * row % 11) % 256;
            let value = if distorted { value / 16 * 16 } else { value };
            // SAFETY: within the first plane.
            unsafe {
                picture.data[0].cast::<u8>().add(row * picture.stride[0] as usize + column).write(value as u8)
            };
        }
    }
    picture
}

#[test]
fn scores_are_there_as_soon_as_the_next_pair_is() {
    for threads in [0, 2] {
        let model = Model::load("vmaf_v0.6.1");
        let context = Context::with_model(threads, &model);
        let mut early = vec![];
        for index in 0..6u32 {
            assert_eq!(context.model(&model, index.wrapping_sub(2)).is_ok(), index >= 2, "{index}");
            assert_eq!(context.read(index), 0);
            if index >= 1 {
                early.push(context.model(&model, index - 1).unwrap());
                assert!(context.feature("VMAF_integer_feature_motion3_score", index - 1).is_ok());
            }
            assert_eq!(context.model(&model, index), Err(INVALID), "motion of the last pair may change");
        }
        assert_eq!(context.flush(), 0);
        for (index, early) in early.into_iter().enumerate() {
            assert_eq!(context.model(&model, index as u32), Ok(early));
        }
        // Scores that were read early have not changed the order of the columns.
        let report = context.report(3);
        let header = "Frame,integer_adm2,integer_aim,integer_adm3,integer_adm_scale0,integer_adm_scale1,integer_adm_scale2,\
            integer_adm_scale3,VMAF_integer_feature_motion_sad_score,integer_vif_scale0,integer_vif_scale1,\
            integer_vif_scale2,integer_vif_scale3,integer_motion2,integer_motion3,vmaf,";
        assert_eq!(report.lines().next(), Some(header));
        assert_eq!(report.lines().count(), 7);
    }
}

#[test]
fn imported_scores_are_enough_for_a_model() {
    let model = Model::load("vmaf_v0.6.1");
    let context = Context::new(0);
    for (name, score) in [
        ("adm2", 0.95),
        ("motion2", 2.0),
        ("vif_scale0", 0.5),
        ("vif_scale1", 0.9),
        ("vif_scale2", 0.95),
        ("vif_scale3", 0.97),
    ] {
        assert_eq!(context.model(&model, 0), Err(INVALID));
        let name = format!("VMAF_integer_feature_{name}_score");
        assert_eq!(context.import(&name, score, 0), 0);
        assert_eq!(context.import(&name, score, 0), INVALID, "a second time");
    }
    // As libvmaf 3.2.0 says.
    assert_eq!(context.model(&model, 0), Ok(84.685_679_010_935_98));
    assert_eq!(context.feature("vmaf", 0), Ok(84.685_679_010_935_98));
    assert_eq!(context.import("beyond", 1.0, u32::MAX), INVALID);
}

#[test]
fn the_order_of_pairs_does_not_matter_but_to_motion() {
    let [forth, shuffled] = [0, 1].map(|threads| {
        let context = Context::new(threads);
        assert_eq!(context.use_feature("vif"), 0);
        context
    });
    let order = [3, 0, 5, 1, 2, 7, 4, 6];
    for (index, other) in (0..8).zip(order) {
        assert_eq!((forth.read(index), shuffled.read(other)), (0, 0));
    }
    for index in 0..8 {
        let score = |context: &Context| context.feature("VMAF_integer_feature_vif_scale0_score", index);
        assert!(score(&forth).is_ok());
        assert_eq!(score(&forth), score(&shuffled));
    }
}

#[test]
fn models_may_go_first_and_pictures_come_from_many_threads() {
    let model = Model::load("vmaf_v0.6.1");
    let score = |threads| {
        let context = Context::with_model(threads, &model);
        assert_eq!((context.read(0), context.flush()), (0, 0));
        context.model(&model, 0).unwrap()
    };
    let expected = score(0);
    std::thread::scope(|scope| {
        for i in 0..8 {
            scope.spawn(move || (0..8).for_each(|_| assert_eq!(score(i % 3), expected)));
        }
    });
    let context = Context::with_model(0, &model);
    drop(model);
    assert_eq!((context.read(0), context.read(1), context.flush()), (0, 0, 0));
    assert!(context.feature("VMAF_integer_feature_motion2_score", 1).is_ok());
}

#[test]
fn pictures_are_aligned_and_zero() {
    for (format, bits) in [(1, 8), (2, 10), (3, 16), (4, 9)] {
        let mut picture = VmafPicture::default();
        // SAFETY: the pointer can be written to.
        assert_eq!(unsafe { vmaf_picture_alloc(&mut picture, format, bits, 35, 21) }, 0);
        for plane in 0..3 {
            assert_eq!(picture.data[plane].is_null(), format == 4 && plane > 0);
            assert_eq!((picture.data[plane] as usize % 32, picture.stride[plane] % 32), (0, 0));
            let bytes = picture.stride[plane] as usize * picture.h[plane] as usize;
            for i in 0..bytes {
                // SAFETY: within the plane.
                assert_eq!(unsafe { picture.data[plane].cast::<u8>().add(i).read() }, 0);
            }
        }
        // SAFETY: a picture of the library.
        assert_eq!(unsafe { vmaf_picture_unref(&mut picture) }, 0);
        assert!(picture.data[0].is_null());
    }
    let mut picture = VmafPicture::default();
    for (format, bits) in [(0, 8), (5, 8), (1, 7), (1, 17)] {
        // SAFETY: the pointer can be written to.
        assert_eq!(unsafe { vmaf_picture_alloc(&mut picture, format, bits, 16, 16) }, INVALID);
    }
}

#[test]
fn pairs_that_do_not_fit_are_left_to_the_caller() {
    let context = Context::new(0);
    assert_eq!(context.use_feature("vif"), 0);
    let mut pair = [picture(0, false), picture(0, true)];
    let [first, second] = &mut pair;
    // SAFETY: pictures of the library.
    unsafe {
        assert_eq!(vmaf_read_pictures(context.0, first, first, 0), INVALID, "one structure");
        let mut copy = *first;
        assert_eq!(vmaf_read_pictures(context.0, first, &mut copy, 0), INVALID, "one picture");
        assert_eq!(vmaf_read_pictures(context.0, first, null_mut(), 0), INVALID);
        let mut none = VmafPicture::default();
        assert_eq!(vmaf_read_pictures(context.0, first, &mut none, 0), INVALID, "given back before");
        let mut other = VmafPicture::default();
        assert_eq!(vmaf_picture_alloc(&mut other, 1, 10, WIDTH as u32, HEIGHT as u32), 0);
        assert_eq!(vmaf_read_pictures(context.0, first, &mut other, 0), INVALID, "another depth");
        assert_eq!(vmaf_picture_unref(&mut other), 0);
        assert_eq!(vmaf_read_pictures(context.0, first, second, u32::MAX), INVALID, "an index beyond all");
        assert_eq!(vmaf_read_pictures(context.0, first, second, 0), 0);
    }
    assert!(context.feature("VMAF_integer_feature_vif_scale0_score", 0).is_ok());
    assert_eq!((context.flush(), context.read(1)), (0, INVALID), "after the flush");
}

#[test]
fn depths_that_libvmaf_reads_as_bytes_are_refused() {
    for (bits, expected) in [(9, INVALID), (10, 0), (14, INVALID), (16, 0)] {
        let context = Context::new(0);
        assert_eq!((context.use_feature("vif"), context.use_feature("float_ssim")), (0, 0));
        let mut pair = [VmafPicture::default(); 2];
        let [first, second] = &mut pair;
        // SAFETY: pictures of the library.
        unsafe {
            assert_eq!(vmaf_picture_alloc(first, 1, bits, WIDTH as u32, HEIGHT as u32), 0);
            assert_eq!(vmaf_picture_alloc(second, 1, bits, WIDTH as u32, HEIGHT as u32), 0);
            assert_eq!(vmaf_read_pictures(context.0, first, second, 0), expected);
            if expected != 0 {
                assert_eq!((vmaf_picture_unref(first), vmaf_picture_unref(second)), (0, 0));
            }
        }
        assert!(
            context.feature("VMAF_integer_feature_vif_scale0_score", 0).is_ok(),
            "what comes before is stored"
        );
        assert_eq!(context.feature("float_ssim", 0).is_ok(), expected == 0);
    }
}

#[test]
fn null_is_refused() {
    let context = Context::new(0);
    let model = Model::load("vmaf_v0.6.1");
    let mut score = 0.0;
    let text: *const c_char = c"x".as_ptr();
    let mut config = VmafModelConfig { name: null(), flags: 0 };
    let mut dictionary: *mut VmafFeatureDictionary = null_mut();
    let (vmaf, model) = (context.0, model.0);
    let (no_text, none): (*const c_char, *mut VmafContext) = (null(), null_mut());
    let mut made: *mut VmafModel = null_mut();
    let mut collection: *mut VmafModelCollection = null_mut();
    // SAFETY: pointers are null or those of what is there.
    let codes = unsafe {
        [
            vmaf_init(null_mut(), VmafConfiguration::default()),
            vmaf_close(null_mut()),
            vmaf_use_features_from_model(vmaf, null_mut()),
            vmaf_use_features_from_model(none, model),
            vmaf_use_features_from_model_collection(vmaf, null_mut()),
            vmaf_use_feature(vmaf, no_text, null_mut()),
            vmaf_use_feature(none, text, null_mut()),
            vmaf_use_feature(vmaf, c"nonsense".as_ptr(), null_mut()),
            vmaf_import_feature_score(vmaf, no_text, 0.0, 0),
            vmaf_read_pictures(none, null_mut(), null_mut(), 0),
            vmaf_score_at_index(vmaf, model, null_mut(), 0),
            vmaf_score_at_index(vmaf, null_mut(), &mut score, 0),
            vmaf_score_at_index_model_collection(vmaf, null_mut(), null_mut(), 0),
            vmaf_feature_score_at_index(vmaf, text, null_mut(), 0),
            vmaf_feature_score_at_index(vmaf, no_text, &mut score, 0),
            vmaf_score_pooled(vmaf, model, 3, null_mut(), 0, 0),
            vmaf_score_pooled_model_collection(vmaf, null_mut(), 3, null_mut(), 0, 0),
            vmaf_feature_score_pooled(vmaf, text, 3, null_mut(), 0, 0),
            vmaf_preallocate_pictures(none, VmafPictureConfiguration::default()),
            vmaf_preallocate_pictures(vmaf, VmafPictureConfiguration::default()),
            vmaf_fetch_preallocated_picture(vmaf, null_mut()),
            vmaf_fetch_preallocated_picture(vmaf, &mut VmafPicture::default()),
            vmaf_write_output(vmaf, no_text, 1),
            vmaf_write_output(none, text, 1),
            vmaf_model_load(null_mut(), &mut config, text),
            vmaf_model_load(&mut made, null_mut(), text),
            vmaf_model_load(&mut made, &mut config, no_text),
            vmaf_model_load_from_path(&mut made, &mut config, no_text),
            vmaf_model_feature_overload(model, text, null_mut()),
            vmaf_model_collection_load(&mut made, null_mut(), &mut config, text),
            vmaf_model_collection_load(&mut made, &mut collection, &mut config, text),
            vmaf_model_collection_load_from_path(&mut made, &mut collection, &mut config, no_text),
            vmaf_model_collection_feature_overload(model, null_mut(), text, null_mut()),
            vmaf_picture_alloc(null_mut(), 1, 8, 16, 16),
            vmaf_picture_unref(null_mut()),
            vmaf_feature_dictionary_set(null_mut(), text, text),
            vmaf_feature_dictionary_set(&mut dictionary, text, no_text),
            vmaf_feature_dictionary_free(null_mut()),
        ]
    };
    assert_eq!(codes, [INVALID; 38]);
    // SAFETY: as above.
    unsafe {
        vmaf_model_destroy(null_mut());
        vmaf_model_collection_destroy(null_mut());
        assert_eq!(vmaf_feature_dictionary_free(&mut dictionary), 0);
        let version = std::ffi::CStr::from_ptr(vmaf_version());
        assert!(version.to_bytes().starts_with(b"3.2.0"));
    }
}

#[test]
fn pools_hand_out_what_came_back_last() {
    let context = Context::new(0);
    let cfg = VmafPictureConfiguration { w: 64, h: 48, bpc: 8, pix_fmt: 1, pic_cnt: 3 };
    let fetch = || {
        let mut picture = VmafPicture::default();
        // SAFETY: all pointers are there.
        assert_eq!(unsafe { vmaf_fetch_preallocated_picture(context.0, &mut picture) }, 0);
        picture
    };
    // SAFETY: the context is there.
    assert_eq!(unsafe { vmaf_preallocate_pictures(context.0, cfg) }, 0);
    let mut pictures = [fetch(), fetch(), fetch()];
    let last = pictures[1].data[0];
    for i in [0, 2, 1] {
        // SAFETY: pictures of the library.
        assert_eq!(unsafe { vmaf_picture_unref(&mut pictures[i]) }, 0);
    }
    let mut picture = fetch();
    assert_eq!(picture.data[0], last);
    // SAFETY: as above.
    assert_eq!(unsafe { vmaf_picture_unref(&mut picture) }, 0);
}

/// Threads of the parent are not there, so that waiting for them would never end.
#[test]
fn a_child_after_fork_is_refused() {
    let model = Model::load("vmaf_v0.6.1");
    let context = Context::with_model(1, &model);
    assert_eq!(context.read(0), 0);
    // SAFETY: the child calls functions that take no lock before they return, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut score = 0.0;
        // SAFETY: all pointers are there.
        let codes = unsafe {
            [
                vmaf_score_at_index(context.0, model.0, &mut score, 0),
                vmaf_read_pictures(context.0, null_mut(), null_mut(), 0),
                vmaf_close(context.0),
            ]
        };
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(codes != [INVALID; 3])) };
    }
    let mut status = -1;
    // SAFETY: waits for the child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(context.flush(), 0);
}
