// SPDX-License-Identifier: MPL-2.0

//! Formats that the pads take, and the memory that frames may be in.

use std::sync::LazyLock;

use engine::video::{self, Video};
use gst::prelude::*;
use gst_video::{
    VideoCapsBuilder, VideoChromaSite, VideoColorMatrix, VideoColorPrimaries, VideoColorRange,
    VideoColorimetry, VideoFormat, VideoFormatInfo, VideoInfo, VideoTransferFunction,
};

use super::memory::device_memory::Kind;

/// Formats that the element takes: luma and chroma in planes or with interleaved chroma, 8 to 16 bits. The last ones are planes of
/// R'G'B', which few metrics take.
const FORMATS: [VideoFormat; 19] = [
    VideoFormat::I420,
    VideoFormat::Yv12,
    VideoFormat::Nv12,
    VideoFormat::Nv21,
    VideoFormat::Y42b,
    VideoFormat::Y444,
    VideoFormat::Gray8,
    VideoFormat::Gray16Le,
    VideoFormat::I42010le,
    VideoFormat::I42012le,
    VideoFormat::I42210le,
    VideoFormat::I42212le,
    VideoFormat::Y44410le,
    VideoFormat::Y44412le,
    VideoFormat::P01010le,
    VideoFormat::P012Le,
    VideoFormat::Gbr,
    VideoFormat::Gbr10le,
    VideoFormat::Gbr12le,
];

/// Formats of [`FORMATS`] that the kernel's graphics drivers have a name for (`drm-format`), with that name.
const DRM_FORMATS: [(&str, VideoFormat); 10] = [
    ("YU12", VideoFormat::I420),
    ("YV12", VideoFormat::Yv12),
    ("NV12", VideoFormat::Nv12),
    ("NV21", VideoFormat::Nv21),
    ("YU16", VideoFormat::Y42b),
    ("YU24", VideoFormat::Y444),
    ("R8  ", VideoFormat::Gray8),
    ("R16 ", VideoFormat::Gray16Le),
    ("P010", VideoFormat::P01010le),
    ("P012", VideoFormat::P012Le),
];

/// Everything that some backend reads.
pub static TEMPLATE: LazyLock<gst::Caps> = LazyLock::new(|| readable(&Kind::ALL, true));

/// Video of any format in memory that some backend reads. Caps with other features are refused before anything is sent:
/// upstream may have what it adds to them left out, as overlays that can be blended instead.
pub static ANY: LazyLock<gst::Caps> = LazyLock::new(|| {
    let with = |feature: &str| gst::Caps::builder("video/x-raw").features([feature]).build();
    let mut caps = with(gst::CAPS_FEATURE_MEMORY_SYSTEM_MEMORY);
    Kind::ALL.into_iter().for_each(|kind| caps.merge(with(kind.feature())));
    caps
});

/// Returns caps of frames in the system's memory and in memory of these kinds, also of R'G'B' if `rgb` is true.
pub fn readable(kinds: &[Kind], rgb: bool) -> gst::Caps {
    let formats: Vec<_> = FORMATS.into_iter().filter(|format| rgb || !is_rgb(*format)).collect();
    with(&formats, kinds, |builder| builder)
}

fn is_rgb(format: VideoFormat) -> bool {
    VideoFormatInfo::from_format(format).is_rgb()
}

/// Returns caps of frames of this size, of any format.
pub fn sized((width, height): (i32, i32), kinds: &[Kind]) -> gst::Caps {
    with(&FORMATS, kinds, |builder| builder.width(width).height(height))
}

/// Frames of both formats can be compared.
pub fn alike(a: VideoFormatInfo, b: VideoFormatInfo) -> bool {
    let subsampling = a.w_sub() == b.w_sub() && a.h_sub() == b.h_sub();
    a.depth()[0] == b.depth()[0] && subsampling && a.is_rgb() == b.is_rgb()
}

/// Caps of frames that can be compared with these; `scaled`: those of other sizes too, though not by preference.
pub fn matching(reference: &VideoInfo, kinds: &[Kind], scaled: bool) -> gst::Caps {
    let alike = |format: &VideoFormat| alike(VideoFormatInfo::from_format(*format), reference.format_info());
    let formats: Vec<_> = FORMATS.into_iter().filter(alike).collect();
    let (width, height) = (reference.width() as i32, reference.height() as i32);
    let mut caps = with(&formats, kinds, |builder| builder.width(width).height(height));
    if scaled {
        caps.make_mut().append(with(&formats, kinds, |builder| builder));
    }
    caps
}

