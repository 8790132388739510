// SPDX-License-Identifier: MPL-2.0

//! Memory that blocks its reader until the test opens a gate. It stops the element in the middle of its work on a frame, on
//! whichever thread that is.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;

use super::Input;

/// The limit of a wait, above that of any test, so that a failed test ends.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Default)]
struct State {
    open: bool,
    /// How often memory was mapped and unmapped.
    mapped: usize,
    unmapped: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Waits for a condition. Returns false after the time limit.
    fn wait(&self, limit: Duration, until: impl Fn(&State) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), limit, |state| !until(state));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// A gate that opens when it is dropped. Maps of its frames block before that.
pub struct Gate(Arc<Shared>);

impl Gate {
    pub fn closed() -> Self {
        Self(Arc::default())
    }

    /// Returns an open gate, which only counts.
    pub fn open_from_the_start() -> Self {
        let gate = Self::closed();
        gate.open();
        gate
    }

    pub fn open(&self) {
        self.0.change(|state| state.open = true);
    }

    /// Waits until a frame is being read.
    #[track_caller]
    pub fn wait_until_read(&self) {
        let read = self.0.wait(Duration::from_secs(60), |state| state.mapped > 0);
        assert!(read, "the frame was not read within a minute");
    }

    /// Returns true while a frame is being read.
    pub fn is_being_read(&self) -> bool {
        let state = self.0.state();
        state.mapped > state.unmapped
    }

    /// Returns the frames in memory behind the gate.
    pub fn input(&self, input: &Input) -> Input {
        let allocator: GateAllocator = glib::Object::new();
        let shared = &self.0;
        let memory = |bytes: &[u8]| allocator.memory(bytes, shared.clone());
        input.moved("memory:SystemMemory", memory)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

#[repr(C)]
struct Memory {
    memory: gst::ffi::GstMemory,
    bytes: Vec<u8>,
    shared: Arc<Shared>,
}

mod imp {
    use super::*;
    use gst::ffi;

    #[derive(Default)]
    pub struct GateAllocator;

    #[glib::object_subclass]
    impl ObjectSubclass for GateAllocator {
        const NAME: &'static str = "GateAllocator";
        type Type = super::GateAllocator;
        type ParentType = gst::Allocator;

        fn instance_init(obj: &glib::subclass::InitializingObject<Self>) {
            let allocator = obj.as_ptr().cast::<ffi::GstAllocator>();
            // SAFETY: a new allocator without other references.
            unsafe {
                (*allocator).mem_map = Some(map);
                (*allocator).mem_unmap = Some(unmap);
            }
        }
    }

    /// # Safety
    ///
    /// As everything that GStreamer calls with memory: it must be of this allocator.
    unsafe extern "C" fn map(memory: *mut ffi::GstMemory, _: usize, _: ffi::GstMapFlags) -> *mut c_void {
        // SAFETY: memory of this allocator, which its user keeps while mapping it.
        let memory = unsafe { &*memory.cast::<Memory>() };
        memory.shared.change(|state| state.mapped += 1);
        memory.shared.wait(LIMIT, |state| state.open);
        memory.bytes.as_ptr().cast_mut().cast()
    }

    /// # Safety
    ///
    /// As everything that GStreamer calls with memory: it must be of this allocator.
    unsafe extern "C" fn unmap(memory: *mut ffi::GstMemory) {
        // SAFETY: memory of this allocator, which its user keeps while unmapping it.
        unsafe { &*memory.cast::<Memory>() }.shared.change(|state| state.unmapped += 1);
    }

    impl ObjectImpl for GateAllocator {}
    impl GstObjectImpl for GateAllocator {}
    // SAFETY: memory is made in `GateAllocator::memory` and freed here.
    unsafe impl AllocatorImpl for GateAllocator {
        unsafe fn free(&self, memory: *mut ffi::GstMemory) {
            // SAFETY: made by `memory`, and freed once.
            drop(unsafe { Box::from_raw(memory.cast::<Memory>()) });
        }
    }
}

glib::wrapper! {
    /// The allocator of [`Gate::input`].
    pub struct GateAllocator(ObjectSubclass<imp::GateAllocator>) @extends gst::Allocator, gst::Object;
}

impl GateAllocator {
    fn memory(&self, bytes: &[u8], shared: Arc<Shared>) -> gst::Memory {
        // SAFETY: a plain C structure, initialised right below.
        let memory = Memory { memory: unsafe { std::mem::zeroed() }, bytes: bytes.to_vec(), shared };
        let memory = Box::into_raw(Box::new(memory)).cast();
        // SAFETY: as `gst_memory_init` has it. Parts would have to be memory of their own.
        unsafe {
            gst::ffi::gst_memory_init(
                memory,
                gst::ffi::GST_MEMORY_FLAG_NO_SHARE,
                self.upcast_ref::<gst::Allocator>().as_ptr(),
                std::ptr::null_mut(),
                bytes.len(),
                0,
                0,
                bytes.len(),
            );
            glib::translate::from_glib_full(memory)
        }
    }
}
