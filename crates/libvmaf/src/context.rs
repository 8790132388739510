// SPDX-License-Identifier: MPL-2.0

//! A context: the table, the extractors, and the pools of pictures.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Errno;
use crate::backend::Choice;
use crate::collector::Collector;
use crate::cuda::Cuda;
use crate::picture::{Format, Pool};
use crate::reader::Reader;

/// The version that programs and reports get. Programs read the numbers that it begins with.
pub const VERSION: &str = "3.2.0-hipvmaf";
/// The same for C.
pub const VERSION_C: &std::ffi::CStr = c"3.2.0-hipvmaf";

/// The table of scores, and what fills it.
pub struct State {
    pub collector: Collector,
    pub reader: Reader,
}

/// The inside of a caller's `VmafContext`.
pub struct Context {
    /// The process that made it. Its threads are not there in a child after `fork`.
    process: u32,
    state: Mutex<State>,
    /// All pools; pictures come from the latest.
    pools: Mutex<Vec<Arc<Pool>>>,
    cuda: Mutex<Option<Cuda>>,
}

impl Context {
    /// A context without scores and extractors.
    pub fn new(threads: u32, subsample: u32, choice: Choice) -> Self {
        Self {
            process: std::process::id(),
            state: Mutex::new(State {
                collector: Collector::default(),
                reader: Reader::new(threads, subsample, choice),
            }),
            pools: Mutex::default(),
            cuda: Mutex::default(),
        }
    }

    /// Returns true in the process that made the context.
    pub fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// The table, and what fills it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pools(&self) -> MutexGuard<'_, Vec<Arc<Pool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller's CUDA context, if there is one.
    pub fn cuda(&self) -> MutexGuard<'_, Option<Cuda>> {
        self.cuda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the pool that pictures come from.
    pub fn add_pool(&self, format: Format, count: u32) -> Result<(), Errno> {
        let pool = Pool::new(format, count, false)?;
        self.pools().push(pool);
        Ok(())
    }

    /// With threads, libvmaf makes a pool with the first pair if there is none. Its memory is taken once it is used.
    pub fn add_pool_if_none(&self, format: Format, threads: u32) -> Result<(), Errno> {
        let mut pools = self.pools();
        if threads > 0 && pools.is_empty() {
            pools.push(Pool::new(format, threads.saturating_mul(2).saturating_add(2), true)?);
        }
        Ok(())
    }

    /// The pool that pictures come from.
    pub fn pool(&self) -> Option<Arc<Pool>> {
        self.pools().last().cloned()
    }

    /// Waits for all pairs and for all pictures of pools.
    pub fn close(self) {
        let mut state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.reader.drain(&mut state.collector);
        drop(state);
        let pools = self.pools.into_inner().unwrap_or_else(PoisonError::into_inner);
        pools.iter().for_each(|pool| pool.wait());
    }
}
