// SPDX-License-Identifier: MPL-2.0

//! The one place where errors become GStreamer errors: domain, what happened, what to do.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gst::ClockTime;
use gst_video::VideoInfo;

use engine::EngineError;
use engine::backend::BackendError;
use engine::metrics::Difference;
use engine::model::ModelError;
use engine::scale::ScalingError;
use gst::prelude::*;

use super::CAT;
use super::caps::{ratio, shape};
use super::memory::device_memory::Kind;
use super::memory::import::ImportError;

/// Everything that can go wrong: with the element, or with one rendition of several.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Model(#[from] ModelError),
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("the property {property}: {reason}")]
    Setting { property: &'static str, reason: String },
    #[error(
        "the reference is {}x{} and the distorted video on {pad} is {}x{}; scale the distorted video first: \
         videoscale ! video/x-raw,width={},height={}, or have it scaled here: set scale-method, as in \
         scale-method=bicubic",
        .reference.width(), .reference.height(), .distorted.width(), .distorted.height(),
        .reference.width(), .reference.height()
    )]
    Size { pad: String, reference: Arc<VideoInfo>, distorted: Arc<VideoInfo> },
    #[error(
        "the reference is {} and the distorted video on {pad} is {}, which differ in bit depth or chroma subsampling; \
         {}",
        .reference.format(), .distorted.format(), same_format(.reference, .distorted)
    )]
    Format { pad: String, reference: Arc<VideoInfo>, distorted: Arc<VideoInfo> },
    #[error(
        "the reference is {}x{} and the distorted video on {pad} is {}x{}, which scale-method cannot make up for: \
         {source}; scale the distorted video first",
        .reference.width(), .reference.height(), .distorted.width(), .distorted.height()
    )]
    Scaling { pad: String, reference: Arc<VideoInfo>, distorted: Arc<VideoInfo>, source: ScalingError },
    #[error(
        "the colours of the reference are {} and those of the distorted video on {pad} {}, which differ in {}; convert \
         the distorted video first: videoconvert{}{} ! video/x-raw,colorimetry={}; or compare the samples as they are: \
         colorimetry=ignore",
        .reference.colorimetry(), .distorted.colorimetry(), .differ.join(", "),
        if .differ.contains(&"transfer") { " gamma-mode=remap" } else { "" },
        if .differ.contains(&"primaries") { " primaries-mode=fast" } else { "" },
        .reference.colorimetry()
    )]
    Colors {
        pad: String,
        reference: Arc<VideoInfo>,
        distorted: Arc<VideoInfo>,
        /// Names of the fields that differ.
        differ: Vec<&'static str>,
    },
    #[error(
        "the reference is to be shown with {reference} and the distorted video on {pad} with {distorted} (the tag \
         image-orientation), and pictures are compared as they are stored; turn both first: videoflip method=automatic"
    )]
    Orientation { pad: String, reference: String, distorted: String },
    #[error(
        "the video on {turned} is to be shown with {orientation} (the tag image-orientation), and that on {other} does not \
         say how; pictures are compared as they are stored. If only one of them was turned already, turn the other as well: \
         videoflip method=automatic"
    )]
    Turned { turned: String, orientation: String, other: String },
    #[error(
        "the video on {pad} is HDR ({transfer}), and VMAF's models are trained on SDR video: their scores say little about \
         how it looks, and are not those of a tone-mapped version. ColorVideoVDP knows HDR: \
         features=cvvdp=display=standard_hdr_{}",
        .transfer.to_lowercase()
    )]
    Hdr { pad: String, transfer: &'static str },
    #[error("{reason} (the caps of {pad})")]
    Doubt { pad: String, reason: String },
    #[error(
        "the reference has {} frames per second and the distorted video on {pad} {}: each reference frame is compared \
         with {}, and the others are counted as unpaired and dist-unmatched; put videorate before the one that is to be \
         changed if that is not meant",
        ratio(.reference), ratio(.distorted), .with
    )]
    Rates {
        pad: String,
        reference: gst::Fraction,
        distorted: gst::Fraction,
        /// Which distorted frame a reference frame is compared with.
        with: &'static str,
    },
    #[error(
        "the pictures of the reference are shown {:.4} times as wide as high and those of the distorted video on {pad} \
         {:.4} times (pixel aspect ratios {} and {}); they are compared sample by sample all the same",
        shape(.reference), shape(.distorted), ratio(&.reference.par()), ratio(&.distorted.par())
    )]
    Shape { pad: String, reference: Arc<VideoInfo>, distorted: Arc<VideoInfo> },
    #[error(
        "the caps {caps} on {pad} are not supported; convert the video first: videoconvert ! video/x-raw,format=I420"
    )]
    Caps { pad: String, caps: gst::Caps },
    #[error(
        "the video on {0} is interlaced, which VMAF does not score; put deinterlace before it on both sides"
    )]
    Interlaced(String),
    #[error(
        "the reference frame at running time {at} has no counterpart on {pad}, and missing-frame=error is set; \
         check the timestamps of both sides, or use missing-frame=skip"
    )]
    Missing { pad: String, at: ClockTime },
    #[error(
        "{device} has computed something else than the CPU for frame {frame}: {difference}; do not use this GPU with this \
         driver, and report it with the output of hipvmaf check"
    )]
    WrongScore { device: String, frame: u64, difference: Difference },
    #[error("no caps came before the first buffer on {0}; put a parser or a caps filter before it")]
    NoCaps(String),
    #[error("a buffer on {pad} {source}")]
    Buffer { pad: String, source: ImportError },
    #[error(
        "the video on {pad} lies in {}, which the {backend} backend cannot read here; \
         bring it to system memory before: {}",
        .kind.feature(), .kind.download()
    )]
    Memory { pad: String, kind: Kind, backend: &'static str },
    #[error(
        "a buffer on {0} has no timestamp and its caps have no frame rate to count by; \
         set a frame rate, or put videorate before it"
    )]
    Timestamp(String),
    #[error("cannot paint the heat map: {0}; or do without it: output=reference")]
    Painting(String),
    #[error("cannot write the metrics file {path}: {source}; check the property metrics-filename")]
    Metrics { path: PathBuf, source: io::Error },
    #[error("cannot write the results file {path}: {source}; check the property results-filename")]
    Results { path: PathBuf, source: io::Error },
    #[error(
        "the results file {path} is not complete: {reason}; the frames scored until then are in {partial}; make room, or \
         write it elsewhere (results-filename)"
    )]
    ResultsLost { path: PathBuf, partial: PathBuf, reason: io::Error },
    #[error(
        "an earlier run for the results file {path} did not come to its end; the frames that it scored are kept in {kept}"
    )]
    ResultsFound { path: PathBuf, kept: PathBuf },
    #[error(
        "no frame was scored for the results file {path}, which was not written{}; check that the timestamps of both \
         sides match", if path.exists() { ": the file of that name is from before" } else { "" }
    )]
    ResultsEmpty { path: PathBuf },
    #[error(
        "device-id={device_id} cannot be used, so the CPU scores, as backend=auto allows: {reason}; check the properties \
         vendor and device-id"
    )]
    NoSuchDevice { device_id: i32, reason: String },
    #[error(
        "nothing has come at {pad} for {:.1} s, while frames {} at {}; {}",
        .time.as_secs_f64(),
        if *.is_live { "come" } else { "wait" },
        .busy.join(" and "),
        mend_stall(.pad, *.linked, *.is_live, .busy)
    )]
    Stalled {
        pad: String,
        /// The pad is linked.
        linked: bool,
        /// Pads that have frames.
        busy: Vec<String>,
        time: Duration,
        is_live: bool,
    },
    #[error(
        "the scores that come now are not in the results file {path}, which was closed before: {reason}; {kept} has the \
         scores until then"
    )]
    ResultsClosed { path: PathBuf, kept: PathBuf, reason: String },
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error(
        "the thread {thread} has panicked: {text}; this is a defect of hipvmaf: report it with a log of GST_DEBUG=hipvmaf:6"
    )]
    Panic { thread: &'static str, text: String },
}

