// SPDX-License-Identifier: MPL-2.0

//! Pictures as the metrics see them: planes of 8-bit or 16-bit samples, nothing else.
//!
//! Samples of more than 8 bits sit in the low bits of a `u16` and never exceed the maximum of their
//! depth; whoever builds a [`Frame`] guarantees that (the element shifts and clamps on import).

/// Bits per sample, 8 to 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitDepth(u8);

impl BitDepth {
    /// `None` outside 8..=16.
    pub const fn new(bits: u32) -> Option<Self> {
        if bits >= 8 && bits <= 16 { Some(Self(bits as u8)) } else { None }
    }

    /// Number of bits, 8..=16.
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Largest sample value, `2^bits - 1`.
    pub const fn max(self) -> u32 {
        (1 << self.0) - 1
    }
}

/// A sample type of a plane: `u8` for 8-bit video, `u16` for everything deeper.
pub trait Sample:
    Copy + Default + Into<i32> + Into<u32> + Send + Sync + PartialEq + std::fmt::Debug + 'static
{
}

impl Sample for u8 {}
impl Sample for u16 {}

/// A borrowed picture plane: `height` rows of `width` samples, `stride` samples apart.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a, T> {
    data: &'a [T],
    width: usize,
    height: usize,
    stride: usize,
}

impl<'a, T: Sample> Plane<'a, T> {
    /// `None` when the rows do not fit `data` or overlap (`stride < width`).
    pub fn new(data: &'a [T], width: usize, height: usize, stride: usize) -> Option<Self> {
        let needed = match height {
            0 => 0,
            h => stride.checked_mul(h - 1)?.checked_add(width)?,
        };
        (stride >= width && data.len() >= needed).then_some(Self { data, width, height, stride })
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn height(&self) -> usize {
        self.height
    }

    /// Row `y` from the top, exactly `width` samples.
    #[inline]
    pub fn row(&self, y: usize) -> &'a [T] {
        let start = y * self.stride;
        &self.data[start..start + self.width]
    }
}

/// A plane of either sample type.
#[derive(Clone, Copy, Debug)]
pub enum AnyPlane<'a> {
    U8(Plane<'a, u8>),
    U16(Plane<'a, u16>),
}

/// One picture: luma, and the two chroma planes where the caller has them.
///
/// Chroma planes have the size libvmaf gives them: a subsampled axis of `n` luma samples has
/// `floor(n / 2)` chroma samples.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub luma: AnyPlane<'a>,
    pub chroma: Option<[AnyPlane<'a>; 2]>,
}

/// Size and sample depth that all frames of a stream share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Luma samples per row.
    pub width: usize,
    /// Luma rows.
    pub height: usize,
    pub depth: BitDepth,
    /// Chroma size, `None` for grey formats.
    pub chroma: Option<(usize, usize)>,
}
