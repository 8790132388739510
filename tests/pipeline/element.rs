// SPDX-License-Identifier: MPL-2.0

//! The element in a pipeline: its output for given input, and its messages about bad input.

use crate::common::clip::{Clip, clips};
use crate::common::rig::Rig;
use crate::common::{
    Bench, FRAME, Input, is_asleep, moving, score, score_clip, scores_within, seek_to_start, thread_id, until,
};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use crate::process::{Function, functions};
use gst::prelude::*;
use gsthipvmaf::message::VmafMessage;
use gsthipvmaf::meta::ScoreState;

/// Tests for every backend.
pub const TESTS: &[Function] = functions![
    every_frame_yields_a_message_and_a_buffer_with_the_same_score,
    reference_buffers_pass_through_untouched,
    without_meta_buffers_leave_at_once_and_messages_stay_the_same,
    frame_messages_are_off_unless_asked_for,
    a_short_distorted_stream_leaves_the_rest_unpaired,
    coverage_is_reported,
    other_frame_rates_are_warned_of_and_counted,
    video_that_the_models_are_not_for_is_warned_of_once,
    a_display_of_another_kind_than_the_video_is_warned_of_once,
    a_short_reference_ends_the_stream,
    streams_without_a_pair_say_so,
    a_lost_frame_changes_no_other_score,
    a_frame_lost_from_the_reference_is_dropped_from_the_distorted_stream,
    gap_buffers_count_as_missing_frames,
    jitter_under_half_a_frame_changes_nothing,
    twice_the_frame_rate_pairs_what_belongs_together,
    missing_timestamps_are_counted_by_the_frame_rate,
    a_second_run_scores_like_the_first,
    new_caps_begin_a_new_section,
    a_flushing_seek_begins_anew,
    a_seek_does_not_wait_for_the_frames_before_it,
    a_stop_does_not_wait_for_the_frames_before_it,
    absurd_durations_do_no_harm,
    live_reference_frames_do_not_wait_for_ever,
    a_live_element_answers_the_latency_query,
    no_warning_while_both_streams_change,
    a_converter_before_the_distorted_pad_picks_the_size_of_the_reference,
    a_converter_behind_a_tee_picks_the_size_of_the_reference
];

/// The 8-bit clip of ten frames.
fn clip() -> Clip {
    clips().into_iter().find(|clip| clip.name == "176x144_420_8bit").unwrap()
}

fn sides(clip: &Clip) -> (Input, Input) {
    (Input::planar(clip, false), Input::planar(clip, true))
}

fn every_frame_yields_a_message_and_a_buffer_with_the_same_score() {
    let clip = clip();
    let (reference, distorted) = sides(&clip);
    let report = score(&[], &reference, &distorted).unwrap();
    assert_eq!((report.frames.len(), report.buffers.len()), (clip.frames, clip.frames));
    for (t, (frame, meta)) in report.frames.iter().zip(report.metas()).enumerate() {
        let time = Some(FRAME * t as u64);
        assert_eq!((frame.timestamp, frame.running_time, frame.stream_time), (time, time, time));
        assert_eq!((frame.duration, frame.dist_running_time), (Some(FRAME), time));
        assert_eq!(
            (frame.pad.as_str(), frame.label.as_str(), frame.discont),
            ("dist_sink", "dist_sink", false)
        );
        assert_eq!((meta.index, meta.section, meta.running_time), (t as i32, 0, time));
        let [pad] = meta.scores.as_slice() else { panic!("{:?}", meta.scores) };
        assert_eq!((pad.state, pad.score), (ScoreState::Scored, Some(frame.score)));
        assert_eq!((&pad.models, &pad.features), (&frame.models, &frame.features));
    }
    let [pooled] = report.pooled.as_slice() else { panic!("{:?}", report.pooled) };
    assert_eq!(
        (pooled.reason.as_str(), pooled.counts.scored, pooled.counts.unpaired),
        ("eos", clip.frames as u64, 0)
    );
    assert_eq!(pooled.duration, Some(FRAME * clip.frames as u64));
    assert_eq!(pooled.timestamp, Some(FRAME * clip.frames as u64));
    let stats = report.stats.unwrap();
    assert_eq!(stats.get::<u64>("frames-scored"), Ok(clip.frames as u64));
    assert_eq!(stats.get::<f64>("score-mean"), Ok(pooled.score));
    assert_eq!(stats.get::<u64>("sections"), Ok(1));
}

