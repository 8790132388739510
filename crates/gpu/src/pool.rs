// SPDX-License-Identifier: MPL-2.0

//! The memory pool: idle memory to be used again, and memory to be freed. The runtimes wait for all streams of the
//! process when memory is freed, so a separate thread does it ([`deferred_free`](crate::deferred_free)).

use std::collections::VecDeque;
use std::ffi::{c_uint, c_void};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use hip_sys::{
    Api, HipError, hipExternalMemory_t, hipHostMallocCoherent, hipHostMallocMapped, hipHostMallocPortable,
};

/// The kind of memory of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MemoryKind {
    /// Device memory.
    Device,
    /// Page-locked host memory for copies.
    Host,
    /// Page-locked host memory that kernels read and write. On AMD, memory for copies is cached by the GPU: data that
    /// kernels write there is visible after waiting for the stream, but not necessarily after an event.
    Coherent,
}

const COHERENT: c_uint = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent;

impl MemoryKind {
    /// Allocates a block. Returns the called function and its status as well. Host memory has to be filled before the
    /// CPU reads it.
    pub(crate) fn allocate(self, api: &Api, size: usize) -> (&'static str, HipError, *mut c_void) {
        let mut address = std::ptr::null_mut();
        // SAFETY: the address is valid for a write.
        let (call, status) = unsafe {
            match self {
                Self::Device => ("hipMalloc", api.hipMalloc(&mut address, size)),
                Self::Host => ("hipHostMalloc", api.hipHostMalloc(&mut address, size, hipHostMallocPortable)),
                Self::Coherent => ("hipHostMalloc", api.hipHostMalloc(&mut address, size, COHERENT)),
            }
        };
        (call, status, address)
    }

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// The address must be one that `allocate` returned for this kind, and must no longer be used.
    unsafe fn free(self, api: &Api, address: NonNull<c_void>) {
        // SAFETY: the caller has promised that the block is of this kind, live and unused. There is nothing to do about
        // an error.
        let _ = unsafe {
            match self {
                Self::Device => api.hipFree(address.as_ptr()),
                Self::Host | Self::Coherent => api.hipHostFree(address.as_ptr()),
            }
        };
    }
}

/// How long a block stays idle before it is freed. Frames of another size come and go within seconds, and pipelines are
/// restarted at once or much later.
pub(crate) const IDLE_BLOCK_LIFETIME: Duration = Duration::from_secs(5);

/// An idle block.
struct Idle {
    kind: MemoryKind,
    size: usize,
    address: NonNull<c_void>,
    since: Instant,
}

impl Idle {
    fn into_waste(self) -> Waste {
        Waste::Block(self.kind, self.address)
    }
}

/// Memory to be freed.
pub(crate) enum Waste {
    Block(MemoryKind, NonNull<c_void>),
    /// Imported memory, with the address of its mapping, or null.
    Import(hipExternalMemory_t, *mut c_void),
}

// SAFETY: the handles and addresses are owned, and any thread may free them.
unsafe impl Send for Waste {}

impl Waste {
    /// Frees it on the current device of this thread.
    ///
    /// # Safety
    ///
    /// It must be live and no longer used.
    pub(crate) unsafe fn free(self, api: &Api) {
        match self {
            // SAFETY: the caller has promised that the block is live and unused.
            Self::Block(kind, address) => unsafe { kind.free(api, address) },
            // In this order, as AMD's own libraries do: the mapping is an object of its own, which the memory's end alone
            // would leave behind, and which must not outlive it. AMD's runtime frees it once all streams of the device are
            // done. SAFETY: the caller has promised that both are live and unused. There is nothing to do about an error.
            Self::Import(memory, address) => unsafe {
                if !address.is_null() {
                    let _ = api.hipFree(address);
                }
                let _ = api.hipDestroyExternalMemory(memory);
            },
        }
    }
}

/// Memory that is not in use.
#[derive(Default)]
pub(crate) struct Pool {
    /// Blocks that may be used again, the longest idle first.
    idle: VecDeque<Idle>,
    /// Memory to be freed.
    waste: Vec<Waste>,
    /// The device is being closed.
    pub(crate) closed: bool,
}

// SAFETY: the addresses are of memory that belongs to the pool alone, and any thread may free it.
unsafe impl Send for Pool {}

impl Pool {
    /// Takes an idle block of this size, the most recently used one, so that surplus blocks grow old.
    pub(crate) fn take(&mut self, kind: MemoryKind, size: usize) -> Option<NonNull<c_void>> {
        let last = self.idle.iter().rposition(|idle| (idle.kind, idle.size) == (kind, size))?;
        self.idle.remove(last).map(|idle| idle.address)
    }

    /// Takes a block back.
    ///
    /// # Safety
    ///
    /// The block must be of this kind and size, live, and no longer used.
    pub(crate) unsafe fn put(
        &mut self,
        kind: MemoryKind,
        size: usize,
        address: NonNull<c_void>,
        since: Instant,
    ) {
        self.idle.push_back(Idle { kind, size, address, since });
    }