type Builder = VideoCapsBuilder<gst::caps::HasFeatures>;

fn with(formats: &[VideoFormat], kinds: &[Kind], more: impl Fn(Builder) -> Builder) -> gst::Caps {
    let mut caps = gst::Caps::new_empty();
    let all = caps.make_mut();
    let builder = |feature: &str| more(VideoCapsBuilder::new().features([feature]));
    for kind in kinds {
        all.append(builder(kind.feature()).format_list(formats.iter().copied()).build());
        if *kind == Kind::DmaBuf {
            let names =
                DRM_FORMATS.iter().filter(|(_, format)| formats.contains(format)).map(|(name, _)| *name);
            let mut drm = builder(kind.feature()).build();
            for structure in drm.make_mut().iter_mut() {
                structure.set("format", "DMA_DRM");
                structure.set("drm-format", gst::List::new(names.clone()));
            }
            all.append(drm);
        }
    }
    let system = more(VideoCapsBuilder::new().features([gst::CAPS_FEATURE_MEMORY_SYSTEM_MEMORY]));
    all.append(system.format_list(formats.iter().copied()).build());
    caps
}

/// The colorimetry of caps. A field that is not in the caps is unknown: GStreamer's defaults depend on the size, so
/// renditions of one ladder would differ.
#[derive(Clone, Copy)]
pub struct Colors {
    tagged: VideoColorimetry,
    /// The tags are what GStreamer assumes for pictures of this size, as some decoders have it for untagged video.
    assumed: bool,
}

impl Colors {
    pub fn of(caps: &gst::CapsRef) -> Self {
        let tag = caps.structure(0).and_then(|s| s.get::<&str>("colorimetry").ok());
        let tagged = tag.and_then(|tag| tag.parse().ok()).unwrap_or_else(|| {
            VideoColorimetry::new(
                VideoColorRange::Unknown,
                VideoColorMatrix::Unknown,
                VideoTransferFunction::Unknown,
                VideoColorPrimaries::Unknown,
            )
        });
        let size = |name| caps.structure(0)?.get::<i32>(name).ok()?.try_into().ok();
        let info = |(width, height)| VideoInfo::builder(VideoFormat::I420, width, height).build().ok();
        let default = size("width").zip(size("height")).and_then(info);
        Self { tagged, assumed: default.is_some_and(|info| info.colorimetry() == tagged) }
    }

    /// Returns them as the engine describes them.
    fn colorimetry(self) -> video::Colorimetry {
        use VideoColorMatrix as M;
        use VideoColorPrimaries as P;
        use VideoColorRange as R;
        use VideoTransferFunction as T;
        let range = match self.tagged.range() {
            R::Range0_255 => Some(video::Range::Full),
            R::Range16_235 => Some(video::Range::Limited),
            _ => None,
        };
        let matrix = match self.tagged.matrix() {
            M::Unknown => None,
            M::Bt601 => Some(video::Matrix::Bt601),
            M::Bt709 => Some(video::Matrix::Bt709),
            M::Bt2020 => Some(video::Matrix::Bt2020),
            M::Smpte240m => Some(video::Matrix::Smpte240m),
            M::Fcc => Some(video::Matrix::Fcc),
            _ => Some(video::Matrix::Other),
        };
        let transfer = match self.tagged.transfer() {
            T::Unknown => None,
            T::Bt601 | T::Bt709 | T::Bt202010 | T::Bt202012 | T::Smpte240m => Some(video::Transfer::Bt709),
            T::Srgb => Some(video::Transfer::Srgb),
            T::Gamma22 => Some(video::Transfer::Gamma22),
            T::Gamma28 => Some(video::Transfer::Gamma28),
            T::Gamma10 => Some(video::Transfer::Linear),
            T::Smpte2084 => Some(video::Transfer::Pq),
            T::AribStdB67 => Some(video::Transfer::Hlg),
            _ => Some(video::Transfer::Other),
        };
        let primaries = match self.tagged.primaries() {
            P::Unknown => None,
            P::Bt709 => Some(video::Primaries::Bt709),
            P::Bt470bg => Some(video::Primaries::Bt470bg),
            P::Smpte170m | P::Smpte240m => Some(video::Primaries::Smpte170m),
            P::Bt2020 => Some(video::Primaries::Bt2020),
            P::Smpteeg432 => Some(video::Primaries::DisplayP3),
            _ => Some(video::Primaries::Other),
        };
        video::Colorimetry { range, matrix, transfer, primaries }
    }

