// SPDX-License-Identifier: MPL-2.0

//! Pictures: memory with a count of references, and pools of it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use engine::backend::BackendError;
use engine::frame::{BitDepth, Component, DeviceAddress, Geometry, Lease, Samples};
use gpu::{ForeignBuffer, ForeignContext};

use crate::Errno;
use crate::locked::Locked;
use crate::log::{Level, log};

/// A picture as callers have it. The library owns what it points to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmafPicture {
    /// 1 for 4:2:0, 2 for 4:2:2, 3 for 4:4:4, 4 for grey.
    pub pix_fmt: u32,
    /// Bits of a sample, 8 to 16.
    pub bpc: u32,
    /// Samples of a row of Y, Cb and Cr.
    pub w: [u32; 3],
    /// Rows of Y, Cb and Cr.
    pub h: [u32; 3],
    /// Bytes from one row to the next.
    pub stride: [isize; 3],
    /// The first samples.
    pub data: [*mut c_void; 3],
    /// The library's.
    pub reference: *mut c_void,
    /// The library's.
    pub private: *mut c_void,
}

impl Default for VmafPicture {
    fn default() -> Self {
        Self {
            pix_fmt: 0,
            bpc: 0,
            w: [0; 3],
            h: [0; 3],
            stride: [0; 3],
            data: [std::ptr::null_mut(); 3],
            reference: std::ptr::null_mut(),
            private: std::ptr::null_mut(),
        }
    }
}

/// Bytes to which rows and planes are aligned.
const ALIGN: usize = 32;

/// Size and sample format of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    pub pixels: Pixels,
    pub bits: u32,
    pub width: u32,
    pub height: u32,
}

/// How much chroma there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pixels {
    Yuv420 = 1,
    Yuv422,
    Yuv444,
    Grey,
}

impl Pixels {
    fn new(number: u32) -> Option<Self> {
        [Self::Yuv420, Self::Yuv422, Self::Yuv444, Self::Grey]
            .into_iter()
            .find(|pixels| *pixels as u32 == number)
    }
}

impl Format {
    /// Checks what a caller asks for.
    pub fn new(pixels: u32, bits: u32, width: u32, height: u32) -> Result<Self, Errno> {
        let pixels = Pixels::new(pixels).ok_or(Errno::INVALID)?;
        BitDepth::new(bits).ok_or(Errno::INVALID)?;
        Ok(Self { pixels, bits, width, height })
    }

    /// Width and height of Y, Cb and Cr. Odd luma sizes leave the last chroma sample out.
    fn planes(&self) -> [(u32, u32); 3] {
        let Self { pixels, width, height, .. } = *self;
        let chroma = match pixels {
            Pixels::Yuv420 => (width >> 1, height >> 1),
            Pixels::Yuv422 => (width >> 1, height),
            Pixels::Yuv444 => (width, height),
            Pixels::Grey => (0, 0),
        };
        [(width, height), chroma, chroma]
    }

    /// The format as the engine has it; `None` for pictures without samples.
    pub fn geometry(&self) -> Option<Geometry> {
        let size = |(width, height)| (width as usize, height as usize);
        let [luma, chroma, _] = self.planes().map(size);
        let chroma = (self.pixels != Pixels::Grey).then_some(chroma);
        let depth = BitDepth::new(self.bits)?;
        (luma.0 > 0 && luma.1 > 0).then_some(Geometry { width: luma.0, height: luma.1, depth, chroma })
    }
}

/// Zeroed memory.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned, and only its address is kept here.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(size: usize) -> Result<Self, Errno> {
        let layout = Layout::from_size_align(size.max(1), ALIGN).map_err(|_| Errno::MEMORY)?;
        // SAFETY: the layout has a size.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::MEMORY)?;
        Ok(Self { start, layout })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nothing has the memory any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Memory of a picture: page-locked while a GPU computes, or in a CUDA context of the caller.
enum Block {
    Ordinary(Memory),
    Locked(Locked),
    Device(ForeignBuffer),
}

