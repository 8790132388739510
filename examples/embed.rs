// SPDX-License-Identifier: MPL-2.0

//! Embeds the element in a program: the plugin is linked in, so no installation is needed, and scores arrive as typed
//! messages on the bus.
//!
//! ```sh
//! cargo run --release --example embed -- original.mp4 encoded.mp4
//! ```

use std::error::Error;

use gst::MessageView;
use gst::prelude::*;
use gsthipvmaf::message::VmafMessage;

fn main() -> Result<(), Box<dyn Error>> {
    gst::init()?;
    gsthipvmaf::plugin_register_static()?;
    let files: Vec<_> = std::env::args().skip(1).collect();
    let [original, encoded] = &files[..] else { return Err("name the original and the encoded file".into()) };

    let pipeline = gst::parse::launch(
        "filesrc name=original ! decodebin ! score.ref_sink \
         filesrc name=encoded ! decodebin ! score.dist_sink \
         hipvmaf name=score frame-message=true scale-method=bicubic ! fakesink",
    )?;
    let bin = pipeline.downcast_ref::<gst::Bin>().ok_or("the description is that of a pipeline")?;
    for (name, path) in [("original", original), ("encoded", encoded)] {
        bin.by_name(name).ok_or("the description names both sources")?.set_property("location", path);
    }
    let bus = pipeline.bus().ok_or("the pipeline has no bus")?;
    pipeline.set_state(gst::State::Playing)?;
    for message in bus.iter_timed(None) {
        match message.view() {
            MessageView::Element(element) => match element.structure().map(VmafMessage::try_from) {
                Some(Ok(VmafMessage::Frame(frame))) => println!("{:>6} {:.4}", frame.index, frame.score),
                Some(Ok(VmafMessage::Pooled(pooled))) => {
                    println!("{:>6} {:.6}", pooled.pool_method, pooled.score)
                }
                _ => {}
            },
            MessageView::Error(error) => return Err(error.error().message().into()),
            MessageView::Eos(_) => break,
            _ => {}
        }
    }
    pipeline.set_state(gst::State::Null)?;
    Ok(())
}
