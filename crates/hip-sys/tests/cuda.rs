// SPDX-License-Identifier: MPL-2.0

//! The functions over NVIDIA's driver, on the software `libcuda` of `tests/swhip`: contexts, objects that belong to
//! them, and permanent errors.
//!
//! A process has one driver. The environment describes its devices, and a lost device makes it unusable. So each test runs
//! in a process of its own.

#[path = "../../../tests/swhip/process.rs"]
mod process;
#[path = "../../../tests/swhip/library.rs"]
mod swhip;

use std::ffi::{CString, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::ptr::null_mut;
use std::sync::LazyLock;

use hipvmaf_hip_sys::*;

use process::{Function, functions, on};
use swhip::library;

const FUNCTIONS: &[Function] = functions![
    work_is_done_as_on_amd,
    threads_have_no_device_until_they_set_one,
    setting_a_device_leaves_the_contexts_below_alone,
    addresses_say_where_they_are,
    a_stream_of_another_context_is_waited_for,
    work_of_another_context_is_waited_for,
    modules_say_what_they_lack,
    a_lost_device_stays_lost,
];

const TWO_DEVICES: &[Function] = functions![two_devices_have_a_context_each];

fn main() {
    process::main(&[FUNCTIONS, TWO_DEVICES].concat(), || {
        let mut tests: Vec<_> = FUNCTIONS.iter().map(|(name, _)| on(("sm_75", name, vec![]))).collect();
        for (device, arch, seed) in [("beside_amd", "gfx1100,sm_75,sm_86", "0"), ("two", "sm_75,sm_86", "3")]
        {
            let environment = vec![("SWHIP_ARCH", arch), ("SWHIP_SEED", seed)];
            tests.extend(TWO_DEVICES.iter().map(|(name, _)| on((device, name, environment.clone()))));
        }
        tests
    });
}

type Context = *mut c_void;

/// The driver as other code in the process uses it, with its own contexts.
struct Driver {
    create: unsafe extern "C" fn(*mut Context, c_uint, c_int) -> HipError,
    destroy: unsafe extern "C" fn(Context) -> HipError,
    push: unsafe extern "C" fn(Context) -> HipError,
    pop: unsafe extern "C" fn(*mut Context) -> HipError,
    current: unsafe extern "C" fn(*mut Context) -> HipError,
    device: unsafe extern "C" fn(*mut c_int, c_int) -> HipError,
    live: unsafe extern "C" fn(*const c_char) -> c_long,
    seed: unsafe extern "C" fn(c_ulong),
}

static API: LazyLock<Api> = LazyLock::new(|| {
    let api = Api::load_from(Vendor::Nvidia, library("libcuda.so.1")).unwrap();
    let mut count = 0;
    // SAFETY: the address is valid for a write.
    assert_eq!(unsafe { api.hipGetDeviceCount(&mut count) }, HipError::SUCCESS);
    api
});

static DRIVER: LazyLock<Driver> = LazyLock::new(|| {
    LazyLock::force(&API);
    // SAFETY: the library is open already, and the types are those of NVIDIA's documentation and tests/swhip/hip.h.
    unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(library("libcuda.so.1")).unwrap()));
        Driver {
            create: *library.get("cuCtxCreate_v2").unwrap(),
            destroy: *library.get("cuCtxDestroy_v2").unwrap(),
            push: *library.get("cuCtxPushCurrent_v2").unwrap(),
            pop: *library.get("cuCtxPopCurrent_v2").unwrap(),
            current: *library.get("cuCtxGetCurrent").unwrap(),
            device: *library.get("cuDeviceGet").unwrap(),
            live: *library.get("swhip_live").unwrap(),
            seed: *library.get("swhip_seed").unwrap(),
        }
    }
});

/// The status of a function of the table.
macro_rules! status {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        let api = &*API;
        // SAFETY: the arguments are those of the function: addresses that are valid for what it does there, and handles
        // that are live or that it has to refuse.
        unsafe { api.$function($($argument),*) }
    }};
}

/// Calls a function of the table, which has to succeed.
macro_rules! ok {
    ($($call:tt)*) => { assert_eq!(status!($($call)*), HipError::SUCCESS, stringify!($($call)*)) };
}

impl Driver {
    /// Creates a context, which is current afterwards.
    fn create(&self) -> Context {
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: the addresses are valid for writes.
        unsafe {
            assert_eq!((self.device)(&mut device, 0), HipError::SUCCESS);
            assert_eq!((self.create)(&mut context, 0, device), HipError::SUCCESS);
        }
        context
    }

