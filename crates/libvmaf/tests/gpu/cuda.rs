// SPDX-License-Identifier: MPL-2.0

//! Pictures in a CUDA context of the caller, on the software `libcuda` of `tests/swhip`.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::LazyLock;

use libtest_mimic::Trial;
use vmaf::*;

use super::{Context, FEATURES, HANDED_OVER, INVALID, Kind, SMALL, draw, on, said, same, swhip};

const DEVICE: u32 = 1;
const HOST: u32 = 2;
const PINNED: u32 = 3;

/// The driver as the caller uses it.
struct Driver {
    device: unsafe extern "C" fn(*mut c_int, c_int) -> c_int,
    init: unsafe extern "C" fn(c_uint) -> c_int,
    create: unsafe extern "C" fn(*mut *mut c_void, c_uint, c_int) -> c_int,
    destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
    pop: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    push: unsafe extern "C" fn(*mut c_void) -> c_int,
    current: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    copy: unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut c_void) -> c_int,
    live: unsafe extern "C" fn(*const c_char) -> i64,
    count: unsafe extern "C" fn(*const c_char) -> i64,
    fail: unsafe extern "C" fn(*const c_char),
}

static DRIVER: LazyLock<Driver> = LazyLock::new(|| {
    // SAFETY: the library's initialisers do nothing, and the types are those of NVIDIA's documentation and tests/swhip/hip.h.
    unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(swhip::library("libcuda.so.1")).unwrap()));
        let driver = Driver {
            device: *library.get("cuDeviceGet").unwrap(),
            init: *library.get("cuInit").unwrap(),
            create: *library.get("cuCtxCreate_v2").unwrap(),
            destroy: *library.get("cuCtxDestroy_v2").unwrap(),
            pop: *library.get("cuCtxPopCurrent_v2").unwrap(),
            push: *library.get("cuCtxPushCurrent_v2").unwrap(),
            current: *library.get("cuCtxGetCurrent").unwrap(),
            copy: *library.get("cuMemcpyAsync").unwrap(),
            live: *library.get("swhip_live").unwrap(),
            count: *library.get("swhip_count").unwrap(),
            fail: *library.get("swhip_fail").unwrap(),
        };
        assert_eq!((driver.init)(0), 0);
        driver
    }
});

impl Driver {
    /// Makes a context on the second device, which is not current afterwards.
    fn context(&self) -> *mut c_void {
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: the addresses are valid for writes.
        unsafe {
            assert_eq!((self.device)(&mut device, 1), 0);
            assert_eq!((self.create)(&mut context, 0, device), 0);
            assert_eq!((self.pop)(null_mut()), 0);
        }
        context
    }

    fn destroy(&self, context: *mut c_void) {
        // SAFETY: live, and not used any more.
        assert_eq!(unsafe { (self.destroy)(context) }, 0);
    }

    fn current(&self) -> *mut c_void {
        let mut context = null_mut();
        // SAFETY: the address is valid for a write.
        assert_eq!(unsafe { (self.current)(&mut context) }, 0);
        context
    }

    fn live(&self, what: &str) -> i64 {
        let what = CString::new(what).unwrap();
        // SAFETY: text that ends with a zero.
        unsafe { (self.live)(what.as_ptr()) }
    }

    fn launches(&self) -> i64 {
        // SAFETY: text that ends with a zero.
        unsafe { (self.count)(c"launches".as_ptr()) }
    }

    /// Copies the planes of a picture of the host to one in device memory, on the default stream of a context.
    fn copy(&self, context: *mut c_void, from: &VmafPicture, to: &VmafPicture) {
        // SAFETY: planes of equal layout, the first of which are left alone until the copies are done.
        unsafe {
            assert_eq!((self.push)(context), 0);
            for plane in 0..3 {
                let bytes = from.stride[plane] as usize * from.h[plane] as usize;
                assert_eq!((self.copy)(to.data[plane], from.data[plane], bytes, null_mut()), 0);
            }
            assert_eq!((self.pop)(null_mut()), 0);
        }
    }
}

/// Describes two devices; the caller's context is on the second one.
fn environment() -> Vec<(&'static str, &'static str)> {
    let driver = swhip::library("libcuda.so.1").into_os_string().into_string().unwrap();
    vec![("SWHIP_ARCH", "sm_75,sm_75"), ("HIPVMAF_CUDA_LIBRARY", driver.leak())]
}

