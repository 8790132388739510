// SPDX-License-Identifier: MPL-2.0

//! A GPU that fails: before its first sums another backend can take over, and all scores up to the failure are posted.
//! The functions lose the software device, each in a process of its own.

use gst::prelude::*;

use crate::common::device::DEVICE;
use crate::common::gate::Gate;
use crate::common::rig::Rig;
use crate::common::{score, sides, until};
use crate::gpu::{RDNA, play};
use crate::process::{Case, Function, functions};

/// Tests in this process.
pub const TESTS: &[Function] = functions![
    auto_goes_on_with_the_processor_until_there_are_sums,
    a_gpu_that_was_asked_for_is_not_replaced
];

/// Functions that run in processes of their own.
pub const FUNCTIONS: &[Function] =
    functions![lost_with_the_first_frames, lost_before_the_next_frames, lost_with_scores_to_fetch];

pub fn cases() -> Vec<Case> {
    let slow = vec![RDNA, ("SWHIP_DELAY_US", "5000"), ("GST_DEBUG", "hipvmaf:2")];
    FUNCTIONS.iter().map(|(function, _)| ("rdna", *function, slow.clone())).collect()
}

/// The calls that submit a frame, compute it, and fetch its sums.
const FIRST_FRAME: [&str; 4] =
    ["hipMemcpyAsync:999@2", "hipGraphLaunch:999@1", "async:700@5", "hipEventQuery:999@1"];

fn auto_goes_on_with_the_processor_until_there_are_sums() {
    let expected = play("cpu", &[]).result.unwrap();
    for fault in FIRST_FRAME {
        let device = [RDNA, ("SWHIP_FAIL", fault), ("GST_DEBUG", "hipvmaf:2")];
        let outcome = play("auto", &device);
        assert_eq!(
            (outcome.result, outcome.backend.as_str()),
            (Ok(expected), "cpu"),
            "{fault}\n{}",
            outcome.log
        );
        assert!(!outcome.lost, "{fault}");
        let warned = |line: &str| line.contains("WARN") && line.contains("hipvmaf") && line.contains("CPU");
        assert!(outcome.log.lines().any(warned), "{fault}\n{}", outcome.log);
    }
}

fn a_gpu_that_was_asked_for_is_not_replaced() {
    for fault in FIRST_FRAME {
        let error = play("hip", &[RDNA, ("SWHIP_FAIL", fault)]).result.unwrap_err();
        assert!(error.contains("returned"), "{fault}: {error}");
    }
}

/// Three pairs are with the device, and none has its sums.
fn lost_with_the_first_frames() {
    the_cpu_goes_on(|_| ());
}

/// The CPU has taken over before the fourth pair comes.
fn lost_before_the_next_frames() {
    the_cpu_goes_on(|rig| until(|| backend_name(rig).as_deref() == Some("cpu")));
}

fn backend_name(rig: &Rig) -> Option<String> {
    rig.element.property("backend-name")
}

/// Loses the device with the first three pairs. `wait` is called before the others are pushed.
fn the_cpu_goes_on(wait: impl Fn(&Rig)) {
    const FRAMES: usize = 8;
    let both = sides(FRAMES);
    let expected = score(&[("backend", "cpu")], &both.0, &both.1).unwrap();
    let rig = Rig::offline(&[("backend", "auto")]).play();
    let gate = Gate::closed();
    let gated = gate.input(&both.1);
    rig.push_pairs(&both.0.0[..2], &both.1.0[..2]);
    rig.push_pairs(&both.0.0[2..3], &gated.0[2..3]);
    gate.wait_until_read();
    DEVICE.fail("async:700@1");
    gate.open();
    wait(&rig);
    // Pushing is refused once the element has failed; `finish` below fails the test in that case.
    for t in 3..FRAMES {
        let _ = rig.try_push("ref_sink", &both.0.0[t]);
        let _ = rig.try_push("dist_sink", &both.1.0[t]);
    }
    rig.end();
    let report = rig.finish().unwrap_or_else(|failure| panic!("{}", failure.text));
    assert_eq!(report.scores(), expected.scores());
    assert_eq!(report.buffers.len(), FRAMES);
    assert_eq!(backend_name(&rig).as_deref(), Some("cpu"));
}

/// The sums of a pair cannot be read, while those of others may have been: every score that was posted before is right.
fn lost_with_scores_to_fetch() {
    const FRAMES: usize = 8;
    let both = sides(FRAMES);
    let expected = score(&[("backend", "cpu")], &both.0, &both.1).unwrap();
    let rig = Rig::offline(&[("backend", "hip")]).play();
    rig.push_pairs(&both.0.0[..3], &both.1.0[..3]);
    rig.wait_scores(2);
    let gate = Gate::closed();
    rig.push_pairs(&both.0.0[3..5], &both.1.0[3..5]);
    rig.push_pairs(&both.0.0[5..6], &gate.input(&both.1).0[5..6]);
    gate.wait_until_read();
    // The sums of the earlier pairs are not requested yet on devices where that waits for the frame behind the gate.
    DEVICE.fail("hipEventQuery:700@2");
    gate.open();
    for t in 6..FRAMES {
        // Refused as soon as the element has failed.
        let _ = rig.try_push("ref_sink", &both.0.0[t]);
        let _ = rig.try_push("dist_sink", &both.1.0[t]);
    }
    rig.end();
    let failed = rig.finish().is_err();
    let scores = rig.log().report.scores();
    assert!(failed || scores.len() == FRAMES);
    // The device decides if the pair after the third was fetched, and with it the score of the third.
    assert!(scores.len() >= 2, "{scores:?}");
    assert_eq!(scores, expected.scores()[..scores.len()]);
}
