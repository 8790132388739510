// SPDX-License-Identifier: MPL-2.0

//! `score --crop`: the part of the frames that is compared.
//!
//! Black bars are cheap to encode and raise scores, and an encode without the bars has a different shape from its
//! original. Both sides are cropped to the smallest rectangle of the original that contains all pictures. An encode
//! of another size is cropped at the same place if this falls between its samples; otherwise GStreamer's `videoscale`
//! first scales it to the size of the original, so that neither side is shifted by a fraction of a sample. An encode
//! of another shape is cropped to its own picture, if that has the shape of the rectangle.

mod bars;

use std::str::FromStr;

use gst::ClockTime;

use super::check::Finding;
use super::preprocessing::{Margins, Preprocessing, Resize};
use super::preview::Preview;
use super::probe::Video;
use super::source::Input;
use crate::error::Error;
use crate::interrupt;

/// Number of frames examined.
const SAMPLES: u64 = 64;
/// Shorter videos are examined from beginning to end, since they may have few key frames.
const SHORT: ClockTime = ClockTime::from_seconds(90);
/// Interval of the examined frames if the duration is unknown.
const OFTEN: ClockTime = ClockTime::from_seconds(1);
/// Lines of a bar next to the picture in which the encode may have coding noise: a block of most codecs.
const SPILLED: u32 = 8;
/// Tolerance for shapes, for rounding.
const SAME_SHAPE: f64 = 0.015;

/// The requested crop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crop {
    /// Detect black bars.
    Auto,
    /// Crop the original by these values.
    Given(Margins),
}

impl FromStr for Crop {
    type Err = &'static str;

    /// Parses `auto` or `LEFT:RIGHT:TOP:BOTTOM`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let sides: Vec<u32> = text.split(':').map_while(|side| side.parse().ok()).collect();
        match sides[..] {
            [left, right, top, bottom] if text.split(':').count() == 4 => {
                if sides.iter().any(|side| side % 2 != 0 || *side > 1 << 20) {
                    return Err("chroma samples cover two lines and columns: use even numbers");
                }
                Ok(Self::Given(Margins { left, right, top, bottom }))
            }
            _ => Err("write auto, or LEFT:RIGHT:TOP:BOTTOM"),
        }
    }
}

/// Crop of one video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Size to scale to before cropping.
    pub size: Option<(u32, u32)>,
    /// Crop after scaling.
    pub margins: Margins,
}

impl Cut {
    /// Returns the video after the crop. `reference` has the size that it is scaled to.
    pub fn of(self, video: &Video, reference: &Video) -> Video {
        let (width, height) = self.margins.left_of(of(video)).unwrap_or(of(video));
        match self.size {
            Some(_) => Video {
                width: reference.width,
                height: reference.height,
                aspect: reference.aspect,
                ..video.clone()
            },
            None => Video { width, height, ..video.clone() },
        }
    }

    /// Adds the crop to a preprocessing, with this method of `videoscale`.
    pub fn apply(self, preprocessing: &mut Preprocessing, method: &'static str) {
        preprocessing.resize = self.size.map(|(width, height)| Resize { width, height, method });
        preprocessing.margins = self.margins;
    }
}

/// A video with its bars; `None` if its frames are too dark.
type Seen<'a> = (&'a Video, Option<Margins>);

/// Finds the bars of a video.
pub fn find_bars(
    input: &Input,
    video: &Video,
    preprocessing: Preprocessing,
) -> Result<Option<Margins>, Error> {
    let preview = Preview::open(input, Preprocessing { time_range: None, ..preprocessing })?;
    let interval = video.duration.map_or(OFTEN, |duration| duration / SAMPLES);
    // Without an index, seeks may fail and the duration is an estimate.
    let mut jumps = video.indexed && video.duration.is_some_and(|duration| duration > SHORT);
    let (mut frames, mut due) = (vec![], ClockTime::ZERO);
    // After a signal nothing is scored, so the examination may be incomplete.
    while interrupt::caught().is_none()
        && let Some(picture) = preview.next()?
    {
        // A seek ends at the key frame before the target.
        if !jumps && picture.position < due {
            continue;
        }
        frames.extend(bars::of_frame(picture.samples(), picture.stride(), picture.size(), picture.black()));
        due += interval;
        if jumps && video.duration.is_some_and(|end| due >= end) {
            break;
        }
        // Without seeking, the frames arrive in order.
        jumps = jumps && preview.seek(due);
    }
    Ok(bars::of_film(&frames))
}

