// SPDX-License-Identifier: MPL-2.0

//! Ordinary memory that comes again is page-locked where it lies, as far as the [limit](super::limit) goes.
//!
//! A GPU copies page-locked memory on its own, while ordinary memory costs the CPU a copy first, which is most of the cost of
//! such frames. A source that sends frames in ordinary memory has not taken the memory that was offered, but mostly sends few
//! memories in turns: those of a pool. To lock one takes about as long as to copy it some times, so a memory is locked once it
//! has brought some frames, and stays so until it is freed. Memory that is made for each frame never is.
//!
//! The state of a memory hangs on it as GStreamer's qdata, which all elements of the process share. GStreamer frees qdata when
//! the last reference to the memory has gone, before its allocator gets the memory back (`gst_mini_object_unref` calls
//! `free_priv_data` and then `free`, 1.22.0): no page is freed while it is locked. Nor is a GPU copying from it then, as
//! leases keep the memory. Only the whole pages inside are locked: the others have neighbours on them, whose pages cannot be
//! locked twice. Samples on those are copied as before.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};

use glib::ffi::gpointer;
use glib::translate::IntoGlib;
use gpu::{Device, DeviceInfo, Registered, Vendor};
use gst::ClockTime;
use gst::ffi::{GstMemory, gst_mini_object_get_qdata, gst_mini_object_set_qdata};

use super::super::CAT;
use super::limit::{limit, page};

/// Frames that a memory has brought when it is locked. Memory in which there is room for as many is left alone: it could be
/// new for them.
const FRAMES: u32 = 4;
/// After this many refusals in a row, a runtime is not asked again.
const REFUSALS: u32 = 8;

/// The addresses within which the one memory of a buffer is page-locked for this GPU, for as long as the memory lives; `None`
/// if it is not, or not yet.
pub fn locked(buffer: &gst::BufferRef, gpu: &Device) -> Option<Range<usize>> {
    if buffer.n_memory() != 1 || limit() == 0 {
        return None;
    }
    // That of other allocators may lie elsewhere each time it is mapped.
    let memory = Some(buffer.peek_memory(0)).filter(|memory| memory.is_type("SystemMemory"))?;
    // Taken where another element is just locking the memory.
    let mut state = Known::of(memory).0.try_lock().ok()?;
    if let State::Watched { frames, last } = &mut *state {
        // A frame that several elements look at is one.
        if *last != buffer.pts() {
            (*frames, *last) = (*frames + 1, buffer.pts());
        }
        if *frames < FRAMES {
            return None;
        }
        *state = State::lock(memory, gpu)?;
    }
    match &*state {
        State::Locked(Locked(registered)) if registered.info().vendor == gpu.info().vendor => {
            Some(registered.pages().clone())
        }
        _ => None,
    }
}

/// The state of a memory.
struct Known(Mutex<State>);

enum State {
    Watched {
        /// Frames that it has brought.
        frames: u32,
        /// The time of the last of them.
        last: Option<ClockTime>,
    },
    Locked(Locked),
    /// The memory cannot be locked.
    Refused,
}

impl Known {
    /// Returns the state of a memory, or of the one that it is a part of.
    fn of(memory: &gst::MemoryRef) -> &Self {
        static QUARK: OnceLock<glib::Quark> = OnceLock::new();
        static MAKING: Mutex<()> = Mutex::new(());
        let quark = QUARK.get_or_init(|| glib::Quark::from_str("hipvmaf-registered")).into_glib();
        // SAFETY: the memory is live, and keeps its parent.
        let parent = unsafe { (*memory.as_ptr()).parent };
        let whole: *mut GstMemory = if parent.is_null() { memory.as_ptr().cast_mut() } else { parent };
        let _one_at_a_time = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a live memory is a live mini object, whose qdata GStreamer guards. Ours is set here only, where there is
        // none: it is freed with the memory, which the caller holds for as long as what is returned.
        unsafe {
            let mut known = gst_mini_object_get_qdata(whole.cast(), quark).cast::<Self>();
            if known.is_null() {
                let state = State::Watched { frames: 0, last: None };
                known = Box::into_raw(Box::new(Self(Mutex::new(state))));
                gst_mini_object_set_qdata(whole.cast(), quark, known.cast(), Some(forget));
            }
            &*known
        }
    }
}

/// Frees the state of a memory, and unlocks it.
///
/// # Safety
///
/// `known` must be the pointer that was set as qdata, which nothing uses any more.
unsafe extern "C" fn forget(known: gpointer) {
    // SAFETY: made from a box, and freed once.
    drop(unsafe { Box::from_raw(known.cast::<Known>()) });
}

impl State {
    /// Locks a memory; `None` where that is not possible now.
    fn lock(memory: &gst::MemoryRef, gpu: &Device) -> Option<Self> {
        let refusals = refusals(gpu.info());
        let room = memory.maxsize() / memory.size().max(1);
        if refusals.load(Ordering::Relaxed) >= REFUSALS || room >= FRAMES as usize {
            return Some(Self::Refused);
        }
        let first = (memory.map_readable().ok()?.as_ptr() as usize).checked_sub(memory.offset())?;
        let page = page();
        let pages = first.next_multiple_of(page)..(first + memory.maxsize()) / page * page;
        if pages.is_empty() {
            return Some(Self::Refused);
        }
        let fits = |total: usize| total.checked_add(pages.len()).filter(|total| *total <= limit());
        if TOTAL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            static FULL: Once = Once::new();
            FULL.call_once(|| {
                gst::info!(CAT, "no more ordinary memory is page-locked, as {} bytes are", limit())
            });
            return None;
        }
        // SAFETY: the pages are inside of a memory of the system's allocator, which stays in place until it is freed. The
        // returned value is dropped before that, and after all leases under which a GPU reads there.
        match unsafe { Registered::new(gpu, pages.clone()) } {
            Ok(registered) => {
                refusals.store(0, Ordering::Relaxed);
                gst::debug!(CAT, "page-locked {} bytes of ordinary memory", pages.len());
                Some(Self::Locked(Locked(registered)))
            }
            Err(err) => {
                TOTAL.fetch_sub(pages.len(), Ordering::Relaxed);
                match refusals.fetch_add(1, Ordering::Relaxed) + 1 {
                    1 => gst::info!(CAT, "frames in ordinary memory are copied by the CPU first: {err}"),
                    REFUSALS => gst::info!(CAT, "no more ordinary memory is page-locked: {err}"),
                    _ => gst::debug!(CAT, "a memory is not page-locked: {err}"),
                }
                Some(Self::Refused)
            }
        }
    }
}

/// Bytes that are locked in the process.
static TOTAL: AtomicUsize = AtomicUsize::new(0);

/// Memory that is locked, and counted.
struct Locked(Registered);

impl Drop for Locked {
    fn drop(&mut self) {
        TOTAL.fetch_sub(self.0.pages().len(), Ordering::Relaxed);
    }
}

/// Returns the number of refusals in a row by the runtime of a GPU.
fn refusals(info: &DeviceInfo) -> &'static AtomicU32 {
    static REFUSALS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
    &REFUSALS[usize::from(info.vendor == Vendor::Nvidia)]
}