pub fn tests() -> Vec<Trial> {
    let here = |function| on(("sm_75", function, environment()));
    vec![
        here("cuda::pictures_of_a_context_are_scored"),
        here("cuda::pictures_are_where_they_are_wanted"),
        here("cuda::contexts_leave_nothing_behind"),
        on(("rdna", "cuda::without_a_driver_there_is_no_state", vec![])),
        super::here(("the_cpu_takes_over_from_cuda", || {
            let environment = [environment(), vec![("HIPVMAF_VERIFY", "1")]].concat();
            said("cuda::the_cpu_goes_on_with_pictures_of_a_context", &environment, HANDED_OVER, 1);
        })),
    ]
}

fn import(context: &Context, cu_ctx: *mut c_void) {
    let mut state = null_mut();
    // SAFETY: all pointers are there.
    unsafe {
        assert_eq!(vmaf_cuda_state_init(&mut state, VmafCudaConfiguration { cu_ctx }), 0);
        assert_eq!(vmaf_cuda_import_state(context.vmaf, state), 0);
    }
}

fn preallocate(context: &Context, pic_prealloc_method: u32) -> i32 {
    let Kind { bits: bpc, width: w, height: h } = context.kind;
    let cfg = VmafCudaPictureConfiguration { w, h, bpc, pix_fmt: 1, pic_prealloc_method };
    // SAFETY: the context is there.
    unsafe { vmaf_cuda_preallocate_pictures(context.vmaf, cfg) }
}

/// Hands over the next pair in device memory. Returns the code, and the pictures of the host, which are copied from.
fn read(context: &mut Context, cu_ctx: *mut c_void) -> i32 {
    let Kind { bits, width, height } = context.kind;
    let mut pair = [VmafPicture::default(); 2];
    let mut drawn = [VmafPicture::default(); 2];
    // SAFETY: all pointers are there, and the pictures are the library's.
    unsafe {
        for i in 0..2 {
            assert_eq!(vmaf_picture_alloc(&mut drawn[i], 1, bits, width, height), 0);
            draw(&mut drawn[i], context.pairs, i == 1);
            assert_eq!(vmaf_cuda_fetch_preallocated_picture(context.vmaf, &mut pair[i]), 0);
            DRIVER.copy(cu_ctx, &drawn[i], &pair[i]);
        }
        let [reference, distorted] = &mut pair;
        let code = vmaf_read_pictures(context.vmaf, reference, distorted, context.pairs);
        for picture in &mut pair {
            assert_eq!(vmaf_picture_unref(picture), if code == 0 { INVALID } else { 0 });
        }
        drawn.iter_mut().for_each(|picture| assert_eq!(vmaf_picture_unref(picture), 0));
        context.pairs += 1;
        code
    }
}

pub fn pictures_of_a_context_are_scored() {
    let cu_ctx = DRIVER.context();
    for (bits, gpumask) in [(8, 0), (10, 0), (16, 0), (8, 1)] {
        let kind = Kind { bits, ..SMALL };
        // PSNR-HVS takes at most 12 bits.
        let features: Vec<_> = FEATURES.into_iter().filter(|name| bits < 16 || *name != "psnr_hvs").collect();
        let expected = Context::on_cpu(kind, 1, &features).read_all(7).report();
        let before = DRIVER.launches();
        let mut context = Context::new(kind, gpumask, 1, &features);
        import(&context, cu_ctx);
        assert_eq!(preallocate(&context, DEVICE), 0);
        (0..7).for_each(|_| assert_eq!(read(&mut context, cu_ctx), 0));
        same(&context.report(), &expected);
        assert_eq!(DRIVER.launches() > before, gpumask == 0);
        assert_eq!(DRIVER.current(), null_mut());
    }
    // A pair of which an extractor has no score, as motion lacks a picture before it: the caller keeps the pictures.
    let mut context = Context::new(SMALL, 0, 1, &["psnr"]);
    import(&context, cu_ctx);
    assert_eq!(preallocate(&context, DEVICE), 0);
    context.pairs = 5;
    assert_eq!(read(&mut context, cu_ctx), INVALID);
    let mut score = f64::NAN;
    // SAFETY: all pointers are there.
    unsafe {
        let name = c"VMAF_integer_feature_adm2_score";
        assert_eq!(vmaf_feature_score_at_index(context.vmaf, name.as_ptr(), &mut score, 5), 0);
    }
    assert!(score > 0.0);
    drop(context);
    DRIVER.destroy(cu_ctx);
}

