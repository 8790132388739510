// SPDX-License-Identifier: MPL-2.0

//! Measures how well `watch::align` finds the offset of a distorted video: makes the table of docs/alignment.md.
//!
//! ```sh
//! cargo run --release -p hipvmaf-tools --bin align-eval -- FFMPEG CLIP...
//! ```
//!
//! Each clip, and all of them one after the other as a programme with cuts, is coded in several harsh ways.
//! Offsets, lost and repeated frames are then made with the thumbnails of the decoded pictures.

use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use engine::frame::{BitDepth, Component, Samples};
use watch::align::Aligner;
use watch::thumbnail::Thumbnail;

const FRAME: u64 = 40_000_000;
/// The size of all clips.
const SIZE: (usize, usize) = (640, 360);
const RANGE: i64 = 25;

/// Ways of coding a clip: a name, and arguments of ffmpeg.
const CODINGS: [(&str, &str); 7] = [
    ("crf 23", "-c:v libx264 -crf 23"),
    ("crf 40", "-c:v libx264 -crf 40"),
    ("crf 51", "-c:v libx264 -crf 51"),
    ("small", "-vf scale=trunc(iw/6)*2:trunc(ih/6)*2 -c:v libx264 -crf 45"),
    ("mpeg2", "-c:v mpeg2video -b:v 150k -maxrate 150k -bufsize 100k"),
    ("grading", "-vf eq=brightness=0.15:contrast=0.7:gamma=1.4 -c:v libx264 -crf 35"),
    ("box", "-vf drawbox=x=iw*0.8:y=ih*0.05:w=iw*0.15:h=ih*0.1:color=white:t=fill -c:v libx264 -crf 40"),
];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Ffmpeg(PathBuf);

impl Ffmpeg {
    fn command(&self, clips: &[PathBuf]) -> Command {
        let mut command = Command::new(&self.0);
        command.args(["-v", "fatal", "-y"]).stdin(Stdio::null());
        for clip in clips {
            command.arg("-i").arg(clip);
        }
        command
    }

    /// Joins all clips, one after the other.
    fn join(&self, clips: &[PathBuf], out: &Path) -> Result<()> {
        let parts = clips.len();
        let mut graph = String::new();
        for i in 0..parts {
            graph += &format!(
                "[{i}:v]setpts=N/25/TB,fps=25,scale={}:{},setsar=1,format=gray[v{i}];",
                SIZE.0, SIZE.1
            );
        }
        (0..parts).for_each(|i| graph += &format!("[v{i}]"));
        graph += &format!("concat=n={parts}[all]");
        let mut command = self.command(clips);
        command.args(["-filter_complex", &graph, "-map", "[all]", "-c:v", "ffv1"]).arg(out);
        if command.status()?.success() { Ok(()) } else { Err("ffmpeg cannot join the clips".into()) }
    }

