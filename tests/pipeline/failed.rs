// SPDX-License-Identifier: MPL-2.0

//! A rendition that cannot be scored: beside others that is its own trouble, by itself it is an error.

use crate::common::rig::Rig;
use crate::common::{FRAME, Input, coarse, deep, entries, moving, score, sides};

const FRAMES: usize = 12;

/// The distorted frames in a way that cannot be compared with the reference, and what the reason has to say.
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

/// Frames of which half is missing.
fn shortened(input: &Input) -> Input {
    input.changed(|_, buffer| {
        let half = buffer.size() / 2;
        buffer.set_size(half);
    })
}

/// Caps that are new, and as good as those before.
fn renewed(input: &Input) -> Input {
    input.with_caps(|caps| caps.set("framerate", gst::Fraction::new(50, 1)))
}

fn scores_of_run(sides: &(Input, Input), run: std::ops::Range<usize>) -> Vec<f64> {
    let keep = |input: &Input| input.keep(|t| run.contains(&t));
    score(&[], &keep(&sides.0), &keep(&sides.1)).unwrap().scores()
}

/// One of two renditions, in the middle or from the start, until it has new caps.
#[test]
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
            let runs = [0..since, 8..FRAMES];
            let runs: Vec<f64> = runs
                .into_iter()
                .filter(|run| !run.is_empty())
                .flat_map(|run| scores_of_run(&both, run))
                .collect();
            assert_eq!(report.scores_of("dist_0"), runs, "{case}");
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

/// It costs the frames of the others no time either.
#[test]
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
#[test]
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

#[test]
fn the_only_rendition_ends_the_pipeline_with_an_error_that_names_it() {
    let both = sides(FRAMES);
    for (name, trouble, reasons) in troubles(&both.1) {
        let failure = score(&[], &both.0, &trouble).unwrap_err();
        for said in reasons.iter().chain(&["dist_sink"]) {
            assert!(failure.text.contains(said), "{name}: `{said}` is not in: {}", failure.text);
        }
    }
}
