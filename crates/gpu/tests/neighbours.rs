// SPDX-License-Identifier: MPL-2.0

//! The state of an application's thread after calls of this crate, on the software device of `tests/swhip`. There is
//! one test, as the environment and the runtimes belong to the whole process.

mod code;
#[path = "../../../tests/swhip/library.rs"]
mod swhip;

use std::ffi::{c_int, c_void};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use hipvmaf_gpu::{
    ContextGuard, Device, DeviceBuffer, Event, External, Graph, Pinned, Selection, Stream, devices, owner,
    zero,
};

use code::Empty;
use libloading::Library;

use swhip::library;

/// The device that the application has set.
const THEIRS: c_int = 2;

/// The application's own view of the runtime.
struct Application {
    set_device: unsafe extern "C" fn(c_int) -> c_int,
    get_device: unsafe extern "C" fn(*mut c_int) -> c_int,
    malloc: unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int,
    count: unsafe extern "C" fn(*const i8) -> i64,
    live: unsafe extern "C" fn(*const i8) -> i64,
    launch: unsafe extern "C" fn(*mut c_void, unsafe extern "C" fn(*mut c_void), *mut c_void) -> c_int,
    synchronize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

impl Application {
    fn new() -> Self {
        // SAFETY: the library's initialisers do nothing, and the types are those of tests/swhip/hip.h.
        unsafe {
            let library = Box::leak(Box::new(Library::new(library("libamdhip64.so.6")).unwrap()));
            Self {
                set_device: *library.get("hipSetDevice").unwrap(),
                get_device: *library.get("hipGetDevice").unwrap(),
                malloc: *library.get("hipMalloc").unwrap(),
                count: *library.get("swhip_count").unwrap(),
                live: *library.get("swhip_live").unwrap(),
                launch: *library.get("hipLaunchHostFunc").unwrap(),
                synchronize: *library.get("hipStreamSynchronize").unwrap(),
            }
        }
    }

    fn device(&self) -> c_int {
        let mut device = -1;
        // SAFETY: the address is valid for a write.
        assert_eq!(unsafe { (self.get_device)(&mut device) }, 0);
        device
    }

    fn take_device(&self) {
        // SAFETY: takes a number.
        assert_eq!(unsafe { (self.set_device)(THEIRS) }, 0);
    }

    /// Calls this crate and checks that the application's device is current afterwards.
    #[track_caller]
    fn calls<T>(&self, something: impl FnOnce() -> T) -> T {
        self.take_device();
        let result = something();
        assert_eq!(self.device(), THEIRS);
        result
    }

    /// Checks that a call does not wait for a stream of the application whose work is not done.
    #[track_caller]
    fn is_busy_while(&self, something: impl FnOnce() + Send) {
        /// # Safety
        ///
        /// `end` must point to the receiver.
        unsafe extern "C" fn work(end: *mut c_void) {
            // SAFETY: the caller has promised it.
            let _ = unsafe { &*end.cast::<Receiver<()>>() }.recv();
        }
        let (finish, mut end) = channel::<()>();
        // SAFETY: takes the null stream and the receiver, which is there until the stream has got there.
        unsafe { assert_eq!((self.launch)(std::ptr::null_mut(), work, (&raw mut end).cast()), 0) };
        let (say, said) = channel();
        let done = std::thread::scope(|scope| {
            scope.spawn(move || {
                something();
                let _ = say.send(());
            });
            let done = said.recv_timeout(Duration::from_secs(30)).is_ok();
            drop(finish);
            // SAFETY: takes the null stream.
            assert_eq!(unsafe { (self.synchronize)(std::ptr::null_mut()) }, 0);
            done
        });
        assert!(done, "it waited for another user's stream");
    }

