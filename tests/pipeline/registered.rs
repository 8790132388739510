// SPDX-License-Identifier: MPL-2.0

//! Page-locked registration: ordinary memory that upstream uses again is page-locked once and for as long as it lives, and
//! the scores are the same as with copies. The software device counts locks, copies from locked memory, and unlocks that
//! are too early or too late, for each function in a process of its own.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gst::prelude::*;
use gst_video::VideoFormat;

use crate::common::clip::{Clip, clips};
use crate::common::device::DEVICE;
use crate::common::rig::Rig;
use crate::common::{FRAME, Input, Report, init, score, until};
use crate::gpu::{ON_GPU, RDNA};
use crate::memory::{play, with_pitch};
use crate::process::{Case, Function, functions};

/// The number of memories in turn on each pad.
const MEMORIES: usize = 4;
/// The number of times that each of them is used.
const ROUNDS: usize = 6;
const PROPERTIES: [(&str, &str); 1] = [("psnr", "true")];

/// A limit above the memory of all tests, for any machine.
const ENOUGH: (&str, &str) = ("HIPVMAF_REGISTER_MAX", "1000000000");

/// Two devices of different kinds, with a random order of all commands that are not synchronised.
const DEVICES: [(&str, &str); 5] = [
    ENOUGH,
    ("SWHIP_ARCH", "gfx1100,gfx90a:sramecc+:xnack-"),
    ON_GPU,
    ("SWHIP_SEED", "2"),
    ("SWHIP_DELAY_US", "100"),
];

pub fn cases() -> Vec<Case> {
    let again = again::FUNCTIONS.iter().map(|(function, _)| ("two_kinds", *function, DEVICES.to_vec()));
    let alone = |device, function, limit| (device, function, vec![RDNA, ON_GPU, limit]);
    let limited = |limit| ("HIPVMAF_REGISTER_MAX", limit);
    let others = [
        // Locking needs Linux 5.9, which machines with these tests have.
        ("by_default", "registered::again::frames_are_read_where_they_lie", DEVICES[1..].to_vec()),
        // Refusals are remembered, so each of these has a process of its own.
        alone("rdna", "registered::alone::some_are_refused", ENOUGH),
        alone("rdna", "registered::alone::all_are_refused", ENOUGH),
        alone("rdna", "registered::alone::the_application_has_locked_it", ENOUGH),
        alone("rdna", "registered::alone::the_device_is_lost", ENOUGH),
        alone("rdna", "registered::alone::there_is_a_limit", limited("80000")),
        alone("limit_of_nothing", "registered::alone::it_is_not_allowed", limited("0")),
        alone("empty_limit", "registered::alone::it_is_not_allowed", limited("")),
        alone("limit_that_is_no_number", "registered::alone::it_is_not_allowed", limited("1GB")),
    ];
    again.chain(others).collect()
}

fn clip(name: &str) -> Clip {
    clips().into_iter().find(|clip| clip.name == name).unwrap()
}

fn small() -> [Input; 2] {
    [false, true].map(|distorted| Input::planar(&clip("176x144_420_8bit"), distorted))
}

/// Returns the first frames of an input again and again, each in its own memory.
fn rounds(input: &Input, rounds: usize) -> Input {
    let first = input.keep(|t| t < MEMORIES);
    Input((0..rounds).flat_map(|_| first.0.clone()).collect()).retimed(|t| Some(FRAME * t as u64))
}

fn both(inputs: &[Input; 2]) -> [Input; 2] {
    inputs.each_ref().map(|input| rounds(input, ROUNDS))
}

/// Returns the frames in memory from this function, which may return parts of one memory.
fn moved(input: &Input, mut memory: impl FnMut(&[u8]) -> gst::Memory) -> Input {
    input.moved("memory:SystemMemory", |bytes| memory(bytes))
}

fn filled(bytes: &[u8]) -> gst::Memory {
    let mut memory = gst::Memory::with_size(bytes.len());
    memory.get_mut().unwrap().map_writable().unwrap().copy_from_slice(bytes);
    memory
}

/// Returns the frames, each in new memory.
fn anew(input: &Input) -> Input {
    moved(input, filled)
}

/// Calls that page-locked memory, and bytes that were copied directly from locked memory.
struct Count {
    locks: i64,
    bytes: i64,
}

