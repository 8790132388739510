// SPDX-License-Identifier: MPL-2.0

//! Ladders: the rates of encodings beside their quality, and how series of encodings compare.
//!
//! Encodings are of one series if they have one name (`NAME=FILE`), and otherwise if they have one codec.

use serde::Serialize;

use super::bd::{self, Curve};
use super::metric::Metric;
use super::scores::{Figures, Scores};

/// The VMAF from which viewers see hardly any damage.
const TARGET: f64 = 93.0;

/// Size and length of a video stream.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Coded {
    /// Bytes of its frames, without the container.
    pub bytes: u64,
    /// Length in seconds.
    pub seconds: f64,
}

impl Coded {
    /// Returns the bit rate in kbit/s.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1000.0 / self.seconds
    }
}

/// The place of an encoding in a ladder.
#[derive(Clone, Debug, Default)]
pub struct Rung {
    /// Name of the series.
    pub series: String,
    /// Width and height before scaling.
    pub size: (u32, u32),
    /// Size and length of the encoding, if they are known.
    pub coded: Option<Coded>,
}

/// The encodings by a metric.
#[derive(Debug, Serialize)]
pub struct Ladder {
    /// The metric.
    pub metric: String,
    /// Series in the order of their first encodings.
    pub series: Vec<Series>,
}

/// A series of encodings.
#[derive(Debug, Serialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Encodings by rising rate.
    pub encodings: Vec<Point>,
    /// Bjontegaard's difference of the rate from the first series, in percent.
    pub bd_rate: Option<f64>,
    /// The lowest rate that reaches the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    #[serde(skip)]
    curve: Option<Curve>,
}

/// An encoding of a series.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Its label.
    pub label: String,
    /// Rate in kbit/s.
    pub rate: f64,
    /// Quality by the metric.
    pub quality: f64,
    /// It is on the upper convex hull of its series.
    pub on_hull: bool,
}

/// A point with the width and height of its encoding.
type OfSize = (Point, (u32, u32));

/// The lowest rate at a quality.
#[derive(Debug, Serialize)]
pub struct Target {
    /// The quality.
    pub quality: f64,
    /// Rate in kbit/s, interpolated between encodings; `None` where they do not reach the quality, or are all above it.
    pub rate: Option<f64>,
    /// The encoding with the lowest rate that has this quality.
    pub encoding: Option<String>,
}

/// Returns the ladder by each metric of which more is better, if the rates of two encodings are known.
pub fn ladders(renditions: &[Scores]) -> Vec<Ladder> {
    let scored = renditions.iter().find(|scores| !scores.frames.is_empty());
    let metrics: Vec<Metric> = scored.into_iter().flat_map(Scores::metrics).collect();
    let figures: Vec<_> = renditions.iter().map(|scores| (scores, scores.all_figures())).collect();
    let columns = metrics.into_iter().enumerate().filter(|(_, metric)| !metric.more_is_worse());
    columns.filter_map(|(column, metric)| ladder(&figures, column, metric)).collect()
}

/// Returns the ladder by the metric of this column, from the renditions and their figures.
fn ladder(renditions: &[(&Scores, Vec<Figures>)], column: usize, metric: Metric) -> Option<Ladder> {
    let is_vmaf = metric.name.starts_with("vmaf");
    let mut groups: Vec<(String, Vec<OfSize>)> = vec![];
    for (scores, figures) in renditions {
        let rung = &scores.rung;
        let quality = figures.get(column).and_then(Figures::quality);
        let (Some(coded), Some(quality)) = (rung.coded, quality.filter(|quality| quality.is_finite())) else {
            continue;
        };
        let point = Point { label: scores.label.clone(), rate: coded.rate(), quality, on_hull: false };
        match groups.iter_mut().find(|(name, _)| *name == rung.series) {
            Some((_, points)) => points.push((point, rung.size)),
            None => groups.push((rung.series.clone(), vec![(point, rung.size)])),
        }
    }
    if groups.iter().map(|(_, points)| points.len()).sum::<usize>() < 2 {
        return None;
    }
    let mut series: Vec<_> =
        groups.into_iter().map(|(name, points)| Series::new(name, points, is_vmaf)).collect();
    let anchor = series.first().and_then(|first| first.curve.clone());
    for other in series.iter_mut().skip(1) {
        other.bd_rate =
            other.curve.as_ref().zip(anchor.as_ref()).and_then(|(own, anchor)| own.bd_rate(anchor));
    }
    Some(Ladder { metric: metric.name, series })
}

