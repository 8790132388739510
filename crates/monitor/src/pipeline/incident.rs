// SPDX-License-Identifier: MPL-2.0

//! An incident, from its first alarm until some time after its last.

use std::collections::BTreeSet;
use std::time::Instant;

use gsthipvmaf::event::{Event, EventMessage, EventState};

use super::Pipeline;
use crate::incidents::Incident;
use crate::state::pad;

/// An incident in progress.
pub(super) struct Running {
    begin: Instant,
    end: Instant,
    alarms: Vec<(String, &'static str)>,
    /// Branches with alarms.
    branches: BTreeSet<usize>,
}

impl Pipeline {
    /// Starts or extends an incident if the event is an alarm about a source.
    pub(super) fn alarm(&mut self, event: &EventMessage) {
        let about = matches!(event.event, Event::Alarm | Event::Freeze | Event::Black | Event::Dropout);
        if !about || event.state != EventState::Raised || self.length.is_zero() {
            return;
        }
        let of = |i: &usize| *i == 0 || event.pad == "ref_sink" || pad(*i - 1) == event.pad;
        let branches: BTreeSet<_> = (0..self.branches.len()).filter(of).collect();
        for clip_ring in branches.iter().filter_map(|i| self.branches[*i].clip_ring.as_ref()) {
            clip_ring.keep();
        }
        let now = Instant::now();
        let new = || Running { begin: now, end: now, alarms: vec![], branches: BTreeSet::new() };
        let running = self.incident.get_or_insert_with(new);
        // Limited, so that recurring alarms become several incidents.
        running.end = (now + self.length).min(running.begin + self.length * 4);
        running.alarms.push((event.label.clone(), event.event.name()));
        running.branches.extend(branches);
    }

    /// Writes the incident if it is over, or if `last` is set.
    pub(super) fn keep(&mut self, last: bool) {
        let Some(running) = self.incident.take_if(|running| last || running.end <= Instant::now()) else {
            return;
        };
        let stream = |i: &usize| {
            let branch = &self.branches[*i];
            Some((branch.source.label.clone(), branch.clip_ring.as_ref()?.take()))
        };
        let streams = running.branches.iter().filter_map(stream).collect();
        if let Some(incidents) = &self.incidents {
            incidents.add(Incident {
                channel: self.state.lock().name.clone(),
                alarms: running.alarms,
                streams,
            });
        }
    }
}
