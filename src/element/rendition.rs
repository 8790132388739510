// SPDX-License-Identifier: MPL-2.0

//! One distorted stream: its pad, what was counted and scored of it, what is watched, and what is wrong with it.
//!
//! A stream that cannot be scored is its own trouble. It fails with a reason, its frames are dropped in step with the
//! reference, and the others go on; new caps give it another chance.

use std::sync::Arc;

use engine::scale::{Method, Scaling};
use gst::prelude::*;
use gst::{ClockTime, Structure};
use gst_base::prelude::*;
use watch::counts::Counts;

use super::alignment::Alignment;
use super::caps;
use super::downstream::{Compared, Outcome};
use super::error::Error;
use super::input::Input;
use super::memory::device_memory::Kind;
use super::memory::import::geometry;
use super::pad_health::PadHealth;
use super::pads::{HipVmafPad, PadSettings};
use super::record::Record;
use super::report::event::{Event, EventMessage, EventState};
use super::report::figures::{Figures, Together};
use super::report::message::{Common, PooledMessage, Stats, values_structure};
use super::report::rows::Heading;
use super::schedule::Role;
use super::settings::{PoolMethod, WatchSettings, nick};
use super::time::running;
use super::upcoming::Upcoming;

/// A distorted frame that may be shown again, with the caps that it came under.
#[derive(Clone)]
pub struct Shown {
    pub buffer: gst::Buffer,
    pub caps: Option<gst::Caps>,
    pub running_time: ClockTime,
}

impl Shown {
    /// Returns the frame in memory of its own; `None` if it cannot be copied to memory of its kind.
    pub fn copied(self) -> Option<Self> {
        let buffer = self.buffer.copy_deep().ok()?;
        (Kind::of(&buffer) == Kind::of(&self.buffer)).then_some(Self { buffer, ..self })
    }

    /// Returns the frame with its caps, for the elements downstream.
    pub fn sample(&self) -> gst::Sample {
        let sample = gst::Sample::builder().buffer(&self.buffer);
        match &self.caps {
            Some(caps) => sample.caps(caps).build(),
            None => sample.build(),
        }
    }
}

/// Why a stream cannot be scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The stream's caps alone, or its data: only other caps of this stream can mend it.
    Stream,
    /// The stream's caps do not go with the reference's: other caps of either may mend it.
    Mismatch,
}

/// Differences from the reference that were warned of.
#[derive(Debug, Default)]
pub struct Warned {
    /// Frame rates, of the reference and of this stream.
    pub rates: Option<(gst::Fraction, gst::Fraction)>,
    /// The pictures are of another shape than the reference's.
    pub shape: bool,
    /// Only one side says that its pictures are to be turned.
    pub orientation: bool,
}

/// Why a stream cannot be scored.
struct Failure {
    trouble: Trouble,
    reason: String,
}

/// Which differences from the reference are made up for, and which are refused.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The method that scales distorted frames of another size; `None` if they are refused.
    pub scale: Option<Method>,
    /// Colours that are coded in another way are refused.
    pub colors: bool,
}

/// One distorted stream.
pub struct Rendition {
    /// Number of the rendition, which no other has in the life of the element.
    pub number: u64,
    pub pad: HipVmafPad,
    pub input: Input,
    /// Settings of the pad for the present step.
    pub settings: PadSettings,
    /// The pad is about to be released: no more of its frames are taken.
    pub leaving: bool,
    /// Chroma lies on columns, and on rows, of luma.
    pub cosited: (bool, bool),
    /// The session is set up for it, and scales its frames in this way.
    pub prepared: Option<Option<Scaling>>,
    /// The stream has not delivered for so long that others no longer wait for it.
    pub absent: bool,
    /// The last distorted frame, kept where missing frames are to be repeated.
    pub shown: Option<Shown>,
    pub health: PadHealth,
    /// Caps have changed since differences from the reference were looked for.
    pub unwarned: bool,
    pub warned: Warned,
    failure: Option<Failure>,
    /// Frames that may still come of the size that upstream was asked to give up.
    renegotiating: u32,
    /// The last of its frames that met a reference frame did not suit it.
    unsuited: bool,
    pub alignment: Alignment,
    /// A pair of it was submitted since the start: its results have a heading.
    pub has_begun: bool,
    /// The head of the results file, until the first row is written.
    pub heading: Option<Heading>,
    pub record: Record,
}

