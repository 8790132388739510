// SPDX-License-Identifier: MPL-2.0

//! Small pictures of all frames of a video, decoded and treated as for scoring.

use engine::frame::{BitDepth, Component, Samples};
use gst::ClockTime;
use watch::thumbnail::{COLUMNS, ROWS, Thumbnail};

use crate::error::Error;
use crate::interrupt;
use crate::preview::{Picture, Preview};
use crate::{Input, Preprocessing};

/// Cells of a small picture: those of a thumbnail, with two columns merged. One hour takes about 50 MB.
pub const CELLS: usize = COLUMNS / 2 * ROWS;

/// Luma means of a frame, in 1/256 of an 8-bit step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Small(pub [u16; CELLS]);

impl Small {
    fn of(picture: &Picture) -> Option<Self> {
        let (width, height) = picture.size();
        let samples = Samples::Host(picture.samples());
        let luma = Component { samples, width, height, stride: picture.stride(), step: 1, shift: 0 };
        let thumbnail = Thumbnail::new(&luma, BitDepth::new(8)?)?;
        let cells = thumbnail.cells();
        let mean = |i: usize| (u32::from(cells[2 * i]) + u32::from(cells[2 * i + 1])).div_ceil(2);
        Some(Self(std::array::from_fn(|i| u16::try_from(mean(i)).unwrap_or(u16::MAX))))
    }

    /// Returns the root mean square difference, in 8-bit steps.
    pub fn distance(&self, other: &Self) -> f32 {
        let squares = self.0.iter().zip(&other.0).map(|(a, b)| {
            let difference = u64::from(a.abs_diff(*b));
            difference * difference
        });
        ((squares.sum::<u64>() as f32) / CELLS as f32).sqrt() / 256.0
    }

    /// Returns the scalar product of two changes, each from one picture to another, as a squared distance.
    pub fn along((a, b): (&Self, &Self), (c, d): (&Self, &Self)) -> f32 {
        let change = |from: u16, to: u16| i64::from(to) - i64::from(from);
        let product = |i: usize| change(a.0[i], b.0[i]) * change(c.0[i], d.0[i]);
        (0..CELLS).map(product).sum::<i64>() as f32 / CELLS as f32 / 65_536.0
    }
}

/// A frame of a video.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Running time in nanoseconds, later than that of the frame before.
    pub time: u64,
    /// Position in the stream, in nanoseconds.
    pub position: u64,
    /// Its picture.
    pub picture: Small,
}

/// Limits of an examination.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    /// Largest number of frames.
    pub frames: Option<usize>,
    /// Last position.
    pub until: Option<ClockTime>,
}

/// Decodes a video. After an interrupt, the result has the frames so far.
pub fn scan(input: &Input, preprocessing: Preprocessing, limit: Limit) -> Result<Vec<Shot>, Error> {
    let preview = Preview::open(input, preprocessing)?;
    let mut shots: Vec<Shot> = vec![];
    while interrupt::caught().is_none() && limit.frames.is_none_or(|frames| shots.len() < frames) {
        let Some(picture) = preview.next()? else { break };
        if limit.until.is_some_and(|until| picture.position > until) {
            break;
        }
        let least = shots.last().map_or(0, |last| last.time + 1);
        shots.push(Shot {
            time: picture.time.nseconds().max(least),
            position: picture.position.nseconds(),
            picture: Small::of(&picture).ok_or("a picture cannot be read")?,
        });
    }
    Ok(shots)
}

/// Returns the median; of an even number of values, the upper one.
pub fn middle<T: Copy + PartialOrd>(mut values: Vec<T>) -> Option<T> {
    let at = values.len() / 2;
    let order = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(at, order).1)
}
