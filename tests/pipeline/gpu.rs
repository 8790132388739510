// SPDX-License-Identifier: MPL-2.0

//! The GPU backend on the software device of `tests/swhip`, which runs the shipped kernels on the CPU and
//! behaves like AMD's runtime: the same scores on every kind of GPU, and an answer to everything that fails.
//!
//! A process finds its GPUs once, so functions on a device run in processes of their own.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use gst::prelude::*;

use gsthipvmaf::event::Event;

use crate::common::clip::clips;
use crate::common::device::{DEVICE, FakeAllocator};
use crate::common::rig::Rig;
use crate::common::{Bench, Input, is_asleep, sides, thread_id, until};

use crate::process::{Case, Function, command, functions, passes};
use crate::swhip::library;

/// Tests in this process.
pub const TESTS: &[Function] = functions![
    without_a_usable_gpu_hip_fails_and_auto_takes_the_processor,
    every_failing_call_ends_in_an_error_or_on_the_processor,
    a_device_lost_in_the_middle_is_an_error_that_says_so,
    too_little_memory_is_said_with_what_it_was_for,
    a_runtime_that_comes_later_is_found_at_the_next_start
];

/// Functions that run in processes of their own.
pub const FUNCTIONS: &[Function] = functions![player, latecomer, reader, overlap, full];

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

pub const RDNA: (&str, &str) = ("SWHIP_ARCH", "gfx1100");
pub const CDNA: (&str, &str) = ("SWHIP_ARCH", "gfx90a:sramecc+:xnack-");
/// Elements of the tests use the GPU unless a property says otherwise.
pub const ON_GPU: (&str, &str) = ("HIPVMAF_TEST_BACKEND", "hip");

pub fn cases() -> Vec<Case> {
    ["gpu::reader", "gpu::overlap", "gpu::full"].map(|function| ("rdna", function, vec![RDNA, ON_GPU])).into()
}

/// The outcome of playing a clip in a process of its own.
pub struct Outcome {
    /// The mean score, or the error.
    pub result: Result<f64, String>,
    /// The element goes from NULL to READY.
    pub ready: bool,
    /// It was said that the GPU was lost.
    pub lost: bool,
    pub backend: String,
    pub log: String,
}

/// Plays a clip with frames in flight and looks for leaks.
pub fn play(backend: &str, device: &[(&str, &str)]) -> Outcome {
    let environment = [device, &[("HIPVMAF_TEST_BACKEND", backend)]].concat();
    let output = command("gpu::player", &environment).output().unwrap();
    let log = text(&output);
    assert!(output.status.success(), "{device:?}\n{log}");
    let said = |key: &str| log.lines().find_map(|line| Some(line.split_once(key)?.1.to_owned()));
    let score = said("player score ").map(|score| score.parse().unwrap());
    let result = score.ok_or_else(|| said("player error ").unwrap_or_else(|| panic!("{device:?}\n{log}")));
    let ready = said("player ready ").as_deref() == Some("true");
    let lost = said("player lost ").as_deref() == Some("1");
    Outcome { result, ready, lost, backend: said("player backend ").unwrap_or_default(), log }
}

fn player() {
    let clip = clips().into_iter().find(|clip| clip.name == "176x144_420_8bit").unwrap();
    let backend = std::env::var("HIPVMAF_TEST_BACKEND").unwrap();
    let bench = Bench::new(&[("backend", &backend), ("psnr", "true")]);
    println!("\nplayer ready {}", bench.element.set_state(gst::State::Ready).is_ok());
    bench.element.set_state(gst::State::Null).unwrap();
    let result = bench.run(&Input::planar(&clip, false), &Input::planar(&clip, true));
    let name: Option<String> = bench.element.property("backend-name");
    println!("\nplayer backend {}", name.unwrap_or_default());
    match result {
        Ok(report) => println!("player score {:?}", report.pooled[0].common.score),
        Err(failure) => {
            let lost = failure.events.iter().filter(|event| event.event == Event::DeviceLost).count();
            println!("player error {}\nplayer lost {lost}", failure.text);
        }
    }
    drop(bench);
    let Ok(library) = std::env::var("HIPVMAF_HIP_LIBRARY") else { return };
    // SAFETY: the library is loaded already, or its initialisers do nothing.
    let Ok(library) = (unsafe { libloading::Library::new(library) }) else { return };
    // SAFETY: the function's type, see tests/swhip.
    let live: Result<libloading::Symbol<unsafe extern "C" fn(*const std::ffi::c_char) -> i64>, _> =
        unsafe { library.get("swhip_live") };
    let Ok(live) = live else { return };
    for what in [c"allocs", c"pinned", c"streams", c"events", c"modules", c"graphs"] {
        // SAFETY: a string that ends with a zero.
        let count = unsafe { live(what.as_ptr()) };
        assert_eq!(count, 0, "{what:?} left");
    }
}

