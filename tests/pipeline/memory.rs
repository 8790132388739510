// SPDX-License-Identifier: MPL-2.0

//! Frames in device memory, DMABuf and page-locked memory: where it comes from, that it is read without a copy, and the error
//! if it cannot be read. The functions count the calls of the software device, each in a process of its own.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};

use gst::prelude::*;
use gst_allocators::prelude::*;
use gst_video::{VideoFormat, VideoFrameFlags, VideoFrameRef, VideoInfo, VideoMeta};

use crate::common::clip::{Clip, clips};
use crate::common::device::{DEVICE, FakeAllocator, number};
use crate::common::{Bench, Input, Report, init, score};
use crate::gpu::ON_GPU;
use crate::process::{Case, Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    the_processor_refuses_device_memory_with_what_to_insert,
    contexts_are_stored_and_answered_but_never_made
];

/// Functions that run in processes of their own.
pub const FUNCTIONS: &[Function] = functions![
    hip_memory_is_read_in_place,
    frames_in_device_memory_are_verified,
    frames_as_pools_of_device_memory_have_them_are_not_copied,
    one_side_can_be_in_device_memory,
    what_leaves_can_come_from_device_memory,
    pictures_in_device_memory_are_scaled,
    memory_that_the_gpu_does_not_have_is_refused,
    the_gpu_follows_the_input_unless_it_is_fixed,
    a_context_says_which_gpu_to_use,
    neighbours_and_the_application_are_asked_for_a_context,
    dma_buffers_are_imported_once_each,
    sources_and_decoders_write_into_page_locked_memory,
    idle_memory_is_unlocked_while_the_gpu_is_open,
    the_application_has_its_device_set_whatever_the_element_does,
    pools_have_as_many_buffers_more_as_are_held_back,
    memory_is_ordinary_beyond_the_limit_and_when_there_is_none,
    memory_outlives_the_element_and_its_parts_share_it
];

/// Returns the functions with two devices of different kinds.
pub fn cases() -> Vec<Case> {
    let two = vec![("SWHIP_ARCH", "gfx1100,gfx90a:sramecc+:xnack-"), ON_GPU];
    FUNCTIONS.iter().map(|(function, _)| ("two_kinds", *function, two.clone())).collect()
}

const HIP: &str = "memory:HIPMemory";

fn clip(name: &str) -> Clip {
    clips().into_iter().find(|clip| clip.name == name).unwrap()
}

fn sides(clip: &Clip) -> [Input; 2] {
    [false, true].map(|distorted| Input::planar(clip, distorted))
}

/// Returns the text of the error.
fn refusal(properties: &[(&str, &str)], reference: &Input, distorted: &Input) -> String {
    score(properties, reference, distorted).unwrap_err().text
}

fn the_processor_refuses_device_memory_with_what_to_insert() {
    let [reference, distorted] = sides(&clip("176x144_420_8bit"));
    for (feature, hint) in
        [(HIP, "hipdownload"), ("memory:CUDAMemory", "cudadownload"), ("memory:DMABuf", "vapostproc")]
    {
        // The caps alone are enough for the error.
        let moved = distorted.moved(feature, |bytes| gst::Memory::from_slice(bytes.to_vec()));
        let text = refusal(&[("backend", "cpu")], &reference, &moved);
        for said in ["dist_sink", feature, "cpu", hint] {
            assert!(text.contains(said), "`{said}` is not in: {text}");
        }
        let query = |pad: &str, backend: &str| {
            let bench = Bench::new(&[("backend", backend)]);
            bench.element.set_state(gst::State::Ready).unwrap();
            let caps = bench.element.static_pad(pad).unwrap().query_caps(None);
            caps.iter_with_features().any(|(_, features)| features.contains(feature))
        };
        assert!(!query("dist_sink", "cpu") && !query("ref_sink", "cpu"), "{feature} is offered");
    }
}

/// Memory as GStreamer's HIP library has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "FakeHipVendor")]
enum FakeVendor {
    #[enum_value(name = "AMD", nick = "amd")]
    Amd = 1,
}