/// A code of one of GStreamer's error domains.
enum Code {
    Library(gst::LibraryError),
    Resource(gst::ResourceError),
    Stream(gst::StreamError),
}

impl Error {
    /// Domain and code that fit.
    fn code(&self) -> Code {
        use Code::{Library, Resource, Stream};
        match self {
            Self::Model(ModelError::Read { .. }) => Resource(gst::ResourceError::OpenRead),
            Self::Model(ModelError::Unknown { .. }) => Resource(gst::ResourceError::NotFound),
            Self::Model(_) => Resource(gst::ResourceError::Read),
            Self::Setting { .. } | Self::Engine(EngineError::Options(_) | EngineError::DuplicateModel(_)) => {
                Library(gst::LibraryError::Settings)
            }
            Self::Engine(EngineError::Backend(BackendError::Misfit(_)))
            | Self::Size { .. }
            | Self::Format { .. }
            | Self::Scaling { .. }
            | Self::Colors { .. }
            | Self::Orientation { .. }
            | Self::Turned { .. }
            | Self::Hdr { .. }
            | Self::Doubt { .. }
            | Self::Rates { .. }
            | Self::Shape { .. }
            | Self::NoCaps(_)
            | Self::Memory { .. }
            | Self::Interlaced(_)
            | Self::Caps { .. } => Stream(gst::StreamError::Format),
            Self::Engine(EngineError::Backend(BackendError::Device(err))) => Resource(device(err).0),
            Self::Engine(EngineError::Backend(_)) | Self::Thread(_) | Self::WrongScore { .. } => {
                Resource(gst::ResourceError::Failed)
            }
            Self::Buffer { .. }
            | Self::Timestamp(_)
            | Self::Missing { .. }
            | Self::Stalled { .. }
            | Self::Painting(_) => Stream(gst::StreamError::Failed),
            Self::Results { source, .. } | Self::Metrics { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull => Resource(gst::ResourceError::NoSpaceLeft),
                _ => Resource(gst::ResourceError::OpenWrite),
            },
            Self::ResultsLost { reason, .. } => match reason.kind() {
                io::ErrorKind::StorageFull => Resource(gst::ResourceError::NoSpaceLeft),
                _ => Resource(gst::ResourceError::Write),
            },
            Self::NoSuchDevice { .. } => Resource(gst::ResourceError::NotFound),
            Self::ResultsFound { .. } => Resource(gst::ResourceError::Read),
            Self::ResultsEmpty { .. } | Self::ResultsClosed { .. } => Resource(gst::ResourceError::Write),
            Self::Panic { .. } => Library(gst::LibraryError::Failed),
        }
    }

