// SPDX-License-Identifier: MPL-2.0

//! The ledger: the frames that were sent, the output of the element for them, and the check that both agree.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use gst::{ClockTime, Structure};
use gsthipvmaf::event;
use gsthipvmaf::message::{self, FrameMessage, PooledMessage, Values, VmafMessage};
use gsthipvmaf::meta::ScoreState;

use crate::neighbours::Left;
use crate::pictures::{FRAME, NUMBERS, Picture, Table, Trouble, lasting};

/// The number of frames that the ledger remembers.
const MEMORY: u64 = 150;
/// A disturbance may affect frames that were sent this many frames before it or after it.
pub const REACH: u64 = 32;
/// The largest offset of a frame.
const MOVED: ClockTime = ClockTime::from_mseconds(200);

struct Reference {
    picture: Picture,
    /// The frame must leave, and has not left yet.
    owed: bool,
    left: bool,
}

struct Distorted {
    picture: Picture,
    trouble: Option<Trouble>,
}

/// A distorted stream.
pub struct Rendition {
    pub pad: String,
    /// The frames by the running time that they were sent with.
    frames: BTreeMap<ClockTime, Distorted>,
    /// All offsets that were added to those times with `ts-offset` so far.
    pub offsets: Vec<i64>,
    /// The scores in messages, by the time of the reference frame.
    scored: BTreeMap<ClockTime, Values>,
    /// The scores in the metadata of frames that left before their message.
    carried: BTreeMap<ClockTime, Values>,
    /// Reference frames that must be scored, because nothing prevents it.
    owed: BTreeSet<ClockTime>,
    /// No frame before this time must be scored.
    calm_from: ClockTime,
    /// The times of actions that may affect scores.
    disturbed: Vec<ClockTime>,
    last: VecDeque<(FrameMessage, Picture, Picture)>,
}

/// All records between two starts of an element.
#[derive(Default)]
pub struct Ledger {
    pub table: Table,
    references: BTreeMap<ClockTime, Reference>,
    renditions: Vec<Rendition>,
    last_left: Option<ClockTime>,
    /// Reference frames whose timestamp is wrong, by the running time that it says.
    wild: BTreeSet<ClockTime>,
    /// The wrong timestamp of the newest reference frame. The next frame shows that it is wrong; in a file, the last frame
    /// has no next.
    unrefuted: Option<ClockTime>,
    /// Running time at which the element began.
    begun: ClockTime,
    /// Section and end of the last window, by pad.
    windows: HashMap<String, (u64, ClockTime)>,
    /// Alarms that are raised, by pad and kind.
    raised: BTreeSet<(String, String)>,
    /// Frames of `dist_sink` that were scored since the start.
    pub rows: u64,
    pub scored: u64,
    pub in_run: u64,
    pub buffers: u64,
    pub faults: Vec<String>,
    counts: HashMap<&'static str, u64>,
}

impl Ledger {
    /// Returns an empty ledger with a table of expected scores.
    pub fn new(table: Table) -> Self {
        Self { table, ..Self::default() }
    }

    pub fn fault(&mut self, text: String) {
        // One fault causes others.
        if self.faults.len() < 8 {
            self.faults.push(text);
        }
    }

    /// Records a stop of the element: frames that are pending do not leave.
    pub fn restart(&mut self) {
        self.references.clear();
        self.last_left = None;
        self.wild.clear();
        self.unrefuted = None;
        self.windows.clear();
        self.raised.clear();
        self.rows = 0;
        for rendition in &mut self.renditions {
            *rendition = Rendition {
                offsets: rendition.offsets.last().copied().into_iter().collect(),
                ..Rendition::new(std::mem::take(&mut rendition.pad), ClockTime::ZERO)
            };
        }
    }

    /// Sets the running time at which the element begins.
    pub fn begin(&mut self, at: ClockTime) {
        self.begun = at;
    }

    pub fn add(&mut self, pad: &str, calm_from: ClockTime) {
        self.renditions.push(Rendition::new(pad.into(), calm_from));
    }

    pub fn remove(&mut self, pad: &str) {
        self.renditions.retain(|rendition| rendition.pad != pad);
        self.windows.remove(pad);
        self.raised.retain(|(of, _)| of != pad);
    }

