// SPDX-License-Identifier: MPL-2.0

//! Device memory and page-locked host memory, out of pools: the runtimes wait for all streams of the process
//! when memory is freed, so nothing is freed while anybody streams.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use hip_sys::{Api, HipError};

use crate::device::Device;
use crate::error::Error;
use crate::stream::Stream;

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Device,
    Host,
}

impl Kind {
    fn allocate(self, api: &Api, size: usize) -> (&'static str, HipError, *mut c_void) {
        let mut address = std::ptr::null_mut();
        // SAFETY: the address is valid for a write.
        let (call, status) = unsafe {
            match self {
                Self::Device => ("hipMalloc", (api.hipMalloc)(&mut address, size)),
                Self::Host => {
                    ("hipHostMalloc", (api.hipHostMalloc)(&mut address, size, hip_sys::hipHostMallocPortable))
                }
            }
        };
        if self == Self::Host && !address.is_null() {
            // SAFETY: new, and that long. What the processor reads has to be filled once.
            unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, size) };
        }
        (call, status, address)
    }

    /// The address must be one that `allocate` returned, and nobody may use it any more.
    unsafe fn free(self, api: &Api, address: NonNull<c_void>) {
        // SAFETY: the caller vouches for the address. There is nothing to do about an error.
        let _ = unsafe {
            match self {
                Self::Device => (api.hipFree)(address.as_ptr()),
                Self::Host => (api.hipHostFree)(address.as_ptr()),
            }
        };
    }
}

/// Blocks that are free for now, by size.
#[derive(Default)]
pub struct Pool {
    free: HashMap<(Kind, usize), Vec<NonNull<c_void>>>,
}

// SAFETY: addresses of memory that belongs to the pool alone.
unsafe impl Send for Pool {}

impl Pool {
    /// Frees everything.
    pub fn clear(&mut self, api: &Api) {
        for ((kind, _), blocks) in self.free.drain() {
            for block in blocks {
                // SAFETY: blocks of the pool are nobody's else.
                unsafe { kind.free(api, block) };
            }
        }
    }
}

/// A block of either memory; goes back to the pool when dropped.
struct Block {
    device: Arc<Device>,
    kind: Kind,
    address: NonNull<c_void>,
    size: usize,
}

// SAFETY: the block is its owner's alone.
unsafe impl Send for Block {}
// SAFETY: nothing is changed through a shared reference.
unsafe impl Sync for Block {}

impl Block {
    /// `what` it is for, should there be no memory left.
    fn new(device: &Arc<Device>, kind: Kind, what: &'static str, size: usize) -> Result<Self, Error> {
        let size = size.max(1).next_multiple_of(4096);
        let block = |address| Self { device: device.clone(), kind, address, size };
        let mut pool = device.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = pool.free.get_mut(&(kind, size)).and_then(Vec::pop) {
            return Ok(block(address));
        }
        let api = device.enter()?;
        let mut result = kind.allocate(api, size);
        if result.1 == HipError::OUT_OF_MEMORY {
            // Blocks of other sizes may be what is missing.
            pool.clear(api);
            result = kind.allocate(api, size);
        }
        match result {
            (_, HipError::OUT_OF_MEMORY, _) => {
                Err(Error::OutOfMemory { device: device.info().name.clone(), what, bytes: size })
            }
            (call, status, address) => {
                device.check(call, status)?;
                let error = HipError::UNKNOWN;
                let device = device.info().name.clone();
                NonNull::new(address).map(block).ok_or(Error::Call { device, call, error })
            }
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut pool = self.device.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.free.entry((self.kind, self.size)).or_default().push(self.address);
    }
}

/// Memory of the GPU. What is in it at first is anybody's guess.
pub struct DeviceBuffer(Block);

impl DeviceBuffer {
    /// `size` bytes; an error says `what` they were for.
    pub fn new(device: &Arc<Device>, what: &'static str, size: usize) -> Result<Self, Error> {
        Block::new(device, Kind::Device, what, size).map(Self)
    }

    /// Memory that holds these bytes.
    pub fn holding(device: &Arc<Device>, what: &'static str, bytes: &[u8]) -> Result<Self, Error> {
        let buffer = Self::new(device, what, bytes.len())?;
        let mut staging = Pinned::new(device.clone(), bytes.len())?;
        staging.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        let stream = Stream::new(device)?;
        copy(&stream, buffer.address(), staging.address(), bytes.len(), Direction::HostToDevice)?;
        stream.synchronize()?;
        Ok(buffer)
    }

    /// At least 256-byte aligned.
    pub fn address(&self) -> u64 {
        self.0.address.as_ptr() as u64
    }
}

/// Page-locked memory of the host, which the GPU copies from and to on its own.
pub struct Pinned(Block);

impl Pinned {
    /// At least `size` bytes, aligned to a page.
    pub fn new(device: Arc<Device>, size: usize) -> Result<Self, Error> {
        Block::new(&device, Kind::Host, "page-locked host memory", size).map(Self)
    }

    pub fn address(&self) -> u64 {
        self.0.address.as_ptr() as u64
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the block is ours, that long, and was filled when it was allocated.
        unsafe { std::slice::from_raw_parts(self.0.address.as_ptr().cast(), self.0.size) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed by nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.0.address.as_ptr().cast(), self.0.size) }
    }
}

/// Where a copy comes from and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Direction {
    /// From the host's memory to the GPU's.
    HostToDevice = hip_sys::hipMemcpyHostToDevice,
    /// Within the GPU's memory.
    DeviceToDevice = hip_sys::hipMemcpyDeviceToDevice,
}

/// Copies in the order of the stream. Both ranges must stay as they are until then.
pub fn copy(stream: &Stream, to: u64, from: u64, size: usize, direction: Direction) -> Result<(), Error> {
    let api = stream.device().enter()?;
    // SAFETY: the callers own both ranges until the stream has got there.
    let status = unsafe {
        (api.hipMemcpyAsync)(
            to as *mut c_void,
            from as *const c_void,
            size,
            direction as i32,
            stream.handle(),
        )
    };
    stream.device().check("hipMemcpyAsync", status)
}

/// A rectangle of bytes.
#[derive(Clone, Copy)]
pub struct Rectangle {
    pub address: u64,
    pub pitch: usize,
}

/// Copies `rows` rows of `width` bytes in the order of the stream.
pub fn copy_rectangle(
    stream: &Stream,
    to: Rectangle,
    from: Rectangle,
    width: usize,
    rows: usize,
    direction: Direction,
) -> Result<(), Error> {
    let api = stream.device().enter()?;
    let (to_address, from_address) = (to.address as *mut c_void, from.address as *const c_void);
    // SAFETY: the callers own both ranges until the stream has got there.
    let status = unsafe {
        (api.hipMemcpy2DAsync)(
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

/// Zeroes `size` bytes in the order of the stream.
pub fn zero(stream: &Stream, address: u64, size: usize) -> Result<(), Error> {
    let api = stream.device().enter()?;
    // SAFETY: the callers own the range until the stream has got there.
    let status = unsafe { (api.hipMemsetAsync)(address as *mut c_void, 0, size, stream.handle()) };
    stream.device().check("hipMemsetAsync", status)
}