    /// Returns what happened and what to do.
    fn text(&self) -> String {
        match self {
            Self::Engine(EngineError::Backend(BackendError::Device(err))) => {
                format!("{err}{}", device(err).1)
            }
            _ => self.to_string(),
        }
    }

    /// The message for the bus, in the domain that fits.
    pub fn message(&self) -> gst::ErrorMessage {
        let text = self.text();
        let new = |code: &dyn Fn(&str) -> gst::ErrorMessage| code(&text);
        match self.code() {
            Code::Library(code) => new(&|text| gst::error_msg!(code, ("{}", text))),
            Code::Resource(code) => new(&|text| gst::error_msg!(code, ("{}", text))),
            Code::Stream(code) => new(&|text| gst::error_msg!(code, ("{}", text))),
        }
    }

    /// Returns the warning that says it: the element goes on.
    pub fn warning(&self, element: &impl IsA<gst::Element>) -> gst::Message {
        let element: &gst::Element = element.upcast_ref();
        let (text, path) = (self.text(), element.path_string());
        gst::warning!(CAT, obj = element, "{text}");
        let warning = match self.code() {
            Code::Library(code) => gst::message::Warning::builder(code, &text),
            Code::Resource(code) => gst::message::Warning::builder(code, &text),
            Code::Stream(code) => gst::message::Warning::builder(code, &text),
        };
        warning.debug(&path).src(element).build()
    }

    /// A results file cannot be written, or not to its end.
    pub fn is_of_results(&self) -> bool {
        matches!(self, Self::Results { .. } | Self::ResultsLost { .. } | Self::ResultsClosed { .. })
    }

    /// The GPU was there, and is no more.
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::Engine(EngineError::Backend(err)) if err.is_device_lost())
    }
}

/// Returns the conversion to a common format: that with more bits, because fewer bits would change the comparison.
fn same_format(reference: &VideoInfo, distorted: &VideoInfo) -> String {
    if distorted.comp_depth(0) > reference.comp_depth(0) {
        format!("convert the reference first: videoconvert ! video/x-raw,format={}", distorted.format())
    } else {
        format!("convert the distorted video first: videoconvert ! video/x-raw,format={}", reference.format())
    }
}

/// Returns what to do about a pad that has nothing.
fn mend_stall(pad: &str, linked: bool, is_live: bool, busy: &[String]) -> String {
    match (linked, is_live) {
        (false, _) => format!(
            "it is not linked: link a stream to it{}",
            if pad.starts_with("dist_") && pad != "dist_sink" { ", or release it" } else { "" }
        ),
        (true, true) => "look at its source".into(),
        (true, false) => format!(
            "where both come from one source, frames have to wait for those inside an encoder: queue max-size-buffers=0 \
             max-size-bytes=0 max-size-time=5000000000 before {}, longer if the encoder keeps more",
            busy.join(" and ")
        ),
    }
}

/// Returns the GStreamer code for an error of a GPU, and what can be done.
fn device(err: &gpu::Error) -> (gst::ResourceError, &'static str) {
    use gpu::Error::*;
    let cpu = "; use backend=auto or backend=cpu to score on the CPU";
    match err {
        NoDevice(_) => (gst::ResourceError::NotFound, cpu),
        NoSuchDevice(..) => (gst::ResourceError::NotFound, "; check the properties vendor and device-id"),
        NoCode { .. } | CodeRefused { .. } | Unsupported(_) => (gst::ResourceError::Settings, cpu),
        OutOfMemory { .. } => {
            (gst::ResourceError::NoSpaceLeft, "; lower max-in-flight, or free memory on the GPU")
        }
        Lost { .. } | Call { .. } | Forked => (gst::ResourceError::Failed, ""),
    }
}
