// SPDX-License-Identifier: MPL-2.0

//! Turns: who gets into the driver of a GPU.
//!
//! NVIDIA's lets all threads of a process in at a time that put work into streams. One that creates, destroys or allocates
//! something waits until nobody is in there, and holds up nobody who comes meanwhile. As long as the GPU gets more than it can
//! take, somebody always is in there, waiting for room or for others: of 220 channels on a bus that carries 210, none could be
//! stopped, and no other started, for as long as one cared to watch.
//!
//! So whoever has to be alone in there says so here first, and those with work who come later wait for him. The lock is fair
//! between the two: neither keeps the other out.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The turns of all threads at a GPU.
#[derive(Default)]
pub struct Turns(RwLock<()>);

/// Somebody's turn, until it is dropped. Whoever has one must not ask for another.
#[expect(dead_code, reason = "what is in there is only held")]
pub enum Turn {
    Work(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Turns {
    /// To put work into a stream, beside others who do.
    pub fn work(&'static self) -> Turn {
        Turn::Work(self.0.read())
    }

    /// To create, destroy, allocate or free something.
    pub fn alone(&'static self) -> Turn {
        Turn::Alone(self.0.write())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Otherwise this would not end.
    #[test]
    fn who_has_to_be_alone_comes_before_work_that_comes_later() {
        let turns: &'static Turns = Box::leak(Box::default());
        let work = turns.work();
        let alone = thread::spawn(|| drop(turns.alone()));
        while turns.0.try_read().is_some() {
            thread::yield_now();
        }
        drop(work);
        alone.join().unwrap();
        drop((turns.work(), turns.work()));
    }
}
