// SPDX-License-Identifier: MPL-2.0

//! A driver that is never idle, on the software `libcuda` of `tests/swhip`. There is one test, as the environment and
//! the runtimes belong to the whole process.

mod code;
#[path = "../../../tests/swhip/library.rs"]
mod swhip;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hipvmaf_gpu::{Device, DeviceBuffer, Direction, Pinned, Selection, Stream, copy};

use code::Empty;

const THREADS: usize = 4;
/// Far more than are submitted before an exclusive call gets the driver.
const COPIES: usize = 3000;
const SIZE: usize = 64;

#[test]
fn streams_and_memory_come_and_go_however_much_work_there_is() {
    // SAFETY: this process has no other test, so no other thread reads the environment.
    unsafe {
        std::env::set_var("HIPVMAF_HIP_LIBRARY", "/nowhere/libamdhip64.so.6");
        std::env::set_var("HIPVMAF_CUDA_LIBRARY", swhip::library("libcuda.so.1"));
        std::env::set_var("SWHIP_CROWDED", "1");
    }
    let device = Device::open(&Selection::default(), &Empty { covers: true }).unwrap();
    let (begun, enough) = (Barrier::new(THREADS + 1), AtomicBool::new(false));
    let spare = Stream::new(&device).unwrap();
    let copies = || {
        let stream = Stream::new(&device).unwrap();
        let (from, to) =
            (Pinned::new(device.clone(), SIZE).unwrap(), DeviceBuffer::new(&device, "bytes", SIZE).unwrap());
        begun.wait();
        let mut left = COPIES;
        while left > 0 && !enough.load(Ordering::Relaxed) {
            // SAFETY: both are that long, and wait for the stream.
            unsafe { copy(&stream, to.address(), from.address(), SIZE, Direction::HostToDevice).unwrap() };
            left -= 1;
        }
        stream.synchronize().unwrap();
        left
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(copies)).collect();
        begun.wait();
        drop(spare);
        // No block of this size is idle.
        drop(DeviceBuffer::new(&device, "bytes", 1 << 20).unwrap());
        enough.store(true, Ordering::Relaxed);
        let left: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(!left.contains(&0), "of {COPIES} copies are left: {left:?}");
    });
}
