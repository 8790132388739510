// SPDX-License-Identifier: MPL-2.0

//! Several distorted streams against one reference.

use std::fs;

use crate::common::rig::Rig;
use crate::common::{FRAME, Input, Report, coarse, moving, score, scores_within, sides};
use crate::process::{Function, functions};
use gst::prelude::*;
use gsthipvmaf::event::{Event, EventState};
use gsthipvmaf::meta::ScoreState;

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    each_is_scored_as_if_it_were_alone,
    messages_and_metas_say_which_is_meant,
    statistics_are_those_of_the_pad,
    each_has_a_results_file,
    a_loss_in_one_is_none_in_the_others,
    a_disabled_stream_is_not_scored_and_may_end,
    a_stream_may_be_switched_off_and_on,
    each_has_its_own_offset,
    streams_may_join_and_leave_while_playing,
    a_dead_stream_does_not_hold_up_the_others,
    a_slow_stream_does_not_hold_up_the_others,
    a_dead_stream_does_not_cost_the_others_their_metas,
    pads_are_children_of_the_element,
    released_pads_and_those_of_an_element_that_is_gone_are_freed
];

const FRAMES: usize = 10;
const PADS: [&str; 3] = ["dist_sink", "dist_0", "dist_1"];

/// A reference and three renditions, from bad to perfect.
fn ladder() -> (Input, [Input; 3]) {
    let step = |t: usize, x, y| moving(t, x, y) / 16 * 16 + 8;
    let renditions = [Input::drawn(FRAMES, |t, x, y| coarse(moving(t, x, y))), Input::drawn(FRAMES, step)];
    let [bad, better] = renditions;
    let reference = Input::drawn(FRAMES, moving);
    (reference.clone(), [bad, better, reference])
}

fn rig(properties: &[(&str, &str)]) -> Rig {
    let rig = Rig::offline(properties).with_renditions(&["540p", "1080p"]);
    rig.pad("dist_sink").set_property("label", "360p");
    rig.play()
}

fn run(rig: &Rig, reference: &Input, renditions: &[Input; 3]) -> Report {
    let [a, b, c] = renditions;
    rig.run(&[("ref_sink", reference), (PADS[0], a), (PADS[1], b), (PADS[2], c)]).unwrap()
}

fn each_is_scored_as_if_it_were_alone() {
    let (reference, renditions) = ladder();
    for properties in [vec![], vec![("psnr", "true"), ("subsample", "3")], vec![("threads", "2")]] {
        let report = run(&rig(&properties), &reference, &renditions);
        let mut means = vec![];
        for (pad, distorted) in PADS.iter().zip(&renditions) {
            let alone = score(&properties, &reference, distorted).unwrap();
            assert_eq!(report.scores_of(pad), alone.scores(), "{pad}");
            let features = |report: &Report, of: &str| -> Vec<_> {
                report.frames.iter().filter(|f| f.pad == of).map(|f| (f.index, f.features.clone())).collect()
            };
            assert_eq!(features(&report, pad), features(&alone, "dist_sink"));
            let pooled = report.pooled.iter().find(|pooled| pooled.pad == *pad).unwrap();
            assert_eq!((pooled.score, pooled.stats), (alone.pooled[0].score, alone.pooled[0].stats));
            means.push(pooled.score);
        }
        assert!(means.is_sorted() && means[0] < means[2], "{means:?}");
    }
}