impl Block {
    /// Takes zeroed memory of the host.
    fn new(size: usize) -> Result<Self, Errno> {
        Locked::new(size)
            .map_or_else(|| Memory::new(size).map(Self::Ordinary), |locked| Ok(Self::Locked(locked)))
    }

    /// Takes zeroed memory of a GPU.
    fn on_device(context: &Arc<ForeignContext>, size: usize) -> Result<Self, Errno> {
        ForeignBuffer::new(context, size).map(Self::Device).map_err(|error| {
            log(Level::Error, format_args!("there is no memory for a picture: {error}"));
            Errno::MEMORY
        })
    }

    fn start(&self) -> usize {
        match self {
            Self::Ordinary(memory) => memory.start.as_ptr() as usize,
            Self::Locked(memory) => memory.address(),
            Self::Device(memory) => memory.address() as usize,
        }
    }

    /// Returns the CUDA context that the memory is in, if it is on a GPU.
    fn context(&self) -> Option<&Arc<ForeignContext>> {
        match self {
            Self::Device(memory) => Some(memory.context()),
            _ => None,
        }
    }
}

/// Owns the memory of a picture. A caller's structure holds one count of it.
pub struct Shared {
    /// `None` only while this is dropped.
    block: Option<Block>,
    size: usize,
    /// The pool that the memory goes back to.
    pool: Option<Arc<Pool>>,
    /// The picture counts as one that the caller has.
    is_out: AtomicBool,
}

impl Shared {
    fn new(block: Block, size: usize, pool: Option<Arc<Pool>>) -> Self {
        Self { block: Some(block), size, is_out: AtomicBool::new(pool.is_some()), pool }
    }

    fn start(&self) -> usize {
        self.block.as_ref().map_or(0, Block::start)
    }

