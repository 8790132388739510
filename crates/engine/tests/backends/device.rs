// SPDX-License-Identifier: MPL-2.0

//! The calls of the GPU backend, counted by the software device.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};

use gpu::{Device, DeviceBuffer, Event, Graph, Pinned, Selection, Stream, zero};
use hipvmaf_engine::backend::hip::Hip;
use hipvmaf_engine::backend::{Backend, Group};
use hipvmaf_engine::frame::{BitDepth, Component, Geometry, Lease, Picture, Samples};
use hipvmaf_engine::metrics::{FrameSums, Work};
use hipvmaf_engine::testing::metrics::{Motion, MotionWork, Psnr, PsnrWork, Vif, VifWork};

use crate::gpu::RDNA;
use crate::process::{Case, Function, functions, passes};
use crate::swhip::library;

/// Functions that run in processes of their own.
pub const FUNCTIONS: &[Function] = functions![
    branching,
    a_failed_group_keeps_its_pictures_until_they_are_copied,
    the_error_of_a_wait_is_that_of_the_group,
    memory_shared_with_kernels_is_coherent,
    rows_are_copied_at_once_in_place_or_packed,
    strides_may_differ_between_pictures,
    all_producers_of_a_picture_are_waited_for,
    sessions_share_one_stream_for_uploads,
    uploads_do_not_wait_for_kernels_of_others,
    an_empty_recording_is_no_graph,
];

/// Tests that start several processes.
pub const TESTS: &[Function] = functions![graphs_have_no_branches_on_amd];

/// Returns the functions that must succeed on a device, with its delays and order.
pub fn cases() -> Vec<Case> {
    vec![
        (
            "rdna",
            "device::a_failed_group_keeps_its_pictures_until_they_are_copied",
            vec![RDNA, ("SWHIP_DELAY_US", "10000")],
        ),
        ("rdna", "device::the_error_of_a_wait_is_that_of_the_group", vec![RDNA, ("SWHIP_DELAY_US", "10000")]),
        ("rdna", "device::memory_shared_with_kernels_is_coherent", vec![RDNA]),
        ("rdna", "device::rows_are_copied_at_once_in_place_or_packed", vec![RDNA]),
        ("rdna", "device::strides_may_differ_between_pictures", vec![RDNA]),
        ("rdna", "device::all_producers_of_a_picture_are_waited_for", vec![RDNA]),
        ("rdna", "device::sessions_share_one_stream_for_uploads", vec![RDNA]),
        (
            "rdna",
            "device::uploads_do_not_wait_for_kernels_of_others",
            vec![RDNA, ("SWHIP_DELAY_US", "10000"), ("SWHIP_SEED", "1")],
        ),
        ("rdna", "device::an_empty_recording_is_no_graph", vec![RDNA]),
    ]
}

/// Functions of the software device for tests.
struct Observer {
    count: unsafe extern "C" fn(*const c_char) -> i64,
    live: unsafe extern "C" fn(*const c_char) -> i64,
    fail: unsafe extern "C" fn(*const c_char),
    create_stream: unsafe extern "C" fn(*mut usize, c_uint) -> c_int,
}

static OBSERVER: LazyLock<Observer> = LazyLock::new(|| {
    // SAFETY: the library's initialisers do nothing, and the types are those of tests/swhip/hip.h.
    unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(library("libamdhip64.so.6")).unwrap()));
        Observer {
            count: *library.get("swhip_count").unwrap(),
            live: *library.get("swhip_live").unwrap(),
            fail: *library.get("swhip_fail").unwrap(),
            create_stream: *library.get("hipStreamCreateWithFlags").unwrap(),
        }
    }
});

/// Returns how often something has happened.
fn count(what: &str) -> i64 {
    let what = CString::new(what).unwrap();
    // SAFETY: text that ends with a zero.
    unsafe { (OBSERVER.count)(what.as_ptr()) }
}

/// Returns how many objects exist.
fn live(what: &str) -> i64 {
    let what = CString::new(what).unwrap();
    // SAFETY: text that ends with a zero.
    unsafe { (OBSERVER.live)(what.as_ptr()) }
}

fn luma(width: usize) -> Geometry {
    Geometry { width, height: 64, depth: BitDepth::new(8).unwrap(), chroma: None }
}

fn prepared(work: &Work, width: usize, depth: usize) -> Hip {
    let mut hip = Hip::open(&Selection::default(), depth).unwrap();
    hip.prepare(work, luma(width), &[None]).unwrap();
    hip
}

fn psnr() -> Work {
    Work::default().with::<Psnr>(PsnrWork { chroma: false })
}

/// A picture in page-locked memory. When its memory is released, it stores the number of finished copies.
struct Kept {
    memory: Pinned,
    copied: Arc<AtomicI64>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.copied.fetch_min(count("h2d"), Ordering::Relaxed);
    }
}