    fn destroy(&self, context: Context) {
        // SAFETY: the context is live.
        assert_eq!(unsafe { (self.destroy)(context) }, HipError::SUCCESS);
    }

    fn push(&self, context: Context) {
        // SAFETY: the context is live.
        assert_eq!(unsafe { (self.push)(context) }, HipError::SUCCESS);
    }

    fn pop(&self) -> Context {
        let mut context = null_mut();
        // SAFETY: the address is valid for a write.
        assert_eq!(unsafe { (self.pop)(&mut context) }, HipError::SUCCESS);
        context
    }

    /// Returns the current context of this thread, or null.
    fn current(&self) -> Context {
        let mut context = null_mut();
        // SAFETY: the address is valid for a write.
        assert_eq!(unsafe { (self.current)(&mut context) }, HipError::SUCCESS);
        context
    }

    /// Changes the order in which the streams of the process take turns.
    fn seed(&self, seed: u8) {
        // SAFETY: takes a number.
        unsafe { (self.seed)(seed.into()) }
    }

    fn live(&self, what: &str) -> c_long {
        let what = CString::new(what).unwrap();
        // SAFETY: text that ends with a zero.
        unsafe { (self.live)(what.as_ptr()) }
    }
}

fn stream() -> hipStream_t {
    let mut stream = null_mut();
    ok!(hipStreamCreateWithPriority(&mut stream, hipStreamNonBlocking, 0));
    stream
}

fn event() -> hipEvent_t {
    let mut event = null_mut();
    // The flag concerns caches of AMD's GPUs. The driver would reject it.
    ok!(hipEventCreateWithFlags(&mut event, hipEventDisableTiming | 0x8000_0000));
    event
}

fn allocated(size: usize) -> *mut c_void {
    let mut address = null_mut();
    ok!(hipMalloc(&mut address, size));
    address
}

fn pinned(size: usize) -> *mut c_void {
    let mut address = null_mut();
    ok!(hipHostMalloc(&mut address, size, hipHostMallocPortable | 0x4000_0000));
    address
}

const PTX: &str = concat!(include_str!("frame_end.ptx"), "\0");
const COUNT: usize = 100;

/// Loads a module and its kernel, which copies numbers.
fn kernel() -> (hipModule_t, hipFunction_t) {
    let (mut module, mut function) = (null_mut(), null_mut());
    ok!(hipModuleLoadData(&mut module, PTX.as_ptr().cast()));
    ok!(hipModuleGetFunction(&mut function, module, c"frame_end".as_ptr()));
    (module, function)
}

fn launch(function: hipFunction_t, from: *mut c_void, to: *mut c_void, stream: hipStream_t) -> HipError {
    let (mut from, mut to, mut count) = (from, to, COUNT as u32);
    let number: *mut c_void = (&raw mut count).cast();
    let mut arguments = [(&raw mut from).cast(), (&raw mut to).cast(), number, number];
    status!(hipModuleLaunchKernel(
        function,
        1,
        1,
        1,
        128,
        1,
        1,
        0,
        stream,
        arguments.as_mut_ptr(),
        null_mut()
    ))
}

/// Reads the numbers at an address of pinned memory that nothing writes to any more.
fn numbers(address: *mut c_void) -> Vec<u64> {
    // SAFETY: the memory is that long.
    unsafe { std::slice::from_raw_parts(address.cast::<u64>(), COUNT) }.to_vec()
}

