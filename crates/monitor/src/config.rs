// SPDX-License-Identifier: MPL-2.0

//! The channels that are to be watched, from a file in TOML or from the command line.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use engine::model::Model;
use gst::prelude::*;
use serde::Deserialize;

use super::settings::{Align, Property, Settings};
use super::source::{Named, Source, check_name};
use score::error::Error;
use score::property;
use score::redact;

/// What the channel of the command line is called.
const ONLY: &str = "live";

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Settings of the channels that do not say otherwise.
    #[serde(default)]
    defaults: Settings,
    #[serde(default)]
    channel: Vec<Settings>,
}

/// A reference, what is scored against it, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    pub name: String,
    pub reference: Source,
    pub renditions: Vec<Named>,
    /// The first one's scores are shown.
    pub models: Vec<String>,
    pub backend: String,
    pub window: Duration,
    pub alarm_low: Option<f64>,
    pub alarm_clear: Option<f64>,
    pub alarm_hold: Duration,
    pub clear_hold: Duration,
    /// 0.01 to 1.
    pub alarm_share: f64,
    /// Zero if it is not looked for.
    pub freeze: Duration,
    /// Zero if it is not looked for.
    pub black: Duration,
    pub align: Align,
    pub wait: Duration,
    pub stall: Duration,
    /// The longest pause between attempts.
    pub retry: Duration,
    pub stills: bool,
    /// What is kept before and after alarms; zero if nothing is.
    pub incidents: Duration,
    /// What alarms are told to.
    pub webhook: Option<String>,
    pub properties: Vec<Property>,
}

/// The channels of a file; what it does not say is as in `others`. GStreamer is needed to check them.
pub fn read(path: &Path, others: &Settings) -> Result<Vec<Channel>, Error> {
    let text = fs::read_to_string(path)
        .map_err(|error| Error::Failed(format!("cannot read {}: {error}", path.display())))?;
    parse(&text, others).map_err(|error| Error::Usage(format!("{}: {error}", path.display())))
}