fn counted<T>(what: impl FnOnce() -> T) -> (T, Count) {
    let count = || (DEVICE.count("hipHostRegister"), DEVICE.count("registered_bytes"));
    let before = count();
    let result = what();
    let after = count();
    (result, Count { locks: after.0 - before.0, bytes: after.1 - before.1 })
}

#[track_caller]
fn assert_equal(report: &Report, expected: &Report) {
    assert_eq!(report.frames.len(), expected.frames.len());
    for (frame, expected) in report.frames.iter().zip(&expected.frames) {
        assert_eq!((&frame.models, &frame.features), (&expected.models, &expected.features));
    }
}

/// Plays inputs on the device, and compares the scores with those of the CPU.
#[track_caller]
fn plays([reference, distorted]: &[Input; 2]) -> Count {
    let (report, count) = counted(|| score(&PROPERTIES, reference, distorted).unwrap());
    let on_cpu = [("backend", "cpu"), PROPERTIES[0]];
    assert_equal(&report, &score(&on_cpu, reference, distorted).unwrap());
    count
}

/// Asserts that nothing is locked, and that nothing was unlocked too early or too late.
#[track_caller]
fn assert_unlocked() {
    assert_eq!(DEVICE.live("registered"), 0);
    assert_eq!((DEVICE.count("unregistered_early"), DEVICE.count("unregistered_late")), (0, 0));
    DEVICE.assert_empty();
}

pub mod again {
    use super::*;

    /// Functions that run in processes of their own.
    pub const FUNCTIONS: &[Function] = functions![
        frames_are_read_where_they_lie,
        memory_that_is_new_for_each_frame_is_left_alone,
        a_source_with_a_pool_has_it_locked,
        an_element_that_is_started_again_finds_it_locked,
        elements_on_several_gpus_share_what_is_locked,
        it_is_unlocked_before_it_is_freed,
        parts_of_a_memory_are_locked_with_it,
        rows_may_be_any_bytes_apart,
        it_is_kept_until_the_gpu_is_done,
        a_pool_may_take_the_place_of_another,
        renditions_may_come_and_go,
        the_size_may_change
    ];

    fn frames_are_read_where_they_lie() {
        for (name, format) in [
            ("176x144_420_8bit", VideoFormat::I420),
            ("176x144_420_8bit", VideoFormat::Nv12),
            ("176x144_420_10bit", VideoFormat::P01010le),
            ("97x71_420_8bit", VideoFormat::I420),
            ("97x71_422_10bit", VideoFormat::I42210le),
        ] {
            let clip = clip(name);
            let inputs = both(&[false, true].map(|distorted| Input::new(&clip, distorted, format)));
            let count = plays(&inputs);
            assert_eq!(count.locks, 2 * MEMORIES as i64, "{name} {format}");
            // They live for longer than the element.
            assert_eq!(DEVICE.live("registered"), 2 * MEMORIES as i64, "{name} {format}");
            DEVICE.assert_empty();
            let frame = inputs[0].0[0].buffer().unwrap().size() as i64;
            // Luma and chroma of half of the rounds, except for rows that share pages with other memory.
            let rows = 2 * 4096 + 6 * 256;
            let least = (frame - rows).max(0) * (2 * MEMORIES * (ROUNDS - 3)) as i64;
            assert!(count.bytes >= least && count.bytes > 0, "{name} {format}: {} of {least}", count.bytes);
            drop(inputs);
            assert_unlocked();
        }
    }

    fn memory_that_is_new_for_each_frame_is_left_alone() {
        let inputs = both(&small());
        assert_eq!(plays(&inputs.each_ref().map(anew)).locks, 0);
        // Memory that several pads or several elements read at once is not locked either.
        let new = anew(&inputs[0]);
        let play = || score(&PROPERTIES, &new, &new).unwrap();
        assert_eq!(counted(|| (0..6).for_each(|_| drop(play()))).1.locks, 0);
    }

    fn a_source_with_a_pool_has_it_locked() {
        init();
        // The allocation query gets no answer, so the source uses system memory.
        let source = "videotestsrc pattern=ball num-buffers=50 ! video/x-raw,format=I420,width=176,height=144 \
                      ! identity drop-allocation=true";
        let ((scores, makers), count) = counted(|| play("hip", source, "fakesink"));
        assert!(makers.iter().flatten().all(|maker| maker == "GstAllocatorSysmem"), "{makers:?}");
        assert!(count.locks > 0 && count.bytes > 0, "{} {}", count.locks, count.bytes);
        assert_unlocked();
        assert_eq!((scores.len(), scores), (50, play("cpu", source, "fakesink").0));
    }

