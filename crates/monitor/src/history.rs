// SPDX-License-Identifier: MPL-2.0

//! Scores and events of the last hours or days, in an embedded database.
//!
//! The windows of a rendition in one minute are one value, with 16 bytes per window. A rendition takes about 1.5 MB a
//! day, so a year can be searched. Every second is committed separately: a killed process or a power cut loses no
//! more than that. Without a folder the data is in memory.

use std::fs;
use std::path::Path;
use std::time::Duration;

use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};

use super::state::{Entry, Point};

/// Key: channel, rendition and minute since 1970.
const POINTS: TableDefinition<(&str, &str, u64), &[u8]> = TableDefinition::new("points");
/// Key: channel, microsecond since 1970, and a number for events in the same microsecond.
const EVENTS: TableDefinition<(&str, u64, u64), &[u8]> = TableDefinition::new("events");

const FILE: &str = "history.redb";
/// Largest size of the data in bytes; beyond it the oldest is removed.
const LARGEST: u64 = 1 << 30;
/// Size of the cache in memory.
const CACHE: usize = 16 << 20;
/// Number of events kept for each channel.
const MOST_EVENTS: usize = 20_000;
/// Seconds per value.
const SPAN: f64 = 60.0;
/// Bytes per window.
const SIZE: usize = 16;
/// Flag in the milliseconds of a window at whose end an alarm was active.
const ALARM: u32 = 1 << 31;

/// An error of the database.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The database.
pub struct History {
    database: Database,
    keep: Duration,
}

/// Several windows shown as one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// End of the first window, in seconds since 1970.
    pub time: f64,
    /// Mean of the windows' means; NaN without scores.
    pub mean: f64,
    /// Lowest score.
    pub min: f64,
    /// An alarm was active.
    pub alarm: bool,
}

/// Stored form of an event.
#[derive(Serialize, Deserialize)]
struct Stored {
    label: String,
    kind: String,
    state: String,
    text: String,
    still: Option<u64>,
}

impl History {
    /// Opens the database in this folder, or in memory. Data older than `keep` is removed.
    pub fn open(folder: Option<&Path>, keep: Duration) -> Result<Self, Error> {
        let database = match folder {
            Some(folder) => {
                fs::create_dir_all(folder)?;
                Database::builder().set_cache_size(CACHE).create(folder.join(FILE))?
            }
            None => Database::builder().set_cache_size(CACHE).create_with_backend(InMemoryBackend::new())?,
        };
        let write = database.begin_write()?;
        write.open_table(POINTS)?;
        write.open_table(EVENTS)?;
        write.commit()?;
        Ok(Self { database, keep })
    }

    /// Adds windows of renditions, and events, each with its channel.
    pub fn record(
        &self,
        points: &[(String, String, Point)],
        events: &[(String, Entry)],
    ) -> Result<(), Error> {
        if points.is_empty() && events.is_empty() {
            return Ok(());
        }
        let write = self.database.begin_write()?;
        {
            let mut table = write.open_table(POINTS)?;
            for (channel, label, point) in points {
                let key = (channel.as_str(), label.as_str(), (point.time / SPAN) as u64);
                let mut value = table.get(key)?.map_or(vec![], |value| value.value().to_vec());
                value.extend(encode(point));
                table.insert(key, value.as_slice())?;
            }
            let mut table = write.open_table(EVENTS)?;
            for (i, (channel, event)) in (0..).zip(events) {
                let Entry { label, kind, state, text, still, .. } = event.clone();
                let value = serde_json::to_vec(&Stored { label, kind, state, text, still })?;
                table.insert((channel.as_str(), (event.time * 1e6) as u64, i), value.as_slice())?;
            }
        }
        Ok(write.commit()?)
    }

    /// Returns the windows of a rendition between two times, merged into at most `most` buckets of equal length.
    pub fn points(
        &self,
        channel: &str,
        label: &str,
        from: f64,
        to: f64,
        most: usize,
    ) -> Result<Vec<Bucket>, Error> {
        let length = ((to - from) / most.max(1) as f64).max(f64::MIN_POSITIVE);
        let mut buckets: Vec<(u64, Bucket, u32)> = vec![];
        self.each(channel, label, from, to, |point| {
            let number = ((point.time - from) / length) as u64;
            match buckets.last_mut() {
                Some((last, bucket, count)) if *last == number => add(bucket, count, &point),
                _ => {
                    let Point { time, mean, min, alarm, .. } = point;
                    buckets.push((number, Bucket { time, mean, min, alarm }, u32::from(mean.is_finite())));
                }
            }
        })?;
        Ok(buckets.into_iter().map(|(_, bucket, _)| bucket).collect())
    }

