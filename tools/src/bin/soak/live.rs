// SPDX-License-Identifier: MPL-2.0

//! Two encoders send over RTP to the element. Packets are lost, senders are started anew, the size changes.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst::{ClockTime, MessageView, PadProbeReturn, PadProbeType, Structure};
use gsthipvmaf::event::EventMessage;
use gsthipvmaf::message::VmafMessage;
use parking_lot::Mutex;

use crate::checks::{Memory, Rendition};
use crate::number;
use crate::random::Random;
use crate::watchdog::Watchdog;

/// The sizes of the video, all at least as wide as the number in each frame.
const SIZES: [(i32, i32); 3] = [(192, 108), (256, 144), (320, 180)];
/// Seconds between changes of the size, and between restarts of a sender, which are half of that later.
const TURN: u64 = 6;
/// The seconds after which each of three sizes has occurred with each of two senders.
const TURNS: u64 = 6 * TURN;
/// The calm seconds in which memory is measured. Frames in queues must not count, nor the free buffers of pools, which are
/// kept until the size changes. So queues run empty, a few frames of another size follow, and then there is neither a frame
/// nor a sender.
const CALM: u64 = 4;
const CYCLE: u64 = TURNS + CALM;
const CALM_SIZE: (i32, i32) = (208, 116);
const CALM_FRAMES: u64 = 5;
/// The number of losses per 1000 frames.
const LOSS: u64 = 10;
/// The maximum number of frames in a loss.
const BURST: u64 = 10;

const RTP: &str = "application/x-rtp,media=video,clock-rate=90000,encoding-name=H264,payload=96";

type Renditions = Arc<Mutex<Vec<Rendition>>>;

/// Runs for this many seconds. Returns the faults.
pub fn run(duration: u64, seed: u64) -> Result<Vec<String>, Box<dyn Error>> {
    let pipeline = gst::parse::launch(
        "videotestsrc name=source is-live=true pattern=ball ! capsfilter name=size ! tee name=film allow-not-linked=true \
         film. ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=5000000000 ! score.ref_sink \
         hipvmaf name=score latency=300000000 overload=wait frame-message=true psnr=true window=2000000000 \
         ! fakesink async=false",
    )?
    .downcast::<gst::Pipeline>()
    .map_err(|_| "not a pipeline")?;
    let by_name = |name| pipeline.by_name(name).ok_or_else(|| format!("no element {name} in the pipeline"));
    let (source, size, film, score) =
        (by_name("source")?, by_name("size")?, by_name("film")?, by_name("score")?);
    resize(&size, SIZES[0]);
    let admitted = Arc::new(AtomicU64::new(u64::MAX));
    admit(&source.static_pad("src").ok_or("videotestsrc has no source pad")?, &admitted);

    let renditions: Renditions = Arc::default();
    draw_numbers(&size.static_pad("src").ok_or("capsfilter has no source pad")?);
    watch_reference(&score.static_pad("ref_sink").ok_or("no ref_sink")?, &renditions);
    let mut senders = vec![];
    let mut pads = vec![];
    for (i, kbits) in [600, 300].into_iter().enumerate() {
        let pad = if i == 0 { score.static_pad("dist_sink") } else { score.request_pad_simple("dist_%u") };
        let pad = pad.ok_or("no pad for this rendition")?;
        renditions.lock().push(Rendition::new(format!("{kbits} kbit/s")));
        watch_distorted(&pad, i, &renditions);
        let port = receive(&pipeline, &pad)?;
        let random = Random(seed + i as u64);
        senders.push(Sender { i, kbits, port, random, renditions: renditions.clone(), sending: None });
        pads.push(pad);
    }
    for sender in &mut senders {
        sender.start(&pipeline, &film)?;
    }
    pipeline.set_state(gst::State::Playing)?;

    let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
    let dog = Watchdog::new("live");
    // A late second does not shorten the next one, because the calm part needs its time.
    let (mut begun, mut second) = (Instant::now(), 0u64);
    let mut memory = Memory::default();
    let mut ended = false;
    loop {
        if begun.elapsed() >= Duration::from_secs(1) && !ended {
            begun = Instant::now();
            second += 1;
            if second.is_multiple_of(CYCLE) {
                memory.sample();
            }
            if second >= duration {
                ended = source.send_event(gst::event::Eos::new());
            } else {
                let at = second % CYCLE;
                match at.checked_sub(TURNS) {
                    Some(calm) => calm_down(calm, &size, &admitted, &mut senders, &pipeline, &film)?,
                    None => {
                        admitted.store(u64::MAX, Ordering::Relaxed);
                        disturb(at, &size, &mut senders, &pipeline, &film)?;
                    }
                }
            }
        }
        let Some(message) = bus.timed_pop(100 * ClockTime::MSECOND) else { continue };
        match message.view() {
            MessageView::Element(element) => {
                if let Some(structure) = element.structure() {
                    take(structure, &renditions, &pads, &dog);
                }
            }
            MessageView::Error(error) => {
                return Err(format!("live: {} ({:?})", error.error().message(), error.debug()).into());
            }
            MessageView::Latency(_) => pipeline.recalculate_latency()?,
            MessageView::Eos(_) => break,
            _ => {}
        }
    }
    let stats: Vec<_> = pads.iter().map(|pad| pad.property::<Option<Structure>>("stats")).collect();
    pipeline.set_state(gst::State::Null)?;

    println!("live: {duration} s, {}", memory.summary());
    let mut faults: Vec<_> = memory.fault("live").into_iter().collect();
    for (rendition, stats) in renditions.lock().iter_mut().zip(stats) {
        let count = |name| stats.as_ref().and_then(|stats| stats.get::<u64>(name).ok()).unwrap_or_default();
        rendition.end(count("frames-unpaired"), count("dist-unmatched"));
        let counts = rendition.counts;
        println!(
            "live: {}: {} frames, {} scored; {} lost on purpose, {} missing and reported in {} gaps, {} not to be scored, {} too late",
            rendition.label,
            counts.reference,
            counts.scored,
            counts.injected,
            counts.reported,
            counts.gaps,
            counts.failed,
            count("dist-unmatched")
        );
        if counts.scored < counts.reference / 2 {
            faults.push(format!("{}: most frames were not scored", rendition.label));
        }
        if counts.injected == 0 && duration >= CYCLE {
            faults.push(format!("{}: nothing was lost on purpose", rendition.label));
        }
        faults.append(&mut rendition.faults);
    }
    Ok(faults)
}

