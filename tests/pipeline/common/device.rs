// SPDX-License-Identifier: MPL-2.0

//! The software device, as code sees it that fills its memory, and an allocator that looks like GStreamer's own for HIP
//! memory.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::sync::LazyLock;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use gst::prelude::*;
use gst::subclass::prelude::*;

use super::Input;

type Status = c_int;

/// Functions of the library that the plugin has loaded.
pub struct Device {
    malloc: unsafe extern "C" fn(*mut *mut c_void, usize) -> Status,
    free: unsafe extern "C" fn(*mut c_void) -> Status,
    set_device: unsafe extern "C" fn(c_int) -> Status,
    get_device: unsafe extern "C" fn(*mut c_int) -> Status,
    create_stream: unsafe extern "C" fn(*mut usize) -> Status,
    launch_host: unsafe extern "C" fn(usize, unsafe extern "C" fn(*mut c_void), *mut c_void) -> Status,
    memcpy: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> Status,
    register: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> Status,
    unregister: unsafe extern "C" fn(*mut c_void) -> Status,
    live: unsafe extern "C" fn(*const i8) -> i64,
    count: unsafe extern "C" fn(*const i8) -> i64,
    fail: unsafe extern "C" fn(*const i8),
    revive: unsafe extern "C" fn(),
}

pub static DEVICE: LazyLock<Device> = LazyLock::new(|| {
    let path = std::env::var("HIPVMAF_HIP_LIBRARY").expect("started with the software device");
    // SAFETY: the library's initialisers do nothing, and the types are those of tests/swhip/hip.h.
    unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(path).unwrap()));
        Device {
            malloc: *library.get("hipMalloc").unwrap(),
            free: *library.get("hipFree").unwrap(),
            set_device: *library.get("hipSetDevice").unwrap(),
            get_device: *library.get("hipGetDevice").unwrap(),
            create_stream: *library.get("hipStreamCreate").unwrap(),
            launch_host: *library.get("hipLaunchHostFunc").unwrap(),
            memcpy: *library.get("hipMemcpy").unwrap(),
            register: *library.get("hipHostRegister").unwrap(),
            unregister: *library.get("hipHostUnregister").unwrap(),
            live: *library.get("swhip_live").unwrap(),
            count: *library.get("swhip_count").unwrap(),
            fail: *library.get("swhip_fail").unwrap(),
            revive: *library.get("swhip_revive").unwrap(),
        }
    }
});

/// Holds the devices up: no command that is added to a stream begins while this exists.
pub struct Hold {
    _go: Sender<()>,
}

/// The channels of a device that is held up: one reports that it has stopped, the other lets it go on.
type Held = (Sender<()>, Receiver<()>);

/// Reports that the device has stopped here, and blocks until it is released.
///
/// # Safety
///
/// `held` must be a box of [`Held`], passed here once.
unsafe extern "C" fn wait_here(held: *mut c_void) {
    // SAFETY: the caller has promised it.
    let (here, go) = *unsafe { Box::from_raw(held.cast::<Held>()) };
    // The other side may be gone. Nothing is ever sent on `go`; it ends when its sender is dropped.
    here.send(()).unwrap_or_default();
    go.recv().unwrap_or_default();
}

impl Device {
    /// Holds all devices up. One thread does the work of all their streams, and it is blocked when this returns.
    pub fn hold(&self) -> Hold {
        let ((here, come), (_go, go)) = (mpsc::channel(), mpsc::channel());
        let held: Box<Held> = Box::new((here, go));
        // SAFETY: the null stream, and a function for a box of that type, which is called once.
        assert_eq!(unsafe { (self.launch_host)(0, wait_here, Box::into_raw(held).cast()) }, 0);
        come.recv_timeout(Duration::from_secs(60)).expect("the device gets there within a minute");
        Hold { _go }
    }

    fn ask(&self, function: unsafe extern "C" fn(*const i8) -> i64, what: &str) -> i64 {
        let what = CString::new(what).unwrap();
        // SAFETY: text that ends with a zero.
        let number = unsafe { function(what.as_ptr()) };
        assert!(number >= 0, "the software device does not count {what:?}");
        number
    }

    /// Returns how often `what` has happened so far.
    pub fn count(&self, what: &str) -> i64 {
        self.ask(self.count, what)
    }

    /// Returns how many of `what` exist now.
    pub fn live(&self, what: &str) -> i64 {
        self.ask(self.live, what)
    }

    /// Lets calls and commands fail from now on, as in `SWHIP_FAIL`.
    pub fn fail(&self, faults: &str) {
        let faults = CString::new(faults).unwrap();
        // SAFETY: text that ends with a zero.
        unsafe { (self.fail)(faults.as_ptr()) }
    }

    /// Ends the loss of the devices, which are all lost together.
    pub fn revive(&self) {
        // SAFETY: takes nothing.
        unsafe { (self.revive)() }
    }

    /// Page-locks memory, as an application does, and returns its address.
    pub fn register(&self, bytes: &[u8]) -> usize {
        let address = bytes.as_ptr().cast_mut().cast();
        // SAFETY: memory of that size.
        assert_eq!(unsafe { (self.register)(address, bytes.len(), 0) }, 0);
        address as usize
    }

    /// Unlocks the memory.
    pub fn unregister(&self, address: usize) {
        // SAFETY: takes an address, and knows which of them are locked.
        assert_eq!(unsafe { (self.unregister)(address as *mut c_void) }, 0);
    }

