// SPDX-License-Identifier: MPL-2.0

//! Contexts on GPUs, on the software device of `tests/swhip`. Each test is a process of its own.

use std::collections::BTreeSet;
use std::ffi::{CString, c_char};
use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut};
use std::sync::LazyLock;

#[path = "gpu/cuda.rs"]
mod cuda;
#[path = "../../../tests/swhip/process.rs"]
mod process;
#[path = "../../../tests/swhip/library.rs"]
mod swhip;

use process::{Function, command, functions, here, on};
use vmaf::*;

const INVALID: i32 = -libc::EINVAL;
const RDNA: (&str, &str) = ("SWHIP_ARCH", "gfx1100");
const CDNA: (&str, &str) = ("SWHIP_ARCH", "gfx90a:sramecc+:xnack-");
const FEATURES: [&str; 7] = ["adm", "vif", "motion", "psnr", "psnr_hvs", "float_ssim", "ciede"];
/// The line of the log where a GPU has failed.
const HANDED_OVER: &str = "libvmaf WARNING scoring on the CPU from here on, as ";

const FUNCTIONS: &[Function] = functions![
    scores_are_those_of_the_cpu,
    one_pair_stays_on_the_cpu,
    a_gpu_is_used_once_it_is_open,
    the_cpu_is_used_where_it_is_chosen,
    a_gpu_is_used_from_the_first_pair_on,
    a_child_has_pictures_of_its_own,
    without_a_gpu_the_cpu_computes,
    without_a_gpu_there_are_no_scores,
    contexts_share_a_gpu,
    few_pictures_are_enough,
    a_submission_fails,
    a_gpu_is_lost,
    a_gpu_is_lost_with_pairs_on_it,
    sums_are_wrong,
    cuda::pictures_of_a_context_are_scored,
    cuda::the_cpu_goes_on_with_pictures_of_a_context,
    cuda::pictures_are_where_they_are_wanted,
    cuda::contexts_leave_nothing_behind,
    cuda::without_a_driver_there_is_no_state,
];

fn main() {
    process::main(FUNCTIONS, || {
        let on_rdna = |function, more: Option<(&'static str, &'static str)>| {
            on(("rdna", function, [RDNA].into_iter().chain(more).collect()))
        };
        let mut tests = vec![
            on_rdna("one_pair_stays_on_the_cpu", None),
            on_rdna("a_gpu_is_used_once_it_is_open", None),
            on_rdna("without_a_gpu_the_cpu_computes", Some(("SWHIP_DEVICES", "0"))),
            on_rdna("a_child_has_pictures_of_its_own", Some(("HIPVMAF_BACKEND", "hip"))),
            on_rdna("the_cpu_is_used_where_it_is_chosen", Some(("HIPVMAF_BACKEND", "cpu"))),
            on_rdna("a_gpu_is_used_from_the_first_pair_on", Some(("HIPVMAF_BACKEND", "hip"))),
            on_rdna("contexts_share_a_gpu", Some(("HIPVMAF_BACKEND", "hip"))),
            on_rdna("few_pictures_are_enough", Some(("HIPVMAF_BACKEND", "hip"))),
            here(("the_gpu_is_in_the_log", || {
                for device in [RDNA, CDNA] {
                    let line = "libvmaf INFO scoring on the AMD GPU ";
                    said("scores_are_those_of_the_cpu", &[device, ("HIPVMAF_BACKEND", "hip")], line, 2);
                }
            })),
            here(("errors_are_in_the_log", || {
                let none = ("SWHIP_DEVICES", "0");
                let line = "libvmaf ERROR pictures could not be scored: there is no usable GPU";
                said("without_a_gpu_there_are_no_scores", &[none, ("HIPVMAF_BACKEND", "hip")], line, 1);
                let line = "libvmaf WARNING HIPVMAF_BACKEND is 'gpu', which is none of auto, hip and cpu";
                said("without_a_gpu_the_cpu_computes", &[none, ("HIPVMAF_BACKEND", "gpu")], line, 1);
            })),
            here(("the_cpu_takes_over", || {
                for function in ["a_submission_fails", "a_gpu_is_lost", "a_gpu_is_lost_with_pairs_on_it"] {
                    said(function, &[RDNA, ("HIPVMAF_BACKEND", "hip")], HANDED_OVER, 1);
                }
                let verified = ("HIPVMAF_VERIFY", "1");
                said("sums_are_wrong", &[RDNA, ("HIPVMAF_BACKEND", "hip"), verified], HANDED_OVER, 1);
            })),
        ];
        tests.extend(cuda::tests());
        tests
    });
}