fn context(kind: &str, device: u32) -> gst::Context {
    let mut context = gst::Context::new(kind, true);
    let structure = context.make_mut().structure_mut();
    match kind {
        "gst.hip.device" => {
            structure.set("vendor", FakeVendor::Amd);
            structure.set("device-id", device);
        }
        _ => structure.set("cuda-device-id", device),
    }
    context
}

fn contexts_are_stored_and_answered_but_never_made() {
    let bench = Bench::new(&[]);
    let ask = |pad: &str, kind: &str| {
        let mut query = gst::query::Context::new(kind);
        let answered = bench.element.static_pad(pad).unwrap().query(&mut query);
        answered.then(|| query.context_owned()).flatten().map(|context| context.as_ptr())
    };
    for kind in ["gst.hip.device", "gst.cuda.context"] {
        assert_eq!((ask("src", kind), ask("ref_sink", kind)), (None, None));
        for device in [0, 3] {
            let context = context(kind, device);
            bench.element.set_context(&context);
            for pad in ["src", "ref_sink", "dist_sink"] {
                assert_eq!(ask(pad, kind), Some(context.as_ptr()), "{pad}");
            }
        }
    }
    let other = gst::Context::new("gst.gl.GLDisplay", true);
    bench.element.set_context(&other);
    assert_eq!(ask("src", "gst.gl.GLDisplay"), None);
}

/// Plays two inputs and counts the calls of the device meanwhile.
fn counted(reference: &Input, distorted: &Input, what: &[&str]) -> (Report, Vec<i64>) {
    let before: Vec<_> = what.iter().map(|what| DEVICE.count(what)).collect();
    let report = score(&[("psnr", "true")], reference, distorted).unwrap();
    let counts = what.iter().zip(before).map(|(what, before)| DEVICE.count(what) - before).collect();
    (report, counts)
}

fn hip_memory_is_read_in_place() {
    init();
    let allocator = FakeAllocator::new(c"HIPMemory");
    let mut seen = [false; 2];
    for (name, format) in [
        ("176x144_420_8bit", VideoFormat::I420),
        ("176x144_420_8bit", VideoFormat::Nv12),
        ("176x144_420_10bit", VideoFormat::P01010le),
        ("97x71_420_8bit", VideoFormat::I420),
        ("97x71_422_10bit", VideoFormat::I42210le),
    ] {
        let clip = clip(name);
        let [reference, distorted] = [false, true].map(|distorted| Input::new(&clip, distorted, format));
        let what = ["h2d_bytes", "d2d"];
        let (expected, system) = counted(&reference, &distorted, &what);
        let on_device = [&reference, &distorted].map(|input| allocator.input(0, HIP, input));
        let (report, device) = counted(&on_device[0], &on_device[1], &what);
        assert_eq!(report.frames.len(), clip.frames);
        for (frame, expected) in report.frames.iter().zip(&expected.frames) {
            assert_eq!(
                (&frame.models, &frame.features),
                (&expected.models, &expected.features),
                "{name} {format}"
            );
        }
        let video: i64 =
            on_device.iter().flat_map(|input| &input.0).map(|s| s.buffer().unwrap().size() as i64).sum();
        let saved = system[0] - device[0];
        assert!(saved > video * 9 / 10, "{name} {format}: {video} bytes, {system:?} {device:?}");
        // Rows that the kernels cannot read have to be copied, on the device.
        let info = VideoInfo::from_caps(reference.0[0].caps().unwrap()).unwrap();
        let aligned = info.stride().iter().all(|stride| stride % 16 == 0);
        assert_eq!((system[1], device[1] == 0), (0, aligned), "{name} {format}");
        seen[usize::from(aligned)] = true;
        // The reference is passed on unchanged.
        for (sent, got) in on_device[0].0.iter().zip(&report.buffers) {
            assert_eq!(sent.buffer().unwrap().peek_memory(0).as_ptr(), got.peek_memory(0).as_ptr());
        }
        drop((on_device, report));
        DEVICE.assert_empty();
    }
    assert_eq!(seen, [true, true]);
}