    pub fn rendition(&mut self, pad: &str) -> Option<&mut Rendition> {
        self.renditions.iter_mut().find(|rendition| rendition.pad == pad)
    }

    /// Records a reference frame that is sent.
    pub fn reference(&mut self, at: ClockTime, picture: Picture, leaves: bool) {
        self.unrefuted = None;
        self.references.insert(at, Reference { picture, owed: leaves, left: false });
        let horizon = at.saturating_sub(FRAME * MEMORY);
        while let Some(entry) = self.references.first_entry()
            && *entry.key() < horizon
        {
            let (at, frame) = entry.remove_entry();
            if frame.owed {
                self.fault(format!("the reference frame at {at} has not left"));
            }
        }
        let mut late = vec![];
        for rendition in &mut self.renditions {
            rendition.scored = rendition.scored.split_off(&horizon);
            let kept = rendition.owed.split_off(&horizon);
            late.extend(
                std::mem::replace(&mut rendition.owed, kept)
                    .into_iter()
                    .map(|at| (rendition.pad.clone(), at)),
            );
        }
        for (pad, at) in late {
            self.fault(format!("{pad}: the pair at {at} was never scored"));
        }
    }

    /// Records a reference frame with a wrong timestamp. It has no partner, and may leave or not.
    pub fn wild(&mut self, at: ClockTime) {
        self.wild.insert(at);
        self.unrefuted = Some(at);
    }

    /// Records a distorted frame that is sent, with the time of its reference frame if the pair must be scored.
    pub fn distorted(
        &mut self,
        pad: &str,
        at: ClockTime,
        picture: Picture,
        trouble: Option<Trouble>,
        owed: Option<ClockTime>,
    ) {
        let Some(rendition) = self.rendition(pad) else { return };
        rendition.frames.insert(at, Distorted { picture, trouble });
        rendition.owed.extend(owed.filter(|at| *at >= rendition.calm_from));
    }

    /// Records an action that may prevent frames of a rendition from being scored.
    pub fn disturb(&mut self, pad: &str, now: ClockTime) {
        if let Some(rendition) = self.rendition(pad) {
            rendition.disturb(now);
        }
    }

    /// Records such an action for all renditions.
    pub fn disturb_all(&mut self, now: ClockTime) {
        self.renditions.iter_mut().for_each(|rendition| rendition.disturb(now));
    }

    /// Records a flush: pending reference frames may be dropped.
    pub fn flushed(&mut self) {
        self.references.values_mut().for_each(|frame| frame.owed = false);
    }

    /// Ends all runs of pairs.
    pub fn begin_runs(&mut self) {
        self.renditions.iter_mut().for_each(|rendition| rendition.last.clear());
    }

    /// Checks at the end of all streams that all frames have left and all pairs are scored.
    pub fn end(&mut self) {
        let missing: Vec<_> =
            self.references.iter().filter(|(_, frame)| frame.owed).map(|(at, _)| *at).collect();
        if let Some(at) = missing.first() {
            self.fault(format!("{} reference frames have not left, the first at {at}", missing.len()));
        }
        let unsaid = |rendition: &Rendition| {
            let (at, _) = rendition.carried.first_key_value()?;
            Some(format!("{}: the frame at {at} left with a score that was never said", rendition.pad))
        };
        let texts: Vec<_> = self.renditions.iter().filter_map(unsaid).collect();
        texts.into_iter().for_each(|text| self.fault(text));
        let owed = |rendition: &Rendition| {
            let first = rendition.owed.first()?;
            Some(format!(
                "{}: {} pairs were not scored, the first at {first}",
                rendition.pad,
                rendition.owed.len()
            ))
        };
        let texts: Vec<_> = self.renditions.iter().filter_map(owed).collect();
        texts.into_iter().for_each(|text| self.fault(text));
    }

    /// Checks a message. `now` is the time of the newest frame.
    pub fn message(&mut self, structure: &Structure, now: ClockTime) {
        if structure.name() == event::NAME {
            return self.event(structure, now);
        }
        if structure.name() != message::NAME {
            return self.fault(format!("an unknown message {structure}"));
        }
        match VmafMessage::try_from(&**structure) {
            Ok(VmafMessage::Frame(frame)) => self.frame(frame),
            Ok(VmafMessage::Pooled(_)) => *self.counts.entry("pooled").or_default() += 1,
            Ok(VmafMessage::Window(window)) => self.window(&window),
            Err(err) => self.fault(format!("{err} in {structure}")),
        }
    }