    /// Counts the picture as one that the caller has no more.
    fn leave_caller(&self) {
        if let Some(pool) = self.pool.as_ref().filter(|_| self.is_out.swap(false, Ordering::Relaxed)) {
            pool.give_back();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let (Some(pool), Some(block)) = (&self.pool, self.block.take()) {
            pool.keep(block);
        }
        self.leave_caller();
    }
}

/// Sizes, and where planes begin, of a picture in memory that begins at an address.
fn layout(format: Format) -> Result<([usize; 3], [usize; 3], usize), Errno> {
    let sample = if format.bits > 8 { 2 } else { 1 };
    let stride = |(width, _): (u32, u32)| (width as usize).next_multiple_of(ALIGN) * sample;
    let planes = format.planes();
    let strides = planes.map(stride);
    let size = |i: usize| strides[i].checked_mul(planes[i].1 as usize);
    let second = size(0).ok_or(Errno::MEMORY)?;
    let third = size(1).and_then(|size| second.checked_add(size)).ok_or(Errno::MEMORY)?;
    let all = size(2).and_then(|size| third.checked_add(size)).ok_or(Errno::MEMORY)?;
    Ok((strides, [0, second, third], all))
}

impl Shared {
    /// Fills in a caller's structure, which then holds the one count of this.
    fn hand_out(block: Block, pool: Option<Arc<Pool>>, format: Format) -> Result<VmafPicture, Errno> {
        let (strides, offsets, size) = layout(format)?;
        let planes = format.planes();
        let start = block.start();
        let has = |i: usize| i == 0 || format.pixels != Pixels::Grey;
        let data = |i: usize| if has(i) { (start + offsets[i]) as *mut _ } else { std::ptr::null_mut() };
        let shared = Arc::into_raw(Arc::new(Self::new(block, size, pool))).cast_mut();
        Ok(VmafPicture {
            pix_fmt: format.pixels as u32,
            bpc: format.bits,
            w: planes.map(|(width, _)| width),
            h: planes.map(|(_, height)| height),
            stride: strides.map(|stride| stride as isize),
            data: [0, 1, 2].map(data),
            reference: shared.cast(),
            private: shared.cast(),
        })
    }
}

/// Returns a picture of its own memory, all of it zero.
pub fn allocate(format: Format) -> Result<VmafPicture, Errno> {
    let (.., size) = layout(format)?;
    Shared::hand_out(Block::new(size)?, None, format)
}

/// Takes the count out of a caller's structure, which is zeroed.
///
/// # Safety
///
/// The structure was filled in by this library, or is zero.
pub unsafe fn take(picture: &mut VmafPicture) -> Result<Arc<Shared>, Errno> {
    let shared: *const Shared = picture.reference.cast_const().cast();
    if shared.is_null() {
        return Err(Errno::INVALID);
    }
    *picture = VmafPicture::default();
    // SAFETY: the pointer came out of `into_raw`, and the structure that had it has it no more.
    Ok(unsafe { Arc::from_raw(shared) })
}

/// A picture as a caller describes it, checked to lie within its memory.
#[derive(Clone)]
pub struct View {
    pub format: Format,
    /// Address, bytes from row to row, and bytes of all rows.
    planes: [(usize, usize, usize); 3],
    /// The CUDA context of a picture in device memory.
    context: Option<Arc<ForeignContext>>,
}

impl View {
    /// Checks a caller's structure.
    ///
    /// # Safety
    ///
    /// The structure was filled in by this library, or is zero.
    pub unsafe fn new(picture: &VmafPicture) -> Result<Self, Errno> {
        let shared: *const Shared = picture.reference.cast_const().cast();
        // SAFETY: the structure holds a count of it, unless the pointer is null.
        let shared = unsafe { shared.as_ref() }.ok_or(Errno::INVALID)?;
        let format = Format::new(picture.pix_fmt, picture.bpc, picture.w[0], picture.h[0])?;
        let sizes = format.planes();
        let sample = if format.bits > 8 { 2 } else { 1 };
        let mut planes = [(0, 0, 0); 3];
        for i in 0..if format.pixels == Pixels::Grey { 1 } else { 3 } {
            let (width, height) = sizes[i];
            let stride = usize::try_from(picture.stride[i]).map_err(|_| Errno::INVALID)?;
            let row = width as usize * sample;
            let rows = stride
                .checked_mul((height as usize).saturating_sub(1))
                .and_then(|rows| rows.checked_add(row));
            let bytes = if height == 0 { 0 } else { rows.ok_or(Errno::INVALID)? };
            let address = picture.data[i] as usize;
            let end = address.checked_add(bytes).ok_or(Errno::INVALID)?;
            let inside = address >= shared.start() && end <= shared.start() + shared.size;
            let whole = (picture.w[i], picture.h[i]) == (width, height) && stride >= row;
            if !inside || !whole || !address.is_multiple_of(sample) || !stride.is_multiple_of(sample) {
                return Err(Errno::INVALID);
            }
            planes[i] = (address, stride, bytes);
        }
        let context = shared.block.as_ref().and_then(Block::context).cloned();
        Ok(Self { format, planes, context })
    }

    /// Waits until the caller's CUDA context has written the picture.
    pub fn wait(&self) -> Result<(), Errno> {
        let Some(context) = &self.context else { return Ok(()) };
        context.synchronize().map_err(|error| {
            log(Level::Error, format_args!("a picture cannot be read: {error}"));
            Errno::INVALID
        })
    }

    /// Copies a picture in device memory to the host; `None` if it is there.
    ///
    /// # Safety
    ///
    /// The picture's memory lives, and nothing writes to it.
    pub unsafe fn download(&self) -> Result<Option<(Self, Arc<Shared>)>, BackendError> {
        let Some(context) = &self.context else { return Ok(None) };
        let size = self.planes.iter().map(|(.., bytes)| bytes.next_multiple_of(ALIGN)).sum();
        let memory = Memory::new(size).map_err(|_| BackendError::Picture("cpu"))?;
        let mut view = Self { context: None, ..self.clone() };
        // SAFETY: owned, zeroed and that long.
        let mut left = unsafe { std::slice::from_raw_parts_mut(memory.start.as_ptr(), size) };
        for (address, _, bytes) in &mut view.planes {
            let (plane, rest) = left.split_at_mut(bytes.next_multiple_of(ALIGN));
            left = rest;
            // SAFETY: checked to lie within the picture's memory, which lives.
            unsafe { context.read(*address as u64, &mut plane[..*bytes])? };
            *address = plane.as_ptr() as usize;
        }
        Ok(Some((view, Arc::new(Shared::new(Block::Ordinary(memory), size, None)))))
    }

