// SPDX-License-Identifier: MPL-2.0

//! An element that converts the bit depth, chroma subsampling or range of frames as ffmpeg's scale filter does before
//! libvmaf.
//!
//! GStreamer's `videoconvert` dithers and rescales, which changes scores by half a point. Here additional bits are
//! zeros, a change of range rounds to the nearest value, and chroma is the mean of the samples that it replaces.

use std::fmt;

use gst::subclass::prelude::*;
use gst_base::subclass::prelude::*;
use gst_video::prelude::*;
use gst_video::subclass::prelude::*;
use gst_video::{
    VideoColorMatrix, VideoColorRange, VideoColorimetry, VideoFormat, VideoFormatInfo, VideoFrameRef,
    VideoInfo, VideoPackFlags,
};
use parking_lot::Mutex;

/// A conversion of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// Input format.
    pub from: VideoFormat,
    /// Output format: planes of 8, 10 or 12 bits.
    pub format: VideoFormat,
    /// Full range becomes limited range.
    pub is_narrowed: bool,
    /// Red, green and blue become full range.
    pub is_full: bool,
    /// Colour matrix, for red, green and blue input.
    pub matrix: VideoColorMatrix,
    /// Progressive pictures that are marked as interlaced are marked as progressive.
    pub is_progressive: bool,
}

impl fmt::Display for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.from == self.format {
            write!(f, "as {}", self.format)?;
        } else {
            write!(f, "converted from {} to {}", self.from, self.format)?;
        }
        if VideoFormatInfo::from_format(self.from).is_rgb() {
            let matrix = match self.matrix {
                VideoColorMatrix::Bt709 => "BT.709",
                VideoColorMatrix::Bt2020 => "BT.2020",
                VideoColorMatrix::Smpte240m => "SMPTE 240M",
                VideoColorMatrix::Fcc => "FCC",
                _ => "BT.601",
            };
            write!(f, " by {matrix}")?;
        } else if self.is_narrowed {
            f.write_str(", full range to limited")?;
        }
        if self.is_progressive {
            f.write_str(", whole pictures instead of fields")?;
        }
        Ok(())
    }
}

glib::wrapper! {
    /// The element. It is not registered, so only this program can create it.
    pub struct Convert(ObjectSubclass<imp::Convert>)
        @extends gst_video::VideoFilter, gst_base::BaseTransform, gst::Element, gst::Object;
}

impl Convert {
    /// Creates an element for one conversion.
    pub fn new(conversion: Conversion) -> Self {
        let element: Self = glib::Object::new();
        *element.imp().conversion.lock() = Some(conversion);
        element
    }
}

/// Output values of a sample, indexed by its input value.
type Table = Vec<u16>;

/// How the samples of a frame are converted.
enum Plan {
    /// Tables for luma and for chroma.
    Yuv(Table, Table),
    Rgb(Coefficients),
}

/// Contributions of red, green and blue to luma and to both chroma components, with an offset for each.
struct Coefficients {
    /// Luma in limited range as ffmpeg's scale filter computes it, with two roundings.
    luma: Option<Luma>,
    of: [[f64; 3]; 3],
    offset: [f64; 3],
    most: f64,
}

impl Plan {
    fn new(from: &VideoInfo, to: &VideoInfo, conversion: Conversion) -> Self {
        let (bits_in, bits_out) = (from.comp_depth(0), to.comp_depth(0));
        if from.format_info().is_rgb() {
            return Self::Rgb(Coefficients::new(bits_in, bits_out, conversion.is_full, conversion.matrix));
        }
        let is_full =
            from.colorimetry().range() == VideoColorRange::Range0_255 && !from.format_info().is_gray();
        let table = |is_luma| {
            let count = 1_u32 << bits_in;
            let bits = (bits_in, bits_out);
            (0..count).map(|value| convert(value, bits, conversion.is_narrowed, is_luma, is_full)).collect()
        };
        Self::Yuv(table(true), table(false))
    }
}

