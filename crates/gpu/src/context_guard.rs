// SPDX-License-Identifier: MPL-2.0

//! Restores the device or context of the calling thread.
//!
//! The runtimes keep a current device or context for each thread, and nearly all of their functions use it. The threads
//! that call this crate belong to an application, which expects its own device to stay current.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;

use hip_sys::{Api, Current, Vendor};

use crate::driver_lock::DriverGuard;

/// The device or context that a thread had before this crate changed it.
type Found = Option<(&'static Api, Current)>;

/// The guards of a thread.
struct ThreadContexts {
    depth: Cell<usize>,
    found: [Cell<Found>; 2],
}

thread_local! {
    static CONTEXTS: ThreadContexts = const { ThreadContexts { depth: Cell::new(0), found: [Cell::new(None), Cell::new(None)] } };
}

/// Allows this crate to change the current device of a thread. When the outermost guard of the thread is dropped, the
/// earlier device is current again.
///
/// Every function of this crate makes its own guard. An outer guard around many calls saves querying and setting the
/// device for each of them.
pub struct ContextGuard {
    /// Keeps the guard on its thread.
    _thread: PhantomData<*const ()>,
}

impl ContextGuard {
    /// Begins a guard for the calling thread.
    #[expect(clippy::new_without_default, reason = "it begins something")]
    pub fn new() -> Self {
        CONTEXTS.with(|visits| visits.depth.set(visits.depth.get() + 1));
        Self { _thread: PhantomData }
    }

    /// Begins a guard that is never dropped, for threads that belong to this program.
    pub fn for_thread() {
        std::mem::forget(Self::new());
    }

    /// Saves the current device before it changes. If the runtime does not report it, nothing is restored.
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
                    // Fails if the device is lost or the application has destroyed the context. Then there is nothing
                    // to restore.
                    let _ = api.set_current(current);
                }
            }
        });
    }
}

/// The functions of a runtime under a guard, with the driver lock if it is needed.
pub(crate) struct Entered {
    api: &'static Api,
    _lock: Option<DriverGuard>,
    _context: ContextGuard,
}

impl Entered {
    /// Holds the driver lock as well until it is dropped.
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