/// For the audit, the CPU downloads the frames from the device.
fn frames_in_device_memory_are_verified() {
    init();
    let allocator = FakeAllocator::new(c"HIPMemory");
    for (name, format) in [
        ("176x144_420_8bit", VideoFormat::I420),
        ("176x144_420_8bit", VideoFormat::Nv12),
        ("176x144_420_10bit", VideoFormat::P01010le),
        ("97x71_422_10bit", VideoFormat::I42210le),
    ] {
        let clip = clip(name);
        let [reference, distorted] =
            [false, true].map(|distorted| allocator.input(0, HIP, &Input::new(&clip, distorted, format)));
        let verified = |share: &str| {
            let before = DEVICE.count("hipStreamCreateWithPriority");
            let report = score(&[("psnr", "true"), ("verify", share)], &reference, &distorted).unwrap();
            let pooled = &report.pooled[0];
            assert_eq!(pooled.counts.wrong, 0, "{name} {format:?}");
            (pooled.counts.verified, DEVICE.count("hipStreamCreateWithPriority") - before)
        };
        assert_eq!(verified("1").0, clip.frames as u64, "{name} {format:?}");
        // Creating a stream takes the driver's lock alone.
        let (_, streams) = verified("0");
        assert_eq!(verified("1"), (clip.frames as u64, streams), "{name} {format:?}");
    }
}

/// Returns frames with rows of this many bytes in all planes and an offset before the first row, as GStreamer's pools of device
/// memory have them.
pub fn with_pitch(input: &Input, before: usize, pitch: usize) -> Input {
    let pad = |sample: &gst::Sample| {
        let info = VideoInfo::from_caps(sample.caps().unwrap()).unwrap();
        let frame = VideoFrameRef::from_buffer_ref_readable(sample.buffer().unwrap(), &info).unwrap();
        let (mut bytes, mut offsets) = (vec![0x5a; before], vec![]);
        for plane in 0..info.n_planes() {
            offsets.push(bytes.len());
            let stride = info.stride()[plane as usize] as usize;
            for row in frame.plane_data(plane).unwrap().chunks(stride) {
                let start = bytes.len();
                bytes.extend(row);
                // Fills the padding after the samples, which must not affect the scores.
                bytes.resize(start + pitch, 0xa5);
            }
        }
        let mut buffer = gst::Buffer::from_slice(bytes);
        let new = buffer.get_mut().unwrap();
        new.set_pts(sample.buffer().unwrap().pts());
        let (format, width, height) = (info.format(), info.width(), info.height());
        let strides = vec![pitch as i32; offsets.len()];
        VideoMeta::add_full(new, VideoFrameFlags::empty(), format, width, height, &offsets, &strides)
            .unwrap();
        gst::Sample::builder().buffer(&buffer).caps(&sample.caps_owned().unwrap()).build()
    };
    Input(input.0.iter().map(pad).collect())
}

fn frames_as_pools_of_device_memory_have_them_are_not_copied() {
    init();
    let allocator = FakeAllocator::new(c"HIPMemory");
    for name in ["97x71_420_8bit", "97x71_422_10bit"] {
        let [reference, distorted] = sides(&clip(name));
        let what = ["h2d_bytes", "d2d"];
        let (expected, _) = counted(&reference, &distorted, &what);
        let padded =
            [&reference, &distorted].map(|input| allocator.input(0, HIP, &with_pitch(input, 0, 256)));
        let (report, counts) = counted(&padded[0], &padded[1], &what);
        for (frame, expected) in report.frames.iter().zip(&expected.frames) {
            assert_eq!((&frame.models, &frame.features), (&expected.models, &expected.features), "{name}");
        }
        assert_eq!((report.frames.len(), counts[1]), (expected.frames.len(), 0), "{name}");
    }
}

