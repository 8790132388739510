// SPDX-License-Identifier: MPL-2.0

//! Negotiation with the neighbours: which caps the pads take, and which memory to use.
//!
//! Distorted video has to match the reference, so the caps that a distorted pad takes are known once the reference's are.
//! Which of the two comes first is chance. A distorted stream that asks too early waits a little for the answer, unless the
//! reference cannot come before; if it comes later still, or changes, upstream is asked to negotiate again.

use std::sync::Arc;

use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::AggregatorPad;
use gst_base::prelude::*;
use gst_video::{VideoCropMeta, VideoMeta};

use super::CAT;
use super::caps::{self, filtered};
use super::caps_wait::can_come_before;
use super::imp::HipVmaf;
use super::lock;
use super::memory::allocation;
use super::memory::allocator::PinnedAllocator;
use super::memory::device_memory::Kind;
use super::metas;
use super::pads::{DISTORTED, HipVmafPad};
use super::settings::{Backend, Output, ScaleMethod};
use super::state::State;
use super::upstream::Branch;

impl HipVmaf {
    /// Memory that frames can lie in, beside the system's.
    fn memories(&self) -> Vec<Kind> {
        // Before the start, a GPU may yet be found.
        let unknown = if lock(&self.settings).backend == Backend::Cpu { vec![] } else { Kind::ALL.to_vec() };
        lock(&self.run().state).as_ref().map_or(unknown, State::memories)
    }

    /// Returns caps of the frames that can be scored, in memory of these kinds. Before the start, any metric may be asked for.
    fn readable(&self, memories: &[Kind]) -> gst::Caps {
        let takes_rgb = lock(&self.run().state).as_ref().is_none_or(State::takes_rgb);
        caps::readable(memories, takes_rgb && self.output() != Output::Heatmap)
    }

    /// The sink pad whose frames leave at the src pad, if they do.
    fn leaving(&self) -> Option<gst::Pad> {
        match self.output() {
            Output::Reference => Some(self.reference().clone().upcast()),
            Output::Distorted => self.obj().static_pad(DISTORTED),
            Output::Heatmap => None,
        }
    }

    fn output(&self) -> Output {
        lock(&self.settings).output
    }

    /// Passes on that downstream wants other caps, to upstream of what leaves or of what is painted on. What feeds other
    /// pads as well hears of it only if downstream does not take the present caps any more.
    pub(super) fn pass_on_reconfigure(&self) {
        let obj = self.obj();
        let pad = self.leaving().unwrap_or_else(|| self.reference().clone().upcast());
        let suits = |caps: gst::Caps| obj.src_pad().peer_query_accept_caps(&caps);
        if obj.src_pad().current_caps().is_none_or(suits) {
            let others: Vec<_> = obj.sink_pads().into_iter().filter(|other| *other != pad).collect();
            Branch::of(&pad, &others).reconfigure();
        } else {
            // Refused by elements that cannot change their caps anyway.
            let _ = pad.push_event(gst::event::Reconfigure::new());
        }
    }

    /// Asks upstream of a distorted pad for caps like these. Returns true if it can have them.
    pub(super) fn ask_for_caps(&self, pad: &HipVmafPad, matching: &gst::Caps) -> bool {
        let branch = self.branch(pad);
        let possible = branch.can_send(matching);
        gst::debug!(CAT, obj = pad, "upstream can send {matching}: {possible}");
        if possible {
            branch.reconfigure();
        }
        possible
    }

    /// Returns the elements that feed a distorted pad and not the reference.
    fn branch(&self, pad: &impl IsA<gst::Pad>) -> Branch {
        Branch::of(pad.upcast_ref(), &[self.reference().clone().upcast()])
    }

    /// Answers what a sink pad takes.
    pub(super) fn answer_caps(&self, pad: &AggregatorPad, query: &mut gst::query::Caps<gst::QueryRef>) {
        let filter = query.filter_owned();
        let filter = filter.as_deref();
        // Upstream that has none of the formats may come all the same: it gets an error that says what to do, where a
        // refusal would only be a failed negotiation.
        let caps = match filter {
            Some(_) if filtered(&self.readable(&self.memories()), filter).is_empty() => {
                filtered(&caps::ANY, filter)
            }
            _ if pad == self.reference() => self.reference_caps(filter),
            _ => self.distorted_caps(pad, filter),
        };
        query.set_result(&caps);
    }