fn reference_buffers_pass_through_untouched() {
    let clip = clip();
    let (reference, distorted) = sides(&clip);
    let report = score(&[], &reference, &distorted).unwrap();
    for (sent, got) in reference.0.iter().zip(&report.buffers) {
        let sent = sent.buffer().unwrap();
        assert_eq!((sent.pts(), sent.duration(), sent.offset()), (got.pts(), got.duration(), got.offset()));
        assert_eq!(sent.peek_memory(0).as_ptr(), got.peek_memory(0).as_ptr(), "the samples were copied");
    }
}

fn without_meta_buffers_leave_at_once_and_messages_stay_the_same() {
    let clip = clip();
    let with = score_clip(&[], &clip);
    let without = score_clip(&[("attach-meta", "false")], &clip);
    assert_eq!(without.scores(), with.scores());
    assert_eq!(without.buffers.len(), clip.frames);
    assert!(without.buffers.iter().all(|b| gsthipvmaf::meta::ScoreMeta::from_buffer(b).is_none()));
}

fn frame_messages_are_off_unless_asked_for() {
    let clip = clip();
    let report = score_clip(&[("frame-message", "false")], &clip);
    assert_eq!((report.frames.len(), report.pooled.len(), report.buffers.len()), (0, 1, clip.frames));
}

fn a_short_distorted_stream_leaves_the_rest_unpaired() {
    let clip = clip();
    let (reference, distorted) = sides(&clip);
    let report = score(&[], &reference, &distorted.keep(|t| t < 4)).unwrap();
    let alone = score(&[], &reference.keep(|t| t < 4), &distorted.keep(|t| t < 4)).unwrap();
    // The last frame has the motion to the reference frame that follows.
    assert_eq!(report.scores(), scores_within(&(reference, distorted), 0..4));
    assert_eq!(report.scores()[..3], alone.scores()[..3]);
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.unpaired), (4, 6));
    assert!(!report.frames[3].discont);
    assert_eq!(report.states(), [[ScoreState::Scored; 4].as_slice(), &[ScoreState::Unpaired; 6]].concat());
}

fn coverage_is_reported() {
    let (reference, distorted) = sides(&clip());
    let distorted = distorted.keep(|t| t < 4);
    let report = score(&[("window", "1000000000")], &reference, &distorted).unwrap();
    assert_eq!((report.pooled[0].counts.coverage(), report.pooled[0].counts.dist_unmatched), (0.4, 0));
}

