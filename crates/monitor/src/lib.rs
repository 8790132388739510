// SPDX-License-Identifier: MPL-2.0

//! Watches live video: scores renditions against their reference, and shows the scores in the terminal, on web pages
//! and to Prometheus.
//!
//! A file or the command line names the channels (`config.rs`, `settings.rs`, `source.rs`). Each channel has its own
//! thread (`channel.rs`), which builds a pipeline around the element (`pipeline`) and restarts failed sources
//! (`branch.rs`, `health.rs`). `audio` measures their audio. `state.rs` holds the results of a channel, `alarms.rs` its
//! active alarms, `segments.rs` the quality for systems downstream. `updates.rs` finds what is new in them, for the history
//! (`recorder.rs`, `history.rs`), the webhooks and SNMP traps (`webhook.rs`, `snmp.rs`) and the printed lines (`lines.rs`).
//! `dashboard.rs` draws the terminal; `web` and `metrics.rs` are the web server.

mod alarm_files;
mod alarms;
mod audio;
mod backoff;
mod branch;
mod channel;
mod channel_set;
mod clip_ring;
mod clock;
mod config;
mod dashboard;
mod health;
mod history;
mod hold;
mod incidents;
mod latency;
mod lines;
mod metrics;
mod mutes;
mod pairings;
mod pipeline;
mod recent;
mod recorder;
mod scale;
mod segments;
mod service;
mod settings;
mod snmp;
mod source;
mod state;
mod still_store;
mod stills;
mod updates;
mod web;
mod webhook;

use std::collections::HashSet;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alarm_files::AlarmFiles;
use channel_set::ChannelSet;
use dashboard::Dashboard;
use gsthipvmaf::Align;
use history::History;
use lines::{Lines, Log};
use mutes::Mutes;
use parking_lot::Mutex;
use recorder::Recorder;
use service::Service;
use settings::{Channel, Seconds, Settings};
use updates::{Follower, Update};
use webhook::Webhooks;

use score::error::Error;
use score::output::print;

/// Watch the quality of live video
///
/// A source is a file, a URI (http for HLS, rtmp, rtsp, srt, udp with MPEG-TS, rtp with ?encoding-name=H264), or
/// `test:` for a test pattern (test:1280x720@25). A rendition can also be x264:KBITS: the reference, encoded here at
/// this bit rate. To watch several channels, use a file (docs/live.md); its keys have the names of the options below.
#[derive(clap::Args)]
pub struct Args {
    /// Watch the channels of this TOML file. SIGHUP reloads it
    #[arg(long, value_name = "FILE", conflicts_with = "reference", required_unless_present_any = ["reference", "check_config"])]
    config: Option<PathBuf>,
    /// Check a file for --config, and exit
    #[arg(long, value_name = "FILE", conflicts_with_all = ["reference", "config"])]
    check_config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Send a test message to the webhooks, and exit
    #[arg(long)]
    test_webhook: bool,
    /// Address of the web pages and of /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// File with the secret that clients must send; required if other machines can reach the address
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Keep scores and events in this folder, across restarts
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Time for which scores and events are kept
    #[arg(long, value_name = "HOURS", default_value_t = 72, value_parser = clap::value_parser!(u32).range(1..=8784))]
    keep: u32,
    /// Space for all incidents; the oldest are removed
    #[arg(long, value_name = "MB", default_value_t = 2048)]
    incident_size: u32,
    /// Lines without the dashboard: events and a line a minute, or events and all windows [default: windows, and events
    /// under systemd]
    #[arg(long, value_name = "KIND")]
    log: Option<Log>,
    /// Print lines instead of the dashboard, as is done without a terminal
    #[arg(long)]
    plain: bool,
    /// Measure the time from the arrival of the next frame to the score
    #[arg(long)]
    latency: bool,
    /// Stop after this time
    #[arg(long, value_name = "SECONDS")]
    duration: Option<Seconds>,
}

/// Interval at which the screen is drawn and signals are handled.
const TICK: Duration = Duration::from_millis(200);

/// Makes the C library return freed memory to the system.
///
/// Sources are restarted with their threads. glibc gives each thread one of up to eight heaps per CPU, and a heap can
/// shrink only from its end. A picture that is freed below a longer-lived block is therefore never returned, and
/// memory grows for hours. With few heaps, and pictures outside of them, it does not grow.
fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        const HEAPS: libc::c_int = 2;
        /// Size from which an allocation gets its own mapping. By default the threshold grows to as much as 32 MiB.
        const LARGE: libc::c_int = 64 << 10;
        // SAFETY: mallopt takes numbers only, and may be called at any time.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, HEAPS);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        }
    }
}

