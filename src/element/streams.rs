// SPDX-License-Identifier: MPL-2.0

//! The streams of a run, the reference and the renditions, and how their formats go together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::metrics::Work;
use engine::scale::Scaling;
use engine::video::Video;
use gst::prelude::*;
use gst_base::AggregatorPad;
use gst_base::prelude::*;
use gst_video::VideoInfo;

use super::CAT;
use super::action::{Action, Actions};
use super::caps::{self, Colors, shape};
use super::error::Error;
use super::input::Input;
use super::memory::device_memory::Kind;
use super::pads::{HipVmafPad, REFERENCE};
use super::reference::Reference;
use super::rendition::{Rendition, Rules, Trouble};
use super::report::event::EventMessage;
use super::settings::{Pairing, WatchSettings};
use super::upcoming::Upcoming;
use super::worker::Jobs;

/// Sizes that were rounded to whole samples differ by no more than this share of the shape.
const ROUNDED: f64 = 0.01;

/// The reference and the renditions.
pub struct Streams {
    pub reference: Reference,
    /// In the order in which their pads were made.
    pub renditions: Vec<Rendition>,
    /// Counts the renditions that came and went, which decisions do not survive.
    pub generation: u64,
    rules: Rules,
    /// VMAF is among what is computed.
    has_models: bool,
    /// A warning was posted that the models are not for this video.
    warned_hdr: bool,
    /// The doubts about metrics that were reported.
    doubts: Vec<String>,
}

impl Streams {
    pub fn new(reference: Reference, rules: Rules, has_models: bool) -> Self {
        let (renditions, doubts) = (vec![], vec![]);
        Self { reference, renditions, generation: 0, rules, has_models, warned_hdr: false, doubts }
    }

    /// Adds a distorted stream, numbered by the caller.
    pub fn add(&mut self, number: u64, pad: HipVmafPad, upcoming: Arc<Upcoming>, watch: &WatchSettings) {
        gst::debug!(CAT, obj = pad, "rendition {number}");
        self.renditions.push(Rendition::new(number, pad, upcoming, watch));
        self.generation += 1;
    }

    /// Removes a distorted stream.
    pub fn remove(&mut self, i: usize) -> Rendition {
        self.generation += 1;
        self.renditions.remove(i)
    }

    /// Returns the place of the rendition that a pad belongs to.
    pub fn rendition(&self, pad: &AggregatorPad) -> Option<usize> {
        self.renditions.iter().position(|rendition| rendition.input.pad == *pad)
    }

    /// Returns the place of the rendition with this number.
    pub fn numbered(&self, number: u64) -> Option<usize> {
        self.renditions.iter().position(|rendition| rendition.number == number)
    }

    /// Returns the numbers of one rendition, or of all.
    pub fn numbers(&self, rendition: Option<usize>) -> Vec<u64> {
        let wanted = |(i, _): &(usize, &Rendition)| rendition.is_none_or(|rendition| rendition == *i);
        self.renditions.iter().enumerate().filter(wanted).map(|(_, rendition)| rendition.number).collect()
    }

    /// Returns the rendition that a pad belongs to, or `None` for the reference; nothing for a pad that was released.
    pub fn side(&self, pad: &AggregatorPad) -> Option<Option<usize>> {
        if *pad == self.reference.input.pad { Some(None) } else { self.rendition(pad).map(Some) }
    }

    /// Returns the input of a rendition, or else of the reference.
    pub fn input(&mut self, rendition: Option<usize>) -> &mut Input {
        match rendition {
            Some(i) => &mut self.renditions[i].input,
            None => &mut self.reference.input,
        }
    }

    /// Returns the sink pads: that of the reference, and then those of the renditions.
    pub fn inputs(&self) -> impl Iterator<Item = &Input> {
        std::iter::once(&self.reference.input).chain(self.renditions.iter().map(|of| &of.input))
    }

    /// Returns the sink pads in the same order.
    pub fn inputs_mut(&mut self) -> impl Iterator<Item = &mut Input> {
        std::iter::once(&mut self.reference.input).chain(self.renditions.iter_mut().map(|of| &mut of.input))
    }

    /// Returns the size and format of the reference, which distorted video has to match.
    pub fn reference_info(&self) -> Option<&Arc<VideoInfo>> {
        self.reference.input.info.as_ref()
    }