fn other_frame_rates_are_warned_of_and_counted() {
    let (reference, distorted) = sides(&clip());
    let double = Input((0..20).map(|i| distorted.0[i / 2].clone()).collect());
    let double = double.retimed(|i| Some(FRAME * i as u64 / 2));
    let double = double.with_caps(|caps| caps.set("framerate", gst::Fraction::new(50, 1)));
    let warnings = |distorted: &Input| {
        let rig = Rig::offline(&[]).play();
        let report = rig.run(&[("ref_sink", &reference), ("dist_sink", distorted)]).unwrap();
        let warnings = rig.log().warnings.clone();
        (warnings, report.pooled[0].counts.dist_unmatched, report.pooled[0].counts.coverage())
    };
    let (warned, unmatched, coverage) = warnings(&double);
    assert!((8..=10).contains(&unmatched) && coverage == 1.0, "{unmatched}, {coverage}");
    let [text] = &warned[..] else { panic!("{warned:?}") };
    for part in ["25/1", "50/1", "dist_sink", "videorate", "pairing-tolerance"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(warnings(&distorted).0, [""; 0]);
    let wide = distorted.with_caps(|caps| caps.set("pixel-aspect-ratio", gst::Fraction::new(4, 3)));
    let [text] = &warnings(&wide).0[..] else { panic!("one warning is due") };
    assert!(text.contains("4/3") && text.contains("1/1"), "{text}");
}

fn video_that_the_models_are_not_for_is_warned_of_once() {
    let hdr = |input: &Input| input.with_caps(|caps| caps.set("colorimetry", "bt2100-pq"));
    let (reference, distorted) = sides(&clip());
    let rig = Rig::offline(&[]).play();
    rig.run(&[("ref_sink", &hdr(&reference)), ("dist_sink", &hdr(&distorted))]).unwrap();
    let warnings = rig.log().warnings.clone();
    assert!(warnings.len() == 1 && warnings[0].contains("HDR (PQ)"), "{warnings:?}");
    assert!(warnings[0].contains("cvvdp=display=standard_hdr_pq"), "{warnings:?}");
}

/// ColorVideoVDP's display decides how samples become light.
fn a_display_of_another_kind_than_the_video_is_warned_of_once() {
    let (reference, distorted) = sides(&clip());
    let of = |colorimetry: &'static str, display: &str| {
        let tagged = |input: &Input| input.with_caps(|caps| caps.set("colorimetry", colorimetry));
        let rig = Rig::offline(&[("features", &format!("cvvdp=display={display}"))]).play();
        rig.run(&[("ref_sink", &tagged(&reference)), ("dist_sink", &tagged(&distorted))]).unwrap();
        let warnings = rig.log().warnings.clone();
        warnings.into_iter().filter(|text| !text.contains("is HDR")).collect::<Vec<_>>()
    };
    assert_eq!(of("bt2100-pq", "standard_hdr_pq"), [""; 0]);
    assert_eq!(of("bt709", "standard_fhd"), [""; 0]);
    let [text] = &of("bt2100-pq", "standard_fhd")[..] else { panic!("one warning is due") };
    assert!(
        text.contains("is PQ") && text.contains("standard_fhd") && text.contains("standard_hdr_pq"),
        "{text}"
    );
    let [text] = &of("bt709", "standard_hdr_hlg")[..] else { panic!("one warning is due") };
    assert!(
        text.contains("is SDR") && text.contains("standard_hdr_hlg") && text.contains("standard_4k"),
        "{text}"
    );
}

fn a_short_reference_ends_the_stream() {
    let clip = clip();
    let (reference, distorted) = sides(&clip);
    let report = score(&[], &reference.keep(|t| t < 4), &distorted).unwrap();
    assert_eq!((report.frames.len(), report.buffers.len()), (4, 4));
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.unpaired), (4, 0));
}

fn streams_without_a_pair_say_so() {
    let clip = clip();
    let (reference, distorted) = sides(&clip);
    let report = score(&[], &reference, &distorted.keep(|_| false)).unwrap();
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.unpaired), (0, 10));
    assert!(report.pooled[0].score.is_nan(), "no score is not a score of zero");
    let report = score(&[], &reference.keep(|_| false), &distorted).unwrap();
    assert_eq!((report.pooled.len(), report.buffers.len()), (0, 0));
}

fn a_lost_frame_changes_no_other_score() {
    let clip = clip();
    let (reference, distorted) = sides(&clip);
    let report = score(&[], &reference, &distorted.keep(|t| t != 4)).unwrap();
    let mut whole = score(&[], &reference, &distorted).unwrap().scores();
    whole.remove(4);
    assert_eq!(report.scores(), whole);
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.unpaired), (9, 1));
    assert!(report.frames.iter().all(|frame| !frame.discont));
    assert_eq!(report.states()[4], ScoreState::Unpaired);
}

