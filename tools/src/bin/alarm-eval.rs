// SPDX-License-Identifier: MPL-2.0

//! Measures when the alarm on low scores is raised, and when it should not be: makes the table of docs/live.md.
//!
//! ```sh
//! cargo run --release -p hipvmaf-tools --bin alarm-eval -- FFMPEG CLIP...
//! ```
//!
//! The clips, one after the other again and again, are a programme of a minute, which is coded in several ways and
//! scored frame by frame. What happens to a channel is put together from these series.

use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;

use engine::backend::cpu::Cpu;
use engine::frame::{BitDepth, Geometry, Picture};
use engine::model::{Model, ScoreOptions};
use engine::plan::Plan;
use engine::session::Session;
use watch::alarm::{LowAlarm, LowLevels, State};

const SIZE: (usize, usize) = (640, 360);
const FPS: usize = 25;
const FRAMES: usize = 60 * FPS;
const SECOND: u64 = 1_000_000_000;

/// The alarm as the table has it, but for the share.
const LEVELS: LowLevels =
    LowLevels { low: 70.0, clear: 75.0, raise_hold: 2 * SECOND, clear_hold: 5 * SECOND, share: 1.0 };
const SHARES: [f64; 4] = [1.0, 0.75, 0.5, 0.25];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Decodes a file to luma, as so many frames as there are.
fn decode(ffmpeg: &Path, file: &Path) -> Result<ChildStdout> {
    let mut child = Command::new(ffmpeg)
        .args(["-v", "fatal", "-i"])
        .arg(file)
        .args(["-f", "rawvideo", "-pix_fmt", "gray", "-"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child.stdout.take().ok_or("ffmpeg has no output")?)
}

fn ffmpeg(ffmpeg: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(ffmpeg);
    command.args(["-v", "fatal", "-y"]).args(arguments).stdin(Stdio::null());
    if command.status()?.success() { Ok(()) } else { Err(format!("ffmpeg fails: {arguments:?}").into()) }
}

/// The programme without loss, through a filter if there is one.
fn programme(tool: &Path, clips: &[PathBuf], filter: &str, out: &Path) -> Result<()> {
    let (width, height) = SIZE;
    let parts = clips.len();
    let scaled = |i| {
        format!("[{i}:v]setpts=N/{FPS}/TB,fps={FPS},scale={width}:{height},setsar=1,format=yuv420p[v{i}];")
    };
    let mut graph: String = (0..parts).map(scaled).collect();
    (0..parts).for_each(|i| graph += &format!("[v{i}]"));
    graph +=
        &format!("concat=n={parts},loop=-1:32767,setpts=N/{FPS}/TB,trim=end_frame={FRAMES}{filter}[all]");
    let inputs: Vec<&str> = clips.iter().flat_map(|clip| ["-i", clip.to_str().unwrap_or_default()]).collect();
    let output =
        ["-filter_complex", &graph, "-map", "[all]", "-c:v", "ffv1", out.to_str().unwrap_or_default()];
    ffmpeg(tool, &[&inputs[..], &output].concat())
}

/// The score of each frame of the programme, coded with these arguments.
fn scores(tool: &Path, original: &Path, coding: &str, folder: &Path) -> Result<Vec<f64>> {
    let coded = folder.join("coded.mkv");
    let paths = [original, &coded].map(|path| path.to_str().unwrap_or_default());
    let coding: Vec<&str> = coding.split(' ').collect();
    ffmpeg(tool, &[&["-i", paths[0]], &coding[..], &[paths[1]]].concat())?;
    let depth = BitDepth::new(8).ok_or("8 is a bit depth")?;
    let geometry = Geometry { width: SIZE.0, height: SIZE.1, depth, chroma: None };
    let plan = Arc::new(Plan::new(vec![Model::load("vmaf_v0.6.1")?], &[], ScoreOptions::default())?);
    let column = plan.models[0].column;
    let mut session = Session::new(plan, Box::new(Cpu::new(0)?), 1);
    session.prepare(geometry, &[None])?;
    let mut inputs = [decode(tool, original)?, decode(tool, &coded)?];
    let mut frames = [(); 2].map(|_| vec![0; SIZE.0 * SIZE.1]);
    let mut found = vec![];
    let mut take = |session: &mut Session| -> Result<()> {
        found.extend(session.collect()?.into_iter().filter_map(|score| Some(score.values?[column])));
        Ok(())
    };
    while inputs.iter_mut().zip(&mut frames).all(|(input, frame)| input.read_exact(frame).is_ok()) {
        let picture = |frame| Picture::packed(frame, geometry).ok_or("too few bytes");
        session.submit(picture(&frames[0])?, vec![(0, picture(&frames[1])?)])?;
        if let Some(completion) = session.completion() {
            completion();
        }
        take(&mut session)?;
    }
    session.end_run(false);
    take(&mut session)?;
    if found.len() == FRAMES { Ok(found) } else { Err(format!("{} of {FRAMES} frames", found.len()).into()) }
}

/// The frames with which the alarm is raised.
fn raised(scores: &[f64], share: f64) -> Vec<usize> {
    let mut alarm = LowAlarm::new(LowLevels { share, ..LEVELS });
    let changes = scores.iter().enumerate().filter_map(|(i, score)| {
        let change = alarm.update(i as u64 * SECOND / FPS as u64, *score)?;
        (change.state == State::Raised).then_some(i)
    });
    changes.collect()
}

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let tool = arguments.next().ok_or("usage: alarm-eval FFMPEG CLIP...")?;
    let clips: Vec<PathBuf> = arguments.collect();
    let folder = tempfile::tempdir()?;
    let original = |name: &str, filter: &str| -> Result<PathBuf> {
        let path = folder.path().join(name);
        programme(&tool, &clips, filter, &path)?;
        Ok(path)
    };
    let plain = original("plain.mkv", "")?;
    // To black and back, every six seconds.
    let faded = original("faded.mkv", ",eq=eval=frame:brightness='-max(0,1-abs(mod(t,6)-3))'")?;
    // Other pictures every second.
    let cut = original(
        "cut.mkv",
        ",select='not(mod(floor(n/25),2))',setpts=N/25/TB,loop=-1:32767,trim=end_frame=1500",
    )?;
    let of = |original: &Path, coding: &str| scores(&tool, original, coding, folder.path());

    let good = of(&plain, "-c:v libx264 -crf 23")?;
    let steps = [28, 33, 38, 43, 48, 51].map(|crf| of(&plain, &format!("-c:v libx264 -crf {crf}")));
    let steps = steps.into_iter().collect::<Result<Vec<_>>>()?;
    let pumping = of(
        &plain,
        "-c:v libx264 -b:v 120k -maxrate 120k -bufsize 240k -g 50 -keyint_min 50 -sc_threshold 0",
    )?;
    let then = |bad: &[f64]| [&good[..FRAMES / 3], &bad[FRAMES / 3..]].concat();
    let drift: Vec<f64> = (0..FRAMES)
        .map(|i| match (i * 12 / FRAMES).saturating_sub(2) {
            0 => good[i],
            step => steps[step.min(steps.len()) - 1][i],
        })
        .collect();
    let bursts: Vec<f64> = (0..FRAMES).map(|i| if i % 250 < 20 { steps[5][i] } else { good[i] }).collect();
    let expected = [
        ("bad throughout (crf 51) from second 20 on", then(&steps[5])),
        ("key frames among bad ones (120 kbit/s, one in 2 s) from second 20 on", then(&pumping)),
        ("slow drift: crf 23 to 51 in steps of 5 s from second 15 on", drift),
    ];
    let harmless = [
        ("good (crf 23)", good.clone()),
        ("fades to black every 6 s (crf 28)", of(&faded, "-c:v libx264 -crf 28")?),
        ("cuts every second (crf 28)", of(&cut, "-c:v libx264 -crf 28")?),
        ("0.8 s of crf 51 every 10 s", bursts),
    ];
    println!("| | {} |", SHARES.map(|share| format!("share {share}")).join(" | "));
    println!("|---|{}", "--:|".repeat(SHARES.len()));
    for (name, scores) in &expected {
        // The first frame at which the scores of a hold are low in the mean.
        let hold = 2 * FPS;
        let low = scores.windows(hold).position(|w| w.iter().sum::<f64>() < LEVELS.low * hold as f64);
        let cells = SHARES.map(|share| match (raised(scores, share).first(), low) {
            (Some(at), Some(low)) => format!("{:+.1} s", (*at as f64 - (low + hold) as f64) / FPS as f64),
            (Some(at), None) => format!("second {:.1}", *at as f64 / FPS as f64),
            (None, _) => "never".into(),
        });
        println!("| {name} | {} |", cells.join(" | "));
    }
    for (name, scores) in &harmless {
        let hours = FRAMES as f64 / FPS as f64 / 3600.0;
        let cells = SHARES.map(|share| format!("{:.0} an hour", raised(scores, share).len() as f64 / hours));
        println!("| {name} | {} |", cells.join(" | "));
    }
    Ok(())
}
