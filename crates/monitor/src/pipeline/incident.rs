// SPDX-License-Identifier: MPL-2.0

//! An incident from the first alarm until enough has come after the last.

use std::collections::BTreeSet;
use std::time::Instant;

use gsthipvmaf::event::{Event, EventMessage, EventState};

use super::Pipeline;
use crate::incidents::Incident;
use crate::state::{lock, pad};

/// Alarms, until enough has come after them.
pub(super) struct Running {
    begin: Instant,
    end: Instant,
    alarms: Vec<(String, &'static str)>,
    /// The branches that they are about.
    branches: BTreeSet<usize>,
}

impl Pipeline {
    /// Has what the sources send kept from now on, if this is an alarm about them.
    pub(super) fn alarm(&mut self, event: &EventMessage) {
        let about = matches!(event.event, Event::Alarm | Event::Freeze | Event::Black | Event::Dropout);
        if !about || event.state != EventState::Raised || self.length.is_zero() {
            return;
        }
        let of = |i: &usize| *i == 0 || event.pad == "ref_sink" || pad(*i - 1) == event.pad;
        let branches: BTreeSet<_> = (0..self.branches.len()).filter(of).collect();
        for tape in branches.iter().filter_map(|i| self.branches[*i].tape.as_ref()) {
            tape.keep();
        }
        let now = Instant::now();
        let new = || Running { begin: now, end: now, alarms: vec![], branches: BTreeSet::new() };
        let running = self.incident.get_or_insert_with(new);
        // Alarms that come again and again are several incidents in the end.
        running.end = (now + self.length).min(running.begin + self.length * 4);
        running.alarms.push((event.label.clone(), event.event.name()));
        running.branches.extend(branches);
    }

    /// Hands over what was kept, once enough has come or nothing more is to come.
    pub(super) fn keep(&mut self, last: bool) {
        let Some(running) = self.incident.take_if(|running| last || running.end <= Instant::now()) else {
            return;
        };
        let stream = |i: &usize| {
            let branch = &self.branches[*i];
            Some((branch.source.label.clone(), branch.tape.as_ref()?.take()))
        };
        let streams = running.branches.iter().filter_map(stream).collect();
        if let Some(incidents) = &self.incidents {
            incidents.add(Incident {
                channel: lock(&self.state).name.clone(),
                alarms: running.alarms,
                streams,
            });
        }
    }
}
