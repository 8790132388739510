// SPDX-License-Identifier: MPL-2.0

//! The one place where errors become GStreamer errors: domain, what happened, what to do.

use std::io;
use std::path::PathBuf;

use engine::EngineError;
use engine::backend::BackendError;
use engine::model::ModelError;
use engine::scale::ScalingError;
use gst::ClockTime;
use gst_video::VideoInfo;

use super::device_memory::Kind;
use super::import::ImportError;

/// Everything that stops the element.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Model(#[from] ModelError),
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("the property {property}: {reason}")]
    Setting { property: &'static str, reason: String },
    #[error(
        "the reference is {}x{} and the distorted video is {}x{}; scale the distorted video first: \
         videoscale ! video/x-raw,width={},height={}, or have it scaled here: set scale-method, as in \
         scale-method=bicubic",
        .reference.width(), .reference.height(), .distorted.width(), .distorted.height(),
        .reference.width(), .reference.height()
    )]
    Size { reference: Box<VideoInfo>, distorted: Box<VideoInfo> },
    #[error(
        "the reference is {} and the distorted video is {}, which differ in bit depth or chroma subsampling; \
         convert the distorted video first: videoconvert ! video/x-raw,format={}",
        .reference.format(), .distorted.format(), .reference.format()
    )]
    Format { reference: Box<VideoInfo>, distorted: Box<VideoInfo> },
    #[error(
        "the reference is {}x{} and the distorted video is {}x{}, which scale-method cannot make up for: {source}; \
         scale the distorted video first",
        .reference.width(), .reference.height(), .distorted.width(), .distorted.height()
    )]
    Scaling { reference: Box<VideoInfo>, distorted: Box<VideoInfo>, source: ScalingError },
    #[error(
        "the caps {0} are not supported; convert the video first: videoconvert ! video/x-raw,format=I420"
    )]
    Caps(gst::Caps),
    #[error(
        "the video on {0} is interlaced, which VMAF does not score; put deinterlace before it on both sides"
    )]
    Interlaced(String),
    #[error(
        "the reference frame at running time {at} has no counterpart on {pad}, and missing-frame=error is set; \
         check the timestamps of both sides, or use missing-frame=skip"
    )]
    Missing { pad: String, at: ClockTime },
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
}

impl Error {
    /// The message for the bus, in the domain that fits.
    pub fn message(&self) -> gst::ErrorMessage {
        match self {
            Self::Model(ModelError::Read { .. }) => {
                gst::error_msg!(gst::ResourceError::OpenRead, ("{}", self))
            }
            Self::Model(ModelError::Unknown { .. }) => {
                gst::error_msg!(gst::ResourceError::NotFound, ("{}", self))
            }
            Self::Model(_) => gst::error_msg!(gst::ResourceError::Read, ("{}", self)),
            Self::Setting { .. } | Self::Engine(EngineError::Options(_) | EngineError::DuplicateModel(_)) => {
                gst::error_msg!(gst::LibraryError::Settings, ("{}", self))
            }
            Self::Engine(EngineError::Backend(BackendError::Misfit(_)))
            | Self::Size { .. }
            | Self::Format { .. }
            | Self::Scaling { .. }
            | Self::NoCaps(_)
            | Self::Memory { .. }
            | Self::Interlaced(_)
            | Self::Caps(_) => gst::error_msg!(gst::StreamError::Format, ("{}", self)),
            Self::Engine(EngineError::Backend(BackendError::Device(err))) => device(err),
            Self::Engine(EngineError::Backend(_)) => {
                gst::error_msg!(gst::ResourceError::Failed, ("{}", self))
            }
            Self::Buffer { .. } | Self::Timestamp(_) | Self::Missing { .. } | Self::Painting(_) => {
                gst::error_msg!(gst::StreamError::Failed, ("{}", self))
            }
            Self::Results { source, .. } | Self::Metrics { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull => gst::error_msg!(gst::ResourceError::NoSpaceLeft, ("{}", self)),
                _ => gst::error_msg!(gst::ResourceError::OpenWrite, ("{}", self)),
            },
        }
    }
}

/// What is wrong with the GPU, and what can be done.
fn device(err: &gpu::Error) -> gst::ErrorMessage {
    use gpu::Error::*;
    let cpu = "use backend=auto or backend=cpu to score on the processor";
    match err {
        NoKernels(_) | NoDevice(_) => gst::error_msg!(gst::ResourceError::NotFound, ("{}; {}", err, cpu)),
        NoSuchDevice(..) => {
            gst::error_msg!(
                gst::ResourceError::NotFound,
                ("{}; check the properties vendor and device-id", err)
            )
        }
        NoCode { .. } | Unsupported(_) => gst::error_msg!(gst::ResourceError::Settings, ("{}; {}", err, cpu)),
        OutOfMemory { .. } => gst::error_msg!(
            gst::ResourceError::NoSpaceLeft,
            ("{}; lower max-in-flight, or free memory on the GPU", err)
        ),
        Lost { .. } | Call { .. } | Forked => gst::error_msg!(gst::ResourceError::Failed, ("{}", err)),
    }
}