    /// Returns the action that posts an event of a rendition, or else of the reference.
    pub fn event(&self, rendition: Option<usize>, event: EventMessage) -> Action {
        Action::Post(match rendition {
            Some(i) => self.renditions[i].event(event),
            None => self.reference.event(event).to_structure(),
        })
    }

    /// Returns the numbers of the renditions whose pairs would not go on under new caps of a pad.
    pub fn affected(&mut self, pad: &AggregatorPad, caps: &gst::CapsRef) -> Vec<u64> {
        let info = caps::info(caps);
        let changes =
            |input: &Input| input.stored.as_ref().is_some_and(|stored| Some(&**stored) != info.as_ref());
        match self.side(pad) {
            Some(side) if changes(self.input(side)) => self.numbers(side),
            _ => vec![],
        }
    }

    /// Returns the rendition whose head is of another size than its pictures before, or `None` for the reference, if there is
    /// one.
    pub fn resized(&self) -> Option<Option<usize>> {
        if self.reference.input.resized().is_some() {
            return Some(None);
        }
        self.renditions.iter().position(|rendition| rendition.input.resized().is_some()).map(Some)
    }

    /// Returns how the frames of a rendition are brought to the size of the reference's.
    pub fn scaling(&self, i: usize) -> Result<Option<Scaling>, Error> {
        self.renditions[i].scaling(&self.reference.input, self.rules)
    }

    /// Returns true if the caps of a rendition are known, and suit those of the reference as far as these are.
    pub fn suits(&self, i: usize) -> bool {
        match self.reference_info() {
            Some(_) => self.scaling(i).is_ok(),
            None => self.renditions[i].input.info.is_some(),
        }
    }

    /// Returns how each rendition is scaled, and notes that the session is set up for that.
    pub fn prepare(&mut self) -> Vec<(u64, Option<Scaling>)> {
        let Self { reference, renditions, rules, .. } = self;
        let prepare = |rendition: &mut Rendition| {
            // A stream that cannot be compared now may have the size of the reference when it can.
            let scaling = rendition.scaling(&reference.input, *rules).unwrap_or(None);
            rendition.prepared = Some(scaling);
            (rendition.number, scaling)
        };
        renditions.iter_mut().map(prepare).collect()
    }

    /// Asks upstream of a rendition for caps that suit the reference, unless it has those, or none yet: a source that begins
    /// asks for itself what is wanted. No other stream is disturbed, as the event may reach a source that feeds the reference
    /// as well, which then negotiates anew and waits until the frames before are taken, for ever if an encoder keeps their
    /// partners.
    pub fn renegotiate(&self, i: usize, memories: &[Kind], actions: &mut Actions) {
        let Some(reference) = self.reference_info() else { return };
        let rendition = &self.renditions[i];
        if rendition.input.info.is_some() && !self.suits(i) {
            actions.push(Action::Reconfigure {
                rendition: rendition.number,
                pad: rendition.pad.clone(),
                matching: caps::matching(reference, memories, false),
            });
        }
    }

    /// Takes the answer of upstream of a rendition that was asked for other caps: whether it can have them.
    pub fn renegotiates(&mut self, rendition: u64, possible: bool) {
        let Some(i) = self.numbered(rendition) else { return };
        let suits = self.reference_info().is_none() || self.scaling(i).is_ok();
        self.renditions[i].expect_renegotiation(possible && !suits);
    }

    /// Forgets that the session is set up for a rendition whose frames are to be scaled in another way.
    pub fn forget_other_scaling(&mut self, i: usize) {
        if self.reference_info().is_some() {
            let scaling = self.scaling(i).ok();
            self.renditions[i]
                .prepared
                .take_if(|prepared| scaling.is_some_and(|scaling| scaling != *prepared));
        }
    }

    /// Lets a rendition that has failed with such a trouble be scored again, if it can be.
    pub fn retry(
        &mut self,
        i: usize,
        mended: Trouble,
        jobs: &Jobs,
        actions: &mut Actions,
    ) -> Result<(), Error> {
        if !self.renditions[i].is_failed() {
            return Ok(());
        }
        match self.reference_info().and_then(|_| self.scaling(i).err()) {
            Some(err) if mended == Trouble::Stream => self.fail(i, Trouble::Mismatch, err, actions),
            Some(_) => Ok(()),
            None => {
                self.forget_other_scaling(i);
                if let Some(event) = self.renditions[i].recover(mended, self.reference.last_time) {
                    gst::info!(CAT, obj = self.renditions[i].pad, "can be scored again");
                    jobs.retry(self.renditions[i].number);
                    actions.push(self.event(Some(i), event));
                }
                Ok(())
            }
        }
    }