    /// Creates a stream that is never destroyed.
    pub fn new_stream(&self) -> usize {
        let mut stream = 0;
        // SAFETY: the address is valid for a write.
        assert_eq!(unsafe { (self.create_stream)(&mut stream) }, 0);
        stream
    }

    /// Sets the current device of this thread, as an application does.
    pub fn set_current(&self, device: c_int) {
        // SAFETY: takes a number.
        assert_eq!(unsafe { (self.set_device)(device) }, 0);
    }

    /// Returns the current device of this thread.
    pub fn current(&self) -> c_int {
        let mut device = -1;
        // SAFETY: the address is valid for a write.
        assert_eq!(unsafe { (self.get_device)(&mut device) }, 0);
        device
    }

    /// Asserts that nothing on the device is still allocated.
    #[track_caller]
    pub fn assert_empty(&self) {
        for what in ["allocs", "pinned", "external", "streams", "events", "modules", "graphs"] {
            assert_eq!(self.live(what), 0, "{what}");
        }
    }
}

/// Returns the number of the software device that an element uses, from its address on the bus; `None` without one.
pub fn number(element: &gst::Element) -> Option<u32> {
    let name = element.property::<Option<String>>("device-name")?;
    let (_, place) = name.rsplit_once("0000:").expect("a place on the bus");
    Some(u32::from_str_radix(&place[..2], 16).unwrap() - 3)
}

#[repr(C)]
struct Memory {
    memory: gst::ffi::GstMemory,
    address: *mut c_void,
}

mod imp {
    use super::*;
    use gst::ffi;

    #[derive(Default)]
    pub struct FakeAllocator;

    #[glib::object_subclass]
    impl ObjectSubclass for FakeAllocator {
        const NAME: &'static str = "FakeDeviceAllocator";
        type Type = super::FakeAllocator;
        type ParentType = gst::Allocator;

        fn instance_init(obj: &glib::subclass::InitializingObject<Self>) {
            let allocator = obj.as_ptr().cast::<ffi::GstAllocator>();
            // SAFETY: a new allocator without other references.
            unsafe {
                (*allocator).mem_map = Some(map);
                (*allocator).mem_unmap = Some(unmap);
            }
        }
    }

    /// Maps the memory for the device; a map for the CPU fails.
    ///
    /// # Safety
    ///
    /// The memory must be of this allocator.
    unsafe extern "C" fn map(memory: *mut ffi::GstMemory, _: usize, flags: ffi::GstMapFlags) -> *mut c_void {
        let device = flags & (ffi::GST_MAP_FLAG_LAST << 1) != 0;
        // SAFETY: memory of this allocator.
        if device { unsafe { (*memory.cast::<Memory>()).address } } else { std::ptr::null_mut() }
    }

    /// # Safety
    ///
    /// The memory must be of this allocator.
    unsafe extern "C" fn unmap(_: *mut ffi::GstMemory) {}

    impl ObjectImpl for FakeAllocator {}
    impl GstObjectImpl for FakeAllocator {}
    // SAFETY: memory is made in `FakeAllocator::memory` and freed here.
    unsafe impl AllocatorImpl for FakeAllocator {
        unsafe fn free(&self, memory: *mut ffi::GstMemory) {
            // SAFETY: made by `memory`, and freed once. Addresses that are not the device's are not freed.
            unsafe {
                let memory = Box::from_raw(memory.cast::<Memory>());
                let _ = (DEVICE.free)(memory.address);
            }
        }
    }
}

glib::wrapper! {
    /// An allocator of the software device, with any memory type.
    pub struct FakeAllocator(ObjectSubclass<imp::FakeAllocator>) @extends gst::Allocator, gst::Object;
}

impl FakeAllocator {
    pub fn new(name: &'static CStr) -> Self {
        let allocator: Self = glib::Object::new();
        // SAFETY: a new allocator without other references; the name is static.
        unsafe { (*allocator.upcast_ref::<gst::Allocator>().as_ptr()).mem_type = name.as_ptr() };
        allocator
    }

    /// Returns memory with these bytes on this device.
    pub fn memory(&self, device: c_int, bytes: &[u8]) -> gst::Memory {
        let mut address = std::ptr::null_mut();
        // SAFETY: new memory of that size.
        unsafe {
            assert_eq!((DEVICE.set_device)(device), 0);
            assert_eq!((DEVICE.malloc)(&mut address, bytes.len()), 0);
            assert_eq!((DEVICE.memcpy)(address, bytes.as_ptr().cast(), bytes.len(), 1), 0);
        }
        self.at(address, bytes.len())
    }

    /// Returns memory with this address, whatever is there.
    pub fn at(&self, address: *mut c_void, size: usize) -> gst::Memory {
        // SAFETY: a plain C structure, initialised right below.
        let memory = Box::new(Memory { memory: unsafe { std::mem::zeroed() }, address });
        let memory = Box::into_raw(memory).cast();
        // SAFETY: as `gst_memory_init` has it.
        unsafe {
            gst::ffi::gst_memory_init(
                memory,
                0,
                self.upcast_ref::<gst::Allocator>().as_ptr(),
                std::ptr::null_mut(),
                size,
                0,
                0,
                size,
            );
            glib::translate::from_glib_full(memory)
        }
    }

    /// Returns the frames in memory of a device, in caps with this feature.
    pub fn input(&self, device: c_int, feature: &str, input: &Input) -> Input {
        input.moved(feature, |bytes| self.memory(device, bytes))
    }
}
