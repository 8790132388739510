// SPDX-License-Identifier: MPL-2.0

//! Page-locked memory for upstream to write frames into: a GPU copies them from there on its own.

use std::sync::Arc;

use glib::subclass::prelude::*;
use gpu::Device;
use gst::prelude::*;

mod imp {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use glib::ffi::gpointer;
    use glib::translate::*;
    use gpu::Pinned;
    use gst::ffi::{self, GstMemory};
    use gst::subclass::prelude::*;
    use gst::{AllocationParams, Allocator, MemoryFlags};

    use super::super::super::CAT;
    use super::*;

    /// 40 frames of 4K with 10 bits. The kernel cannot swap locked memory out, so there has to be an end.
    const DEFAULT_MAX_SIZE: u64 = 1 << 30;
    /// Blocks begin at a page.
    const ALIGNMENT: usize = 4096;

    /// A whole block, or a part of the one that `memory.parent` has.
    #[repr(C)]
    struct Memory {
        memory: GstMemory,
        /// First byte of the block.
        data: gpointer,
        block: Option<Pinned>,
    }

    impl Memory {
        /// Makes a zeroed memory of this allocator, which the caller passes to `gst_memory_init`.
        fn allocate(data: gpointer, block: Option<Pinned>) -> *mut GstMemory {
            // SAFETY: a plain C structure, for which zeros are as good as anything before it is initialised.
            let memory = unsafe { std::mem::zeroed() };
            Box::into_raw(Box::new(Self { memory, data, block })).cast()
        }
    }

    /// Maps a memory for the CPU: says where its block begins.
    ///
    /// # Safety
    ///
    /// The memory must be of this allocator, as GStreamer sees to.
    unsafe extern "C" fn map(memory: *mut GstMemory, _maxsize: usize, _flags: ffi::GstMapFlags) -> gpointer {
        // SAFETY: memory of this allocator is a `Memory`.
        unsafe { (*memory.cast::<Memory>()).data }
    }

    /// Ends a mapping, which takes nothing.
    ///
    /// # Safety
    ///
    /// The memory must be of this allocator, as GStreamer sees to.
    unsafe extern "C" fn unmap(_memory: *mut GstMemory) {}

    /// A part of `memory` as a memory of its own; a `size` of -1 means all that follows.
    ///
    /// # Safety
    ///
    /// The memory must be of this allocator, as GStreamer sees to, and the part inside it.
    unsafe extern "C" fn share(memory: *mut GstMemory, offset: isize, size: isize) -> *mut GstMemory {
        // SAFETY: memory of this allocator is a `Memory`, and its parent lives as long as itself.
        unsafe {
            let whole = if (*memory).parent.is_null() { memory } else { (*memory).parent };
            let size = if size == -1 { (*memory).size.wrapping_add_signed(-offset) } else { size as usize };
            let part = Memory::allocate((*memory.cast::<Memory>()).data, None);
            ffi::gst_memory_init(
                part,
                (*whole).mini_object.flags | ffi::GST_MINI_OBJECT_FLAG_LOCK_READONLY,
                (*memory).allocator,
                whole,
                (*memory).maxsize,
                (*memory).align,
                (*memory).offset.wrapping_add_signed(offset),
                size,
            );
            part
        }
    }