    /// The picture for the engine, with what keeps its memory, if anything does. A picture in device memory needs a lease.
    ///
    /// # Safety
    ///
    /// The memory lives for as long as the result is used, and nothing writes to it; with a lease, for as long as that is
    /// held.
    pub unsafe fn picture<'a>(&self, lease: Option<Lease>) -> engine::frame::Picture<'a> {
        let sizes = self.format.planes();
        let component = |i: usize| {
            let (address, stride, bytes) = self.planes[i];
            // SAFETY: checked to lie within the picture's memory, which the caller keeps.
            let samples = unsafe {
                match self.context {
                    None => Samples::Host(std::slice::from_raw_parts(address as *const u8, bytes)),
                    Some(_) => Samples::Device(DeviceAddress::new(address as u64)),
                }
            };
            let (width, height) = (sizes[i].0 as usize, sizes[i].1 as usize);
            Component { samples, width, height, stride, step: 1, shift: 0 }
        };
        let chroma = (self.format.pixels != Pixels::Grey).then(|| [component(1), component(2)]);
        engine::frame::Picture { luma: component(0), chroma, lease }
    }
}

/// A picture that a context holds.
#[derive(Clone)]
pub struct Held {
    view: View,
    shared: Arc<Shared>,
}

impl Held {
    /// Holds a picture that the caller has given away.
    pub fn new(view: View, shared: Arc<Shared>) -> Self {
        shared.leave_caller();
        Self { view, shared }
    }

    /// Returns the picture in memory of the host: itself, or a copy of one in device memory.
    pub fn on_host(&self) -> Result<Self, BackendError> {
        // SAFETY: the caller has given the picture away, so that nothing writes to it, and its memory is held here.
        let copy = unsafe { self.view.download()? };
        Ok(copy.map_or_else(|| self.clone(), |(view, shared)| Self { view, shared }))
    }

    /// The picture for the engine, which may keep it.
    pub fn picture(&self) -> engine::frame::Picture<'static> {
        // SAFETY: the caller has given the picture away, so that nothing writes to it, and the lease keeps its memory.
        let lease = unsafe { Lease::new(self.shared.clone()) };
        let lease = match self.shared.block {
            // SAFETY: all of the memory is page-locked, and the lease keeps it.
            Some(Block::Locked(_)) => unsafe { lease.pinned() },
            _ => lease,
        };
        // SAFETY: as above.
        unsafe { self.view.picture(Some(lease)) }
    }
}

/// Pictures in device memory that are made with their pool, as libvmaf makes them.
const ON_DEVICE: usize = 4;

/// Pictures of one format that are used again and again. A picture that comes back is the next to be handed out.
///
/// Only those pictures count that the caller has. What a context computes is limited by the context, and has memory beside
/// that, or a caller with as few pictures as it needs would never have two pairs computed at a time.
pub struct Pool {
    format: Format,
    /// The caller's CUDA context whose memory the pictures are in, if it is not the host's.
    context: Option<Arc<ForeignContext>>,
    count: usize,
    pictures: Mutex<Pictures>,
    returned: Condvar,
}

#[derive(Default)]
struct Pictures {
    /// Pictures that the caller has.
    out: usize,
    /// Memory for other pictures, the latest used one last.
    free: Vec<Block>,
}

impl Pool {
    /// A pool of so many pictures, whose memory is taken at once unless `later`.
    pub fn new(format: Format, count: u32, later: bool) -> Result<Arc<Self>, Errno> {
        let count = count as usize;
        Self::with(format, None, count, if later { 0 } else { count })
    }

    /// A pool of pictures in a CUDA context of the caller, who may have any number of them.
    pub fn on_device(format: Format, context: Arc<ForeignContext>) -> Result<Arc<Self>, Errno> {
        Self::with(format, Some(context), usize::MAX, ON_DEVICE)
    }