    fn an_element_that_is_started_again_finds_it_locked() {
        let inputs = both(&small());
        let [first, second] = [(); 2].map(|()| plays(&inputs));
        assert_eq!((first.locks, second.locks), (2 * MEMORIES as i64, 0));
        assert!(second.bytes * 2 > first.bytes * 3, "{} after {}", second.bytes, first.bytes);
        // New memory at the same addresses is recognised as new.
        drop(inputs);
        assert_unlocked();
        assert_eq!(plays(&both(&small())).locks, 2 * MEMORIES as i64);
        assert_unlocked();
    }

    fn elements_on_several_gpus_share_what_is_locked() {
        let inputs = both(&small());
        let expected = score(&[("backend", "cpu"), PROPERTIES[0]], &inputs[0], &inputs[1]).unwrap();
        let on = |device| {
            let properties = [("device-id", device), PROPERTIES[0]];
            assert_equal(&score(&properties, &inputs[0], &inputs[1]).unwrap(), &expected);
        };
        let ((), count) = counted(|| {
            std::thread::scope(|scope| {
                for device in ["0", "1", "0"] {
                    scope.spawn(move || on(device));
                }
            });
        });
        assert_eq!(count.locks, 2 * MEMORIES as i64);
        // Each device reads all of the memory, whichever device locked it.
        let [first, second] = ["0", "1"].map(|device| counted(|| on(device)).1);
        assert_eq!((first.locks, second.locks), (0, 0));
        assert!(first.bytes == second.bytes && first.bytes > 0, "{} {}", first.bytes, second.bytes);
        drop((inputs, expected));
        assert_unlocked();
    }