/// Returns the crop of the original and of each rendition, with findings.
pub fn plan(
    crop: Crop,
    reference: Seen,
    renditions: &[Option<Seen>],
) -> Result<(Vec<Cut>, Vec<Finding>), Error> {
    let original = reference.0;
    let size = (original.width, original.height);
    let all = || std::iter::once(&reference).chain(renditions.iter().flatten());
    let mut findings: Vec<_> = match crop {
        Crop::Auto => all().filter_map(|(video, bars)| finding(video, *bars)).collect(),
        Crop::Given(_) => vec![],
    };
    let margins = match crop {
        Crop::Given(margins) => margins,
        Crop::Auto => {
            let of_renditions = renditions.iter().flatten().filter(|(video, _)| alike(video, original, 0.01));
            let bars = of_renditions.filter_map(|(video, bars)| {
                let spilled = Margins { left: SPILLED, right: SPILLED, top: SPILLED, bottom: SPILLED };
                Some((bars.as_ref()?.scaled(of(video), size), spilled.scaled(of(video), size)))
            });
            let of_reference = reference.1.unwrap_or_default();
            bars.fold(of_reference, |least, (bars, spilled)| least.least(bars.or_near(of_reference, spilled)))
                .even()
        }
    };
    let Some(left) = margins.left_of(size) else {
        let (width, height) = size;
        return Err(Error::Usage(format!(
            "--crop leaves nothing of {}, which is {width}x{height}",
            original.input
        )));
    };
    let picture = Video { width: left.0, height: left.1, ..original.clone() };
    let cut = |seen: &Option<Seen>| {
        let Some((video, bars)) = seen else { return Some(Cut::default()) };
        if alike(video, original, 0.01) {
            return Some(match margins.exactly(size, of(video)) {
                Some(margins) => Cut { size: None, margins },
                None => Cut { size: Some(size), margins },
            });
        }
        let own = if crop == Crop::Auto { bars.unwrap_or_default().even() } else { Margins::default() };
        let (width, height) = own.left_of(of(video))?;
        let cut = Video { width, height, ..(*video).clone() };
        alike(&cut, &picture, SAME_SHAPE).then_some(Cut { size: None, margins: own })
    };
    let cuts: Vec<_> = renditions.iter().map(cut).collect();
    match (cuts.iter().position(Option::is_none), crop) {
        (None, _) => {
            let reference = Cut { size: None, margins };
            Ok((std::iter::once(reference).chain(cuts.into_iter().flatten()).collect(), findings))
        }
        (Some(other), Crop::Auto) => {
            let (video, _) = renditions[other].unwrap_or(reference);
            findings.push(Finding {
                video: video.input.clone(),
                kind: "bars",
                text:
                    "its picture without bars has another shape than that of the original: nothing is cropped"
                        .into(),
            });
            Ok((vec![Cut::default(); renditions.len() + 1], findings))
        }
        (Some(other), Crop::Given(_)) => {
            let (video, _) = renditions[other].unwrap_or(reference);
            Err(Error::Usage(format!(
                "{} is {}x{}, which has the shape of the original neither before nor after --crop",
                video.input, video.width, video.height
            )))
        }
    }
}

fn of(video: &Video) -> (u32, u32) {
    (video.width, video.height)
}

fn alike(a: &Video, b: &Video, tolerance: f64) -> bool {
    (a.shape() / b.shape() - 1.0).abs() <= tolerance
}

