// SPDX-License-Identifier: MPL-2.0

//! Muted channels, whose alarms are not sent to webhooks: until a time that users set, and in maintenance windows of
//! the file of channels.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::settings::read_from_text;
use super::state::State;

const FILE: &str = "mutes.json";
const DAY: u32 = 86_400;
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// Time until which a channel is muted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mute {
    /// Seconds since 1970.
    pub until: f64,
    /// Name of the user, or `maintenance`.
    pub by: String,
}

/// The channels that users have muted. Clones share them.
#[derive(Clone)]
pub struct Mutes(Arc<Inner>);

struct Inner {
    path: Option<PathBuf>,
    mutes: Mutex<BTreeMap<String, Mute>>,
}

impl Mutes {
    /// Reads the file in this folder if there is one.
    pub fn open(folder: Option<&Path>) -> Self {
        let path = folder.map(|folder| folder.join(FILE));
        let mutes =
            path.as_ref().and_then(|path| fs::read(path).ok()).map(|text| serde_json::from_slice(&text));
        let mutes = mutes.transpose().unwrap_or_else(|error| {
            eprintln!("error: no channel is muted, since {FILE} cannot be read: {error}");
            None
        });
        Self(Arc::new(Inner { path, mutes: Mutex::new(mutes.unwrap_or_default()) }))
    }

    /// Mutes a channel, or no longer.
    pub fn set(&self, channel: &str, mute: Option<Mute>) -> io::Result<()> {
        let mut mutes = self.0.mutes.lock();
        match mute {
            Some(mute) => mutes.insert(channel.into(), mute),
            None => mutes.remove(channel),
        };
        let Some(path) = &self.0.path else { return Ok(()) };
        let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
        file.write_all(&serde_json::to_vec(&*mutes)?)?;
        file.persist(path)?;
        Ok(())
    }

    /// Returns how long the channel is muted, if it is at this time.
    pub fn of(&self, state: &State, now: f64) -> Option<Mute> {
        let set = self.0.mutes.lock().get(&state.name).filter(|mute| mute.until > now).cloned();
        set.or_else(|| {
            let until =
                state.maintenance.iter().filter_map(|window| window.end(now)).max_by(f64::total_cmp)?;
            Some(Mute { until, by: "maintenance".into() })
        })
    }
}

/// A maintenance window in UTC: `Sun 02:00-04:00`, `Sat,Sun 23:00-05:00` or `daily 03:00-03:30`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Maintenance {
    /// By the day of the week of 1 January 1970.
    days: [bool; 7],
    /// Seconds since midnight.
    begin: u32,
    length: u32,
}

impl Maintenance {
    /// Returns the end of the window that is open at this time, in seconds since 1970.
    fn end(&self, now: f64) -> Option<f64> {
        // A window may have begun the day before.
        let today = (now / f64::from(DAY)).floor();
        [today - 1.0, today].into_iter().find_map(|day| {
            let begin = day * f64::from(DAY) + f64::from(self.begin);
            let end = begin + f64::from(self.length);
            (self.days[day.rem_euclid(7.0) as usize] && (begin..end).contains(&now)).then_some(end)
        })
    }
}

read_from_text!(Maintenance);

impl FromStr for Maintenance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or(format!(
            "{text:?} is no maintenance window: write \"Sun 02:00-04:00\" or \"daily 03:00-03:30\", in UTC"
        ))
    }
}

fn parse(text: &str) -> Option<Maintenance> {
    let (names, times) = text.split_once(' ')?;
    let mut days = [names == "daily"; 7];
    for name in names.split(',').filter(|_| names != "daily") {
        days[DAYS.iter().position(|day| *day == name)?] = true;
    }
    let time = |text: &str| {
        let (hours, minutes) = text.split_once(':').filter(|_| text.len() == 5)?;
        let (hours, minutes): (u32, u32) = (hours.parse().ok()?, minutes.parse().ok()?);
        (hours < 24 && minutes < 60).then_some(hours * 3600 + minutes * 60)
    };
    let (begin, end) = times.split_once('-')?;
    let (begin, end) = (time(begin)?, time(end)?);
    let length = if end > begin { end - begin } else { DAY - begin + end };
    Some(Maintenance { days, begin, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Sunday, 06:13:40 UTC.
    const SUNDAY: f64 = 1_795_932_820.0;

    #[test]
    fn maintenance_is_on_its_days() {
        let hours =
            |text: &str, hours: f64| text.parse::<Maintenance>().unwrap().end(SUNDAY + hours * 3600.0);
        let midnight = SUNDAY - SUNDAY.rem_euclid(86_400.0);
        assert_eq!(hours("Sun 06:00-08:30", 0.0), Some(midnight + 8.5 * 3600.0));
        assert_eq!(hours("Sat,Mon 06:00-08:30", 0.0), None);
        assert_eq!(hours("daily 06:00-06:13", 0.0), None);
        // Past midnight.
        assert_eq!(hours("Sat 23:00-07:00", 0.0), Some(midnight + 7.0 * 3600.0));
        assert_eq!(hours("Sun 23:00-07:00", 0.0), None);
        assert!(hours("Sun 23:00-07:00", 20.0).is_some());
        for wrong in [
            "",
            "Sun",
            "Sun 2:00-04:00",
            "Sun 02:00",
            "sun 02:00-04:00",
            "daily 24:00-25:00",
            "Sun 02:60-03:00",
        ] {
            assert!(wrong.parse::<Maintenance>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn mutes_survive_a_restart_and_end_by_themselves() {
        let folder = tempfile::tempdir().unwrap();
        let state = State { name: "sport".into(), ..State::default() };
        let mute = Mute { until: 100.0, by: "anna".into() };
        let mutes = Mutes::open(Some(folder.path()));
        mutes.set("sport", Some(mute.clone())).unwrap();
        let again = Mutes::open(Some(folder.path()));
        assert_eq!((again.of(&state, 99.0), again.of(&state, 100.0)), (Some(mute), None));
        again.set("sport", None).unwrap();
        assert_eq!(Mutes::open(Some(folder.path())).of(&state, 99.0), None);
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(Mutes::open(Some(folder.path())).of(&state, 99.0), None);
    }
}