    /// Returns system memory with these bytes in a mapping of its own, which is unmapped with the last reference.
    fn mapped(bytes: &[u8]) -> gst::Memory {
        struct Mapping(*mut c_void, usize);
        /// # Safety
        ///
        /// It must be a box, given here once.
        unsafe extern "C" fn unmap(mapping: *mut c_void) {
            // SAFETY: made below, and given here once.
            let mapping = unsafe { Box::from_raw(mapping.cast::<Mapping>()) };
            // SAFETY: mapped below, and the last reference is gone.
            assert_eq!(unsafe { libc::munmap(mapping.0, mapping.1) }, 0);
        }
        let (size, none) = (bytes.len(), std::ptr::null_mut());
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory of that size, which the notification gives back.
        unsafe {
            let at = libc::mmap(none, size, access, kind, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            at.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), size);
            let mapping = Box::into_raw(Box::new(Mapping(at, size))).cast();
            let memory = gst::ffi::gst_memory_new_wrapped(0, at, size, 0, size, mapping, Some(unmap));
            glib::translate::from_glib_full(memory)
        }
    }

    fn it_is_unlocked_before_it_is_freed() {
        let frames = small().map(|input| moved(&input.keep(|t| t < MEMORIES), mapped));
        let inputs = both(&frames);
        assert_eq!(plays(&inputs).locks, 2 * MEMORIES as i64);
        drop((frames, inputs));
        assert_unlocked();
    }

    /// Frames in parts of larger blocks.
    fn in_blocks(input: &Input, count: usize, offset: usize) -> Input {
        let bytes = |sample: &gst::Sample| sample.buffer().unwrap().map_readable().unwrap().to_vec();
        let mut parts = vec![];
        for frames in input.0.chunks(count) {
            let frames: Vec<_> = frames.iter().map(bytes).collect();
            let block = filled(&[vec![0xa5; offset], frames.concat()].concat());
            let size = frames[0].len();
            let part = |i: usize| block.share(offset + i * size..offset + (i + 1) * size);
            parts.extend((0..frames.len()).map(part));
        }
        let mut parts = parts.into_iter();
        moved(input, |_| parts.next().unwrap())
    }

    fn parts_of_a_memory_are_locked_with_it() {
        for offset in [0, 77] {
            let frames = small().map(|input| in_blocks(&input.keep(|t| t < MEMORIES), 2, offset));
            let inputs = both(&frames);
            let count = plays(&inputs);
            assert_eq!(count.locks, MEMORIES as i64, "{offset}");
            assert!(count.bytes > 0);
            drop((frames, inputs));
            assert_unlocked();
        }
        // A new block for a few frames each time, and one that is much larger than its frames.
        let inputs = both(&small());
        assert_eq!(plays(&inputs.each_ref().map(|input| in_blocks(input, 3, 0))).locks, 0);
        let frames = small().map(|input| in_blocks(&input.keep(|t| t < MEMORIES), MEMORIES, 40_000));
        assert_eq!(plays(&both(&frames)).locks, 0);
    }

    fn rows_may_be_any_bytes_apart() {
        // AMD's runtime copies rows one by one if their pitch is no multiple of 4 bytes.
        for (pitch, at_once) in [(212, true), (211, false)] {
            let frames = small().map(|input| anew(&with_pitch(&input.keep(|t| t < MEMORIES), 33, pitch)));
            let count = plays(&both(&frames));
            assert_eq!((count.locks, count.bytes > 0), (2 * MEMORIES as i64, at_once), "{pitch}");
            drop(frames);
            assert_unlocked();
        }
    }

    /// Returns a flag that is set when the memory of a frame is freed, before its allocator has it back.
    fn gone(sample: &gst::Sample) -> Arc<AtomicBool> {
        /// # Safety
        ///
        /// `gone` must be an `Arc` of a flag, given here once.
        unsafe extern "C" fn notify(gone: *mut c_void, _: *mut gst::ffi::GstMiniObject) {
            // SAFETY: the caller has promised it.
            unsafe { Arc::from_raw(gone.cast::<AtomicBool>()) }.store(true, Ordering::Release);
        }
        let gone = Arc::new(AtomicBool::new(false));
        let memory = sample.buffer().unwrap().peek_memory(0).as_mut_ptr();
        // SAFETY: a live memory is a live mini object, which notifies once.
        unsafe {
            gst::ffi::gst_mini_object_weak_ref(
                memory.cast(),
                Some(notify),
                Arc::into_raw(gone.clone()) as *mut _,
            );
        }
        gone
    }

    /// Plays two inputs, the last pairs while the GPU is held up. The memory of the first of these frames on `pad` is then
    /// referenced by the element alone. The element must keep it until the GPU is done, though later frames used other
    /// memories.
    #[track_caller]
    fn assert_kept(output: &str, pad: &str, inputs: [Input; 2], expected: &Report) {
        let rig = Rig::offline(&[("output", output), ("verify", "0"), PROPERTIES[0]]).play();
        let before = inputs[0].0.len() - 4;
        let gone = gone(&inputs[usize::from(pad == "dist_sink")].0[before]);
        let [mut reference, mut distorted] = inputs.map(|input| input.0.into_iter());
        let mut push_pairs = |count| {
            for _ in 0..count {
                rig.push("ref_sink", &reference.next().unwrap());
                rig.push("dist_sink", &distorted.next().unwrap());
            }
        };
        push_pairs(before);
        rig.wait_scores(before - 1);
        let launched = DEVICE.count("hipGraphLaunch");
        let hold = DEVICE.hold();
        push_pairs(3);
        until(|| gone.load(Ordering::Acquire) || DEVICE.count("hipGraphLaunch") == launched + 3);
        assert!(!gone.load(Ordering::Acquire), "a frame of {pad} that the GPU is to read has gone");
        drop(hold);
        push_pairs(1);
        rig.end();
        assert_equal(&rig.finish().unwrap(), expected);
        until(|| gone.load(Ordering::Acquire));
    }

    fn it_is_kept_until_the_gpu_is_done() {
        // The test keeps no reference to them.
        let inputs = || both(&small());
        let expected = score(&[("backend", "cpu"), PROPERTIES[0]], &inputs()[0], &inputs()[1]).unwrap();
        for (pad, output) in [("dist_sink", "reference"), ("ref_sink", "distorted")] {
            let ((), count) = counted(|| assert_kept(output, pad, inputs(), &expected));
            assert_eq!(count.locks, 2 * MEMORIES as i64);
            assert_unlocked();
        }
    }

    /// A pool of a fixed number of buffers; a new frame waits until a buffer is free.
    struct Pool(gst::BufferPool);

    impl Pool {
        fn new(input: &Input, buffers: u32) -> Self {
            let (caps, size) = (input.0[0].caps_owned().unwrap(), input.0[0].buffer().unwrap().size());
            let pool = gst::BufferPool::new();
            let mut config = pool.config();
            config.set_params(Some(&caps), size as u32, buffers, buffers);
            pool.set_config(config).unwrap();
            pool.set_active(true).unwrap();
            Self(pool)
        }

        /// A frame in a buffer of the pool.
        fn fill(&self, sample: &gst::Sample) -> gst::Sample {
            let mut buffer = self.0.acquire_buffer(None).unwrap();
            let new = buffer.get_mut().unwrap();
            new.set_pts(sample.buffer().unwrap().pts());
            let bytes = sample.buffer().unwrap().map_readable().unwrap();
            new.map_writable().unwrap().copy_from_slice(&bytes);
            gst::Sample::builder().buffer(&buffer).caps(&sample.caps_owned().unwrap()).build()
        }
    }

    impl Drop for Pool {
        fn drop(&mut self) {
            self.0.set_active(false).unwrap();
        }
    }

    /// The memory of each pool is unlocked once the element holds no frame of it.
    fn a_pool_may_take_the_place_of_another() {
        const POOLS: usize = 3;
        let whole = small().map(|input| rounds(&input, POOLS * ROUNDS));
        let expected = score(&[("backend", "cpu"), PROPERTIES[0]], &whole[0], &whole[1]).unwrap();
        let [reference, distorted] = [anew(&whole[0]), whole[1].clone()];
        let rig = Rig::offline(&PROPERTIES).play();
        let ((), count) = counted(|| {
            let mut pairs = reference.0.iter().zip(&distorted.0);
            for played in 1..=POOLS {
                let pool = Pool::new(&distorted, MEMORIES as u32);
                for (reference, distorted) in pairs.by_ref().take(MEMORIES * ROUNDS) {
                    rig.push("ref_sink", reference);
                    rig.push("dist_sink", &pool.fill(distorted));
                }
                drop(pool);
                // No memory of the pool before is locked, and of this one only the last frames.
                rig.wait_scores(played * MEMORIES * ROUNDS - 1);
                assert!(DEVICE.live("registered") <= MEMORIES as i64, "after {played}");
            }
        });
        rig.end();
        assert_equal(&rig.finish().unwrap(), &expected);
        assert_eq!(count.locks, (POOLS * MEMORIES) as i64);
        assert!(count.bytes > 0);
        drop(rig);
        assert_unlocked();
    }

    /// Plays renditions that come and go beside the first. The test keeps no reference to their memory, and each pad is
    /// released while its last pair is on the GPU.
    fn come_and_go(backend: &str, inputs: &[Input; 2], others: impl Iterator<Item = Input>) -> Report {
        let mut rig = Rig::offline(&[("backend", backend), ("verify", "0"), PROPERTIES[0]]).play();
        let mut pairs = inputs[0].0.iter().zip(&inputs[1].0);
        let mut push = |rig: &Rig, other: Option<(&str, &gst::Sample)>| {
            let (reference, distorted) = pairs.next().unwrap();
            if let Some((pad, sample)) = other {
                let timed = Input(vec![sample.clone()]).retimed(|_| reference.buffer().unwrap().pts());
                rig.push(pad, &timed.0[0]);
            }
            rig.push("ref_sink", reference);
            rig.push("dist_sink", distorted);
        };
        for other in others {
            (0..3).for_each(|_| push(&rig, None));
            let pad = rig.request().name();
            // The pad may have the name of an earlier one.
            let earlier = rig.log().report.scores_of(&pad).len();
            let (last, first) = other.0.split_last().unwrap();
            first.iter().for_each(|sample| push(&rig, Some((&pad, sample))));
            let scored = |count| rig.wait(|log| log.report.scores_of(&pad).len() == earlier + count);
            scored(first.len() - 1);
            let hold = (backend == "hip").then(|| (DEVICE.hold(), DEVICE.count("hipGraphLaunch")));
            push(&rig, Some((&pad, last)));
            match hold {
                Some((_, launched)) => until(|| DEVICE.count("hipGraphLaunch") > launched),
                None => scored(first.len()),
            }
            std::thread::scope(|scope| {
                // Both wait for the GPU.
                scope.spawn(|| {
                    drop(other);
                    rig.release(&pad);
                });
                drop(hold);
            });
        }
        (0..3).for_each(|_| push(&rig, None));
        rig.end();
        rig.finish().unwrap()
    }

    fn renditions_may_come_and_go() {
        const OTHERS: usize = 2;
        let inputs = small().map(|input| rounds(&input, (OTHERS + 1) * ROUNDS));
        let other = |_| rounds(&anew(&small()[1].keep(|t| t >= MEMORIES)), ROUNDS);
        let (report, count) = counted(|| come_and_go("hip", &inputs, (0..OTHERS).map(other)));
        assert_eq!(count.locks, ((2 + OTHERS) * MEMORIES) as i64);
        // The memory of renditions that were released is unlocked.
        assert_eq!(DEVICE.live("registered"), 2 * MEMORIES as i64);
        let expected = come_and_go("cpu", &inputs, (0..OTHERS).map(other));
        for (pad, frames) in [("dist_sink", 57), ("dist_0", 48)] {
            assert_eq!(report.scores_of(pad).len(), frames, "{pad}");
            assert_eq!(report.scores_of(pad), expected.scores_of(pad), "{pad}");
        }
        drop((inputs, report, expected));
        assert_unlocked();
    }

    fn the_size_may_change() {
        let other = [false, true].map(|distorted| Input::planar(&clip("97x71_420_8bit"), distorted));
        let (first, second) = (both(&small()), both(&other));
        let inputs = [first[0].then(&second[0]), first[1].then(&second[1])];
        drop((first, second));
        assert_eq!(plays(&inputs).locks, 4 * MEMORIES as i64);
        drop((inputs, other));
        assert_unlocked();
    }
}

