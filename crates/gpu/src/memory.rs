// SPDX-License-Identifier: MPL-2.0

//! Device memory and page-locked host memory from the device's pool, and copies between them.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use hip_sys::{HipError, Piece};

use crate::device::Device;
use crate::error::Error;
use crate::pool::MemoryKind;
use crate::stream::Stream;

/// A block of either memory; it returns to the pool when it is dropped.
struct Block {
    device: Arc<Device>,
    kind: MemoryKind,
    address: NonNull<c_void>,
    size: usize,
}

// SAFETY: the memory is the block's alone, and any thread may use it.
unsafe impl Send for Block {}
// SAFETY: nothing is changed through a shared reference.
unsafe impl Sync for Block {}

impl Block {
    /// Takes a block from the pool or allocates one. `what`: its purpose, for an error.
    fn new(device: &Arc<Device>, kind: MemoryKind, what: &'static str, size: usize) -> Result<Self, Error> {
        let size = size.max(1).next_multiple_of(4096);
        let block = |address| Self { device: device.clone(), kind, address, size };
        if let Some(address) = device.deferred_free().pool().take(kind, size) {
            return Ok(block(address));
        }
        let allocate = || device.enter_exclusive().map(|api| kind.allocate(&api, size));
        let mut result = allocate()?;
        if result.1 == HipError::OUT_OF_MEMORY {
            // Blocks of other sizes may occupy the missing memory.
            device.deferred_free().clear();
            result = allocate()?;
        }
        match result {
            (_, HipError::OUT_OF_MEMORY, _) => {
                Err(Error::OutOfMemory { device: device.info().name.clone(), what, bytes: size })
            }
            (call, status, address) => {
                device.check(call, status)?;
                let error = HipError::UNKNOWN;
                let device = device.info().name.clone();
                let block = NonNull::new(address).map(block).ok_or(Error::Call { device, call, error })?;
                if kind != MemoryKind::Device {
                    // Others have their turn at the driver meanwhile. SAFETY: new, and that long.
                    unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, size) };
                }
                Ok(block)
            }
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut pool = self.device.deferred_free().pool();
        // SAFETY: the block was allocated as this kind with this size, and its only owner is gone. The code that passed
        // its address to the GPU has promised to keep it until the GPU is done.
        unsafe { pool.put(self.kind, self.size, self.address, Instant::now()) };
    }
}

/// Memory of the GPU. Its initial content is undefined.
pub struct DeviceBuffer(Block);

impl DeviceBuffer {
    /// Allocates `size` bytes. `what`: their purpose, for an error.
    pub fn new(device: &Arc<Device>, what: &'static str, size: usize) -> Result<Self, Error> {
        Block::new(device, MemoryKind::Device, what, size).map(Self)
    }

    /// Allocates memory with these bytes as its content.
    pub fn holding(device: &Arc<Device>, what: &'static str, bytes: &[u8]) -> Result<Self, Error> {
        let buffer = Self::new(device, what, bytes.len())?;
        let mut staging = Pinned::new(device.clone(), bytes.len())?;
        staging.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        let stream = Stream::new(device)?;
        // SAFETY: both blocks are that long, and they are left alone until the stream is done: a stream that cannot be
        // waited for is on a lost device, which copies nothing.
        unsafe { copy(&stream, buffer.address(), staging.address(), bytes.len(), Direction::HostToDevice)? };
        stream.synchronize()?;
        Ok(buffer)
    }

    /// Returns the number of bytes, at least as many as requested.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Returns the device address of the first byte, a multiple of 256.
    pub fn address(&self) -> u64 {
        self.0.address.as_ptr() as u64
    }
}

/// Page-locked memory of the host, which the GPU accesses directly.
pub struct Pinned(Block);

impl Pinned {
    /// Allocates at least `size` bytes to copy from and to, aligned to a page.
    pub fn new(device: Arc<Device>, size: usize) -> Result<Self, Error> {
        Block::new(&device, MemoryKind::Host, "page-locked host memory", size).map(Self)
    }

    /// Allocates at least `size` bytes that kernels read and write, aligned to a page. The CPU sees what kernels wrote
    /// after an [`Event::for_host`](crate::Event::for_host).
    pub fn coherent(device: Arc<Device>, size: usize) -> Result<Self, Error> {
        Block::new(&device, MemoryKind::Coherent, "page-locked host memory", size).map(Self)
    }

