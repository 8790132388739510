// SPDX-License-Identifier: MPL-2.0

//! Computing threads, shared by the contexts of a process that ask for as many.

use std::sync::{Arc, Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::Errno;

/// More threads than this are never started.
const MOST: usize = 256;

/// Pools by their number of threads, of the process with this number.
struct Pools {
    process: u32,
    pools: Vec<(usize, Arc<ThreadPool>)>,
}

static POOLS: Mutex<Pools> = Mutex::new(Pools { process: 0, pools: vec![] });

/// Returns the pool with so many threads, which are started if there is none. Threads live as long as the process.
pub fn pool(threads: usize) -> Result<Arc<ThreadPool>, Errno> {
    let threads = threads.clamp(1, MOST);
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if pools.process != std::process::id() {
        // A child after `fork` has none of its parent's threads, and must not wait for them.
        std::mem::forget(std::mem::take(&mut pools.pools));
        pools.process = std::process::id();
    }
    if let Some((_, pool)) = pools.pools.iter().find(|(count, _)| *count == threads) {
        return Ok(pool.clone());
    }
    let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("vmaf-{i}"));
    let pool = Arc::new(builder.build().map_err(|_| Errno::MEMORY)?);
    pools.pools.push((threads, pool.clone()));
    Ok(pool)
}