/// The CPU computes the pairs that are on the GPU when it turns out to be wrong, and those that follow.
pub fn the_cpu_goes_on_with_pictures_of_a_context() {
    let cu_ctx = DRIVER.context();
    let expected = Context::on_cpu(SMALL, 1, &FEATURES).read_all(8).report();
    let mut context = Context::new(SMALL, 0, 1, &FEATURES);
    import(&context, cu_ctx);
    assert_eq!(preallocate(&context, DEVICE), 0);
    (0..4).for_each(|_| assert_eq!(read(&mut context, cu_ctx), 0));
    // SAFETY: text that ends with a zero.
    unsafe { (DRIVER.fail)(c"flip:20+".as_ptr()) };
    (0..4).for_each(|_| assert_eq!(read(&mut context, cu_ctx), 0));
    same(&context.report(), &expected);
}

pub fn pictures_are_where_they_are_wanted() {
    let mut context = Context::new(SMALL, 0, 1, &[]);
    let mut picture = VmafPicture::default();
    let vmaf = context.vmaf;
    // SAFETY: all pointers are there, or null, which is refused.
    let fetch = |picture: &mut VmafPicture| unsafe { vmaf_cuda_fetch_preallocated_picture(vmaf, picture) };
    assert_eq!((preallocate(&context, 0), preallocate(&context, DEVICE)), (0, INVALID), "no state");
    assert_eq!((preallocate(&context, HOST), fetch(&mut picture)), (INVALID, INVALID));
    // The primary context of the first device.
    import(&context, null_mut());
    assert_eq!(DRIVER.current(), null_mut());
    assert_eq!((fetch(&mut picture), preallocate(&context, 4)), (INVALID, INVALID));
    assert_eq!((preallocate(&context, 0), fetch(&mut picture)), (0, INVALID));
    let empty = VmafCudaPictureConfiguration { pic_prealloc_method: DEVICE, ..Default::default() };
    // SAFETY: all pointers are there, or null, which is refused.
    unsafe {
        assert_eq!(vmaf_cuda_preallocate_pictures(vmaf, empty), INVALID);
        assert_eq!(vmaf_cuda_preallocate_pictures(null_mut(), empty), INVALID);
        assert_eq!(vmaf_cuda_import_state(vmaf, null_mut()), INVALID);
        assert_eq!(vmaf_cuda_fetch_preallocated_picture(vmaf, null_mut()), INVALID);
        let any = VmafCudaConfiguration { cu_ctx: null_mut() };
        assert_eq!(vmaf_cuda_state_init(null_mut(), any), INVALID);
    }
    let expected = Context::on_cpu(SMALL, 1, &[]).read_all(6).report();
    for (method, pairs) in [(HOST, 3), (PINNED, 6)] {
        assert_eq!(preallocate(&context, method), 0);
        while context.pairs < pairs {
            assert_eq!(context.read_in(fetch), 0);
        }
    }
    assert!(DRIVER.launches() > 0);
    same(&context.report(), &expected);

    // More of them than libvmaf's four, given back in another order.
    let context = Context::new(SMALL, 0, 1, &[]);
    import(&context, null_mut());
    assert_eq!(preallocate(&context, DEVICE), 0);
    let mut pictures = [VmafPicture::default(); 9];
    // SAFETY: all pointers are there, and the pictures are the library's.
    unsafe {
        for picture in &mut pictures {
            assert_eq!(vmaf_cuda_fetch_preallocated_picture(context.vmaf, picture), 0);
        }
        pictures.iter_mut().rev().for_each(|picture| assert_eq!(vmaf_picture_unref(picture), 0));
    }
}

pub fn contexts_leave_nothing_behind() {
    let cu_ctx = DRIVER.context();
    let once = || {
        let mut context = Context::new(SMALL, 0, 1, &[]);
        import(&context, cu_ctx);
        assert_eq!(preallocate(&context, DEVICE), 0);
        (0..2).for_each(|_| assert_eq!(read(&mut context, cu_ctx), 0));
    };
    let live = || ["allocs", "streams", "events"].map(|what| DRIVER.live(what));
    (0..2).for_each(|_| once());
    let before = live();
    (0..20).for_each(|_| once());
    assert_eq!(live(), before);
    DRIVER.destroy(cu_ctx);
}

pub fn without_a_driver_there_is_no_state() {
    let context = Context::new(SMALL, 0, 1, &[]);
    let mut state = null_mut();
    // SAFETY: all pointers are there.
    unsafe {
        let cfg = VmafCudaConfiguration { cu_ctx: null_mut() };
        assert_eq!(vmaf_cuda_state_init(&mut state, cfg), INVALID);
        assert_eq!(vmaf_cuda_import_state(context.vmaf, null_mut()), INVALID);
    }
    assert_eq!(state, null_mut());
    assert_eq!(preallocate(&context, DEVICE), INVALID);
}