/// Watches until the end of the streams, a signal, or the end of the set duration.
pub fn run(args: &Args) -> Result<(), Error> {
    return_freed_memory();
    score::init()?;
    if let Some(path) = &args.check_config {
        return check(path, args);
    }
    let channels = wanted(args)?;
    if args.test_webhook {
        return test_webhooks(&channels);
    }
    if args.latency && channels.iter().any(|channel| channel.align.0 == Align::Auto) {
        return Err(Error::Usage(
            "--latency cannot be used with --align auto, which pairs frames that do not arrive together"
                .into(),
        ));
    }
    if args.state.is_none() && channels.iter().any(|channel| !channel.incident_length().is_zero()) {
        return Err(Error::Usage("--incidents needs --state FOLDER, where incidents are stored".into()));
    }
    let token = args.token_file.as_deref().map(web::Token::read).transpose()?;
    let keep = Duration::from_secs(u64::from(args.keep) * 3600);
    let history = Arc::new(History::open(args.state.as_deref(), keep).map_err(|error| {
        let folder = args.state.as_deref().unwrap_or(std::path::Path::new("memory"));
        Error::Failed(format!("cannot keep the history in {}: {error}", folder.display()))
    })?);
    let mut service = Service::watch()?;
    let alarm_files = AlarmFiles::open(args.state.as_deref(), u64::from(args.incident_size) << 20)?;
    let still_store = alarm_files.still_store.clone();
    let channel_set = ChannelSet::new(alarm_files, recorder::resumed(&history, &channels), args.latency);
    let mutes = Mutes::open(args.state.as_deref());
    let mut webhooks = Webhooks::new(still_store.clone(), history.clone(), &channels);
    let alive = Arc::new(Mutex::new(Instant::now()));
    let app = web::App {
        channel_set: channel_set.clone(),
        history: history.clone(),
        still_store,
        mutes: mutes.clone(),
        deliveries: webhooks.deliveries(),
        alive: alive.clone(),
        login: false,
    };
    let address = web::serve(args.listen, app, token)?;
    channel_set.set(channels)?;
    service.ready();
    let mut view = View::new(args, address)?;

    let mut follower = Follower::default();
    let recorder = Recorder::new(history)?;
    let end = args.duration.map(|time| Instant::now() + time.0);
    while !service.is_to_stop() && end.is_none_or(|end| Instant::now() < end) {
        std::thread::sleep(TICK);
        *alive.lock() = Instant::now();
        service.alive();
        if service.is_to_reload() {
            reload(args, &channel_set, &service)?;
        }
        let states = channel_set.states();
        let updates = follower.updates(&states);
        // In this order, an alarm that is kept as active is kept for its webhook, too.
        webhooks.send(&updates, &muted(&states, &mutes));
        recorder.record(&updates);
        // With a file, a reload may bring other channels.
        if view.show(&states, &updates)? || (args.config.is_none() && channel_set.has_ended()) {
            break;
        }
    }
    service.stopping();
    let states = channel_set.states();
    let latencies = channel_set.stop();
    let updates = follower.updates(&states);
    webhooks.send(&updates, &muted(&states, &mutes));
    recorder.record(&updates);
    view.show(&states, &updates)?;
    webhooks.close();
    recorder.close();
    drop(view);
    print(lines::summary(&states))?;
    latencies.iter().try_for_each(print)
}

/// Returns the channels of the file, or the one of the command line.
fn wanted(args: &Args) -> Result<Vec<Channel>, Error> {
    match &args.config {
        Some(path) => config::read(path, &args.settings),
        None => Ok(vec![config::of(&args.settings)?]),
    }
}

/// Returns the names of the muted channels.
fn muted(states: &[state::Shared], mutes: &Mutes) -> HashSet<String> {
    let now = state::wall_clock();
    let states = states.iter().map(|state| state.lock());
    states.filter(|state| mutes.of(state, now).is_some()).map(|state| state.name.clone()).collect()
}

/// Sends a test message to the webhooks of these channels.
fn test_webhooks(channels: &[Channel]) -> Result<(), Error> {
    let lines = webhook::test(channels);
    lines.iter().try_for_each(|(line, _)| print(line))?;
    match (lines.is_empty(), lines.iter().all(|(_, delivered)| *delivered)) {
        (true, _) => Err(Error::Usage("no channel has a webhook".into())),
        (_, false) => Err(Error::Failed("not every webhook has received the test message".into())),
        (_, true) => Ok(()),
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

/// Reloads the file. A file with an error changes nothing.
fn reload(args: &Args, channel_set: &ChannelSet, service: &Service) -> Result<(), Error> {
    service.reloading();
    match wanted(args) {
        Ok(channels) => {
            let changes = channel_set.set(channels)?;
            eprintln!("{changes}");
        }
        Err(error) => eprintln!("error: the channels were not reloaded: {error}"),
    }
    service.ready();
    Ok(())
}

/// Output in the terminal: the dashboard or lines.
enum View {
    Screen(Dashboard),
    Lines(Lines),
}

impl View {
    fn new(args: &Args, address: SocketAddr) -> Result<Self, Error> {
        if !args.plain && std::io::stdout().is_terminal() {
            return Ok(Self::Screen(Dashboard::new(address)?));
        }
        print(format_args!(
            "http://{address}/ shows the scores, http://{address}/metrics is for Prometheus"
        ))?;
        // Set by systemd if the output goes to its journal.
        let is_service = std::env::var_os("JOURNAL_STREAM").is_some();
        let log = args.log.unwrap_or(if is_service { Log::Events } else { Log::Windows });
        Ok(Self::Lines(Lines::new(log)))
    }

    /// Shows the current states. Returns true if the user wants to quit.
    fn show(&mut self, states: &[state::Shared], updates: &[Update]) -> Result<bool, Error> {
        match self {
            Self::Screen(dashboard) => Ok(dashboard.show(states)?),
            Self::Lines(lines) => lines.show(states, updates).map(|()| false),
        }
    }
}