    /// Returns the caps that `ref_sink` takes. Where the reference's frames, or heat maps of them, leave, the next element has
    /// to take their caps.
    fn reference_caps(&self, filter: Option<&gst::CapsRef>) -> gst::Caps {
        let memories = self.memories();
        let readable = self.readable(&memories);
        let peer = |caps: &gst::Caps| caps::of_peer(self.obj().src_pad(), caps);
        match self.output() {
            Output::Reference => peer(&filtered(&readable, filter)),
            Output::Distorted => filtered(&readable, filter),
            Output::Heatmap => {
                let painted = peer(&self.readable(&[]));
                filtered(&caps::in_any_memory(&painted, &memories), filter)
            }
        }
    }

    /// Returns the caps that a distorted pad takes: the reference's size and depth, so that a converter upstream picks them,
    /// and any size besides where pictures are scaled here or where no converter is. Upstream that cannot do that is offered
    /// every size and depth, and the mismatch is reported with a hint.
    fn distorted_caps(&self, pad: &AggregatorPad, filter: Option<&gst::CapsRef>) -> gst::Caps {
        let memories = self.memories();
        let scales = lock(&self.settings).scale_method != ScaleMethod::None;
        let any_size = || scales || !self.branch(pad).can_scale(&memories);
        let reference = lock(&self.run().state).as_ref().and_then(|state| state.reference_info().cloned());
        let arriving = || {
            let can_come = || can_come_before(self.reference().upcast_ref(), pad.upcast_ref());
            let caps = self.caps_wait.caps(can_come)?;
            caps::info(&caps).map(Arc::new)
        };
        let known = reference.or_else(arriving);
        let matching = known.map(|info| caps::matching(&info, &memories, any_size()));
        let matching = matching.map(|caps| filtered(&caps, filter)).filter(|caps| !caps.is_empty());
        let caps = matching.unwrap_or_else(|| filtered(&self.readable(&memories), filter));
        match self.leaving() {
            Some(leaving) if leaving == *pad => caps::of_peer(self.obj().src_pad(), &caps),
            _ => caps,
        }
    }

    /// Answers which buffers to send to a sink pad, and which metas they may have.
    pub(super) fn answer_allocation(&self, pad: &AggregatorPad, query: &mut gst::query::Allocation) {
        if self.travels_on(pad) {
            // The answer stands whether or not downstream adds to it.
            self.obj().src_pad().peer_query(query);
            metas::keep_honoured(query);
        } else {
            query.add_allocation_meta::<VideoMeta>(None);
            // Applications that get the frames may not know that they have to crop them.
            if pad == self.reference() || !lock(&self.settings).attach_frames {
                query.add_allocation_meta::<VideoCropMeta>(None);
            }
        }
        let held = if pad == self.reference() { State::held } else { State::held_distorted };
        let held = lock(&self.run().state).as_ref().map_or(0, held);
        allocation::answer(query, self.pinned().as_ref(), held);
    }

    /// The frames of this pad travel on.
    pub(super) fn travels_on(&self, pad: &AggregatorPad) -> bool {
        self.leaving().is_some_and(|leaving| leaving == *pad)
    }

    /// The allocator of page-locked memory for the GPU in use.
    fn pinned(&self) -> Option<PinnedAllocator> {
        let gpu = lock(&self.run().state).as_ref().and_then(|state| state.used().gpu.clone())?;
        let run = self.run();
        let mut allocator = lock(&run.allocator);
        let made = allocator.as_ref().and_then(PinnedAllocator::device);
        if made.is_none_or(|device| !Arc::ptr_eq(device, &gpu)) {
            *allocator = Some(PinnedAllocator::new(gpu));
        }
        allocator.clone()
    }
}
