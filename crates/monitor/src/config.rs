// SPDX-License-Identifier: MPL-2.0

//! Channels from a TOML file or from the command line.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use engine::model::Model;
use gst::ClockTime;
use gst::prelude::*;
use gsthipvmaf::Align;
use serde::Deserialize;

use super::settings::{Channel, Seconds, Settings};
use super::source::{Named, Source, check_name};
use score::error::Error;
use score::property;
use score::redact;

/// Name of the channel of the command line.
const ONLY: &str = "live";

/// Properties of the element that change with the settings while it runs.
const TUNED: [&str; 8] = [
    "window",
    "alarm-low",
    "alarm-clear",
    "alarm-hold",
    "clear-hold",
    "alarm-share",
    "freeze-time",
    "black-time",
];

/// Model for features alone.
const NO_MODEL: &str = "none";

/// Content of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Options for channels that do not set them.
    #[serde(default)]
    defaults: Settings,
    #[serde(default)]
    channel: Vec<Settings>,
}

/// Reads the channels of a file. Options that it does not set come from `others`. GStreamer must be initialised.
pub fn read(path: &Path, others: &Settings) -> Result<Vec<Channel>, Error> {
    let text = fs::read_to_string(path)
        .map_err(|error| Error::Failed(format!("cannot read {}: {error}", path.display())))?;
    parse(&text, others).map_err(|error| Error::Usage(format!("{}: {error}", path.display())))
}

fn parse(text: &str, others: &Settings) -> Result<Vec<Channel>, String> {
    let file: File = toml::from_str(text).map_err(|error| {
        // The text of the error itself would quote the line, which may contain a passphrase.
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let place = line.map_or(String::new(), |line| format!("line {line}: "));
        format!("{place}{}", redact::quoted(error.message()))
    })?;
    let (defaults, set) =
        (&file.defaults, |what| format!("{what} of a channel cannot be among the defaults"));
    if defaults.name.is_some() || defaults.reference.is_some() || defaults.renditions.is_some() {
        return Err(set("name, reference and renditions"));
    }
    if file.channel.is_empty() {
        return Err("the file has no channel; each one begins with the line [[channel]]".into());
    }
    let defaults = file.defaults.or(others);
    let channels = file.channel.into_iter().enumerate().map(|(i, settings)| {
        let name = settings.name.clone().ok_or(format!("channel {} has no name", i + 1))?;
        channel(name.clone(), settings.or(&defaults)).map_err(|error| format!("channel {name:?}: {error}"))
    });
    let channels = channels.collect::<Result<Vec<_>, String>>()?;
    let mut names = HashSet::new();
    match channels.iter().find(|channel| !names.insert(&channel.name)) {
        Some(channel) => Err(format!("two channels are named {:?}", channel.name)),
        None => Ok(channels),
    }
}

/// Returns the channel of the command line.
pub fn of(settings: &Settings) -> Result<Channel, Error> {
    channel(ONLY.into(), settings.clone()).map_err(Error::Usage)
}

/// Returns the channel with these settings, or the reason why they are invalid.
fn channel(name: String, settings: Settings) -> Result<Channel, String> {
    check_name(&name)?;
    let channel = settings.channel(name)?;
    channel.check()?;
    Ok(channel)
}

impl Channel {
    fn check(&self) -> Result<(), String> {
        if self.renditions.is_empty() {
            return Err("there are no renditions to score".into());
        }
        if self.models.is_empty() {
            return Err("there is no model to score with".into());
        }
        if let Source::Encode(_) = self.reference {
            return Err("x264: encodes the reference, so it cannot be the reference".into());
        }
        let mut labels = HashSet::from(["reference"]);
        if let Some(twice) = self.renditions.iter().find(|named| !labels.insert(&named.label)) {
            return Err(format!("two streams are named {:?}: write NAME=SOURCE", twice.label));
        }
        if let (Some(low), Some(clear)) = (self.alarm_low, self.alarm_clear)
            && clear < low
        {
            return Err(format!("alarm-clear ({clear}) is below alarm-low ({low})"));
        }
        if self.alarm_delay.is_some() && self.align.0 == Align::Off {
            return Err(
                "alarm-delay needs align = \"detect\" or \"auto\", by which the delay is measured".into()
            );
        }
        if self.segment_seconds.is_some_and(|length| length.0 < Duration::from_secs(1)) {
            return Err("segment-seconds is less than 1".into());
        }
        if !(-70.0..=0.0).contains(&self.audio_silence) {
            return Err(format!("audio-silence ({}) is not between -70 and 0 LUFS", self.audio_silence));
        }
        if !(0.0..=70.0).contains(&self.audio_difference) {
            return Err(format!("audio-difference ({}) is not between 0 and 70 LU", self.audio_difference));
        }
        self.reference.check()?;
        self.renditions.iter().try_for_each(|named| named.source.check())?;
        for model in self.models.iter().filter(|model| *model != NO_MODEL) {
            Model::load(model).map_err(|error| error.to_string())?;
        }
        self.element().map(|_| ())
    }