/// Uses all functions, also in a graph, and checks that no object is left.
fn work_is_done_as_on_amd() {
    ok!(hipSetDevice(0));
    let size = COUNT * 8;
    let (from, to, given, taken) = (allocated(size), allocated(size), pinned(size), pinned(size));
    let (stream, event, (module, function)) = (stream(), event(), kernel());
    let wanted: Vec<u64> = (0..COUNT as u64).map(|i| i * 0x0123_4567_89ab_cdef).collect();
    // SAFETY: the memory is that long.
    unsafe { given.cast::<u64>().copy_from(wanted.as_ptr(), COUNT) };
    let work = || {
        ok!(hipMemsetAsync(to, 0, size, stream));
        ok!(hipMemcpyAsync(from, given, size, hipMemcpyHostToDevice, stream));
        assert_eq!(launch(function, from, to, stream), HipError::SUCCESS);
        ok!(hipMemcpy2DAsync(taken, 8, to, 8, 8, COUNT, hipMemcpyDeviceToHost, stream));
    };
    let finish = || {
        ok!(hipEventRecord(event, stream));
        ok!(hipEventSynchronize(event));
        assert_eq!(numbers(taken), wanted);
        ok!(hipMemsetAsync(taken, 0, size, stream));
    };
    work();
    finish();
    assert!(API.graphs());
    let (mut graph, mut exec) = (null_mut(), null_mut());
    ok!(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
    work();
    ok!(hipStreamEndCapture(stream, &mut graph));
    ok!(hipGraphInstantiate(&mut exec, graph, null_mut(), null_mut(), 0));
    ok!(hipGraphDestroy(graph));
    ok!(hipGraphLaunch(exec, stream));
    finish();
    ok!(hipGraphExecDestroy(exec));
    ok!(hipModuleUnload(module));
    ok!(hipEventDestroy(event));
    ok!(hipStreamDestroy(stream));
    [from, to].into_iter().for_each(|address| ok!(hipFree(address)));
    [given, taken].into_iter().for_each(|address| ok!(hipHostFree(address)));
    for what in ["allocs", "pinned", "streams", "events", "modules", "graphs"] {
        assert_eq!(DRIVER.live(what), 0, "{what}");
    }
}

fn threads_have_no_device_until_they_set_one() {
    ok!(hipSetDevice(0));
    let memory = allocated(16) as usize;
    let other = std::thread::spawn(move || {
        let mut address = null_mut();
        assert_eq!(status!(hipMalloc(&mut address, 16)), HipError::INVALID_CONTEXT);
        assert_eq!(status!(hipFree(memory as *mut c_void)), HipError::INVALID_CONTEXT);
        // Addresses are queried by threads without a device.
        assert_eq!(API.device_of(memory as *const c_void), Ok(Some(0)));
        ok!(hipSetDevice(0));
        ok!(hipFree(memory as *mut c_void));
    });
    other.join().unwrap();
}

fn setting_a_device_leaves_the_contexts_below_alone() {
    let foreign = DRIVER.create();
    DRIVER.push(foreign);
    ok!(hipSetDevice(0));
    assert_ne!(DRIVER.pop(), foreign);
    assert_eq!(DRIVER.pop(), foreign);
    assert!(DRIVER.current().is_null());
    DRIVER.destroy(foreign);
    let gone = DRIVER.create();
    DRIVER.push(gone);
    DRIVER.destroy(gone);
    let mut address = null_mut();
    assert_eq!(status!(hipMalloc(&mut address, 16)), HipError::from_code(709));
}

fn addresses_say_where_they_are() {
    ok!(hipSetDevice(0));
    let (device, host) = (allocated(16), pinned(16));
    assert_eq!(API.device_of(device.wrapping_byte_add(15)), Ok(Some(0)));
    assert_eq!(API.device_of(host), Ok(None));
    assert_eq!(API.device_of((&raw const device).cast()), Ok(None));
    ok!(hipFree(device));
    ok!(hipHostFree(host));
    assert_eq!(API.device_of(device), Ok(None));
}

/// Events can be recorded only in streams of their own context.
fn a_stream_of_another_context_is_waited_for() {
    let foreign = DRIVER.create();
    let (producer, memory) = (stream(), allocated(16));
    ok!(hipSetDevice(0));
    let (consumer, event, host) = (stream(), event(), pinned(16));
    assert_eq!(status!(hipEventRecord(event, producer)), HipError::INVALID_HANDLE);
    let (_, function) = kernel();
    assert_eq!(launch(function, memory, memory, producer), HipError::INVALID_HANDLE);
    for byte in 1..50u8 {
        DRIVER.seed(byte);
        ok!(hipMemsetAsync(memory, c_int::from(byte), 16, producer));
        // SAFETY: both streams are live.
        assert_eq!(unsafe { API.wait_for_stream(consumer, producer) }, Ok(()));
        ok!(hipSetDevice(0));
        ok!(hipMemcpyAsync(host, memory, 16, hipMemcpyDeviceToHost, consumer));
        ok!(hipEventRecord(event, consumer));
        ok!(hipEventSynchronize(event));
        // SAFETY: the memory is that long, and nothing writes to it any more.
        assert_eq!(unsafe { *host.cast::<u8>() }, byte);
    }
    DRIVER.destroy(foreign);
}

/// The context that owns the memory is waited for, not that of the device.
fn work_of_another_context_is_waited_for() {
    let foreign = DRIVER.create();
    let (producer, host) = (stream(), pinned(16));
    for byte in 1..50u8 {
        ok!(hipMemsetAsync(host, c_int::from(byte), 16, producer));
        ok!(hipSetDevice(0));
        assert_eq!(API.synchronize_owner(host), Ok(()));
        // SAFETY: the memory is that long, and nothing writes to it any more.
        assert_eq!(unsafe { *host.cast::<u8>() }, byte);
        assert_eq!(DRIVER.current(), foreign);
    }
    assert_eq!(API.synchronize_owner((&raw const foreign).cast()), Err(HipError::INVALID_VALUE));
    DRIVER.destroy(foreign);
}

fn modules_say_what_they_lack() {
    ok!(hipSetDevice(0));
    let (mut module, mut function) = (null_mut(), null_mut());
    let newer = PTX.replace("sm_70", "sm_99");
    assert_eq!(status!(hipModuleLoadData(&mut module, newer.as_ptr().cast())), HipError::INVALID_KERNEL_FILE);
    let nothing = c"no code";
    assert_eq!(status!(hipModuleLoadData(&mut module, nothing.as_ptr().cast())), HipError::INVALID_IMAGE);
    ok!(hipModuleLoadData(&mut module, PTX.as_ptr().cast()));
    assert_eq!(
        status!(hipModuleGetFunction(&mut function, module, c"frame_begin".as_ptr())),
        HipError::NOT_FOUND
    );
    ok!(hipModuleUnload(module));
}

fn two_devices_have_a_context_each() {
    let names: Vec<_> = (0..3).map(|device| API.arch_name(device)).collect();
    assert_eq!(names, [Ok("sm_75".into()), Ok("sm_86".into()), Err(HipError::INVALID_DEVICE)]);
    ok!(hipSetDevice(0));
    let (first, (_, function)) = (allocated(16), kernel());
    ok!(hipSetDevice(1));
    let (second, other, host) = (allocated(16), stream(), pinned(16));
    assert_eq!((API.device_of(first), API.device_of(second)), (Ok(Some(0)), Ok(Some(1))));
    assert_eq!(launch(function, first, first, other), HipError::INVALID_HANDLE);
    ok!(hipMemsetAsync(first, 7, 16, other));
    ok!(hipMemcpyPeerAsync(second, 1, first, 0, 16, other));
    ok!(hipMemcpyAsync(host, second, 16, hipMemcpyDefault, other));
    ok!(hipStreamSynchronize(other));
    // SAFETY: the memory is that long, and nothing writes to it any more.
    assert_eq!(unsafe { *host.cast::<[u8; 16]>() }, [7; 16]);
    assert_eq!(status!(hipSetDevice(2)), HipError::INVALID_DEVICE);
}

/// NVIDIA documents that it stays lost until the process ends.
fn a_lost_device_stays_lost() {
    ok!(hipSetDevice(0));
    let (stream, event, memory, (module, function)) = (stream(), event(), allocated(16), kernel());
    let nowhere = std::ptr::without_provenance_mut(0x1000);
    assert_eq!(launch(function, nowhere, memory, stream), HipError::SUCCESS);
    assert_eq!(status!(hipStreamSynchronize(stream)), HipError::ILLEGAL_ADDRESS);
    let (mut address, mut size) = (null_mut(), (0, 0));
    let refused = [
        status!(hipMalloc(&mut address, 16)),
        status!(hipHostMalloc(&mut address, 16, 0)),
        status!(hipMemGetInfo(&mut size.0, &mut size.1)),
        status!(hipMemsetAsync(memory, 0, 16, stream)),
        launch(function, memory, memory, stream),
        status!(hipStreamCreateWithPriority(&mut address, 0, 0)),
        status!(hipStreamQuery(stream)),
        status!(hipEventRecord(event, stream)),
        status!(hipEventQuery(event)),
        status!(hipDeviceSynchronize()),
        status!(hipEventDestroy(event)),
        status!(hipStreamDestroy(stream)),
        status!(hipFree(memory)),
        status!(hipModuleUnload(module)),
    ];
    assert_eq!(refused, [HipError::ILLEGAL_ADDRESS; 14]);
    assert!(refused[0].is_device_lost());
    // Functions that concern only the thread still work.
    ok!(hipSetDevice(0));
    let other = std::thread::spawn(|| {
        ok!(hipSetDevice(0));
        assert_eq!(status!(hipDeviceSynchronize()), HipError::ILLEGAL_ADDRESS);
    });
    other.join().unwrap();
}
