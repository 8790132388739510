// SPDX-License-Identifier: MPL-2.0

//! Seeks at random times while the pipeline plays.

use std::error::Error;

use gst::prelude::*;
use gst::{ClockTime, MessageView, PadProbeReturn, PadProbeType, SeekFlags};
use gsthipvmaf::message::{FrameMessage, VmafMessage};

use crate::checks::Memory;
use crate::number::{self, LOWEST_PSNR};
use crate::random::Random;
use crate::watchdog::Watchdog;

const FRAME: ClockTime = ClockTime::from_mseconds(40);
/// The number of frames of the video.
const LENGTH: u64 = 2500;

/// Seeks this many times. Returns the faults.
pub fn run(seeks: u32, seed: u64) -> Result<Vec<String>, Box<dyn Error>> {
    // The sink does not preroll. Seeks do not wait for the one before here, in which case a pipeline may lose the state of
    // its sinks and stay paused.
    let pipeline = gst::parse::launch(
        "videotestsrc name=source pattern=ball ! capsfilter name=size \
         caps=video/x-raw,format=I420,width=192,height=108,framerate=25/1 ! tee name=film \
         film. ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=2000000000 ! score.ref_sink \
         film. ! queue ! x264enc bitrate=600 tune=zerolatency speed-preset=veryfast threads=1 \
         ! avdec_h264 max-threads=1 ! queue ! score.dist_sink \
         hipvmaf name=score frame-message=true psnr=true ! fakesink sync=false async=false",
    )?
    .downcast::<gst::Pipeline>()
    .map_err(|_| "not a pipeline")?;
    let by_name = |name| pipeline.by_name(name).ok_or_else(|| format!("no element {name} in the pipeline"));
    let (source, size) = (by_name("source")?, by_name("size")?);
    draw_numbers(&size.static_pad("src").ok_or("capsfilter has no source pad")?);
    let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
    let dog = Watchdog::new("seeks");
    let mut random = Random(seed);
    let mut memory = Memory::default();
    let mut faults = vec![];
    let mut scored = 0u64;
    pipeline.set_state(gst::State::Playing)?;
    for turn in 0..seeks {
        if turn % 10 == 0 {
            memory.sample();
        }
        // Some seeks follow each other at once, others after some frames. Messages of the last run are taken as well, so
        // that the next turn waits for frames of its own.
        let mut frames = random.below(12);
        while let Some(message) = bus.timed_pop((frames == 0).then_some(ClockTime::ZERO)) {
            match message.view() {
                MessageView::Error(error) => {
                    return Err(format!("seeks: {} ({:?})", error.error().message(), error.debug()).into());
                }
                MessageView::Eos(_) => frames = 0,
                _ => {}
            }
            if let Some(Ok(VmafMessage::Frame(frame))) = message.structure().map(VmafMessage::try_from) {
                faults.extend(fault(&frame).filter(|_| faults.len() < 10));
                frames = frames.saturating_sub(1);
                scored += 1;
                dog.feed();
            }
        }
        let to = FRAME * random.below(LENGTH);
        let flags =
            SeekFlags::FLUSH | if random.below(2) == 0 { SeekFlags::ACCURATE } else { SeekFlags::empty() };
        // Seeks as an application does, or from upstream, as a source does that flushes by itself.
        match random.below(3) {
            0 => source.seek_simple(flags, to)?,
            _ => pipeline.seek_simple(flags, to)?,
        }
        dog.feed();
    }
    // After the last seek, scores are as without any seek.
    let end = FRAME * 50;
    pipeline.seek(1.0, SeekFlags::FLUSH, gst::SeekType::Set, ClockTime::ZERO, gst::SeekType::Set, end)?;
    let mut last = None;
    loop {
        let Some(message) = bus.timed_pop(10 * ClockTime::SECOND) else { continue };
        match message.view() {
            MessageView::Error(error) => return Err(format!("seeks: {}", error.error().message()).into()),
            MessageView::Eos(_) => break,
            _ => {}
        }
        match message.structure().map(VmafMessage::try_from) {
            Some(Ok(VmafMessage::Frame(frame))) => faults.extend(fault(&frame).filter(|_| faults.len() < 10)),
            Some(Ok(VmafMessage::Pooled(pooled))) => {
                last = Some((pooled.counts.scored, pooled.counts.unpaired))
            }
            _ => {}
        }
    }
    pipeline.set_state(gst::State::Null)?;
    if last != Some((50, 0)) {
        faults.push(format!("seeks: of 50 frames after the last seek were scored and missing: {last:?}"));
    }
    println!("seeks: {seeks}, {scored} frames scored between, {}", memory.summary());
    faults.extend(memory.fault("seeks"));
    Ok(faults)
}

/// Returns the fault of a score. Nothing changes the timestamps of the distorted video here, so they are equal.
fn fault(frame: &FrameMessage) -> Option<String> {
    let (reference, distorted) = (frame.running_time, frame.dist_running_time);
    if reference != distorted {
        return Some(format!("seeks: the frame at {reference:?} was compared with that at {distorted:?}"));
    }
    let psnr = frame.psnr_y.filter(|psnr| *psnr < LOWEST_PSNR)?;
    Some(format!("seeks: the frame at {reference:?} was compared with another, PSNR is {psnr:.1} dB"))
}

/// Draws into each frame the number of its time.
fn draw_numbers(pad: &gst::Pad) {
    pad.add_probe(PadProbeType::BUFFER, move |pad, info| {
        if let (Some(format), Some(buffer)) = (number::info(pad), info.buffer_mut()) {
            let at = buffer.pts().unwrap_or_default();
            // Without a number, PSNR detects fewer faults; the other checks hold.
            let _ = number::write(buffer.make_mut(), &format, at / FRAME);
        }
        PadProbeReturn::Ok
    });
}
