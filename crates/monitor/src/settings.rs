// SPDX-License-Identifier: MPL-2.0

//! Options of a channel: the same on the command line and in a file.

use std::str::FromStr;
use std::time::Duration;

use gsthipvmaf::{Align, Backend};
use score::property::Nick;
use serde::Deserialize;
use watch::align::MAX_RANGE;

use super::mutes::Maintenance;
use super::snmp::Manager;
use super::source::{Named, Source};

/// Gives the type of an option in a channel: without a default it is optional.
macro_rules! resolved {
    ($type:ty) => { Option<$type> };
    ($type:ty, $default:expr) => { $type };
}

/// Fills an option with its default.
macro_rules! resolve {
    ($value:expr) => {
        $value
    };
    ($value:expr, $default:expr) => {
        $value.unwrap_or_else(|| $default)
    };
}

/// Declares the options of a channel, each by one row: its help, its form on the command line, its name, its type and its
/// default. The key in files is the name with dashes.
macro_rules! options {
    ($($(#[$attribute:meta])* $field:ident: $type:ty $(= $default:expr)?,)*) => {
        /// The options of a channel, or the defaults for all. Options that are not set are `None`.
        #[derive(Clone, Debug, Default, clap::Args, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Settings {
            /// Name of the channel; only in files.
            #[arg(skip)]
            pub name: Option<String>,
            /// Reference video
            #[arg(value_name = "REFERENCE", value_parser = Source::from_str)]
            pub reference: Option<Source>,
            /// Renditions to score, optionally with a name: 720p=srt://host:7001
            #[arg(value_name = "[NAME=]SOURCE", requires = "reference")]
            pub renditions: Option<Vec<Named>>,
            $($(#[$attribute])* pub $field: Option<$type>,)*
        }

        /// A reference, the renditions to score against it, and their options.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Channel {
            pub name: String,
            pub reference: Source,
            pub renditions: Vec<Named>,
            $(pub $field: resolved!($type $(, $default)?),)*
        }

        impl Settings {
            /// Fills options that are not set from `other`.
            pub fn or(self, other: &Self) -> Self {
                Self {
                    name: self.name.or_else(|| other.name.clone()),
                    reference: self.reference.or_else(|| other.reference.clone()),
                    renditions: self.renditions.or_else(|| other.renditions.clone()),
                    $($field: self.$field.or_else(|| other.$field.clone()),)*
                }
            }

            /// Fills options that are not set with their defaults.
            pub fn channel(self, name: String) -> Result<Channel, String> {
                Ok(Channel {
                    name,
                    reference: self.reference.ok_or("there is no reference")?,
                    renditions: self.renditions.unwrap_or_default(),
                    $($field: resolve!(self.$field $(, $default)?),)*
                })
            }
        }
    };
}

options! {
    /// Built-in name or JSON file of a model, or none; several are scored in one pass [default: vmaf_v0.6.1]
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String> = vec!["vmaf_v0.6.1".into()],
    /// Model or feature that scores, alarms and the history are of, such as xpsnr_y; cvvdp for its JOD [default: the first model]
    #[arg(long, value_name = "NAME")]
    score: String,
    /// Where pixels are processed [default: auto]
    #[arg(long)]
    backend: Nick<Backend> = Nick(Backend::Auto),
    /// Length of the rolling window [default: 2]
    #[arg(long, value_name = "SECONDS")]
    window: Seconds = Seconds::new(2),
    /// Raise an alarm when scores stay below this
    #[arg(long, value_name = "SCORE")]
    alarm_low: f64,
    /// Clear the alarm when scores stay at or above this [default: the value of --alarm-low]
    #[arg(long, value_name = "SCORE")]
    alarm_clear: f64,
    /// Time for which scores must be low before the alarm is raised [default: 2]
    #[arg(long, value_name = "SECONDS")]
    alarm_hold: Seconds = Seconds::new(2),
    /// Time for which scores must be good before the alarm is cleared [default: 5]
    #[arg(long, value_name = "SECONDS")]
    clear_hold: Seconds = Seconds::new(5),
    /// Share of the frames in that time that must be low, or good [default: 0.5]
    #[arg(long, value_name = "SHARE")]
    alarm_share: Share = Share(0.5),
    /// Raise an alarm after this time of a frozen picture
    #[arg(long, value_name = "SECONDS")]
    freeze: Seconds = Seconds::new(0),
    /// Raise an alarm after this time of a black picture
    #[arg(long, value_name = "SECONDS")]
    black: Seconds = Seconds::new(0),
    /// Watch the audio of sources that are files or URIs [default: false]
    #[arg(long, value_name = "true|false")]
    audio: bool = false,
    /// Raise an alarm after this time of missing or silent audio, or of another loudness than the reference's [default: 10]
    #[arg(long, value_name = "SECONDS")]
    audio_hold: Seconds = Seconds::new(10),
    /// Loudness below which audio is silent [default: -60]
    #[arg(long, value_name = "LUFS", allow_negative_numbers = true)]
    audio_silence: f64 = -60.0,
    /// Largest difference of the loudness to that of the reference [default: 3]
    #[arg(long, value_name = "LU")]
    audio_difference: f64 = 3.0,
    /// Find an offset between the videos [default: off]
    #[arg(long)]
    align: Nick<Align> = Nick(Align::Off),
    /// Largest offset that is looked for, in frames [default: 25]
    #[arg(long, value_name = "FRAMES")]
    align_range: Frames = Frames(25),
    /// Raise an alarm when the offset that was found is larger, to either side
    #[arg(long, value_name = "SECONDS")]
    alarm_delay: Seconds,
    /// Wait this long for renditions that are later than their sources report [default: 200]
    #[arg(long, value_name = "MS")]
    wait: u32 = 200,
    /// Restart a source after this time without frames [default: 10]
    #[arg(long, value_name = "SECONDS")]
    stall: Seconds = Seconds::new(10),
    /// Longest pause before a failed source is retried; the first pause is one second [default: 60]
    #[arg(long, value_name = "SECONDS")]
    retry: Seconds = Seconds::new(60),
    /// Keep pictures of the worst frames and of alarms; this holds the latest frames in memory [default: true]
    #[arg(long, value_name = "true|false")]
    stills: bool = true,
    /// Record what the sources send, this long before and after each alarm, into the folder of --state
    #[arg(long, value_name = "SECONDS")]
    incidents: Seconds = Seconds::new(0),
    /// Send a request to this address when an alarm is raised or cleared
    #[arg(long, value_name = "URL")]
    webhook: Webhook,
    /// Send an SNMP trap to this network management when an alarm is raised or cleared
    #[arg(long, value_name = "COMMUNITY@HOST[:PORT]")]
    snmp_trap: Manager,
    /// Send only events of this kind; may be repeated [default: all alarms]
    #[arg(long, value_name = "KIND")]
    webhook_events: Vec<EventKind> = vec![],
    /// Publish the quality of segments of this length, which are aligned to UTC [default: off]
    #[arg(long, value_name = "SECONDS")]
    segment_seconds: Seconds,
    /// Send no alarms in this time, such as "Sun 02:00-04:00" in UTC; may be repeated
    #[arg(long, value_name = "TIME")]
    maintenance: Vec<Maintenance> = vec![],
    /// Set any other property of the element hipvmaf; may be repeated
    #[arg(long = "set", value_name = "PROPERTY=VALUE")]
    set: Vec<Property> = vec![],
}

impl Channel {
    /// Returns the addresses for alarms.
    pub fn addresses(&self) -> Vec<String> {
        let webhook = self.webhook.as_ref().map(|webhook| webhook.0.clone());
        webhook.into_iter().chain(self.snmp_trap.as_ref().map(Manager::address)).collect()
    }
}

/// A duration in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Seconds(pub Duration);

impl Seconds {
    const fn new(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl TryFrom<f64> for Seconds {
    type Error = String;

    fn try_from(seconds: f64) -> Result<Self, String> {
        let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| time.as_secs() < 1_000_000);
        time.map(Self).ok_or(format!("{seconds} is not a time from 0 to 1000000 seconds"))
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("{text} is not a number of seconds"))
            .and_then(|seconds: f64| seconds.try_into())
    }
}

/// A number of frames that offsets can be looked for in.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "u32")]
pub struct Frames(pub u32);

impl TryFrom<u32> for Frames {
    type Error = String;

    fn try_from(frames: u32) -> Result<Self, String> {
        match (1..=MAX_RANGE).contains(&frames) {
            true => Ok(Self(frames)),
            false => Err(format!("{frames} is not between 1 and {MAX_RANGE} frames")),
        }
    }
}

impl FromStr for Frames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("{text} is not a number of frames"))
            .and_then(|frames: u32| frames.try_into())
    }
}