fn a_frame_lost_from_the_reference_is_dropped_from_the_distorted_stream() {
    let clip = clip();
    let (reference, distorted) = sides(&clip);
    let lost = reference.keep(|t| t != 4);
    let report = score(&[], &lost, &distorted).unwrap();
    let same = score(&[], &lost, &distorted.keep(|t| t != 4)).unwrap();
    assert_eq!(report.scores(), same.scores());
    assert_eq!(report.stats.unwrap().get::<u64>("dist-unmatched"), Ok(1));
}

fn gap_buffers_count_as_missing_frames() {
    let clip = clip();
    let (reference, distorted) = sides(&clip);
    let gap = |input: &Input| {
        let mut input = input.clone();
        let mut buffer = gst::Buffer::new();
        let buffer_ref = buffer.make_mut();
        buffer_ref.set_pts(FRAME * 4);
        buffer_ref.set_duration(FRAME);
        buffer_ref.set_flags(gst::BufferFlags::GAP);
        input.0[4] = gst::Sample::builder().buffer(&buffer).caps(&input.0[4].caps_owned().unwrap()).build();
        input
    };
    let lost = score(&[], &reference, &distorted.keep(|t| t != 4)).unwrap();
    assert_eq!(score(&[], &reference, &gap(&distorted)).unwrap().scores(), lost.scores());
    let lost = score(&[], &reference.keep(|t| t != 4), &distorted).unwrap();
    assert_eq!(score(&[], &gap(&reference), &distorted).unwrap().scores(), lost.scores());
}

fn jitter_under_half_a_frame_changes_nothing() {
    let clip = clip();
    let (reference, distorted) = sides(&clip);
    let jitter = |t: usize| Some(FRAME * t as u64 + gst::ClockTime::from_mseconds([0, 19, 7, 13][t % 4]));
    let report = score(&[], &reference, &distorted.retimed(jitter)).unwrap();
    assert_eq!(report.scores(), score_clip(&[], &clip).scores());
    assert_eq!(report.frames[1].dist_running_time, Some(gst::ClockTime::from_mseconds(59)));
    // `pairing-tolerance` sets how far apart the times of a pair may be.
    let strict = [("pairing-tolerance", "10000000")];
    let report = score(&strict, &reference, &distorted.retimed(jitter)).unwrap();
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.unpaired), (5, 5));
}

fn twice_the_frame_rate_pairs_what_belongs_together() {
    let clip = clip();
    let (reference, distorted) = sides(&clip);
    // Every second distorted frame has no reference: one of nine lies between two reference frames.
    let double = Input((0..20).map(|i| distorted.0[i / 2].clone()).collect());
    let double = double.retimed(|i| Some(FRAME * i as u64 / 2));
    let report = score(&[], &reference, &double).unwrap();
    assert_eq!(report.scores(), score_clip(&[], &clip).scores());
    assert_eq!(report.pooled[0].counts.unpaired, 0);
}

fn missing_timestamps_are_counted_by_the_frame_rate() {
    let clip = clip();
    let (reference, distorted) = sides(&clip);
    let untimed = |input: &Input| input.retimed(|_| None);
    let report = score(&[], &untimed(&reference), &untimed(&distorted)).unwrap();
    assert_eq!(report.scores(), score_clip(&[], &clip).scores());
    assert_eq!(report.frames[3].timestamp, Some(FRAME * 3));
}

fn a_second_run_scores_like_the_first() {
    let clip = clip();
    let (reference, distorted) = sides(&clip);
    let bench = Bench::new(&[]);
    let first = bench.run(&reference, &distorted).unwrap();
    for state in [gst::State::Ready, gst::State::Null] {
        bench.pipeline.set_state(state).unwrap();
        let again = bench.run(&reference, &distorted).unwrap();
        assert_eq!(again.scores(), first.scores());
        assert_eq!((again.frames[0].index, again.frames[0].section), (0, 0));
        assert_eq!(again.stats.unwrap().get::<u64>("frames-scored"), Ok(clip.frames as u64));
    }
}

