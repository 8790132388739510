// SPDX-License-Identifier: MPL-2.0

//! Leaving threads as they were found.
//!
//! The runtimes keep for each thread which device is set, or which context is current, and nearly all of their functions
//! work on that. Threads that come here are an application's, which has set its own and takes it for granted afterwards.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;

use hip_sys::{Api, Current, Vendor};

use crate::driver_lock::DriverGuard;

/// What a thread had set when its outermost visit first came to a vendor's runtime.
type Found = Option<(&'static Api, Current)>;

/// The visits of a thread.
struct ThreadContexts {
    depth: Cell<usize>,
    found: [Cell<Found>; 2],
}

thread_local! {
    static CONTEXTS: ThreadContexts = const { ThreadContexts { depth: Cell::new(0), found: [Cell::new(None), Cell::new(None)] } };
}

/// A time in which a thread belongs to this crate, whose functions then set whatever device they need. When the outermost
/// visit ends, the thread has the device again that it had before.
///
/// Every function makes one for itself, so nobody has to. Around many calls it saves asking for the device and setting it
/// again for each of them.
pub struct ContextGuard {
    /// Ends on the thread where it began.
    _thread: PhantomData<*const ()>,
}

impl ContextGuard {
    /// Begins a visit of the calling thread.
    #[expect(clippy::new_without_default, reason = "it begins something")]
    pub fn new() -> Self {
        CONTEXTS.with(|visits| visits.depth.set(visits.depth.get() + 1));
        Self { _thread: PhantomData }
    }

    /// A visit that lasts as long as the thread, which is the program's own: nobody else has set a device there.
    pub fn for_thread() {
        std::mem::forget(Self::new());
    }

    /// Keeps in mind what is set for this thread, before it changes. Where the runtime does not say, there is nothing to put
    /// back.
    pub(crate) fn enter(self, api: &'static Api) -> Entered {
        CONTEXTS.with(|visits| {
            let found = &visits.found[place(api)];
            if found.get().is_none() {
                found.set(api.current().ok().map(|current| (api, current)));
            }
        });
        Entered { api, _lock: None, _context: self }
    }
}

fn place(api: &Api) -> usize {
    usize::from(api.vendor() == Vendor::Nvidia)
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        CONTEXTS.with(|visits| {
            visits.depth.set(visits.depth.get() - 1);
            if visits.depth.get() == 0 {
                for (api, current) in visits.found.iter().filter_map(Cell::take) {
                    // Fails where the device is lost, or whoever has the context has destroyed it meanwhile: there is
                    // nothing to put back then.
                    let _ = api.set_current(current);
                }
            }
        });
    }
}

/// A runtime's functions during a visit, which may be one's turn at the GPU.
pub(crate) struct Entered {
    api: &'static Api,
    _lock: Option<DriverGuard>,
    _context: ContextGuard,
}

impl Entered {
    /// With a turn, until it is dropped.
    pub(crate) fn holding(self, turn: DriverGuard) -> Self {
        Self { _lock: Some(turn), ..self }
    }
}

impl Deref for Entered {
    type Target = Api;

    fn deref(&self) -> &Api {
        self.api
    }
}
