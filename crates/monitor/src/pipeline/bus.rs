// SPDX-License-Identifier: MPL-2.0

//! Messages of the pipeline: scores, events and failures.

use std::time::Instant;

use gst::prelude::*;
use gst::{ClockTime, MessageView};
use gsthipvmaf::event::{Event, EventMessage, EventState};
use gsthipvmaf::message::VmafMessage;

use super::{End, Pipeline, TICK};
use crate::branch::ENDED;

impl Pipeline {
    /// Reads the bus for a while.
    pub(super) fn follow(&mut self) -> Option<End> {
        let end = Instant::now() + TICK;
        loop {
            let left = ClockTime::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
            let message = self.bus.timed_pop(left)?;
            let end = match message.view() {
                MessageView::Element(element) => self.handle(&message, element.structure()?),
                MessageView::Error(error) => {
                    // Of a server's answer, the text alone is easily overlooked.
                    let status =
                        error.details().and_then(|details| details.get::<u32>("http-status-code").ok());
                    let status = status.map_or(String::new(), |status| format!("HTTP {status}: "));
                    self.failed(&message, &format!("{status}{}", error.error().message()))
                }
                MessageView::Latency(_) => {
                    let _ = self.pipeline.recalculate_latency();
                    None
                }
                MessageView::Eos(_) => Some(End::Ended),
                _ => None,
            };
            if end.is_some() {
                return end;
            }
        }
    }

    /// Handles a message of an element.
    fn handle(&mut self, message: &gst::Message, structure: &gst::StructureRef) -> Option<End> {
        if structure.name() == ENDED {
            return self.failed(message, "the stream has ended");
        } else if let Ok(event) = EventMessage::try_from(structure) {
            if self.has_not_begun(&event) {
                return None;
            }
            let stills = self.stills.as_ref().filter(|_| event.state == EventState::Raised);
            let still = stills.and_then(|stills| stills.alarm(&event.pad));
            self.alarm(&event);
            self.state.lock().event(&event, still);
            return None;
        }
        match VmafMessage::try_from(structure) {
            Ok(VmafMessage::Window(window)) => self.state.lock().window(&window),
            Ok(VmafMessage::Frame(frame)) => {
                if let Some(worst) = self.stills.as_mut().and_then(|stills| stills.score(&frame))
                    && let Some(stream) = self.state.lock().stream(&frame.pad)
                {
                    stream.worst = Some(worst);
                }
            }
            _ => {}
        }
        None
    }

    /// Returns true for a drop-out of a file that is not played yet, as it is being examined.
    fn has_not_begun(&self, event: &EventMessage) -> bool {
        let is_dropout = (event.event, event.state) == (Event::Dropout, EventState::Raised);
        let stream = self.state.lock().streams().position(|stream| stream.pad == event.pad);
        is_dropout && stream.is_some_and(|i| self.branches[i].has_not_begun())
    }

    /// Removes the source that failed, if the message is from a source.
    fn failed(&mut self, message: &gst::Message, text: &str) -> Option<End> {
        let source = message.src()?;
        match self.branches.iter().position(|branch| branch.owns(source)) {
            Some(i) => self.fail(i, text),
            // The source may have been removed in the meantime.
            None => source.has_as_ancestor(&self.pipeline).then(|| End::Failed(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarm_files::AlarmFiles;
    use crate::settings::Settings;
    use crate::source::{Named, Source};
    use crate::state::{Shared, State};

    #[test]
    fn a_file_that_is_being_examined_has_not_dropped_out() {
        gst::init().unwrap();
        gsthipvmaf::plugin_register_static().unwrap();
        let file = || Source::File("film.mp4".into());
        let renditions = vec![Named { label: "same".into(), source: file() }];
        let settings =
            Settings { reference: Some(file()), renditions: Some(renditions), ..Settings::default() };
        let channel = settings.channel("a".into()).unwrap();
        let state = Shared::new(State::new(&channel).into());
        let files = AlarmFiles::open(None, 0).unwrap();
        let mut pipeline = Pipeline::new(&channel, state, &files, false).unwrap();
        let dropout =
            gst::Structure::builder("hipvmaf-event").field("event", "dropout").field("state", "raised");
        let dropout = dropout.field("pad", "dist_sink").field("label", "same").build();
        let message = gst::message::Element::new(dropout.clone());
        let alarms = |pipeline: &mut Pipeline| {
            assert!(pipeline.handle(&message, &dropout).is_none());
            pipeline.state.lock().alarms.len()
        };
        assert_eq!(alarms(&mut pipeline), 0);
        // A file that failed is an alarm, from which its drop-out follows.
        pipeline.fail(1, "no such file");
        assert_eq!(alarms(&mut pipeline), 2);
    }
}
