// SPDX-License-Identifier: MPL-2.0

//! Page-locked memory of pictures, from which a GPU copies directly, while a context computes on one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpu::{Device, Pinned};

/// Bytes of page-locked pictures that the process may have; others are in ordinary memory.
const LOCKED_MOST: usize = 1 << 30;

/// The GPUs that contexts compute on, once for each context, of the process with this number.
struct Devices {
    process: u32,
    devices: Vec<Arc<Device>>,
}

static BUSY: Mutex<Devices> = Mutex::new(Devices { process: 0, devices: vec![] });
/// Bytes of page-locked pictures.
static LOCKED: AtomicUsize = AtomicUsize::new(0);

fn busy() -> MutexGuard<'static, Devices> {
    let mut busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
    if busy.process != std::process::id() {
        // A child after `fork` has no GPU, and need not have the page-locked memory of its parent.
        std::mem::forget(std::mem::take(&mut busy.devices));
        busy.process = std::process::id();
    }
    busy
}

/// Counts a context that computes on a GPU until it is dropped.
pub struct Busy(Option<Arc<Device>>);

impl Busy {
    /// Counts a context that computes on this GPU.
    pub fn on(device: Option<Arc<Device>>) -> Self {
        busy().devices.extend(device.clone());
        Self(device)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut busy = busy();
        let same = |other: &Arc<Device>| self.0.as_ref().is_some_and(|device| Arc::ptr_eq(device, other));
        let device = busy.devices.iter().position(same).map(|at| busy.devices.swap_remove(at));
        // The last user closes the GPU, which others do not wait for.
        drop(busy);
        drop(device);
    }
}

/// Page-locked memory of a picture. Idle blocks are kept by the GPU for some seconds, and used again.
pub struct Locked {
    memory: Pinned,
    size: usize,
}

impl Locked {
    /// Takes zeroed memory, if a context computes on a GPU and there are not too many such pictures.
    pub fn new(size: usize) -> Option<Self> {
        let device = busy().devices.last().cloned()?;
        let more = |all: usize| all.checked_add(size).filter(|all| *all <= LOCKED_MOST);
        LOCKED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        match Pinned::new(device, size) {
            Ok(mut memory) => {
                memory.bytes_mut().fill(0);
                Some(Self { memory, size })
            }
            Err(_) => {
                LOCKED.fetch_sub(size, Ordering::Relaxed);
                None
            }
        }
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> usize {
        self.memory.address() as usize
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        LOCKED.fetch_sub(self.size, Ordering::Relaxed);
    }
}