/// The number of frames that upstream may send before its new size arrives.
const RENEGOTIATION: u32 = 250;

impl Rendition {
    pub fn new(number: u64, pad: HipVmafPad, upcoming: Arc<Upcoming>, watch: &WatchSettings) -> Self {
        Self {
            number,
            input: Input::new(pad.clone().upcast(), upcoming),
            settings: pad.settings(),
            pad,
            leaving: false,
            cosited: (true, false),
            prepared: None,
            absent: false,
            shown: None,
            health: PadHealth::new(watch),
            unwarned: false,
            warned: Warned::default(),
            failure: None,
            renegotiating: 0,
            unsuited: false,
            alignment: Alignment::default(),
            has_begun: false,
            heading: None,
            record: Record::default(),
        }
    }

    /// Returns the name that the user gave the stream, else that of the pad.
    pub fn label(&self) -> String {
        self.settings.label.clone().unwrap_or_else(|| self.pad.name().to_string())
    }

    /// Returns true if frames of the stream are to be compared: it is enabled, has not failed and is not leaving.
    pub fn is_active(&self) -> bool {
        self.settings.enabled && self.failure.is_none() && !self.leaving
    }

    pub fn is_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns the role of the rendition: if others wait for it. With `ignore_inactive`, they do not until it has
    /// delivered.
    pub fn role(&self, ignore_inactive: bool) -> Role {
        match self {
            _ if !self.is_active() => Role::Idle,
            _ if ignore_inactive && self.pad.is_inactive() => Role::Ignored,
            _ if self.absent => Role::Absent,
            _ => Role::Active,
        }
    }

    /// Notes that the stream cannot be scored, and returns the events to be posted: what has failed for another reason before is
    /// cleared of that first.
    pub fn fail(&mut self, trouble: Trouble, reason: String, at: Option<ClockTime>) -> Vec<EventMessage> {
        self.shown = None;
        let before = self.failure.replace(Failure { trouble, reason: reason.clone() });
        if before.as_ref().is_some_and(|failure| failure.reason == reason) {
            return vec![];
        }
        let cleared = before.map(|failure| failed(EventState::Cleared, at, failure.reason));
        cleared.into_iter().chain([failed(EventState::Raised, at, reason)]).collect()
    }

    /// Lets the stream be scored again if it had failed with such a trouble, and returns the event to be posted then.
    pub fn recover(&mut self, trouble: Trouble, at: Option<ClockTime>) -> Option<EventMessage> {
        let mended =
            |failure: &mut Failure| trouble == Trouble::Stream || failure.trouble == Trouble::Mismatch;
        let failure = self.failure.take_if(mended)?;
        Some(failed(EventState::Cleared, at, failure.reason))
    }

