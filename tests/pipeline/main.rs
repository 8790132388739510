// SPDX-License-Identifier: MPL-2.0

//! Real video through the public element, in real pipelines: with the CPU's backend in this process, and on the software
//! devices of `tests/swhip` in processes of their own.

mod align;
mod application;
mod change;
mod common;
mod downstream;
mod element;
mod errors;
mod events;
mod failed;
mod faults;
mod figures;
mod gpu;
mod idle;
mod keep;
mod kept;
mod keys;
mod live;
mod memory;
mod metas;
mod metrics;
mod motion;
mod output;
mod pairing;
mod peer;
mod placement;
#[path = "../swhip/process.rs"]
mod process;
mod ready;
mod reference;
mod registered;
mod renditions;
mod renegotiate;
mod results;
mod scale;
mod scores;
mod self_test;
mod stall;
mod start;
#[path = "../swhip/library.rs"]
mod swhip;
mod timing;
mod verify;
mod watch;

use libtest_mimic::Arguments;

use process::{Case, Function, functions, here, on};

/// Tests of scores and pictures that hold with every backend.
const PICTURES: &[&[Function]] = &[scores::TESTS, scale::TESTS, output::TESTS, renditions::TESTS];

/// Further tests that hold with every backend.
const EVERY_BACKEND: &[&[Function]] = &[
    application::TESTS,
    change::TESTS,
    downstream::TESTS,
    element::TESTS,
    errors::TESTS,
    events::TESTS,
    failed::TESTS,
    figures::TESTS,
    idle::TESTS,
    kept::TESTS,
    live::TESTS,
    memory::TESTS,
    metas::TESTS,
    metrics::TESTS,
    motion::TESTS,
    pairing::TESTS,
    reference::TESTS,
    renegotiate::TESTS,
    results::TESTS,
    scores::LONG,
    stall::TESTS,
    start::TESTS,
    timing::TESTS,
    verify::TESTS,
    watch::TESTS,
];

/// Tests of the clips, of the CPU's code, of thumbnails and files, and those that describe devices themselves.
const ONCE: &[&[Function]] = &[
    functions![common::clip::the_frames_are_those_that_the_scores_belong_to],
    align::TESTS,
    faults::TESTS,
    gpu::TESTS,
    keep::TESTS,
    keys::TESTS,
    motion::CPU,
    peer::TESTS,
    scores::CPU,
    self_test::TESTS,
];

/// Functions that run in processes of their own.
const FUNCTIONS: &[&[Function]] = &[
    functions![pictures, every_test],
    faults::FUNCTIONS,
    gpu::FUNCTIONS,
    keep::FUNCTIONS,
    memory::FUNCTIONS,
    placement::FUNCTIONS,
    ready::FUNCTIONS,
    registered::again::FUNCTIONS,
    registered::alone::FUNCTIONS,
    scores::LONG,
    verify::on_gpu::FUNCTIONS,
];

/// Runs these tests with the backend that the environment names.
fn run(tests: &[Function]) {
    libtest_mimic::run(&Arguments::default(), tests.iter().copied().map(here).collect()).exit_if_failed();
}

fn pictures() {
    run(&PICTURES.concat());
}

fn every_test() {
    run(&[PICTURES, EVERY_BACKEND].concat().concat());
}

/// Returns the functions with the devices on which they must succeed.
fn cases() -> Vec<Case> {
    let hip = ("HIPVMAF_TEST_BACKEND", "hip");
    let whole = vec![
        ("rdna", "every_test", vec![gpu::RDNA, hip]),
        // The engine's tests compare all sums on this device, so the longest tests are not repeated.
        ("cdna", "pictures", vec![gpu::CDNA, hip, ("SWHIP_SEED", "2")]),
    ];
    let modules = [
        faults::cases(),
        gpu::cases(),
        memory::cases(),
        placement::cases(),
        ready::cases(),
        registered::cases(),
        verify::cases(),
    ];
    [whole, modules.concat()].concat()
}

fn main() {
    process::main(&FUNCTIONS.concat(), || {
        let tests = [PICTURES, EVERY_BACKEND, ONCE].concat().concat();
        tests.into_iter().map(here).chain(cases().into_iter().map(on)).collect()
    });
}