fn new_caps_begin_a_new_section() {
    let small = clips().into_iter().find(|clip| clip.name == "97x71_420_8bit").unwrap();
    let large = clip();
    let (reference, distorted) = sides(&small);
    let (reference_large, distorted_large) = sides(&large);
    let report = score(&[], &reference.then(&reference_large), &distorted.then(&distorted_large)).unwrap();
    let alone = [score_clip(&[], &small), score_clip(&[], &large)];
    assert_eq!(report.scores(), [alone[0].scores(), alone[1].scores()].concat());
    let [caps, eos] = report.pooled.as_slice() else { panic!("{:?}", report.pooled) };
    assert_eq!((caps.reason.as_str(), caps.section, caps.counts.scored), ("caps", 0, 6));
    assert_eq!((eos.reason.as_str(), eos.section, eos.counts.scored), ("eos", 1, 10));
    assert_eq!((caps.score, eos.score), (alone[0].pooled[0].score, alone[1].pooled[0].score));
    assert_eq!(report.buffers.len(), 16);
    assert_eq!(report.metas()[6].section, 1);
}

/// The reference as a file, which supports seeking, against itself with every sample changed a little.
fn a_flushing_seek_begins_anew() {
    crate::common::init();
    let clip = clip();
    let folder = tempfile::tempdir().unwrap();
    let file = |distorted| {
        let path = folder.path().join(if distorted { "dist.yuv" } else { "ref.yuv" });
        let frames = (0..clip.frames).flat_map(|t| clip.bytes(t, distorted));
        std::fs::write(&path, frames.collect::<Vec<u8>>()).unwrap();
        format!("filesrc location={} ! rawvideoparse width=176 height=144 framerate=25/1", path.display())
    };
    let pipeline = format!(
        "{} ! queue ! h.ref_sink {} ! queue ! h.dist_sink hipvmaf name=h frame-message=true ! fakesink",
        file(false),
        file(true)
    );
    let pipeline = gst::parse::launch(&pipeline).unwrap().downcast::<gst::Pipeline>().unwrap();
    let bus = pipeline.bus().unwrap();
    let until_eos = || {
        let mut scores = vec![];
        let mut reasons = vec![];
        loop {
            let message = bus.timed_pop(gst::ClockTime::from_seconds(60)).expect("an end");
            match message.view() {
                gst::MessageView::Element(element) => {
                    match VmafMessage::try_from(element.structure().unwrap()).unwrap() {
                        VmafMessage::Frame(frame) => scores.push((frame.section, frame.score)),
                        VmafMessage::Pooled(pooled) => reasons.push(pooled.reason),
                        VmafMessage::Window(_) => {}
                    }
                }
                gst::MessageView::Error(err) => panic!("{err:?}"),
                gst::MessageView::Eos(_) => return (scores, reasons),
                _ => {}
            }
        }
    };
    let seek =
        |position| pipeline.seek_simple(gst::SeekFlags::FLUSH | gst::SeekFlags::ACCURATE, position).unwrap();

    pipeline.set_state(gst::State::Playing).unwrap();
    let (all, reasons) = until_eos();
    assert_eq!(reasons, ["eos"]);
    let scores: Vec<f64> = all.iter().map(|(_, score)| *score).collect();
    assert_eq!(scores, score_clip(&[], &clip).scores());
    assert_eq!(
        pipeline.query_position::<gst::ClockTime>(),
        Some(FRAME * clip.frames as u64),
        "answered by the reference"
    );

    // Seeks from the end to the middle: the frames from there are scored as a stream of their own.
    seek(FRAME * 6);
    let (rest, _) = until_eos();
    let (reference, distorted) = sides(&clip);
    let alone = score(&[], &reference.keep(|t| t >= 6), &distorted.keep(|t| t >= 6)).unwrap();
    assert_eq!(rest.iter().map(|(_, score)| *score).collect::<Vec<_>>(), alone.scores());
    assert!(rest.iter().all(|(section, _)| *section > all[0].0));

    // Seeks while frames are on their way.
    pipeline.set_state(gst::State::Paused).unwrap();
    for position in [0, 3, 0] {
        seek(FRAME * position);
        pipeline.state(gst::ClockTime::from_seconds(60)).0.unwrap();
    }
    pipeline.set_state(gst::State::Playing).unwrap();
    let (again, _) = until_eos();
    let last = again.last().unwrap().0;
    let again: Vec<f64> =
        again.iter().filter(|(section, _)| *section == last).map(|(_, score)| *score).collect();
    assert_eq!(again, scores);
    pipeline.set_state(gst::State::Null).unwrap();
}

