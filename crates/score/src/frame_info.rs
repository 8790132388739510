// SPDX-License-Identifier: MPL-2.0

//! Properties of the decoded frames: format, orientation, levels, interlacing, and the edges of the picture.
//!
//! Tags are often missing or wrong, so they are verified with the samples of a few frames.

use gst::ClockTime;
use gst_video::{VideoColorMatrix, VideoColorRange, VideoColorimetry, VideoInfo};

use super::preprocessing::{Orientation, Preprocessing};
use super::preview::{Picture, Preview};
use super::probe::Video;
use super::source::Input;
use crate::error::Error;
use crate::interrupt;

/// Number of frames examined at the beginning.
const FRAMES: usize = 24;
/// Further positions, in quarters of the duration, and the number of frames at each.
const PLACES: [u64; 3] = [1, 2, 3];
const OF_PLACES: u64 = 4;
const FRAMES_THERE: usize = 6;
/// Difference of a row from both neighbours that indicates two moving fields.
const COMBED: i32 = 10;

/// Properties of the decoded frames.
#[derive(Clone, Debug)]
pub struct FrameInfo {
    /// Format of the decoder's output.
    pub info: VideoInfo,
    /// Colour tags of the stream.
    tagged: Option<VideoColorimetry>,
    /// Orientation for display.
    pub orientation: Option<Orientation>,
    /// Histogram of luma in 8 bits.
    levels: Vec<u64>,
    /// Mean luma of each row in the frames at the beginning.
    rows: Vec<f64>,
    /// Fields from different moments were seen.
    pub is_combed: bool,
}

impl FrameInfo {
    /// Examines a video. A stream that can be read only once is described by its header alone.
    pub fn of(input: &Input, video: &Video, preprocessing: Preprocessing) -> Result<Self, Error> {
        if let Some(reader) = input.reader().filter(|reader| reader.is_stream()) {
            return Ok(Self { is_combed: true, ..Self::new(&reader.caps(), None)? });
        }
        let preview = Preview::open(input, preprocessing)?;
        let first = preview.next()?;
        let caps = preview.caps();
        let caps =
            caps.ok_or_else(|| Error::Failed(format!("{} has no video that can be decoded", input.given())))?;
        let mut frame_info = Self::new(&caps, preview.orientation())?;
        first.iter().for_each(|picture| frame_info.see(picture));
        frame_info.go_on(&preview, FRAMES)?;
        if let Some(duration) = video.duration.filter(|_| video.indexed) {
            for place in PLACES {
                let to = ClockTime::from_nseconds(duration.nseconds() / OF_PLACES * place);
                if !preview.seek(to) {
                    break;
                }
                frame_info.go_on(&preview, FRAMES_THERE)?;
            }
        }
        Ok(frame_info)
    }

    /// Returns the video as it is displayed: rotated, and progressive if no interlacing was seen.
    pub fn shown(&self, mut video: Video) -> Video {
        video.interlaced &= self.is_combed;
        if self.orientation.is_some_and(Orientation::swaps) {
            std::mem::swap(&mut video.width, &mut video.height);
            video.aspect = gst::Fraction::new(video.aspect.denom(), video.aspect.numer());
        }
        video
    }

    fn new(caps: &gst::Caps, orientation: Option<Orientation>) -> Result<Self, Error> {
        let tagged = caps.structure(0).and_then(|s| s.get::<&str>("colorimetry").ok()?.parse().ok());
        let mut caps = caps.clone();
        // Frames in any memory have the same formats.
        caps.make_mut().set_features_simple(None);
        let info = VideoInfo::from_caps(&caps)?;
        Ok(Self { info, tagged, orientation, levels: vec![0; 256], rows: vec![], is_combed: false })
    }

    fn go_on(&mut self, preview: &Preview, count: usize) -> Result<(), Error> {
        for _ in 0..count {
            // After a signal nothing is scored, so the examination may be incomplete.
            if interrupt::caught().is_some() {
                break;
            }
            let Some(picture) = preview.next()? else { break };
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

    /// Returns true if the stream is tagged as full range.
    pub fn says_full(&self) -> bool {
        self.tagged.as_ref().is_some_and(|tagged| tagged.range() == VideoColorRange::Range0_255)
    }

    /// Returns the colour matrix of the tags.
    pub fn matrix(&self) -> VideoColorMatrix {
        self.tagged.as_ref().map_or(VideoColorMatrix::Unknown, VideoColorimetry::matrix)
    }

    /// Returns true if a share of the samples is outside the limited range.
    pub fn is_outside(&self) -> bool {
        let outside: u64 = self.levels[..12].iter().chain(&self.levels[244..]).sum();
        let all: u64 = self.levels.iter().sum();
        outside * 200 > all
    }

    /// Returns the mean difference between the levels of two videos, after a change of this one's.
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

    /// Judges the range of this video if the other one is limited.
    pub fn range_against(&self, other: &Self) -> Evidence {
        let alike = self.distance(other, |level| level);
        let wider = self.distance(other, |level| 16.0 + level * 219.0 / 255.0);
        match alike.zip(wider) {
            // The rest is coding noise.
            Some((alike, wider)) if wider < 2.5 && wider * 2.0 < alike => Evidence::Wider,
            Some((alike, wider)) if alike < 2.5 && alike * 2.0 < wider => Evidence::Alike,
            _ => Evidence::None,
        }
    }

    /// Returns true if the surplus rows at the bottom are padding: without them, the rows match the other video's,
    /// and scaled they do not.
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

/// Evidence about the range of a video from its levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Both have the same levels.
    Alike,
    /// This one has the other's levels in full range.
    Wider,
    /// No evidence.
    None,
}

/// Returns true if two fields from different moments are interleaved: more samples differ from the adjacent rows than
/// from the next rows of their own field, which are further away.
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