/// A share from 0.01 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Share(pub f64);

impl TryFrom<f64> for Share {
    type Error = String;

    fn try_from(share: f64) -> Result<Self, String> {
        if (0.01..=1.0).contains(&share) {
            Ok(Self(share))
        } else {
            Err(format!("{share} is not between 0.01 and 1"))
        }
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("{text} is not a number")).and_then(|share: f64| share.try_into())
    }
}

/// Lets files have values as text, which is parsed as on the command line.
macro_rules! read_from_text {
    ($($name:ty),*) => {$(
        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    )*};
}
pub(crate) use read_from_text;

read_from_text!(Webhook, EventKind, Property);

/// Address for alarms.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Webhook(pub String);

impl FromStr for Webhook {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_address = |text: &&str| text.parse::<hyper::Uri>().is_ok_and(|uri| uri.host().is_some());
        let address = Some(text).filter(|text| text.starts_with("http://") || text.starts_with("https://"));
        let address = address.filter(is_address).ok_or("a webhook is an http:// or https:// address")?;
        Ok(Self(address.into()))
    }
}

/// Kind of an event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct EventKind(pub String);

/// Kinds of events: those of the element, and those of the monitor.
const KINDS: [&str; 23] = [
    "alarm",
    "freeze",
    "black",
    "dropout",
    "unpaired",
    "alignment",
    "mispaired",
    "other-programme",
    "delay",
    "overload",
    "downstream-blocked",
    "stalled",
    "timestamp-jump",
    "wrong-score",
    "device-lost",
    "failed",
    "audio-missing",
    "silence",
    "loudness",
    "source",
    "channel",
    "mute",
    "segment",
];

impl FromStr for EventKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match KINDS.contains(&text) {
            true => Ok(Self(text.into())),
            false => Err(format!("{text} is no kind of event; there are {}", KINDS.join(", "))),
        }
    }
}

/// A property of the element and its value, as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Property {
    pub name: String,
    pub value: String,
}

impl FromStr for Property {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("properties are written as NAME=VALUE")?;
        Ok(Self { name: name.into(), value: value.into() })
    }
}
