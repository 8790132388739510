// SPDX-License-Identifier: MPL-2.0

//! What can be said of a channel, by the same words on the command line and in a file.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;

use super::source::{Named, Source};

/// What the user has said of a channel, or of all; what is not said has a default.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// The name of the channel; only in files.
    #[arg(skip)]
    pub name: Option<String>,
    /// The original
    #[arg(value_name = "REFERENCE", value_parser = Source::from_str)]
    pub reference: Option<Source>,
    /// What is scored, each with a name if wanted: 720p=srt://host:7001
    #[arg(value_name = "[NAME=]SOURCE", requires = "reference")]
    pub renditions: Option<Vec<Named>>,
    /// Built-in name or JSON file of a model; several are scored in one pass [default: vmaf_v0.6.1]
    #[arg(long = "model", value_name = "MODEL")]
    pub models: Option<Vec<String>>,
    /// Where the work on pixels is done [default: auto]
    #[arg(long, value_name = "auto|hip|cpu")]
    pub backend: Option<String>,
    /// Length of the rolling window [default: 2]
    #[arg(long, value_name = "SECONDS")]
    pub window: Option<Seconds>,
    /// Raise an alarm when scores stay below this
    #[arg(long, value_name = "SCORE")]
    pub alarm_low: Option<f64>,
    /// Clear the alarm when scores stay at this or above, instead of --alarm-low
    #[arg(long, value_name = "SCORE")]
    pub alarm_clear: Option<f64>,
    /// How long scores must be low before the alarm is raised [default: 2]
    #[arg(long, value_name = "SECONDS")]
    pub alarm_hold: Option<Seconds>,
    /// How long scores must be good before the alarm is cleared [default: 5]
    #[arg(long, value_name = "SECONDS")]
    pub clear_hold: Option<Seconds>,
    /// Share of the frames in that time that must be low, or good [default: 0.5]
    #[arg(long, value_name = "SHARE")]
    pub alarm_share: Option<Share>,
    /// Report a picture that stands still for so long
    #[arg(long, value_name = "SECONDS")]
    pub freeze: Option<Seconds>,
    /// Report a picture that is black for so long
    #[arg(long, value_name = "SECONDS")]
    pub black: Option<Seconds>,
    /// What to do about an offset between the videos [default: off]
    #[arg(long, value_enum)]
    pub align: Option<Align>,
    /// How long to wait for renditions that come later than their sources announce [default: 200]
    #[arg(long, value_name = "MS")]
    pub wait: Option<u32>,
    /// Start a source again that has not delivered for so long [default: 10]
    #[arg(long, value_name = "SECONDS")]
    pub stall: Option<Seconds>,
    /// Longest pause before a source that has failed is tried again; the first is a second [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub retry: Option<Seconds>,
    /// Keep pictures of the worst frames and of alarms, for which the last frames are held in memory [default: true]
    #[arg(long, value_name = "true|false")]
    pub stills: Option<bool>,
    /// Keep what the sources have sent for so long before and after each alarm, as files in the folder of --state
    #[arg(long, value_name = "SECONDS")]
    pub incidents: Option<Seconds>,
    /// Send alarms to this address, as they are raised and cleared
    #[arg(long, value_name = "URL")]
    pub webhook: Option<Webhook>,
    /// Set any other property of the element hipvmaf; may be repeated
    #[arg(long = "set", value_name = "PROPERTY=VALUE")]
    pub set: Option<Vec<Property>>,
}

impl Settings {
    /// These settings, and where they say nothing, those.
    pub fn or(self, other: &Self) -> Self {
        macro_rules! or {
            ($($field:ident),*) => { Self { $($field: self.$field.or_else(|| other.$field.clone())),* } };
        }
        or!(
            name,
            reference,
            renditions,
            models,
            backend,
            window,
            alarm_low,
            alarm_clear,
            alarm_hold,
            clear_hold,
            alarm_share,
            freeze,
            black,
            align,
            wait,
            stall,
            retry,
            stills,
            incidents,
            webhook,
            set
        )
    }
}

/// A time in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Seconds(pub Duration);

impl TryFrom<f64> for Seconds {
    type Error = String;

    fn try_from(seconds: f64) -> Result<Self, String> {
        let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| time.as_secs() < 1_000_000);
        time.map(Self).ok_or(format!("{seconds} is no time: it is from 0 to 1000000 seconds"))
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("{text} is no number of seconds"))
            .and_then(|seconds: f64| seconds.try_into())
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
        text.parse().map_err(|_| format!("{text} is no number")).and_then(|share: f64| share.try_into())
    }
}

/// An address that alarms are sent to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Webhook(pub String);

impl TryFrom<String> for Webhook {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Webhook {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_address = |text: &&str| text.parse::<hyper::Uri>().is_ok_and(|uri| uri.host().is_some());
        let address = Some(text).filter(|text| text.starts_with("http://") || text.starts_with("https://"));
        let address = address.filter(is_address).ok_or("a webhook is an address of http:// or https://")?;
        Ok(Self(address.into()))
    }
}

/// A property of the element and its value, as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Property {
    pub name: String,
    pub value: String,
}

impl TryFrom<String> for Property {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Property {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("properties are written as NAME=VALUE")?;
        Ok(Self { name: name.into(), value: value.into() })
    }
}

/// A value of the pads' property `align`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Align {
    /// Frames of one time are compared
    #[default]
    Off,
    /// The offset is reported
    Detect,
    /// Frames are compared by the offset that is found
    Auto,
}

impl fmt::Display for Align {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Detect => "detect",
            Self::Auto => "auto",
        })
    }
}
