// SPDX-License-Identifier: MPL-2.0

//! The choice among several GPUs without `device-id`. Each function has two software devices in a process of
//! its own, because the elements of other tests would count.

use std::sync::{Arc, Barrier};

use gst::prelude::*;

use crate::common::clip::clips;
use crate::common::device::{DEVICE, FakeAllocator, number};
use crate::common::{Bench, Input, init, sides};
use crate::gpu::ON_GPU;
use crate::process::{Case, Function, functions};

/// Functions that run in processes of their own.
pub const FUNCTIONS: &[Function] = functions![
    elements_are_spread_over_gpus,
    a_discrete_gpu_is_preferred,
    elements_that_start_at_once_do_not_meet,
    memory_that_others_have_taken_counts_among_equals,
    video_in_the_memory_of_a_gpu_is_scored_there,
    a_gpu_that_was_lost_is_left_alone
];

/// Returns the functions with two equal devices, unless one is integrated.
pub fn cases() -> Vec<Case> {
    let two = ("SWHIP_ARCH", "gfx1100,gfx1100");
    vec![
        ("two_devices", "placement::elements_are_spread_over_gpus", vec![two, ON_GPU]),
        // An integrated GPU is chosen only if there is no discrete one.
        (
            "beside_an_integrated_gpu",
            "placement::a_discrete_gpu_is_preferred",
            vec![two, ON_GPU, ("SWHIP_UNITS", "8,8i")],
        ),
        ("two_devices", "placement::elements_that_start_at_once_do_not_meet", vec![two, ON_GPU]),
        ("two_devices", "placement::memory_that_others_have_taken_counts_among_equals", vec![two, ON_GPU]),
        ("two_devices", "placement::video_in_the_memory_of_a_gpu_is_scored_there", vec![two, ON_GPU]),
        ("two_devices", "placement::a_gpu_that_was_lost_is_left_alone", vec![two, ON_GPU]),
    ]
}

/// Returns an element that is ready to score, and the number of its GPU.
fn started(properties: &[(&str, &str)]) -> (Bench, u32) {
    let bench = Bench::new(properties);
    bench.pipeline.set_state(gst::State::Paused).unwrap();
    let device = number(&bench.element).unwrap();
    (bench, device)
}

fn stop(bench: &Bench, state: gst::State) {
    bench.pipeline.set_state(state).unwrap();
}

fn elements_are_spread_over_gpus() {
    let first = started(&[]);
    let second = started(&[]);
    assert_eq!((first.1, second.1), (0, 1));
    // A stopped element does not count, in READY or in NULL.
    stop(&first.0, gst::State::Ready);
    let third = started(&[]);
    assert_eq!(third.1, 0);
    stop(&second.0, gst::State::Null);
    let fourth = started(&[]);
    assert_eq!(fourth.1, 1);
    // Elements with a fixed device count as well.
    let fixed = [(); 2].map(|()| started(&[("device-id", "0")]));
    assert!(fixed.iter().all(|(_, device)| *device == 0));
    assert_eq!([(); 2].map(|()| started(&[])).map(|(bench, device)| (drop(bench), device).1), [1, 1]);
}

fn a_discrete_gpu_is_preferred() {
    let all = [(); 3].map(|()| started(&[]));
    assert_eq!(all.each_ref().map(|(_, device)| *device), [0, 0, 0]);
}

fn elements_that_start_at_once_do_not_meet() {
    init();
    for _ in 0..5 {
        let gate = Arc::new(Barrier::new(4));
        let start = |_| {
            let gate = gate.clone();
            std::thread::spawn(move || {
                let bench = Bench::new(&[]);
                bench.pipeline.set_state(gst::State::Ready).unwrap();
                gate.wait();
                bench.pipeline.set_state(gst::State::Paused).unwrap();
                let device = number(&bench.element).unwrap();
                // None of them stops before all have started.
                gate.wait();
                device
            })
        };
        let all: Vec<_> = (0..4).map(start).collect();
        let mut devices: Vec<_> = all.into_iter().map(|thread| thread.join().unwrap()).collect();
        devices.sort();
        assert_eq!(devices, [0, 0, 1, 1]);
    }
}

fn memory_that_others_have_taken_counts_among_equals() {
    init();
    let allocator = FakeAllocator::new(c"HIPMemory");
    let others = allocator.memory(0, &vec![0; 300 << 20]);
    let first = started(&[]);
    let second = started(&[]);
    // The number of sessions counts first, so the second element uses the GPU with less free memory.
    assert_eq!((first.1, second.1), (1, 0));
    stop(&first.0, gst::State::Null);
    stop(&second.0, gst::State::Null);
    drop(others);
    // A difference as small as a runtime's own memory does not count.
    let little = allocator.memory(0, &vec![0; 1 << 20]);
    assert_eq!(started(&[]).1, 0);
    drop(little);
}

fn video_in_the_memory_of_a_gpu_is_scored_there() {
    let allocator = FakeAllocator::new(c"HIPMemory");
    let clip = clips().into_iter().find(|clip| clip.name == "176x144_420_8bit").unwrap();
    let [reference, distorted] = [false, true].map(|distorted| Input::planar(&clip, distorted));
    let scored_on = |properties: &[(&str, &str)], device: i32| {
        let feature = "memory:HIPMemory";
        let [reference, distorted] =
            [&reference, &distorted].map(|input| allocator.input(device, feature, input));
        let bench = Bench::new(properties);
        bench.begin(&reference, &distorted);
        let device = number(&bench.element).unwrap();
        (bench, device)
    };
    // Both elements would choose the first GPU, which is free.
    let busy = scored_on(&[], 1);
    let busier = scored_on(&[("vendor", "amd")], 1);
    assert_eq!((busy.1, busier.1), (1, 1));
    // Their sessions on the first GPU have ended, so the next two elements choose that one.
    let others = [(); 2].map(|()| started(&[]));
    assert_eq!(others.each_ref().map(|(_, device)| *device), [0, 0]);
}

fn a_gpu_that_was_lost_is_left_alone() {
    let both = sides(4);
    let bench = Bench::new(&[]);
    DEVICE.fail("async:700@1");
    let failure = bench.run(&both.0, &both.1).unwrap_err();
    assert!(failure.text.contains("was lost"), "{}", failure.text);
    drop(bench);
    DEVICE.revive();
    let all = [(); 2].map(|()| started(&[]));
    assert_eq!(all.each_ref().map(|(_, device)| *device), [1, 1]);
}
