// SPDX-License-Identifier: MPL-2.0

//! Any sequence of calls with what the calls before have made: an answer, never a crash, a leak or a wait without end.

#![no_main]

use std::ffi::CStr;
use std::ptr::null_mut;

use vmaf::*;

const INVALID: i32 = -libc::EINVAL;

const EXTRACTORS: [&CStr; 13] = [
    c"adm",
    c"vif",
    c"motion",
    c"psnr",
    c"psnr_hvs",
    c"float_ssim",
    c"float_ms_ssim",
    c"ciede",
    c"cambi",
    c"speed_chroma",
    c"null",
    c"float_adm",
    c"nonsense",
];
const OPTIONS: [(&CStr, &CStr); 12] = [
    (c"debug", c"true"),
    (c"enable_chroma", c"false"),
    (c"enable_apsnr", c"true"),
    (c"enable_lcs", c"true"),
    (c"full_ref", c"true"),
    (c"motion_force_zero", c"true"),
    (c"motion_five_frame_window", c"true"),
    (c"motion_moving_average", c"true"),
    (c"adm_enhn_gain_limit", c"1"),
    (c"vif_enhn_gain_limit", c"0.5"),
    (c"adm_norm_view_dist", c"x"),
    (c"nonsense", c""),
];
const MODELS: [&CStr; 6] = [
    c"vmaf_v0.6.1",
    c"vmaf_v0.6.1neg",
    c"vmaf_b_v0.6.3",
    c"vmaf_v1.0.16_3d0h",
    c"vmaf_float_v0.6.1",
    c"nonsense",
];
const SCORES: [&CStr; 8] = [
    c"VMAF_integer_feature_motion2_score",
    c"VMAF_integer_feature_motion_sad_score",
    c"VMAF_integer_feature_vif_scale0_score",
    c"VMAF_integer_feature_adm2_score",
    c"psnr_y",
    c"ciede2000",
    c"vmaf",
    c"nonsense",
];
const SIZES: [(u32, u32); 6] = [(64, 48), (33, 35), (16, 16), (1, 1), (180, 177), (0, 4)];

struct Context {
    vmaf: *mut VmafContext,
    /// Pictures of its latest pool, and of all pools those that were not given back; none of them are made while the two
    /// references that it may keep could be the last.
    pool: u32,
    is_flushed: bool,
}

struct Held {
    picture: VmafPicture,
    /// The context that it came from, if that has a pool.
    owner: *mut VmafContext,
}

#[derive(Default)]
struct World {
    contexts: Vec<Context>,
    models: Vec<*mut VmafModel>,
    collections: Vec<*mut VmafModelCollection>,
    pictures: Vec<Held>,
}

/// Numbers from the input; zeros at its end.
struct Numbers<'a>(std::slice::Iter<'a, u8>);

impl Numbers<'_> {
    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % limit.max(1)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// An index of pictures: most of them small.
    fn index(&mut self) -> u32 {
        match self.below(64) {
            60 => u32::MAX,
            61 => u32::MAX - 1,
            62 => 1 << 27,
            63 => 4000,
            small => small as u32 % 12,
        }
    }
}

fn check(code: i32) -> i32 {
    assert!([0, 1, INVALID, -libc::ENOMEM].contains(&code), "{code}");
    code
}

impl World {
    fn vmaf(&self, numbers: &mut Numbers) -> *mut VmafContext {
        match self.contexts.len() {
            0 => null_mut(),
            count => self.contexts[numbers.below(count)].vmaf,
        }
    }

    fn model(&self, numbers: &mut Numbers) -> *mut VmafModel {
        if self.models.is_empty() { null_mut() } else { numbers.of(&self.models) }
    }

    fn collection(&self, numbers: &mut Numbers) -> *mut VmafModelCollection {
        if self.collections.is_empty() { null_mut() } else { numbers.of(&self.collections) }
    }