/// Checks a message of the element.
fn take(structure: &gst::StructureRef, renditions: &Renditions, pads: &[gst::Pad], dog: &Watchdog) {
    let place = |name: &str| pads.iter().position(|pad| pad.name() == name);
    if let Ok(VmafMessage::Frame(frame)) = VmafMessage::try_from(structure) {
        dog.feed();
        if let Some(i) = place(&frame.pad) {
            renditions.lock()[i].scored(&frame);
        }
    } else if let Ok(event) = EventMessage::try_from(structure)
        && let Some(i) = place(&event.pad)
    {
        renditions.lock()[i].event(&event);
    }
}

/// Changes the size at the start of a turn, starts the senders that are stopped, and stops one in the middle of the turn.
fn disturb(
    second: u64,
    size: &gst::Element,
    senders: &mut [Sender],
    pipeline: &gst::Pipeline,
    film: &gst::Element,
) -> Result<(), Box<dyn Error>> {
    let turn = (second / TURN) as usize;
    if second.is_multiple_of(TURN) {
        resize(size, SIZES[turn % SIZES.len()]);
    }
    for sender in senders.iter_mut().filter(|sender| sender.sending.is_none()) {
        sender.start(pipeline, film)?;
    }
    if second % TURN == TURN / 2 {
        let next = turn % senders.len();
        senders[next].stop(pipeline, film)?;
    }
    Ok(())
}