    fn with(
        format: Format,
        context: Option<Arc<ForeignContext>>,
        count: usize,
        at_once: usize,
    ) -> Result<Arc<Self>, Errno> {
        if count == 0 || format.width == 0 || format.height == 0 {
            return Err(Errno::INVALID);
        }
        let pictures = Mutex::default();
        let pool = Arc::new(Self { format, context, count, pictures, returned: Condvar::new() });
        let free = (0..at_once).map(|_| pool.block(None)).collect::<Result<_, _>>()?;
        pool.pictures().free = free;
        Ok(pool)
    }

    fn pictures(&self) -> MutexGuard<'_, Pictures> {
        self.pictures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the caller has fewer pictures than the pool, and hands one out.
    pub fn fetch(self: &Arc<Self>) -> Result<VmafPicture, Errno> {
        let mut pictures = self.pictures();
        while pictures.out >= self.count {
            pictures = self.returned.wait(pictures).unwrap_or_else(PoisonError::into_inner);
        }
        pictures.out += 1;
        let block = pictures.free.pop();
        drop(pictures);
        let picture =
            self.block(block).and_then(|block| Shared::hand_out(block, Some(self.clone()), self.format));
        if picture.is_err() {
            self.give_back();
        }
        picture
    }

    /// Returns memory for a picture: page-locked, if a GPU has begun to compute since the pool was made.
    fn block(&self, free: Option<Block>) -> Result<Block, Errno> {
        let (.., size) = layout(self.format)?;
        match (free, &self.context) {
            (Some(Block::Ordinary(memory)), _) => {
                Ok(Locked::new(size).map_or(Block::Ordinary(memory), Block::Locked))
            }
            (Some(block), _) => Ok(block),
            (None, Some(context)) => Block::on_device(context, size),
            (None, None) => Block::new(size),
        }
    }

    fn keep(&self, block: Block) {
        self.pictures().free.push(block);
    }

    fn give_back(&self) {
        self.pictures().out -= 1;
        self.returned.notify_all();
    }

    /// Waits until the caller has no picture.
    pub fn wait(&self) {
        let mut pictures = self.pictures();
        while pictures.out > 0 {
            pictures = self.returned.wait(pictures).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chroma_of_odd_sizes_is_rounded_down() {
        let planes = |pixels| Format::new(pixels, 8, 5, 3).unwrap().planes();
        assert_eq!(planes(1), [(5, 3), (2, 1), (2, 1)]);
        assert_eq!(planes(2), [(5, 3), (2, 3), (2, 3)]);
        assert_eq!(planes(3), [(5, 3); 3]);
        assert_eq!(planes(4), [(5, 3), (0, 0), (0, 0)]);
    }

    #[test]
    fn pictures_beyond_all_memory_are_refused() {
        let format = Format::new(3, 16, u32::MAX, u32::MAX).unwrap();
        assert_eq!(allocate(format).err(), Some(Errno::MEMORY));
    }

    #[test]
    fn what_lies_outside_of_the_memory_is_refused() {
        let mut picture = allocate(Format::new(1, 8, 64, 48).unwrap()).unwrap();
        let check = |change: fn(&mut VmafPicture)| {
            let mut picture = picture;
            change(&mut picture);
            // SAFETY: a structure of this library.
            unsafe { View::new(&picture) }.is_ok()
        };
        assert!(check(|_| ()));
        assert!(check(|p| (p.w[0], p.w[1], p.w[2]) = (32, 16, 16)), "less of each row");
        assert!(!check(|p| p.h[0] = 4800));
        assert!(!check(|p| p.data[2] = p.data[0].wrapping_sub(32)));
        assert!(!check(|p| p.stride[0] = -64));
        assert!(!check(|p| p.bpc = 17));
        // SAFETY: as above.
        assert!(unsafe { take(&mut picture) }.is_ok());
        // SAFETY: as above.
        assert!(unsafe { take(&mut picture) }.is_err(), "a second time");
    }
}