    /// Visits the windows of a rendition between two times in order.
    pub fn each(
        &self,
        channel: &str,
        label: &str,
        from: f64,
        to: f64,
        mut visit: impl FnMut(Point),
    ) -> Result<(), Error> {
        if from > to {
            return Ok(());
        }
        let table = self.database.begin_read()?.open_table(POINTS)?;
        let range = (channel, label, (from / SPAN) as u64)..=(channel, label, (to / SPAN) as u64);
        for item in table.range(range)? {
            let (key, value) = item?;
            let start = key.value().2 as f64 * SPAN;
            let points = value.value().chunks_exact(SIZE).filter_map(|bytes| decode(start, bytes));
            points.filter(|point| (from..=to).contains(&point.time)).for_each(&mut visit);
        }
        Ok(())
    }

    /// Returns the labels that a channel has had.
    pub fn labels(&self, channel: &str) -> Result<Vec<String>, Error> {
        let table = self.database.begin_read()?.open_table(POINTS)?;
        let mut labels: Vec<String> = vec![];
        let mut after = String::new();
        // Jumps from each label to the next, past all its minutes.
        loop {
            let start = (channel, after.as_str(), u64::MAX);
            let Some(item) = table.range(start..)?.next() else { return Ok(labels) };
            let (key, _) = item?;
            let (of, label, _) = key.value();
            if of != channel || labels.last().is_some_and(|last| last == label) {
                return Ok(labels);
            }
            labels.push(label.to_owned());
            after = label.to_owned();
        }
    }

    /// Returns the latest events of a channel between two times, newest first.
    pub fn events(&self, channel: &str, from: f64, to: f64, most: usize) -> Result<Vec<Entry>, Error> {
        if from > to {
            return Ok(vec![]);
        }
        let table = self.database.begin_read()?.open_table(EVENTS)?;
        let range = (channel, (from * 1e6) as u64, 0)..=(channel, (to * 1e6) as u64, u64::MAX);
        let mut events = vec![];
        for item in table.range(range)?.rev().take(most) {
            let (key, value) = item?;
            let Stored { label, kind, state, text, still } = serde_json::from_slice(value.value())?;
            events.push(Entry { time: key.value().1 as f64 / 1e6, label, kind, state, text, still });
        }
        Ok(events)
    }

    /// Removes data that is too old or too large. `now` is in seconds since 1970.
    pub fn prune(&self, now: f64) -> Result<(), Error> {
        let mut oldest = now - self.keep.as_secs_f64();
        self.remove_before(oldest)?;
        while self.size()? > LARGEST && oldest < now {
            oldest += 3600.0;
            self.remove_before(oldest)?;
        }
        Ok(())
    }

    fn remove_before(&self, time: f64) -> Result<(), Error> {
        let write = self.database.begin_write()?;
        {
            let minute = (time / SPAN).max(0.0) as u64;
            write.open_table(POINTS)?.retain(|(_, _, at), _| at >= minute)?;
            let mut table = write.open_table(EVENTS)?;
            let micros = (time * 1e6).max(0.0) as u64;
            table.retain(|(_, at, _), _| at >= micros)?;
            // From the newest to the oldest of each channel.
            let (mut channel, mut count, mut surplus) = (String::new(), 0, vec![]);
            for item in table.iter()?.rev() {
                let (key, _) = item?;
                let (of, at, number) = key.value();
                if of != channel {
                    (channel, count) = (of.to_owned(), 0);
                }
                count += 1;
                if count > MOST_EVENTS {
                    surplus.push((channel.clone(), at, number));
                }
            }
            for (channel, at, number) in surplus {
                table.remove((channel.as_str(), at, number))?;
            }
        }
        Ok(write.commit()?)
    }

    fn size(&self) -> Result<u64, Error> {
        let write = self.database.begin_write()?;
        let bytes = write.stats()?.stored_bytes();
        write.abort()?;
        Ok(bytes)
    }
}

fn add(bucket: &mut Bucket, count: &mut u32, point: &Point) {
    bucket.alarm |= point.alarm;
    if point.mean.is_finite() {
        let sum = if *count == 0 { 0.0 } else { bucket.mean * f64::from(*count) };
        *count += 1;
        bucket.mean = (sum + point.mean) / f64::from(*count);
        bucket.min = bucket.min.min(point.min);
    }
}

fn encode(point: &Point) -> Vec<u8> {
    let alarm = if point.alarm { ALARM } else { 0 };
    let at = (point.time.rem_euclid(SPAN) * 1e3) as u32 | alarm;
    let scores = [point.mean, point.min, point.p5].map(|score| (score as f32).to_le_bytes());
    at.to_le_bytes().into_iter().chain(scores.concat()).collect()
}