/// Returns a rig with 100 pairs in the element, of which the first is on its way downstream.
fn full() -> Rig {
    let (reference, distorted) = crate::common::sides(100);
    let rig = Rig::offline(&[("latency", "10000000000")]).play();
    rig.close();
    rig.push_pairs(&reference.0, &distorted.0);
    rig.wait(|log| log.blocked);
    rig
}

fn a_seek_does_not_wait_for_the_frames_before_it() {
    let rig = full();
    rig.pad("src").send_event(seek_to_start());
    let scored = rig.log().report.frames.len();
    assert!(scored < 50, "{scored} frames were scored first");
}

fn a_stop_does_not_wait_for_the_frames_before_it() {
    let rig = full();
    std::thread::scope(|scope| {
        scope.spawn(|| rig.element.set_state(gst::State::Ready).unwrap());
        while !rig.pad("src").pad_flags().contains(gst::PadFlags::FLUSHING) {
            std::thread::yield_now();
        }
        rig.open();
    });
    let scored = rig.log().report.frames.len();
    assert!(scored < 50, "{scored} frames were scored first");
}

fn absurd_durations_do_no_harm() {
    let clip = clip();
    let absurd = |distorted| {
        let mut input = Input::planar(&clip, distorted);
        for sample in &mut input.0 {
            let mut buffer = sample.buffer_owned().unwrap();
            buffer.make_mut().set_duration(gst::ClockTime::from_nseconds(u64::MAX - 1));
            *sample = gst::Sample::builder().buffer(&buffer).caps(&sample.caps_owned().unwrap()).build();
        }
        input
    };
    let report = score(&[], &absurd(false), &absurd(true)).unwrap();
    assert_eq!(report.scores(), score_clip(&[], &clip).scores());
}

/// A live reference goes on when the distorted video stops coming: frames leave at their deadline.
fn live_reference_frames_do_not_wait_for_ever() {
    let clip = clip();
    let bench = Bench::new(&[]);
    for name in ["ref", "dist"] {
        bench.pipeline.by_name(name).unwrap().set_property("is-live", true);
    }
    let clock = gst_check::TestClock::new();
    bench.pipeline.use_clock(Some(&clock));
    let (reference, distorted) = sides(&clip);
    bench.pipeline.set_state(gst::State::Playing).unwrap();
    let sources = ["ref", "dist"]
        .map(|name| bench.pipeline.by_name(name).unwrap().downcast::<gst_app::AppSrc>().unwrap());
    for sample in &distorted.0[..4] {
        sources[1].push_sample(sample).unwrap();
    }
    // No end of stream on the distorted side: only the clock ends the wait.
    for sample in &reference.0 {
        sources[0].push_sample(sample).unwrap();
    }
    sources[0].end_of_stream().unwrap();
    // The clock does not move before all available pairs are scored.
    let paired = || bench.element.property::<gst::Structure>("stats").get::<u64>("frames-scored") == Ok(3);
    while !paired() {
        std::thread::yield_now();
    }
    let ended = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                clock.advance_time(10_000_000);
                while clock.process_next_clock_id().is_some() {}
                std::thread::yield_now();
            }
        });
        let report = bench.collect();
        ended.store(true, Ordering::Relaxed);
        report.unwrap()
    });
    assert_eq!(report.buffers.len(), clip.frames);
    assert_eq!((report.pooled[0].counts.scored, report.pooled[0].counts.unpaired), (4, 6));
    let expected = score(&[], &reference.keep(|t| t < 4), &distorted.keep(|t| t < 4)).unwrap();
    assert_eq!(report.scores(), expected.scores());
}

