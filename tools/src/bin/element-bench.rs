// SPDX-License-Identifier: MPL-2.0

//! Measures and checks the element in a pipeline, with prepared 8-bit frames:
//!
//! ```sh
//! cargo run --release -p hipvmaf-tools --bin element-bench -- --format NV12 --in-flight 16
//! cargo run --release -p hipvmaf-tools --bin element-bench -- --memory cuda --check 48
//! cargo run --release -p hipvmaf-tools --bin element-bench -- --channels 100 --fps 50 --seconds 10
//! cargo run --release -p hipvmaf-tools --bin element-bench -- --channels 200 --devices 0,1
//! ```
//!
//! The frames are made once, in memory that the element offers upstream, and sent again and again with new timestamps. So
//! only the pipeline is measured, or as many live pipelines as `--channels` says.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::Devices;
use clap::{Parser, ValueEnum};
use engine::random::noise;
use gst::prelude::*;
use gst::{ClockTime, MessageView};
use gst_app::{AppSrc, AppSrcCallbacks};
use gst_video::{VideoFormat, VideoFrameExt, VideoFrameRef, VideoInfo};
use gsthipvmaf::message::{FrameMessage, VmafMessage};
use parking_lot::Mutex;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Memory {
    /// Memory that the element offers for its GPU: page-locked memory
    Pinned,
    /// Ordinary memory
    System,
    /// Ordinary memory, from where `cudaupload` copies it into the GPU's
    Cuda,
}

/// Measure how fast the element scores, or check that it scores as the CPU does
#[derive(Parser)]
struct Args {
    /// Compare the scores of so many frames with those of backend=cpu, bit for bit
    #[arg(long, value_name = "FRAMES")]
    check: Option<u64>,
    #[arg(long, default_value = "hip")]
    backend: String,
    /// Where the frames lie
    #[arg(long, default_value = "pinned")]
    memory: Memory,
    /// Width and height of the frames
    #[arg(long, value_name = "WxH", value_parser = size, default_value = "1920x1080")]
    size: (u32, u32),
    /// Any with 8 bits
    #[arg(long, value_parser = format, default_value = "I420")]
    format: VideoFormat,
    /// Pairs of frames that take turns
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    pairs: u32,
    /// Pairs that the GPU works on at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    in_flight: u32,
    /// Let frames leave without their scores
    #[arg(long)]
    no_meta: bool,
    /// Follow so many live channels at a time, each in a pipeline of its own
    #[arg(long, value_name = "N", conflicts_with = "check", value_parser = clap::value_parser!(u32).range(1..=10000))]
    channels: Option<u32>,
    /// Numbers of the GPUs that channels are spread over, or that are checked; or all that can be used
    #[arg(long, value_name = "all|N,...")]
    devices: Option<Devices>,
    /// With --check and --memory cuda: the reference is in the memory of the first of --devices, the distorted frames in that
    /// of the second
    #[arg(long, requires = "check", requires = "devices")]
    split: bool,
    /// Frames per second of a live channel
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1000))]
    fps: u64,
    /// CPU threads of each element on the CPU backend, 0 for one per CPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: u32,
    /// Another property of the element, as in a launch line
    #[arg(long, value_name = "PROPERTY=VALUE")]
    set: Vec<String>,
    /// Shares of the groups that are verified, in turns within one process: processes differ by more than that costs
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',')]
    verify: Vec<f64>,
    /// Length of a run
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Runs, for the median; with --channels one after the other, a line for each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
}

fn size(text: &str) -> Result<(u32, u32), String> {
    let sides = text.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    sides
        .filter(|(w, h)| (1..=16384).contains(w) && (1..=16384).contains(h))
        .ok_or("not like 1920x1080".into())
}

fn format(text: &str) -> Result<VideoFormat, String> {
    let format = VideoFormat::from_string(text);
    let info = gst_video::VideoFormatInfo::from_format(format);
    (info.is_yuv() && info.depth()[0] == 8).then_some(format).ok_or("not a format with 8 bits".into())
}

/// One side of the comparison: its pad and its picture.
#[derive(Clone)]
struct Side {
    pad: &'static str,
    distorted: bool,
    info: VideoInfo,
    memory: Memory,
    pairs: u32,
    /// The frames, made for the first channel and sent by all.
    frames: Arc<Mutex<Vec<gst::Buffer>>>,
}