    /// Returns the name of the value that scores are of.
    pub fn score_of(&self) -> String {
        let model = self.models.first().filter(|model| *model != NO_MODEL);
        let features = self.set.iter().find(|of| of.name == "features").map(|of| &of.value);
        let first = |features: &String| {
            features.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().map(String::from)
        };
        let value = self.score.clone().or(model.cloned()).or_else(|| features.and_then(first));
        value.unwrap_or_default()
    }

    /// Returns the longest pause between attempts.
    pub fn longest_pause(&self) -> Duration {
        self.retry.0.max(Duration::from_secs(1))
    }

    /// Returns the time that is recorded before and after alarms; zero if nothing is.
    pub fn incident_length(&self) -> Duration {
        self.incidents.0.min(Duration::from_secs(600))
    }

    /// Returns true if this channel can take the settings of another while it runs.
    pub fn can_become(&self, other: &Self) -> bool {
        let goes_on = |(old, new): (&Named, &Named)| {
            old.source == new.source || (old.source.is_replaceable() && new.source.is_replaceable())
        };
        let all_go_on = self.renditions.len() == other.renditions.len()
            && self.renditions.iter().zip(&other.renditions).all(goes_on);
        let adapted = Self {
            renditions: if all_go_on { &other.renditions } else { &self.renditions }.clone(),
            window: other.window,
            alarm_low: other.alarm_low,
            alarm_clear: other.alarm_clear,
            alarm_hold: other.alarm_hold,
            clear_hold: other.clear_hold,
            alarm_share: other.alarm_share,
            freeze: other.freeze,
            black: other.black,
            alarm_delay: other.alarm_delay,
            segment_seconds: other.segment_seconds,
            audio_hold: other.audio_hold,
            audio_silence: other.audio_silence,
            audio_difference: other.audio_difference,
            stall: other.stall,
            retry: other.retry,
            webhook: other.webhook.clone(),
            snmp_trap: other.snmp_trap.clone(),
            webhook_events: other.webhook_events.clone(),
            maintenance: other.maintenance.clone(),
            ..self.clone()
        };
        adapted == *other
    }

