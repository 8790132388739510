// SPDX-License-Identifier: MPL-2.0

//! Audio of the sources: presence, silence, and loudness of each rendition beside the reference.
//!
//! Sources hand out their audio as it was sent. A probe copies it to a pipeline of its own, which decodes it
//! (`decoder.rs`) and measures its loudness by EBU R 128 (`meter.rs`). Audio that stalls or cannot be decoded
//! therefore neither holds up nor breaks the pictures.

mod decoder;
mod meter;

pub use decoder::{Audio, keep_encoded};
pub use meter::Heard;

use super::hold::Hold;
use super::settings::Channel;
use meter::BLOCK;

/// Kinds of alarms about audio.
pub const MISSING: &str = "audio-missing";
pub const SILENCE: &str = "silence";
pub const LOUDNESS: &str = "loudness";

/// Limits of the alarms.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Seconds after which alarms are raised, and cleared.
    times: [f64; 2],
    /// Loudness below which audio is silent, in LUFS.
    silence: f64,
    /// Largest difference to the reference, in LU.
    difference: f64,
}

impl Limits {
    pub fn of(channel: &Channel) -> Self {
        Self {
            times: [channel.audio_hold.0, channel.clear_hold.0].map(|time| time.as_secs_f64()),
            silence: channel.audio_silence,
            difference: channel.audio_difference,
        }
    }
}

/// An alarm that begins or ends.
#[derive(Debug, PartialEq)]
pub struct Change {
    pub kind: &'static str,
    pub raised: bool,
    pub text: String,
}

/// Alarms about the audio of a stream.
#[derive(Default)]
pub struct Alarms {
    missing: Hold,
    silence: Hold,
    loudness: Hold,
    /// The last block was silent.
    silent: bool,
    /// Loudness of the last seconds, if there is enough audio.
    recent: Option<f64>,
}

impl Alarms {
    /// Takes the audio of the last `seconds` of a stream, and the alarms of the reference if this is a rendition. Returns the
    /// alarms that begin or end. Silence of the reference is no fault of its renditions.
    pub fn update(
        &mut self,
        heard: &Heard,
        reference: Option<&Self>,
        seconds: f64,
        limits: &Limits,
    ) -> Vec<Change> {
        let mut changes = vec![];
        let mut change = |kind, text: String, raised: Option<bool>| {
            changes.extend(raised.map(|raised| Change { kind, raised, text }));
        };
        let why = heard.reason.as_ref().map_or("no audio arrives".into(), |why| format!("no audio: {why}"));
        let text = if heard.present { "audio arrives again".into() } else { why };
        change(MISSING, text, self.missing.update(!heard.present, seconds, limits.times));
        for loudness in &heard.blocks {
            self.silent = *loudness < limits.silence;
            let condition = self.silent && reference.is_none_or(|reference| !reference.silent);
            let text = format!("{loudness:.0} LUFS, threshold {}", limits.silence);
            change(SILENCE, text, self.silence.update(condition, BLOCK, limits.times));
        }
        self.recent = heard.recent.filter(|_| heard.present && !self.silent);
        if let (Some(own), Some(reference)) = (self.recent, reference.and_then(|reference| reference.recent))
        {
            let difference = own - reference;
            let text = format!("{difference:+.1} LU beside the reference, threshold {}", limits.difference);
            let condition = difference.abs() > limits.difference;
            change(LOUDNESS, text, self.loudness.update(condition, seconds, limits.times));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { times: [2.0, 1.0], silence: -60.0, difference: 3.0 };

    /// Returns what is heard in a second of this loudness.
    fn second(loudness: f64) -> Heard {
        Heard { present: true, blocks: vec![loudness; 10], recent: Some(loudness), ..Heard::default() }
    }

    /// Returns the alarms about a rendition: second, kind, and if it is raised.
    fn changes(seconds: &[(Heard, Heard)]) -> Vec<(usize, &'static str, bool)> {
        let [mut reference, mut rendition] = [Alarms::default(), Alarms::default()];
        let mut seen = vec![];
        for (i, (of_reference, of_rendition)) in seconds.iter().enumerate() {
            reference.update(of_reference, None, 1.0, &LIMITS);
            let changes = rendition.update(of_rendition, Some(&reference), 1.0, &LIMITS);
            seen.extend(changes.into_iter().map(|change| (i, change.kind, change.raised)));
        }
        seen
    }

    #[test]
    fn what_lasts_is_an_alarm() {
        let nothing = Heard::default;
        let all = [
            (second(-23.0), second(-21.0)),
            (second(-23.0), second(-70.0)),
            (second(-23.0), second(-70.0)),
            (second(-23.0), second(-23.0)),
            (second(-23.0), nothing()),
            (second(-23.0), nothing()),
            (second(-23.0), second(-19.0)),
            (second(-23.0), second(-19.0)),
            (second(-23.0), second(-24.0)),
        ];
        let expected = [
            (2, SILENCE, true),
            (3, SILENCE, false),
            (5, MISSING, true),
            (6, MISSING, false),
            (7, LOUDNESS, true),
            (8, LOUDNESS, false),
        ];
        assert_eq!(changes(&all), expected);
    }

    #[test]
    fn a_silent_reference_explains_silence() {
        assert_eq!(changes(&[(); 9].map(|()| (second(-65.0), second(-70.0)))), []);
        let mut reference = Alarms::default();
        let raised: Vec<_> =
            (0..3).flat_map(|_| reference.update(&second(-65.0), None, 1.0, &LIMITS)).collect();
        let text = "-65 LUFS, threshold -60".into();
        assert_eq!(raised, [Change { kind: SILENCE, raised: true, text }]);
    }
}