/// Returns a picture in page-locked memory whose samples are larger by `value` than those of others of its size. The
/// bytes between its rows differ from them.
fn pinned<'a>(
    device: &Arc<Device>,
    width: usize,
    stride: usize,
    value: u8,
    copied: &Arc<AtomicI64>,
) -> Picture<'a> {
    let mut memory = Pinned::new(device.clone(), stride * 64).unwrap();
    for (y, row) in memory.bytes_mut()[..stride * 64].chunks_mut(stride).enumerate() {
        for (x, sample) in row.iter_mut().enumerate() {
            *sample = if x < width { value + ((7 * x + 13 * y) % 50) as u8 } else { 31 * value };
        }
    }
    let keep = Arc::new(Kept { memory, copied: copied.clone() });
    // SAFETY: the memory is that long, and the lease of the picture keeps it.
    let bytes = unsafe { std::slice::from_raw_parts(keep.memory.address() as *const u8, stride * 64) };
    let samples = Samples::Host(bytes);
    let luma = Component { samples, width, height: 64, stride, step: 1, shift: 0 };
    // SAFETY: the memory is never changed. It is page-locked and lives as long as its owner.
    Picture { luma, chroma: None, lease: Some(unsafe { Lease::new(keep).pinned() }) }
}

fn a_failed_group_keeps_its_pictures_until_they_are_copied() {
    for (call, stride, copies) in [
        (c"hipGraphLaunch:1@1", 96, 2),
        (c"hipStreamWaitEvent:1@1", 96, 2),
        (c"hipMemcpy2DAsync:1@2", 96, 1),
        (c"hipMemcpyAsync:1@2", 128, 1),
    ] {
        let mut hip = prepared(&psnr(), 96, 1);
        let device = hip.gpu().unwrap().clone();
        let before = count("h2d");
        let copied = Arc::new(AtomicI64::new(i64::MAX));
        let picture = |value| pinned(&device, 96, stride, value, &copied);
        let group = Group::pair(picture(3), picture(5));
        // SAFETY: text that ends with a zero.
        unsafe { (OBSERVER.fail)(call.as_ptr()) };
        assert!(hip.submit(group).is_err());
        assert_eq!(copied.load(Ordering::Relaxed) - before, copies, "{call:?}");
    }
}

/// Runtimes may report the error only once, to the thread that waits.
fn the_error_of_a_wait_is_that_of_the_group() {
    for (depth, call) in [(1, c"hipEventQuery:1@1"), (2, c"hipEventSynchronize:1@1")] {
        let mut hip = prepared(&psnr(), 96, depth);
        let device = hip.gpu().unwrap().clone();
        let copied = Arc::new(AtomicI64::new(i64::MAX));
        let group = || Group::pair(pinned(&device, 96, 96, 3, &copied), pinned(&device, 96, 96, 5, &copied));
        let ticket = hip.submit(group()).unwrap();
        // SAFETY: text that ends with a zero.
        unsafe { (OBSERVER.fail)(call.as_ptr()) };
        let error = hip.wait(ticket).unwrap_err().to_string();
        let (call, _) = call.to_str().unwrap().split_once(':').unwrap();
        assert!(error.contains(call), "{error}");
    }
}