/// The score of the CPU.
fn expected() -> f64 {
    play("cpu", &[]).result.unwrap()
}

fn without_a_usable_gpu_hip_fails_and_auto_takes_the_processor() {
    let expected = expected();
    let cases: [(&[(&str, &str)], &str); 5] = [
        (&[("HIPVMAF_HIP_LIBRARY", "/nowhere/libamdhip64.so")], "/nowhere/libamdhip64.so"),
        (&[("HIPVMAF_HIP_LIBRARY", "libm.so.6")], "libm.so.6 has no function hip"),
        (&[("SWHIP_DEVICES", "0")], "finds no device"),
        (&[("SWHIP_ARCH", "gfx803")], "gfx803"),
        (&[RDNA, ("SWHIP_FAIL", "hipInit:999@1+")], "999"),
    ];
    for (device, reason) in cases {
        let outcome = play("hip", device);
        let refused = outcome.result.unwrap_err();
        assert!(refused.contains(reason), "{refused}");
        assert!(!outcome.ready, "{device:?}");
        let outcome = play("auto", device);
        assert!(outcome.ready, "{device:?}");
        assert_eq!((outcome.result, outcome.backend.as_str()), (Ok(expected), "cpu"), "{device:?}");
    }
}

/// Fails every call of a run, at its first and at its third use, and any allocation.
fn every_failing_call_ends_in_an_error_or_on_the_processor() {
    let expected = expected();
    let once = |call: &str, error: i32| [1, 3].map(|n| format!("{call}:{error}@{n}")).to_vec();
    let specs: Vec<String> = [
        "hipInit",
        "hipGetDeviceCount",
        "hipSetDevice",
        "hipDeviceGetName",
        "hipDeviceGetPCIBusId",
        "hipGetDevicePropertiesR0600",
        "hipModuleLoadData",
        "hipModuleGetFunction",
        "hipStreamCreateWithPriority",
        "hipEventCreateWithFlags",
        "hipEventRecord",
        "hipStreamWaitEvent",
        "hipEventQuery",
        "hipMemsetAsync",
        "hipMemcpyAsync",
        "hipStreamBeginCapture",
        "hipStreamEndCapture",
        "hipGraphInstantiate",
        "hipGraphLaunch",
        "hipModuleLaunchKernel",
    ]
    .into_iter()
    .flat_map(|call| once(call, 999))
    .chain((1..=12).map(|n| format!("hipMalloc:2@{n}+")))
    .chain((1..=12).map(|n| format!("hipHostMalloc:2@{n}+")))
    .collect();
    let (mut refused, mut fallen_back) = (0, 0);
    for spec in &specs {
        let device = [RDNA, ("SWHIP_FAIL", spec.as_str())];
        match play("hip", &device).result {
            Ok(score) => assert_eq!(score, expected, "{spec}"),
            Err(text) => {
                let said = spec.split(':').next().unwrap();
                assert!(
                    text.contains(said) || text.contains("no memory") || text.contains("no usable"),
                    "{spec}: {text}"
                );
                refused += 1;
            }
        }
        let outcome = play("auto", &device);
        match outcome.result {
            Ok(score) => {
                assert_eq!(score, expected, "{spec}");
                fallen_back += usize::from(outcome.backend == "cpu");
            }
            // After the first scores, the backend does not change.
            Err(text) => {
                let said = text.contains("returned") || text.contains("no memory");
                assert!(said, "{spec}: {text}\n{}", outcome.log);
            }
        }
    }
    assert!(
        refused > specs.len() / 2 && fallen_back > specs.len() / 3,
        "{refused} {fallen_back} of {}",
        specs.len()
    );
}