fn finding(video: &Video, bars: Option<Margins>) -> Option<Finding> {
    let text = match bars {
        Some(bars) if bars.even() == Margins::default() => return None,
        Some(Margins { left, right, top, bottom }) => {
            format!("it has black bars: {left} left, {right} right, {top} at the top, {bottom} at the bottom")
        }
        None => "its pictures are too dark to find black bars".into(),
    };
    Some(Finding { video: video.input.clone(), kind: "bars", text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn margins(left: u32, right: u32, top: u32, bottom: u32) -> Margins {
        Margins { left, right, top, bottom }
    }

    fn auto(
        reference: (u32, u32, Margins),
        other: (u32, u32, Margins),
    ) -> Vec<(Option<(u32, u32)>, Margins)> {
        let [a, b] = [reference, other].map(|(width, height, _)| Video::like("video", width, height));
        let (cuts, _) =
            plan(Crop::Auto, (&a, Some(reference.2)), &[Some((&b, Some(other.2))), None]).unwrap();
        assert_eq!((cuts.len(), cuts[2]), (3, Cut::default()));
        cuts[..2].iter().map(|cut| (cut.size, cut.margins)).collect()
    }

    #[test]
    fn both_sides_are_cut_to_what_holds_both_pictures() {
        let (none, bars) = (margins(0, 0, 0, 0), margins(0, 0, 140, 140));
        assert_eq!(auto((1920, 1080, bars), (1920, 1080, bars)), [(None, bars), (None, bars)]);
        assert_eq!(auto((1920, 1080, bars), (1920, 1080, none)), [(None, none), (None, none)]);
        // A little coding noise in the bars.
        let union = margins(0, 0, 140, 100);
        assert_eq!(
            auto((1920, 1080, bars), (1920, 1080, margins(0, 4, 139, 100))),
            [(None, union), (None, union)]
        );
    }

    #[test]
    fn encodings_of_another_size_are_cut_at_the_same_place() {
        let bars = margins(0, 0, 140, 140);
        assert_eq!(
            auto((1920, 1080, bars), (960, 540, margins(0, 0, 70, 70))),
            [(None, bars), (None, margins(0, 0, 70, 70))]
        );
        // 140 of 1080 lines are not an integer number of 720 lines.
        assert_eq!(
            auto((1920, 1080, bars), (1280, 720, margins(0, 0, 94, 94))),
            [(None, bars), (Some((1920, 1080)), bars)]
        );
    }

    #[test]
    fn an_encoding_without_bars_is_compared_with_the_picture() {
        let (none, bars) = (margins(0, 0, 0, 0), margins(0, 0, 140, 140));
        assert_eq!(auto((1920, 1080, bars), (1920, 800, none)), [(None, bars), (None, none)]);
        assert_eq!(auto((1920, 800, none), (1920, 1080, bars)), [(None, none), (None, bars)]);
        assert_eq!(auto((1920, 1080, bars), (1440, 1080, none)), [(None, none), (None, none)]);
    }

    #[test]
    fn margins_may_be_given() {
        assert_eq!("auto".parse(), Ok(Crop::Auto));
        let given = "0:0:140:138".parse::<Crop>().unwrap();
        assert_eq!(given, Crop::Given(margins(0, 0, 140, 138)));
        for wrong in ["", "1:2:3", "0:0:1:0", "0:0:0:0:0", "a:0:0:0", "0:0:0:-2", "0:0:0:a"] {
            assert!(wrong.parse::<Crop>().is_err(), "{wrong}");
        }
        let [film, half, wide, narrow] = [(1920, 1080), (960, 540), (1920, 802), (1440, 1080)]
            .map(|(width, height)| Video::like("film", width, height));
        let cuts = |video| plan(given, (&film, None), &[Some((video, None))]).map(|(cuts, _)| cuts[1]);
        assert_eq!(cuts(&half).unwrap(), Cut { size: Some((1920, 1080)), margins: margins(0, 0, 140, 138) });
        assert_eq!(cuts(&wide).unwrap(), Cut::default());
        assert!(matches!(cuts(&narrow), Err(Error::Usage(_))));
        let all = Crop::Given(margins(0, 0, 540, 540));
        assert!(matches!(plan(all, (&film, None), &[]), Err(Error::Usage(_))));
    }
}