/// Admits no more frames, sets the last size, admits the last frames, and then stops the senders.
fn calm_down(
    second: u64,
    size: &gst::Element,
    admitted: &AtomicU64,
    senders: &mut [Sender],
    pipeline: &gst::Pipeline,
    film: &gst::Element,
) -> Result<(), Box<dyn Error>> {
    match second {
        0 => admitted.store(0, Ordering::Relaxed),
        1 => {
            resize(size, CALM_SIZE);
            admitted.store(CALM_FRAMES, Ordering::Relaxed);
        }
        _ => senders.iter_mut().try_for_each(|sender| sender.stop(pipeline, film))?,
    }
    Ok(())
}

fn resize(size: &gst::Element, (width, height): (i32, i32)) {
    let caps = gst_video::VideoCapsBuilder::new()
        .format(gst_video::VideoFormat::I420)
        .width(width)
        .height(height)
        .framerate(gst::Fraction::new(25, 1));
    size.set_property("caps", caps.build());
}

/// Drops frames unless they are `admitted`.
fn admit(pad: &gst::Pad, admitted: &Arc<AtomicU64>) {
    let admitted = admitted.clone();
    pad.add_probe(PadProbeType::BUFFER, move |_, _| {
        match admitted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => PadProbeReturn::Ok,
            Err(_) => PadProbeReturn::Drop,
        }
    });
}

/// Gives every frame its number.
fn draw_numbers(pad: &gst::Pad) {
    let next = Mutex::new(0);
    pad.add_probe(PadProbeType::BUFFER, move |pad, info| {
        let mut next = next.lock();
        if let (Some(format), Some(buffer)) = (number::info(pad), info.buffer_mut()) {
            // A frame without a number is reported by the checks.
            let _ = number::write(buffer.make_mut(), &format, *next);
            *next += 1;
        }
        PadProbeReturn::Ok
    });
}

fn watch_reference(pad: &gst::Pad, renditions: &Renditions) {
    let renditions = renditions.clone();
    pad.add_probe(PadProbeType::BUFFER, move |pad, info| {
        if let Some((at, number)) = info.buffer().and_then(|buffer| look(pad, buffer)) {
            for rendition in renditions.lock().iter_mut() {
                rendition.reference(at, number);
            }
        }
        PadProbeReturn::Ok
    });
}

fn watch_distorted(pad: &gst::Pad, i: usize, renditions: &Renditions) {
    let renditions = renditions.clone();
    pad.add_probe(PadProbeType::BUFFER, move |pad, info| {
        if let Some((at, number)) = info.buffer().and_then(|buffer| look(pad, buffer)) {
            renditions.lock()[i].distorted(at, number);
        }
        PadProbeReturn::Ok
    });
}

/// Returns the running time and the number of a frame.
fn look(pad: &gst::Pad, buffer: &gst::BufferRef) -> Option<(ClockTime, Option<u64>)> {
    Some((number::running_time(pad, buffer)?, number::read(buffer, &number::info(pad)?)))
}

/// Adds the receiver of a rendition. Returns its port.
fn receive(pipeline: &gst::Pipeline, pad: &gst::Pad) -> Result<i32, Box<dyn Error>> {
    let bin = gst::parse::bin_from_description(
        &format!(
            "udpsrc name=source address=127.0.0.1 port=0 caps=\"{RTP}\" ! rtpjitterbuffer name=jitter latency=100 \
             ! rtph264depay ! h264parse ! avdec_h264 max-threads=1 ! queue"
        ),
        true,
    )?;
    let jitter =
        bin.by_name("jitter").and_then(|jitter| jitter.static_pad("src")).ok_or("no jitter buffer")?;
    restore_times(&jitter);
    pipeline.add(&bin)?;
    bin.static_pad("src").ok_or("the receiver has no output")?.link(pad)?;
    let source = bin.by_name("source").ok_or("no source")?;
    // READY binds it to a free port.
    source.set_state(gst::State::Ready)?;
    Ok(source.property("port"))
}

