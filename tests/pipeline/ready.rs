// SPDX-License-Identifier: MPL-2.0

//! Once the pipeline is PAUSED, the GPU has only frames to score and nothing to set up. The functions count the calls of
//! the software device, each in a process of its own.

use gst::prelude::*;
use gst_video::VideoFormat;
use gst_video::VideoInfo;

use crate::common::device::{DEVICE, FakeAllocator};
use crate::common::{Bench, FRAME, Input, coarse, init, moving, sides};
use crate::gpu::{ON_GPU, RDNA};
use crate::process::{Case, Function, functions};

/// Functions that run in processes of their own.
pub const FUNCTIONS: &[Function] =
    functions![one_stream, some_frames_only, several_renditions, frames_in_its_memory];

/// Calls that take memory or time, for which a frame would have to wait.
const CALLS: [&str; 9] = [
    "hipMalloc",
    "hipHostMalloc",
    "hipModuleLoadData",
    "hipModuleGetFunction",
    "hipStreamCreateWithPriority",
    "hipEventCreateWithFlags",
    "hipStreamBeginCapture",
    "hipGraphInstantiate",
    "hipImportExternalMemory",
];

pub fn cases() -> Vec<Case> {
    FUNCTIONS.iter().map(|(function, _)| ("rdna", *function, vec![RDNA, ON_GPU])).collect()
}

const FRAMES: usize = 40;
/// Frames before this time arrive before the pipeline is PAUSED. They are fewer than may be in flight.
const FIRST: gst::ClockTime = gst::ClockTime::from_mseconds(6 * FRAME.mseconds());

/// Plays these inputs, the reference first. Returns the calls before the pipeline was PAUSED and those after.
fn calls(settings: &str, inputs: &[Input]) -> [Vec<i64>; 2] {
    init();
    let pads = ["ref_sink", "dist_sink", "dist_0"];
    let sources =
        pads.iter().take(inputs.len()).map(|pad| format!("appsrc name={pad} format=time ! h.{pad}"));
    let sources = sources.collect::<Vec<_>>().join(" ");
    let line = format!("hipvmaf name=h backend=hip {settings} ! fakesink sync=false {sources}");
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Paused).unwrap();
    let source = |pad: &str| pipeline.by_name(pad).unwrap().downcast::<gst_app::AppSrc>().unwrap();
    let sources: Vec<_> = pads.iter().zip(inputs).map(|(pad, input)| (source(pad), input)).collect();
    let push = |first: bool| {
        for (source, input) in &sources {
            let wanted = |sample: &&gst::Sample| (sample.buffer().unwrap().pts() < Some(FIRST)) == first;
            input.0.iter().filter(wanted).for_each(|sample| assert!(source.push_sample(sample).is_ok()));
        }
    };
    push(true);
    let (prerolled, state, _) = pipeline.state(gst::ClockTime::from_seconds(60));
    assert_eq!((prerolled.is_ok(), state), (true, gst::State::Paused));
    let _other = free_what_is_idle();
    let counts = || CALLS.iter().map(|call| DEVICE.count(call)).collect::<Vec<_>>();
    let before = counts();
    pipeline.set_state(gst::State::Playing).unwrap();
    push(false);
    sources.iter().for_each(|(source, _)| assert!(source.end_of_stream().is_ok()));
    let bus = pipeline.bus().unwrap();
    let ends = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = bus.timed_pop_filtered(gst::ClockTime::from_seconds(60), &ends).expect("an end");
    assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
    let later = counts().iter().zip(&before).map(|(now, before)| now - before).collect();
    pipeline.set_state(gst::State::Null).unwrap();
    [before, later]
}

/// Frees idle page-locked memory: an allocation that fails once frees it at once, instead of after some seconds. Returns the
/// element that allocated, because it keeps memory of its own.
fn free_what_is_idle() -> Bench {
    let bench = Bench::new(&[]);
    let (reference, distorted) = sides(4);
    bench.begin(&reference, &distorted);
    let info = VideoInfo::builder(VideoFormat::I420, 64, 48).build().unwrap();
    let mut query = gst::query::Allocation::new(Some(&info.to_caps().unwrap()), true);
    assert!(bench.element.static_pad("dist_sink").unwrap().query(query.get_mut().unwrap()));
    let (allocator, _) = query.allocation_params().next().expect("memory is offered");
    let allocator = allocator.expect("page-locked memory").to_owned();
    DEVICE.fail("hipHostMalloc:2@1");
    drop(allocator.alloc(123_456, None).unwrap());
    DEVICE.fail("");
    bench
}

#[track_caller]
fn assert_ready(settings: &str, inputs: &[Input]) {
    let [before, later] = calls(settings, inputs);
    assert!(before[..8].iter().all(|count| *count > 0), "{before:?}");
    let left: Vec<_> = CALLS.iter().zip(later).filter(|(_, count)| *count > 0).collect();
    assert!(left.is_empty(), "{settings}: {left:?}");
}

fn one_stream() {
    assert_ready("max-in-flight=16", &<[Input; 2]>::from(sides(FRAMES)));
}

fn some_frames_only() {
    assert_ready("max-in-flight=16 subsample=3", &<[Input; 2]>::from(sides(FRAMES)));
}

/// One rendition is scaled and lacks frames, so some groups have one pair.
fn several_renditions() {
    let smaller = Input::drawn_at((32, 24), FRAMES, |t, x, y| coarse(moving(t, 2 * x, 2 * y)));
    let (reference, distorted) = sides(FRAMES);
    let lacking = |input: &Input| input.keep(|t| t % 5 != 3);
    let inputs = [reference.clone(), lacking(&smaller), distorted.clone()];
    assert_ready("max-in-flight=16 scale-method=bilinear", &inputs);
    let inputs = [reference, lacking(&distorted), smaller];
    assert_ready("max-in-flight=16 scale-method=bilinear subsample=2", &inputs);
}

fn frames_in_its_memory() {
    let allocator = FakeAllocator::new(c"HIPMemory");
    let moved = |input: &Input| allocator.input(0, "memory:HIPMemory", input);
    let (reference, distorted) = sides(FRAMES);
    let distorted = moved(&distorted);
    assert_ready("max-in-flight=16 verify=0", &[moved(&reference), distorted.clone()]);
    // Frames that are read without a copy beside frames that are copied.
    assert_ready("max-in-flight=16 verify=0", &[reference, distorted]);
}
