// SPDX-License-Identifier: MPL-2.0

//! All functions of this crate, on the software `libcuda` of `tests/swhip`. There is one test, as the environment and
//! the runtimes belong to the whole process.

#[path = "../../../tests/swhip/library.rs"]
mod swhip;

use std::ffi::{CStr, c_char, c_long};

use hipvmaf_gpu::{
    Code, Device, DeviceBuffer, Direction, Error, Event, Graph, Image, Kernel, Piece, Pinned, Registered,
    Selection, Stream, Vendor, arguments, copy, copy_pieces, devices, owner, zero,
};

use swhip::library;

/// A kernel that copies numbers, compiled for a GPU that is newer than the existing one, and for that one.
struct Copies;

static NEWER: &str = concat!(".version 6.3\n.target sm_99\n", "\0");
static PTX: &str = concat!(include_str!("../../hip-sys/tests/frame_end.ptx"), "\0");

impl Code for Copies {
    fn remedy(&self, _: &str) -> String {
        "there is no remedy".into()
    }

    fn covers(&self, arch: &str) -> bool {
        arch == "sm_75"
    }

    fn probe(&self) -> Option<&'static str> {
        Some("copies")
    }

    fn images(&self, _: &str, _: &str) -> Vec<Image> {
        // SAFETY: PTX with a zero at its end.
        unsafe { vec![Image::new("sm_99", NEWER.as_bytes()), Image::new("sm_70", PTX.as_bytes())] }
    }
}

/// Returns the number of live objects in the driver.
fn live(what: &CStr) -> c_long {
    // SAFETY: the library is open already, and the type is that of tests/swhip/hip.h.
    unsafe {
        let library = libloading::Library::new(library("libcuda.so.1")).unwrap();
        let live = *library.get::<unsafe extern "C" fn(*const c_char) -> c_long>("swhip_live").unwrap();
        live(what.as_ptr())
    }
}

/// Makes a call of the driver fail.
fn fail(what: &CStr) {
    // SAFETY: the library is open already, and the type is that of tests/swhip/hip.h.
    unsafe {
        let library = libloading::Library::new(library("libcuda.so.1")).unwrap();
        let fail = *library.get::<unsafe extern "C" fn(*const c_char)>("swhip_fail").unwrap();
        fail(what.as_ptr());
    }
}

const COUNT: usize = 100;

/// Copies numbers to the device and back, directly and with kernels and graphs.
fn copies(device: &std::sync::Arc<Device>) -> Result<(), Error> {
    let numbers: Vec<u64> = (0..COUNT as u64).map(|i| i * 0x0123_4567_89ab_cdef).collect();
    let bytes: Vec<u8> = numbers.iter().copied().flat_map(u64::to_ne_bytes).collect();
    let given = DeviceBuffer::holding(device, "numbers", &bytes)?;
    let taken = Pinned::new(device.clone(), bytes.len())?;
    assert_eq!(owner(given.address()).map(|info| info.vendor), Some(Vendor::Nvidia));
    assert!(owner(taken.address()).is_none());
    let (kernel, stream) = (Kernel::new(device, "copies", "frame_end", 128)?, Stream::new(device)?);
    assert_eq!(device.module("copies")?.target(), "sm_70");
    let between = DeviceBuffer::new(device, "numbers", bytes.len())?;
    let work = || {
        let (from, to, count) = (between.address(), taken.address(), COUNT as u32);
        // SAFETY: all memory is that long and waits for the stream; the arguments are those of the kernel.
        unsafe {
            zero(&stream, from, bytes.len())?;
            copy(&stream, from, given.address(), bytes.len(), Direction::DeviceToDevice)?;
            kernel.launch(&stream, (1, 1), arguments![from, to, count, count])
        }
    };
    let done = Event::new(device)?;
    let graph = Graph::record(&stream, work)?.expect("the driver knows graphs");
    for _ in 0..2 {
        // SAFETY: the memory waits for the stream.
        unsafe { graph.launch(&stream)? };
        done.record(&stream)?;
        done.synchronize()?;
        assert!(done.is_done()? && taken.bytes()[..bytes.len()] == bytes);
    }
    Ok(())
}

