// SPDX-License-Identifier: MPL-2.0

//! Scores and events of the last hours or days, in an embedded database.
//!
//! The windows of a rendition in one minute are one value, with 16 bytes per window. A rendition takes about 1.5 MB a
//! day. Sums of each hour are kept for 400 days, as are events. Windows and events wait in memory until they are written, once a second: a killed
//! process or a power cut loses no more than that. Without a folder the data is in memory.
//!
//! After an error, as on a full disk, the database refuses everything until it is opened again. This is tried with
//! growing pauses, and all that could not be written is kept for the next attempt. Writing is idempotent, because a
//! commit that has failed may have reached the disk. A file that cannot be read is renamed, and a new one begins.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use parking_lot::{Mutex, RwLock};
use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};

use super::alarms::About;
use super::backoff::Backoff;
use super::state::{Curve, Entry, Point, Value};

/// Key: channel, rendition and minute since 1970.
const POINTS: TableDefinition<(&str, &str, u64), &[u8]> = TableDefinition::new("points");
/// Sums of the windows of an hour. Key: channel, rendition and hour since 1970.
const HOURS: TableDefinition<(&str, &str, u64), &[u8]> = TableDefinition::new("hours");
/// Values of curves beside the scores. Key: channel, stream, curve and minute since 1970.
const VALUES: TableDefinition<(&str, &str, &str, u64), &[u8]> = TableDefinition::new("values");
/// Values that have to outlive the program besides: undelivered messages of webhooks, and active alarms.
const KEPT_VALUES: TableDefinition<&str, &[u8]> = TableDefinition::new("kept");
/// Key: channel, microsecond since 1970, and a number for events in the same microsecond.
const EVENTS: TableDefinition<(&str, u64, u64), &[u8]> = TableDefinition::new("events");

const FILE: &str = "history.redb";
/// Largest size of the data in bytes; beyond it the oldest is removed.
const LARGEST: u64 = 1 << 30;
/// Size of the cache in memory.
const CACHE: usize = 16 << 20;
/// Number of events kept for each channel.
const MOST_EVENTS: usize = 20_000;
/// Number of windows, also of values, and of events that may wait; beyond it the oldest are lost.
const MOST_WAITING: [usize; 2] = [4_000_000, 50_000];
/// Longest pause before the database is opened again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Seconds per value.
const SPAN: f64 = 60.0;
/// Seconds per sum.
pub const HOUR: f64 = 3600.0;
/// Minutes per sum.
const MINUTES: u64 = 60;
/// Time for which sums and events are kept.
const KEPT: Duration = Duration::from_secs(400 * 86_400);
/// Bytes per window.
const SIZE: usize = 16;
/// Bytes per value of a curve.
const VALUE_SIZE: usize = 8;
/// Flag in the milliseconds of a window at whose end an alarm was active.
const ALARM: u32 = 1 << 31;

/// An error of the database.
pub type Error = redb::Error;

/// The database, and what waits to be written into it.
pub struct History {
    folder: Option<PathBuf>,
    keep: Duration,
    /// `None` after an error, until it is open again.
    database: RwLock<Option<Database>>,
    waiting: Mutex<Waiting>,
    health: Mutex<Health>,
}

/// Windows and events that are not yet written.
#[derive(Default)]
struct Waiting {
    /// By minute first, so that the oldest come first.
    points: BTreeMap<(u64, String, String), Vec<u8>>,
    events: Vec<(String, Entry)>,
    /// By minute first.
    values: BTreeMap<(u64, Curve, String, String), Vec<u8>>,
    /// Values to keep under a name; `None` to remove one.
    kept: BTreeMap<String, Option<Vec<u8>>>,
    /// Number of windows.
    windows: usize,
    /// Number of values.
    value_count: usize,
    /// Windows and events that were dropped.
    lost: u64,
    /// Number of those that are being written, which readers do not see meanwhile.
    in_flight: usize,
    /// Some of them may be written already, by a commit that has failed.
    retried: bool,
}

/// State of writing.
struct Health {
    /// Last error since the last success.
    reason: Option<String>,
    backoff: Backoff,
    /// Time of the next attempt after an error.
    retry: Option<Instant>,
}

/// State of the history, for its readers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// False while it cannot be written.
    pub up: bool,
    /// Reason why it cannot be written.
    pub reason: Option<String>,
    /// Windows and events that wait in memory.
    pub waiting: usize,
    /// Windows and events that were lost because too many waited.
    pub lost: u64,
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

/// Windows of a rendition in an hour, or more of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    pub windows: u32,
    /// Windows that have scores.
    pub scored: u32,
    /// Windows with an active alarm.
    pub alarmed: u32,
    /// Sum of the means.
    pub sum: f64,
    /// Lowest score; infinite without scores.
    pub min: f64,
}