fn one_side_can_be_in_device_memory() {
    init();
    let allocator = FakeAllocator::new(c"HIPMemory");
    let [reference, distorted] = sides(&clip("176x144_420_8bit"));
    let expected = score(&[], &reference, &distorted).unwrap();
    let moved = [&reference, &distorted].map(|input| allocator.input(0, HIP, input));
    for pair in [(&moved[0], &distorted), (&reference, &moved[1])] {
        assert_eq!(score(&[], pair.0, pair.1).unwrap().scores(), expected.scores());
    }
}

/// Distorted frames are passed on in device memory. A heat map needs a reference that the CPU can map.
fn what_leaves_can_come_from_device_memory() {
    init();
    let allocator = FakeAllocator::new(c"HIPMemory");
    let [reference, distorted] = sides(&clip("176x144_420_8bit"));
    let moved = [&reference, &distorted].map(|input| allocator.input(0, HIP, input));
    let report = score(&[("output", "distorted")], &moved[0], &moved[1]).unwrap();
    assert!(report.buffers.iter().all(|buffer| buffer.peek_memory(0).is_type("HIPMemory")));
    let report = score(&[("output", "heatmap")], &reference, &moved[1]).unwrap();
    assert!(report.buffers.iter().all(|buffer| !buffer.peek_memory(0).is_type("HIPMemory")));
    let text = refusal(&[("output", "heatmap")], &moved[0], &moved[1]);
    for said in ["heat map", HIP, "hipdownload"] {
        assert!(text.contains(said), "`{said}` is not in: {text}");
    }
}

fn pictures_in_device_memory_are_scaled() {
    init();
    let allocator = FakeAllocator::new(c"HIPMemory");
    for (name, format) in [
        ("97x71_420_8bit", VideoFormat::I420),
        ("97x71_420_8bit", VideoFormat::Nv12),
        ("176x144_420_10bit", VideoFormat::P01010le),
    ] {
        let small = clip(name);
        let reference = Clip { width: 120, height: 130, ..clip(name) };
        let [reference, distorted] =
            [Input::new(&reference, false, format), Input::new(&small, true, format)];
        let properties = [("psnr", "true"), ("scale-method", "bicubic")];
        let expected = score(&properties, &reference, &distorted).unwrap();
        let report = score(&properties, &reference, &allocator.input(0, HIP, &distorted)).unwrap();
        for (frame, expected) in report.frames.iter().zip(&expected.frames) {
            assert_eq!(frame.features, expected.features, "{name} {format}");
        }
        assert_eq!(report.frames.len(), small.frames);
    }
}

fn memory_that_the_gpu_does_not_have_is_refused() {
    init();
    let [reference, distorted] = sides(&clip("176x144_420_8bit"));
    let refused = |input: &Input, said: &[&str]| {
        let text = refusal(&[], &reference, input);
        assert!(said.iter().all(|said| text.contains(said)), "{said:?} are not all in: {text}");
    };
    // AMD's GPUs have no CUDA memory.
    let cuda = FakeAllocator::new(c"gst.cuda.memory");
    refused(&cuda.input(0, "memory:CUDAMemory", &distorted), &["dist_sink", "CUDAMemory", "cudadownload"]);
    let hip = FakeAllocator::new(c"HIPMemory");
    let nowhere = distorted.moved(HIP, |bytes| hip.at(std::ptr::null_mut(), bytes.len()));
    refused(&nowhere, &["dist_sink", HIP, "mapped", "hipdownload"]);
    let ours = distorted.0[0].buffer().unwrap().map_readable().unwrap();
    let host = distorted.moved(HIP, |bytes| hip.at(ours.as_ptr().cast_mut().cast(), bytes.len()));
    refused(&host, &["dist_sink", "host", "hipdownload"]);
    // A memory that is smaller than the frame of the caps.
    let cut = distorted.moved(HIP, |bytes| hip.memory(0, &bytes[..bytes.len() / 4]));
    refused(&cut, &["dist_sink", "smaller"]);
}