impl Side {
    fn new(args: &Args, memory: Memory, pad: &'static str) -> Result<Self, Box<dyn Error>> {
        let info = VideoInfo::builder(args.format, args.size.0, args.size.1);
        let info = info.fps((i32::try_from(args.fps)?, 1)).build()?;
        let distorted = pad == "dist_sink";
        Ok(Self { pad, distorted, info, memory, pairs: args.pairs, frames: Arc::default() })
    }

    /// Makes frames in memory of the kind that downstream offers.
    fn make(&self, source: &AppSrc) -> Result<Vec<gst::Buffer>, Box<dyn Error>> {
        let mut query = gst::query::Allocation::new(Some(&self.info.to_caps()?), true);
        // The query goes to the pad directly, because elements before it need not forward it.
        let pipeline =
            source.parent().and_downcast::<gst::Pipeline>().ok_or("a source without a pipeline")?;
        let element = pipeline.by_name("score").ok_or("no element in the pipeline")?;
        let pad = element.static_pad(self.pad).ok_or("an element without a pad")?;
        let allocator = match self.memory {
            Memory::Pinned => {
                pad.query(&mut query);
                let offered = query.allocation_params().next().and_then(|(allocator, _)| allocator);
                Some(offered.ok_or("no page-locked memory is offered")?)
            }
            Memory::System | Memory::Cuda => None,
        };
        let frame = |index| {
            let memory = match &allocator {
                Some(allocator) => allocator.alloc(self.info.size(), None)?,
                None => gst::Memory::with_size(self.info.size()),
            };
            if self.memory == Memory::Pinned && !memory.is_type("HipVmafPinnedMemory") {
                return Err("no page-locked memory is left".into());
            }
            let mut buffer = gst::Buffer::new();
            buffer.make_mut().append_memory(memory);
            self.draw(buffer.make_mut(), index)?;
            Ok(buffer)
        };
        (0..self.pairs).map(frame).collect()
    }

    /// Returns a moving texture with grain; the distorted one has fewer shades.
    fn draw(&self, buffer: &mut gst::BufferRef, time: u32) -> Result<(), Box<dyn Error>> {
        let mut frame = VideoFrameRef::from_buffer_ref_writable(buffer, &self.info)?;
        let wave = |v: u32, period: u32| (v % period).abs_diff(period / 2) * 120 / period;
        for plane in 0..frame.n_planes() {
            let stride = frame.plane_stride()[plane as usize] as usize;
            for (y, row) in (0..).zip(frame.plane_data_mut(plane)?.chunks_mut(stride)) {
                for (x, sample) in (0..).zip(row) {
                    let grain = noise(time, x as usize, y as usize) >> 28;
                    let shade =
                        30 + wave(x + 3 * time, 62) + wave(y + 2 * time, 46) + wave(x + y, 9) / 2 + grain;
                    *sample = if self.distorted { shade / 12 * 12 } else { shade } as u8;
                }
            }
        }
        Ok(())
    }

    /// Sends frames until there are enough of them.
    fn feed(self, pipeline: &gst::Pipeline, enough: Option<u64>) -> Result<(), Box<dyn Error>> {
        let source =
            pipeline.by_name(self.pad).and_downcast::<AppSrc>().ok_or("no source in the pipeline")?;
        source.set_caps(Some(&self.info.to_caps()?));
        let mut frames: Vec<gst::Buffer> = vec![];
        let mut sent = 0;
        let duration =
            ClockTime::SECOND.mul_div_floor(self.info.fps().denom() as u64, self.info.fps().numer() as u64);
        let duration = duration.ok_or("a frame without a duration")?;
        // Runs on the source's own thread whenever its queue is empty.
        let send = move |source: &AppSrc, _| {
            if frames.is_empty() {
                let mut shared = self.frames.lock();
                if shared.is_empty() {
                    match self.make(source) {
                        Ok(made) => *shared = made,
                        Err(err) => {
                            gst::element_error!(source, gst::ResourceError::Failed, ["{err}"]);
                            return;
                        }
                    }
                }
                frames.clone_from(&shared);
            }
            // A buffer is refused only while the pipeline stops.
            let _ = if enough == Some(sent) {
                source.end_of_stream()
            } else {
                // The copy shares the memory.
                let mut buffer = frames[sent as usize % frames.len()].copy();
                buffer.make_mut().set_pts(duration * sent);
                buffer.make_mut().set_duration(duration);
                sent += 1;
                source.push_buffer(buffer)
            };
        };
        source.set_callbacks(AppSrcCallbacks::builder().need_data(send).build());
        Ok(())
    }
}

