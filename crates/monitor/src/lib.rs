// SPDX-License-Identifier: MPL-2.0

//! Watches live video: scores renditions against their reference, and shows the scores in the terminal, on web pages and to
//! Prometheus.
//!
//! What is to be watched is said by a file or the command line (`config.rs`, `settings.rs`, `source.rs`). Each channel has
//! a thread of its own (`channel.rs`), which builds a pipeline around the element (`pipeline.rs`); sources that fail there are
//! brought back (`branch.rs`, `health.rs`). What the element says is noted (`state.rs`); what is new in that (`news.rs`) is kept
//! (`recorder.rs`, `history.rs`), told (`webhook.rs`) and printed (`lines.rs`). The rest is presentation: the terminal
//! (`dashboard.rs`) and the web server (`web`, `metrics.rs`).

mod backoff;
mod branch;
mod channel;
mod clock;
mod config;
mod dashboard;
mod evidence;
mod films;
mod fleet;
mod gallery;
mod health;
mod history;
mod incidents;
mod latency;
mod lines;
mod metrics;
mod news;
mod pipeline;
mod recorder;
mod service;
mod settings;
mod source;
mod state;
mod stills;
mod tape;
mod web;
mod webhook;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use config::Channel;
use dashboard::Dashboard;
use evidence::Evidence;
use fleet::Fleet;
use history::History;
use news::{Follower, News};
use recorder::Recorder;
use service::Service;
use settings::{Align, Seconds, Settings};
use state::lock;
use webhook::Webhooks;

use score::error::Error;
use score::output::print;

/// Watch the quality of live video
///
/// A source is a file or a URI (http for HLS, rtmp, rtsp, srt, udp with MPEG-TS, rtp with ?encoding-name=H264), or `test:` for
/// a test picture (test:1280x720@25). A rendition can also be x264:KBITS: the reference, encoded here at this bit rate. Many
/// channels are watched with a file (docs/live.md), in which the options below that concern a channel have the same names.
#[derive(clap::Args)]
pub struct Args {
    /// Watch the channels of this file, in TOML. SIGHUP has it read again
    #[arg(long, value_name = "FILE", conflicts_with = "reference", required_unless_present_any = ["reference", "check_config"])]
    config: Option<PathBuf>,
    /// Say whether a file is one for --config, and end
    #[arg(long, value_name = "FILE", conflicts_with_all = ["reference", "config"])]
    check_config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Address of the web pages and of /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// A file with the secret that clients have to know; needed to listen where other machines can reach it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Keep scores and events in this folder, for them to survive the program
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// For how long scores and events are kept
    #[arg(long, value_name = "HOURS", default_value_t = 72, value_parser = clap::value_parser!(u32).range(1..=8784))]
    keep: u32,
    /// How much all incidents may take; the oldest are removed
    #[arg(long, value_name = "MB", default_value_t = 2048)]
    incident_size: u32,
    /// Print lines instead of the dashboard, as is done where there is no terminal
    #[arg(long)]
    plain: bool,
    /// Measure how long after the arrival of the next frame a score is posted
    #[arg(long)]
    latency: bool,
    /// Stop after so long
    #[arg(long, value_name = "SECONDS")]
    duration: Option<Seconds>,
}

/// How often the screen is drawn, and signals are looked for.
const TICK: Duration = Duration::from_millis(200);

/// Heaps that the threads of the program share.
/// Has the C library give back what is freed. Sources come and go with their threads, and each of these takes one of up to eight
/// heaps for each CPU, whose memory goes back from its end alone: what a picture leaves below something that stays is lost to all
/// others, and memory grows for hours. With few heaps, and pictures in none of them, it does not.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    {
        const HEAPS: libc::c_int = 2;
        /// Bytes from which on memory is the system's own. Unless it is set, it grows with what is freed, up to 32 MiB.
        const LARGE: libc::c_int = 64 << 10;
        // SAFETY: it takes numbers, and may be called whenever.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, HEAPS);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        }
    }
}

