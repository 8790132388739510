// SPDX-License-Identifier: MPL-2.0

//! Loudness by EBU R 128, as the crate `ebur128` measures it, which `ebur128level` of GStreamer uses as well.

use std::time::{Duration, Instant};

use ebur128::{EbuR128, Mode};

/// Seconds of audio between two measurements.
pub const BLOCK: f64 = 0.1;
/// Measurements a second.
const RATE: u32 = 10;
/// Lowest loudness, which is also that of digital silence: the absolute gate of EBU R 128, in LUFS.
const LOWEST: f64 = -70.0;
/// Seconds of the loudness that renditions are compared with the reference by.
const RECENT: u32 = 10;
/// Seconds of the short-term loudness.
const SHORT: u32 = 3;
/// Time without audio after which none is present.
const GAP: Duration = Duration::from_secs(1);
/// Longest time for which audio may arrive in advance, as segments of adaptive streams do.
const ADVANCE: Duration = Duration::from_secs(15);
/// Measurements that may wait; beyond it the oldest are dropped.
const MOST_BLOCKS: usize = 600;

/// Result of the measurements since the last question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// Audio is being decoded.
    pub present: bool,
    /// Reason why there is none.
    pub reason: Option<String>,
    /// Momentary loudness of each block, in LUFS.
    pub blocks: Vec<f64>,
    /// Short-term loudness, in LUFS.
    pub short: Option<f64>,
    /// Loudness of the last ten seconds, in LUFS.
    pub recent: Option<f64>,
}

/// Measures samples.
#[derive(Default)]
pub struct Meter {
    state: Option<EbuR128>,
    /// Samples a second, and channels.
    format: (u32, u32),
    /// Frames of the current block.
    filled: usize,
    /// Blocks of this format, as far as they matter.
    measured: u32,
    blocks: Vec<f64>,
    /// Time until which there is audio.
    until: Option<Instant>,
}

impl Meter {
    /// Adds interleaved samples of a format: samples a second, and channels.
    pub fn add(&mut self, samples: &[f32], format: (u32, u32), now: Instant) -> Result<(), ebur128::Error> {
        if self.state.is_none() || self.format != format {
            let mut state = EbuR128::new(format.1, format.0, Mode::S)?;
            state.set_max_window(RECENT * 1000)?;
            *self = Self {
                state: Some(state),
                format,
                blocks: std::mem::take(&mut self.blocks),
                ..Self::default()
            };
        }
        let Some(state) = &mut self.state else { return Ok(()) };
        let channels = format.1 as usize;
        let block = (format.0 / RATE).max(1) as usize;
        let mut rest = samples;
        while !rest.is_empty() {
            let frames = (block - self.filled).min(rest.len() / channels);
            if frames == 0 {
                // Less than a frame, which cannot be.
                break;
            }
            let (first, others) = rest.split_at(frames * channels);
            state.add_frames_f32(first)?;
            rest = others;
            self.filled += frames;
            if self.filled == block {
                self.filled = 0;
                self.measured = (self.measured + 1).min(RECENT * RATE);
                self.blocks.push(state.loudness_momentary()?.max(LOWEST));
            }
        }
        let surplus = self.blocks.len().saturating_sub(MOST_BLOCKS);
        self.blocks.drain(..surplus);
        let length = Duration::from_secs_f64((samples.len() / channels) as f64 / f64::from(format.0));
        let until = self.until.map_or(now, |until| until.max(now)) + length;
        self.until = Some(until.min(now + ADVANCE));
        Ok(())
    }

    /// Returns the measurements since the last question.
    pub fn heard(&mut self, now: Instant) -> Heard {
        let present = self.until.is_some_and(|until| now < until + GAP);
        let after = |seconds: u32| self.state.as_ref().filter(|_| present && self.measured >= seconds * RATE);
        let loudness = |value: Result<f64, _>| value.ok().map(|value: f64| value.max(LOWEST));
        Heard {
            present,
            reason: None,
            short: after(SHORT).and_then(|state| loudness(state.loudness_shortterm())),
            recent: after(RECENT).and_then(|state| loudness(state.loudness_window(RECENT * 1000))),
            blocks: std::mem::take(&mut self.blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns seconds of a tone of 1 kHz in two channels, of this level in dBFS.
    fn tone(seconds: usize, level: f64) -> Vec<f32> {
        let amplitude = 10f64.powf(level / 20.0);
        let sample = |i: usize| (amplitude * (std::f64::consts::TAU * (i / 2) as f64 / 48.0).sin()) as f32;
        (0..seconds * 48_000 * 2).map(sample).collect()
    }

    #[test]
    fn a_tone_has_the_loudness_of_ebu_tech_3341() {
        let mut meter = Meter::default();
        let now = Instant::now();
        for (level, expected) in [(-23.0, -23.0), (-33.0, -33.0), (f64::NEG_INFINITY, LOWEST)] {
            // In pieces that are no multiple of a block.
            for piece in tone(11, level).chunks(2 * 1_111) {
                meter.add(piece, (48_000, 2), now).unwrap();
            }
            let heard = meter.heard(now);
            let last = heard.blocks.last().copied();
            for loudness in [last, heard.short, heard.recent] {
                assert!((loudness.unwrap() - expected).abs() < 0.1, "{level}: {heard:?}");
            }
            assert_eq!(heard.blocks.len(), 110);
        }
    }

    #[test]
    fn audio_is_present_for_its_length() {
        let mut meter = Meter::default();
        let now = Instant::now();
        assert_eq!(meter.heard(now), Heard::default());
        // A segment that arrives at once.
        meter.add(&tone(6, -20.0), (48_000, 2), now).unwrap();
        let at = |seconds| now + Duration::from_secs(seconds);
        let heard = meter.heard(at(5));
        assert!(heard.present && heard.short.is_some() && heard.recent.is_none(), "{heard:?}");
        assert!(!meter.heard(at(8)).present && meter.heard(at(8)).short.is_none());
        // Another format begins anew.
        meter.add(&tone(1, -20.0), (44_100, 1), at(9)).unwrap();
        assert!(meter.heard(at(9)).present && meter.heard(at(9)).short.is_none());
        assert!(meter.add(&[0.0], (48_000, 0), now).is_err());
    }
}