fn sides(args: &Args, memory: Memory) -> Result<[Side; 2], Box<dyn Error>> {
    Ok([Side::new(args, memory, "ref_sink")?, Side::new(args, memory, "dist_sink")?])
}

/// A pipeline that is stopped when it is dropped.
struct Pipeline(gst::Pipeline);

impl Drop for Pipeline {
    fn drop(&mut self) {
        // A change to NULL cannot fail.
        let _ = self.0.set_state(gst::State::Null);
    }
}

/// Starts a pipeline that scores this many frames, or frames without end, on this GPU.
fn play(
    args: &Args,
    backend: &str,
    device: Option<i32>,
    sides: [Side; 2],
    enough: Option<u64>,
) -> Result<Pipeline, Box<dyn Error>> {
    let pace = if args.channels.is_some() { "clocksync !" } else { "" };
    let memory = sides[0].memory;
    let upload = |side: usize| match (memory, device) {
        (Memory::Cuda, None) => "cudaupload ! video/x-raw(memory:CUDAMemory) !".into(),
        (Memory::Cuda, Some(device)) => {
            let device =
                if args.split { gpus(args).get(side).copied().flatten().unwrap_or(device) } else { device };
            format!("cudaupload cuda-device-id={device} ! video/x-raw(memory:CUDAMemory) !")
        }
        (Memory::Pinned | Memory::System, _) => String::new(),
    };
    let description = format!(
        "appsrc name=ref_sink format=time ! {pace} {} score.ref_sink \
         appsrc name=dist_sink format=time ! {pace} {} score.dist_sink \
         hipvmaf name=score backend={backend} device-id={} max-in-flight={} attach-meta={} frame-message={} threads={} \
         force-live={} ! fakesink sync=false async=false",
        upload(0),
        upload(1),
        device.unwrap_or(-1),
        args.in_flight,
        !args.no_meta,
        enough.is_some(),
        args.threads,
        args.channels.is_some(),
    );
    let pipeline =
        gst::parse::launch(&description)?.downcast::<gst::Pipeline>().map_err(|_| "no pipeline")?;
    for side in sides {
        side.feed(&pipeline, enough)?;
    }
    // With the system clock, all channels would wait for one lock.
    pipeline.use_clock(Some(&glib::Object::new::<gst::SystemClock>()));
    let pipeline = Pipeline(pipeline);
    let element = pipeline.0.by_name("score").ok_or("no element")?;
    for setting in &args.set {
        let (name, value) = setting.split_once('=').ok_or("not like verify=0.01")?;
        if element.find_property(name).is_none() {
            return Err(format!("the element has no property {name}").into());
        }
        element.set_property_from_str(name, value);
    }
    // The reason of the failure is on the bus.
    let started = pipeline.0.set_state(gst::State::Playing);
    check_bus(&pipeline)?;
    started?;
    Ok(pipeline)
}

fn explain(error: &gst::message::Error) -> Box<dyn Error> {
    format!("{}\n{}", error.error(), error.debug().unwrap_or_default()).into()
}

/// Returns the error that an element has posted.
fn check_bus(pipeline: &Pipeline) -> Result<(), Box<dyn Error>> {
    let error = pipeline.0.bus().and_then(|bus| bus.pop_filtered(&[gst::MessageType::Error]));
    match error.as_ref().map(|message| message.view()) {
        Some(MessageView::Error(error)) => Err(explain(error)),
        _ => Ok(()),
    }
}

/// Returns the messages of all frames.
fn scores(
    args: &Args,
    backend: &str,
    device: Option<i32>,
    memory: Memory,
    frames: u64,
) -> Result<Vec<FrameMessage>, Box<dyn Error>> {
    let pipeline = play(args, backend, device, sides(args, memory)?, Some(frames))?;
    let mut scores = vec![];
    for message in pipeline.0.bus().ok_or("no bus")?.iter_timed(None) {
        match message.view() {
            MessageView::Element(element) => {
                if let Some(Ok(VmafMessage::Frame(frame))) = element.structure().map(VmafMessage::try_from) {
                    scores.push(frame);
                }
            }
            MessageView::Error(error) => return Err(explain(error)),
            MessageView::Eos(_) => break,
            _ => {}
        }
    }
    Ok(scores)
}