/// Runs a function in a process, which has to write a line with this text so many times.
#[track_caller]
fn said(function: &str, environment: &[(&str, &str)], line: &str, times: usize) {
    let output = command(function, environment).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{function} with {environment:?}: {log}");
    assert_eq!(log.matches(line).count(), times, "{function} with {environment:?}: {log}");
}

/// Functions of the software device for tests.
struct Device {
    count: unsafe extern "C" fn(*const c_char) -> i64,
    live: unsafe extern "C" fn(*const c_char) -> i64,
    fail: unsafe extern "C" fn(*const c_char),
}

static DEVICE: LazyLock<Device> = LazyLock::new(|| {
    // SAFETY: the library's initialisers do nothing, and the types are those of tests/swhip/hip.h.
    unsafe {
        let library =
            Box::leak(Box::new(libloading::Library::new(swhip::library("libamdhip64.so.6")).unwrap()));
        Device {
            count: *library.get("swhip_count").unwrap(),
            live: *library.get("swhip_live").unwrap(),
            fail: *library.get("swhip_fail").unwrap(),
        }
    }
});

fn count(what: &str) -> i64 {
    let what = CString::new(what).unwrap();
    // SAFETY: text that ends with a zero.
    unsafe { (DEVICE.count)(what.as_ptr()) }
}

fn live(what: &str) -> i64 {
    let what = CString::new(what).unwrap();
    // SAFETY: text that ends with a zero.
    unsafe { (DEVICE.live)(what.as_ptr()) }
}

fn fail(fault: &str) {
    let fault = CString::new(fault).unwrap();
    // SAFETY: text that ends with a zero.
    unsafe { (DEVICE.fail)(fault.as_ptr()) }
}

/// How pictures look.
#[derive(Clone, Copy)]
struct Kind {
    bits: u32,
    width: u32,
    height: u32,
}

const SMALL: Kind = Kind { bits: 8, width: 64, height: 48 };

/// A context that computes the features of a model and others, and is closed in the end.
struct Context {
    vmaf: *mut VmafContext,
    kind: Kind,
    pairs: u32,
}

// SAFETY: contexts may be used from any thread.
unsafe impl Send for Context {}

impl Context {
    fn new(kind: Kind, gpumask: u64, subsample: u32, features: &[&str]) -> Self {
        let mut vmaf = null_mut();
        let cfg = VmafConfiguration { log_level: 3, n_subsample: subsample, gpumask, ..Default::default() };
        let mut config = VmafModelConfig { name: null(), flags: 0 };
        let mut model = null_mut();
        // SAFETY: all pointers are there, and the model is not used any more in the end.
        unsafe {
            assert_eq!(vmaf_init(&mut vmaf, cfg), 0);
            assert_eq!(vmaf_model_load(&mut model, &mut config, c"vmaf_v0.6.1".as_ptr()), 0);
            assert_eq!(vmaf_use_features_from_model(vmaf, model), 0);
            for feature in features {
                let feature = CString::new(*feature).unwrap();
                assert_eq!(vmaf_use_feature(vmaf, feature.as_ptr(), null_mut()), 0);
            }
            vmaf_model_destroy(model);
        }
        Self { vmaf, kind, pairs: 0 }
    }

    fn on_cpu(kind: Kind, subsample: u32, features: &[&str]) -> Self {
        Self::new(kind, 1, subsample, features)
    }

    fn add_pool(&self, pic_cnt: u32) {
        let Kind { bits, width, height } = self.kind;
        let cfg = VmafPictureConfiguration { w: width, h: height, bpc: bits, pix_fmt: 1, pic_cnt };
        // SAFETY: the context is there.
        assert_eq!(unsafe { vmaf_preallocate_pictures(self.vmaf, cfg) }, 0);
    }

    /// Hands over the next pair in pictures that the function makes.
    fn read_in(&mut self, mut picture: impl FnMut(&mut VmafPicture) -> i32) -> i32 {
        let mut pair = [VmafPicture::default(); 2];
        for (i, place) in pair.iter_mut().enumerate() {
            assert_eq!(picture(place), 0);
            draw(place, self.pairs, i == 1);
        }
        let [reference, distorted] = &mut pair;
        // SAFETY: pictures of the library.
        let code = unsafe { vmaf_read_pictures(self.vmaf, reference, distorted, self.pairs) };
        for picture in &mut pair {
            // SAFETY: as above.
            assert_eq!(unsafe { vmaf_picture_unref(picture) }, if code == 0 { INVALID } else { 0 });
        }
        self.pairs += 1;
        code
    }

