// SPDX-License-Identifier: MPL-2.0

//! Quality of the renditions for systems downstream, as a composite from 0 to 100, and by segments of time.
//!
//! A score says how alike pictures are that were compared. The composite also falls where there is nothing to compare:
//! docs/live.md defines it.

use gsthipvmaf::message::PooledMessage;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::scale::{Scale, title};

/// Name of the composite in the draft of the SVTA.
const COMPOSITE: &str = "MQA-VIDEO";
/// Alarms of a stream that shows nothing of the reference.
const NOTHING: [&str; 6] = ["freeze", "black", "dropout", "stalled", "failed", "other-programme"];

/// Returns the composite of a window, from the kinds of active alarms of the rendition. Nothing is known if frames were neither
/// compared nor missing. While this machine is overloaded, missing frames say nothing about the rendition.
pub fn composite(
    window: &PooledMessage,
    raised: &[&str],
    score_of: &str,
    is_overloaded: bool,
) -> Option<f64> {
    if raised.iter().any(|kind| NOTHING.contains(kind)) {
        return Some(0.0);
    }
    let counts = &window.counts;
    let compared = counts.scored + counts.skipped + counts.aligning + counts.discont;
    let frames = compared + if is_overloaded { 0 } else { counts.unpaired };
    if frames > 0 && compared == 0 {
        return Some(0.0);
    }
    if !window.score.is_finite() {
        return None;
    }
    let Scale { low, high, .. } = Scale::of(score_of);
    let score = ((window.score - low) / (high - low)).clamp(0.0, 1.0);
    Some(100.0 * score * compared as f64 / frames.max(1) as f64)
}

/// Quality of a rendition in a segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    pub label: String,
    /// Seconds since 1970.
    pub begin: f64,
    /// Seconds.
    pub duration: f64,
    /// Windows that are known.
    pub windows: u32,
    /// Mean of the windows' scores, and the name of the value.
    pub score: Option<f64>,
    pub score_of: String,
    pub composite: f64,
}

impl Segment {
    /// Returns its JSON, with the keys of CMCD and CMSD that were proposed.
    pub fn shown(&self) -> Value {
        let Self { label, begin, duration, windows, score, score_of, composite } = self;
        let score = score.map(|score| (title(score_of), score.round() as i64));
        let all = score.into_iter().chain([(COMPOSITE, composite.round() as i64)]);
        let (types, scores): (Vec<_>, Vec<_>) = all.unzip();
        let quoted: Vec<_> = types.iter().map(|name| format!("\"{name}\"")).collect();
        let numbers: Vec<_> = scores.iter().map(i64::to_string).collect();
        json!({
            "label": label, "begin": begin, "duration": duration, "windows": windows, "vqat": types, "vqas": scores,
            "cmsd": format!("vqat=({}),vqas=({})", quoted.join(" "), numbers.join(" ")),
        })
    }
}

/// Sums up the windows of a rendition by segments that are aligned to UTC.
#[derive(Clone, Debug, Default)]
pub struct Segmenter {
    /// Number of the segment since 1970.
    number: u64,
    windows: u32,
    composite: f64,
    scored: u32,
    score: f64,
}

impl Segmenter {
    /// Adds a window that ends at a time, in seconds since 1970, with its score and composite. Returns the segment before if it
    /// begins another one.
    pub fn add(&mut self, time: f64, length: f64, score: f64, composite: Option<f64>) -> Option<Segment> {
        let number = (time / length) as u64;
        let ended = if number == self.number { None } else { self.end(length) };
        self.number = number;
        if let Some(composite) = composite {
            self.windows += 1;
            self.composite += composite;
        }
        if score.is_finite() {
            self.scored += 1;
            self.score += score;
        }
        ended
    }

    /// Returns the segment, without its names, unless nothing is known of it.
    fn end(&mut self, length: f64) -> Option<Segment> {
        let Self { number, windows, composite, scored, score } = std::mem::take(self);
        (windows > 0).then(|| Segment {
            label: String::new(),
            begin: number as f64 * length,
            duration: length,
            windows,
            score: (scored > 0).then(|| score / f64::from(scored)),
            score_of: String::new(),
            composite: composite / f64::from(windows),
        })
    }
}

#[cfg(test)]
mod tests {
    use gsthipvmaf::message::Common;
    use watch::counts::Counts;

    use super::*;

    fn window(score: f64, scored: u64, unpaired: u64) -> PooledMessage {
        let counts = Counts { scored, unpaired, ..Counts::default() };
        PooledMessage { common: Common { score, ..Common::default() }, counts, ..PooledMessage::default() }
    }

    #[test]
    fn the_composite_falls_where_the_score_does_not() {
        let of = |window: &PooledMessage, raised: &[&str]| composite(window, raised, "vmaf_v0.6.1", false);
        assert_eq!(of(&window(80.0, 50, 0), &["alarm", "overload"]), Some(80.0));
        assert_eq!(of(&window(80.0, 40, 10), &[]), Some(64.0));
        for kind in ["freeze", "black", "dropout", "other-programme"] {
            assert_eq!(of(&window(80.0, 50, 0), &[kind]), Some(0.0), "{kind}");
        }
        assert_eq!(of(&window(f64::NAN, 0, 50), &[]), Some(0.0));
        assert_eq!(of(&window(f64::NAN, 0, 0), &[]), None);
        assert_eq!(composite(&window(40.0, 50, 0), &[], "xpsnr_y", false), Some(50.0));
        // An overloaded machine is no fault of the rendition.
        let overloaded = |window: &PooledMessage| composite(window, &[], "vmaf_v0.6.1", true);
        assert_eq!(overloaded(&window(80.0, 40, 10)), Some(80.0));
        assert_eq!(overloaded(&window(f64::NAN, 0, 50)), None);
    }

    #[test]
    fn segments_are_aligned_to_the_clock() {
        let mut segmenter = Segmenter::default();
        let mut segments = vec![];
        for (time, score, composite) in [
            (1_000_000_003.0, 90.0, Some(90.0)),
            (1_000_000_004.0, 80.0, Some(40.0)),
            (1_000_000_006.0, f64::NAN, Some(0.0)),
            (1_000_000_012.0, f64::NAN, None),
            (1_000_000_020.0, 90.0, Some(90.0)),
        ] {
            segments.extend(segmenter.add(time, 5.0, score, composite));
        }
        let seen: Vec<_> = segments.iter().map(|of| (of.begin, of.windows, of.score, of.composite)).collect();
        assert_eq!(seen, [(1e9, 2, Some(85.0), 65.0), (1e9 + 5.0, 1, None, 0.0)]);
        let segment = Segment { label: "a".into(), score_of: "vmaf_v0.6.1".into(), ..segments[0].clone() };
        assert_eq!(
            segment.shown(),
            json!({
                "label": "a", "begin": 1e9, "duration": 5.0, "windows": 2, "vqat": ["VMAF", "MQA-VIDEO"], "vqas": [85, 65],
                "cmsd": "vqat=(\"VMAF\" \"MQA-VIDEO\"),vqas=(85 65)",
            })
        );
    }
}