/// AMD's runtime executes branches badly.
fn graphs_have_no_branches_on_amd() {
    let streams = |graphs| {
        let report = std::env::temp_dir().join(format!("hipvmaf-{}.{graphs}", std::process::id()));
        passes(
            "device::branching",
            &[RDNA, ("SWHIP_REPORT", report.to_str().unwrap()), ("HIPVMAF_GRAPHS", graphs)],
        );
        let counts = std::fs::read_to_string(&report).unwrap();
        std::fs::remove_file(report).unwrap();
        let made = counts.lines().find_map(|line| line.strip_prefix("count hipStreamCreateWithPriority "));
        made.unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(streams(""), streams("off"));
}

fn branching() {
    let vif = VifWork { gain_limits: vec![100.0], scale0: true };
    let motion = MotionWork { lag1: true, lag2: false };
    prepared(&psnr().with::<Vif>(vif).with::<Motion>(motion), 96, 1);
}

fn memory_shared_with_kernels_is_coherent() {
    let hip = prepared(&psnr(), 96, 3);
    // For each group in flight: the descriptions of its pictures, its sums, and the event of its end.
    assert_eq!((live("coherent"), live("released")), (6, 3));
    drop(hip);
    assert_eq!((live("coherent"), live("released")), (0, 0));
}

fn rows_are_copied_at_once_in_place_or_packed() {
    // All rows are copied at once if kernels would read each row from another place in a sector, or if rows are too far
    // apart. Two cases need no such copy: rows that would be copied one by one are packed first, and others keep their
    // stride.
    for (width, stride, copies) in
        [(90, 92, 2), (90, 384, 2), (90, 90, 0), (90, 94, 0), (90, 128, 0), (90, 256, 0), (128, 128, 0)]
    {
        let mut hip = prepared(&psnr(), width, 1);
        let device = hip.gpu().unwrap().clone();
        let before = count("hipMemcpy2DAsync");
        let copied = Arc::new(AtomicI64::new(i64::MAX));
        let picture = |value| pinned(&device, width, stride, value, &copied);
        let ticket = hip.submit(Group::pair(picture(3), picture(5))).unwrap();
        let sums = hip.wait(ticket).unwrap();
        let luma = |sums: &FrameSums| sums.get::<Psnr>().map(|sums| sums.y);
        assert_eq!(sums.iter().map(luma).collect::<Vec<_>>(), [Some(4 * 64 * width as u64)]);
        assert_eq!(count("hipMemcpy2DAsync") - before, copies, "{stride}");
    }
}

/// Motion compares with earlier pictures while two groups are in flight.
fn strides_may_differ_between_pictures() {
    let work = psnr().with::<Motion>(MotionWork { lag1: true, lag2: true });
    let sums = |strides: [usize; 6]| {
        let mut hip = prepared(&work, 96, 2);
        let device = hip.gpu().unwrap().clone();
        let copied = Arc::new(AtomicI64::new(i64::MAX));
        let mut tickets = vec![];
        let mut sums = vec![];
        for (stride, value) in strides.into_iter().zip([3, 5, 8, 4, 7, 3]) {
            if tickets.len() == 2 {
                sums.extend(hip.wait(tickets.remove(0)).unwrap());
            }
            let picture = |value| pinned(&device, 96, stride, value, &copied);
            tickets.push(hip.submit(Group::pair(picture(value), picture(6))).unwrap());
        }
        sums.extend(tickets.into_iter().flat_map(|ticket| hip.wait(ticket).unwrap()));
        let of = |sums: &FrameSums| (sums.get::<Psnr>().map(|sums| sums.y), sums.get::<Motion>().copied());
        sums.iter().map(of).collect::<Vec<_>>()
    };
    let expected = sums([96; 6]);
    assert_eq!(expected[1].0, Some(64 * 96));
    assert!(expected[2].1.is_some_and(|motion| motion.lag1 > Some(0) && motion.lag2 > Some(0)));
    assert_eq!(sums([128, 96, 256, 320, 192, 128]), expected);
}

/// Each memory of a picture may be written on another stream.
fn all_producers_of_a_picture_are_waited_for() {
    let mut hip = prepared(&psnr(), 96, 1);
    let device = hip.gpu().unwrap().clone();
    let copied = Arc::new(AtomicI64::new(i64::MAX));
    let streams = [0; 2].map(|mut stream| {
        // SAFETY: the address is valid for a write.
        assert_eq!(unsafe { (OBSERVER.create_stream)(&mut stream, 1) }, 0);
        stream
    });
    for (writers, waits) in [(vec![0], 1), (vec![0, 1], 2), (vec![1, 0, 1], 2)] {
        let mut reference = pinned(&device, 96, 96, 3, &copied);
        let write = |lease: Option<Lease>, writer: &usize| {
            // SAFETY: the streams are never destroyed.
            lease.map(|lease| unsafe { lease.produced_on(streams[*writer]) })
        };
        reference.lease = writers.iter().fold(reference.lease, write);
        let before = count("hipStreamWaitEvent");
        let ticket = hip.submit(Group::pair(reference, pinned(&device, 96, 96, 5, &copied))).unwrap();
        // One more for the distorted picture, which is copied through another stream.
        assert_eq!(count("hipStreamWaitEvent") - before, waits + 1, "{writers:?}");
        hip.wait(ticket).unwrap();
    }
}

/// With a stream for each session, the GPU would switch between them all the time.
fn sessions_share_one_stream_for_uploads() {
    let device = hipvmaf_engine::backend::hip::open(&Selection::default()).unwrap();
    let [first, second] = [(), ()].map(|()| Stream::uploads(&device).unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    // Sessions use that stream and release it.
    let sessions = [(), ()].map(|()| prepared(&psnr(), 96, 1));
    assert_eq!(Arc::strong_count(&first), 4);
    drop((sessions, second));
    assert_eq!(Arc::strong_count(&first), 1);
}

/// Streams of AMD's runtime share queues, in which a command that waits blocks all later ones.
fn uploads_do_not_wait_for_kernels_of_others() {
    let device = hipvmaf_engine::backend::hip::open(&Selection::default()).unwrap();
    let memory = DeviceBuffer::new(&device, "bytes", 4096).unwrap();
    let work = |stream: &Stream, commands: usize| {
        for _ in 0..commands {
            // SAFETY: the memory is that long, and waits for the stream.
            unsafe { zero(stream, memory.address(), 4096).unwrap() };
        }
        let event = Event::new(&device).unwrap();
        event.record(stream).unwrap();
        event
    };
    // More streams than queues.
    let others: Vec<_> = (0..8).map(|_| Stream::new(&device).unwrap()).collect();
    let events: Vec<_> = others.iter().map(|stream| work(stream, 10)).collect();
    work(&Stream::uploads(&device).unwrap(), 1).synchronize().unwrap();
    assert!(events.iter().all(|event| !event.is_done().unwrap()));
    others.iter().for_each(|stream| stream.synchronize().unwrap());
}

/// A runtime returns an empty graph if it cannot record a call.
fn an_empty_recording_is_no_graph() {
    let device = hipvmaf_engine::backend::hip::open(&Selection::default()).unwrap();
    let stream = Stream::new(&device).unwrap();
    assert!(Graph::record(&stream, || Ok(())).unwrap().is_none());
    assert_eq!(live("graphs"), 0);
}