fn a_device_lost_in_the_middle_is_an_error_that_says_so() {
    // Some 25 commands a frame, after those of the groups that warm the GPU up: in the sixth frame and later, which are
    // handed over when the first has its score.
    for at in [270, 310, 350] {
        let fault = format!("async:700@{at}");
        let outcome = play("auto", &[RDNA, ("SWHIP_FAIL", &fault)]);
        assert!(outcome.lost);
        let text = outcome.result.unwrap_err();
        assert!(text.contains("was lost") && text.contains("700"), "{text}");
    }
}

fn too_little_memory_is_said_with_what_it_was_for() {
    let text = play("hip", &[RDNA, ("SWHIP_MEM", "100000")]).result.unwrap_err();
    assert!(text.contains("no memory") && text.contains("max-in-flight"), "{text}");
}

/// Drivers are loaded while a service runs.
fn a_runtime_that_comes_later_is_found_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libamdhip64.so.6");
    let device = [RDNA, ("HIPVMAF_HIP_LIBRARY", path.to_str().unwrap())];
    passes("gpu::latecomer", &device);
}

fn latecomer() {
    let bench = Bench::new(&[("backend", "hip")]);
    let element = &bench.element;
    assert!(element.set_state(gst::State::Ready).is_err());
    element.set_state(gst::State::Null).unwrap();
    std::os::unix::fs::symlink(library("libamdhip64.so.6"), std::env::var_os("HIPVMAF_HIP_LIBRARY").unwrap())
        .unwrap();
    assert!(element.set_state(gst::State::Ready).is_ok());
    element.set_state(gst::State::Null).unwrap();
}

/// The functions that the element loads from GStreamer's library for HIP memory. Memories are on the two streams in turn.
const FAKE_GST_HIP: &str = "
    static void *streams[2];
    static int calls;
    void fake_streams(void *first, void *second) { streams[0] = first; streams[1] = second; }
    void *gst_hip_memory_get_stream(void *memory) { (void)memory; return streams[calls++ % 2]; }
    void *gst_hip_stream_get_handle(void *stream) { return stream; }
";

/// Opens the library above, which gives these streams.
fn open_fake_gst_hip(streams: [usize; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let [source, library] = ["gsthip.c", "libgsthip-1.0.so.0"].map(|name| folder.path().join(name));
    std::fs::write(&source, FAKE_GST_HIP).unwrap();
    let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let arguments = ["-shared", "-fPIC", "-Wl,-soname,libgsthip-1.0.so.0", "-o"];
    let compiled = Command::new(cc).args(arguments).args([&library, &source]).status();
    assert!(compiled.expect("a C compiler is needed").success());
    // SAFETY: the library has no initialisers, and the type is that of its source.
    unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(library).unwrap()));
        let set = *library.get::<unsafe extern "C" fn(usize, usize)>("fake_streams").unwrap();
        set(streams[0], streams[1]);
    }
}

