// SPDX-License-Identifier: MPL-2.0

//! Pictures of a pair of frames for the report: both frames, and the element's heatmap of the pair.

use gst::prelude::*;
use gst::{ClockTime, Sample};
use gst_video::VideoInfo;
use serde::Serialize;

use crate::error::Error;

/// Larger pictures are reduced to the first of these sizes with which they are small enough, or to the last.
const SIZES: [(f64, f64); 4] = [(1280.0, 720.0), (960.0, 540.0), (640.0, 360.0), (480.0, 270.0)];
/// JPEG quality: its own artefacts are invisible beside the damage shown.
const QUALITY: u32 = 88;
/// Longest time for a pair.
const PICTURE_TIMEOUT: ClockTime = ClockTime::from_seconds(60);

/// JPEG data URIs of equal size.
#[derive(Serialize)]
pub struct Pictures {
    reference: String,
    distorted: String,
    heatmap: String,
}

/// Makes the pictures, of at most this many bytes if they may be small enough for it. `scale` is the scaling method for a
/// distorted frame of another size.
pub fn make(reference: &Sample, distorted: &Sample, scale: &str, most: usize) -> Result<Pictures, Error> {
    let caps = reference.caps().ok_or("a frame has no caps")?;
    let info = VideoInfo::from_caps(caps)?;
    let mut sizes: Vec<_> = SIZES.iter().map(|largest| size(&info, *largest)).collect();
    sizes.dedup();
    let mut pictures = Err("there is no size".into());
    for size in sizes {
        pictures = make_in(size, reference, distorted, scale);
        if pictures.as_ref().map_or(true, |pictures| pictures.bytes() <= most) {
            break;
        }
    }
    pictures
}

impl Pictures {
    fn bytes(&self) -> usize {
        self.reference.len() + self.distorted.len() + self.heatmap.len()
    }
}

fn make_in(
    (width, height): (u32, u32),
    reference: &Sample,
    distorted: &Sample,
    scale: &str,
) -> Result<Pictures, Error> {
    let jpeg = |name: &str| {
        format!(
            "videoconvertscale add-borders=false method=catrom \
             ! video/x-raw,width={width},height={height},pixel-aspect-ratio=1/1 ! jpegenc quality={QUALITY} \
             ! appsink name={name} sync=false "
        )
    };
    // The frames are in system memory, and there are few, so the CPU computes the heatmap.
    let pipeline = gst::parse::launch(&format!(
        "appsrc name=r format=time ! tee name=rt rt. ! queue ! score.ref_sink rt. ! queue ! {} \
         appsrc name=d format=time ! tee name=dt dt. ! queue ! score.dist_sink dt. ! queue ! {} \
         hipvmaf name=score backend=cpu output=heatmap attach-meta=false colorimetry=ignore scale-method={scale} ! {}",
        jpeg("reference"),
        jpeg("distorted"),
        jpeg("heatmap"),
    ))?;
    let pipeline = pipeline.downcast::<gst::Pipeline>().map_err(|_| "not a pipeline")?;
    let made = run(&pipeline, [("r", reference), ("d", distorted)]);
    pipeline.set_state(gst::State::Null)?;
    made
}

fn run(pipeline: &gst::Pipeline, sent: [(&str, &Sample); 2]) -> Result<Pictures, Error> {
    pipeline.set_state(gst::State::Playing)?;
    for (name, sample) in sent {
        let source = pipeline.by_name(name).and_downcast::<gst_app::AppSrc>();
        let source = source.ok_or("the pipeline lacks a source")?;
        // A rejected sample ends with an error, which the sinks report.
        let _ = source.push_sample(sample);
        let _ = source.end_of_stream();
    }
    let picture = |name: &str| {
        let sink = pipeline.by_name(name).and_downcast::<gst_app::AppSink>();
        let sample = sink.and_then(|sink| sink.try_pull_sample(PICTURE_TIMEOUT));
        let data = sample.as_ref().and_then(|sample| sample.buffer()?.map_readable().ok());
        let data = data.ok_or_else(|| failure(pipeline))?;
        Ok::<_, Error>(format!("data:image/jpeg;base64,{}", glib::base64_encode(&data)))
    };
    Ok(Pictures {
        reference: picture("reference")?,
        distorted: picture("distorted")?,
        heatmap: picture("heatmap")?,
    })
}

/// Returns the reason for a failure.
fn failure(pipeline: &gst::Pipeline) -> Error {
    let message = pipeline.bus().and_then(|bus| bus.pop_filtered(&[gst::MessageType::Error]));
    Error::Failed(match message.as_ref().map(|message| message.view()) {
        Some(gst::MessageView::Error(error)) => error.error().message().into(),
        _ => "the picture was not made in time".into(),
    })
}

/// Returns the size of the pictures: the displayed size with square pixels, within the largest one.
fn size(info: &VideoInfo, largest: (f64, f64)) -> (u32, u32) {
    let aspect = f64::from(info.par().numer().max(1)) / f64::from(info.par().denom().max(1));
    let (width, height) = (f64::from(info.width()) * aspect, f64::from(info.height()));
    let factor = (largest.0 / width).min(largest.1 / height).min(1.0);
    let length = |of: f64| ((of * factor).round() as u32).max(1);
    (length(width), length(height))
}
