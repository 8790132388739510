// SPDX-License-Identifier: MPL-2.0

//! Computing threads, shared by the contexts of a process that ask for as many.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::Errno;

/// More threads than this are never started for one context.
const MOST: usize = 256;

/// Pools of the process with this number.
struct Pools {
    process: u32,
    pools: Vec<Arc<ThreadPool>>,
}

static POOLS: Mutex<Pools> = Mutex::new(Pools { process: 0, pools: vec![] });

/// Returns a pool with so many threads, which live as long as the process.
pub fn pool(threads: usize) -> Result<Arc<ThreadPool>, Errno> {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if pools.process != std::process::id() {
        // A child after `fork` has none of its parent's threads, and must not wait for them.
        std::mem::forget(std::mem::take(&mut pools.pools));
        pools.process = std::process::id();
    }
    share(&mut pools.pools, threads.clamp(1, MOST), available_parallelism().map_or(1, usize::from))
}

/// Returns the pool with so many threads that the fewest contexts hold, or starts one if all are held and there are CPUs for
/// another: encoders have a context in each of their own threads.
fn share(pools: &mut Vec<Arc<ThreadPool>>, threads: usize, cpus: usize) -> Result<Arc<ThreadPool>, Errno> {
    let alike = || pools.iter().filter(|pool| pool.current_num_threads() == threads);
    let another = (alike().count() + 1) * threads <= cpus;
    let holders = |pool: &&Arc<ThreadPool>| Arc::strong_count(pool) - 1;
    if let Some(pool) = alike().min_by_key(holders).filter(|pool| holders(pool) == 0 || !another) {
        return Ok(pool.clone());
    }
    let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("vmaf-{i}"));
    let pool = Arc::new(builder.build().map_err(|_| Errno::MEMORY)?);
    pools.push(pool.clone());
    Ok(pool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_have_threads_of_their_own_while_there_are_cpus() {
        let mut pools = vec![];
        let mut get = |threads| share(&mut pools, threads, 2).unwrap();
        let first = get(1);
        let second = get(1);
        assert!(!Arc::ptr_eq(&first, &second));
        let third = get(1);
        assert!(Arc::ptr_eq(&third, &first) || Arc::ptr_eq(&third, &second), "two CPUs");
        drop((second, third));
        let fourth = get(1);
        assert!(!Arc::ptr_eq(&fourth, &first), "one that no context holds");
        let wide = get(3);
        assert!(Arc::ptr_eq(&wide, &get(3)), "one for as many threads, even if there are fewer CPUs");
        assert_eq!(pools.len(), 3);
    }
}