fn check(args: &Args, device: Option<i32>, frames: u64) -> Result<(), Box<dyn Error>> {
    let on_gpu = scores(args, &args.backend, device, args.memory, frames)?;
    let on_cpu = scores(args, "cpu", None, Memory::System, frames)?;
    let bits = |frame: &FrameMessage| -> Vec<_> {
        let named = frame.models.iter().chain(&frame.features);
        named.map(|(name, value)| (name.clone(), value.to_bits())).collect()
    };
    let same = |(a, b): &(&FrameMessage, &FrameMessage)| {
        (a.index, a.running_time, a.discont) == (b.index, b.running_time, b.discont) && bits(a) == bits(b)
    };
    let differing = on_gpu.iter().zip(&on_cpu).filter(|pair| !same(pair)).count();
    let counts = [on_gpu.len() as u64, on_cpu.len() as u64];
    if differing > 0 || counts != [frames; 2] {
        return Err(format!("{differing} of {frames} frames differ, there are {counts:?} scores").into());
    }
    let (least, most) =
        on_cpu.iter().fold((f64::MAX, f64::MIN), |(a, b), f| (a.min(f.score), b.max(f.score)));
    let on = device.map_or(String::new(), |device| format!("GPU {device}: "));
    println!("{on}{frames} frames, scores from {least:.3} to {most:.3}, equal to those of the CPU");
    Ok(())
}

fn measure(args: &Args) -> Result<(), Box<dyn Error>> {
    let device = gpus(args)[0];
    let pipeline = play(args, &args.backend, device, sides(args, args.memory)?, None)?;
    let element = pipeline.0.by_name("score").ok_or("no element")?;
    let scored = || -> Result<u64, Box<dyn Error>> {
        check_bus(&pipeline)?;
        Ok(element.property::<gst::Structure>("stats").get("frames-scored").unwrap_or_default())
    };
    // Frames are made and kernels loaded before the measurement.
    while scored()? < 100 {
        std::thread::sleep(Duration::from_millis(100));
    }
    let rate = || -> Result<f64, Box<dyn Error>> {
        let (before, start) = (scored()?, Instant::now());
        std::thread::sleep(Duration::from_secs(args.seconds));
        Ok((scored()? - before) as f64 / start.elapsed().as_secs_f64())
    };
    // The shares take turns, forwards and backwards, so that a slow drift of the machine affects all of them alike. The cost of
    // a share is computed within each turn.
    let mut by_share = vec![vec![]; args.verify.len()];
    for turn in 0..args.runs {
        let mut order: Vec<usize> = (0..args.verify.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for share in order {
            element.set_property("verify", args.verify[share]);
            by_share[share].push(rate()?);
        }
    }
    for (share, rates) in args.verify.iter().zip(&by_share) {
        let costs = rates.iter().zip(&by_share[0]).map(|(rate, first)| 100.0 * (1.0 - rate / first));
        let [costs, rates] = [costs.collect(), rates.clone()].map(quartiles);
        println!(
            "verify={share}: {:.0} fps, half of {} runs {:.0} to {:.0}; costs {:+.2} %, half of the turns {:+.2} to {:+.2}",
            rates[1], args.runs, rates[0], rates[2], costs[1], costs[0], costs[2]
        );
    }
    if !args.verify.is_empty() {
        return Ok(());
    }
    let mut rates = (0..args.runs).map(|_| rate()).collect::<Result<Vec<_>, _>>()?;
    rates.sort_by(f64::total_cmp);
    let device: Option<String> = element.property("device-name");
    let stats: gst::Structure = element.property("stats");
    let [least, median, most] = [0, rates.len() / 2, rates.len() - 1].map(|i| rates[i]);
    println!("{median:.0} fps, {} runs {least:.0} to {most:.0}", rates.len());
    println!(
        "{}; a pair takes {:.3} ms; {} verified, {} wrong, {} groups not verified",
        device.unwrap_or("CPU".into()),
        stats.get::<u64>("compute-time-mean")? as f64 / 1e6,
        stats.get::<u64>("verified")?,
        stats.get::<u64>("wrong")?,
        stats.get::<u64>("not-verified")?,
    );
    Ok(())
}

/// Returns the lower quartile, the median and the upper quartile.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// The states of the frames of all channels so far.
#[derive(Default)]
struct Followed {
    scored: u64,
    skipped: u64,
    unpaired: u64,
    /// The mean time that a pair takes on the slowest channel, in milliseconds, and the 99th percentile there.
    slowest: (f64, f64),
}

fn followed(channels: &[Pipeline]) -> Result<Followed, Box<dyn Error>> {
    let mut sum = Followed::default();
    for channel in channels {
        check_bus(channel)?;
        let stats: gst::Structure = channel.0.by_name("score").ok_or("no element")?.property("stats");
        let count = |name| stats.get::<u64>(name).unwrap_or_default();
        sum.scored += count("frames-scored");
        sum.skipped += count("frames-skipped");
        sum.unpaired += count("frames-unpaired");
        let time = |name| count(name) as f64 / 1e6;
        sum.slowest =
            (sum.slowest.0.max(time("compute-time-mean")), sum.slowest.1.max(time("compute-time-p99")));
    }
    Ok(sum)
}

/// Returns the CPU seconds of this process: user and system time of all threads.
fn cpu_time() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // After the name, which may contain anything: user and system time are the 12th and 13th field, in 1/100 s.
    let fields = stat.rsplit_once(')').ok_or("an unknown form of /proc/self/stat")?.1;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / 100.0)
}

