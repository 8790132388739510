// SPDX-License-Identifier: MPL-2.0

//! Frames that are in the memory of a GPU already. None of the libraries they come from is linked: memory is known
//! by the name of its type, and the libraries' functions are looked up where the process has loaded them.

use std::ffi::{CStr, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::frame::DeviceAddress;
use gpu::{Device, DeviceInfo, External, Inode, Vendor, owner};
use gst::ffi::{GST_MAP_FLAG_LAST, GST_MAP_READ, GstMapInfo, GstMemory};
use gst_allocators::DmaBufMemory;
use gst_video::{VideoInfo, VideoMeta};

/// Maps the device's side of HIP and CUDA memory: the first flag of an allocator's own. System memory ignores it
/// and is mapped for the CPU, so it proves nothing.
const MAP_READ_DEVICE: u32 = GST_MAP_READ | (GST_MAP_FLAG_LAST << 1);

/// Kind of memory that frames are in, if not the system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Hip,
    Cuda,
    DmaBuf,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Hip, Self::Cuda, Self::DmaBuf];

    /// The caps feature that names this kind of memory.
    pub fn feature(self) -> &'static str {
        match self {
            Self::Hip => "memory:HIPMemory",
            Self::Cuda => "memory:CUDAMemory",
            Self::DmaBuf => "memory:DMABuf",
        }
    }

    /// Returns the element that brings frames from there to system memory.
    pub fn download(self) -> &'static str {
        match self {
            Self::Hip => "hipdownload",
            Self::Cuda => "cudadownload",
            Self::DmaBuf => "vapostproc",
        }
    }

    /// Returns true if a GPU can have memory of this kind, or read it.
    pub fn suits(self, gpu: &DeviceInfo) -> bool {
        match self {
            Self::Hip => true,
            Self::Cuda => gpu.vendor == Vendor::Nvidia,
            Self::DmaBuf => gpu.imports_external_memory(),
        }
    }

    /// Returns the kind of all the memory of a buffer.
    pub fn of(buffer: &gst::BufferRef) -> Option<Self> {
        let of = |memory: &gst::MemoryRef| {
            if memory.is_type("HIPMemory") {
                Some(Self::Hip)
            } else if memory.is_type("gst.cuda.memory") {
                Some(Self::Cuda)
            } else {
                memory.downcast_memory_ref::<DmaBufMemory>().map(|_| Self::DmaBuf)
            }
        };
        let mut kinds = buffer.iter_memories().map(of);
        let first = kinds.next()??;
        kinds.all(|kind| kind == Some(first)).then_some(first)
    }
}

/// Why a frame in device memory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DeviceMemoryError {
    #[error("which cannot be mapped for the GPU")]
    Map,
    #[error("which is that of the {0}, while frames are scored on the {1}")]
    Elsewhere(String, String),
    #[error("whose producer does not finish")]
    Fence,
    #[error("which cannot be imported: {0}")]
    Import(#[from] gpu::Error),
}

/// A memory that is mapped for the GPU, or imported.
enum Hold {
    Mapped(GstMapInfo, gst::Memory),
    Imported(Arc<External>),
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Self::Mapped(info, memory) = self {
            // SAFETY: mapped with this information, and once.
            unsafe { gst::ffi::gst_memory_unmap(memory.as_mut_ptr(), info) };
        }
    }
}

impl Hold {
    fn map(memory: gst::Memory) -> Result<Self, DeviceMemoryError> {
        let mut info = MaybeUninit::zeroed();
        // SAFETY: the memory is live, and the information is filled if it could be mapped.
        let mapped =
            unsafe { gst::ffi::gst_memory_map(memory.as_mut_ptr(), info.as_mut_ptr(), MAP_READ_DEVICE) };
        if mapped == glib::ffi::GFALSE {
            return Err(DeviceMemoryError::Map);
        }
        // SAFETY: filled, as it could be mapped.
        Ok(Self::Mapped(unsafe { info.assume_init() }, memory))
    }

    /// Device address of the first byte.
    fn address(&self) -> u64 {
        match self {
            Self::Mapped(info, _) => info.data as u64,
            Self::Imported(external) => external.address(),
        }
    }
}

/// One memory of a buffer.
struct Segment {
    /// Offset of its first byte in the buffer.
    start: usize,
    size: usize,
    address: u64,
    _hold: Hold,
}

/// The bytes of a plane, and what follows it in its memory.
#[derive(Clone, Copy)]
pub struct DevicePlane {
    pub address: DeviceAddress,
    pub size: usize,
    pub stride: usize,
}