    fn read(&mut self) -> i32 {
        let Kind { bits, width, height } = self.kind;
        // SAFETY: the pointer can be written to.
        self.read_in(|picture| unsafe { vmaf_picture_alloc(picture, 1, bits, width, height) })
    }

    fn read_from_pool(&mut self) -> i32 {
        let vmaf = self.vmaf;
        // SAFETY: all pointers are there.
        self.read_in(|picture| unsafe { vmaf_fetch_preallocated_picture(vmaf, picture) })
    }

    fn read_all(mut self, pairs: u32) -> Self {
        (0..pairs).for_each(|_| assert_eq!(self.read(), 0));
        self
    }

    /// Ends the input, and returns the report without version and speed.
    fn report(&self) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = CString::new(file.path().to_str().unwrap()).unwrap();
        // SAFETY: all pointers are there.
        unsafe {
            assert_eq!(vmaf_read_pictures(self.vmaf, null_mut(), null_mut(), 0), 0);
            assert_eq!(vmaf_write_output(self.vmaf, path.as_ptr(), 2), 0);
        }
        let report = std::fs::read_to_string(file.path()).unwrap();
        let lines = report.lines().filter(|line| !line.contains("\"version\"") && !line.contains("\"fps\""));
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: not used any more.
        assert_eq!(unsafe { vmaf_close(self.vmaf) }, 0);
    }
}

/// Fails with the first line in which a report differs.
#[track_caller]
fn same(found: &str, expected: &str) {
    let mut lines = found.lines().zip(expected.lines()).enumerate();
    let difference = lines.find(|(_, (found, expected))| found != expected);
    assert_eq!(difference, None);
    assert_eq!(found.len(), expected.len());
}

/// Draws something that moves; coarser if it is the distorted picture.
fn draw(picture: &mut VmafPicture, frame: u32, distorted: bool) {
    for plane in 0..3 {
        for row in 0..picture.h[plane] as usize {
            for column in 0..picture.w[plane] as usize {
                let value = (column * 7 + row * 5 + frame as usize * (3 + plane) + column * row % 11) % 256;
                let value = if distorted { value / 16 * 16 } else { value };
                let start = picture.data[plane].cast::<u8>();
                let row = row * picture.stride[plane] as usize;
                // SAFETY: within the plane, whose rows are aligned for samples.
                unsafe {
                    match picture.bpc {
                        8 => start.add(row + column).write(value as u8),
                        bits => start
                            .add(row + 2 * column)
                            .cast::<u16>()
                            .write((value << (bits - 8)) as u16 + column as u16 % 4),
                    }
                }
            }
        }
    }
}

fn scores_are_those_of_the_cpu() {
    for (bits, subsample) in [(8, 3), (10, 1)] {
        let kind = Kind { bits, ..SMALL };
        let expected = Context::on_cpu(kind, subsample, &FEATURES).read_all(7).report();
        let before = count("launches");
        let found = Context::new(kind, 0, subsample, &FEATURES).read_all(7).report();
        assert!(count("launches") > before);
        same(&found, &expected);
    }
}

/// Programs such as libaom make a context for each pair.
fn one_pair_stays_on_the_cpu() {
    for _ in 0..3 {
        Context::new(SMALL, 0, 1, &[]).read_all(1).report();
    }
    assert_eq!(count("calls"), 0);
}

/// Hands pairs over until the log has a line with this text.
fn read_until(context: &mut Context, line: &str) {
    let log = tempfile::NamedTempFile::new().unwrap();
    // SAFETY: both are open files.
    assert_eq!(unsafe { libc::dup2(log.as_raw_fd(), 2) }, 2);
    while !std::fs::read_to_string(log.path()).unwrap().contains(line) {
        assert_eq!(context.read(), 0);
    }
}

/// The CPU computes until then.
fn a_gpu_is_used_once_it_is_open() {
    let mut context = Context::new(SMALL, 0, 1, &["psnr"]);
    read_until(&mut context, "libvmaf INFO scoring on the AMD GPU");
    let before = count("h2d");
    let context = context.read_all(8);
    assert!(count("h2d") > before);
    let pairs = context.pairs;
    same(&context.report(), &Context::on_cpu(SMALL, 1, &["psnr"]).read_all(pairs).report());
}