    fn init(&mut self, numbers: &mut Numbers) {
        if self.contexts.len() == 3 {
            return;
        }
        let cfg = VmafConfiguration {
            n_threads: numbers.below(3) as u32,
            n_subsample: numbers.below(4) as u32,
            ..Default::default()
        };
        let mut vmaf = null_mut();
        // SAFETY: the pointer can be written to.
        assert_eq!(unsafe { vmaf_init(&mut vmaf, cfg) }, 0);
        self.contexts.push(Context { vmaf, pool: 0, is_flushed: false });
    }

    fn close(&mut self, number: usize) {
        if number >= self.contexts.len() {
            return;
        }
        let Context { vmaf, .. } = self.contexts.swap_remove(number);
        // It waits for all pictures of its pools.
        while let Some(i) = self.pictures.iter().position(|held| held.owner == vmaf) {
            self.unref(i);
        }
        // SAFETY: not used any more.
        assert_eq!(unsafe { vmaf_close(vmaf) }, 0);
    }

    fn unref(&mut self, number: usize) {
        if number >= self.pictures.len() {
            return;
        }
        let mut held = self.pictures.swap_remove(number);
        // SAFETY: a picture of the library, then a structure of zeros.
        let codes = unsafe { [vmaf_picture_unref(&mut held.picture), vmaf_picture_unref(&mut held.picture)] };
        assert_eq!(codes, [0, INVALID]);
    }

    fn load(&mut self, numbers: &mut Numbers) {
        if self.models.len() == 4 {
            return;
        }
        let mut config = VmafModelConfig { name: c"vmaf".as_ptr(), flags: numbers.below(4) as u64 };
        let (mut model, mut collection) = (null_mut(), null_mut());
        let name = numbers.of(&MODELS).as_ptr();
        if numbers.below(2) == 0 {
            // SAFETY: all pointers are there.
            if check(unsafe { vmaf_model_load(&mut model, &mut config, name) }) == 0 {
                self.models.push(model);
            }
        // SAFETY: as above.
        } else if check(unsafe { vmaf_model_collection_load(&mut model, &mut collection, &mut config, name) })
            == 0
        {
            self.models.push(model);
            self.collections.push(collection);
        }
    }

    fn options(numbers: &mut Numbers) -> *mut VmafFeatureDictionary {
        let mut options = null_mut();
        for _ in 0..numbers.below(3) {
            let (name, value) = numbers.of(&OPTIONS);
            // SAFETY: all pointers are there.
            check(unsafe { vmaf_feature_dictionary_set(&mut options, name.as_ptr(), value.as_ptr()) });
        }
        options
    }

    fn use_feature(&mut self, numbers: &mut Numbers) {
        let vmaf = self.vmaf(numbers);
        let name = numbers.of(&EXTRACTORS);
        let mut options = Self::options(numbers);
        // The library owns the options of an extractor that it knows.
        let is_known = !vmaf.is_null() && name != c"nonsense";
        // SAFETY: all pointers are there, or null.
        check(unsafe { vmaf_use_feature(vmaf, name.as_ptr(), options) });
        if !is_known {
            // SAFETY: they stayed here.
            assert_eq!(unsafe { vmaf_feature_dictionary_free(&mut options) }, 0);
        }
    }

    fn overload(&mut self, numbers: &mut Numbers) {
        let model = self.model(numbers);
        let name = numbers.of(&EXTRACTORS);
        if model.is_null() {
            return;
        }
        let options = Self::options(numbers);
        // SAFETY: all pointers are there, or null.
        check(unsafe { vmaf_model_feature_overload(model, name.as_ptr(), options) });
    }

    fn allocate(&mut self, numbers: &mut Numbers) {
        if self.pictures.len() == 12 {
            return;
        }
        let mut picture = VmafPicture::default();
        let (w, h) = if numbers.below(4) > 0 { SIZES[0] } else { numbers.of(&SIZES) };
        let (format, bits) = if numbers.below(4) > 0 {
            (1, 8)
        } else {
            (numbers.below(6) as u32, 7 + numbers.below(11) as u32)
        };
        // SAFETY: the pointer can be written to.
        if check(unsafe { vmaf_picture_alloc(&mut picture, format, bits, w, h) }) == 0 {
            self.hold(picture, null_mut(), numbers);
        }
    }