pub mod alone {
    use super::*;

    /// Functions that run in processes of their own.
    pub const FUNCTIONS: &[Function] = functions![
        some_are_refused,
        all_are_refused,
        the_application_has_locked_it,
        the_device_is_lost,
        there_is_a_limit,
        it_is_not_allowed
    ];

    fn some_are_refused() {
        init();
        let inputs = both(&small());
        DEVICE.fail("hipHostRegister:2@1,hipHostRegister:801@4");
        assert_eq!(plays(&inputs).locks, 2 * MEMORIES as i64);
        assert_eq!(DEVICE.live("registered"), 2 * MEMORIES as i64 - 2);
        // Memory that the device refused to lock is not tried again.
        assert_eq!(plays(&inputs).locks, 0);
        drop(inputs);
        assert_unlocked();
    }

    fn all_are_refused() {
        init();
        DEVICE.fail("hipHostRegister:1@1+");
        let mut asked = 0;
        for _ in 0..3 {
            let count = plays(&both(&small()));
            asked += count.locks;
            assert_eq!(count.bytes, 0);
        }
        assert_eq!(asked, 8);
        DEVICE.fail("");
        assert_eq!(plays(&both(&small())).locks, 0);
        assert_unlocked();
    }

    fn the_application_has_locked_it() {
        let inputs = both(&small());
        let theirs = inputs[0].0[0].buffer_owned().unwrap();
        let locked = DEVICE.register(&theirs.map_readable().unwrap());
        let count = plays(&inputs);
        // AMD's runtime would lock it a second time, so it is not called.
        assert_eq!((count.locks, DEVICE.live("registered")), (7, 8));
        drop((inputs, theirs));
        assert_eq!(DEVICE.live("registered"), 1);
        DEVICE.unregister(locked);
        assert_unlocked();
    }

    fn the_device_is_lost() {
        let inputs = both(&small());
        assert_eq!(plays(&inputs).locks, 2 * MEMORIES as i64);
        DEVICE.fail("async:700@200");
        assert!(score(&PROPERTIES, &inputs[0], &inputs[1]).unwrap_err().text.contains("was lost"));
        drop(inputs);
        assert_eq!(DEVICE.live("registered"), 0);
    }

    fn there_is_a_limit() {
        init();
        for _ in 0..2 {
            // Each memory has 8 or 9 whole pages.
            let inputs = both(&small());
            assert_eq!(plays(&inputs).locks, 2);
            assert_eq!(plays(&inputs).locks, 0);
            drop(inputs);
            assert_unlocked();
        }
    }

    fn it_is_not_allowed() {
        assert_eq!(plays(&both(&small())).locks, 0);
        assert_unlocked();
    }
}