/// Memory that the parent has page-locked need not be there in the child.
fn a_child_has_pictures_of_its_own() {
    let Kind { bits, width, height } = SMALL;
    let place = || {
        let mut picture = VmafPicture::default();
        // SAFETY: the pointer can be written to, and the picture is one of the library.
        unsafe {
            assert_eq!(vmaf_picture_alloc(&mut picture, 1, bits, width, height), 0);
            let place = picture.data[0];
            assert_eq!(vmaf_picture_unref(&mut picture), 0);
            place
        }
    };
    let context = Context::new(SMALL, 0, 1, &[]).read_all(2);
    let parents = place();
    assert_eq!(place(), parents, "memory is used again");
    // SAFETY: the child takes no lock that another thread may have, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(place() == parents)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    context.report();
}

fn the_cpu_is_used_where_it_is_chosen() {
    drop(Context::new(SMALL, 0, 1, &[]).read_all(4));
    assert_eq!(count("calls"), 0);
}

fn a_gpu_is_used_from_the_first_pair_on() {
    let expected = Context::on_cpu(SMALL, 1, &[]).read_all(1).report();
    assert_eq!(count("calls"), 0);
    let context = Context::new(SMALL, 0, 1, &[]);
    assert_eq!(count("calls"), 0, "by vmaf_init");
    let context = context.read_all(1);
    assert!(count("launches") > 0);
    same(&context.report(), &expected);
}

fn without_a_gpu_the_cpu_computes() {
    let mut context = Context::new(SMALL, 0, 1, &[]);
    read_until(&mut context, "libvmaf INFO scoring on the CPU: there is no usable GPU");
    let context = context.read_all(4);
    let pairs = context.pairs;
    same(&context.report(), &Context::on_cpu(SMALL, 1, &[]).read_all(pairs).report());
}

fn without_a_gpu_there_are_no_scores() {
    assert_eq!(Context::new(SMALL, 0, 1, &[]).read(), INVALID);
}

fn contexts_share_a_gpu() {
    let expected = Context::on_cpu(SMALL, 1, &["psnr"]).read_all(20).report();
    std::thread::scope(|scope| {
        for gpumask in [0, 0, 1] {
            let expected = &expected;
            scope.spawn(move || {
                let context = Context::new(SMALL, gpumask, 1, &["psnr"]).read_all(20);
                same(&context.report(), expected);
            });
        }
    });
    assert!(count("launches") > 0);
}

/// A pool of four, of which a context keeps two for motion, has four pairs computed at a time. Memory does not grow with the
/// number of pairs.
fn few_pictures_are_enough() {
    const PAIRS: u32 = 300;
    const MOST: usize = 40;
    let expected = Context::on_cpu(SMALL, 1, &[]).read_all(PAIRS).report();
    let mut context = Context::new(SMALL, 0, 1, &[]);
    context.add_pool(4);
    let mut places = BTreeSet::new();
    let before = count("h2d");
    let vmaf = context.vmaf;
    for pair in 0..PAIRS {
        let code = context.read_in(|picture| {
            // SAFETY: all pointers are there.
            let code = unsafe { vmaf_fetch_preallocated_picture(vmaf, picture) };
            if pair > 1 {
                places.insert(picture.data[0] as usize);
            }
            code
        });
        assert_eq!(code, 0);
    }
    assert!(count("h2d") > before);
    assert!((9..4 + MOST).contains(&places.len()), "{} pictures", places.len());
    same(&context.report(), &expected);
    let pinned = live("pinned");
    assert!(pinned >= 8, "pictures of pools are page-locked");
    drop(context);

    let mut context = Context::new(SMALL, 0, 1, &[]);
    let mut most = 0;
    for _ in 0..PAIRS {
        assert_eq!(context.read(), 0);
        most = most.max(live("pinned"));
    }
    same(&context.report(), &expected);
    assert!((8..MOST as i64 + pinned).contains(&most), "{most} pieces of page-locked memory");
    context.add_pool(4);
    context.pairs = 0;
    assert_eq!(context.read_from_pool(), INVALID, "after the flush");
}

/// Scores eight pairs, with a fault before the fifth.
fn with_fault(fault: &str) {
    let expected = Context::on_cpu(SMALL, 1, &FEATURES).read_all(8).report();
    let mut context = Context::new(SMALL, 0, 1, &FEATURES).read_all(4);
    fail(fault);
    (0..4).for_each(|_| assert_eq!(context.read(), 0));
    same(&context.report(), &expected);
    assert!(count("launches") > 0);
}

fn a_submission_fails() {
    with_fault("hipGraphLaunch:1@1");
}

fn a_gpu_is_lost() {
    with_fault("async:700@1");
}

fn a_gpu_is_lost_with_pairs_on_it() {
    with_fault("async:700@60");
}

fn sums_are_wrong() {
    with_fault("flip:20+");
    assert!(count("faults") > 0);
}
