// SPDX-License-Identifier: MPL-2.0

//! What programs that score files have in common: they decode, may be interrupted, and explain errors.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use gst::prelude::*;

/// Has a file's video decoded and sent to an element that comes before hipvmaf. Nothing is converted that hipvmaf takes as
/// it is: a converter would bring one side to what the other has without a word, HDR video to 8 bits for instance, where
/// hipvmaf says what does not fit together.
pub fn decode(pipeline: &gst::Pipeline, path: &Path, next: &gst::Element) -> Result<(), Box<dyn Error>> {
    let source = gst::ElementFactory::make("filesrc").property("location", path).build()?;
    let decoder = gst::ElementFactory::make("decodebin").build()?;
    pipeline.add_many([&source, &decoder])?;
    source.link(&decoder)?;
    let sink = next.static_pad("sink").ok_or("what comes after the decoder has no pad named sink")?;
    let name = path.display().to_string();
    decoder.connect_pad_added({
        let (sink, name) = (sink.clone(), name.clone());
        move |decoder, pad| {
            if let Err(err) = link(decoder, pad, &sink, &name) {
                gst::element_error!(decoder, gst::CoreError::Pad, ("{name}: {err}"));
            }
        }
    });
    decoder.connect_no_more_pads(move |decoder| {
        if !sink.is_linked() {
            gst::element_error!(decoder, gst::StreamError::WrongType, ("{name} has no video"));
        }
    });
    Ok(())
}

fn link(decoder: &gst::Element, pad: &gst::Pad, sink: &gst::Pad, name: &str) -> Result<(), Box<dyn Error>> {
    let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
    if sink.is_linked() || caps.structure(0).is_none_or(|s| s.name() != "video/x-raw") {
        return Ok(());
    }
    if takes(&caps)? {
        pad.link(sink)?;
        return Ok(());
    }
    let convert = gst::ElementFactory::make("videoconvert").build()?;
    let pipeline = decoder.parent().and_downcast::<gst::Bin>().ok_or("the decoder is in no pipeline")?;
    pipeline.add(&convert)?;
    let ends = ["sink", "src"].map(|name| convert.static_pad(name));
    let [Some(input), Some(output)] = ends else { return Err("videoconvert lacks a pad".into()) };
    report(&convert, &output, format!("{name} is {}, which hipvmaf does not take", format_of(&caps)));
    output.link(sink)?;
    convert.sync_state_with_parent()?;
    pad.link(&input)?;
    Ok(())
}

/// Whether the element takes video of this format, in this memory or, as decoders can be asked for, in that of the system.
fn takes(caps: &gst::Caps) -> Result<bool, Box<dyn Error>> {
    let factory = gst::ElementFactory::find("hipvmaf").ok_or("there is no element hipvmaf")?;
    let mut of_system = caps.copy();
    of_system.make_mut().set_features_simple(None);
    Ok([caps, &of_system].into_iter().any(|caps| factory.can_sink_any_caps(caps)))
}

/// Warns of the conversion once it is known what to.
fn report(convert: &gst::Element, output: &gst::Pad, why: String) {
    let convert = convert.downgrade();
    output.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
        let Some(gst::EventView::Caps(event)) = info.event().map(|event| event.view()) else {
            return gst::PadProbeReturn::Ok;
        };
        if let Some(convert) = convert.upgrade() {
            let format = format_of(&event.caps_owned());
            gst::element_warning!(convert, gst::StreamError::Format, ("{why}: it is converted to {format}"));
        }
        gst::PadProbeReturn::Remove
    });
}

fn format_of(caps: &gst::Caps) -> String {
    let format = caps.structure(0).and_then(|s| s.get::<String>("format").ok());
    format.unwrap_or_else(|| caps.to_string())
}

/// Ends the stream at the inputs of the element, after the frames that it has got. What was read and decoded ahead of
/// that is not scored any more.
pub fn end_stream(element: &gst::Element) {
    for source in element.sink_pads().iter().filter_map(|pad| pad.peer()) {
        // Between two frames.
        source.add_probe(gst::PadProbeType::IDLE, |source, _| {
            if let Some(sink) = source.peer() {
                // Refused only by a pad that has seen its end.
                let _ = sink.send_event(gst::event::Eos::new());
            }
            gst::PadProbeReturn::Remove
        });
    }
}

/// The exit code of a program that a signal has ended, as shells have it.
pub fn exit_code(signal: i32) -> ExitCode {
    u8::try_from(128 + signal).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The signal that a message from `interrupt::watch` tells of.
pub fn signal(message: &gst::message::Application) -> Option<i32> {
    message.structure()?.get("signal").ok()
}

/// The text of an error message, followed by its hint: what comes after the first line of the debug text,
/// which says where in the code it was posted.
pub fn explain(error: &gst::message::Error) -> Box<dyn Error> {
    let debug = error.debug().unwrap_or_default();
    let hint = debug.split_once('\n').map_or("", |(_, hint)| hint);
    format!("{}\n{hint}", error.error().message()).trim_end().into()
}