/// Stored form of an event.
#[derive(Serialize, Deserialize)]
struct Stored {
    label: String,
    kind: String,
    state: String,
    text: String,
    still: Option<u64>,
    #[serde(flatten)]
    about: Option<About>,
}

impl History {
    /// Opens the database in this folder, or in memory. Data older than `keep` is removed. With a full disk, the
    /// history waits in memory.
    pub fn open(folder: Option<&Path>, keep: Duration) -> Result<Self, Error> {
        if let Some(folder) = folder {
            fs::create_dir_all(folder)?;
        }
        let health = Health { reason: None, backoff: Backoff::new(LONGEST_PAUSE), retry: None };
        let history = Self {
            folder: folder.map(Path::to_owned),
            keep,
            database: RwLock::default(),
            waiting: Mutex::default(),
            health: Mutex::new(health),
        };
        match history.attempt(Self::reopen) {
            Err(error) if is_broken(&error) => {
                history.failed(&error);
                history.attempt(Self::reopen)?;
            }
            Err(error) if is_full(&error) => history.failed(&error),
            result => result?,
        }
        Ok(history)
    }

    /// Returns true if it outlives the program.
    pub fn outlives(&self) -> bool {
        self.folder.is_some()
    }

    /// Returns the time for which windows are kept.
    pub fn keep(&self) -> Duration {
        self.keep
    }

    /// Adds windows of renditions, and events, each with its channel. They are written by the next `write`.
    pub fn add(
        &self,
        points: impl Iterator<Item = (String, String, Point)>,
        events: impl Iterator<Item = (String, Entry)>,
    ) {
        let mut waiting = self.waiting.lock();
        for (channel, label, point) in points {
            let key = ((point.time / SPAN) as u64, channel, label);
            waiting.points.entry(key).or_default().extend(encode(&point));
            waiting.windows += 1;
        }
        waiting.events.extend(events);
        waiting.limit(MOST_WAITING);
    }

    /// Adds values of curves of a channel.
    pub fn add_values(&self, channel: &str, values: &[Value]) {
        let mut waiting = self.waiting.lock();
        for Value { time, label, curve, value } in values {
            let key = ((time / SPAN) as u64, *curve, channel.to_owned(), label.clone());
            let at = (time.rem_euclid(SPAN) * 1e3) as u32;
            let bytes = [at.to_le_bytes(), (*value as f32).to_le_bytes()].concat();
            waiting.values.entry(key).or_default().extend(bytes);
        }
        waiting.value_count += values.len();
        waiting.limit(MOST_WAITING);
    }

    /// Keeps a value under a name until it is replaced, or removed by `None`.
    pub fn keep_value(&self, name: String, value: Option<Vec<u8>>) {
        self.waiting.lock().kept.insert(name, value);
    }

    /// Returns the written values whose names begin with a prefix, in the order of their names.
    pub fn kept_values(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let mut values = vec![];
        let Some(database) = &*self.database.read() else { return Ok(values) };
        let table = database.begin_read()?.open_table(KEPT_VALUES)?;
        for item in table.range(prefix..)? {
            let (name, value) = item?;
            if !name.value().starts_with(prefix) {
                break;
            }
            values.push((name.value().to_owned(), value.value().to_vec()));
        }
        Ok(values)
    }

    /// Writes all that waits, and removes data that is too old if `now`, in seconds since 1970, is given. Errors are
    /// printed once; then writing is tried again after a pause, or at once if `soon` is set.
    pub fn write(&self, now: Option<f64>, soon: bool) {
        if !soon && self.health.lock().retry.is_some_and(|retry| retry > Instant::now()) {
            return;
        }
        let result = self.attempt(|history| {
            history.reopen()?;
            history.store()?;
            now.map_or(Ok(()), |now| history.prune(now))
        });
        match result {
            Ok(()) => self.recovered(),
            Err(error) => self.failed(&error),
        }
    }

    /// Returns the state of writing.
    pub fn shown(&self) -> Shown {
        let reason = self.health.lock().reason.clone();
        let waiting = self.waiting.lock();
        Shown {
            up: reason.is_none(),
            reason,
            waiting: waiting.in_flight + waiting.count(),
            lost: waiting.lost,
        }
    }

    /// Runs an operation on the database. A panic in it, as some damaged files cause, is an error.
    fn attempt(&self, operation: impl FnOnce(&Self) -> Result<(), Error>) -> Result<(), Error> {
        catch_unwind(AssertUnwindSafe(|| operation(self)))
            .unwrap_or_else(|_| Err(Error::Corrupted("the file is damaged".into())))
    }

