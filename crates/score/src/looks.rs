// SPDX-License-Identifier: MPL-2.0

//! What the decoded frames of a video look like: their format, how they are to be turned, their levels, whether fields
//! lie between each other, and where the picture ends.
//!
//! Tags are often missing or wrong, so what they say is held against the samples of a few frames.

use gst::ClockTime;
use gst_video::{VideoColorMatrix, VideoColorRange, VideoColorimetry, VideoInfo};

use super::look::{Look, Picture};
use super::probe::Video;
use super::source::Input;
use super::treatment::{Orientation, Treatment};
use crate::error::Error;
use crate::interrupt;

/// How many frames are looked at from the beginning.
const FRAMES: usize = 24;
/// Where else to look, in parts of the whole, and how many frames there.
const PLACES: [u64; 3] = [1, 2, 3];
const OF_PLACES: u64 = 4;
const FRAMES_THERE: usize = 6;
/// By how much rows of two fields differ from both of their neighbours where something moves.
const COMBED: i32 = 10;

/// What frames look like.
#[derive(Clone, Debug)]
pub struct Looks {
    /// As they are decoded.
    pub info: VideoInfo,
    /// What the decoder says of the colours.
    tagged: Option<VideoColorimetry>,
    /// How they are to be turned to be shown.
    pub orientation: Option<Orientation>,
    /// How often each value of luma comes, in 8 bits.
    levels: Vec<u64>,
    /// The mean luma of each row, of the frames at the beginning.
    rows: Vec<f64>,
    /// Fields were seen that belong to different moments.
    pub is_combed: bool,
}

impl Looks {
    /// Looks at a video. A stream is not looked at: what its header says is all that is known of it.
    pub fn of(input: &Input, video: &Video, treatment: Treatment) -> Result<Self, Error> {
        if let Some(reader) = input.reader().filter(|reader| reader.is_stream()) {
            return Ok(Self { is_combed: true, ..Self::new(&reader.caps(), None)? });
        }
        let look = Look::open(input, treatment)?;
        let first = look.next()?;
        let caps = look.caps();
        let caps =
            caps.ok_or_else(|| Error::Failed(format!("{} has no video that can be decoded", input.given())))?;
        let mut looks = Self::new(&caps, look.orientation())?;
        first.iter().for_each(|picture| looks.see(picture));
        looks.go_on(&look, FRAMES)?;
        if let Some(duration) = video.duration.filter(|_| video.indexed) {
            for place in PLACES {
                let to = ClockTime::from_nseconds(duration.nseconds() / OF_PLACES * place);
                if !look.seek(to) {
                    break;
                }
                looks.go_on(&look, FRAMES_THERE)?;
            }
        }
        Ok(looks)
    }

    fn new(caps: &gst::Caps, orientation: Option<Orientation>) -> Result<Self, Error> {
        let tagged = caps.structure(0).and_then(|s| s.get::<&str>("colorimetry").ok()?.parse().ok());
        let mut caps = caps.clone();
        // Wherever frames are, they have a format.
        caps.make_mut().set_features_simple(None);
        let info = VideoInfo::from_caps(&caps)?;
        Ok(Self { info, tagged, orientation, levels: vec![0; 256], rows: vec![], is_combed: false })
    }

    fn go_on(&mut self, look: &Look, count: usize) -> Result<(), Error> {
        for _ in 0..count {
            // What a signal leaves unseen is not scored either.
            if interrupt::caught().is_some() {
                break;
            }
            let Some(picture) = look.next()? else { break };
            self.see(&picture);
        }
        Ok(())
    }

    fn see(&mut self, picture: &Picture) {
        let (width, height) = picture.size();
        let rows: Vec<_> = picture
            .samples()
            .chunks(picture.stride().max(1))
            .take(height)
            .filter_map(|row| row.get(..width))
            .collect();
        for sample in rows.iter().copied().flatten() {
            self.levels[usize::from(*sample)] += 1;
        }
        let mean = |row: &&[u8]| row.iter().map(|of| f64::from(*of)).sum::<f64>() / width.max(1) as f64;
        match self.rows.is_empty() {
            true => self.rows = rows.iter().map(mean).collect(),
            false => self.rows.iter_mut().zip(rows.iter().map(mean)).for_each(|(sum, mean)| *sum += mean),
        }
        self.is_combed = self.is_combed || is_combed(&rows);
    }

