// SPDX-License-Identifier: MPL-2.0

//! The elements upstream of a sink pad, and how far a request for other caps goes there.
//!
//! RECONFIGURE makes every element that it passes negotiate again, up to the source. Where that source feeds other sink pads
//! as well, it then waits until the frames that it has sent there are taken, and these wait for partners that an encoder on
//! this side may keep: for ever. A decoder, for its part, answers that it could send anything, and sends what its stream says.
//! So upstream is asked first, and queries and events go no further than the [`Branch`] that feeds one pad with raw video.

use std::thread;

use gst::prelude::*;

use super::caps;
use super::memory::device_memory::Kind;

/// Returns the sink pads upstream of a sink pad, the nearest first, and that pad before them.
pub fn sink_pads(pad: &gst::Pad) -> Vec<gst::Pad> {
    let mut found = vec![pad.clone()];
    let mut next = 0;
    while let Some(pad) = found.get(next) {
        for pad in pad.peer().map(behind).unwrap_or_default() {
            if !found.contains(&pad) {
                found.push(pad);
            }
        }
        next += 1;
    }
    found
}

/// Returns the sink pads of what a source pad belongs to, into bins and out of them.
fn behind(source: gst::Pad) -> Vec<gst::Pad> {
    if let Some(ghost) = source.downcast_ref::<gst::GhostPad>() {
        return ghost.target().map(behind).unwrap_or_default();
    }
    match source.parent().map(gst::Object::downcast::<gst::Element>) {
        Some(Ok(element)) => element.sink_pads(),
        // A bin hands on what comes to a sink pad of its by a source pad that belongs to that.
        Some(Err(parent)) => parent.downcast().into_iter().collect(),
        None => vec![],
    }
}

/// Returns the object that a source pad belongs to, into bins.
fn owner(source: &gst::Pad) -> Option<gst::Object> {
    match source.downcast_ref::<gst::GhostPad>() {
        Some(ghost) => owner(&ghost.target()?),
        None => source.parent(),
    }
}

/// Returns true if something else than raw video comes to a sink pad.
fn is_coded(pad: &gst::Pad) -> bool {
    let caps = pad.current_caps().unwrap_or_else(|| pad.pad_template_caps());
    !caps.is_any() && !caps.is_empty() && caps.iter().all(|structure| structure.name() != "video/x-raw")
}

/// The part of upstream that feeds one sink pad with raw video, and no other pad.
pub struct Branch {
    pad: gst::Pad,
    /// The sink pads at which the branch begins, where it does not begin with sources of its own.
    borders: Vec<gst::Pad>,
}

impl Branch {
    /// Finds the branch of a sink pad. What feeds one of the others too does not belong to it.
    pub fn of(pad: &gst::Pad, others: &[gst::Pad]) -> Self {
        let sources = |pads: Vec<gst::Pad>| pads.into_iter().filter_map(|pad| owner(&pad.peer()?));
        let shared: Vec<_> = others.iter().flat_map(|other| sources(sink_pads(other))).collect();
        let (mut borders, mut found, mut next) = (vec![], vec![pad.clone()], 0);
        while let Some(pad) = found.get(next).cloned() {
            next += 1;
            let Some(source) = pad.peer() else { continue };
            let before = behind(source.clone());
            if owner(&source).is_some_and(|owner| shared.contains(&owner)) || before.iter().any(is_coded) {
                borders.push(pad);
                continue;
            }
            let new: Vec<_> = before.into_iter().filter(|pad| !found.contains(pad)).collect();
            found.extend(new);
        }
        Self { pad: pad.clone(), borders }
    }

    /// Returns true if the branch can send such caps while what comes to it stays as it is.
    pub fn can_send(&self, wanted: &gst::Caps) -> bool {
        // A source pad knows them before they are sent; a sink pad only once they have been handed on.
        self.can_make(wanted, |pad| pad.peer()?.current_caps())
    }

    /// Returns true if the branch can choose the size of what it sends. Else a size that is asked for helps nothing, and is
    /// handed on by decoders to encoders, which then refuse every other.
    pub fn can_scale(&self, kinds: &[Kind]) -> bool {
        let [from, to] = [(640, 480), (320, 240)].map(|size| caps::sized(size, kinds));
        self.borders.is_empty() || self.can_make(&to, move |_| Some(from.clone()))
    }