fn messages_and_metas_say_which_is_meant() {
    let (reference, renditions) = ladder();
    let report = run(&rig(&[]), &reference, &renditions);
    let labels = [("dist_sink", "360p"), ("dist_0", "540p"), ("dist_1", "1080p")];
    for (pad, label) in labels {
        let frames: Vec<_> = report.frames.iter().filter(|frame| frame.pad == pad).collect();
        assert_eq!(frames.len(), FRAMES);
        assert!(frames.iter().all(|frame| frame.label == label));
        assert!(report.pooled.iter().any(|pooled| (&*pooled.pad, &*pooled.label) == (pad, label)));
    }
    for (t, meta) in report.metas().iter().enumerate() {
        let entries: Vec<_> = meta.scores.iter().map(|s| (s.pad.as_str(), s.label.as_str())).collect();
        assert_eq!((meta.index, entries), (t as i32, labels.to_vec()));
        for entry in &meta.scores {
            assert_eq!(
                (entry.state, entry.score),
                (ScoreState::Scored, Some(report.scores_of(&entry.pad)[t]))
            );
        }
    }
}

fn statistics_are_those_of_the_pad() {
    let (reference, [bad, better, perfect]) = ladder();
    let rig = rig(&[]);
    let report = run(&rig, &reference, &[bad, better.keep(|t| t != 4 && t != 5), perfect.keep(|t| t < 7)]);
    for (pad, scored, unpaired) in [("dist_sink", 10, 0), ("dist_0", 8, 2), ("dist_1", 7, 3)] {
        let stats: gst::Structure = rig.pad(pad).property("stats");
        assert_eq!(stats.get::<u64>("frames-scored"), Ok(scored), "{pad}");
        assert_eq!(stats.get::<u64>("frames-unpaired"), Ok(unpaired), "{pad}");
        let scores = report.scores_of(pad);
        assert_eq!(stats.get::<f64>("score-last").ok(), scores.last().copied());
        assert_eq!(stats.get::<f64>("score-min").unwrap(), scores.iter().copied().fold(f64::MAX, f64::min));
    }
    assert_eq!(report.stats.unwrap().get::<u64>("frames-scored"), Ok(10), "those of dist_sink");
}

fn each_has_a_results_file() {
    let (reference, renditions) = ladder();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let report = run(&rig(&[("results-filename", path.to_str().unwrap())]), &reference, &renditions);
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["results.1080p.json", "results.540p.json", "results.json"]);
    for (name, pad) in
        [("results.json", PADS[0]), ("results.540p.json", PADS[1]), ("results.1080p.json", PADS[2])]
    {
        let text = fs::read_to_string(folder.path().join(name)).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let scores: Vec<f64> = json["frames"]
            .as_array()
            .unwrap()
            .iter()
            .map(|frame| frame["metrics"]["vmaf"].as_f64().unwrap())
            .collect();
        let printed: Vec<f64> =
            report.scores_of(pad).iter().map(|score| format!("{score:.6}").parse().unwrap()).collect();
        assert_eq!(scores, printed, "{name}");
    }
}

fn a_loss_in_one_is_none_in_the_others() {
    let (reference, renditions) = ladder();
    let lossy = renditions[1].keep(|t| t != 4);
    let inputs = [renditions[0].clone(), lossy.clone(), renditions[2].clone()];
    let report = run(&rig(&[]), &reference, &inputs);
    for (pad, distorted) in PADS.iter().zip([&renditions[0], &lossy, &renditions[2]]) {
        assert_eq!(report.scores_of(pad), score(&[], &reference, distorted).unwrap().scores(), "{pad}");
    }
    let states: Vec<_> = report.metas()[4].scores.iter().map(|entry| entry.state).collect();
    assert_eq!(states, [ScoreState::Scored, ScoreState::Unpaired, ScoreState::Scored]);
    let unpaired: Vec<_> =
        report.events.iter().map(|event| (event.event, event.pad.as_str(), &*event.label)).collect();
    assert_eq!(unpaired, [(Event::Unpaired, "dist_0", "540p")]);
}