    #[derive(glib::Properties)]
    #[properties(wrapper_type = super::PinnedAllocator)]
    pub struct PinnedAllocator {
        pub(super) device: OnceLock<Arc<Device>>,
        #[property(name = "max-size", get = |this: &Self| this.max_size.load(Ordering::Relaxed),
            set = |this: &Self, size| this.max_size.store(size, Ordering::Relaxed), type = u64,
            default = DEFAULT_MAX_SIZE, nick = "Maximum size",
            blurb = "Bytes that may be page-locked at a time; beyond that, memory is ordinary")]
        max_size: AtomicU64,
        /// Bytes that are handed out.
        used: AtomicU64,
    }

    impl Default for PinnedAllocator {
        fn default() -> Self {
            Self { device: OnceLock::new(), max_size: DEFAULT_MAX_SIZE.into(), used: 0.into() }
        }
    }

    #[glib::object_subclass]
    impl ObjectSubclass for PinnedAllocator {
        const NAME: &'static str = "GstHipVmafPinnedAllocator";
        type Type = super::PinnedAllocator;
        type ParentType = Allocator;

        fn instance_init(obj: &glib::subclass::InitializingObject<Self>) {
            let allocator = obj.as_ptr().cast::<ffi::GstAllocator>();
            // SAFETY: the instance is a GstAllocator that no other thread has seen.
            unsafe {
                (*allocator).mem_type = c"HipVmafPinnedMemory".as_ptr();
                (*allocator).mem_map = Some(map);
                (*allocator).mem_unmap = Some(unmap);
                (*allocator).mem_share = Some(share);
            }
        }
    }

    #[glib::derived_properties]
    impl ObjectImpl for PinnedAllocator {}
    impl GstObjectImpl for PinnedAllocator {}

    impl PinnedAllocator {
        /// A block of page-locked memory of `size` bytes; `None` where there is none left, or no more is allowed.
        fn block(&self, size: usize) -> Option<Pinned> {
            let bytes = size as u64;
            let max = self.max_size.load(Ordering::Relaxed);
            let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= max);
            if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
                gst::debug!(CAT, imp = self, "{max} bytes of page-locked memory are in use");
                return None;
            }
            let block = self.device.get().map(|device| Pinned::new(device.clone(), size));
            // Memory that is given back stays locked for a while, to be used again.
            if let Some(device) = self.device.get() {
                let left = max.saturating_sub(self.used.load(Ordering::Relaxed));
                device.limit_idle_locked(usize::try_from(left).unwrap_or(usize::MAX));
            }
            if let Some(Err(err)) = &block {
                gst::warning!(CAT, imp = self, "frames go into ordinary memory: {err}");
            }
            let block = block.and_then(Result::ok);
            if block.is_none() {
                self.used.fetch_sub(bytes, Ordering::Relaxed);
            }
            block
        }
    }

    // SAFETY: memory is made and freed as GstAllocator has it.
    unsafe impl AllocatorImpl for PinnedAllocator {
        unsafe fn alloc(&self, size: usize, params: &AllocationParams) -> *mut GstMemory {
            let maxsize =
                size.checked_add(params.prefix()).and_then(|size| size.checked_add(params.padding()));
            let block = maxsize
                .filter(|_| params.align() < ALIGNMENT)
                .and_then(|maxsize| Some((maxsize, self.block(maxsize)?)));
            let Some((maxsize, block)) = block else {
                // SAFETY: what was asked of us is asked of the system's allocator.
                return unsafe {
                    ffi::gst_allocator_alloc(std::ptr::null_mut(), size, params.as_ptr().cast_mut())
                };
            };
            let data = block.address() as *mut u8;
            let zero = |flag, at, size| {
                if params.flags().contains(flag) {
                    // SAFETY: inside of the block, which no other thread has.
                    unsafe { data.add(at).write_bytes(0, size) };
                }
            };
            zero(MemoryFlags::ZERO_PREFIXED, 0, params.prefix());
            zero(MemoryFlags::ZERO_PADDED, params.prefix() + size, params.padding());
            let memory = Memory::allocate(data.cast(), Some(block));
            // SAFETY: new, and the range is that of the block.
            unsafe {
                ffi::gst_memory_init(
                    memory,
                    params.flags().into_glib(),
                    self.obj().upcast_ref::<Allocator>().as_ptr(),
                    std::ptr::null_mut(),
                    maxsize,
                    params.align(),
                    params.prefix(),
                    size,
                );
            }
            memory
        }

        unsafe fn free(&self, memory: *mut GstMemory) {
            // SAFETY: made by `Memory::allocate`, and freed once.
            let memory = unsafe { Box::from_raw(memory.cast::<Memory>()) };
            if memory.block.is_some() {
                self.used.fetch_sub(memory.memory.maxsize as u64, Ordering::Relaxed);
            }
        }
    }
}

glib::wrapper! {
    /// Hands out page-locked memory of one GPU's runtime, and ordinary memory when there is none left.
    pub struct PinnedAllocator(ObjectSubclass<imp::PinnedAllocator>) @extends gst::Allocator, gst::Object;
}

impl PinnedAllocator {
    pub fn new(device: Arc<Device>) -> Self {
        let allocator: Self = glib::Object::new();
        allocator.imp().device.get_or_init(|| device);
        allocator
    }

    /// The GPU whose runtime locks the memory.
    pub fn device(&self) -> Option<&Arc<Device>> {
        self.imp().device.get()
    }

    /// Returns true if a buffer is one memory of ours that the GPU can read on its own: locked by the GPU's runtime.
    pub fn has_made(buffer: &gst::BufferRef, gpu: &Device) -> bool {
        let ours = |memory: &gst::MemoryRef| memory.allocator()?.downcast_ref::<Self>()?.device().cloned();
        buffer.n_memory() == 1
            && buffer
                .iter_memories()
                .next()
                .and_then(ours)
                .is_some_and(|device| device.info().vendor == gpu.info().vendor)
    }
}