fn the_gpu_follows_the_input_unless_it_is_fixed() {
    init();
    let allocator = FakeAllocator::new(c"HIPMemory");
    let [reference, distorted] = sides(&clip("176x144_420_8bit"));
    let expected = score(&[], &reference, &distorted).unwrap();
    let second = [&reference, &distorted].map(|input| allocator.input(1, HIP, input));
    for properties in [&[][..], &[("backend", "auto")], &[("device-id", "1")], &[("vendor", "amd")]] {
        let report = score(properties, &second[0], &second[1]).unwrap();
        assert_eq!(report.scores(), expected.scores(), "{properties:?}");
    }
    let text = refusal(&[("device-id", "0")], &second[0], &second[1]);
    assert!(["gfx90a", "gfx1100", "hipdownload"].iter().all(|said| text.contains(said)), "{text}");
    // One element uses one GPU for both sides.
    let first = allocator.input(0, HIP, &reference);
    let text = refusal(&[], &first, &second[1]);
    assert!(text.contains("dist_sink") && text.contains("gfx90a"), "{text}");
    // The GPU cannot change after the first frame.
    let late = first.keep(|t| t < 3).then(&second[0].keep(|t| t < 3));
    let text = refusal(&[], &late, &reference);
    assert!(text.contains("ref_sink") && text.contains("gfx90a"), "{text}");
}

fn a_context_says_which_gpu_to_use() {
    init();
    let on = |context: &gst::Context, id: &str| {
        let element = Bench::new(&[("device-id", id)]).element.clone();
        element.set_context(context);
        element.set_state(gst::State::Paused).unwrap();
        let device = number(&element);
        element.set_state(gst::State::Null).unwrap();
        device
    };
    for device in [0, 1] {
        assert_eq!(on(&context("gst.hip.device", device), "-1"), Some(device));
    }
    // `device-id` has priority over a context. Contexts without a device here are ignored.
    assert_eq!(on(&context("gst.hip.device", 1), "0"), Some(0));
    assert_eq!(on(&context("gst.hip.device", 7), "-1"), Some(0));
    assert_eq!(on(&context("gst.cuda.context", 1), "-1"), Some(0));
}

fn neighbours_and_the_application_are_asked_for_a_context() {
    init();
    let [reference, distorted] = sides(&clip("176x144_420_8bit"));
    let shared = context("gst.hip.device", 1);
    let used = |bench: &Bench| {
        bench.run(&reference, &distorted).unwrap();
        number(&bench.element)
    };
    assert_eq!(used(&Bench::new(&[])), Some(0));

    for pad in ["src", "ref_sink", "dist_sink"] {
        let bench = Bench::new(&[]);
        let neighbour = bench.element.static_pad(pad).unwrap().peer().unwrap();
        let shared = shared.clone();
        neighbour.add_probe(gst::PadProbeType::QUERY_BOTH, move |_, info| match info.query_mut() {
            Some(query) => match query.view_mut() {
                gst::QueryViewMut::Context(query) if query.context_type() == shared.context_type() => {
                    query.set_context(&shared);
                    gst::PadProbeReturn::Handled
                }
                _ => gst::PadProbeReturn::Ok,
            },
            None => gst::PadProbeReturn::Ok,
        });
        assert_eq!(used(&bench), Some(1), "{pad}");
    }

    let asked = |properties: &[(&str, &str)]| {
        let bench = Bench::new(properties);
        let (element, shared) = (bench.element.clone(), shared.clone());
        let asked = Arc::new(Mutex::new(vec![]));
        let heard = asked.clone();
        bench.pipeline.bus().unwrap().set_sync_handler(move |_, message| {
            if let gst::MessageView::NeedContext(need) = message.view() {
                heard.lock().unwrap().push(need.context_type().to_string());
                element.set_context(&shared);
            }
            gst::BusSyncReply::Pass
        });
        let used = used(&bench);
        (used, asked.lock().unwrap().clone())
    };
    let both = ["gst.hip.device".to_string(), "gst.cuda.context".to_string()];
    assert_eq!(asked(&[]), (Some(1), both.to_vec()));
    // No context is needed if the device is set.
    assert_eq!(asked(&[("device-id", "0")]), (Some(0), vec![]));
    assert_eq!(asked(&[("backend", "cpu")]), (None, vec![]));
}