fn decode(start: f64, bytes: &[u8]) -> Option<Point> {
    let word = |i: usize| <[u8; 4]>::try_from(bytes.get(4 * i..4 * i + 4)?).ok();
    let at = u32::from_le_bytes(word(0)?);
    let score = |i| Some(f64::from(f32::from_le_bytes(word(i)?)));
    Some(Point {
        time: start + f64::from(at & !ALARM) / 1e3,
        mean: score(1)?,
        min: score(2)?,
        p5: score(3)?,
        alarm: at & ALARM != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 1_790_000_000.0;

    fn point(time: f64, mean: f64) -> (String, String, Point) {
        ("sport".into(), "high".into(), Point { time, mean, min: mean - 1.0, p5: mean, alarm: mean < 50.0 })
    }

    fn event(time: f64, text: &str) -> (String, Entry) {
        let (label, kind, state) = ("high".into(), "alarm".into(), "raised".into());
        ("sport".into(), Entry { time, label, kind, state, text: text.into(), still: Some(7) })
    }

    #[test]
    fn what_was_recorded_is_there_after_the_program_was_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Duration::from_secs(86_400);
        let points: Vec<_> = (0..500).map(|i| point(NOW + f64::from(i), f64::from(i % 100))).collect();
        {
            let history = History::open(Some(folder.path()), keep).unwrap();
            for point in &points {
                history.record(std::slice::from_ref(point), &[]).unwrap();
            }
            history.record(&[], &[event(NOW, "first"), event(NOW, "second")]).unwrap();
        }
        let history = History::open(Some(folder.path()), keep).unwrap();
        let mut read = vec![];
        history.each("sport", "high", NOW, NOW + 1000.0, |point| read.push(point)).unwrap();
        assert_eq!(read, points.into_iter().map(|(_, _, point)| point).collect::<Vec<_>>());
        let texts = |most| -> Vec<String> {
            let events = history.events("sport", NOW - 1.0, NOW + 1.0, most).unwrap();
            events.into_iter().map(|event| event.text).collect()
        };
        assert_eq!((texts(9), texts(1)), (vec!["second".into(), "first".into()], vec!["second".into()]));
        assert_eq!(history.labels("sport").unwrap(), ["high"]);
        assert!(history.labels("spor").unwrap().is_empty() && history.labels("sports").unwrap().is_empty());
        assert!(History::open(Some(folder.path()), keep).is_err(), "two programs write one history");
    }

    #[test]
    fn buckets_have_the_mean_and_the_lowest_and_leave_out_what_was_not_scored() {
        let history = History::open(None, Duration::from_secs(86_400)).unwrap();
        let scores = [90.0, f64::NAN, 80.0, 40.0, 60.0, f64::NAN, f64::NAN];
        let points: Vec<_> = (0..).zip(scores).map(|(i, score)| point(NOW + f64::from(i), score)).collect();
        history.record(&points, &[]).unwrap();
        let buckets = history.points("sport", "high", NOW, NOW + 9.0, 3).unwrap();
        let seen: Vec<_> = buckets.iter().map(|b| (b.time - NOW, b.mean, b.min, b.alarm)).collect();
        assert_eq!(seen[..2], [(0.0, 85.0, 79.0, false), (3.0, 50.0, 39.0, true)]);
        assert!(seen.len() == 3 && seen[2].1.is_nan(), "{seen:?}");
        assert!(history.points("sport", "low", NOW, NOW + 9.0, 3).unwrap().is_empty());
        assert!(history.points("sport", "high", NOW + 9.0, NOW, 0).unwrap().is_empty());
    }

    #[test]
    fn what_is_old_or_too_much_is_removed() {
        let history = History::open(None, Duration::from_secs(86_400)).unwrap();
        let day = 86_400.0;
        history
            .record(&[point(NOW - 2.0 * day, 1.0), point(NOW, 2.0)], &[event(NOW - 2.0 * day, "old")])
            .unwrap();
        let many: Vec<_> = (0..MOST_EVENTS + 10).map(|i| event(NOW, &i.to_string())).collect();
        history.record(&[], &many).unwrap();
        history.prune(NOW).unwrap();
        assert_eq!(history.points("sport", "high", 0.0, NOW + 1.0, 10).unwrap().len(), 1);
        let events = history.events("sport", 0.0, NOW + 1.0, usize::MAX).unwrap();
        assert_eq!((events.len(), &*events[MOST_EVENTS - 1].text), (MOST_EVENTS, "10"));
    }
}