    /// Returns the address of the first byte, which is the same for the CPU and the GPU.
    pub fn address(&self) -> u64 {
        self.0.address.as_ptr() as u64
    }

    /// Returns the bytes of the memory.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the block is owned, that long, and was filled when it was allocated. The code that lets the GPU write
        // there has promised not to access it until the GPU is done.
        unsafe { std::slice::from_raw_parts(self.0.address.as_ptr().cast(), self.0.size) }
    }

    /// Returns the bytes of the memory for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block is owned, that long, was filled when it was allocated, and is borrowed only here. The code
        // that lets the GPU read or write there has promised not to access it until the GPU is done.
        unsafe { std::slice::from_raw_parts_mut(self.0.address.as_ptr().cast(), self.0.size) }
    }
}

/// Source and destination of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Direction {
    /// A copy from the host's memory to the GPU's.
    HostToDevice = hip_sys::hipMemcpyHostToDevice,
    /// A copy from the GPU's memory to the host's.
    DeviceToHost = hip_sys::hipMemcpyDeviceToHost,
    /// A copy within the GPU's memory.
    DeviceToDevice = hip_sys::hipMemcpyDeviceToDevice,
}

/// Copies in the order of the stream.
///
/// # Safety
///
/// Both ranges must be valid memory of the kinds that `direction` says, and left alone until the stream has got there.
pub unsafe fn copy(
    stream: &Stream,
    to: u64,
    from: u64,
    size: usize,
    direction: Direction,
) -> Result<(), Error> {
    let api = stream.device().enter_shared()?;
    // SAFETY: the caller has promised that both ranges are valid and left alone; the stream is live.
    let status = unsafe {
        api.hipMemcpyAsync(to as *mut c_void, from as *const c_void, size, direction as i32, stream.handle())
    };
    stream.device().check("hipMemcpyAsync", status)
}

/// Copies pieces of memory in the order of the stream, and in any order among themselves. A driver that takes them as
/// one batch does not let the bus idle between them. If it refuses the batch, they are copied one by one, which reports
/// the error.
///
/// # Safety
///
/// All ranges must be valid memory of the kinds that `direction` says, and left alone until the stream has got there.
pub unsafe fn copy_pieces(stream: &Stream, pieces: &[Piece], direction: Direction) -> Result<(), Error> {
    if pieces.len() > 1 {
        let api = stream.device().enter_shared()?;
        // SAFETY: the caller has promised that all pieces are valid and left alone; the stream is live.
        if unsafe { api.copy_pieces(pieces, stream.handle()) }.is_ok() {
            return Ok(());
        }
    }
    pieces.iter().try_for_each(|Piece { to, from, size }| {
        // SAFETY: as the caller has promised.
        unsafe { copy(stream, *to, *from, *size, direction) }
    })
}

/// The rows of a picture in memory of the host or of a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Rectangle {
    /// Address of the first row.
    pub address: u64,
    /// Bytes from row to row.
    pub pitch: usize,
}

/// Copies `rows` rows of `width` bytes in the order of the stream.
///
/// # Safety
///
/// All rows must be valid memory of the kinds that `direction` says, and left alone until the stream has got there.
pub unsafe fn copy_rectangle(
    stream: &Stream,
    to: Rectangle,
    from: Rectangle,
    width: usize,
    rows: usize,
    direction: Direction,
) -> Result<(), Error> {
    let api = stream.device().enter_shared()?;
    let (to_address, from_address) = (to.address as *mut c_void, from.address as *const c_void);
    // SAFETY: the caller has promised that all rows are valid and left alone; the stream is live.
    let status = unsafe {
        api.hipMemcpy2DAsync(
            to_address,
            to.pitch,
            from_address,
            from.pitch,
            width,
            rows,
            direction as i32,
            stream.handle(),
        )
    };
    stream.device().check("hipMemcpy2DAsync", status)
}

/// Zeroes `size` bytes of device memory in the order of the stream.
///
/// # Safety
///
/// The range must be valid device memory, and left alone until the stream has got there.
pub unsafe fn zero(stream: &Stream, address: u64, size: usize) -> Result<(), Error> {
    let api = stream.device().enter_shared()?;
    // SAFETY: the caller has promised that the range is valid and left alone; the stream is live.
    let status = unsafe { api.hipMemsetAsync(address as *mut c_void, 0, size, stream.handle()) };
    stream.device().check("hipMemsetAsync", status)
}