fn a_live_element_answers_the_latency_query() {
    crate::common::init();
    let latency = |attach: bool| {
        let pipeline = gst::parse::launch(&format!(
            "videotestsrc is-live=true num-buffers=3 ! video/x-raw,width=64,height=64,framerate=25/1 ! h.ref_sink \
             videotestsrc is-live=true num-buffers=3 ! video/x-raw,width=64,height=64,framerate=25/1 ! h.dist_sink \
             hipvmaf name=h attach-meta={attach} ! fakesink"
        ));
        let pipeline = pipeline.unwrap().downcast::<gst::Pipeline>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        pipeline
            .bus()
            .unwrap()
            .timed_pop_filtered(gst::ClockTime::from_seconds(60), &[gst::MessageType::Eos])
            .unwrap();
        let mut query = gst::query::Latency::new();
        assert!(pipeline.by_name("h").unwrap().static_pad("src").unwrap().query(&mut query));
        pipeline.set_state(gst::State::Null).unwrap();
        let (live, min, _) = query.result();
        assert!(live);
        min
    };
    // The score waits for the next frame, and the deadline has a granularity of one frame.
    assert_eq!(latency(true), latency(false) + FRAME * 2);
}

/// When both streams change their format, one changes before the other; the formats do not differ then.
fn no_warning_while_both_streams_change() {
    let part = |size, rate| {
        Input::drawn_at(size, 4, moving).with_caps(|caps| caps.set("framerate", gst::Fraction::new(rate, 1)))
    };
    let reference = part((64, 48), 25).then(&part((96, 64), 50));
    let distorted = part((32, 24), 25).then(&part((48, 32), 50));
    let ends = part((32, 24), 25);
    for first in ["ref_sink", "dist_sink"] {
        let rig = Rig::offline(&[("scale-method", "bicubic")]).with_renditions(&["ends"]).play();
        for t in 0..4 {
            for (pad, input) in [("ref_sink", &reference), ("dist_sink", &distorted), ("dist_0", &ends)] {
                rig.push(pad, &input.0[t]);
            }
        }
        rig.end_of("dist_0");
        let mut both = [("ref_sink", &reference), ("dist_sink", &distorted)];
        both.sort_by_key(|(pad, _)| *pad != first);
        for t in 4..8 {
            both.iter().for_each(|(pad, input)| rig.push(pad, &input.0[t]));
        }
        rig.end_of("ref_sink");
        rig.end_of("dist_sink");
        let report = rig.finish().unwrap();
        assert_eq!(report.scores_of("dist_sink").len(), 8, "{first}");
        assert_eq!(rig.log().warnings, [""; 0], "{first}");
    }
}