/// Gives each packet the running time at which it was sent, computed from its RTP timestamp. Sender and receiver share
/// their clock here; with separate clocks, PTP does the same (`rfc7273-sync` of rtpjitterbuffer).
fn restore_times(pad: &gst::Pad) {
    let last = Mutex::new(0u64);
    pad.add_probe(PadProbeType::BUFFER, move |_, info| {
        let Some(buffer) = info.buffer_mut() else { return PadProbeReturn::Ok };
        let mut bytes = [0; 4];
        if buffer.copy_to_slice(4, &mut bytes).is_ok() {
            let mut last = last.lock();
            // The timestamp has 32 bits, in units of 1/90 kHz.
            let step = u32::from_be_bytes(bytes).wrapping_sub(*last as u32).cast_signed();
            *last = last.saturating_add_signed(i64::from(step));
            let buffer = buffer.make_mut();
            buffer.set_pts(ClockTime::from_nseconds(last.saturating_mul(100_000) / 9));
            buffer.set_dts(ClockTime::NONE);
        }
        PadProbeReturn::Ok
    });
}

/// A sender that encodes a rendition and loses some of its packets.
struct Sender {
    i: usize,
    kbits: u32,
    port: i32,
    random: Random,
    renditions: Renditions,
    sending: Option<gst::Bin>,
}

impl Sender {
    /// Starts the sender with new sequence numbers and a new SSRC, like any sender that restarts.
    fn start(&mut self, pipeline: &gst::Pipeline, film: &gst::Element) -> Result<(), Box<dyn Error>> {
        let bin = gst::parse::bin_from_description(
            &format!(
                "queue leaky=downstream ! x264enc bitrate={} tune=zerolatency speed-preset=veryfast key-int-max=1 threads=1 \
                 ! rtph264pay name=pay timestamp-offset=0 config-interval=-1 \
                 ! udpsink host=127.0.0.1 port={} sync=false async=false",
                self.kbits, self.port
            ),
            true,
        )?;
        let pay = bin.by_name("pay").and_then(|pay| pay.static_pad("src")).ok_or("no payloader")?;
        lose(&pay, self.i, Random(self.random.next()), &self.renditions);
        pipeline.add(&bin)?;
        bin.sync_state_with_parent()?;
        film.link(&bin)?;
        self.sending = Some(bin);
        Ok(())
    }

    fn stop(&mut self, pipeline: &gst::Pipeline, film: &gst::Element) -> Result<(), Box<dyn Error>> {
        let Some(bin) = self.sending.take() else { return Ok(()) };
        let pad = bin.static_pad("sink").and_then(|sink| sink.peer()).ok_or("the sender is not linked")?;
        let (idle, unlinked) = mpsc::channel();
        pad.add_probe(PadProbeType::IDLE, move |pad, _| {
            if let Some(peer) = pad.peer() {
                // The receiver is gone if this fails.
                let _ = idle.send(pad.unlink(&peer));
            }
            PadProbeReturn::Remove
        });
        unlinked.recv()??;
        film.release_request_pad(&pad);
        bin.set_state(gst::State::Null)?;
        pipeline.remove(&bin)?;
        Ok(())
    }
}

/// Drops all packets of some frames.
fn lose(pad: &gst::Pad, i: usize, random: Random, renditions: &Renditions) {
    let renditions = renditions.clone();
    /// The frame whose packets come, whether it is lost, and how many more are.
    struct Loss {
        random: Random,
        frame: Option<ClockTime>,
        lost: bool,
        more: u64,
    }
    let loss = Mutex::new(Loss { random, frame: None, lost: false, more: 0 });
    pad.add_probe(PadProbeType::BUFFER | PadProbeType::BUFFER_LIST, move |pad, info| {
        let packet = info.buffer().map(|buffer| &**buffer).or_else(|| info.buffer_list()?.get(0));
        let Some(at) = packet.and_then(|packet| number::running_time(pad, packet)) else {
            return PadProbeReturn::Ok;
        };
        let mut loss = loss.lock();
        if loss.frame.replace(at) != Some(at) {
            if loss.more == 0 && loss.random.below(1000) < LOSS {
                loss.more = 1 + loss.random.below(BURST);
            }
            loss.lost = loss.more > 0;
            loss.more = loss.more.saturating_sub(1);
            if loss.lost {
                renditions.lock()[i].lose(at);
            }
        }
        if loss.lost { PadProbeReturn::Drop } else { PadProbeReturn::Ok }
    });
}