    /// The stream says that its samples use the full range.
    pub fn says_full(&self) -> bool {
        self.tagged.as_ref().is_some_and(|tagged| tagged.range() == VideoColorRange::Range0_255)
    }

    /// How its colours are coded, if the stream says so.
    pub fn matrix(&self) -> VideoColorMatrix {
        self.tagged.as_ref().map_or(VideoColorMatrix::Unknown, VideoColorimetry::matrix)
    }

    /// A part of the samples is where the limited range has nothing.
    pub fn is_outside(&self) -> bool {
        let outside: u64 = self.levels[..12].iter().chain(&self.levels[244..]).sum();
        let all: u64 = self.levels.iter().sum();
        outside * 200 > all
    }

    /// By how much the levels of two videos differ in the mean, after those of this one were changed.
    fn distance(&self, other: &Self, change: impl Fn(f64) -> f64) -> Option<f64> {
        const STEPS: u32 = 64;
        let quantiles = |levels: &[u64]| {
            let all: u64 = levels.iter().sum();
            let at = |step: u32| {
                let wanted = all * u64::from(2 * step + 1) / u64::from(2 * STEPS);
                let mut sum = 0;
                levels.iter().position(|count| {
                    sum += count;
                    sum > wanted
                })
            };
            (0..STEPS).map(at).collect::<Option<Vec<_>>>()
        };
        let (own, others) = (quantiles(&self.levels)?, quantiles(&other.levels)?);
        let each = own.iter().zip(&others).map(|(own, other)| (change(*own as f64) - *other as f64).abs());
        Some(each.sum::<f64>() / f64::from(STEPS))
    }

    /// What the levels say of this video, if the other one is limited in range.
    pub fn range_against(&self, other: &Self) -> Evidence {
        let alike = self.distance(other, |level| level);
        let wider = self.distance(other, |level| 16.0 + level * 219.0 / 255.0);
        match alike.zip(wider) {
            // What is left of both is the coding.
            Some((alike, wider)) if wider < 2.5 && wider * 2.0 < alike => Evidence::Wider,
            Some((alike, wider)) if alike < 2.5 && alike * 2.0 < wider => Evidence::Alike,
            _ => Evidence::None,
        }
    }

    /// The lines at the bottom are none of the picture: without them the rows are those of the other video, and not if it is
    /// scaled.
    pub fn is_padded(&self, other: &Self) -> bool {
        let mean = |rows: &[f64]| rows.iter().sum::<f64>() / rows.len().max(1) as f64;
        let (own, others) = (mean(&self.rows).max(1.0), mean(&other.rows).max(1.0));
        let count = other.rows.len();
        if count == 0 || self.rows.len() <= count {
            return false;
        }
        let distance = |row: &dyn Fn(usize) -> usize| -> f64 {
            let each = (0..count).map(|y| {
                let own = self.rows.get(row(y)).copied().unwrap_or_default() / own;
                (own - other.rows[y] / others).abs()
            });
            each.sum()
        };
        distance(&|y| y) < distance(&|y| (y * 2 + 1) * self.rows.len() / (count * 2))
    }
}

/// What the levels of a video say about its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Both have the same levels.
    Alike,
    /// It has the levels of the other one in the full range.
    Wider,
    /// They say nothing.
    None,
}

/// Fields of two moments lie between each other: more samples stand out from the rows beside theirs than from the next rows
/// of their own field, which are further away.
fn is_combed(rows: &[&[u8]]) -> bool {
    let (mut beside, mut of_field, mut all) = (0_u64, 0_u64, 0_u64);
    for five in rows.windows(5) {
        for x in 0..five[2].len() {
            let at = |row: usize| i32::from(five[row].get(x).copied().unwrap_or_default());
            let stands_out = |above: i32, below: i32| {
                let (up, down) = (at(2) - above, at(2) - below);
                up.signum() == down.signum()
                    && up.abs().min(down.abs()) > COMBED
                    && (above - below).abs() < COMBED
            };
            beside += u64::from(stands_out(at(1), at(3)));
            of_field += u64::from(stands_out(at(0), at(4)));
            all += 1;
        }
    }
    beside * 2 > of_field * 3 && beside * 2000 > all
}