/// Watches until the end of the streams, a signal or the time that was set.
pub fn run(args: &Args) -> Result<(), Error> {
    give_memory_back();
    score::init()?;
    if let Some(path) = &args.check_config {
        return check(path, args);
    }
    let channels = wanted(args)?;
    if args.latency && channels.iter().any(|channel| channel.align == Align::Auto) {
        return Err(Error::Usage(
            "--latency does not go with --align auto, which pairs other frames than arrive together".into(),
        ));
    }
    if args.state.is_none() && channels.iter().any(|channel| !channel.incidents.is_zero()) {
        return Err(Error::Usage("--incidents needs --state, the folder that they are kept in".into()));
    }
    let token = args.token_file.as_deref().map(web::Token::read).transpose()?;
    let keep = Duration::from_secs(u64::from(args.keep) * 3600);
    let history = Arc::new(History::open(args.state.as_deref(), keep).map_err(|error| {
        let folder = args.state.as_deref().unwrap_or(std::path::Path::new("memory"));
        Error::Failed(format!("cannot keep the history in {}: {error}", folder.display()))
    })?);
    let mut service = Service::watch()?;
    let evidence = Evidence::open(args.state.as_deref(), u64::from(args.incident_size) << 20)?;
    let gallery = evidence.gallery.clone();
    let fleet = Fleet::new(evidence, args.latency)?;
    let alive = Arc::new(Mutex::new(Instant::now()));
    let app = web::App {
        fleet: fleet.clone(),
        history: history.clone(),
        gallery: gallery.clone(),
        alive: alive.clone(),
    };
    let address = web::serve(args.listen, app, token)?;
    fleet.set(channels)?;
    service.ready();
    let mut view = View::new(args.plain || !std::io::stdout().is_terminal(), address)?;

    let mut follower = Follower::default();
    let mut recorder = Recorder::new(history);
    let mut webhooks = Webhooks::new(gallery);
    let end = args.duration.map(|time| Instant::now() + time.0);
    while !service.is_to_stop() && end.is_none_or(|end| Instant::now() < end) {
        std::thread::sleep(TICK);
        *lock(&alive) = Instant::now();
        service.alive();
        if service.is_to_reload() {
            reload(args, &fleet, &service)?;
        }
        let states = fleet.states();
        let news = follower.look(&states);
        recorder.record(&news);
        webhooks.tell(&news);
        // The channels of a file may be others when it is read again.
        if view.show(&states, &news)? || (args.config.is_none() && fleet.has_ended()) {
            break;
        }
    }
    service.stopping();
    let states = fleet.states();
    let latencies = fleet.stop();
    let news = follower.look(&states);
    recorder.record(&news);
    recorder.flush();
    webhooks.tell(&news);
    view.show(&states, &news)?;
    webhooks.close();
    drop(view);
    print(lines::summary(&states))?;
    latencies.iter().try_for_each(print)
}

/// The channels of the file, or the one of the command line.
fn wanted(args: &Args) -> Result<Vec<Channel>, Error> {
    match &args.config {
        Some(path) => config::read(path, &args.settings),
        None => Ok(vec![config::of(&args.settings)?]),
    }
}

fn check(path: &std::path::Path, args: &Args) -> Result<(), Error> {
    let channels = config::read(path, &args.settings)?;
    for channel in &channels {
        let renditions: Vec<_> = channel.renditions.iter().map(|named| named.label.as_str()).collect();
        print(format_args!("{}: {} against {}", channel.name, renditions.join(", "), channel.reference))?;
    }
    Ok(())
}

/// Reads the file again. One with a fault changes nothing.
fn reload(args: &Args, fleet: &Fleet, service: &Service) -> Result<(), Error> {
    service.reloading();
    match wanted(args) {
        Ok(channels) => {
            let changes = fleet.set(channels)?;
            eprintln!("{changes}");
        }
        Err(error) => eprintln!("error: the channels stay as they are: {error}"),
    }
    service.ready();
    Ok(())
}

/// The terminal, or lines.
enum View {
    Screen(Dashboard),
    Lines,
}

impl View {
    fn new(plain: bool, address: SocketAddr) -> Result<Self, Error> {
        if !plain {
            return Ok(Self::Screen(Dashboard::new(address)?));
        }
        print(format_args!(
            "http://{address}/ shows the scores, http://{address}/metrics is for Prometheus"
        ))?;
        Ok(Self::Lines)
    }

    /// Shows how things are. Whether the user wants to leave.
    fn show(&mut self, states: &[state::Shared], news: &[News]) -> Result<bool, Error> {
        match self {
            Self::Screen(dashboard) => Ok(dashboard.show(states)?),
            Self::Lines => lines::show(news, states.len() == 1).map(|()| false),
        }
    }
}