    /// Colours that only look right on HDR screens: the name of their transfer function.
    pub fn hdr(self) -> Option<&'static str> {
        match self.tagged.transfer() {
            VideoTransferFunction::Smpte2084 => Some("PQ"),
            VideoTransferFunction::AribStdB67 => Some("HLG"),
            _ => None,
        }
    }

    /// Returns the names of the fields that both give, with other values. `depth`: bits of a sample.
    pub fn differences(self, other: Self, depth: u32) -> Vec<&'static str> {
        // Both are assumptions, which depend on the size; neither side has tags.
        if self.assumed && other.assumed {
            return vec![];
        }
        fn known<T: PartialEq>(unknown: T, a: T, b: T) -> bool {
            a != unknown && b != unknown
        }
        let (a, b) = (self.tagged, other.tagged);
        let range = known(VideoColorRange::Unknown, a.range(), b.range()) && a.range() != b.range();
        let matrix = known(VideoColorMatrix::Unknown, a.matrix(), b.matrix()) && a.matrix() != b.matrix();
        // The curves of BT.601 and BT.709 are one.
        let transfer = known(VideoTransferFunction::Unknown, a.transfer(), b.transfer())
            && !a.transfer().is_equivalent(depth, b.transfer(), depth);
        let primaries = known(VideoColorPrimaries::Unknown, a.primaries(), b.primaries())
            && !a.primaries().is_equivalent(b.primaries());
        let parts = [("range", range), ("matrix", matrix), ("transfer", transfer), ("primaries", primaries)];
        parts.into_iter().filter(|(_, differ)| *differ).map(|(part, _)| part).collect()
    }
}

/// Returns the properties of a stream with these caps that metrics depend on.
pub fn video(caps: &gst::CapsRef, info: &VideoInfo) -> Video {
    let fps = info.fps();
    let positive = |number: i32| u32::try_from(number).ok();
    let rate = positive(fps.numer()).zip(positive(fps.denom()));
    let site = chroma_site(caps).filter(|site| !site.is_empty());
    let mut colorimetry = Colors::of(caps).colorimetry();
    // The format decides, as tags may be those of a source that was converted.
    if is_rgb(info.format()) {
        colorimetry.matrix = Some(video::Matrix::Rgb);
    }
    Video {
        rate: rate.and_then(|(num, den)| video::FrameRate::new(num, den)),
        colorimetry,
        chroma_site: site.map(|site| video::ChromaSite {
            h_cosited: site.contains(VideoChromaSite::H_COSITED),
            v_cosited: site.contains(VideoChromaSite::V_COSITED),
        }),
    }
}

/// Returns the display aspect ratio of a picture.
pub fn shape(info: &VideoInfo) -> f64 {
    let par = info.par();
    f64::from(info.width()) * f64::from(par.numer()) / (f64::from(info.height()) * f64::from(par.denom()))
}

/// Returns those of `caps` that the peer of a pad takes: all of them where it does not answer. An answer without caps counts
/// as none; [`PadExt::peer_query_caps`](gst::prelude::PadExt::peer_query_caps) would panic.
pub fn of_peer(pad: &impl IsA<gst::Pad>, caps: &gst::Caps) -> gst::Caps {
    let mut query = gst::query::Caps::new(Some(caps));
    let answer = pad.peer_query(&mut query).then(|| query.result_owned()).flatten();
    answer.unwrap_or_else(|| caps.clone())
}

/// Caps of the video that `caps` describe, in the system's memory and in memory of these kinds.
pub fn in_any_memory(caps: &gst::Caps, kinds: &[Kind]) -> gst::Caps {
    let mut all = gst::Caps::new_empty();
    for kind in kinds {
        let mut moved = caps.clone();
        moved.make_mut().set_features_simple(Some(gst::CapsFeatures::new([kind.feature()])));
        if *kind == Kind::DmaBuf {
            let drm = moved.iter().filter_map(as_drm);
            let features = gst::CapsFeatures::new([kind.feature()]);
            all.make_mut().extend(drm.map(|structure| (structure, features.clone())));
        }
        all.merge(moved);
    }
    all.merge(caps.clone());
    all
}

/// Returns a structure of caps in the names of the kernel's graphics drivers; `None` if it has no such formats.
fn as_drm(structure: &gst::StructureRef) -> Option<gst::Structure> {
    let video = gst::Caps::from(structure.to_owned());
    let can_be = |format: &VideoFormat| video.can_intersect(&VideoCapsBuilder::new().format(*format).build());
    let names: Vec<_> =
        DRM_FORMATS.iter().filter(|(_, format)| can_be(format)).map(|(name, _)| *name).collect();
    let mut structure = structure.to_owned();
    structure.set("format", "DMA_DRM");
    structure.set("drm-format", gst::List::new(names.clone()));
    (!names.is_empty()).then_some(structure)
}