impl Series {
    fn new(name: String, mut points: Vec<OfSize>, has_target: bool) -> Self {
        points.sort_by(|(a, _), (b, _)| a.rate.total_cmp(&b.rate));
        let all = || points.iter().map(|(point, _)| (point.rate, point.quality));
        let has_sizes = points.windows(2).any(|two| two[0].1 != two[1].1);
        let hull = bd::hull(all());
        // Of several sizes, a service uses those on the hull.
        let curve = if has_sizes { Curve::new(hull.iter().copied()) } else { Curve::new(all()) };
        let reaches = points.iter().find(|(point, _)| point.quality >= TARGET);
        let target = has_target.then(|| Target {
            quality: TARGET,
            rate: curve.as_ref().and_then(|curve| curve.rate(TARGET)),
            encoding: reaches.map(|(point, _)| point.label.clone()),
        });
        let encodings = points.iter().map(|(point, _)| Point {
            on_hull: hull.contains(&(point.rate, point.quality)),
            ..point.clone()
        });
        Self { name, encodings: encodings.collect(), bd_rate: None, target, curve }
    }
}

#[cfg(test)]
mod tests {
    use gst::ClockTime;

    use super::super::scores::Frame;
    use super::*;

    fn encoding(label: &str, series: &str, width: u32, kbits: u64, vmaf: f64) -> Scores {
        let mut scores = Scores::new(label.into(), vec!["vmaf_v0.6.1".into()], vec!["cambi".into()]);
        scores.frames = vec![Frame { index: 0, time: ClockTime::ZERO, scores: vec![vmaf, 1.0] }];
        let coded = Some(Coded { bytes: kbits * 250, seconds: 2.0 });
        scores.rung = Rung { series: series.into(), size: (width, width / 2), coded };
        scores
    }

    #[test]
    fn series_are_compared_with_the_first() {
        let all = [
            encoding("a3", "avc", 1280, 4000, 97.0),
            encoding("a1", "avc", 640, 500, 60.0),
            encoding("low", "avc", 1280, 700, 55.0),
            encoding("a2", "avc", 1280, 1500, 85.0),
            encoding("h1", "hevc", 640, 250, 60.0),
            encoding("h2", "hevc", 1280, 750, 85.0),
            encoding("h3", "hevc", 1280, 2000, 97.0),
        ];
        let [ladder] = &ladders(&all)[..] else { panic!("cambi is no quality") };
        let [avc, hevc] = &ladder.series[..] else { panic!() };
        let hull = |of: &Series| {
            of.encodings.iter().filter(|of| of.on_hull).map(|of| of.label.clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            (hull(avc), hull(hevc)),
            (
                vec!["a1".into(), "a2".into(), "a3".to_owned()],
                vec!["h1".into(), "h2".into(), "h3".to_owned()]
            )
        );
        assert_eq!((avc.encodings[1].label.as_str(), avc.encodings[1].rate), ("low", 700.0));
        assert_eq!(avc.bd_rate, None);
        assert!((hevc.bd_rate.unwrap() + 50.0).abs() < 1e-9, "{:?}", hevc.bd_rate);
        let target = avc.target.as_ref().unwrap();
        assert_eq!(target.encoding.as_deref(), Some("a3"));
        assert!((1500.0..4000.0).contains(&target.rate.unwrap()), "{target:?}");
        assert!((hevc.target.as_ref().unwrap().rate.unwrap() * 2.0 - target.rate.unwrap()).abs() < 1e-6);
    }

    #[test]
    fn without_two_rates_there_is_no_ladder() {
        let (a, mut b) = (encoding("a", "avc", 640, 500, 60.0), encoding("b", "avc", 640, 900, 70.0));
        assert_eq!(ladders(&[a.clone(), b.clone()]).len(), 1);
        b.rung.coded = None;
        assert!(ladders(&[a, b]).is_empty());
    }
}