    fn window(&mut self, window: &PooledMessage) {
        *self.counts.entry("windows").or_default() += 1;
        let (section, pad) = (u64::from(window.section), &window.pad);
        let Some(end) = window.running_time else {
            return self.fault(format!("a window of {pad} has no end"));
        };
        let before = self.windows.insert(pad.clone(), (section, end));
        if before.is_some_and(|(of, before)| of == section && before >= end) {
            self.fault(format!("{pad}: the window up to {end} came after {before:?}"));
        }
    }

    /// Checks the fields of an event as a structure, because the parser may not know its kind.
    fn event(&mut self, structure: &Structure, now: ClockTime) {
        let text = |name: &str| structure.get::<String>(name).unwrap_or_default();
        let (kind, state, pad) = (text("event"), text("state"), text("pad"));
        *self.counts.entry("events").or_default() += 1;
        let first = match state.as_str() {
            "raised" => self.raised.insert((pad, kind.clone())),
            "cleared" => self.raised.remove(&(pad, kind.clone())),
            _ => true,
        };
        if !first {
            self.fault(format!("twice: {structure}"));
        }
        for name in ["running-time", "since"] {
            let time = structure.get::<u64>(name).ok().map(ClockTime::from_nseconds);
            // Dropouts are reported a little after the last frame, in live pipelines with the silence.
            // Distorted frames that are moved ahead of the first reference frame wait for one, too.
            let is_absurd = |time: ClockTime| time + MOVED < self.begun || time > now + 2 * ClockTime::SECOND;
            if time.is_some_and(is_absurd) && time != self.unrefuted && kind != "timestamp-jump" {
                self.fault(format!("{name} is absurd at {now}: {structure}"));
            }
        }
    }

    fn frame(&mut self, message: FrameMessage) {
        self.scored += 1;
        self.rows += u64::from(message.pad == "dist_sink");
        let brief = format!("{} {} at {:?}", message.pad, message.index, message.running_time);
        let (Some(at), Some(with)) = (message.running_time, message.dist_running_time) else {
            return self.fault(format!("{brief} has no times"));
        };
        let Some(reference) = self.references.get(&at).map(|frame| frame.picture) else {
            return self.fault(format!("{brief}: no such reference frame"));
        };
        let Some(i) = self.renditions.iter().position(|rendition| rendition.pad == message.pad) else {
            return self.fault(format!("{brief}: there is no such pad"));
        };
        if !message.repeated && at.absdiff(with) > FRAME / 2 {
            return self.fault(format!("{brief} was compared with a frame at {with}"));
        }
        let rendition = &mut self.renditions[i];
        rendition.owed.remove(&at);
        let carried = rendition.carried.remove(&at);
        if rendition.scored.insert(at, message.features.clone()).is_some() {
            return self.fault(format!("{brief} was scored twice"));
        }
        if carried.is_some_and(|carried| carried != message.features) {
            return self.fault(differs(&message.pad, at));
        }
        let rendition = &mut self.renditions[i];
        // The offset may have changed since the frame was sent, so any of the offsets may apply.
        let sent = |offset: &i64| {
            let time = with.nseconds().checked_add_signed(offset.checked_neg()?)?;
            rendition.frames.get(&ClockTime::from_nseconds(time)).map(|frame| (frame.picture, frame.trouble))
        };
        let sent: Vec<_> = rendition.offsets.iter().filter_map(sent).collect();
        let features = lasting(&message.features);
        let same = |(picture, trouble): &&(Picture, Option<Trouble>)| {
            trouble.is_none() && self.table.expected(reference, *picture).features == features
        };
        let Some((distorted, _)) = sent.iter().find(same).copied() else {
            let text = format!(
                "{brief}: {reference:?} and one of {sent:?} (frame at {with}) do not score {features:?}"
            );
            return self.fault(text);
        };
        self.renditions[i].last.push_back((message, reference, distorted));
        self.check_run(i);
    }