    /// Returns the thumbnails of all frames.
    fn thumbnails(&self, clip: &Path) -> Result<Vec<Thumbnail>> {
        let (width, height) = SIZE;
        let depth = BitDepth::new(8).ok_or("8 is a bit depth")?;
        let mut child = self
            .command(&[clip.to_owned()])
            .args(["-vf", &format!("scale={width}:{height}:flags=area"), "-f", "rawvideo"])
            .args(["-pix_fmt", "gray", "-"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut out = child.stdout.take().ok_or("ffmpeg has no output")?;
        let mut data = vec![0; width * height];
        let mut thumbnails = vec![];
        while out.read_exact(&mut data).is_ok() {
            let samples = Samples::Host(&data);
            let luma = Component { samples, width, height, stride: width, step: 1, shift: 0 };
            thumbnails.push(Thumbnail::new(&luma, depth).ok_or("the picture is too small")?);
        }
        if !child.wait()?.success() || thumbnails.is_empty() {
            return Err(format!("ffmpeg cannot decode {}", clip.display()).into());
        }
        Ok(thumbnails)
    }

    /// Returns the thumbnails of the coded clip.
    fn coded(&self, clip: &Path, arguments: &str, folder: &Path) -> Result<Vec<Thumbnail>> {
        let coded = folder.join("coded.mkv");
        let mut command = self.command(&[clip.to_owned()]);
        if !command
            .args(["-an", "-pix_fmt", "yuv420p"])
            .args(arguments.split(' '))
            .arg(&coded)
            .status()?
            .success()
        {
            return Err(format!("ffmpeg cannot code {} with {arguments}", clip.display()).into());
        }
        self.thumbnails(&coded)
    }
}

/// Plays the reference, and at frame `i` the distorted frame `shown(i)`. Returns the estimated offsets in frames.
fn claims(
    reference: &[Thumbnail],
    distorted: &[Thumbnail],
    range: i64,
    shown: impl Fn(i64) -> Option<i64>,
) -> Vec<i64> {
    let mut aligner = Aligner::new(range as u32, FRAME);
    let mut claims = vec![];
    for (i, picture) in reference.iter().enumerate() {
        let time = (1000 + i as u64) * FRAME;
        let mut estimates = vec![aligner.push_reference(time, picture)];
        let shown = shown(i as i64).and_then(|shown| distorted.get(usize::try_from(shown).ok()?));
        estimates.extend(shown.map(|picture| aligner.push_distorted(time, picture)));
        claims.extend(estimates.into_iter().flatten().map(|estimate| i64::from(estimate.frames)));
    }
    claims
}

/// Returns true for a random twelfth of the frames.
fn one_in_twelve(i: i64, seed: i64) -> bool {
    let random = ((i * 1000 + seed) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (random ^ random >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32 < (1 << 32) / 12
}

#[derive(Default)]
struct Tally {
    right: usize,
    wrong: usize,
    none: usize,
}

impl Tally {
    fn add(&mut self, claims: &[i64], offset: i64) {
        match claims {
            [] => self.none += 1,
            _ if claims.iter().all(|claim| *claim == offset) => self.right += 1,
            _ => self.wrong += 1,
        }
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let ffmpeg = Ffmpeg(arguments.next().ok_or("usage: align-eval FFMPEG CLIP...")?);
    let mut clips: Vec<PathBuf> = arguments.collect();
    let folder = tempfile::tempdir()?;
    let programme = folder.path().join("programme.mkv");
    ffmpeg.join(&clips, &programme)?;
    clips.push(programme);
    let references = clips.iter().map(|clip| ffmpeg.thumbnails(clip)).collect::<Result<Vec<_>>>()?;

    println!("| clip | frames | {} |", CODINGS.map(|coding| coding.0).join(" | "));
    println!("|---|---|{}", "---|".repeat(CODINGS.len()));
    let mut out_of_range = Tally::default();
    for (clip, reference) in clips.iter().zip(&references) {
        print!("| {} | {} |", clip.file_stem().unwrap_or_default().display(), reference.len());
        for (_, arguments) in CODINGS {
            let distorted = ffmpeg.coded(clip, arguments, folder.path())?;
            let mut tally = Tally::default();
            for offset in -RANGE..=RANGE {
                tally.add(&claims(reference, &distorted, RANGE, |i| Some(i - offset)), offset);
                let damaged = |i: i64| {
                    let repeated = one_in_twelve(i, offset);
                    (!one_in_twelve(i, offset + 500)).then_some(i - offset - i64::from(repeated))
                };
                tally.add(&claims(reference, &distorted, RANGE, damaged), offset);
            }
            print!(" {} / {} / {} |", tally.right, tally.wrong, tally.none);
            for (range, offset) in [(5, 6), (5, 9), (5, 15), (5, 40), (25, 26), (25, 35), (25, 50)] {
                for offset in [offset, -offset] {
                    out_of_range.add(&claims(reference, &distorted, range, |i| Some(i - offset)), offset);
                }
            }
        }
        println!();
    }
    // Compares every clip with every other, and the second half of each with its first.
    let mut unrelated = Tally::default();
    for (i, reference) in references.iter().enumerate() {
        let others = references[..references.len() - 1].iter().enumerate().filter(|(j, _)| *j != i);
        for (_, other) in others.filter(|_| i + 1 < references.len()) {
            unrelated.add(&claims(reference, other, RANGE, Some), 0);
        }
        let (first, second) = reference.split_at(reference.len() / 2);
        unrelated.add(&claims(first, second, RANGE, Some), 0);
    }
    let claimed = |tally: &Tally| tally.right + tally.wrong;
    println!("\nClaims without a right answer:\n");
    println!(
        "- offset out of range: {} of {}",
        claimed(&out_of_range),
        claimed(&out_of_range) + out_of_range.none
    );
    println!(
        "- other clip or other half: {} of {}",
        claimed(&unrelated),
        claimed(&unrelated) + unrelated.none
    );
    for (range, programme) in [25, 250].into_iter().zip(references.last().into_iter().cycle()) {
        let start = Instant::now();
        claims(programme, programme, range, Some);
        let ms = start.elapsed().as_secs_f64() * 1e3 / programme.len() as f64;
        println!("- time per pair at range {range}: {ms:.3} ms");
    }
    Ok(())
}
