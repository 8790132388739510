// SPDX-License-Identifier: MPL-2.0

//! A rendition that cannot be scored: with other renditions beside it, it alone fails; otherwise the element fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gst::prelude::*;

use crate::common::rig::Rig;
use crate::common::{FRAME, Input, coarse, deep, entries, init, moving, score, scores_within, sides, until};
use crate::process::{Function, functions};

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    a_rendition_that_cannot_be_scored_leaves_the_others_alone,
    a_rendition_that_cannot_be_scored_holds_up_nothing_live,
    a_failed_rendition_may_go,
    the_only_rendition_ends_the_pipeline_with_an_error_that_names_it,
    no_stream_that_has_ended_fails_over_what_comes_later,
    frames_that_were_on_their_way_are_forgotten_once_others_suit
];

const FRAMES: usize = 12;

/// Formats of the distorted video that cannot be compared with the reference, and a part of the reason.
fn troubles(good: &Input) -> [(&'static str, Input, &'static [&'static str]); 4] {
    let large = Input::drawn_at((96, 64), FRAMES, |t, x, y| coarse(moving(t, x, y)));
    let interlaced = good.with_caps(|caps| caps.set("interlace-mode", "interleaved"));
    [
        ("interlaced", interlaced, &["interlaced", "deinterlace"]),
        ("depth", deep(good), &["depth", "videoconvert"]),
        ("size", large, &["64x48", "96x64", "videoscale"]),
        ("short", shortened(good), &["smaller"]),
    ]
}

/// Returns frames with half of their memory missing.
fn shortened(input: &Input) -> Input {
    input.changed(|_, buffer| {
        let half = buffer.size() / 2;
        buffer.set_size(half);
    })
}

/// Returns the frames with new caps of equal meaning.
fn renewed(input: &Input) -> Input {
    input.with_caps(|caps| caps.set("framerate", gst::Fraction::new(0, 1)))
}

fn scores_of_run(sides: &(Input, Input), run: std::ops::Range<usize>) -> Vec<f64> {
    let keep = |input: &Input| input.keep(|t| run.contains(&t));
    score(&[], &keep(&sides.0), &keep(&sides.1)).unwrap().scores()
}

/// One of two renditions fails, in the middle or from the start, until it has new caps.
fn a_rendition_that_cannot_be_scored_leaves_the_others_alone() {
    let both = sides(FRAMES);
    for (name, trouble, reasons) in troubles(&both.1) {
        for since in [0, 4] {
            let case = format!("{name} since frame {since}");
            let frames = |input: &Input, range: std::ops::Range<usize>| input.keep(|t| range.contains(&t)).0;
            let changing =
                [frames(&both.1, 0..since), frames(&trouble, since..8), frames(&renewed(&both.1), 8..FRAMES)];
            let rig = Rig::offline(&[]).with_renditions(&["changing"]).play();
            let inputs =
                [("ref_sink", &both.0), ("dist_sink", &both.1), ("dist_0", &Input(changing.concat()))];
            let report = rig.run(&inputs).unwrap_or_else(|failure| panic!("{case}: {}", failure.text));
            assert_eq!(
                report.scores_of("dist_sink"),
                score(&[], &both.0, &both.1).unwrap().scores(),
                "{case}"
            );
            // The last frame before the failure is scored as the last frame of a stream, unless the next reference frame was
            // already there.
            let scores = report.scores_of("dist_0");
            let (before, after) = scores.split_at(since);
            let first = if since == 0 { vec![] } else { scores_of_run(&both, 0..since) };
            assert!(before == first || before == scores_within(&both, 0..since), "{case}: {before:?}");
            assert_eq!(after, scores_within(&both, 8..FRAMES), "{case}");
            for (t, buffer) in report.buffers.iter().enumerate() {
                let states: Vec<_> =
                    entries(buffer).iter().map(|entry| entry.get::<String>("state").unwrap()).collect();
                let other = if (since..8).contains(&t) { "failed" } else { "scored" };
                assert_eq!(states, ["scored", other], "{case}, frame {t}");
            }
            assert_eq!(report.buffers.len(), FRAMES);
            let log = rig.log();
            let events = log.events_of("failed");
            let states: Vec<_> =
                events.iter().map(|(state, pad, _)| (state.as_str(), pad.as_str())).collect();
            assert_eq!(states, [("raised", "dist_0"), ("cleared", "dist_0")], "{case}");
            let reason = events[0].2.as_deref().unwrap_or_default();
            let [warning] = &log.warnings[..] else { panic!("{case}: {:?}", log.warnings) };
            for said in reasons {
                assert!(reason.contains(said), "{case}: `{said}` is not in: {reason}");
                assert!(warning.contains(said), "{case}: `{said}` is not in: {warning}");
            }
            assert!(warning.contains("dist_0"), "{case}: {warning}");
        }
    }
}

/// A failed rendition does not delay the frames of the others.
fn a_rendition_that_cannot_be_scored_holds_up_nothing_live() {
    let both = sides(FRAMES);
    let trouble = deep(&both.1);
    let rig = Rig::live(&[("overload", "wait")]).with_renditions(&["deep"]).play();
    for t in 0..FRAMES {
        if t > 0 {
            rig.advance_to(FRAME * t as u64);
        }
        for (pad, input) in [("ref_sink", &both.0), ("dist_sink", &both.1), ("dist_0", &trouble)] {
            rig.push(pad, &input.0[t]);
        }
    }
    rig.end();
    let report = rig.finish().unwrap_or_else(|failure| panic!("{}", failure.text));
    assert_eq!(report.scores_of("dist_sink"), score(&[], &both.0, &both.1).unwrap().scores());
    let scored = |buffer: &gst::Buffer| entries(buffer)[0].get::<&str>("state") == Ok("scored");
    assert!(report.buffers.len() == FRAMES && report.buffers.iter().all(scored));
}

/// A failed rendition may be released, and its pad starts afresh.
fn a_failed_rendition_may_go() {
    let both = sides(FRAMES);
    let trouble = deep(&both.1);
    let mut rig = Rig::offline(&[]).with_renditions(&["deep"]).play();
    for t in 0..4 {
        for (pad, input) in [("dist_0", &trouble), ("ref_sink", &both.0), ("dist_sink", &both.1)] {
            assert_eq!(rig.try_push(pad, &input.0[t]), Ok(gst::FlowSuccess::Ok), "frame {t} on {pad}");
        }
    }
    rig.wait(|log| log.events_of("failed").len() == 1);
    rig.release("dist_0");
    rig.push_pairs(&both.0.0[4..], &both.1.0[4..]);
    rig.end();
    let report = rig.finish().unwrap();
    assert_eq!(report.scores_of("dist_sink"), score(&[], &both.0, &both.1).unwrap().scores());
}

fn the_only_rendition_ends_the_pipeline_with_an_error_that_names_it() {
    let both = sides(FRAMES);
    for (name, trouble, reasons) in troubles(&both.1) {
        let failure = score(&[], &both.0, &trouble).unwrap_err();
        for said in reasons.iter().chain(&["dist_sink"]) {
            assert!(failure.text.contains(said), "{name}: `{said}` is not in: {}", failure.text);
        }
    }
}

/// Frames that arrive after the end of a stream are not checked against its caps.
fn no_stream_that_has_ended_fails_over_what_comes_later() {
    let half = FRAMES / 2;
    let large = Input::drawn_at((96, 64), half, moving);
    let short = |input: &Input| input.keep(|t| t < half);
    let grown = |input: &Input| short(input).then(&large);
    let both = sides(FRAMES);
    let expected = scores_of_run(&both, 0..half);
    let (reference, distorted) = &both;
    let cases = [
        ("the only rendition", grown(reference), vec![("dist_sink", short(distorted))]),
        ("one of two", grown(reference), vec![("dist_sink", grown(distorted)), ("dist_0", short(distorted))]),
        ("the reference", short(reference), vec![("dist_sink", grown(distorted))]),
        (
            "the reference of two",
            short(reference),
            vec![("dist_sink", short(distorted)), ("dist_0", grown(distorted))],
        ),
    ];
    for (case, reference, renditions) in cases {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results.json");
        let labels: &[&str] = if renditions.len() > 1 { &["second"] } else { &[] };
        let rig = Rig::offline(&[("results-filename", results.to_str().unwrap())]).with_renditions(labels);
        let rig = rig.play();
        let mut inputs = vec![("ref_sink", &reference)];
        inputs.extend(renditions.iter().map(|(pad, input)| (*pad, input)));
        let report = rig.run(&inputs).unwrap_or_else(|failure| panic!("{case}: {}", failure.text));
        for (pad, _) in &renditions {
            assert_eq!(report.scores_of(pad)[..half], expected, "{case}, {pad}");
        }
        let log = rig.log();
        assert!(log.events_of("failed").is_empty(), "{case}");
        assert!(log.warnings.is_empty(), "{case}: {:?}", log.warnings);
        drop(log);
        drop(rig);
        let complete = |name: &str| folder.path().join(name).exists();
        assert!(complete("results.json"), "{case}");
        assert!(labels.is_empty() || complete("results.second.json"), "{case}");
    }
}

/// The reference gets larger, and smaller again after the distorted stream has ended. The distorted frames of the old size that
/// arrive after the first change are no failure, because frames of the new size follow.
fn frames_that_were_on_their_way_are_forgotten_once_others_suit() {
    init();
    let pipeline = gst::parse::launch(
        "appsrc name=ref format=time ! h.ref_sink \
         appsrc name=dist format=time ! videoscale name=scale ! queue name=queue ! h.dist_sink \
         hipvmaf name=h backend=cpu ! fakesink",
    );
    let pipeline = pipeline.unwrap().downcast::<gst::Pipeline>().unwrap();
    let element = |name: &str| pipeline.by_name(name).unwrap();
    let source = |name: &str| element(name).downcast::<gst_app::AppSrc>().unwrap();
    let (reference, distorted) = (source("ref"), source("dist"));
    let push = |source: &gst_app::AppSrc, samples: &[gst::Sample]| {
        samples.iter().for_each(|sample| assert!(source.push_sample(sample).is_ok()));
    };
    pipeline.set_state(gst::State::Playing).unwrap();

    let (small, wanted) = sides(FRAMES);
    let large = Input::drawn_at((96, 64), FRAMES, moving);
    const PART: usize = FRAMES / 4;
    let [first, second, third, fourth] = [0, 1, 2, 3].map(|i| i * PART..(i + 1) * PART);
    push(&reference, &small.0[..1]);
    until(|| element("h").static_pad("ref_sink").unwrap().has_current_caps());
    let scaled = element("scale").static_pad("src").unwrap();
    let frames = Arc::new(AtomicUsize::new(0));
    let counted = frames.clone();
    scaled.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        counted.fetch_add(1, Ordering::Release);
        gst::PadProbeReturn::Ok
    });
    let queued = || element("queue").property::<u32>("current-level-buffers");
    let scored = || element("h").property::<gst::Structure>("stats").get::<u64>("frames-scored").unwrap();
    // Two parts are scaled before the reference changes in front of the second.
    push(&distorted, &wanted.0[..second.end]);
    until(|| frames.load(Ordering::Acquire) == second.end);
    push(&reference, &small.0[1..first.end]);
    push(&reference, &large.0[second]);
    until(|| queued() == 0);
    push(&distorted, &wanted.0[third.clone()]);
    push(&reference, &large.0[third.clone()]);
    // The last pair waits for another.
    until(|| scored() == 2 * PART as u64 - 1);
    let width = scaled.current_caps().unwrap().structure(0).unwrap().get::<i32>("width");
    assert_eq!(width, Ok(96));
    distorted.end_of_stream().unwrap();
    push(&reference, &small.0[fourth]);
    reference.end_of_stream().unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds).unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    assert!(matches!(end.view(), gst::MessageView::Eos(_)), "{end:?}");
}