    /// Paints a picture, and keeps it.
    fn hold(&mut self, picture: VmafPicture, owner: *mut VmafContext, numbers: &mut Numbers) {
        let value = numbers.below(256) as u8;
        for plane in (0..3).filter(|plane| !picture.data[*plane].is_null()) {
            for row in 0..picture.h[plane] as usize {
                let bytes = picture.w[plane] as usize * if picture.bpc > 8 { 2 } else { 1 };
                // SAFETY: a row of the plane.
                let samples = unsafe {
                    let start = picture.data[plane].cast::<u8>().offset(row as isize * picture.stride[plane]);
                    std::slice::from_raw_parts_mut(start, bytes)
                };
                for (column, sample) in samples.iter_mut().enumerate() {
                    *sample = value.wrapping_mul(column as u8).wrapping_add(row as u8);
                }
            }
        }
        self.pictures.push(Held { picture, owner });
    }

    fn preallocate(&mut self, numbers: &mut Numbers) {
        let count = numbers.below(8) as u32;
        let (w, h) = numbers.of(&SIZES);
        let cfg = VmafPictureConfiguration { w, h, bpc: 8, pix_fmt: numbers.below(6) as u32, pic_cnt: count };
        let number = numbers.below(self.contexts.len());
        let Some(context) = self.contexts.get_mut(number) else { return };
        // SAFETY: the context is there.
        if check(unsafe { vmaf_preallocate_pictures(context.vmaf, cfg) }) == 0 {
            context.pool = count;
        }
    }

    fn fetch(&mut self, numbers: &mut Numbers) {
        let number = numbers.below(self.contexts.len());
        let Some(context) = self.contexts.get(number) else { return };
        let vmaf = context.vmaf;
        let out = self.pictures.iter().filter(|held| held.owner == vmaf).count() as u32;
        // The context may keep two references; it waits where the pool is empty.
        if out + 2 >= context.pool {
            return;
        }
        let mut picture = VmafPicture::default();
        // SAFETY: all pointers are there.
        assert_eq!(unsafe { vmaf_fetch_preallocated_picture(vmaf, &mut picture) }, 0);
        self.hold(picture, vmaf, numbers);
    }

    fn read(&mut self, numbers: &mut Numbers) {
        let number = numbers.below(self.contexts.len());
        let Some(context) = self.contexts.get(number) else { return };
        if self.pictures.len() < 2 {
            return;
        }
        let first = numbers.below(self.pictures.len());
        let mut reference = self.pictures.swap_remove(first);
        let second = numbers.below(self.pictures.len());
        let mut distorted = self.pictures.swap_remove(second);
        // A picture of another context's pool would have that wait for this one.
        let is_foreign = |held: &Held| !held.owner.is_null() && held.owner != context.vmaf;
        if is_foreign(&reference) || is_foreign(&distorted) {
            self.pictures.extend([reference, distorted]);
            return;
        }
        let index = numbers.index();
        // SAFETY: pictures of the library.
        let code = unsafe {
            vmaf_read_pictures(context.vmaf, &mut reference.picture, &mut distorted.picture, index)
        };
        assert!(check(code) != 0 || !context.is_flushed);
        let is_taken = [&reference, &distorted].map(|held| held.picture.reference.is_null());
        assert_eq!(is_taken, [code == 0; 2]);
        if code != 0 {
            self.pictures.extend([reference, distorted]);
        }
    }

    fn flush(&mut self, numbers: &mut Numbers) {
        let number = numbers.below(self.contexts.len());
        let Some(context) = self.contexts.get_mut(number) else { return };
        // SAFETY: no pictures.
        let code = check(unsafe { vmaf_read_pictures(context.vmaf, null_mut(), null_mut(), 0) });
        assert!(code != 0 || !context.is_flushed);
        context.is_flushed |= code == 0;
    }