/// Copies `count` pieces to the device and back in the order of a stream.
fn pieces(device: &std::sync::Arc<Device>, count: u64) -> Result<(), Error> {
    const SIZE: usize = 1000;
    let there = DeviceBuffer::new(device, "bytes", SIZE)?;
    let [mut given, taken] = [Pinned::new(device.clone(), SIZE)?, Pinned::new(device.clone(), SIZE)?];
    let bytes: Vec<_> = (0..SIZE).map(|i| (i * 7 % 251) as u8).collect();
    given.bytes_mut()[..SIZE].copy_from_slice(&bytes);
    let stream = Stream::new(device)?;
    // The first piece has the last place.
    let piece = |to: u64, from: u64, i| Piece {
        to: to + 100 * (count - 1 - i),
        from: from + 100 * i,
        size: 100 - i as usize,
    };
    let there = there.address();
    let forth: Vec<_> = (0..count).map(|i| piece(there, given.address(), i)).collect();
    let back: Vec<_> = (0..count).map(|i| piece(taken.address(), there, i)).collect();
    // SAFETY: all memory is that long, and waits for the stream.
    unsafe {
        zero(&stream, there, SIZE)?;
        copy_pieces(&stream, &forth, Direction::HostToDevice)?;
        copy_pieces(&stream, &back, Direction::DeviceToHost)?;
    }
    stream.synchronize()?;
    for i in 0..count as usize {
        let size = 100 - i.max(count as usize - 1 - i);
        assert_eq!(taken.bytes()[100 * i..][..size], bytes[100 * i..][..size], "{i} of {count}");
    }
    Ok(())
}

/// Locks two of two and a half pages of memory.
fn locks(device: &std::sync::Arc<Device>) -> Result<Registered, Error> {
    const PAGE: usize = 4096;
    let bytes = vec![7u8; 3 * PAGE].leak();
    let first = (bytes.as_ptr() as usize).next_multiple_of(PAGE);
    let pages = first..first + 2 * PAGE;
    // SAFETY: the memory is never freed.
    let lock = |pages: std::ops::Range<usize>| unsafe { Registered::new(device, pages) };
    let registered = lock(pages.clone())?;
    assert_eq!((live(c"registered"), registered.pages()), (1, &pages));
    let again = lock(first + PAGE..first + 2 * PAGE).map(|_| ()).unwrap_err().to_string();
    assert!(again.contains("hipHostRegister") && again.contains("712"), "{again}");
    let (there, stream) = (DeviceBuffer::new(device, "bytes", PAGE)?, Stream::new(device)?);
    let back = Pinned::new(device.clone(), PAGE)?;
    // SAFETY: all memory is that long, and waits for the stream.
    unsafe {
        copy(&stream, there.address(), first as u64 + 100, PAGE, Direction::HostToDevice)?;
        copy(&stream, back.address(), there.address(), PAGE, Direction::DeviceToHost)?;
    }
    stream.synchronize()?;
    assert!(back.bytes()[..PAGE].iter().all(|byte| *byte == 7));
    Ok(registered)
}

#[test]
fn nvidias_driver_works_and_gets_everything_back() {
    // SAFETY: this process has no other test, so no other thread reads the environment.
    unsafe {
        std::env::set_var("HIPVMAF_HIP_LIBRARY", "/nowhere/libamdhip64.so.6");
        std::env::set_var("HIPVMAF_CUDA_LIBRARY", library("libcuda.so.1"));
        std::env::set_var("SWHIP_ARCH", "sm_75,sm_60");
    }
    let found: Vec<_> = devices().iter().map(|info| (info.arch.as_str(), info.pci.as_str())).collect();
    assert_eq!(found, [("sm_75", "0000:03:00.0"), ("sm_60", "0000:04:00.0")]);
    let device = Device::open(&Selection::default(), &Copies).unwrap();
    assert!(!device.info().imports_external_memory());
    copies(&device).unwrap();
    (0..4).for_each(|count| pieces(&device, count).unwrap());
    // If the batch is refused, the pieces are copied one by one.
    fail(c"hipMemcpyAsync:1@2");
    pieces(&device, 3).unwrap();
    // Uses a thread that is new to the driver.
    std::thread::scope(|scope| scope.spawn(|| copies(&device)).join().unwrap()).unwrap();
    assert_eq!((live(c"streams"), live(c"events"), live(c"graphs")), (0, 0, 0));
    let registered = locks(&device).unwrap();
    drop(device);
    for what in [c"allocs", c"pinned", c"modules"] {
        assert_eq!(live(what), 0, "{what:?}");
    }
    // The registration does not keep the device open.
    assert_eq!(live(c"registered"), 1);
    drop(registered);
    assert_eq!(live(c"registered"), 0);
}