    /// Opens the database unless it is open.
    fn reopen(&self) -> Result<(), Error> {
        if self.database.read().is_some() {
            return Ok(());
        }
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE);
        let database = match &self.folder {
            Some(folder) => builder.create(folder.join(FILE))?,
            None => builder.create_with_backend(InMemoryBackend::new())?,
        };
        let write = database.begin_write()?;
        write.open_table(POINTS)?;
        write.open_table(EVENTS)?;
        write.open_table(HOURS)?;
        write.open_table(VALUES)?;
        write.open_table(KEPT_VALUES)?;
        write.commit()?;
        *self.database.write() = Some(database);
        Ok(())
    }

    /// Writes all that waits. On an error it waits further.
    fn store(&self) -> Result<(), Error> {
        let batch = {
            let mut waiting = self.waiting.lock();
            let lost = waiting.lost;
            let in_flight = waiting.count();
            std::mem::replace(&mut *waiting, Waiting { lost, in_flight, ..Waiting::default() })
        };
        if batch.windows == 0 && batch.value_count == 0 && batch.events.is_empty() && batch.kept.is_empty() {
            return Ok(());
        }
        let result = self.attempt(|history| history.insert(&batch));
        if result.is_err() {
            let mut waiting = self.waiting.lock();
            let newer = std::mem::replace(&mut *waiting, Waiting { retried: true, ..batch });
            waiting.append(newer);
            waiting.limit(MOST_WAITING);
        }
        self.waiting.lock().in_flight = 0;
        result
    }

    fn insert(&self, batch: &Waiting) -> Result<(), Error> {
        let database = self.database.read();
        let write = database.as_ref().ok_or(Error::DatabaseClosed)?.begin_write()?;
        {
            let mut table = write.open_table(POINTS)?;
            let mut hours = BTreeMap::<(&str, &str, u64), Sum>::new();
            for ((minute, channel, label), points) in &batch.points {
                let key = (channel.as_str(), label.as_str(), *minute);
                let mut value = table.get(key)?.map_or(vec![], |value| value.value().to_vec());
                for point in points.chunks_exact(SIZE) {
                    if !batch.retried || !value.chunks_exact(SIZE).any(|known| known == point) {
                        value.extend(point);
                        let key = (channel.as_str(), label.as_str(), minute / MINUTES);
                        let hour = hours.entry(key).or_insert_with(Sum::empty);
                        decode(0.0, point).iter().for_each(|point| hour.add(point));
                    }
                }
                table.insert(key, value.as_slice())?;
            }
            let mut table = write.open_table(HOURS)?;
            for (key, mut hour) in hours {
                if let Some(known) = table.get(key)?.and_then(|known| Sum::decode(known.value())) {
                    hour = hour.and(&known);
                }
                table.insert(key, hour.encode().as_slice())?;
            }
            let mut table = write.open_table(VALUES)?;
            for ((minute, curve, channel, label), values) in &batch.values {
                let key = (channel.as_str(), label.as_str(), curve.name(), *minute);
                let mut value = table.get(key)?.map_or(vec![], |value| value.value().to_vec());
                for new in values.chunks_exact(VALUE_SIZE) {
                    if !batch.retried || !value.chunks_exact(VALUE_SIZE).any(|known| known == new) {
                        value.extend(new);
                    }
                }
                table.insert(key, value.as_slice())?;
            }
            let mut table = write.open_table(KEPT_VALUES)?;
            for (name, value) in &batch.kept {
                match value {
                    Some(value) => table.insert(name.as_str(), value.as_slice())?,
                    None => table.remove(name.as_str())?,
                };
            }
            let mut table = write.open_table(EVENTS)?;
            for (channel, event) in &batch.events {
                let Entry { time, label, kind, state, text, still, about } = event.clone();
                let value = serde_json::to_vec(&Stored { label, kind, state, text, still, about });
                let value = value.map_err(|error| Error::Corrupted(error.to_string()))?;
                let (channel, at) = (channel.as_str(), (time * 1e6) as u64);
                let mut number = 0;
                for item in table.range((channel, at, 0)..=(channel, at, u64::MAX))?.rev() {
                    let (key, known) = item?;
                    if batch.retried && known.value() == value {
                        number = key.value().2;
                        break;
                    }
                    number = number.max(key.value().2 + 1);
                    if !batch.retried {
                        break;
                    }
                }
                table.insert((channel, at, number), value.as_slice())?;
            }
        }
        Ok(write.commit()?)
    }

    /// Notes an error, closes the database, and sets its file aside if it is damaged.
    fn failed(&self, error: &Error) {
        *self.database.write() = None;
        let mut health = self.health.lock();
        if let Some(folder) = self.folder.as_deref().filter(|_| is_broken(error)) {
            match aside(folder) {
                Ok(name) => {
                    eprintln!(
                        "error: the history cannot be read; it is kept as {name}, and a new one begins: {error}"
                    );
                    return;
                }
                Err(error) => eprintln!("error: cannot rename {}: {error}", folder.join(FILE).display()),
            }
        }
        if health.reason.is_none() {
            eprintln!("error: cannot write the history, so it is kept in memory for now: {error}");
        }
        health.reason = Some(error.to_string());
        health.retry = Some(Instant::now() + health.backoff.next_pause());
    }

    fn recovered(&self) {
        let mut health = self.health.lock();
        health.backoff.reset();
        health.retry = None;
        if health.reason.take().is_some() {
            eprintln!(
                "the history is written again; {} windows and events were lost",
                self.waiting.lock().lost
            );
        }
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
        // Before the first window that is kept, there are only sums.
        let first = self.first(channel, label, from)?.map_or(u64::MAX, |minute| minute / MINUTES);
        let mut sums = BTreeMap::<u64, (f64, Sum)>::new();
        for (hour, sum) in self.hours(channel, label, from, to)?.into_iter().filter(|(hour, _)| *hour < first)
        {
            let time = (hour as f64 * HOUR).max(from);
            let known = sums.entry(((time - from) / length) as u64).or_insert((time, Sum::empty()));
            known.1 = known.1.and(&sum);
        }
        buckets.extend(sums.into_iter().map(|(number, (time, sum))| {
            let mean = sum.sum / f64::from(sum.scored);
            (number, Bucket { time, mean, min: sum.min, alarm: sum.alarmed > 0 }, sum.scored)
        }));
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

    /// Returns a curve of a stream between two times, as times and values, merged into at most `most` means.
    pub fn curve(
        &self,
        channel: &str,
        label: &str,
        curve: Curve,
        [from, to]: [f64; 2],
        most: usize,
    ) -> Result<Vec<(f64, f64)>, Error> {
        if from > to {
            return Ok(vec![]);
        }
        let minutes = (from / SPAN) as u64..=(to / SPAN) as u64;
        let mut found = self.waiting.lock().values_of(channel, label, curve, &minutes);
        if let Some(database) = &*self.database.read() {
            let table = database.begin_read()?.open_table(VALUES)?;
            let key = |minute| (channel, label, curve.name(), minute);
            for item in table.range(key(*minutes.start())..=key(*minutes.end()))? {
                let (key, value) = item?;
                found.extend(values(key.value().3, value.value()));
            }
        }
        found.retain(|(time, _)| (from..=to).contains(time));
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        let length = ((to - from) / most.max(1) as f64).max(f64::MIN_POSITIVE);
        let bucket = |time: f64| ((time - from) / length) as u64;
        let buckets = found.chunk_by(|a, b| bucket(a.0) == bucket(b.0));
        let mean = |values: &[(f64, f64)]| values.iter().map(|of| of.1).sum::<f64>() / values.len() as f64;
        Ok(buckets.filter_map(|values| Some((values.first()?.0, mean(values)))).collect())
    }

    /// Returns the first minute from a time on that has windows.
    fn first(&self, channel: &str, label: &str, from: f64) -> Result<Option<u64>, Error> {
        let Some(database) = &*self.database.read() else { return Ok(None) };
        let table = database.begin_read()?.open_table(POINTS)?;
        let range = (channel, label, (from / SPAN) as u64)..=(channel, label, u64::MAX);
        Ok(table.range(range)?.next().transpose()?.map(|(key, _)| key.value().2))
    }

    /// Returns the sums of the hours that begin between two times, with their numbers.
    pub fn hours(&self, channel: &str, label: &str, from: f64, to: f64) -> Result<Vec<(u64, Sum)>, Error> {
        let mut hours = vec![];
        if from > to {
            return Ok(hours);
        }
        let Some(database) = &*self.database.read() else { return Ok(hours) };
        let table = database.begin_read()?.open_table(HOURS)?;
        for item in
            table.range((channel, label, (from / HOUR) as u64)..=(channel, label, (to / HOUR) as u64))?
        {
            let (key, value) = item?;
            hours.extend(Sum::decode(value.value()).map(|sum| (key.value().2, sum)));
        }
        Ok(hours)
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
        let minutes = (from / SPAN) as u64..=(to / SPAN) as u64;
        let mut waiting = self.waiting.lock().of(channel, label, minutes.clone());
        let mut show = |minute: u64, bytes: &[u8], waiting: Option<Vec<u8>>| {
            let bytes = [bytes, &waiting.unwrap_or_default()].concat();
            let points = bytes.chunks_exact(SIZE).filter_map(|bytes| decode(minute as f64 * SPAN, bytes));
            let mut points: Vec<_> = points.filter(|point| (from..=to).contains(&point.time)).collect();
            // They are in the order of their arrival; the clock may have been set back meanwhile.
            points.sort_by(|a, b| a.time.total_cmp(&b.time));
            points.into_iter().for_each(&mut visit);
        };
        if let Some(database) = &*self.database.read() {
            let table = database.begin_read()?.open_table(POINTS)?;
            for item in table.range((channel, label, *minutes.start())..=(channel, label, *minutes.end()))? {
                let (key, value) = item?;
                let minute = key.value().2;
                show(minute, value.value(), waiting.remove(&minute));
            }
        }
        waiting.into_iter().for_each(|(minute, bytes)| show(minute, &[], Some(bytes)));
        Ok(())
    }

    /// Returns the labels that a channel has had.
    pub fn labels(&self, channel: &str) -> Result<Vec<String>, Error> {
        let mut labels = match &*self.database.read() {
            Some(database) => labels(database, channel)?,
            None => vec![],
        };
        let waiting = self.waiting.lock();
        labels.extend(
            waiting.points.keys().filter(|(_, of, _)| of == channel).map(|(.., label)| label.clone()),
        );
        labels.sort_unstable();
        labels.dedup();
        Ok(labels)
    }
    /// Returns the latest events of a channel between two times, newest first.
    pub fn events(&self, channel: &str, from: f64, to: f64, most: usize) -> Result<Vec<Entry>, Error> {
        if from > to {
            return Ok(vec![]);
        }
        let mut events: Vec<_> = {
            let waiting = self.waiting.lock();
            let known = waiting
                .events
                .iter()
                .rev()
                .filter(|(of, event)| of == channel && (from..=to).contains(&event.time));
            known.map(|(_, event)| event.clone()).collect()
        };
        if let Some(database) = &*self.database.read() {
            let table = database.begin_read()?.open_table(EVENTS)?;
            let range = (channel, (from * 1e6) as u64, 0)..=(channel, (to * 1e6) as u64, u64::MAX);
            for item in table.range(range)?.rev().take(most) {
                let (key, value) = item?;
                let stored = serde_json::from_slice(value.value());
                let Stored { label, kind, state, text, still, about } =
                    stored.map_err(|error| Error::Corrupted(error.to_string()))?;
                events.push(Entry {
                    time: key.value().1 as f64 / 1e6,
                    label,
                    kind,
                    state,
                    text,
                    still,
                    about,
                });
            }
        }
        // Stable, so that events of one moment keep their order.
        events.sort_by(|a, b| b.time.total_cmp(&a.time));
        events.truncate(most);
        Ok(events)
    }

    /// Removes data that is too old or too large. `now` is in seconds since 1970.
    fn prune(&self, now: f64) -> Result<(), Error> {
        let mut oldest = now - self.keep.as_secs_f64();
        let kept = now - self.keep.max(KEPT).as_secs_f64();
        self.remove_before(oldest, kept)?;
        while self.size()? > LARGEST && oldest < now {
            oldest += 3600.0;
            self.remove_before(oldest, kept)?;
        }
        Ok(())
    }

    /// Removes windows before a time, and events and sums before another.
    fn remove_before(&self, time: f64, kept: f64) -> Result<(), Error> {
        let database = self.database.read();
        let write = database.as_ref().ok_or(Error::DatabaseClosed)?.begin_write()?;
        {
            let minute = (time / SPAN).max(0.0) as u64;
            write.open_table(POINTS)?.retain(|(_, _, at), _| at >= minute)?;
            write.open_table(VALUES)?.retain(|(_, _, _, at), _| at >= minute)?;
            let hour = (kept / HOUR).max(0.0) as u64;
            write.open_table(HOURS)?.retain(|(_, _, at), _| at >= hour)?;
            let mut table = write.open_table(EVENTS)?;
            let micros = (kept * 1e6).max(0.0) as u64;
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
        let database = self.database.read();
        let write = database.as_ref().ok_or(Error::DatabaseClosed)?.begin_write()?;
        let bytes = write.stats()?.stored_bytes();
        write.abort()?;
        Ok(bytes)
    }
}

impl Sum {
    /// Returns the sum of no windows.
    pub fn empty() -> Self {
        Self { min: f64::INFINITY, ..Self::default() }
    }

    fn add(&mut self, point: &Point) {
        self.windows += 1;
        self.alarmed += u32::from(point.alarm);
        if point.mean.is_finite() {
            self.scored += 1;
            self.sum += point.mean;
            self.min = self.min.min(point.min);
        }
    }

    /// Returns the sum of both.
    pub fn and(self, other: &Self) -> Self {
        Self {
            windows: self.windows + other.windows,
            scored: self.scored + other.scored,
            alarmed: self.alarmed + other.alarmed,
            sum: self.sum + other.sum,
            min: self.min.min(other.min),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let counts = [self.windows, self.scored, self.alarmed].map(u32::to_le_bytes).concat();
        [counts, [self.sum, self.min].map(f64::to_le_bytes).concat()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let count = |i: usize| Some(u32::from_le_bytes(bytes.get(4 * i..4 * i + 4)?.try_into().ok()?));
        let value = |i: usize| Some(f64::from_le_bytes(bytes.get(12 + 8 * i..20 + 8 * i)?.try_into().ok()?));
        Some(Self {
            windows: count(0)?,
            scored: count(1)?,
            alarmed: count(2)?,
            sum: value(0)?,
            min: value(1)?,
        })
    }
}

impl Waiting {
    fn count(&self) -> usize {
        self.windows + self.value_count + self.events.len() + self.kept.len()
    }

    /// Returns the windows of a rendition, by minute.
    fn of(&self, channel: &str, label: &str, minutes: RangeInclusive<u64>) -> BTreeMap<u64, Vec<u8>> {
        let range = (*minutes.start(), String::new(), String::new())..;
        let points = self.points.range(range).take_while(|((minute, ..), _)| minute <= minutes.end());
        let of = points.filter(|((_, of, named), _)| of == channel && named == label);
        of.map(|((minute, ..), bytes)| (*minute, bytes.clone())).collect()
    }

    /// Returns the values of a curve, as times and values.
    fn values_of(
        &self,
        channel: &str,
        label: &str,
        curve: Curve,
        minutes: &RangeInclusive<u64>,
    ) -> Vec<(f64, f64)> {
        let keys = minutes.clone().map(|minute| (minute, curve, channel.to_owned(), label.to_owned()));
        keys.filter_map(|key| Some(values(key.0, self.values.get(&key)?))).flatten().collect()
    }

    /// Adds what came later.
    fn append(&mut self, newer: Self) {
        for (key, bytes) in newer.values {
            self.values.entry(key).or_default().extend(bytes);
        }
        self.value_count += newer.value_count;
        self.kept.extend(newer.kept);
        for (key, bytes) in newer.points {
            self.points.entry(key).or_default().extend(bytes);
        }
        self.windows += newer.windows;
        self.events.extend(newer.events);
        self.lost = newer.lost;
    }

    /// Drops the oldest windows and events beyond these numbers.
    fn limit(&mut self, [windows, events]: [usize; 2]) {
        while self.windows > windows
            && let Some((_, bytes)) = self.points.pop_first()
        {
            self.windows -= bytes.len() / SIZE;
            self.lost += (bytes.len() / SIZE) as u64;
        }
        while self.value_count > windows
            && let Some((_, bytes)) = self.values.pop_first()
        {
            self.value_count -= bytes.len() / VALUE_SIZE;
            self.lost += (bytes.len() / VALUE_SIZE) as u64;
        }
        let surplus = self.events.len().saturating_sub(events);
        self.events.drain(..surplus);
        self.lost += surplus as u64;
    }
}

/// Returns true if the file is damaged, or not of this program.
fn is_broken(error: &Error) -> bool {
    match error {
        Error::Io(error) => matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof),
        Error::Corrupted(_)
        | Error::UpgradeRequired(_)
        | Error::RepairAborted
        | Error::TableTypeMismatch { .. }
        | Error::TypeDefinitionChanged { .. }
        | Error::TableIsMultimap(_) => true,
        _ => false,
    }
}

/// Returns true if there is no space to write to.
fn is_full(error: &Error) -> bool {
    use ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let full = [FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull];
    matches!(error, Error::Io(error) if full.contains(&error.kind()))
}

/// Renames the file in this folder, and returns its new name.
fn aside(folder: &Path) -> io::Result<String> {
    let now = glib::DateTime::now_utc().and_then(|now| now.format("%Y%m%d-%H%M%S"));
    let name = format!("{FILE}.broken-{}", now.as_deref().unwrap_or("unknown"));
    fs::rename(folder.join(FILE), folder.join(&name))?;
    Ok(name)
}

/// Returns the labels that a channel has in the database.
fn labels(database: &Database, channel: &str) -> Result<Vec<String>, Error> {
    let table = database.begin_read()?.open_table(POINTS)?;
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

fn add(bucket: &mut Bucket, count: &mut u32, point: &Point) {
    bucket.alarm |= point.alarm;
    if point.mean.is_finite() {
        let sum = if *count == 0 { 0.0 } else { bucket.mean * f64::from(*count) };
        *count += 1;
        bucket.mean = (sum + point.mean) / f64::from(*count);
        bucket.min = bucket.min.min(point.min);
    }
}

/// Reads the values of a minute, as times and values.
fn values(minute: u64, bytes: &[u8]) -> Vec<(f64, f64)> {
    let (values, _) = bytes.as_chunks::<VALUE_SIZE>();
    let read = |[a, b, c, d, e, f, g, h]: [u8; VALUE_SIZE]| {
        let time = minute as f64 * SPAN + f64::from(u32::from_le_bytes([a, b, c, d])) / 1e3;
        (time, f64::from(f32::from_le_bytes([e, f, g, h])))
    };
    values.iter().copied().map(read).collect()
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
        ("sport".into(), Entry { time, label, kind, state, text: text.into(), still: Some(7), about: None })
    }

    fn record(history: &History, points: &[(String, String, Point)], events: &[(String, Entry)]) {
        history.add(points.iter().cloned(), events.iter().cloned());
        history.write(None, false);
        assert_eq!(history.shown(), Shown { up: true, reason: None, waiting: 0, lost: 0 });
    }

    fn times(history: &History) -> Vec<f64> {
        let mut times = vec![];
        history
            .each("sport", "high", 0.0, f64::from(u32::MAX), |point| times.push(point.time - NOW))
            .unwrap();
        times
    }

    #[test]
    fn what_waits_is_seen_and_nothing_is_written_twice() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(Some(folder.path()), Duration::from_secs(86_400)).unwrap();
        record(&history, &[point(NOW, 1.0), point(NOW + 1.0, 2.0)], &[event(NOW, "first")]);
        // As after a commit that has failed although it reached the disk; the clock was set back before the last.
        let again = [point(NOW + 1.0, 2.0), point(NOW + 100.0, 3.0), point(NOW - 5.0, 4.0)];
        history.add(again.into_iter(), [event(NOW, "first"), event(NOW, "second")].into_iter());
        history.waiting.lock().retried = true;
        let seen = [-5.0, 0.0, 1.0, 100.0];
        assert_eq!(history.shown().waiting, 5);
        assert!(history.events("sport", NOW, NOW, 9).unwrap().len() == 3 && times(&history).len() == 5);
        history.write(None, false);
        assert_eq!(times(&history), seen);
        let texts = history.events("sport", NOW, NOW, 9).unwrap().into_iter().map(|event| event.text);
        assert_eq!(texts.collect::<Vec<_>>(), ["second", "first"]);
    }

    #[test]
    fn curves_are_kept_beside_the_scores() {
        let history = History::open(None, Duration::from_secs(86_400)).unwrap();
        let value = |time: f64, value| Value { time, label: "high".into(), curve: Curve::Loudness, value };
        let all = [value(NOW, -20.0), value(NOW + 1.0, -30.0), value(NOW + 70.0, -40.0)];
        let curve = |from: f64, to: f64, most| {
            let found =
                history.curve("sport", "high", Curve::Loudness, [NOW + from, NOW + to], most).unwrap();
            found.into_iter().map(|(time, value)| (time - NOW, value)).collect::<Vec<_>>()
        };
        history.add_values("sport", &all[..2]);
        history.write(None, false);
        // As after a commit that has failed although it reached the disk.
        history.add_values("sport", &all);
        history.waiting.lock().retried = true;
        assert_eq!(history.shown().waiting, 3);
        history.write(None, false);
        assert_eq!(curve(0.0, 99.0, 999), [(0.0, -20.0), (1.0, -30.0), (70.0, -40.0)]);
        history.add_values("sport", &[value(NOW + 71.0, -50.0)]);
        assert_eq!(curve(0.0, 80.0, 8), [(0.0, -25.0), (70.0, -45.0)]);
        assert_eq!((curve(70.5, 99.0, 9), curve(5.0, 1.0, 9)), (vec![(71.0, -50.0)], vec![]));
        history.write(Some(NOW + 3.0 * 86_400.0), true);
        assert_eq!(curve(0.0, 99.0, 9), []);
        history.add_values("sport", &all);
        history.waiting.lock().limit([2, 0]);
        assert_eq!((history.shown().waiting, history.shown().lost), (1, 2));
    }

    #[test]
    fn values_are_kept_until_they_are_removed() {
        let history = History::open(None, Duration::from_secs(86_400)).unwrap();
        let names = |prefix| -> Vec<String> {
            history.kept_values(prefix).unwrap().into_iter().map(|(name, _)| name).collect()
        };
        for (name, value) in
            [("b/1", Some(vec![1])), ("a/1", Some(vec![2])), ("a/2", Some(vec![3])), ("a/1", None)]
        {
            history.keep_value(name.into(), value);
        }
        history.write(None, false);
        assert_eq!((names("a/"), names("b/"), names("c/")), (vec!["a/2".into()], vec!["b/1".into()], vec![]));
        history.keep_value("a/2".into(), None);
        history.write(None, false);
        assert!(names("a/").is_empty());
        // Newer values replace those of a batch that could not be written.
        let mut waiting = Waiting { kept: [("a/2".into(), Some(vec![4]))].into(), ..Waiting::default() };
        waiting.append(Waiting { kept: [("a/2".into(), None)].into(), ..Waiting::default() });
        assert_eq!(waiting.kept["a/2"], None);
    }

    #[test]
    fn the_oldest_are_lost_if_too_many_wait() {
        let history = History::open(None, Duration::from_secs(86_400)).unwrap();
        let points = (0..200).map(|i| point(NOW + f64::from(i), 1.0));
        history.add(points, (0..5).map(|i| event(NOW, &i.to_string())));
        history.waiting.lock().limit([150, 3]);
        let shown = history.shown();
        assert_eq!(shown.lost + shown.waiting as u64, 205);
        assert!(times(&history)[0] > 0.0 && times(&history).last() == Some(&199.0), "{:?}", times(&history));
        assert_eq!(history.events("sport", NOW, NOW, 9).unwrap().len(), 3);
    }

    #[test]
    fn a_history_that_cannot_be_read_is_set_aside() {
        let keep = Duration::from_secs(86_400);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        record(&History::open(Some(folder.path()), keep).unwrap(), &[point(NOW, 1.0)], &[]);
        let good = fs::read(&path).unwrap();
        let mut header = good.clone();
        header[20..200].fill(0xff);
        let mut pages = good.clone();
        pages[4096..].fill(0x5a);
        for broken in [b"no database".repeat(1000), good[..5000].to_vec(), header, pages] {
            fs::write(&path, &broken).unwrap();
            let history = History::open(Some(folder.path()), keep).unwrap();
            history.write(Some(NOW), false);
            // Damage behind the header is found when it is read.
            record(&history, &[point(NOW, 2.0)], &[]);
            assert_eq!(times(&history), [0.0]);
            drop(history);
            let files = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path());
            let aside = files.filter(|path| path.to_str().unwrap().contains(".broken-")).collect::<Vec<_>>();
            assert!(aside.len() == 1 && fs::read(&aside[0]).unwrap() == broken, "{aside:?}");
            fs::remove_file(&aside[0]).unwrap();
        }
    }

    #[test]
    fn what_was_recorded_is_there_after_the_program_was_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Duration::from_secs(86_400);
        let points: Vec<_> = (0..500).map(|i| point(NOW + f64::from(i), f64::from(i % 100))).collect();
        {
            let history = History::open(Some(folder.path()), keep).unwrap();
            for point in &points {
                record(&history, std::slice::from_ref(point), &[]);
            }
            record(&history, &[], &[event(NOW, "first"), event(NOW, "second")]);
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
        record(&history, &points, &[]);
        let buckets = history.points("sport", "high", NOW, NOW + 9.0, 3).unwrap();
        let seen: Vec<_> = buckets.iter().map(|b| (b.time - NOW, b.mean, b.min, b.alarm)).collect();
        assert_eq!(seen[..2], [(0.0, 85.0, 79.0, false), (3.0, 50.0, 39.0, true)]);
        assert!(seen.len() == 3 && seen[2].1.is_nan(), "{seen:?}");
        assert!(history.points("sport", "low", NOW, NOW + 9.0, 3).unwrap().is_empty());
        assert!(history.points("sport", "high", NOW + 9.0, NOW, 0).unwrap().is_empty());
    }

    #[test]
    fn hours_have_the_sums_of_their_windows() {
        let history = History::open(None, Duration::from_secs(86_400)).unwrap();
        let scores = [90.0, f64::NAN, 40.0, 60.0];
        let points: Vec<_> =
            (0..).zip(scores).map(|(i, score)| point(NOW + 1200.0 * f64::from(i), score)).collect();
        record(&history, &points[..1], &[]);
        record(&history, &points[1..], &[]);
        let hours = history.hours("sport", "high", NOW, NOW + 9999.0).unwrap();
        let sum = hours.iter().fold(Sum::empty(), |sum, (_, hour)| sum.and(hour));
        assert_eq!(sum, Sum { windows: 4, scored: 3, alarmed: 1, sum: 190.0, min: 39.0 });
        assert_eq!(hours.len(), 2);
        history.waiting.lock().retried = true;
        history.add(points.into_iter(), std::iter::empty());
        history.write(None, false);
        assert_eq!(history.hours("sport", "high", NOW, NOW + 9999.0).unwrap(), hours);
    }

    #[test]
    fn what_is_old_or_too_much_is_removed() {
        let history = History::open(None, Duration::from_secs(86_400)).unwrap();
        let day = 86_400.0;
        record(&history, &[point(NOW - 2.0 * day, 1.0), point(NOW, 2.0)], &[event(NOW - 2.0 * day, "old")]);
        let many: Vec<_> = (0..MOST_EVENTS + 10).map(|i| event(NOW, &i.to_string())).collect();
        record(&history, &[], &many);
        history.write(Some(NOW), false);
        assert_eq!(times(&history), [0.0]);
        // Of the older, the sum is left.
        let points = history.points("sport", "high", NOW - 3.0 * day, NOW + 1.0, 10).unwrap();
        assert_eq!(
            points.iter().map(|point| (point.mean, point.min)).collect::<Vec<_>>(),
            [(1.0, 0.0), (2.0, 1.0)]
        );
        let events = history.events("sport", 0.0, NOW + 1.0, usize::MAX).unwrap();
        assert_eq!((events.len(), &*events[MOST_EVENTS - 1].text), (MOST_EVENTS, "10"));
    }
}