    /// Checks a frame with its neighbours in a run, where motion and the model's score are known too.
    fn check_run(&mut self, i: usize) {
        let last = &mut self.renditions[i].last;
        if last.len() < 3 {
            return;
        }
        let follows = |a: &(FrameMessage, Picture, Picture), b: &(FrameMessage, Picture, Picture)| {
            let after = |picture: Picture| Picture { number: (picture.number + 1) % NUMBERS, ..picture };
            let near = b.0.running_time.zip(a.0.running_time).is_some_and(|(b, a)| b < a + 2 * FRAME);
            let same_run = near && b.0.index == a.0.index + 1 && b.0.section == a.0.section;
            same_run && after(a.1) == b.1 && after(a.2) == b.2
        };
        let known = follows(&last[0], &last[1]) && follows(&last[1], &last[2]);
        last.pop_front();
        let (message, reference, distorted) = last[0].clone();
        if !known || message.repeated || reference.number != distorted.number {
            return;
        }
        if message.discont {
            if message.running_time.is_some_and(|at| self.renditions[i].is_calm(at)) {
                self.fault(format!("no frame is missing beside {message:?}"));
            }
            return;
        }
        self.in_run += 1;
        let expected = self.table.expected(reference, distorted);
        let Some(expected) = &expected.in_run else { return };
        if (&expected.models, &expected.features) != (&message.models, &message.features) {
            self.fault(format!("in a run, {message:?} is not {expected:?}"));
        }
    }

    /// Checks a buffer that has left. With `metas`, it must have score metadata.
    pub fn left(&mut self, left: &Left, metas: bool) {
        self.buffers += 1;
        if let Some(fault) = &left.fault {
            self.fault(format!("{fault}, at {:?}", left.running_time));
        }
        let Some(at) = left.running_time else {
            return self.fault("a buffer left outside of its segment".into());
        };
        if self.wild.remove(&at) {
            return;
        }
        if self.last_left.is_some_and(|last| last >= at) {
            self.fault(format!("the frame at {at} left after that at {:?}", self.last_left));
        }
        self.last_left = Some(at);
        match self.references.get_mut(&at) {
            None => self.fault(format!("what left at {at} is no reference frame")),
            Some(frame) if frame.left => self.fault(format!("the frame at {at} left twice")),
            Some(frame) => (frame.left, frame.owed) = (true, false),
        }
        match &left.meta {
            Some(_) if !metas => self.fault(format!("the frame at {at} has a meta")),
            None if metas => self.fault(format!("the frame at {at} has no meta")),
            _ => {}
        }
        let mut pads: Vec<_> = left.entries.iter().map(|(pad, _)| pad).collect();
        pads.dedup();
        if pads.len() != left.entries.len() {
            self.fault(format!("the frame at {at} has a pad twice: {:?}", left.entries));
        }
        for entry in left.meta.iter().flat_map(|meta| &meta.scores) {
            if entry.state != ScoreState::Scored {
                continue;
            }
            let Some(rendition) = self.rendition(&entry.pad) else { continue };
            // The order of the two depends on threads.
            let said = rendition.scored.get(&at).cloned();
            match said {
                Some(said) if said != entry.features => self.fault(differs(&entry.pad, at)),
                Some(_) => {}
                None => {
                    rendition.carried.insert(at, entry.features.clone());
                }
            }
        }
    }

    /// Returns the totals in words.
    pub fn summary(&self) -> String {
        let Self { scored, in_run, buffers, counts, .. } = self;
        format!("{scored} scores ({in_run} in runs), {buffers} buffers, {counts:?}")
    }
}

fn differs(pad: &str, at: ClockTime) -> String {
    format!("{pad}: the frame at {at} left with another score than was said")
}

impl Rendition {
    fn new(pad: String, calm_from: ClockTime) -> Self {
        Self {
            pad,
            frames: BTreeMap::new(),
            offsets: vec![0],
            scored: BTreeMap::new(),
            carried: BTreeMap::new(),
            owed: BTreeSet::new(),
            calm_from,
            disturbed: vec![],
            last: VecDeque::new(),
        }
    }

    fn disturb(&mut self, now: ClockTime) {
        let since = now.saturating_sub(FRAME * REACH);
        self.owed.retain(|at| *at < since);
        self.calm_from = now + FRAME * REACH;
        self.disturbed.push(now);
    }

    fn is_calm(&self, at: ClockTime) -> bool {
        self.disturbed.iter().all(|disturbed| disturbed.absdiff(at) > FRAME * REACH)
    }
}