/// Returns the resident memory of this process in GB.
fn resident() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kibibytes.ok_or("an unknown form of /proc/self/status")?.parse::<f64>()? * 1024.0 / 1e9)
}

fn follow(args: &Args, count: u32) -> Result<(), Box<dyn Error>> {
    let devices = gpus(args);
    // The element offers memory of its GPU.
    let sides = devices.iter().map(|_| sides(args, args.memory)).collect::<Result<Vec<_>, _>>()?;
    let channel = |i: u32| {
        let at = i as usize % devices.len();
        play(args, &args.backend, devices[at], sides[at].clone(), None)
    };
    let channels = (0..count).map(channel).collect::<Result<Vec<_>, _>>()?;
    // Waits until each channel scores.
    let second = args.fps * u64::from(count);
    while followed(&channels)?.scored < 2 * second {
        std::thread::sleep(Duration::from_millis(100));
    }
    for _ in 0..args.runs {
        let (before, start, cpu) = (followed(&channels)?, Instant::now(), cpu_time()?);
        std::thread::sleep(Duration::from_secs(args.seconds));
        let (after, taken) = (followed(&channels)?, start.elapsed().as_secs_f64());
        let lost = after.skipped - before.skipped + after.unpaired - before.unpaired;
        println!(
            "{count} channels at {} fps: {:.0} frames per second, {lost} of {} not scored; {:.1} CPU cores, {:.1} GB, slowest \
             channel {:.2} ms a pair, 99 % {:.2}",
            args.fps,
            (after.scored - before.scored) as f64 / taken,
            after.scored - before.scored + lost,
            (cpu_time()? - cpu) / taken,
            resident()?,
            after.slowest.0,
            after.slowest.1,
        );
    }
    Ok(())
}

/// Returns the numbers of the GPUs to use, at least one; `None` is the one that the element chooses.
fn gpus(args: &Args) -> Vec<Option<i32>> {
    let numbers = match &args.devices {
        None => vec![],
        Some(Devices::These(numbers)) => numbers.clone(),
        Some(Devices::All) => {
            let usable = gpu::devices().into_iter().filter(|info| engine::backend::hip::supports(info));
            usable.map(|info| info.ordinal).collect()
        }
    };
    if numbers.is_empty() { vec![None] } else { numbers.into_iter().map(Some).collect() }
}

/// Checks all GPUs at the same time.
fn check_all(args: &Args, frames: u64) -> Result<(), Box<dyn Error>> {
    if args.split {
        return check(args, gpus(args)[0], frames);
    }
    std::thread::scope(|scope| {
        let check = |device| scope.spawn(move || check(args, device, frames).map_err(|err| err.to_string()));
        let checks: Vec<_> = gpus(args).into_iter().map(check).collect();
        checks
            .into_iter()
            .try_for_each(|check| check.join().map_err(|_| "a thread died")?.map_err(Into::into))
    })
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    gsthipvmaf::plugin_register_static()?;
    match (args.check, args.channels) {
        (Some(frames), _) => check_all(args, frames),
        (None, Some(channels)) => follow(args, channels),
        (None, None) => measure(args),
    }
}

fn main() -> ExitCode {
    // The arguments name formats, which GStreamer knows.
    match gst::init().map_err(Into::into).and_then(|()| run(&Args::parse())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err}");
            ExitCode::FAILURE
        }
    }
}