/// Converts one sample.
fn convert(value: u32, (from, to): (u32, u32), is_narrowed: bool, is_luma: bool, is_full: bool) -> u16 {
    let most = (1_u32 << to) - 1;
    let sample = if is_narrowed && is_luma && from < 15 {
        narrow(value << (15 - from), to)
    } else if is_narrowed {
        // Additional bits are zeros, and come first.
        let (value, from) = if to > from { (value << (to - from), to) } else { (value, from) };
        let [zero, middle] = [from, to].map(|bits| f64::from(1_u32 << (bits - 1)));
        let [full, limited] = [(1_u32 << from) - 1, 224 << (to - 8)].map(f64::from);
        let scaled = (f64::from(value) - zero) * limited / full + middle;
        scaled.round().clamp(0.0, f64::from(most)) as u32
    } else if to < from {
        (value + (1 << (from - to - 1))) >> (from - to)
    } else if is_luma && is_full && to < 2 * from {
        // Full-range luma is expanded, since white is its largest value.
        (value << (to - from)) | (value >> (2 * from - to))
    } else {
        value << (to - from)
    };
    u16::try_from(sample.min(most)).unwrap_or(u16::MAX)
}

/// Converts luma from full range with 15 bits to limited range with `bits`, in the integers of ffmpeg's scale filter,
/// which maps white exactly.
fn narrow(value: u32, bits: u32) -> u32 {
    const SHIFT: u32 = 14;
    let lower = 15 - bits;
    let (full, white, range) = ((1_i64 << bits) - 1, 235_i64 << (bits - 8), 219_i64 << (bits - 8));
    let factor = ((range << (SHIFT + lower)) / full + (1 << lower) - 1) >> lower;
    let offset = (white << (SHIFT + lower)) - (full << lower) * factor + (1 << (SHIFT - 1));
    let value = ((i64::from(value) * factor + offset) >> SHIFT).clamp(0, i64::from(i16::MAX));
    u32::try_from((value + (1 << (lower - 1))) >> lower).unwrap_or_default()
}

/// Integer luma with 15-bit coefficients.
#[derive(Clone, Copy)]
struct Luma {
    of: [i64; 3],
    bits_in: u32,
    bits_out: u32,
}

impl Luma {
    const ONE: i64 = 1 << 15;

    fn apply(self, rgb: [u16; 3]) -> u16 {
        let sum: i64 = self.of.iter().zip(rgb).map(|(of, value)| of * i64::from(value)).sum();
        // 15 bits inside, for any input and output.
        let value = match self.bits_in {
            8 => ((sum + 16 * Self::ONE + (1 << 8)) >> 9) << 1,
            _ => (sum + (0x2001 << 14)) >> 16,
        };
        let out = 15 - self.bits_out;
        u16::try_from((value + (1 << (out - 1))) >> out).unwrap_or_default()
    }
}

impl Coefficients {
    fn new(bits_in: u32, bits_out: u32, is_full: bool, matrix: VideoColorMatrix) -> Self {
        let (red, blue) = match matrix {
            VideoColorMatrix::Bt709 => (0.2126, 0.0722),
            VideoColorMatrix::Bt2020 => (0.2627, 0.0593),
            VideoColorMatrix::Smpte240m => (0.212, 0.087),
            VideoColorMatrix::Fcc => (0.3, 0.11),
            _ => (0.299, 0.114),
        };
        let green = 1.0 - red - blue;
        let unit = f64::from(1_u32 << (bits_out - 8));
        let most = f64::from((1_u32 << bits_out) - 1);
        let (zero, luma, chroma) =
            if is_full { (0.0, most, most) } else { (16.0 * unit, 219.0 * unit, 224.0 * unit) };
        let white = f64::from((1_u32 << bits_in) - 1);
        let [y, u, v] = [
            [red, green, blue],
            [-red, -green, 1.0 - blue].map(|of| of / (2.0 * (1.0 - blue))),
            [1.0 - red, -green, -blue].map(|of| of / (2.0 * (1.0 - red))),
        ];
        let scale = |of: [f64; 3], by: f64| of.map(|of| of * by / white);
        let of = [scale(y, luma), scale(u, chroma), scale(v, chroma)];
        // Other depths are not used.
        let luma = (!is_full && [8, 16].contains(&bits_in)).then(|| {
            let of = [red, green, blue].map(|of| (of * 219.0 / 255.0 * Luma::ONE as f64).round() as i64);
            Luma { of, bits_in, bits_out }
        });
        Self { luma, of, offset: [zero, 128.0 * unit, 128.0 * unit], most }
    }