    /// Sets the properties of the element that can change while it runs.
    pub fn tune(&self, element: &gst::Element) -> Result<(), String> {
        let nanoseconds = |time: Seconds| u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX);
        for (name, score) in [("alarm-low", self.alarm_low), ("alarm-clear", self.alarm_clear)] {
            match (score, element.find_property(name)) {
                (Some(score), _) => property::set(element, name, &score.to_string())?,
                (None, Some(of)) => element.set_property_from_value(name, of.default_value()),
                (None, None) => {}
            }
        }
        element.set_properties(&[
            ("window", &nanoseconds(self.window).max(ClockTime::SECOND.nseconds())),
            ("alarm-hold", &nanoseconds(self.alarm_hold)),
            ("clear-hold", &nanoseconds(self.clear_hold)),
            ("alarm-share", &self.alarm_share.0),
            ("freeze-time", &nanoseconds(self.freeze)),
            ("black-time", &nanoseconds(self.black)),
        ]);
        let mut also_set = self.set.iter().filter(|of| TUNED.contains(&&*of.name));
        also_set.try_for_each(|of| property::set(element, &of.name, &of.value))
    }

    /// Creates the element with the settings of this channel.
    pub fn element(&self) -> Result<gst::Element, String> {
        let element = gst::ElementFactory::make("hipvmaf")
            .property("force-live", true)
            .build()
            .map_err(|error| error.to_string())?;
        element.set_properties(&[
            ("attach-meta", &false),
            ("backend", &self.backend.0),
            ("scale-method", &gsthipvmaf::ScaleMethod::Bicubic),
            ("model-filename", &self.models.first()),
            ("extra-models", &self.models.get(1..).unwrap_or_default().join(";")),
            ("latency", &(u64::from(self.wait) * ClockTime::MSECOND.nseconds())),
        ]);
        if let Some(score) = &self.score {
            property::set(&element, "score", score)?;
        }
        self.tune(&element)?;
        self.set.iter().try_for_each(|of| property::set(&element, &of.name, &of.value))?;
        Ok(element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channels(text: &str) -> Result<Vec<Channel>, String> {
        score::init().unwrap();
        parse(text, &Settings::default())
    }

    #[test]
    fn channels_have_what_they_say_and_else_the_defaults() {
        let channels = channels(
            r#"
            [defaults]
            alarm-low = 70
            wait = 300
            [[channel]]
            name = "sport"
            reference = "test:"
            renditions = ["high=x264:3000", "low=x264:300"]
            alarm-low = 60.5
            align = "auto"
            set = ["subsample=2"]
            [[channel]]
            name = "news"
            reference = "srt://:7001?mode=listener"
            renditions = ["srt://:7002"]
            models = ["vmaf_v0.6.1", "vmaf_4k_v0.6.1"]
            freeze = 2.5
            "#,
        )
        .unwrap();
        let [sport, news] = &channels[..] else { panic!("{channels:?}") };
        assert_eq!((sport.alarm_low, news.alarm_low), (Some(60.5), Some(70.0)));
        assert_eq!((sport.align.0, news.align.0), (Align::Auto, Align::Off));
        assert_eq!(sport.wait, 300);
        assert_eq!((sport.freeze.0, news.freeze.0), (Duration::ZERO, Duration::from_millis(2500)));
        assert_eq!((sport.models.len(), news.models.len()), (1, 2));
        assert_eq!(sport.element().unwrap().property::<u32>("subsample"), 2);
        assert_eq!(news.renditions[0].label, "srt://:7002");
    }

    #[test]
    fn errors_name_the_line_and_no_secrets() {
        let channel = |more: &str| {
            format!(
                "[[channel]]\nname = \"a\"\nreference = \"test:\"\nrenditions = [\"high=x264:3000\"]\n{more}"
            )
        };
        for (text, what) in [
            (channel("colour = 1"), "line 5: unknown field `colour`"),
            (channel("[channels]"), "line 5: unknown field `channels`"),
            (channel("alarm-low = \"srt://u:hunter2@h?passphrase=hunter2\""), "line 5: "),
            (channel("alarm-share = 2"), "line 5: 2 is not between"),
            (channel("window = -1"), "line 5: -1 is not a time"),
            (channel("alarm-low = 1000"), "1000 is not a value for alarm-low"),
            (channel("alarm-low = 70\nalarm-clear = 60"), "alarm-clear (60) is below"),
            (channel("set = [\"colour=1\"]"), "channel \"a\": hipvmaf has no property colour"),
            (channel("set = [\"subsample=0\"]"), "0 is not a value for subsample"),
            (channel("set = [\"subsample=all\"]"), "all is not a value for subsample"),
            (channel("webhook = \"ftp://u:hunter2@h\""), "line 5: a webhook is"),
            (channel("webhook-events = [\"all\"]"), "all is no kind of event"),
            (channel("segment-seconds = 0.5"), "segment-seconds is less than 1"),
            (channel("alarm-delay = 1"), "alarm-delay needs align"),
            (channel("align-range = 251"), "251 is not between 1 and 250"),
            (channel("audio-silence = 3"), "audio-silence (3) is not between"),
            (channel("audio-difference = -1"), "audio-difference (-1) is not between"),
            (channel("maintenance = [\"Sun\"]"), "is no maintenance window"),
            (channel("backend = \"gpu\""), "line 5: gpu is not one of auto, hip, cpu"),
            (channel("models = [\"vmaf_v9\"]"), "vmaf_v9"),
            (channel("models = []"), "no model"),
            (channel(&channel("")), "two channels are named \"a\""),
            (channel("[defaults]\nname = \"b\""), "cannot be among the defaults"),
            (channel("").replace("high=x264:3000", "a=x264:1\", \"a=x264:2"), "two streams are named \"a\""),
            (
                channel("").replace("high=x264:3000", "reference=x264:1"),
                "two streams are named \"reference\"",
            ),
            (channel("").replace("x264:3000", "x264:abc"), "line 4: x264:abc is not a bit rate"),
            (channel("").replace("test:", "test:foo"), "line 3: test:foo is not a test pattern"),
            (channel("").replace("test:", "x264:1"), "cannot be the reference"),
            (channel("").replace("test:", "nothing://u:hunter2@h"), "nothing://h: no plugin of GStreamer"),
            (channel("").replace("test:", "udp:h"), "write udp://h"),
            (channel("").replace("\"high=x264:3000\"", ""), "no renditions"),
            (channel("").replace("name = \"a\"", ""), "channel 1 has no name"),
            (channel("").replace("name = \"a\"", "name = \"a/b\""), "is no name"),
            (String::new(), "no channel"),
            ("[[channel]".into(), "line 1: "),
        ] {
            let error = channels(&text).unwrap_err();
            assert!(error.contains(what) && !error.contains("hunter2"), "{error}\n{text}");
        }
    }
}