fn reader() {
    crate::common::init();
    open_fake_gst_hip([(); 2].map(|()| DEVICE.new_stream()));
    let allocator = FakeAllocator::new(c"HIPMemory");
    let clip = clips().into_iter().find(|clip| clip.name == "176x144_420_8bit").unwrap();
    let [reference, distorted] = [false, true].map(|distorted| Input::planar(&clip, distorted));
    let waits = |parts: usize| {
        let before = DEVICE.count("hipStreamWaitEvent");
        let mut parted = distorted
            .moved("memory:HIPMemory", |bytes| allocator.memory(0, &bytes[..bytes.len() * 2 / (1 + parts)]));
        if parts == 2 {
            let rest = |sample: &gst::Sample| {
                let bytes = sample.buffer().unwrap().map_readable().unwrap();
                allocator.memory(0, &bytes[bytes.len() * 2 / 3..])
            };
            for (sample, whole) in parted.0.iter_mut().zip(&distorted.0) {
                let mut buffer = sample.buffer_owned().unwrap();
                buffer.make_mut().append_memory(rest(whole));
                *sample = gst::Sample::builder().buffer(&buffer).caps(&sample.caps_owned().unwrap()).build();
            }
        }
        // A frame that is verified is waited for once more, so none is.
        let bench = Bench::new(&[("psnr", "true"), ("verify", "0")]);
        let report = bench.run(&reference, &parted).unwrap();
        (DEVICE.count("hipStreamWaitEvent") - before, report.scores())
    };
    let ((one, expected), (two, scores)) = (waits(1), waits(2));
    assert_eq!((two - one, scores), (distorted.0.len() as i64, expected));
}

fn overlap() {
    const PADS: [&str; 3] = ["ref_sink", "dist_sink", "dist_0"];
    const GROUPS: usize = 4;
    let (reference, distorted) = sides(GROUPS * PADS.len());
    let rig = Rig::offline(&[("verify", "0")]).with_renditions(&["other"]);
    let task = Arc::new(AtomicI32::new(0));
    let streaming_thread = task.clone();
    rig.pad("src").add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        streaming_thread.store(thread_id(), Ordering::Release);
        gst::PadProbeReturn::Ok
    });
    let rig = rig.play();
    let push = |pad, t: usize| {
        rig.push(pad, if pad == "ref_sink" { &reference.0[t] } else { &distorted.0[t] });
    };
    for (round, last) in PADS.into_iter().enumerate() {
        let first = GROUPS * round;
        (first..first + 2).for_each(|t| PADS.iter().for_each(|pad| push(pad, t)));
        // The second group waits for the next one, because motion needs it. The GPU is idle.
        rig.wait_scores((first + 1) * 2);
        let launched = DEVICE.count("hipGraphLaunch");
        let hold = DEVICE.hold();
        PADS.iter().for_each(|pad| push(pad, first + 2));
        until(|| DEVICE.count("hipGraphLaunch") == launched + 1);
        PADS.iter().filter(|pad| **pad != last).for_each(|pad| push(pad, first + 3));
        // Between the arrival of the last frame and the time at which the streaming thread can see it, that thread finds
        // nothing and goes to sleep again.
        let task = task.clone();
        let arrival = rig.pad(last).add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            until(|| is_asleep(task.load(Ordering::Acquire)));
            gst::PadProbeReturn::Ok
        });
        push(last, first + 3);
        rig.pad(last).remove_probe(arrival.unwrap());
        until(|| DEVICE.count("hipGraphLaunch") == launched + 2);
        drop(hold);
    }
    rig.end();
    assert_eq!(rig.finish().unwrap().frames.len(), 2 * GROUPS * PADS.len());
}

fn full() {
    for in_flight in [1, 2, 5] {
        let inputs = sides(2 + in_flight + 2);
        let rig = Rig::offline(&[("verify", "0"), ("max-in-flight", &in_flight.to_string())]).play();
        let (begun, rest) = (|t| t < 2, |t| t >= 2);
        rig.push_pairs(&inputs.0.keep(begun).0, &inputs.1.keep(begun).0);
        rig.wait_scores(1);
        let (launched, hold) = (DEVICE.count("hipGraphLaunch"), DEVICE.hold());
        let reference = rig.streaming("ref_sink", &inputs.0.keep(rest));
        let distorted = rig.streaming("dist_sink", &inputs.1.keep(rest));
        // One pair is prepared, and one more is queued on the pad.
        distorted.wait_taken(in_flight + 2);
        until(|| DEVICE.count("hipGraphLaunch") == launched + in_flight as i64);
        drop(hold);
        reference.join();
        distorted.join();
        assert_eq!(rig.finish().unwrap().frames.len(), inputs.0.0.len());
    }
}