    fn apply(&self, component: usize, rgb: [f64; 3]) -> u16 {
        let sum: f64 = self.of[component].iter().zip(rgb).map(|(of, value)| of * value).sum();
        (sum + self.offset[component]).round().clamp(0.0, self.most) as u16
    }
}

/// Rows of a frame, as four components per pixel.
struct Rows<'a> {
    format: VideoFormatInfo,
    /// For each plane: samples, bytes per row, and the binary logarithm of the vertical subsampling.
    planes: Vec<(&'a [u8], usize, u32)>,
    strides: &'a [i32],
    width: usize,
    /// Number of unused low bits in a sample.
    shift: u32,
    bytes: Vec<u8>,
}

impl<'a> Rows<'a> {
    fn new(frame: &'a VideoFrameRef<&gst::BufferRef>) -> Result<Self, gst::FlowError> {
        let format = frame.info().format_info();
        let strides = frame.plane_stride();
        let plane = |plane: u32| {
            let component = format.plane().iter().position(|of| *of == plane).unwrap_or_default();
            let stride = usize::try_from(strides[plane as usize]).unwrap_or_default();
            frame.plane_data(plane).map(|data| (data, stride, format.h_sub()[component]))
        };
        let planes = (0..frame.n_planes()).map(plane);
        let planes = planes.collect::<Result<_, _>>().map_err(|_| gst::FlowError::Error)?;
        let unpacked = VideoFormatInfo::from_format(format.unpack_format());
        let width = frame.width() as usize;
        let shift = unpacked.bits().saturating_sub(format.depth()[0]);
        let bytes = vec![0; (width + 64) * unpacked.pixel_stride()[0] as usize];
        Ok(Self { format, planes, strides, width, shift, bytes })
    }

    /// Reads a row as four components per pixel, alpha first.
    fn read(&mut self, row: usize, to: &mut Vec<[u16; 4]>) {
        // The binding assumes the height of luma for all planes, so each slice begins at the row.
        let planes = self.planes.iter();
        let planes = planes.map(|(data, stride, sub)| data.get((row >> sub) * stride..).unwrap_or_default());
        let planes: Vec<_> = planes.collect();
        let width = i32::try_from(self.width).unwrap_or(i32::MAX);
        let flags = VideoPackFlags::TRUNCATE_RANGE;
        self.format.unpack(flags, &mut self.bytes, &planes, self.strides, 0, 0, width);
        to.clear();
        if self.bytes.len() < (self.width + 64) * 8 {
            let pixels = self.bytes.as_chunks::<4>().0.iter().take(self.width);
            to.extend(pixels.map(|pixel| pixel.map(u16::from)));
        } else {
            let shift = self.shift;
            let pixels = self.bytes.as_chunks::<8>().0.iter().take(self.width);
            to.extend(pixels.map(|pixel| {
                let (samples, _) = pixel.as_chunks::<2>();
                [0, 1, 2, 3].map(|of| u16::from_ne_bytes(samples[of]) >> shift)
            }));
        }
    }
}

/// Writes samples of this many bits, as bytes or 16-bit words.
fn write(row: &mut [u8], samples: impl Iterator<Item = u16>, bits: u32) {
    if bits == 8 {
        row.iter_mut().zip(samples).for_each(|(to, sample)| *to = sample.min(255) as u8);
    } else {
        let to = row.as_chunks_mut::<2>().0.iter_mut();
        to.zip(samples).for_each(|(to, sample)| *to = sample.to_le_bytes());
    }
}