/// A buffer whose samples a GPU can read.
pub struct DeviceFrame {
    segments: Vec<Segment>,
    /// Offset and stride of each plane.
    planes: Vec<(usize, i32)>,
    /// The streams that its memories were written on, as far as that may not be done.
    pub producers: Vec<usize>,
    /// Kernels can read it where it is.
    pub in_place: bool,
    /// After the segments, so that it goes back to its pool unmapped.
    _buffer: gst::Buffer,
}

// SAFETY: addresses that stay valid until all is dropped, which any thread may do.
unsafe impl Send for DeviceFrame {}
// SAFETY: as above.
unsafe impl Sync for DeviceFrame {}

impl DeviceFrame {
    /// Maps a buffer in the memory of this GPU.
    pub fn map(
        buffer: gst::Buffer,
        kind: Kind,
        info: &VideoInfo,
        gpu: &Device,
    ) -> Result<Self, DeviceMemoryError> {
        let mut producers = vec![];
        let segments = segments(&buffer, |memory| {
            let raw = memory.as_mut_ptr();
            let hold = Hold::map(memory)?;
            let address = hold.address();
            if !gpu.info().owns(address) {
                let other = owner(address).map_or("host".into(), ToString::to_string);
                return Err(DeviceMemoryError::Elsewhere(other, gpu.info().to_string()));
            }
            producers.extend(await_producer(kind, raw, address, gpu)?);
            Ok((address, hold))
        })?;
        // A kernel of ours runs in a context of its own, to which other contexts' memory is foreign.
        Ok(Self {
            segments,
            planes: planes(&buffer, info),
            producers,
            in_place: kind == Kind::Hip,
            _buffer: buffer,
        })
    }

    /// Imports a DMA buffer once its producer is done. The kernels do not read it where it is: it may be at the far end of a
    /// bus.
    pub fn import(
        buffer: gst::Buffer,
        info: &VideoInfo,
        gpu: &Arc<Device>,
        cache: &mut ImportCache,
    ) -> Result<Self, DeviceMemoryError> {
        let segments = segments(&buffer, |memory| {
            let fd = memory.downcast_memory_ref::<DmaBufMemory>().ok_or(DeviceMemoryError::Map)?.fd();
            let external = cache.import(gpu, fd, memory.maxsize())?;
            await_fence(fd)?;
            Ok((external.address() + memory.offset() as u64, Hold::Imported(external)))
        })?;
        Ok(Self {
            segments,
            planes: planes(&buffer, info),
            producers: vec![],
            in_place: false,
            _buffer: buffer,
        })
    }

    /// Address and size of a plane in device memory; `None` where the buffer has none of it.
    pub fn plane(&self, index: u32) -> Option<DevicePlane> {
        let (offset, stride) = *self.planes.get(index as usize)?;
        let segment = self.segments.iter().find(|s| (s.start..s.start + s.size).contains(&offset))?;
        let inside = offset - segment.start;
        // SAFETY: the GPU's own memory, or imported for it, as far as the size says; held with `self`.
        let address = unsafe { DeviceAddress::new(segment.address + inside as u64) };
        Some(DevicePlane { address, size: segment.size - inside, stride: usize::try_from(stride).ok()? })
    }
}

/// Holds each memory of a buffer.
fn segments(
    buffer: &gst::Buffer,
    mut hold: impl FnMut(gst::Memory) -> Result<(u64, Hold), DeviceMemoryError>,
) -> Result<Vec<Segment>, DeviceMemoryError> {
    let mut start = 0;
    buffer
        .iter_memories_owned()
        .map(|memory| {
            let size = memory.size();
            let (address, hold) = hold(memory)?;
            start += size;
            Ok(Segment { start: start - size, size, address, _hold: hold })
        })
        .collect()
}

fn planes(buffer: &gst::BufferRef, info: &VideoInfo) -> Vec<(usize, i32)> {
    let (offsets, strides) = match buffer.meta::<VideoMeta>() {
        Some(meta) => (meta.offset().to_vec(), meta.stride().to_vec()),
        None => (info.offset().to_vec(), info.stride().to_vec()),
    };
    offsets.into_iter().zip(strides).collect()
}

/// The GPU in whose memory a buffer lies, for kinds that name one.
pub fn gpu_of(buffer: &gst::BufferRef) -> Option<&'static DeviceInfo> {
    Kind::of(buffer).filter(|kind| *kind != Kind::DmaBuf)?;
    owner(Hold::map(buffer.memory(0)?).ok()?.address())
}