fn dma_buffers_are_imported_once_each() {
    init();
    let allocator = gst_allocators::DmaBufAllocator::new();
    // A pool of this many buffers, in file descriptors of ordinary memory.
    const POOL: usize = 4;
    let clip = clip("176x144_420_8bit");
    let [reference, distorted] =
        [false, true].map(|distorted| Input::new(&clip, distorted, VideoFormat::Nv12));
    let expected = score(&[("psnr", "true")], &reference, &distorted).unwrap();
    let files: Vec<File> = (0..clip.frames).map(|_| memory_file()).collect();
    let mut n = 0;
    let first = reference.keep(|t| t < POOL);
    let mut in_files = |input: &Input| {
        input.moved("memory:DMABuf", |bytes| {
            let mut file = &files[n];
            n += 1;
            file.write_all(bytes).unwrap();
            // SAFETY: a file of that size, whose duplicate the memory gets.
            unsafe { allocator.alloc_dmabuf(file.try_clone().unwrap(), bytes.len()) }.unwrap()
        })
    };
    let once = in_files(&first);
    // The same buffers are used again and again, as a pool does. The distorted frames follow the same order.
    let rounds = Input((0..3).flat_map(|_| once.0.clone()).collect())
        .retimed(|t| Some(crate::common::FRAME * t as u64));
    let plain = Input((0..3).flat_map(|_| first.0.clone()).collect())
        .retimed(|t| Some(crate::common::FRAME * t as u64));
    let distorted = Input((0..3).flat_map(|_| distorted.keep(|t| t < POOL).0).collect())
        .retimed(|t| Some(crate::common::FRAME * t as u64));
    for drm in [false, true] {
        let input = if drm { rounds.with_drm_caps("NV12") } else { rounds.clone() };
        let what = ["hipImportExternalMemory", "hipDestroyExternalMemory", "d2d"];
        let (report, counts) = counted(&input, &distorted, &what);
        assert_eq!(report.frames.len(), 3 * POOL);
        assert_eq!(report.scores()[..POOL - 1], expected.scores()[..POOL - 1]);
        assert_eq!(report.scores(), score(&[], &plain, &distorted).unwrap().scores());
        assert_eq!(counts[..2], [POOL as i64; 2], "drm {drm}");
        assert!(counts[2] > 0);
        for (sent, got) in input.0.iter().zip(&report.buffers) {
            assert_eq!(sent.buffer().unwrap().peek_memory(0).as_ptr(), got.peek_memory(0).as_ptr());
        }
    }
    // The descriptors are still ours, and those of the imports are closed: four files, and four in the memory.
    let open = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    assert_eq!(
        open.filter(|path| path.to_string_lossy().contains("hipvmaf-test")).count(),
        files.len() + POOL
    );
    DEVICE.assert_empty();
}

/// Memory behind a file descriptor.
fn memory_file() -> File {
    use std::os::fd::FromRawFd;
    // SAFETY: text that ends with a zero; the descriptor is new.
    unsafe {
        let fd = libc::memfd_create(c"hipvmaf-test".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    }
}

/// Returns the allocators of the buffers that pass a pad.
fn makers(pad: &gst::Pad) -> Arc<Mutex<Vec<String>>> {
    let makers = Arc::new(Mutex::new(vec![]));
    let seen = makers.clone();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let buffer = info.buffer().unwrap();
        let name = buffer.peek_memory(0).allocator().map(|allocator| allocator.type_().name().to_string());
        seen.lock().unwrap().push(name.unwrap_or_default());
        gst::PadProbeReturn::Ok
    });
    makers
}

const OURS: &str = "GstHipVmafPinnedAllocator";

