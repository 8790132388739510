// SPDX-License-Identifier: MPL-2.0

//! What the GPU backend asks of a device, and when: seen by the software device, which counts. The ignored tests are
//! started by the others, each in a process of its own.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};

use gpu::{Device, DeviceBuffer, Event, Graph, Pinned, Selection, Stream, zero};
use hipvmaf_engine::backend::hip::Hip;
use hipvmaf_engine::backend::{Backend, Group};
use hipvmaf_engine::frame::{BitDepth, Component, Geometry, Lease, Picture, Samples};
use hipvmaf_engine::metrics::{FrameSums, Work};
use hipvmaf_engine::testing::metrics::{Motion, MotionWork, Psnr, PsnrWork, Vif, VifWork};

use crate::gpu::{RDNA, assert_passes, library, run};

/// The software device from outside.
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

/// What happened so far.
fn count(what: &str) -> i64 {
    let what = CString::new(what).unwrap();
    // SAFETY: text that ends with a zero.
    unsafe { (OBSERVER.count)(what.as_ptr()) }
}

/// What exists.
fn live(what: &str) -> i64 {
    let what = CString::new(what).unwrap();
    // SAFETY: text that ends with a zero.
    unsafe { (OBSERVER.live)(what.as_ptr()) }
}

/// Runs one of the ignored tests.
#[track_caller]
fn passes(test: &str, environment: &[(&str, &str)]) {
    let test = format!("device::{test}");
    assert_passes(&run(&["--exact", &test, "--ignored"], &[&[RDNA], environment].concat()));
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

/// A picture in page-locked memory that notes how many copies were done when it was let go.
struct Kept {
    memory: Pinned,
    copied: Arc<AtomicI64>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.copied.fetch_min(count("h2d"), Ordering::Relaxed);
    }
}

/// A picture in page-locked memory that differs from others of its size by this value everywhere; what is between its rows
/// is something else.
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
    // SAFETY: nobody changes the memory, which is page-locked and lives as long as what keeps it.
    Picture { luma, chroma: None, lease: Some(unsafe { Lease::new(keep).pinned() }) }
}

#[test]
fn a_group_that_fails_keeps_its_pictures_until_they_were_copied() {
    passes("failing", &[("SWHIP_DELAY_US", "10000")]);
}

#[test]
#[ignore = "started by another, on a device that it describes"]
fn failing() {
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

#[test]
fn what_a_wait_failed_with_is_what_the_group_failed_with() {
    passes("failing_wait", &[("SWHIP_DELAY_US", "10000")]);
}

/// Runtimes may say it once only, to the thread that waits.
#[test]
#[ignore = "started by another, on a device that it describes"]
fn failing_wait() {
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

#[test]
fn graphs_have_no_branches_on_amd_unless_asked_for() {
    let streams = |graphs| {
        let report = std::env::temp_dir().join(format!("hipvmaf-{}.{graphs}", std::process::id()));
        passes("branching", &[("SWHIP_REPORT", report.to_str().unwrap()), ("HIPVMAF_GRAPHS", graphs)]);
        let counts = std::fs::read_to_string(&report).unwrap();
        std::fs::remove_file(report).unwrap();
        let made = counts.lines().find_map(|line| line.strip_prefix("count hipStreamCreateWithPriority "));
        made.unwrap().parse::<i64>().unwrap()
    };
    let plain = streams("off");
    assert_eq!(streams(""), plain);
    assert_eq!(streams("branches"), plain + 2);
}

#[test]
#[ignore = "started by another, on a device that it describes"]
fn branching() {
    let vif = VifWork { gain_limits: vec![100.0], scale0: true };
    let motion = MotionWork { lag1: true, lag2: false };
    prepared(&psnr().with::<Vif>(vif).with::<Motion>(motion), 96, 1);
}

#[test]
fn what_kernels_share_with_the_host_is_coherent() {
    passes("sharing", &[]);
}

#[test]
#[ignore = "started by another, on a device that it describes"]
fn sharing() {
    let hip = prepared(&psnr(), 96, 3);
    // For each group in flight where its pictures are, its sums, and that it is done.
    assert_eq!((live("coherent"), live("released")), (6, 3));
    drop(hip);
    assert_eq!((live("coherent"), live("released")), (0, 0));
}

#[test]
fn rows_are_copied_in_one_piece_as_they_lie_or_packed_before() {
    passes("packing", &[]);
}

#[test]
#[ignore = "started by another, on a device that it describes"]
fn packing() {
    // One copy for all rows: those of which kernels would read each from another place in a sector, or that are too far apart.
    // None of these: rows that would be copied one by one, which are packed before; and those that lie as they are read.
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

#[test]
fn rows_may_be_apart_otherwise_in_each_picture() {
    passes("strides", &[]);
}

/// Motion compares with pictures that came before, two groups being in flight.
#[test]
#[ignore = "started by another, on a device that it describes"]
fn strides() {
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

/// The memories of a picture may be written on a stream each.
#[test]
fn everybody_who_writes_a_picture_is_waited_for() {
    passes("awaiting", &[]);
}

#[test]
#[ignore = "started by another, on a device that it describes"]
fn awaiting() {
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
        // And for the distorted picture, which comes through another stream.
        assert_eq!(count("hipStreamWaitEvent") - before, waits + 1, "{writers:?}");
        hip.wait(ticket).unwrap();
    }
}

/// A stream for each would have the GPU change from one to the other all the time.
#[test]
fn video_for_all_sessions_comes_through_one_stream() {
    passes("uploading", &[]);
}

#[test]
#[ignore = "started by another, on a device that it describes"]
fn uploading() {
    let device = hipvmaf_engine::backend::hip::open(&Selection::default()).unwrap();
    let [first, second] = [(), ()].map(|()| device.uploads().unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    // Sessions have that one, and give it back.
    let sessions = [(), ()].map(|()| prepared(&psnr(), 96, 1));
    assert_eq!(Arc::strong_count(&first), 4);
    drop((sessions, second));
    assert_eq!(Arc::strong_count(&first), 1);
}

/// Streams of AMD's runtime share queues, where whatever waits for something holds up what is behind it.
#[test]
fn video_from_the_host_does_not_wait_for_kernels_of_others() {
    passes("passing", &[("SWHIP_DELAY_US", "10000"), ("SWHIP_SEED", "1")]);
}

#[test]
#[ignore = "started by another, on a device that it describes"]
fn passing() {
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
    // More than there are queues.
    let others: Vec<_> = (0..8).map(|_| Stream::new(&device).unwrap()).collect();
    let events: Vec<_> = others.iter().map(|stream| work(stream, 10)).collect();
    work(&device.uploads().unwrap(), 1).synchronize().unwrap();
    assert!(events.iter().all(|event| !event.is_done().unwrap()));
    others.iter().for_each(|stream| stream.synchronize().unwrap());
}

/// As a runtime makes of what it did not understand.
#[test]
fn a_recording_of_nothing_is_no_graph() {
    passes("recording", &[]);
}

#[test]
#[ignore = "started by another, on a device that it describes"]
fn recording() {
    let device = hipvmaf_engine::backend::hip::open(&Selection::default()).unwrap();
    let stream = Stream::new(&device).unwrap();
    assert!(Graph::record(&stream, || Ok(())).unwrap().is_none());
    assert_eq!(live("graphs"), 0);
}