fn a_disabled_stream_is_not_scored_and_may_end() {
    let (reference, [bad, better, _]) = ladder();
    let rig = Rig::offline(&[]).with_renditions(&["off"]);
    rig.pad("dist_0").set_property("enabled", false);
    let rig = rig.play();
    let inputs = [("ref_sink", &reference), ("dist_sink", &bad), ("dist_0", &better.keep(|t| t < 3))];
    let report = rig.run(&inputs).unwrap();
    assert_eq!(report.scores_of("dist_sink"), score(&[], &reference, &bad).unwrap().scores());
    assert!(report.scores_of("dist_0").is_empty());
    assert!(report.metas().iter().all(|meta| meta.scores.len() == 1));
    assert!(report.pooled.iter().all(|pooled| pooled.pad == "dist_sink"));
}

fn a_stream_may_be_switched_off_and_on() {
    let both = sides(12);
    let rig = Rig::offline(&[]).with_renditions(&["switched"]).play();
    let push = |frames: std::ops::Range<usize>| {
        for t in frames {
            // Pushed first, so that it is at the pad when the others arrive.
            rig.push("dist_0", &both.1.0[t]);
            rig.push("ref_sink", &both.0.0[t]);
            rig.push("dist_sink", &both.1.0[t]);
        }
    };
    push(0..4);
    rig.wait_scores(6);
    rig.pad("dist_0").set_property("enabled", false);
    push(4..8);
    rig.wait(|log| log.report.scores_of("dist_sink").len() == 7);
    rig.pad("dist_0").set_property("enabled", true);
    push(8..12);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores_of("dist_sink"), score(&[], &both.0, &both.1).unwrap().scores());
    let indices: Vec<_> = report.frames.iter().filter(|f| f.pad == "dist_0").map(|f| f.index).collect();
    assert_eq!(indices, [0, 1, 2, 3, 8, 9, 10, 11]);
}

fn each_has_its_own_offset() {
    let (reference, renditions) = ladder();
    let shift = |input: &Input, by: i64| {
        input.retimed(|t| {
            Some(gst::ClockTime::from_nseconds((400_000_000 + t as i64 * 40_000_000 + by) as u64))
        })
    };
    let reference_late = shift(&reference, 0);
    let rig = rig(&[]);
    rig.pad("dist_0").set_property("ts-offset", -80_000_000i64);
    rig.pad("dist_1").set_property("ts-offset", 120_000_000i64);
    let [a, b, c] = &renditions;
    let report = run(&rig, &reference_late, &[shift(a, 0), shift(b, 80_000_000), shift(c, -120_000_000)]);
    for (pad, distorted) in PADS.iter().zip(&renditions) {
        assert_eq!(report.scores_of(pad), score(&[], &reference, distorted).unwrap().scores(), "{pad}");
    }
}

fn streams_may_join_and_leave_while_playing() {
    let both = sides(12);
    let mut rig = Rig::offline(&[]).play();
    rig.push_pairs(&both.0.0[..4], &both.1.0[..4]);
    rig.wait_scores(3);
    assert_eq!(rig.request().name(), "dist_0");
    for t in 4..8 {
        rig.push("ref_sink", &both.0.0[t]);
        rig.push("dist_sink", &both.1.0[t]);
        rig.push("dist_0", &both.1.0[t]);
    }
    rig.wait(|log| log.report.scores_of("dist_0").len() == 3);
    rig.release("dist_0");
    assert!(rig.element.static_pad("dist_0").is_none());
    rig.push_pairs(&both.0.0[8..], &both.1.0[8..]);
    rig.end();
    let report = rig.finish().unwrap();
    // Its scores start with the reference's motion at that time, and end as a stream does.
    let scores = report.scores_of("dist_0");
    assert_eq!(scores[..3], scores_within(&both, 4..7));
    let ended = score(&[], &both.0.keep(|t| t < 8), &both.1.keep(|t| t < 8)).unwrap().scores();
    assert_eq!(scores[3..], ended[7..]);
    let pooled: Vec<_> =
        report.pooled.iter().map(|p| (p.pad.as_str(), p.reason.as_str(), p.counts.scored)).collect();
    assert_eq!(pooled, [("dist_0", "released", 4), ("dist_sink", "eos", 12)]);
    let entries: Vec<_> = report.metas().iter().map(|meta| meta.scores.len()).collect();
    assert_eq!(entries[..3], [1; 3]);
    // Frames that are still in the element when the pad is released leave without its scores.
    assert!(entries[4..7].is_sorted_by(|a, b| a >= b) && entries[4] >= 1, "{entries:?}");
    assert_eq!(entries[8..], [1; 4]);
    assert_eq!(report.frames.iter().filter(|frame| frame.pad == "dist_sink").count(), 12);
}