fn parse(text: &str, others: &Settings) -> Result<Vec<Channel>, String> {
    let file: File = toml::from_str(text).map_err(|error| {
        // The error's own text quotes the line, which may hold a passphrase.
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
        return Err("there is no channel in it: each begins with the line [[channel]]".into());
    }
    let defaults = file.defaults.or(others);
    let channels = file.channel.into_iter().enumerate().map(|(i, settings)| {
        let name = settings.name.clone().ok_or(format!("channel {} has no name", i + 1))?;
        Channel::new(name.clone(), settings.or(&defaults))
            .map_err(|error| format!("channel {name:?}: {error}"))
    });
    let channels = channels.collect::<Result<Vec<_>, String>>()?;
    let mut names = HashSet::new();
    match channels.iter().find(|channel| !names.insert(&channel.name)) {
        Some(channel) => Err(format!("two channels are named {:?}", channel.name)),
        None => Ok(channels),
    }
}

/// The channel of the command line.
pub fn of(settings: &Settings) -> Result<Channel, Error> {
    Channel::new(ONLY.into(), settings.clone()).map_err(Error::Usage)
}

impl Channel {
    /// With defaults for what is not set. Says what cannot be.
    fn new(name: String, of: Settings) -> Result<Self, String> {
        check_name(&name)?;
        let seconds = |seconds: u64| Duration::from_secs(seconds);
        let time = |time: Option<super::settings::Seconds>, default| time.map_or(default, |time| time.0);
        let channel = Self {
            name,
            reference: of.reference.ok_or("it has no reference")?,
            renditions: of.renditions.unwrap_or_default(),
            models: of.models.unwrap_or_else(|| vec!["vmaf_v0.6.1".into()]),
            backend: of.backend.unwrap_or_else(|| "auto".into()),
            window: time(of.window, seconds(2)).max(seconds(1)),
            alarm_low: of.alarm_low,
            alarm_clear: of.alarm_clear,
            alarm_hold: time(of.alarm_hold, seconds(2)),
            clear_hold: time(of.clear_hold, seconds(5)),
            alarm_share: of.alarm_share.map_or(0.5, |share| share.0),
            freeze: time(of.freeze, Duration::ZERO),
            black: time(of.black, Duration::ZERO),
            align: of.align.unwrap_or_default(),
            wait: of.wait.map_or(Duration::from_millis(200), |ms| Duration::from_millis(ms.into())),
            stall: time(of.stall, seconds(10)),
            retry: time(of.retry, seconds(60)).max(seconds(1)),
            stills: of.stills.unwrap_or(true),
            incidents: time(of.incidents, Duration::ZERO).min(seconds(600)),
            webhook: of.webhook.map(|webhook| webhook.0),
            properties: of.set.unwrap_or_default(),
        };
        channel.check()?;
        Ok(channel)
    }

    fn check(&self) -> Result<(), String> {
        if self.renditions.is_empty() {
            return Err("it has no renditions to score".into());
        }
        if self.models.is_empty() {
            return Err("it has no model to score with".into());
        }
        if let Source::Encode(_) = self.reference {
            return Err("x264 encodes the reference, it cannot be the reference".into());
        }
        let mut labels = HashSet::from(["reference"]);
        if let Some(twice) = self.renditions.iter().find(|named| !labels.insert(&named.label)) {
            return Err(format!("two streams are named {:?}: write NAME=SOURCE", twice.label));
        }
        if let (Some(low), Some(clear)) = (self.alarm_low, self.alarm_clear)
            && clear < low
        {
            return Err(format!("alarm-clear, {clear}, is below alarm-low, {low}"));
        }
        self.reference.check()?;
        self.renditions.iter().try_for_each(|named| named.source.check())?;
        for model in &self.models {
            Model::load(model).map_err(|error| error.to_string())?;
        }
        self.element().map(|_| ())
    }

    /// The element with the settings of this channel.
    pub fn element(&self) -> Result<gst::Element, String> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let element = gst::ElementFactory::make("hipvmaf")
            .property("force-live", true)
            .build()
            .map_err(|error| error.to_string())?;
        property::set(&element, "backend", &self.backend)?;
        for (name, score) in [("alarm-low", self.alarm_low), ("alarm-clear", self.alarm_clear)] {
            if let Some(score) = score {
                property::set(&element, name, &score.to_string())?;
            }
        }
        element.set_properties(&[
            ("attach-meta", &false),
            ("scale-method", &gsthipvmaf::ScaleMethod::Bicubic),
            ("model-filename", &self.models.first()),
            ("extra-models", &self.models.get(1..).unwrap_or_default().join(";")),
            ("latency", &nanoseconds(self.wait)),
            ("window", &nanoseconds(self.window)),
            ("alarm-hold", &nanoseconds(self.alarm_hold)),
            ("clear-hold", &nanoseconds(self.clear_hold)),
            ("alarm-share", &self.alarm_share),
            ("freeze-time", &nanoseconds(self.freeze)),
            ("black-time", &nanoseconds(self.black)),
        ]);
        self.properties.iter().try_for_each(|of| property::set(&element, &of.name, &of.value))?;
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
        assert_eq!((sport.align, news.align), (Align::Auto, Align::Off));
        assert_eq!(sport.wait, Duration::from_millis(300));
        assert_eq!((sport.freeze, news.freeze), (Duration::ZERO, Duration::from_millis(2500)));
        assert_eq!((sport.models.len(), news.models.len()), (1, 2));
        assert_eq!(sport.element().unwrap().property::<u32>("subsample"), 2);
        assert_eq!(news.renditions[0].label, "srt://:7002");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_no_secrets() {
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
            (channel("window = -1"), "line 5: -1 is no time"),
            (channel("alarm-low = 1000"), "1000 is no value for alarm-low"),
            (channel("alarm-low = 70\nalarm-clear = 60"), "alarm-clear, 60, is below"),
            (channel("set = [\"colour=1\"]"), "channel \"a\": hipvmaf has no property colour"),
            (channel("set = [\"subsample=0\"]"), "0 is no value for subsample"),
            (channel("set = [\"subsample=all\"]"), "all is no value for subsample"),
            (channel("webhook = \"ftp://u:hunter2@h\""), "line 5: a webhook is"),
            (channel("backend = \"gpu\""), "gpu is no value for backend"),
            (channel("models = [\"vmaf_v9\"]"), "vmaf_v9"),
            (channel("models = []"), "no model"),
            (channel(&channel("")), "two channels are named \"a\""),
            (channel("[defaults]\nname = \"b\""), "cannot be among the defaults"),
            (channel("").replace("high=x264:3000", "a=x264:1\", \"a=x264:2"), "two streams are named \"a\""),
            (
                channel("").replace("high=x264:3000", "reference=x264:1"),
                "two streams are named \"reference\"",
            ),
            (channel("").replace("x264:3000", "x264:abc"), "line 4: x264:abc is no bit rate"),
            (channel("").replace("test:", "test:foo"), "line 3: test:foo is no test picture"),
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