    /// Why it cannot be scored.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| failure.reason.as_str())
    }

    /// Upstream was asked for other caps, and can have them (or not): frames that were on their way are no error.
    pub fn expect_renegotiation(&mut self, possible: bool) {
        self.renegotiating = if possible { RENEGOTIATION } else { 0 };
    }

    /// Returns true if a frame that does not suit the reference may have been on its way when upstream was asked for
    /// other caps.
    pub fn excuses_mismatch(&mut self) -> bool {
        let excused = self.renegotiating > 0;
        self.renegotiating = self.renegotiating.saturating_sub(1);
        excused
    }

    /// Notes whether the frame at the head suits the reference frame that it meets.
    pub fn meets(&mut self, suits: bool) {
        self.unsuited = !suits;
    }

    /// Returns true if the last of its frames that met a reference frame did not suit it.
    pub fn is_unsuited(&self) -> bool {
        self.unsuited
    }

    /// Returns the scaling of its frames to the size of the reference; `None` if the sizes are equal, and an error if the
    /// videos cannot be compared.
    pub fn scaling(&self, reference: &Input, rules: Rules) -> Result<Option<Scaling>, Error> {
        let pad = || self.input.name();
        let (method, colors) = (rules.scale, reference.colors.zip(self.input.colors));
        let orientation = reference.orientation.clone();
        let reference = reference.info.as_ref().ok_or_else(|| Error::NoCaps(reference.name()))?;
        let distorted = self.input.info.as_ref().ok_or_else(|| Error::NoCaps(pad()))?;
        let both = || (reference.clone(), distorted.clone());
        let same_size = (reference.width(), reference.height()) == (distorted.width(), distorted.height());
        if !same_size && method.is_none() {
            let (reference, distorted) = both();
            return Err(Error::Size { pad: pad(), reference, distorted });
        }
        let geometries = geometry(distorted).zip(geometry(reference));
        let comparable = caps::alike(reference.format_info(), distorted.format_info());
        let scaling = match (geometries.filter(|_| comparable), method.filter(|_| !same_size)) {
            (Some((from, to)), Some(method)) => {
                let scaling = Scaling::new(method, from, to, self.cosited).map_err(|source| {
                    let (reference, distorted) = both();
                    Error::Scaling { pad: pad(), reference, distorted, source }
                });
                Some(scaling?)
            }
            (Some(_), None) => None,
            (None, _) => {
                let (reference, distorted) = both();
                return Err(Error::Format { pad: pad(), reference, distorted });
            }
        };
        if let (Some(of_reference), Some(of_distorted)) = (orientation, &self.input.orientation)
            && of_reference != *of_distorted
        {
            return Err(Error::Orientation {
                pad: pad(),
                reference: of_reference,
                distorted: of_distorted.clone(),
            });
        }
        let colors = colors.filter(|_| rules.colors);
        match colors.map(|(a, b)| a.differences(b, reference.comp_depth(0))) {
            Some(differ) if !differ.is_empty() => {
                let (reference, distorted) = both();
                Err(Error::Colors { pad: pad(), reference, distorted, differ })
            }
            _ => Ok(scaling),
        }
    }

    /// Returns the nanoseconds to add to the running time of its frames.
    pub fn offset(&self) -> i64 {
        self.settings.ts_offset.saturating_add(self.alignment.correction())
    }

    /// Takes the settings of a new step, in which a reference frame lasts `frame` nanoseconds.
    pub fn configure(&mut self, settings: PadSettings, frame: u64) {
        self.alignment.configure(settings.align, settings.align_range, frame);
        self.settings = settings;
    }

    /// Returns true if thumbnails of this stream's frames and of the reference's are needed.
    pub fn wants_thumbnails(&self) -> bool {
        self.alignment.wants_thumbnails() || self.health.wants_pictures()
    }

    /// Frames to come have nothing to do with those before.
    pub fn restart(&mut self) {
        self.input.restart();
        self.shown = None;
        self.alignment.restart();
    }

    /// Counts frames at this time by what became of them.
    pub fn count(&mut self, at: ClockTime, counts: Counts) {
        self.record.count(counts);
        self.health.count(at, counts);
    }

    /// Takes the frame at the head, which has no reference frame; the last of those was at `at`.
    pub fn drop_head(&mut self, at: ClockTime) -> Option<gst::Buffer> {
        let buffer = self.input.take()?;
        self.count(at, Counts { dist_unmatched: 1, ..Counts::default() });
        // The rendition delivers again, if late.
        self.absent = false;
        Some(buffer)
    }

    /// Returns the part of a message or meta that follows from column values, be they of a frame or pooled.
    pub fn common(&self, figures: &Figures, values: &[f64]) -> Common {
        self.named(figures.of_values(values))
    }

    /// Adds the stream and its section to a part of a message.
    fn named(&self, common: Common) -> Common {
        Common {
            pad: self.pad.name().to_string(),
            label: self.label(),
            section: self.record.section_number(),
            ..common
        }
    }

    /// Returns what became of a reference frame in the present section.
    pub fn compared(&self, outcome: Outcome) -> Compared {
        Compared { rendition: self.number, section: self.record.section_number(), outcome, frame: None }
    }

    /// An event of this rendition.
    pub fn event(&self, event: EventMessage) -> Structure {
        let (pad, label) = (self.pad.name().to_string(), self.label());
        EventMessage { pad, label, ..event }.to_structure()
    }

    /// Ends the section. Returns the message with its figures, if it had frames.
    pub fn end_section(
        &mut self,
        figures: &Figures,
        provenance: Structure,
        reason: &str,
        method: PoolMethod,
    ) -> Option<Structure> {
        let message = self.record.end_section(method).map(|ended| {
            let Together { score, stats, aggregates } =
                figures.together(&ended.summary, &ended.totals, method);
            PooledMessage {
                common: Common {
                    timestamp: ended.timestamp,
                    stream_time: ended.stream_time,
                    running_time: Some(ended.running_time),
                    duration: Some(ended.duration),
                    model: figures.name().into(),
                    score,
                    ..self.common(figures, &ended.values)
                },
                pool_method: nick(method),
                reason: reason.into(),
                counts: ended.counts,
                stats,
                aggregates,
                provenance: Some(provenance),
            }
        });
        self.record.begin_section();
        message.map(|message| message.to_structure("pooled"))
    }

    /// Returns the message for a window.
    pub fn window(
        &mut self,
        figures: &Figures,
        window: &watch::window::Figures,
        length: u64,
        method: PoolMethod,
    ) -> Structure {
        self.record.has_window();
        let scored = window.summary.pool.pooled().map_or(0, |pooled| pooled.count);
        let Together { score, stats, aggregates } = figures.together(&window.summary, &window.totals, method);
        let message = PooledMessage {
            common: Common {
                running_time: Some(running(window.end)),
                duration: Some(running(length)),
                ..self.named(figures.only(score))
            },
            pool_method: nick(method),
            reason: "interval".into(),
            counts: Counts { scored, ..window.counts },
            stats,
            aggregates,
            provenance: None,
        };
        message.to_structure("window")
    }

    /// Returns the statistics of the last window, or of the whole run where there are no windows.
    pub fn recent(&self, figures: &Figures) -> Stats {
        let together = match self.health.figures() {
            Some(window) => figures.together(&window.summary, &window.totals, PoolMethod::Mean),
            None => figures.together(self.record.summary(), self.record.totals(), PoolMethod::Mean),
        };
        together.stats
    }

    /// Counters and figures since the start, for the property `stats`.
    pub fn stats(&self, figures: &Figures) -> Structure {
        let (record, estimate) = (&self.record, self.alignment.estimate());
        let counts = record.counts();
        let mut s = Structure::builder("stats")
            .field("sections", record.sections())
            .field("alarm", self.health.alarms().iter().any(|(_, raised)| *raised))
            .field_if_some("score-last", record.last_score())
            .field_if_some("offset", estimate.map(|estimate| estimate.offset))
            .field_if_some("offset-confidence", estimate.map(|estimate| estimate.confidence))
            .build();
        for (name, count) in counts.in_statistics() {
            s.set(name, count);
        }
        let mut add = |prefix: &str, stats: Stats| {
            for (name, value) in stats.fields() {
                s.set(format!("{prefix}-{name}"), value);
            }
        };
        let together = figures.together(record.summary(), record.totals(), PoolMethod::Mean);
        if counts.scored > 0 {
            add("score", together.stats);
        }
        if self.health.figures().is_some() {
            add("window", self.recent(figures));
        }
        s.set("aggregates", values_structure("aggregates", &together.aggregates));
        s
    }
}

/// Returns the event that says whether a stream can be scored, and why not.
fn failed(state: EventState, at: Option<ClockTime>, reason: String) -> EventMessage {
    EventMessage {
        event: Event::Failed,
        state,
        running_time: at,
        reason: Some(reason),
        ..EventMessage::default()
    }
}