    fn ask(&mut self, numbers: &mut Numbers) {
        let vmaf = self.vmaf(numbers);
        let name = numbers.of(&SCORES).as_ptr();
        let (index, until, method) = (numbers.index(), numbers.index(), numbers.below(6) as u32);
        let (model, collection) = (self.model(numbers), self.collection(numbers));
        let mut values = [0.0; 5];
        let [feature, again, pooled, score, both] = &mut values;
        let mut scores = VmafModelCollectionScore::default();
        // SAFETY: all pointers are there, or null.
        unsafe {
            if check(vmaf_feature_score_at_index(vmaf, name, feature, index)) == 0 {
                assert_eq!(vmaf_feature_score_at_index(vmaf, name, again, index), 0);
                assert_eq!(feature.to_bits(), again.to_bits());
            }
            check(vmaf_feature_score_pooled(vmaf, name, method, pooled, index, until));
            check(vmaf_score_at_index(vmaf, model, score, index));
            check(vmaf_score_pooled(vmaf, model, method, both, index, until));
            check(vmaf_score_at_index_model_collection(vmaf, collection, &mut scores, index));
            check(vmaf_score_pooled_model_collection(vmaf, collection, method, &mut scores, index, until));
        }
    }

    fn call(&mut self, numbers: &mut Numbers) {
        match numbers.below(20) {
            0 => self.init(numbers),
            1 => self.load(numbers),
            2 => {
                let (vmaf, model) = (self.vmaf(numbers), self.model(numbers));
                // SAFETY: all pointers are there, or null.
                check(unsafe { vmaf_use_features_from_model(vmaf, model) });
            }
            3 => {
                let (vmaf, collection) = (self.vmaf(numbers), self.collection(numbers));
                // SAFETY: all pointers are there, or null.
                check(unsafe { vmaf_use_features_from_model_collection(vmaf, collection) });
            }
            4 => self.use_feature(numbers),
            5 => self.overload(numbers),
            6 => {
                let (vmaf, name, index) = (self.vmaf(numbers), numbers.of(&SCORES).as_ptr(), numbers.index());
                // SAFETY: all pointers are there, or null.
                check(unsafe { vmaf_import_feature_score(vmaf, name, 0.5, index) });
            }
            7 => self.preallocate(numbers),
            8 => self.fetch(numbers),
            9 => {
                let vmaf = self.vmaf(numbers);
                // SAFETY: all pointers are there, or null.
                check(unsafe { vmaf_write_output(vmaf, c"/dev/null".as_ptr(), numbers.below(6) as u32) });
            }
            10 => self.flush(numbers),
            11 => self.ask(numbers),
            12 => {
                let number = numbers.below(12);
                self.unref(number);
            }
            13 if numbers.below(4) == 0 => {
                let number = numbers.below(3);
                self.close(number);
            }
            14 if !self.models.is_empty() && numbers.below(4) == 0 => {
                let model = self.models.swap_remove(numbers.below(self.models.len()));
                // SAFETY: not used any more.
                unsafe { vmaf_model_destroy(model) };
            }
            15 | 16 => self.allocate(numbers),
            _ => self.read(numbers),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        while !self.contexts.is_empty() {
            self.close(0);
        }
        while !self.pictures.is_empty() {
            self.unref(0);
        }
        // SAFETY: not used any more.
        self.models.drain(..).for_each(|model| unsafe { vmaf_model_destroy(model) });
        // SAFETY: as above.
        self.collections
            .drain(..)
            .for_each(|collection| unsafe { vmaf_model_collection_destroy(collection) });
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut world = World::default();
    let mut numbers = Numbers(data.iter());
    world.init(&mut numbers);
    for _ in 0..64 {
        if numbers.0.len() == 0 {
            break;
        }
        world.call(&mut numbers);
    }
});