    /// Takes note that a rendition cannot be scored. Where it is the only one, that ends everything.
    pub fn fail(
        &mut self,
        i: usize,
        trouble: Trouble,
        err: Error,
        actions: &mut Actions,
    ) -> Result<(), Error> {
        if self.renditions.len() == 1 {
            return Err(err);
        }
        let rendition = &mut self.renditions[i];
        gst::debug!(CAT, obj = rendition.pad, "cannot be scored: {err}");
        let events = rendition.fail(trouble, err.to_string(), self.reference.last_time);
        if !events.is_empty() {
            actions.extend(events.into_iter().map(|event| Action::Post(rendition.event(event))));
            actions.push(Action::Warn(err));
        }
        Ok(())
    }

    /// Looks at the formats of the heads of the reference and of a rendition, which need not be compared with each other.
    pub fn meet(&mut self, i: usize, pairing: Pairing, actions: &mut Actions) -> Result<(), Error> {
        if self.reference_info().is_none() {
            return Err(Error::NoCaps(self.reference.input.name()));
        }
        if self.renditions[i].is_active() && self.renditions[i].input.pad.has_buffer() {
            let scaling = self.scaling(i);
            self.renditions[i].meets(scaling.is_ok());
            match scaling {
                Err(err @ Error::NoCaps(_)) => self.fail(i, Trouble::Mismatch, err, actions)?,
                Err(_) => {}
                Ok(_) => self.warn_of_differences(i, pairing, actions),
            }
        }
        Ok(())
    }

    /// Returns those of the pairs whose frames can be compared. Frames that upstream sent before it could know what is wanted
    /// are dropped, and their reference frame goes on without them: it may be what the source waits for.
    pub fn suiting(
        &mut self,
        paired: &[bool],
        reached: gst::ClockTime,
        actions: &mut Actions,
    ) -> Result<Vec<bool>, Error> {
        let mut suiting = paired.to_vec();
        for (i, is_paired) in suiting.iter_mut().enumerate().filter(|(_, is_paired)| **is_paired) {
            let Err(err) = self.scaling(i) else { continue };
            *is_paired = false;
            // Upstream was asked for another size or format, and for nothing else.
            let was_asked = !matches!(err, Error::Colors { .. } | Error::Orientation { .. });
            if !was_asked || !self.renditions[i].excuses_mismatch() {
                self.fail(i, Trouble::Mismatch, err, actions)?;
                continue;
            }
            let rendition = &mut self.renditions[i];
            gst::debug!(CAT, obj = rendition.pad, "dropped a frame from before renegotiation: {err}");
            actions.push(Action::Release(rendition.drop_head(reached).into_iter().collect()));
        }
        Ok(suiting)
    }

    /// Fails the renditions whose last frames did not suit the reference. They may have been taken for frames from before
    /// upstream heard of it; at the end it is clear that they were not. Of a stream that had ended by the time the reference
    /// changed, there were none.
    pub fn check_last_caps(&mut self, actions: &mut Actions) -> Result<(), Error> {
        for i in 0..self.renditions.len() {
            let unsuited = self.renditions[i].is_active() && self.renditions[i].is_unsuited();
            if let Some(err) = self.scaling(i).err().filter(|_| unsuited) {
                self.fail(i, Trouble::Mismatch, err, actions)?;
            }
        }
        Ok(())
    }

    /// Looks for pads that have had nothing for longer than `limit` while frames wait, or come, at another one. Without a limit,
    /// nothing is meant to move. `waits_for` says whether a rendition is waited for. Returns the sides that have stalled or
    /// move again, and the names of the pads that move.
    pub fn look_for_stall(
        &mut self,
        now: Instant,
        limit: Option<Duration>,
        waits_for: impl Fn(&Rendition) -> bool,
    ) -> (Vec<(Option<usize>, bool)>, Vec<String>) {
        let waits: Vec<bool> = std::iter::once(true).chain(self.renditions.iter().map(waits_for)).collect();
        let mut busy = vec![];
        for (input, waits) in self.inputs_mut().zip(waits) {
            let has_buffer = input.pad.has_buffer();
            let ended = input.pad.is_eos() || !waits;
            if input.quiet.look(now, input.popped, has_buffer || ended) && !ended {
                busy.push(input.name());
            }
            if limit.is_none() {
                input.quiet.rest(now);
            }
        }
        let judge = |(i, input): (usize, &mut Input)| {
            Some((i.checked_sub(1), input.quiet.judge(now, limit, busy.is_empty())?))
        };
        let changes = self.inputs_mut().enumerate().filter_map(judge).collect();
        (changes, busy)
    }