fn transform(
    plan: &Plan,
    from: &VideoFrameRef<&gst::BufferRef>,
    to: &mut VideoFrameRef<&mut gst::BufferRef>,
) -> Result<(), gst::FlowError> {
    let failed = |_| gst::FlowError::Error;
    let info = to.info().clone();
    let is_grey = from.info().format_info().is_gray();
    let bits = info.comp_depth(0);
    let strides: Vec<_> =
        to.plane_stride().iter().map(|stride| usize::try_from(*stride).unwrap_or_default()).collect();
    let (width, height) = (info.width() as usize, info.height() as usize);
    let has_chroma = info.n_components() >= 3;
    let (step_x, step_y) = match info.format_info() {
        format if has_chroma => (1 << format.w_sub()[1], 1 << format.h_sub()[1]),
        _ => (1, 1),
    };
    let chroma_width = width.div_ceil(step_x);
    let mut rows = Rows::new(from)?;
    let mut row = vec![];
    let mut sums = vec![[0_u32; 4]; chroma_width];
    for y in 0..height {
        rows.read(y, &mut row);
        let line =
            to.plane_data_mut(0).map_err(failed)?.get_mut(y * strides[0]..).ok_or(gst::FlowError::Error)?;
        match plan {
            Plan::Yuv(luma, _) => {
                let value = |sample: u16| luma.get(usize::from(sample)).copied().unwrap_or_default();
                write(line, row.iter().map(|pixel| value(pixel[1])), bits);
            }
            Plan::Rgb(of) => {
                let value = |pixel: &[u16; 4]| match of.luma {
                    Some(luma) => luma.apply([pixel[1], pixel[2], pixel[3]]),
                    None => of.apply(0, [1, 2, 3].map(|i| f64::from(pixel[i]))),
                };
                write(line, row.iter().map(value), bits);
            }
        }
        if !has_chroma {
            continue;
        }
        for (sum, pixels) in sums.iter_mut().zip(row.chunks(step_x)) {
            for pixel in pixels {
                (1..4).for_each(|i| sum[i] += u32::from(pixel[i]));
                sum[0] += 1;
            }
        }
        if (y + 1) % step_y != 0 && y + 1 != height {
            continue;
        }
        for plane in 1..3 {
            let line = to.plane_data_mut(plane as u32).map_err(failed)?;
            let line = line.get_mut(y / step_y * strides[plane]..).ok_or(gst::FlowError::Error)?;
            match plan {
                Plan::Yuv(..) if is_grey => {
                    write(line, std::iter::repeat_n(1 << (bits - 1), chroma_width), bits)
                }
                Plan::Yuv(_, chroma) => {
                    let mean = |sum: &[u32; 4]| ((sum[plane + 1] + sum[0] / 2) / sum[0].max(1)) as usize;
                    write(
                        line,
                        sums.iter().map(|sum| chroma.get(mean(sum)).copied().unwrap_or_default()),
                        bits,
                    );
                }
                Plan::Rgb(of) => {
                    let mean =
                        |sum: &[u32; 4]| [1, 2, 3].map(|i| f64::from(sum[i]) / f64::from(sum[0].max(1)));
                    write(line, sums.iter().map(|sum| of.apply(plane, mean(sum))), bits);
                }
            }
        }
        sums.fill([0; 4]);
    }
    Ok(())
}

mod imp {
    use std::sync::LazyLock;

    use super::*;

    /// Private data of the element.
    #[derive(Default)]
    pub struct Convert {
        pub(super) conversion: Mutex<Option<Conversion>>,
        plan: Mutex<Option<Plan>>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for Convert {
        const NAME: &'static str = "HipVmafProgramConvert";
        type Type = super::Convert;
        type ParentType = gst_video::VideoFilter;
    }

    impl ObjectImpl for Convert {}
    impl GstObjectImpl for Convert {}