/// Functions of the library that a kind of memory comes from, as far as its release has them.
#[derive(Default)]
struct Producer {
    memory_stream: Option<unsafe extern "C" fn(*mut GstMemory) -> *mut c_void>,
    stream_handle: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
    memory_sync: Option<unsafe extern "C" fn(*mut GstMemory)>,
}

impl Producer {
    /// `None` where the process has not loaded the library.
    fn find(library: &CStr, [stream, handle, sync]: [&CStr; 3]) -> Option<Self> {
        // SAFETY: nothing is loaded that is not, and so no initialiser is run. The library is never closed.
        let library = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        // SAFETY: the library is open, and these are the types of the functions in its headers.
        let found = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
        // SAFETY: as above; a null pointer is `None`.
        (!library.is_null()).then(|| unsafe {
            Self {
                memory_stream: std::mem::transmute::<*mut c_void, Option<_>>(found(stream)),
                stream_handle: std::mem::transmute::<*mut c_void, Option<_>>(found(handle)),
                memory_sync: std::mem::transmute::<*mut c_void, Option<_>>(found(sync)),
            }
        })
    }

    fn of(kind: Kind) -> &'static Self {
        static HIP: OnceLock<Producer> = OnceLock::new();
        static CUDA: OnceLock<Producer> = OnceLock::new();
        match kind {
            Kind::Hip => HIP.get_or_init(|| {
                let names =
                    [c"gst_hip_memory_get_stream", c"gst_hip_stream_get_handle", c"gst_hip_memory_sync"];
                Self::find(c"libgsthip-1.0.so.0", names).unwrap_or_default()
            }),
            _ => CUDA.get_or_init(|| {
                let names =
                    [c"gst_cuda_memory_get_stream", c"gst_cuda_stream_get_handle", c"gst_cuda_memory_sync"];
                Self::find(c"libgstcuda-1.0.so.0", names).unwrap_or_default()
            }),
        }
    }
}

/// The stream on which memory is being written, or `None` once it has been waited for.
fn await_producer(
    kind: Kind,
    memory: *mut GstMemory,
    address: u64,
    gpu: &Device,
) -> Result<Option<usize>, gpu::Error> {
    let producer = Producer::of(kind);
    if let (Some(memory_stream), Some(stream_handle)) = (producer.memory_stream, producer.stream_handle) {
        // SAFETY: memory of the library's own type.
        let stream = unsafe { memory_stream(memory) };
        if !stream.is_null() {
            // SAFETY: a stream of the library, which the memory keeps.
            return Ok(Some(unsafe { stream_handle(stream) } as usize));
        }
    } else if let Some(memory_sync) = producer.memory_sync {
        // SAFETY: memory of the library's own type.
        unsafe { memory_sync(memory) };
        return Ok(None);
    }
    gpu.synchronize_owner(address)?;
    Ok(None)
}

/// Longer than any frame takes to be written.
const FENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until a DMA buffer can be read.
fn await_fence(fd: RawFd) -> Result<(), DeviceMemoryError> {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: one entry, valid for writes.
        match unsafe { libc::poll(&mut poll, 1, FENCE_TIMEOUT.as_millis() as i32) } {
            0 => return Err(DeviceMemoryError::Fence),
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            // A descriptor that cannot be waited for has no fence.
            _ => return Ok(()),
        }
    }
}

/// Imported buffers, the oldest first, so that the few buffers of a pool are imported once each.
#[derive(Default)]
pub struct ImportCache(Vec<(Inode, usize, Arc<External>)>);

impl ImportCache {
    /// More than pools have; imports beyond that are forgotten.
    const MAX: usize = 64;

    fn import(&mut self, gpu: &Arc<Device>, fd: RawFd, size: usize) -> Result<Arc<External>, gpu::Error> {
        let inode = Inode::of(fd)?;
        let known = |entry: &&(Inode, usize, Arc<External>)| {
            (entry.0, entry.1) == (inode, size) && entry.2.is_on(gpu)
        };
        if let Some((.., external)) = self.0.iter().find(known) {
            return Ok(external.clone());
        }
        // SAFETY: the memory that has it keeps it open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let external = Arc::new(External::import(gpu, fd, size)?);
        if self.0.len() == Self::MAX {
            self.0.remove(0);
        }
        self.0.push((inode, size, external.clone()));
        Ok(external)
    }
}