    /// Queues memory to be freed.
    ///
    /// # Safety
    ///
    /// It must be live and no longer used.
    pub(crate) unsafe fn discard(&mut self, waste: Waste) {
        self.waste.push(waste);
    }

    /// Queues page-locked blocks to be freed until at most `limit` bytes of them are idle, the longest idle first.
    /// Returns false if there were none.
    pub(crate) fn limit_locked(&mut self, limit: usize) -> bool {
        let mut locked: usize =
            self.idle.iter().filter(|idle| idle.kind != MemoryKind::Device).map(|idle| idle.size).sum();
        let Self { idle, waste, .. } = self;
        let before = waste.len();
        idle.retain(|idle| {
            let excess = idle.kind != MemoryKind::Device && locked > limit;
            if excess {
                locked -= idle.size;
                waste.push(Waste::Block(idle.kind, idle.address));
            }
            !excess
        });
        waste.len() > before
    }

    pub(crate) fn has_waste(&self) -> bool {
        !self.waste.is_empty()
    }

    /// Takes the memory that was queued to be freed.
    pub(crate) fn take_waste(&mut self) -> Vec<Waste> {
        std::mem::take(&mut self.waste)
    }

    /// Takes a block that was idle for too long.
    pub(crate) fn take_old(&mut self, now: Instant) -> Option<Waste> {
        self.has_old(now).then(|| self.idle.pop_front()).flatten().map(Idle::into_waste)
    }

    pub(crate) fn has_old(&self, now: Instant) -> bool {
        self.idle.front().is_some_and(|idle| now.saturating_duration_since(idle.since) >= IDLE_BLOCK_LIFETIME)
    }

    /// Takes all memory, to be freed.
    pub(crate) fn all(&mut self) -> Vec<Waste> {
        self.waste.extend(self.idle.drain(..).map(Idle::into_waste));
        self.take_waste()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> NonNull<c_void> {
        NonNull::new(std::ptr::without_provenance_mut(number)).unwrap()
    }

    /// Puts a block with this address and size, which the tests never free.
    fn put(pool: &mut Pool, kind: MemoryKind, size: usize, number: usize, since: Instant) {
        // SAFETY: the tests free nothing.
        unsafe { pool.put(kind, size, address(number), since) };
    }

    fn numbers(waste: Vec<Waste>) -> Vec<usize> {
        let number = |waste| match waste {
            Waste::Block(_, address) => address.as_ptr().addr(),
            Waste::Import(memory, _) => memory.addr(),
        };
        waste.into_iter().map(number).collect()
    }

    /// Takes the memory that is freed now, including old blocks.
    fn due(pool: &mut Pool, now: Instant) -> Vec<usize> {
        let mut waste = pool.take_waste();
        waste.extend(std::iter::from_fn(|| pool.take_old(now)));
        numbers(waste)
    }

    #[test]
    fn unused_blocks_age() {
        let (mut pool, start) = (Pool::default(), Instant::now());
        put(&mut pool, MemoryKind::Device, 10, 1, start);
        put(&mut pool, MemoryKind::Device, 10, 2, start);
        // One of them is used all the time.
        for i in 1..=20 {
            let now = start + IDLE_BLOCK_LIFETIME * i / 20;
            assert_eq!(pool.take(MemoryKind::Device, 10), Some(address(2)));
            put(&mut pool, MemoryKind::Device, 10, 2, now);
            assert_eq!(due(&mut pool, now), if i < 20 { vec![] } else { vec![1] });
        }
        assert_eq!(due(&mut pool, start + IDLE_BLOCK_LIFETIME * 2), [2]);
        assert!(pool.all().is_empty());
    }

    #[test]
    fn sizes_that_change_do_not_pile_up() {
        let (mut pool, start) = (Pool::default(), Instant::now());
        let mut freed = vec![];
        for i in 0..100 {
            let now = start + IDLE_BLOCK_LIFETIME * i as u32 / 4;
            assert_eq!(pool.take(MemoryKind::Host, 1000 + i), None);
            put(&mut pool, MemoryKind::Host, 1000 + i, 1 + i, now);
            freed.extend(due(&mut pool, now));
            assert!(i + 1 - freed.len() <= 4, "{freed:?} of {i}");
        }
        assert_eq!(freed, Vec::from_iter(1..=96));
    }

    #[test]
    fn page_locked_memory_is_limited_while_it_is_idle() {
        let (mut pool, start) = (Pool::default(), Instant::now());
        for (number, kind) in
            [(1, MemoryKind::Host), (2, MemoryKind::Device), (3, MemoryKind::Coherent), (4, MemoryKind::Host)]
        {
            put(&mut pool, kind, 10, number, start);
        }
        assert!(!pool.limit_locked(30));
        assert!(pool.limit_locked(29));
        assert_eq!(due(&mut pool, start), [1]);
        assert!(pool.limit_locked(0));
        assert_eq!(due(&mut pool, start), [3, 4]);
        assert_eq!(numbers(pool.all()), [2]);
    }
}