fn a_converter_before_the_distorted_pad_picks_the_size_of_the_reference() {
    crate::common::init();
    let pipeline = gst::parse::launch(
        "appsrc name=ref format=time ! h.ref_sink appsrc name=dist format=time ! videoconvertscale ! h.dist_sink \
         hipvmaf name=h ! fakesink",
    );
    let pipeline = pipeline.unwrap().downcast::<gst::Pipeline>().unwrap();
    let push = |name: &str, sample: &gst::Sample| {
        let source = pipeline.by_name(name).unwrap().downcast::<gst_app::AppSrc>().unwrap();
        source.push_sample(sample).unwrap();
        source
    };
    pipeline.set_state(gst::State::Playing).unwrap();
    let (reference, _) = sides(&clip());
    let reference = push("ref", &reference.0[0]);
    // Its caps have to be here before the converter asks for them.
    let pad = pipeline.by_name("h").unwrap().static_pad("ref_sink").unwrap();
    while pad.current_caps().is_none() || pad.peer_query_caps(None).is_any() {
        std::thread::yield_now();
    }
    let small = clips().into_iter().find(|clip| clip.name == "97x71_422_10bit").unwrap();
    let distorted = push("dist", &Input::planar(&small, true).0[0]);
    reference.end_of_stream().unwrap();
    distorted.end_of_stream().unwrap();
    let end = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &end).unwrap();
    assert!(matches!(end.view(), gst::MessageView::Eos(_)), "{end:?}");
    pipeline.set_state(gst::State::Null).unwrap();
}

/// One source feeds both pads and sends a caps query to both before it decides. The converter sends its query again once it
/// knows the input caps, which may be a moment before the reference has caps.
fn a_converter_behind_a_tee_picks_the_size_of_the_reference() {
    crate::common::init();
    let part = |line: &str| gst::parse::bin_from_description(line, true).unwrap();
    let source = part(
        "videotestsrc name=source num-buffers=3 ! capsfilter caps=video/x-raw,format=I420,width=64,height=48",
    );
    let convert = part("queue ! videoconvertscale ! video/x-raw,width=32,height=24 ! videoconvertscale");
    let line = "tee name=tee ! queue name=late ! h.ref_sink hipvmaf name=h backend=cpu ! fakesink";
    let pipeline = gst::parse::launch(line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let element = |name: &str| pipeline.by_name(name).unwrap();
    pipeline.add_many([&source, &convert]).unwrap();
    gst::Element::link_many([source.upcast_ref(), &element("tee"), convert.upcast_ref()]).unwrap();
    convert.link_pads(None, &element("h"), Some("dist_sink")).unwrap();
    let pad = |name: &str, pad: &str| element(name).static_pad(pad).unwrap();
    let (source, distorted) = (pad("source", "src"), pad("h", "dist_sink"));
    // The thread of the last caps query on the distorted pad, and the widths of the caps that arrived there.
    let (asking, widths) = (Arc::new(AtomicI32::new(0)), Arc::new(Mutex::new(vec![])));
    let (asks, comes) = (asking.clone(), widths.clone());
    let both = gst::PadProbeType::QUERY_DOWNSTREAM | gst::PadProbeType::EVENT_DOWNSTREAM;
    distorted.add_probe(both, move |_, info| {
        if let Some(gst::EventView::Caps(caps)) = info.event().map(|event| event.view()) {
            comes.lock().unwrap().push(caps.caps().structure(0).unwrap().get::<i32>("width").unwrap());
        } else if info.query().is_some_and(|query| query.type_() == gst::QueryType::Caps)
            && source.has_current_caps()
        {
            asks.store(thread_id(), Ordering::Release);
        }
        gst::PadProbeReturn::Ok
    });
    let come = widths.clone();
    pad("late", "src").add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        if info.event().is_some_and(|event| event.type_() == gst::EventType::Caps) {
            // The converter waits for these caps, or has gone on without them.
            let asking = || Some(asking.load(Ordering::Acquire)).filter(|thread| *thread != 0);
            until(|| asking().is_some_and(is_asleep) || !come.lock().unwrap().is_empty());
        }
        gst::PadProbeReturn::Ok
    });
    pipeline.set_state(gst::State::Playing).unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error, gst::MessageType::Warning];
    let message =
        pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds).unwrap();
    assert!(matches!(message.view(), gst::MessageView::Eos(_)), "{message:?}");
    let stats = element("h").property::<gst::Structure>("stats");
    assert_eq!((stats.get::<u64>("frames-scored"), &*widths.lock().unwrap()), (Ok(3), &vec![64]));
    pipeline.set_state(gst::State::Null).unwrap();
}