/// The others go on at full rate; only the frames of the dead stream are missing.
fn a_dead_stream_does_not_hold_up_the_others() {
    let both = sides(12);
    let rig = Rig::live(&[]).with_renditions(&["dead"]).play();
    for t in 0..12 {
        if t > 0 {
            rig.advance_to(FRAME * t as u64);
        }
        rig.push("ref_sink", &both.0.0[t]);
        rig.push("dist_sink", &both.1.0[t]);
    }
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores_of("dist_sink"), score(&[], &both.0, &both.1).unwrap().scores());
    assert_eq!(report.buffers.len(), 12);
    let events: Vec<_> = report.events.iter().map(|e| (e.event, e.state, e.pad.as_str())).collect();
    assert_eq!(
        events,
        [(Event::Dropout, EventState::Raised, "dist_0"), (Event::Unpaired, EventState::Info, "dist_0")]
    );
    assert_eq!(report.events[1].count, Some(12));
}

/// The frames of one stream arrive two frames later than the others, which exceeds the latency.
fn a_slow_stream_does_not_hold_up_the_others() {
    let both = sides(16);
    let rig = Rig::live(&[]).with_renditions(&["slow"]).play();
    for t in 0..16 {
        if t > 0 {
            rig.advance_to(FRAME * t as u64);
        }
        rig.push("ref_sink", &both.0.0[t]);
        rig.push("dist_sink", &both.1.0[t]);
        if t >= 3 {
            rig.push("dist_0", &both.1.0[t - 3]);
        }
    }
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores_of("dist_sink"), score(&[], &both.0, &both.1).unwrap().scores());
    assert_eq!(report.buffers.len(), 16);
    assert!(report.scores_of("dist_0").is_empty());
    let stats: gst::Structure = rig.pad("dist_0").property("stats");
    assert_eq!(stats.get::<u64>("frames-unpaired"), Ok(16));
}

fn a_dead_stream_does_not_cost_the_others_their_metas() {
    let both = sides(12);
    let rig = Rig::live(&[]).with_renditions(&["dead"]).play();
    for t in 0..12 {
        if t > 0 {
            rig.advance_to(FRAME * t as u64);
        }
        rig.push("ref_sink", &both.0.0[t]);
        rig.push("dist_sink", &both.1.0[t]);
    }
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.states()[5..], [ScoreState::Scored; 7]);
}

fn pads_are_children_of_the_element() {
    let rig = Rig::offline(&[]).with_renditions(&["720p"]);
    let proxy = rig.element.dynamic_cast_ref::<gst::ChildProxy>().unwrap();
    let label = |name: &str| -> String { proxy.child_property(name) };
    assert_eq!(label("dist_0::label"), "720p");
    proxy.set_child_property("dist_sink::label", "1080p");
    assert_eq!(label("dist_sink::label"), "1080p");
}

fn released_pads_and_those_of_an_element_that_is_gone_are_freed() {
    let mut rig = Rig::offline(&[]).play();
    let released = rig.request();
    let kept = rig.request();
    let pads = [released.downgrade(), kept.downgrade()];
    rig.release(&released.name());
    drop((released, kept));
    assert_eq!(pads.each_ref().map(|pad| pad.upgrade().is_some()), [false, true]);
    drop(rig);
    assert!(pads.iter().all(|pad| pad.upgrade().is_none()));
}