/// Plays a launch line. Returns the scores, and the allocators of the frames on both pads.
pub fn play(backend: &str, source: &str, sink: &str) -> (Vec<f64>, [Vec<String>; 2]) {
    init();
    let line = format!(
        "{source} ! h.ref_sink {source} ! videobalance brightness=0.1 ! h.dist_sink \
         hipvmaf name=h backend={backend} frame-message=true ! {sink}"
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let element = pipeline.by_name("h").unwrap();
    let makers = ["ref_sink", "dist_sink"].map(|pad| makers(&element.static_pad(pad).unwrap()));
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut scores = vec![];
    for message in pipeline.bus().unwrap().iter_timed(gst::ClockTime::from_seconds(60)) {
        match message.view() {
            gst::MessageView::Element(element) => {
                let message = gsthipvmaf::message::VmafMessage::try_from(element.structure().unwrap());
                if let Ok(gsthipvmaf::message::VmafMessage::Frame(frame)) = message {
                    scores.push(frame.score);
                }
            }
            gst::MessageView::Error(error) => panic!("{error:?}"),
            gst::MessageView::Eos(_) => break,
            _ => {}
        }
    }
    pipeline.set_state(gst::State::Null).unwrap();
    (scores, makers.map(|makers| makers.lock().unwrap().clone()))
}

const TEST_VIDEO: &str =
    "videotestsrc pattern=smpte num-buffers=12 ! video/x-raw,format=I420,width=176,height=144";

fn sources_and_decoders_write_into_page_locked_memory() {
    let decoder = format!("{TEST_VIDEO} ! jpegenc ! jpegdec ! queue");
    for source in [TEST_VIDEO, &decoder] {
        let (scores, [reference, distorted]) = play("hip", source, "fakesink");
        let (expected, [ordinary, _]) = play("cpu", source, "fakesink");
        assert_eq!((scores.len(), &scores), (12, &expected), "{source}");
        assert_eq!((reference.len(), distorted.len()), (12, 12));
        assert!(reference.iter().all(|maker| maker == OURS), "{source}: {reference:?}");
        assert!(ordinary.iter().all(|maker| maker != OURS));
        // In place, the filter before this pad passes on the allocator that its source was offered.
        assert!(distorted.iter().all(|maker| maker == OURS), "{source}: {distorted:?}");
    }
    DEVICE.assert_empty();
}

/// Returns an element that has the caps of both sides.
fn started() -> Bench {
    let [reference, distorted] = sides(&clip("176x144_420_8bit"));
    let bench = Bench::new(&[]);
    bench.begin(&reference, &distorted);
    bench
}

/// Returns the answer of a pad to an allocation query for I420 frames.
fn offer(bench: &Bench, pad: &str) -> gst::query::Allocation<gst::Query> {
    let info = VideoInfo::builder(VideoFormat::I420, 176, 144).build().unwrap();
    let mut query = gst::query::Allocation::new(Some(&info.to_caps().unwrap()), true);
    assert!(bench.element.static_pad(pad).unwrap().query(query.get_mut().unwrap()));
    query
}

fn allocator(bench: &Bench) -> gst::Allocator {
    let query = offer(bench, "dist_sink");
    let (allocator, _) = query.allocation_params().next().expect("memory is offered");
    allocator.expect("an allocator").to_owned()
}

fn idle_memory_is_unlocked_while_the_gpu_is_open() {
    let bench = started();
    let allocator = allocator(&bench);
    bench.pipeline.set_state(gst::State::Null).unwrap();
    allocator.set_property("max-size", 10_000u64);
    let small = [(); 2].map(|()| allocator.alloc(4000, None).unwrap());
    drop(small);
    let large = allocator.alloc(8000, None).unwrap();
    assert!(large.allocator() == Some(&allocator));
    // All blocks together exceed the limit. A thread frees the small ones and all idle ones, at once or after some seconds; the
    // tests of the pool check which.
    while DEVICE.live("pinned") > 1 {
        std::thread::yield_now();
    }
    drop((large, allocator, bench));
    DEVICE.assert_empty();
}

/// The element changes the current device for its own kernels and memory, and restores the application's.
fn the_application_has_its_device_set_whatever_the_element_does() {
    DEVICE.set_current(1);
    let bench = Bench::new(&[("device-id", "0")]);
    bench.element.set_state(gst::State::Ready).unwrap();
    assert_eq!(DEVICE.current(), 1);
    bench.element.set_state(gst::State::Null).unwrap();
    assert_eq!(DEVICE.current(), 1);
    let [reference, distorted] = sides(&clip("176x144_420_8bit"));
    bench.begin(&reference, &distorted);
    let memory = allocator(&bench).alloc(12345, None).unwrap();
    assert_eq!(DEVICE.current(), 1);
    drop(bench);
    drop(memory);
    assert_eq!(DEVICE.current(), 1);
    DEVICE.assert_empty();
}

fn pools_have_as_many_buffers_more_as_are_held_back() {
    let bench = started();
    // The frames that wait for scores, one for motion, and those in flight.
    for (pad, held) in [("ref_sink", 1 + 1 + 1 + 5), ("dist_sink", 5)] {
        let query = offer(&bench, pad);
        let (pool, size, min, max) = query.allocation_pools().next().unwrap();
        assert_eq!((size, min, max), (176 * 144 * 3 / 2, held, 0), "{pad}");
        let pool = pool.expect("a pool");
        pool.set_active(true).unwrap();
        let buffer = pool.acquire_buffer(None).unwrap();
        assert_eq!(buffer.peek_memory(0).allocator().unwrap().type_().name(), OURS);
        drop(buffer);
        pool.set_active(false).unwrap();
    }
}

fn memory_is_ordinary_beyond_the_limit_and_when_there_is_none() {
    let bench = started();
    let allocator = allocator(&bench);
    // Sources have allocated buffers by then, which are freed here.
    bench.pipeline.set_state(gst::State::Null).unwrap();
    allocator.set_property("max-size", 10_000u64);
    let locked = |memory: &gst::Memory| memory.allocator() == Some(&allocator);
    let allocate = || allocator.alloc(4000, None).unwrap();
    let (first, second, third) = (allocate(), allocate(), allocate());
    assert_eq!([locked(&first), locked(&second), locked(&third)], [true, true, false]);
    drop(first);
    let fourth = allocate();
    assert!(locked(&fourth), "what is given back can be had again");
    // The alignment exceeds that of a page.
    let params = gst::AllocationParams::new(gst::MemoryFlags::empty(), 8191, 0, 0);
    drop((second, third, fourth));
    assert!(!locked(&allocator.alloc(100, Some(&params)).unwrap()));
    // A prefix and a padding exist, and are zero if requested, also in memory that was used before.
    let flags = gst::MemoryFlags::ZERO_PREFIXED | gst::MemoryFlags::ZERO_PADDED;
    for _ in 0..2 {
        let mut memory = allocator.alloc(100, Some(&gst::AllocationParams::new(flags, 15, 32, 64))).unwrap();
        assert!(locked(&memory));
        assert_eq!((memory.size(), memory.offset(), memory.maxsize()), (100, 32, 196));
        let memory = memory.get_mut().unwrap();
        memory.resize_maxsize(..);
        let mut map = memory.map_writable().unwrap();
        assert!(map[..32].iter().chain(&map[132..]).all(|byte| *byte == 0));
        map.fill(0xff);
    }
}

fn memory_outlives_the_element_and_its_parts_share_it() {
    let bench = started();
    let mut memory = allocator(&bench).alloc(4096, None).unwrap();
    drop(bench);
    let bytes: Vec<u8> = (0..4096).map(|i| i as u8).collect();
    memory.get_mut().unwrap().map_writable().unwrap().copy_from_slice(&bytes);
    let part = memory.share(1000..3000);
    let inner = part.share(10..);
    drop((memory, part));
    assert!(DEVICE.live("pinned") > 0);
    assert_eq!(inner.map_readable().unwrap().as_slice(), &bytes[1010..3000]);
    drop(inner);
    DEVICE.assert_empty();
}