    /// Counts how often devices were set and queried during some work.
    fn switches(&self, work: impl FnOnce()) -> [i64; 2] {
        // SAFETY: text that ends with a zero.
        let now = || [c"hipSetDevice", c"hipGetDevice"].map(|name| unsafe { (self.count)(name.as_ptr()) });
        let before = now();
        work();
        let after = now();
        [after[0] - before[0], after[1] - before[1]]
    }
}

#[test]
fn the_device_of_the_thread_is_as_before() {
    // SAFETY: this process has no other test, so no other thread reads the environment.
    unsafe {
        std::env::set_var("SWHIP_ARCH", "gfx1100,gfx1100,gfx1100");
        std::env::set_var("HIPVMAF_HIP_LIBRARY", library("libamdhip64.so.6"));
        std::env::set_var("HIPVMAF_CUDA_LIBRARY", "/nowhere/libcuda.so.1");
    }
    let application = Application::new();
    let app = &application;
    let mut theirs = std::ptr::null_mut();
    app.take_device();
    // SAFETY: the address is valid for a write.
    assert_eq!(unsafe { (app.malloc)(&mut theirs, 4096) }, 0);

    app.calls(devices);
    assert_eq!(app.calls(|| owner(theirs as u64).map(|info| info.ordinal)), Some(THEIRS));
    let selection = Selection { vendor: None, ordinal: Some(1) };
    let device = app.calls(|| Device::open(&selection, &Empty { covers: true }).unwrap());
    app.calls(|| device.memory().unwrap());
    app.calls(|| device.synchronize_owner(theirs as u64).unwrap());
    app.calls(|| device.module("none").err().unwrap());

    let stream = app.calls(|| Stream::new(&device).unwrap());
    let buffer = app.calls(|| DeviceBuffer::new(&device, "a test", 4096).unwrap());
    let pinned = app.calls(|| Pinned::new(device.clone(), 4096).unwrap());
    let event = app.calls(|| Event::new(&device).unwrap());
    // SAFETY: the buffer is that long, and is kept until the stream is done.
    app.calls(|| unsafe { zero(&stream, buffer.address(), 4096).unwrap() });
    app.calls(|| event.record(&stream).unwrap());
    app.calls(|| stream.wait_for(&event).unwrap());
    app.calls(|| event.synchronize().unwrap());
    app.calls(|| event.is_done().unwrap());
    app.calls(|| stream.synchronize().unwrap());
    // SAFETY: as above.
    let graph =
        app.calls(|| Graph::record(&stream, || unsafe { zero(&stream, buffer.address(), 64) }).unwrap());
    assert!(graph.is_some());

    let file = tempfile::tempfile().unwrap();
    file.set_len(8192).unwrap();
    let external = app.calls(|| External::import(&device, file.as_fd(), 8192).unwrap());

    // Under a guard each call sets the device, and none queries it.
    let asked = app.switches(|| app.calls(|| event.is_done().map(|_| ()).unwrap()));
    assert_eq!(
        asked,
        [3, 2],
        "set by the application, by the call and back; asked for by the call and the test"
    );
    let visited = app.switches(|| {
        app.calls(|| {
            let _context = ContextGuard::new();
            (0..10).for_each(|_| event.is_done().map(|_| ()).unwrap());
        });
    });
    assert_eq!(visited, [1 + 10 + 1, 1 + 1]);
    let ours = || {
        ContextGuard::for_thread();
        event.is_done().unwrap();
        app.switches(|| (0..10).for_each(|_| event.is_done().map(|_| ()).unwrap()))
    };
    assert_eq!(std::thread::scope(|scope| scope.spawn(ours).join().unwrap()), [10, 0]);

    application.is_busy_while(|| drop(external));
    app.calls(|| drop(graph));
    app.calls(|| drop(pinned));
    app.calls(|| drop(buffer));
    app.calls(|| drop(event));
    app.calls(|| drop(stream));
    app.calls(|| drop(device));
    for what in [c"external", c"pinned", c"streams", c"events"] {
        // SAFETY: text that ends with a zero.
        assert_eq!(unsafe { (app.live)(what.as_ptr()) }, 0, "{what:?}");
    }
}