/// The caps that a filter lets through, in the filter's order.
pub fn filtered(caps: &gst::Caps, filter: Option<&gst::CapsRef>) -> gst::Caps {
    match filter {
        Some(filter) => filter.to_owned().intersect_with_mode(caps, gst::CapsIntersectMode::First),
        None => caps.clone(),
    }
}

/// Returns true if the frames are in system memory.
pub fn is_system_memory(caps: &gst::CapsRef) -> bool {
    let system = |features: &gst::CapsFeaturesRef| {
        features.is_empty() || features.contains(gst::CAPS_FEATURE_MEMORY_SYSTEM_MEMORY)
    };
    caps.features(0).is_none_or(system)
}

/// Size and format that fixed caps stand for. GStreamer 1.22 does not know `DMA_DRM`, so that is looked up here.
pub fn info(caps: &gst::CapsRef) -> Option<VideoInfo> {
    let structure = caps.structure(0)?;
    let Ok(drm) = structure.get::<&str>("drm-format") else { return VideoInfo::from_caps(caps).ok() };
    // Nothing after the name is a linear layout, and so is a modifier of 0.
    let (name, modifier) = drm.split_once(':').unwrap_or((drm, "0x0"));
    let linear = u64::from_str_radix(modifier.trim_start_matches("0x"), 16) == Ok(0);
    let (_, format) = DRM_FORMATS.iter().find(|(known, _)| linear && *known == name)?;
    let mut caps = caps.to_owned();
    let structure = caps.make_mut().structure_mut(0)?;
    structure.set("format", format.to_str());
    structure.remove_field("drm-format");
    VideoInfo::from_caps(&caps).ok()
}

/// Returns the positions of chroma samples, if caps say them.
fn chroma_site(caps: &gst::CapsRef) -> Option<VideoChromaSite> {
    caps.structure(0)?.get::<&str>("chroma-site").ok()?.parse().ok()
}

/// Returns whether subsampled chroma lies on columns, and on rows, of luma samples. Where caps do not say, it lies on columns,
/// as in H.264; the default of [`VideoInfo`] depends on the height.
pub fn cosited(caps: &gst::CapsRef) -> (bool, bool) {
    let site = chroma_site(caps).unwrap_or(VideoChromaSite::MPEG2);
    (site.contains(VideoChromaSite::H_COSITED), site.contains(VideoChromaSite::V_COSITED))
}

/// Both numbers, even where the second is 1.
pub fn ratio(fraction: &gst::Fraction) -> String {
    format!("{}/{}", fraction.numer(), fraction.denom())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_drm_formats_are_read_and_others_are_not() {
        gst::init().unwrap();
        let info = |drm: &str| {
            let caps = gst::Caps::builder("video/x-raw")
                .features(["memory:DMABuf"])
                .field("format", "DMA_DRM")
                .field("drm-format", drm)
                .field("width", 64)
                .field("height", 48)
                .field("framerate", gst::Fraction::new(25, 1))
                .build();
            super::info(&caps).map(|info| (info.format(), info.width(), info.height()))
        };
        for (name, format) in DRM_FORMATS {
            assert_eq!(info(name), Some((format, 64, 48)), "{name}");
            assert_eq!(info(&format!("{name}:0x0000000000000000")), Some((format, 64, 48)), "{name}");
            assert_eq!(info(&format!("{name}:0x0200000000000901")), None, "{name}");
        }
        assert_eq!(info("XR24"), None);
    }

    #[test]
    fn only_the_systems_memory_is_the_systems() {
        gst::init().unwrap();
        let of = |text: &str| is_system_memory(&text.parse::<gst::Caps>().unwrap());
        assert!(of("video/x-raw") && of("video/x-raw(memory:SystemMemory)"));
        assert!(!of("video/x-raw(memory:HIPMemory)") && !of("video/x-raw(memory:DMABuf), format=DMA_DRM"));
    }

    #[test]
    fn peers_that_answer_without_caps_take_everything() {
        gst::init().unwrap();
        let pad = gst::Pad::builder(gst::PadDirection::Src).build();
        assert_eq!(of_peer(&pad, &ANY), *ANY, "no peer");
        let peer = gst::Pad::builder(gst::PadDirection::Sink).query_function(|_, _, _| true).build();
        pad.link_full(&peer, gst::PadLinkCheck::empty()).unwrap();
        assert_eq!(of_peer(&pad, &ANY), *ANY);
    }
}
