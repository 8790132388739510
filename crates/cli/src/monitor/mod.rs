// SPDX-License-Identifier: MPL-2.0

//! Watches live video: scores renditions against their reference, and shows the scores in the terminal, on a web
//! page and to Prometheus.
//!
//! A pipeline is built around the element (`pipeline.rs`), sources that fail are brought back (`branch.rs`), and what the
//! element says is followed (`state.rs`). The rest is presentation.

mod branch;
mod dashboard;
mod latency;
mod pipeline;
mod source;
mod state;
mod web;

use std::error::Error;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use dashboard::Dashboard;
use pipeline::Monitor;
use source::Named;

/// Watch the quality of live video
///
/// A source is a URI (file, http for HLS, srt, udp with MPEG-TS, rtp with ?encoding-name=H264), or `test:` for a test
/// picture (test:1280x720@25). A rendition can also be x264:KBITS: the reference, encoded here at this bit rate.
#[derive(clap::Args)]
pub struct Args {
    /// The original
    reference: Named,
    /// What is scored, each with a name if wanted: 720p=srt://host:7001
    #[arg(required = true, value_name = "[NAME=]SOURCE")]
    renditions: Vec<Named>,
    /// Built-in name or JSON file of a model; several are scored in one pass
    #[arg(long = "model", value_name = "MODEL", default_value = "vmaf_v0.6.1")]
    models: Vec<String>,
    /// Where the work on pixels is done
    #[arg(long, value_name = "auto|hip|cpu", default_value = "auto")]
    backend: String,
    /// Length of the rolling window
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    window: f64,
    /// Raise an alarm when scores stay below this
    #[arg(long, value_name = "SCORE")]
    alarm_low: Option<f64>,
    /// Clear the alarm when scores stay at this or above, instead of --alarm-low
    #[arg(long, value_name = "SCORE")]
    alarm_clear: Option<f64>,
    /// How long scores must be low before the alarm is raised
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    alarm_hold: f64,
    /// How long scores must be good before the alarm is cleared
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    clear_hold: f64,
    /// Share of the frames in that time that must be low, or good
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share)]
    alarm_share: f64,
    /// Report a picture that stands still for so long
    #[arg(long, value_name = "SECONDS")]
    freeze: Option<f64>,
    /// Report a picture that is black for so long
    #[arg(long, value_name = "SECONDS")]
    black: Option<f64>,
    /// What to do about an offset between the videos
    #[arg(long, default_value = "off")]
    align: Align,
    /// How long to wait for renditions that come later than their sources announce
    #[arg(long, value_name = "MS", default_value_t = 200)]
    wait: u64,
    /// Start a live source again that has not delivered for so long
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    stall: f64,
    /// Address of the web page and of /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Print lines instead of the dashboard, as is done where there is no terminal
    #[arg(long)]
    plain: bool,
    /// Measure how long after the arrival of the next frame a score is posted
    #[arg(long)]
    latency: bool,
    /// Stop after so long
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.01..=1.0).contains(share)).ok_or("not between 0.01 and 1".into())
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Align {
    Off,
    Detect,
    Auto,
}

/// How often the screen is drawn and the sources are looked at.
const TICK: Duration = Duration::from_millis(200);

/// Watches until the end of the streams, Ctrl-C or the time that was set.
pub fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    if args.latency && args.align == Align::Auto {
        return Err(
            "--latency does not go with --align auto, which pairs other frames than arrive together".into()
        );
    }
    crate::init()?;
    let mut monitor = Monitor::new(args)?;
    let address = web::serve(args.listen, monitor.state(), monitor.metrics())?;
    let plain = args.plain || !std::io::stdout().is_terminal();
    let mut dashboard = Dashboard::new(plain, address)?;
    monitor.start()?;
    let end = args.duration.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let result = loop {
        match monitor.tick(TICK) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(err) => break Err(err),
        }
        if dashboard.show(&mut state::lock(&monitor.state()))? || end.is_some_and(|end| Instant::now() > end)
        {
            break Ok(());
        }
    };
    drop(dashboard);
    monitor.stop()?;
    if let Some(latency) = monitor.latency() {
        println!("{}", latency.table());
    }
    result
}
