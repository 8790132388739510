// SPDX-License-Identifier: MPL-2.0

//! Audit: the CPU computes some groups again while a GPU scores, and finds a GPU that starts to compute wrong results. On the
//! GPU, each test has a process of its own.

use gst::prelude::*;
use gsthipvmaf::event::{Event, EventMessage, EventState};
use gsthipvmaf::message::ScoreState;

use crate::common::clip::{Clip, clips};
use crate::common::device::DEVICE;
use crate::common::rig::Rig;
use crate::common::{Input, Report, coarse, moving, score, sides, until};
use crate::gpu::{CDNA, RDNA};
use crate::process::{Case, Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![the_cpu_is_not_verified];

/// The scores of the CPU are not audited.
fn the_cpu_is_not_verified() {
    let both = sides(3);
    let report = score(&[("backend", "cpu"), ("verify", "1")], &both.0, &both.1).unwrap();
    assert_eq!((report.pooled[0].counts.verified, report.pooled[0].counts.wrong), (0, 0));
}

pub fn cases() -> Vec<Case> {
    let on =
        |device, arch| on_gpu::FUNCTIONS.iter().map(move |(function, _)| (device, *function, vec![arch]));
    on("rdna", RDNA).chain(on("cdna", CDNA)).collect()
}

fn wrong(report: &Report) -> Vec<&EventMessage> {
    let is_wrong = |event: &&EventMessage| event.event == Event::WrongScore;
    report.events.iter().filter(is_wrong).collect()
}

/// Returns the numbers of the frames whose scores differ from the CPU's.
fn differing(report: &Report, expected: &Report) -> Vec<u64> {
    let pairs = report.scores().into_iter().zip(expected.scores());
    pairs.enumerate().filter(|(_, (a, b))| a != b).map(|(index, _)| index as u64).collect()
}

pub mod on_gpu {
    use super::*;

    /// Functions that run in processes of their own.
    pub const FUNCTIONS: &[Function] = functions![
        nothing_is_found_where_nothing_is_wrong,
        histories_of_pictures_are_verified,
        every_kind_of_fault_is_noticed,
        the_cpu_goes_on,
        nothing_counts_until_the_cpu_has_a_history,
        an_error_ends_it,
        a_share_of_the_groups_is_enough_in_the_long_run,
        the_share_changes_while_frames_are_scored,
        elements_share_the_audit_pool,
        what_the_cpu_cannot_keep_up_with_is_left_out
    ];

    const FRAMES: usize = 24;

    /// Plays some frames, sets a fault on the GPU, and plays the others.
    fn broken(fault: &str, properties: &[(&str, &str)], after: usize) -> (Rig, Report, Report) {
        let both = sides(FRAMES);
        let expected = score(&[("backend", "cpu")], &both.0, &both.1).unwrap();
        let all = [&[("backend", "hip"), ("verify", "1")], properties].concat();
        let rig = Rig::offline(&all).play();
        rig.push_pairs(&both.0.0[..after], &both.1.0[..after]);
        rig.wait_scores(after - 1);
        DEVICE.fail(fault);
        for t in after..FRAMES {
            // Refused as soon as the element has failed.
            let _ = rig.try_push("ref_sink", &both.0.0[t]);
            let _ = rig.try_push("dist_sink", &both.1.0[t]);
        }
        rig.end();
        let report = rig.finish().unwrap_or_else(|failure| panic!("{}", failure.text));
        DEVICE.fail("");
        (rig, report, expected)
    }

    fn nothing_is_found_where_nothing_is_wrong() {
        let mut verified = [0; 3];
        let drawn = |coarsely: bool| {
            Input::drawn_at((324, 244), 3, |t, x, y| {
                let sample = moving(t, x % 64, y % 48);
                if coarsely { coarse(sample) } else { sample }
            })
        };
        let clips = clips();
        let of_clip =
            |clip: &Clip| (clip.name.clone(), Input::planar(clip, false), Input::planar(clip, true));
        let large = ("large".into(), drawn(false), drawn(true));
        // Each clip has one set of metrics in turn, and the large one, which no metric is too large for, all of them.
        for (n, (name, reference, distorted)) in
            [large].into_iter().chain(clips.iter().map(of_clip)).enumerate()
        {
            let all = [
                "psnr_hvs;ciede;float_ssim;psnr",
                "cambi;float_ms_ssim;speed_chroma",
                "xpsnr;ssimulacra2;cvvdp",
            ];
            let models = ["vmaf_v0.6.1neg", "vmaf_v1.0.16_hfr_3d0h", "vmaf_4k_v0.6.1"];
            let sets = all.into_iter().zip(models).enumerate();
            for (i, (features, models)) in sets.filter(|(i, _)| n == 0 || n % 3 == *i) {
                let properties = [
                    ("backend", "hip"),
                    ("verify", "1"),
                    ("threads", "3"),
                    ("features", features),
                    ("extra-models", models),
                ];
                // Some clips are too small for some of the features.
                let Ok(report) = score(&properties, &reference, &distorted) else { continue };
                let pooled = &report.pooled[0];
                verified[i] += pooled.counts.verified;
                assert_eq!(
                    (pooled.counts.verified, pooled.counts.wrong),
                    (pooled.counts.scored, 0),
                    "{name} {features}"
                );
                assert_eq!(wrong(&report), Vec::<&EventMessage>::new());
            }
        }
        assert!(verified.iter().all(|frames| *frames > 0), "{verified:?}");
    }

    /// Each stream lacks other frames, after which its history begins anew.
    fn histories_of_pictures_are_verified() {
        let both = sides(30);
        let properties = [("backend", "hip"), ("verify", "1"), ("threads", "3"), ("features", "xpsnr;cvvdp")];
        let rig = Rig::offline(&properties).with_renditions(&["other"]).play();
        let first = both.1.keep(|t| !(12..14).contains(&t));
        let other = both.1.keep(|t| t != 20);
        let inputs = [("ref_sink", &both.0), ("dist_sink", &first), ("dist_0", &other)];
        let report = rig.run(&inputs).unwrap();
        let counts = |pad: &str| report.pooled.iter().find(|pooled| pooled.pad == pad).unwrap().counts;
        for (pad, frames) in [("dist_sink", 28), ("dist_0", 29)] {
            let counts = counts(pad);
            assert_eq!((counts.scored, counts.verified, counts.wrong), (frames, frames, 0), "{pad}");
        }
    }

    /// Each kind of silent fault, once, while frames are scored.
    fn every_kind_of_fault_is_noticed() {
        for fault in ["drop:7", "flip:7", "stale:3"] {
            let (rig, report, expected) = broken(fault, &[], 5);
            let events = wrong(&report);
            let pooled = &report.pooled[0];
            assert_eq!(
                (pooled.counts.verified, pooled.counts.wrong),
                (FRAMES as u64, events.len() as u64),
                "{fault}"
            );
            assert_eq!(rig.stats().get::<u64>("wrong"), Ok(pooled.counts.wrong), "{fault}");
            // Four frames are in flight, whose kernels and copies take turns as the device likes.
            let event = events[0];
            let frame = event.frame.unwrap();
            // Motion compares with the frame before.
            assert!(
                events.iter().all(|event| event.frame.unwrap().abs_diff(frame) <= 1),
                "{fault}: {events:?}"
            );
            println!("{fault}: injected in frames 5 to 8, noticed in frame {frame}");
            assert!((5..=8).contains(&frame), "{fault}: {event:?}");
            assert_eq!((event.state, event.pad.as_str()), (EventState::Raised, "dist_sink"));
            assert!(event.metric.is_some() && event.expected != event.got, "{event:?}");
            // An event says so of each score that is wrong: its own, or by motion that of the frame after it.
            for index in differing(&report, &expected) {
                let says = |event: &&&EventMessage| {
                    let reason = event.reason.as_deref().unwrap();
                    match event.frame.unwrap().checked_sub(index) {
                        Some(0) => reason.contains("was reported before"),
                        Some(1) => !reason.ends_with("before it was reported"),
                        _ => false,
                    }
                };
                assert!(events.iter().any(|event| says(&event)), "{fault}: {index} {events:?}");
            }
        }
    }

    fn the_cpu_goes_on() {
        for fault in ["drop:7+", "stale:3+"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("results.json");
            let properties = [("on-wrong-score", "cpu"), ("results-filename", path.to_str().unwrap())];
            let (rig, report, expected) = broken(fault, &properties, 5);
            let events = wrong(&report);
            assert!(!events.is_empty(), "{fault}");
            let name = rig.element.property::<Option<String>>("backend-name");
            assert_eq!(name.as_deref(), Some("cpu"), "{fault}");
            // The scores after the event are right, those of the first pairs with the pair before as well.
            let log = rig.log();
            let first = log.report.events.iter().position(|event| event.event == Event::WrongScore).unwrap();
            let reported = log.frames_before_events[first];
            let late: Vec<_> = differing(&report, &expected);
            assert!(late.iter().all(|index| *index < reported as u64), "{fault}: {late:?} {reported}");
            assert!(reported < FRAMES, "{fault}");
            assert_eq!(report.scores().len(), FRAMES, "{fault}");
            let discont = report.frames.iter().filter(|frame| frame.discont).count();
            assert_eq!(discont, 0, "{fault}: it is one run");
            drop(log);
            drop(rig);
            let json: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            let both = (&json["provenance"]["backend"], &json["backend_at_end"]["backend"]);
            assert_eq!(both, (&"hip".into(), &"cpu".into()));
            assert_eq!(json["frame_counts"]["wrong"], events.len());
        }
    }

    /// The CPU has no earlier pictures of distorted streams.
    fn nothing_counts_until_the_cpu_has_a_history() {
        const HISTORY: usize = 8;
        let both = sides(FRAMES);
        let features = ("features", "cvvdp");
        let expected = score(&[("backend", "cpu"), features], &both.0, &both.1).unwrap();
        let (rig, report, _) = broken("drop:7+", &[("on-wrong-score", "cpu"), features], 5);
        assert_eq!(rig.element.property::<Option<String>>("backend-name").as_deref(), Some("cpu"));
        let states: Vec<_> = report.frames.iter().map(|frame| frame.state).collect();
        let lost: Vec<_> = (0..FRAMES).filter(|t| states[*t] == ScoreState::Discont).collect();
        assert!(lost.len() == HISTORY && lost[0] >= 5, "{lost:?}");
        assert!(lost.windows(2).all(|pair| pair[1] == pair[0] + 1), "{lost:?}");
        let after = lost[0] + HISTORY..FRAMES;
        assert!(!after.is_empty() && states[after.clone()].iter().all(|state| *state == ScoreState::Scored));
        for t in after {
            assert_eq!(report.frames[t].features, expected.frames[t].features, "{t}");
        }
    }

    fn an_error_ends_it() {
        let both = sides(FRAMES);
        let rig = Rig::offline(&[("backend", "hip"), ("verify", "1"), ("on-wrong-score", "error")]).play();
        rig.push_pairs(&both.0.0[..5], &both.1.0[..5]);
        rig.wait_scores(4);
        DEVICE.fail("drop:7+");
        for t in 5..FRAMES {
            let _ = rig.try_push("ref_sink", &both.0.0[t]);
            let _ = rig.try_push("dist_sink", &both.1.0[t]);
        }
        rig.end();
        let failure = rig.finish().unwrap_err();
        DEVICE.fail("");
        assert!(failure.text.contains("something else than the CPU for frame"), "{}", failure.text);
        assert!(failure.events.iter().any(|event| event.event == Event::WrongScore));
    }

    /// Groups are chosen at random. With a tenth of 200 wrong groups, at least one is found with near certainty.
    fn a_share_of_the_groups_is_enough_in_the_long_run() {
        const MANY: usize = 200;
        let both = sides(MANY);
        let rig = Rig::offline(&[("backend", "hip"), ("verify", "0.1")]).play();
        DEVICE.fail("stale:1+");
        rig.push_pairs(&both.0.0, &both.1.0);
        rig.end();
        let report = rig.finish().unwrap();
        DEVICE.fail("");
        let pooled = &report.pooled[0];
        let first = wrong(&report)[0].frame.unwrap();
        println!(
            "injected in frame 0, noticed in frame {first}, {} of {MANY} verified",
            pooled.counts.verified
        );
        assert!((5..60).contains(&pooled.counts.verified), "{}", pooled.counts.verified);
        assert!(pooled.counts.wrong > 0 && pooled.counts.wrong <= pooled.counts.verified);
    }

    fn the_share_changes_while_frames_are_scored() {
        let both = sides(FRAMES);
        let rig = Rig::offline(&[("backend", "hip"), ("verify", "0")]).play();
        rig.push_pairs(&both.0.0[..8], &both.1.0[..8]);
        rig.wait_scores(7);
        rig.element.set_property("verify", 1.0);
        rig.push_pairs(&both.0.0[8..16], &both.1.0[8..16]);
        rig.wait_scores(15);
        rig.element.set_property("verify", 0.0);
        rig.push_pairs(&both.0.0[16..], &both.1.0[16..]);
        rig.end();
        let pooled = rig.finish().unwrap().pooled[0].clone();
        // The previous picture of the first group after the change was not kept.
        let not = rig.stats().get::<u64>("not-verified").unwrap();
        assert_eq!((pooled.counts.verified, pooled.counts.wrong, not), (7, 0, 1));
    }

    /// All elements share one thread that copies and one pool of threads that compute.
    fn elements_share_the_audit_pool() {
        let both = sides(4);
        let properties = [("backend", "hip"), ("verify", "1"), ("threads", "1")];
        let rigs = [(); 3].map(|()| Rig::offline(&properties).play());
        for rig in &rigs {
            rig.push_pairs(&both.0.0, &both.1.0);
            rig.wait_scores(3);
        }
        // Threads of an earlier test may still be ending.
        let threads = || ["hipvmaf-copy", "hipvmaf-verify"].map(threads_named);
        until(|| threads() == [1, 1]);
        for rig in rigs {
            rig.end();
            assert_eq!(rig.finish().unwrap().pooled[0].counts.verified, 4);
        }
        until(|| threads() == [0, 0]);
    }

    /// Returns the number of threads of this process with this name.
    fn threads_named(name: &str) -> usize {
        let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
        let names =
            threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
        names.filter(|found| found.trim_end() == name).count()
    }

    /// A live pipeline does not wait for the CPU.
    fn what_the_cpu_cannot_keep_up_with_is_left_out() {
        let both = sides(FRAMES);
        let rig =
            Rig::live(&[("backend", "hip"), ("verify", "1"), ("overload", "skip"), ("max-in-flight", "64")]);
        let rig = rig.play();
        rig.push_pairs(&both.0.0, &both.1.0);
        rig.end();
        let pooled = rig.finish().unwrap().pooled[0].clone();
        let not = rig.stats().get::<u64>("not-verified").unwrap();
        assert_eq!(pooled.counts.wrong, 0);
        assert!(
            not > 0 && pooled.counts.verified + not <= pooled.counts.scored,
            "{} {not} {}",
            pooled.counts.verified,
            pooled.counts.scored
        );
    }
}