    /// Returns true if the branch can make such caps of those that come to its borders.
    fn can_make(
        &self,
        wanted: &gst::Caps,
        coming: impl Fn(&gst::Pad) -> Option<gst::Caps> + Clone + Send + Sync + 'static,
    ) -> bool {
        let answer = move |pad: &gst::Pad, info: &mut gst::PadProbeInfo<'_>| {
            let Some(query) = info.query_mut() else { return gst::PadProbeReturn::Ok };
            let (gst::QueryViewMut::Caps(query), Some(caps)) = (query.view_mut(), coming(pad)) else {
                return gst::PadProbeReturn::Ok;
            };
            query.set_result(&caps::filtered(&caps, query.filter_owned().as_deref()));
            gst::PadProbeReturn::Handled
        };
        self.at_borders(gst::PadProbeType::QUERY_UPSTREAM, answer, || {
            !caps::of_peer(&self.pad, wanted).is_empty()
        })
    }

    /// Makes the elements of the branch negotiate again.
    pub fn reconfigure(&self) {
        let stop = |_: &gst::Pad, info: &mut gst::PadProbeInfo<'_>| match info.event() {
            Some(event) if event.type_() == gst::EventType::Reconfigure => gst::PadProbeReturn::Handled,
            _ => gst::PadProbeReturn::Ok,
        };
        self.at_borders(gst::PadProbeType::EVENT_UPSTREAM, stop, || {
            // Refused by elements that cannot change their caps anyway.
            let _ = self.pad.push_event(gst::event::Reconfigure::new());
        });
    }

    /// Does something while this is in force at the borders, for what this thread sends there.
    fn at_borders<T>(
        &self,
        what: gst::PadProbeType,
        probe: impl Fn(&gst::Pad, &mut gst::PadProbeInfo<'_>) -> gst::PadProbeReturn
        + Clone
        + Send
        + Sync
        + 'static,
        work: impl FnOnce() -> T,
    ) -> T {
        let this = thread::current().id();
        let add = |pad: &gst::Pad| {
            let probe = probe.clone();
            pad.add_probe(what, move |pad, info| {
                if thread::current().id() == this { probe(pad, info) } else { gst::PadProbeReturn::Ok }
            })
        };
        let probes: Vec<_> = self.borders.iter().map(|pad| (pad, add(pad))).collect();
        let result = work();
        for (pad, probe) in probes {
            probe.into_iter().for_each(|probe| pad.remove_probe(probe));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipeline that has negotiated, by its description.
    fn prerolled(description: &str) -> gst::Pipeline {
        gst::init().unwrap();
        let pipeline = gst::parse::launch(description).unwrap().downcast::<gst::Pipeline>().unwrap();
        pipeline.set_state(gst::State::Paused).unwrap();
        pipeline.state(gst::ClockTime::from_seconds(60)).0.unwrap();
        pipeline
    }

    fn sink(pipeline: &gst::Pipeline, name: &str) -> gst::Pad {
        pipeline.by_name(name).unwrap().static_pad("sink").unwrap()
    }

    /// Returns true if the distorted side of a pipeline can choose its size.
    fn scales(description: &str) -> bool {
        let pipeline = prerolled(description);
        let [reference, distorted] = ["ref", "dist"].map(|name| sink(&pipeline, name));
        let scales = Branch::of(&distorted, &[reference]).can_scale(&[]);
        pipeline.set_state(gst::State::Null).unwrap();
        scales
    }

    #[test]
    fn a_size_is_chosen_by_scalers_and_sources() {
        let reference = format!("{TEST} ! tee name=t t. ! queue ! {SINK}=ref");
        for (chain, expected) in [
            (format!("t. ! queue ! {SINK}=dist"), false),
            (format!("t. ! queue ! videoconvert ! {SINK}=dist"), false),
            (format!("t. ! queue ! videoscale ! {SINK}=dist"), true),
            (format!("t. ! queue ! videoscale ! jpegenc ! jpegdec ! queue ! {SINK}=dist"), false),
            (format!("t. ! queue ! jpegenc ! jpegdec ! videoscale ! {SINK}=dist"), true),
            (format!("videotestsrc ! {SINK}=dist"), true),
        ] {
            assert_eq!(scales(&format!("{reference} {chain}")), expected, "{chain}");
        }
    }

    /// Returns, for a pipeline with the sinks `ref` and `dist`, if the distorted side can have another size, and the source
    /// pads that get a RECONFIGURE event.
    fn asked(description: &str) -> (bool, Vec<String>) {
        let pipeline = prerolled(description);
        let [reference, distorted] = ["ref", "dist"].map(|name| sink(&pipeline, name));
        let branch = Branch::of(&distorted, &[reference]);
        let wanted = gst::Caps::builder("video/x-raw").field("width", 64).field("height", 48).build();
        let possible = branch.can_send(&wanted);
        let sources = || {
            let elements = pipeline.iterate_elements().into_iter().map(Result::unwrap);
            elements.flat_map(|element| element.src_pads()).filter(|pad| pad.parent().is_some())
        };
        for pad in sources() {
            // Clears the mark.
            pad.check_reconfigure();
        }
        branch.reconfigure();
        let heard = sources().filter(|pad| pad.needs_reconfigure());
        let mut heard: Vec<_> =
            heard.map(|pad| pad.parent_element().unwrap().factory().unwrap().name().to_string()).collect();
        heard.sort();
        pipeline.set_state(gst::State::Null).unwrap();
        (possible, heard)
    }

    const TEST: &str = "videotestsrc ! video/x-raw,format=I420,width=96,height=64,framerate=25/1";
    const SINK: &str = "fakesink enable-last-sample=false name";

    #[test]
    fn what_feeds_the_reference_too_hears_nothing() {
        let tee = format!("{TEST} ! tee name=t t. ! queue ! {SINK}=ref t. ! queue");
        assert_eq!(asked(&format!("{tee} ! {SINK}=dist")), (false, vec!["queue".into()]));
        let (possible, heard) = asked(&format!("{tee} ! videoscale ! {SINK}=dist"));
        assert_eq!((possible, heard), (true, vec!["queue".into(), "videoscale".into()]));
        let fixed = format!("{tee} ! videoscale ! video/x-raw,width=80,height=48 ! {SINK}=dist");
        assert!(!asked(&fixed).0);
    }

    #[test]
    fn a_source_of_its_own_may_change() {
        let (possible, heard) = asked(&format!("{TEST} ! {SINK}=ref videotestsrc ! {SINK}=dist"));
        assert_eq!((possible, heard), (true, vec!["videotestsrc".into()]));
    }

    #[test]
    fn a_decoder_sends_what_its_stream_says() {
        let coded = format!("{TEST} ! {SINK}=ref {TEST} ! jpegenc ! jpegdec");
        assert_eq!(asked(&format!("{coded} ! {SINK}=dist")), (false, vec![]));
        let (possible, heard) = asked(&format!("{coded} ! videoscale ! {SINK}=dist"));
        assert_eq!((possible, heard), (true, vec!["videoscale".into()]));
    }
}