    impl ElementImpl for Convert {
        fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
            static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
                gst::subclass::ElementMetadata::new(
                    "Exact converter",
                    "Filter/Converter/Video",
                    "Converts depth, subsampling and range exactly",
                    "The hipvmaf project",
                )
            });
            Some(&METADATA)
        }

        fn pad_templates() -> &'static [gst::PadTemplate] {
            static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
                let caps = gst_video::VideoCapsBuilder::new().build();
                [("sink", gst::PadDirection::Sink), ("src", gst::PadDirection::Src)]
                    .into_iter()
                    .filter_map(|(name, direction)| {
                        gst::PadTemplate::new(name, direction, gst::PadPresence::Always, &caps).ok()
                    })
                    .collect()
            });
            &TEMPLATES
        }
    }

    impl Convert {
        fn conversion(&self) -> Option<Conversion> {
            *self.conversion.lock()
        }
    }

    impl BaseTransformImpl for Convert {
        const MODE: gst_base::subclass::BaseTransformMode =
            gst_base::subclass::BaseTransformMode::NeverInPlace;
        const PASSTHROUGH_ON_SAME_CAPS: bool = false;
        const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

        fn transform_caps(
            &self,
            direction: gst::PadDirection,
            caps: &gst::Caps,
            filter: Option<&gst::Caps>,
        ) -> Option<gst::Caps> {
            let conversion = self.conversion()?;
            let mut caps = caps.clone();
            for structure in caps.make_mut().iter_mut() {
                if direction == gst::PadDirection::Sink {
                    conversion.change(structure);
                } else {
                    structure.remove_fields([
                        "format",
                        "colorimetry",
                        "chroma-site",
                        "interlace-mode",
                        "field-order",
                    ]);
                }
            }
            Some(match filter {
                Some(filter) => filter.intersect_with_mode(&caps, gst::CapsIntersectMode::First),
                None => caps,
            })
        }
    }

    impl VideoFilterImpl for Convert {
        fn set_info(
            &self,
            _incaps: &gst::Caps,
            in_info: &VideoInfo,
            _outcaps: &gst::Caps,
            out_info: &VideoInfo,
        ) -> Result<(), gst::LoggableError> {
            let conversion = self
                .conversion()
                .ok_or_else(|| gst::loggable_error!(gst::CAT_RUST, "there is nothing to convert to"))?;
            let plan = Plan::new(in_info, out_info, conversion);
            *self.plan.lock() = Some(plan);
            Ok(())
        }

        fn transform_frame(
            &self,
            inframe: &VideoFrameRef<&gst::BufferRef>,
            outframe: &mut VideoFrameRef<&mut gst::BufferRef>,
        ) -> Result<gst::FlowSuccess, gst::FlowError> {
            let plan = self.plan.lock();
            transform(plan.as_ref().ok_or(gst::FlowError::NotNegotiated)?, inframe, outframe)?;
            Ok(gst::FlowSuccess::Ok)
        }
    }
}

impl Conversion {
    /// Changes caps from the input format to the output format.
    fn change(self, structure: &mut gst::StructureRef) {
        let format =
            structure.get::<&str>("format").ok().and_then(|format| format.parse::<VideoFormat>().ok());
        structure.set("format", self.format.to_str());
        structure.remove_field("chroma-site");
        if self.is_progressive {
            structure.set("interlace-mode", "progressive");
            structure.remove_field("field-order");
        }
        let is_rgb = format.is_some_and(|format| VideoFormatInfo::from_format(format).is_rgb());
        if !self.is_narrowed && !is_rgb {
            return;
        }
        let range =
            if is_rgb && self.is_full { VideoColorRange::Range0_255 } else { VideoColorRange::Range16_235 };
        let own =
            structure.get::<&str>("colorimetry").ok().and_then(|text| text.parse::<VideoColorimetry>().ok());
        // Red, green and blue have no chroma siting.
        let own = own.filter(|_| !is_rgb);
        let unknown = (gst_video::VideoTransferFunction::Unknown, gst_video::VideoColorPrimaries::Unknown);
        let (transfer, primaries) = own.as_ref().map_or(unknown, |own| (own.transfer(), own.primaries()));
        let matrix = match own {
            Some(own) => own.matrix(),
            None if is_rgb => self.matrix,
            None => VideoColorMatrix::Unknown,
        };
        structure.set("colorimetry", VideoColorimetry::new(range, matrix, transfer, primaries).to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_converted_as_ffmpeg_does_it() {
        let up = |value, full| convert(value, (8, 10), false, true, full);
        assert_eq!([up(16, false), up(235, false), up(255, false)], [64, 940, 1020]);
        assert_eq!([up(0, true), up(255, true)], [0, 1023]);
        let narrow = |value, is_luma| convert(value, (8, 8), true, is_luma, true);
        assert_eq!([0, 255, 128].map(|value| narrow(value, true)), [16, 235, 126]);
        assert_eq!([0, 128, 255].map(|value| narrow(value, false)), [16, 128, 240]);
        assert_eq!([100, 255].map(|value| convert(value, (8, 10), true, true, true)), [407, 937]);
        let of = Coefficients::new(8, 8, false, VideoColorMatrix::Bt601);
        assert_eq!([[0; 3], [255; 3], [255, 0, 0]].map(|rgb| of.luma.unwrap().apply(rgb)), [16, 235, 81]);
        assert_eq!([0, 1, 2].map(|i| of.apply(i, [255.0; 3])), [235, 128, 128]);
        assert_eq!([0, 1, 2].map(|i| of.apply(i, [255.0, 0.0, 0.0])), [81, 90, 240]);
    }
}
