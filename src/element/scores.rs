// SPDX-License-Identifier: MPL-2.0

//! Turns the scores of pairs into counts, messages, events, metas, windows, figures of sections, and rows of results files.

use engine::session::{Affected, PairScore, StreamTotals, Totals, Wrong};
use gst::ClockTime;
use gst::prelude::*;
use gst_video::VideoInfo;
use watch::counts::Counts;

use super::CAT;
use super::action::{Action, Actions};
use super::downstream::{Compared, Outcome, Pair, Stamp};
use super::error::Error;
use super::record::ScoredFrame;
use super::reference::Reference;
use super::rendition::Rendition;
use super::report::event::{Event, EventMessage};
use super::report::figures::Figures;
use super::report::message::{Common, FrameMessage};
use super::report::meta::{PadScore, ScoreMeta, ScoreState};
use super::report::provenance::{Provenance, named};
use super::report::results::columns;
use super::report::rows::{Ending, Format, Heading, Row};
use super::report::writer::Job;
use super::settings::{OnWrongScore, PoolMethod, Settings, Tunables};
use super::streams::Streams;
use super::time::running;

/// Names and values that say what computes the scores.
type MadeBy = [(&'static str, String)];

/// The conversion of scores to messages, metadata and results.
pub struct Scores {
    /// Origin of the scores, but for the backend.
    provenance: Provenance,
    pub figures: Figures,
    has_results: bool,
    /// Scores that do not count are in the results too.
    provisional_results: bool,
}

impl Scores {
    pub fn new(settings: &Settings, tunables: &Tunables, figures: Figures) -> Self {
        Self {
            provenance: Provenance::new(settings, tunables, &figures.plan),
            figures,
            has_results: settings.results().is_some(),
            provisional_results: settings.results_provisional,
        }
    }

    /// Prepares the head of a rendition's results file, before its first pair. It is written with the first score, as what
    /// makes the scores is known by then.
    pub fn begin_results(&self, rendition: &mut Rendition, reference: Option<&VideoInfo>) {
        if self.has_results
            && let (Some(reference), Some(distorted)) = (reference, &rendition.input.info)
            && !std::mem::replace(&mut rendition.has_begun, true)
        {
            rendition.heading = Some(Heading {
                columns: columns(&self.figures.plan),
                pad: rendition.input.name(),
                label: rendition.label(),
                reference: Format::of(reference),
                distorted: Format::of(distorted),
                provenance: self.provenance.clone(),
            });
        }
    }

    /// Takes the result for a frame of a rendition that waits for it. Returns the time of the frame, and the score with the
    /// totals of the pair if it counts; `None` if there is no score.
    pub fn scored(
        &self,
        rendition: &mut Rendition,
        (stamp, compared): (&Stamp, &mut Compared),
        score: PairScore,
        made_by: &MadeBy,
        frame_message: bool,
        actions: &mut Actions,
    ) -> Option<(ClockTime, Option<(f64, StreamTotals)>)> {
        let Outcome::Pending(pair) = compared.outcome else { return None };
        let at = stamp.running_time;
        let written = self.has_results && (self.provisional_results || !pair.provisional);
        let of_pair = StreamTotals::from(&score);
        if written {
            rendition.record.add_totals(&of_pair);
        }
        let PairScore { values, totals, discont, .. } = score;
        let Some(values) = values else {
            compared.outcome = ScoreState::Skipped.into();
            rendition.count(at, Counts { skipped: 1, ..Default::default() });
            return None;
        };
        let state = match (pair.provisional, discont) {
            (true, _) => ScoreState::Aligning,
            (_, true) => ScoreState::Discont,
            _ => ScoreState::Scored,
        };
        compared.outcome = Outcome::Known { state, values: values.clone() };
        let score = self.figures.followed.value(&values).unwrap_or(f64::NAN);
        gst::log!(CAT, obj = rendition.pad, "frame {}: {score}", stamp.index);
        match state {
            ScoreState::Aligning => rendition.count(at, Counts { aligning: 1, ..Default::default() }),
            ScoreState::Discont => rendition.count(at, Counts { discont: 1, ..Default::default() }),
            _ => {
                let (values, totals, repeated) = (&values[..], &of_pair, pair.repeated);
                rendition.record.scored(&ScoredFrame { stamp, values, score, totals, repeated });
            }
        }
        let scored =
            Scored { stamp, section: compared.section, pair: &pair, state, discont, values: &values };
        if written {
            self.write_row(rendition, &scored, totals, made_by, actions);
        }
        if frame_message {
            actions.push(self.frame_message(rendition, &scored));
        }
        Some((at, (state == ScoreState::Scored).then_some((score, of_pair))))
    }

    fn write_row(
        &self,
        rendition: &mut Rendition,
        scored: &Scored,
        totals: Totals,
        made_by: &MadeBy,
        actions: &mut Actions,
    ) {
        if let Some(heading) = rendition.heading.take() {
            let heading = Heading { provenance: heading.provenance.on(made_by), ..heading };
            actions.push(Action::Write(Job::Begin(rendition.number, Box::new(heading))));
        }
        let stamp = scored.stamp;
        let row = Row {
            index: stamp.index,
            timestamp: stamp.timestamp.map(|time| time.0),
            running_time: stamp.running_time,
            time_code: stamp.time_code.clone(),
            offset: scored.pair.offset.saturating_neg(),
            state: scored.state,
            section: scored.section,
            coverage: rendition.record.run_counts().coverage(),
            values: scored.values.to_vec(),
            totals,
        };
        actions.push(Action::Write(Job::Row(rendition.number, row)));
    }

    fn frame_message(&self, rendition: &Rendition, scored: &Scored) -> Action {
        let Scored { stamp, pair, .. } = scored;
        let message = FrameMessage {
            common: Common {
                timestamp: stamp.timestamp.map(|time| time.0),
                stream_time: stamp.stream_time.map(|time| time.0),
                running_time: Some(stamp.running_time),
                duration: stamp.duration.map(|time| time.0),
                section: scored.section,
                ..rendition.common(&self.figures, scored.values)
            },
            index: index_field(stamp.index),
            state: scored.state,
            dist_running_time: Some(pair.dist_running_time),
            discont: scored.discont,
            repeated: pair.repeated,
            compute_time: running(pair.since.elapsed().as_nanos() as u64),
        };
        Action::Post(message.to_structure())
    }

    /// Takes what has come of computing a frame again. `gpu` is the one that is verified.
    pub fn verified(
        rendition: &mut Rendition,
        (index, at): (u64, ClockTime),
        wrong: Option<Wrong>,
        gpu: Option<&str>,
        on_wrong: OnWrongScore,
        actions: &mut Actions,
    ) -> Result<(), Error> {
        let counts = Counts { verified: 1, wrong: wrong.is_some().into(), ..Default::default() };
        rendition.count(at, counts);
        let Some(Wrong { difference, affected }) = wrong else { return Ok(()) };
        let score = match affected {
            Affected::Nothing => "its score was corrected before it was reported",
            Affected::Earlier => {
                "its score was corrected before it was reported, that of the frame before was not"
            }
            Affected::All => "its score was reported before",
        };
        let device = gpu.unwrap_or_default().to_string();
        gst::error!(CAT, obj = rendition.pad, "frame {index} is wrong on {device}: {difference}; {score}");
        let event = EventMessage {
            event: Event::WrongScore,
            running_time: Some(at),
            frame: Some(index),
            metric: Some(difference.metric.clone()),
            expected: Some(difference.expected.clone()),
            got: Some(difference.got.clone()),
            reason: Some(score.into()),
            ..EventMessage::default()
        };
        actions.push(Action::Post(rendition.event(event)));
        match on_wrong {
            OnWrongScore::Error => Err(Error::WrongScore { device, frame: index, difference }),
            OnWrongScore::Report | OnWrongScore::Cpu => Ok(()),
        }
    }

    /// Ends the windows of a rendition up to `now`.
    pub fn advance(
        &self,
        rendition: &mut Rendition,
        now: ClockTime,
        tunables: &Tunables,
        actions: &mut Actions,
    ) {
        let (ended, events) = rendition.health.advance(now);
        actions.extend(events.into_iter().map(|event| Action::Post(rendition.event(event))));
        for figures in ended {
            let (length, method) = (tunables.watch.window, tunables.pool_method);
            actions.push(Action::Post(rendition.window(&self.figures, &figures, length, method)));
        }
    }

    /// Posts what the section of a rendition comes to.
    pub fn end_section(
        &self,
        rendition: &mut Rendition,
        reason: &str,
        now: ClockTime,
        method: PoolMethod,
        made_by: &MadeBy,
        actions: &mut Actions,
    ) {
        if reason != "reset" {
            let events = rendition.health.end_section(now);
            actions.extend(events.into_iter().map(|event| Action::Post(rendition.event(event))));
        }
        let provenance = self.provenance.on(made_by).to_structure();
        let pooled = rendition.end_section(&self.figures, provenance, reason, method);
        actions.extend(pooled.map(Action::Post));
    }

    /// Completes the results file of a rendition, once all scores have come. A stream that could not be scored in the end has
    /// no complete results.
    pub fn finish_results(
        &self,
        rendition: &Rendition,
        reference: &Reference,
        made_by: &MadeBy,
        actions: &mut Actions,
    ) {
        if !self.has_results || !reference.has_begun() {
            return;
        }
        let ending = Ending {
            aggregates: rendition.record.results_totals().aggregates(&self.figures.plan),
            offset: rendition.offset().saturating_neg(),
            coverage: rendition.record.run_counts().coverage(),
            frames: named(&rendition.record.run_counts().in_files().collect::<Vec<_>>()),
            backend: named(made_by),
            incomplete: rendition.settings.incomplete.clone(),
            damaged: rendition.settings.damaged.clone(),
        };
        actions.push(Action::Write(match rendition.failure() {
            Some(reason) => Job::Abandon(rendition.number, reason.into()),
            None => Job::Finish(rendition.number, ending),
        }));
    }

    /// Gives up the results files because of an error. The rows that were written are kept.
    pub fn abandon_results(&self, renditions: &[Rendition], err: &Error, actions: &mut Actions) {
        if self.has_results {
            let abandon =
                |rendition: &Rendition| Action::Write(Job::Abandon(rendition.number, err.to_string()));
            actions.extend(renditions.iter().map(abandon));
        }
    }

    /// Returns the meta of a frame: what is known by now of its pairs.
    pub fn meta(&self, streams: &Streams, stamp: &Stamp, compared: &[Compared]) -> ScoreMeta {
        let score = |compared: &Compared| {
            let rendition = &streams.renditions[streams.numbered(compared.rendition)?];
            let (state, values) = match &compared.outcome {
                Outcome::Known { state, values } => (*state, values.as_slice()),
                Outcome::Pending(_) => (ScoreState::Late, [].as_slice()),
            };
            let (pad, label) = (rendition.pad.name().to_string(), rendition.label());
            let score = PadScore { pad, label, section: compared.section, state, ..PadScore::default() };
            if values.is_empty() {
                return Some(score);
            }
            let common = rendition.common(&self.figures, values);
            Some(PadScore {
                score: Some(common.score),
                models: common.models,
                features: common.features,
                ..score
            })
        };
        ScoreMeta {
            index: index_field(stamp.index),
            section: streams.renditions.first().map_or(0, |rendition| rendition.record.section_number()),
            running_time: Some(stamp.running_time),
            scores: compared.iter().filter_map(score).collect(),
        }
    }
}

/// A pair and its score.
struct Scored<'a> {
    stamp: &'a Stamp,
    /// Section of the rendition that the pair belongs to.
    section: u32,
    pair: &'a Pair,
    state: ScoreState,
    /// The reference has a gap before it.
    discont: bool,
    values: &'a [f64],
}

/// Frame numbers are `int` in messages, as in GStreamer's `vmaf` element; they start again from 0 after 2^31.
fn index_field(index: u64) -> i32 {
    (index & 0x7fff_ffff) as i32
}