    /// Warns, once, that the models are not for such video.
    pub fn warn_of_hdr(&mut self, colors: Option<Colors>, pad: String, actions: &mut Actions) {
        if self.has_models
            && let Some(transfer) = colors.and_then(Colors::hdr)
            && !std::mem::replace(&mut self.warned_hdr, true)
        {
            actions.push(Action::Warn(Error::Hdr { pad, transfer }));
        }
    }

    /// Warns, once, of metrics that may not be meant for the reference.
    pub fn warn_of_metrics(&mut self, work: &Work, video: &Video, actions: &mut Actions) {
        for reason in work.doubts(video) {
            if !self.doubts.contains(&reason) {
                self.doubts.push(reason.clone());
                actions.push(Action::Warn(Error::Doubt { pad: REFERENCE.into(), reason }));
            }
        }
    }

    /// Warns of what can be scored and may not be meant: other frame rates, and pictures of another shape. That is known when
    /// frames meet: where both streams get other caps, one does so before the other.
    fn warn_of_differences(&mut self, i: usize, pairing: Pairing, actions: &mut Actions) {
        if !std::mem::take(&mut self.renditions[i].unwarned) {
            return;
        }
        let pad = self.renditions[i].input.name();
        let infos = self.reference_info().cloned().zip(self.renditions[i].input.info.clone());
        let Some((reference, distorted)) = infos else { return };
        let turned = self.turned(i);
        let warned = &mut self.renditions[i].warned;
        let known = reference.fps().numer() > 0 && distorted.fps().numer() > 0;
        let rates = (known && reference.fps() != distorted.fps()).then(|| (reference.fps(), distorted.fps()));
        if rates != std::mem::replace(&mut warned.rates, rates)
            && let Some((reference, distorted)) = rates
        {
            let with = match pairing {
                Pairing::RunningTime => "the distorted frame of its time, within pairing-tolerance",
                Pairing::Index => "the distorted frame of its number",
                Pairing::Timecode => "the distorted frame of its time code",
                Pairing::ReferenceTimestamp => "the distorted frame of its reference timestamp",
            };
            let pad = pad.clone();
            actions.push(Action::Warn(Error::Rates { pad, reference, distorted, with }));
        }
        let differ = (shape(&reference) / shape(&distorted) - 1.0).abs() > ROUNDED;
        if differ != std::mem::replace(&mut warned.shape, differ) && differ {
            actions.push(Action::Warn(Error::Shape { pad, reference, distorted }));
        }
        let differ = turned.is_some();
        if differ != std::mem::replace(&mut warned.orientation, differ) {
            actions.extend(turned.map(Action::Warn));
        }
    }

    /// Returns the warning for pairs of which one side is to be turned, and nothing says how the other is.
    fn turned(&self, i: usize) -> Option<Error> {
        let [reference, distorted] = [&self.reference.input, &self.renditions[i].input];
        let (turned, other) = match (&reference.orientation, &distorted.orientation) {
            (Some(_), None) => (reference, distorted),
            (None, Some(_)) => (distorted, reference),
            _ => return None,
        };
        let orientation = turned.orientation.clone().filter(|orientation| orientation != "rotate-0")?;
        Some(Error::Turned { turned: turned.name(), orientation, other: other.name() })
    }
}

/// Returns the format that caps stand for, or an error if it cannot be read from the system's memory or from one of these
/// kinds.
pub fn readable(
    pad: &AggregatorPad,
    caps: &gst::CapsRef,
    memories: &[Kind],
    backend: &'static str,
) -> Result<VideoInfo, Error> {
    let name = || pad.name().to_string();
    let Some(info) = caps::info(caps).filter(|_| caps.is_subset(&caps::readable(memories, true))) else {
        let kind = Kind::ALL.into_iter().find(|kind| caps.is_subset(&caps::readable(&[*kind], true)));
        return Err(match kind {
            Some(kind) => Error::Memory { pad: name(), kind, backend },
            None => Error::Caps { pad: name(), caps: caps.to_owned() },
        });
    };
    if info.is_interlaced() { Err(Error::Interlaced(name())) } else { Ok(info) }
}
