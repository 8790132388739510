// SPDX-License-Identifier: MPL-2.0

//! Loads libraries compiled for these tests, and compares with HIP's headers.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;

use crate::api::{OPTIONAL, REQUIRED, amd_candidates};
use crate::constants::CONSTANTS;
use crate::error::ERRORS;
use crate::structs::*;
use crate::*;

/// Compiles a library. The compiler's messages appear in the output of the test.
fn library(folder: &Path, name: &str, source: &Path) -> PathBuf {
    let path = folder.join(name);
    let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(cc)
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&path, source])
        .status()
        .expect("a C compiler is needed");
    assert!(status.success(), "the C compiler failed");
    path
}

/// Compiles a HIP runtime whose required functions do nothing, with the optional functions of `source`.
fn fake_hip(folder: &Path, name: &str, source: &str) -> PathBuf {
    let mut text = source.to_owned() + "\n";
    for (function, _) in REQUIRED {
        writeln!(text, "int {function}(void) {{ return 801; }}").unwrap();
    }
    let path = folder.join(format!("{name}.c"));
    std::fs::write(&path, text).unwrap();
    library(folder, name, &path)
}

fn paths(paths: &[&Path]) -> Vec<OsString> {
    paths.iter().map(|path| path.as_os_str().to_owned()).collect()
}

#[test]
fn searches_all_usual_places_newest_first() {
    let all = amd_candidates(&["/r".into(), "/opt/rocm".into()]);
    assert_eq!(all[..4], ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"]);
    assert_eq!(all[4], "/r/lib/libamdhip64.so.7");
    assert_eq!(all[11], "/opt/rocm/lib/libamdhip64.so");
    assert_eq!(all.len(), 12);
}

#[test]
fn missing_library_is_named() {
    for vendor in [Vendor::Amd, Vendor::Nvidia] {
        let Err(LoadError::Library { tried, reason }) =
            Api::first(vendor, &["libamdhip64.so.99".into(), "/no/such.so".into()])
        else {
            panic!("there is no such library")
        };
        assert_eq!(tried, ["libamdhip64.so.99", "/no/such.so"]);
        assert!(reason.starts_with("libamdhip64.so.99: cannot open"), "{reason}");
    }
}

#[test]
fn broken_library_is_the_reason_even_if_others_are_absent() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.so");
    std::fs::write(&text, "not a library").unwrap();
    let absent = Path::new("/no/such.so");
    let error =
        Api::first(Vendor::Amd, &paths(&[absent, &text, absent])).err().expect("not a library").to_string();
    assert!(error.contains(&format!("{}: ", text.display())), "{error}");
}

#[test]
fn first_library_that_opens_is_the_one() {
    let folder = tempfile::tempdir().unwrap();
    let hip = fake_hip(folder.path(), "whole.so", "");
    let Err(LoadError::Symbol { library, symbol }) =
        Api::first(Vendor::Amd, &paths(&[Path::new("libm.so.6"), &hip]))
    else {
        panic!("libm is no HIP runtime")
    };
    assert_eq!((library.as_str(), symbol.as_str()), ("libm.so.6", "hipInit"));

    let api = Api::first(Vendor::Amd, &paths(&[Path::new("/no/such.so"), &hip])).unwrap();
    assert_eq!(api.library(), hip.display().to_string());
    assert_eq!(api.vendor(), Vendor::Amd);
}

#[test]
fn missing_function_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("part.c");
    std::fs::write(&source, "int hipInit(unsigned flags) { return (int)flags; }").unwrap();
    let part = library(folder.path(), "part.so", &source);
    let error = Api::first(Vendor::Amd, &paths(&[&part])).err().expect("most functions are missing");
    assert_eq!(error.to_string(), format!("{} has no function hipDriverGetVersion", part.display()));
}

#[test]
fn optional_functions_may_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let hip = fake_hip(folder.path(), "none.so", "");
    let api = Api::first(Vendor::Amd, &paths(&[&hip])).unwrap();
    assert!(!api.graphs() && !api.external_memory());
    // SAFETY: there is no such function.
    assert_eq!(unsafe { api.hipHostRegister(null_mut(), 0, 0) }, HipError::NOT_SUPPORTED);
    assert_eq!(api.arch_name(0), Err(HipError::NOT_SUPPORTED));
    assert_eq!(api.device_of(null_mut()), Err(HipError::NOT_SUPPORTED));

    let most = "int hipStreamBeginCapture(void) { return 0; } int hipStreamEndCapture(void) { return 0; }
        int hipGraphInstantiate(void) { return 0; } int hipGraphLaunch(void) { return 0; }
        int hipGraphExecDestroy(void) { return 0; }";
    let api = Api::first(Vendor::Amd, &paths(&[&fake_hip(folder.path(), "most.so", most)])).unwrap();
    assert!(!api.graphs());
    let all = format!("{most} int hipGraphDestroy(void) {{ return 0; }}");
    assert!(Api::first(Vendor::Amd, &paths(&[&fake_hip(folder.path(), "all.so", &all)])).unwrap().graphs());
}

/// A runtime of ROCm 6 has the properties in both layouts, and other numbers of memory types.
#[test]
fn layouts_of_rocm_5_and_6() {
    let rocm_5 = r#"
        #include <string.h>
        int hipGetDeviceProperties(char *p, int device) {
            memset(p, 0, 792);
            strcpy(p, "A GPU");
            strcpy(p + 396, "gfx90a:sramecc+:xnack-");
            return device ? 101 : 0;
        }
        int hipPointerGetAttributes(int *p, const void *address) {
            p[0] = TYPE((unsigned long)address), p[1] = 3;
            return address == (void *)9;
        }
    "#;
    let rocm_6 = r#"
        int hipGetDevicePropertiesR0600(char *p, int device) {
            memset(p, 0, 1472);
            strcpy(p + 1160, "gfx1100");
            return device ? 101 : 0;
        }
    "#;
    let folder = tempfile::tempdir().unwrap();
    let types = ["#define TYPE(a) (a == 1)", "#define TYPE(a) (a == 1 ? 2 : a == 2 ? 1 : 0)"];
    let old = fake_hip(folder.path(), "5.so", &format!("{}{rocm_5}", types[0]));
    let new = fake_hip(folder.path(), "6.so", &format!("{}{rocm_5}{rocm_6}", types[1]));
    for (library, arch) in [(old, "gfx90a:sramecc+:xnack-"), (new, "gfx1100")] {
        let api = Api::first(Vendor::Amd, &paths(&[&library])).unwrap();
        assert_eq!(api.arch_name(0).as_deref(), Ok(arch));
        assert_eq!(api.arch_name(1), Err(HipError::INVALID_DEVICE));
        let of = |address| api.device_of(std::ptr::without_provenance(address));
        assert_eq!((of(1), of(2), of(9)), (Ok(Some(3)), Ok(None), Ok(None)), "{arch}");
        let knows = |address| api.knows(std::ptr::without_provenance(address));
        assert_eq!((knows(1), knows(2), knows(9)), (Ok(true), Ok(true), Ok(false)), "{arch}");
        // Host memory in ROCm 5 has the number of unregistered memory in ROCm 6.
        assert_eq!(knows(3), Ok(arch != "gfx1100"));
    }
}

#[test]
fn processor_is_found_where_a_later_layout_has_it() {
    let mut properties = vec![0; 2000];
    assert_eq!(arch_in(&properties, ARCH_OFFSET), None);
    assert_eq!(arch_in(&properties, 2000), None);
    assert_eq!(arch_in(&properties, 9999), None);
    properties[1990..1997].copy_from_slice(b"gfx1201");
    assert_eq!(arch_in(&properties, ARCH_OFFSET).as_deref(), Some("gfx1201"));
    properties[1997..].fill(b'x');
    assert_eq!(arch_in(&properties, 9999).as_deref(), Some("gfx1201xxx"));
}

/// Calls the installed runtime as far as possible without a GPU.
#[test]
fn installed_runtime_reports_no_device() {
    if Path::new("/dev/kfd").exists() {
        return;
    }
    let Ok(api) = Api::first(Vendor::Amd, &amd_candidates(&["/opt/rocm".into()])) else { return };
    let mut count = 7;
    // SAFETY: the pointer is valid for a write.
    let status = unsafe { api.hipGetDeviceCount(&mut count) };
    assert_eq!((status, count), (HipError::NO_DEVICE, 0), "{}", api.library());
    assert!(api.graphs() && api.external_memory(), "{}", api.library());
    assert_eq!(api.arch_name(0).err().map(|error| error.code() / 10), Some(10), "100 or 101");
}

#[test]
fn errors_have_names_and_lost_devices_are_distinguished() {
    assert_eq!(HipError::NO_DEVICE.to_string(), "hipErrorNoDevice (100)");
    assert_eq!(HipError::from_code(12345).to_string(), "unknown error (12345)");
    assert_eq!(HipError::SUCCESS.ok(), Ok(()));
    assert_eq!(HipError::from_code(2).ok(), Err(HipError::OUT_OF_MEMORY));
    for lost in [700, 702, 709, 710, 714, 719, 999] {
        assert!(HipError::from_code(lost).is_device_lost(), "{lost}");
    }
    for usable in [0, 1, 2, 100, 200, 209, 600, 701, 712, 713, 720, 801, 908] {
        assert!(!HipError::from_code(usable).is_device_lost(), "{usable}");
    }
}

/// Checks the arguments that the functions for NVIDIA pass to the driver.
#[test]
fn cuda_driver_behind_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_cuda.c");
    let cuda = library(folder.path(), "libcuda.so.1", &source);
    let api = Api::load_from(Vendor::Nvidia, &cuda).unwrap();
    assert_eq!((api.library(), api.vendor()), (cuda.to_str().unwrap(), Vendor::Nvidia));
    assert!(api.graphs() && api.external_memory());

    // SAFETY: the library is open already, and the type is that of the source.
    let calls = unsafe {
        let library = libloading::Library::new(&cuda).unwrap();
        let get = *library.get::<unsafe extern "C" fn(*mut c_char, usize)>("fake_calls").unwrap();
        std::mem::forget(library);
        move || {
            let mut text = vec![0u8; 4096];
            get(text.as_mut_ptr().cast(), text.len());
            CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()
        }
    };
    let p = |address: usize| std::ptr::without_provenance_mut::<c_void>(address);
    // check!(function(arguments), status, calls)
    macro_rules! check {
        ($function:ident($($argument:expr),*), $status:expr, $calls:expr) => {{
            // SAFETY: the arguments are valid for the fake driver.
            let status = unsafe { api.$function($($argument),*) };
            assert_eq!(
                (status, calls().as_str()),
                (HipError::from_code($status), $calls.as_ref()),
                stringify!($function)
            );
        }};
    }

    let (mut number, mut handle, mut size) = (0, null_mut(), (0, 0));
    check!(hipInit(0), 0, "cuInit 0\n");
    check!(hipDriverGetVersion(&mut number), 0, "");
    assert_eq!(number, 12080);
    check!(hipGetDeviceCount(&mut number), 0, "cuInit 0\n");
    assert_eq!(number, 2);
    check!(hipSetDevice(1), 0, "cuInit 0\ncuDevicePrimaryCtxRetain 41\ncuCtxSetCurrent 1041\n");
    check!(hipSetDevice(1), 0, "cuCtxSetCurrent 1041\n");
    check!(hipSetDevice(2), 101, "cuInit 0\n");
    let ours = api.current().unwrap();
    for (attribute, cuda) in [(87, 10), (63, 16), (16, 18), (74, 8), (56, 1), (67, 33), (68, 34), (69, 50)] {
        check!(
            hipDeviceGetAttribute(&mut number, attribute, 1),
            0,
            format!("cuDeviceGetAttribute {cuda} 41\n")
        );
    }
    check!(hipDeviceGetAttribute(&mut number, 9999, 1), 1, "");
    assert_eq!(api.arch_name(0).as_deref(), Ok("sm_90"));
    assert_eq!(calls(), "cuDeviceGetAttribute 75 40\ncuDeviceGetAttribute 76 40\n");
    let mut text = [0u8; 16];
    check!(hipDeviceGetName(text.as_mut_ptr().cast(), 16, 1), 0, "");
    assert_eq!(CStr::from_bytes_until_nul(&text).unwrap(), c"Fake 41");
    check!(hipDeviceGetPCIBusId(text.as_mut_ptr().cast(), 16, 1), 0, "");
    assert_eq!(CStr::from_bytes_until_nul(&text).unwrap(), c"0000:41:00.0");
    check!(hipMemGetInfo(&mut size.0, &mut size.1), 0, "");
    assert_eq!(size, (1, 2));

    check!(hipMalloc(&mut handle, 16), 0, "");
    assert_eq!(handle, p(0x7010));
    check!(hipFree(handle), 0, "cuMemFree_v2 7010\n");
    check!(hipHostMalloc(&mut handle, 64, 0x8000_0003), 2, "cuMemHostAlloc 64 3\n");
    check!(hipHostFree(p(0x20)), 0, "cuMemFreeHost 20\n");
    check!(hipHostRegister(p(0x20), 3, 1), 0, "cuMemHostRegister_v2 20 3 1\n");
    check!(hipHostUnregister(p(0x20)), 0, "cuMemHostUnregister 20\n");
    check!(hipMemcpyAsync(p(1), p(2), 3, hipMemcpyHostToDevice, p(4)), 0, "cuMemcpyAsync 1 2 3 4\n");
    check!(
        hipMemcpyPeerAsync(p(1), 0, p(2), 1, 3, p(4)),
        0,
        "cuInit 0\ncuDevicePrimaryCtxRetain 40\ncuMemcpyPeerAsync 1 1040 2 1041 3 4\n"
    );
    check!(hipMemsetAsync(p(1), -1, 3, p(4)), 0, "cuMemsetD8Async 1 255 3 4\n");
    for (kind, from, to) in [(0, 1, 1), (1, 1, 2), (2, 2, 1), (3, 2, 2), (4, 4, 4)] {
        check!(
            hipMemcpy2DAsync(p(0xd0), 50, p(0x50), 70, 40, 9, kind, p(5)),
            0,
            format!("cuMemcpy2DAsync_v2 0,0 {from} 50 50 0 70 to 0,0 {to} d0 d0 0 50 size 40x9 5\n")
        );
    }
    check!(hipMemcpy2DAsync(p(1), 5, p(1), 5, 4, 1, 5, p(5)), 21, "");
    // SAFETY: the fake copies nothing.
    let copied = |pieces: &[Piece]| unsafe { api.copy_pieces(pieces, p(7)) };
    let piece = |to, from, size| Piece { to, from, size };
    let pieces = |first| (copied(&[piece(first, 3, 5), piece(2, 4, 6)]), calls());
    let said = |first| format!("cuMemcpyBatchAsync 0 of 1: 1 0 0 0 0 0 7\n{first:x} 3 5\n2 4 6\n");
    assert_eq!(pieces(1), (Ok(()), said(1)));
    assert_eq!(pieces(0xbad), (Err(HipError::INVALID_VALUE), said(0xbad)));
    let of = |address| api.device_of(p(address));
    assert_eq!((of(0xde), of(0x1), of(0xbad)), (Ok(Some(1)), Ok(None), Ok(None)));

    // Memory and streams of another context, 77 in the fake.
    assert_eq!(
        (api.synchronize_owner(p(0xde)), calls().as_str()),
        (Ok(()), "cuCtxSetCurrent 77\ncuCtxSynchronize\n")
    );
    assert_eq!((api.synchronize_owner(p(0xbad)), calls().as_str()), (Err(HipError::INVALID_VALUE), ""));
    // SAFETY: the fake looks at no stream.
    assert_eq!(unsafe { api.wait_for_stream(p(0x51), p(0x99)) }, Ok(()));
    assert_eq!(
        calls(),
        "cuStreamGetCtx 99\ncuCtxSetCurrent 77\ncuEventCreate 2\ncuEventRecord e 99\ncuStreamWaitEvent 51 e 0\n\
         cuEventDestroy_v2 e\n"
    );

    let mut device = 0;
    check!(hipGetDevice(&mut device), 0, "");
    assert_eq!(device, 1, "the number of a device that the driver calls 41");

    // That context is current now. The earlier one can be made current again.
    assert_ne!(api.current(), Ok(ours));
    assert_eq!((api.set_current(ours), calls().as_str()), (Ok(()), "cuCtxSetCurrent 1041\n"));
    assert_eq!(api.current(), Ok(ours));

    check!(
        hipStreamCreateWithPriority(&mut handle, hipStreamNonBlocking, -1),
        0,
        "cuStreamCreateWithPriority 1 -1\n"
    );
    check!(hipStreamQuery(handle), 600, "");
    check!(hipStreamWaitEvent(handle, p(0xe), 0), 0, "cuStreamWaitEvent 51 e 0\n");
    check!(hipStreamSynchronize(handle), 0, "cuStreamSynchronize 51\n");
    /// # Safety
    ///
    /// `argument` must point to a number that is not used elsewhere.
    unsafe extern "C" fn callback(stream: hipStream_t, status: HipError, argument: *mut c_void) {
        // SAFETY: the caller has promised that it is a number.
        unsafe { *argument.cast::<usize>() = stream.addr() + status.code() as usize };
    }
    let mut seen = 0usize;
    let argument = (&raw mut seen).cast();
    check!(hipStreamAddCallback(handle, callback, argument, 0), 0, "cuStreamAddCallback 51 0\n");
    assert_eq!(seen, 0x51);
    check!(hipStreamDestroy(handle), 0, "cuStreamDestroy_v2 51\n");
    check!(hipDeviceSynchronize(), 0, "cuCtxSynchronize\n");

    check!(hipEventCreateWithFlags(&mut handle, 0x4000_0003), 0, "cuEventCreate 3\n");
    check!(hipEventRecord(handle, p(0x51)), 0, "cuEventRecord e 51\n");
    check!(hipEventQuery(handle), 0, "");
    check!(hipEventSynchronize(handle), 0, "cuEventSynchronize e\n");
    let mut ms = 0.0;
    check!(hipEventElapsedTime(&mut ms, handle, handle), 0, "");
    assert_eq!(ms, 1.5);
    check!(hipEventDestroy(handle), 0, "cuEventDestroy_v2 e\n");

    let (image, name) = (CString::new("ptx").unwrap(), CString::new("kernel").unwrap());
    let mut function = null_mut();
    check!(
        hipModuleLoadData(&mut handle, image.as_ptr().cast()),
        0,
        "cuLibraryLoadData ptx 0 0\ncuLibraryGetModule 1b\n"
    );
    check!(
        hipModuleGetFunction(&mut function, handle, name.as_ptr()),
        0,
        "cuLibraryGetModule 1b\ncuModuleGetFunction 30 kernel\n"
    );
    let mut value: c_int = 77;
    let mut arguments = [(&raw mut value).cast::<c_void>()];
    check!(
        hipModuleLaunchKernel(function, 1, 2, 3, 4, 5, 6, 7, p(8), arguments.as_mut_ptr(), null_mut()),
        0,
        "cuLaunchKernel f 1,2,3 4,5,6 7 8 77 0\n"
    );
    check!(hipModuleUnload(handle), 0, "cuLibraryUnload 1b\n");
    check!(hipGetLastError(), 0, "");

    let (mut graph, mut exec) = (null_mut(), null_mut());
    check!(hipStreamBeginCapture(p(5), hipStreamCaptureModeThreadLocal), 0, "cuStreamBeginCapture_v2 5 1\n");
    check!(hipStreamEndCapture(p(5), &mut graph), 0, "cuStreamEndCapture 5\n");
    let mut nodes = 0;
    check!(hipGraphGetNodes(graph, null_mut(), &mut nodes), 0, "cuGraphGetNodes 60 0\n");
    assert_eq!(nodes, 3);
    check!(
        hipGraphInstantiate(&mut exec, graph, null_mut(), null_mut(), 0),
        0,
        "cuGraphInstantiateWithFlags 60 0\n"
    );
    check!(hipGraphLaunch(exec, p(5)), 0, "cuGraphLaunch 61 5\n");
    check!(hipGraphExecDestroy(exec), 0, "cuGraphExecDestroy 61\n");
    check!(hipGraphDestroy(graph), 0, "cuGraphDestroy 60\n");

    let memory = ExternalMemoryHandleDesc::opaque_fd(12, 1 << 40);
    check!(
        hipImportExternalMemory(&mut handle, memory.as_ptr()),
        0,
        "cuImportExternalMemory 1 12 1099511627776 0 0\n"
    );
    let part = ExternalMemoryBufferDesc::new(4096, 8192);
    check!(
        hipExternalMemoryGetMappedBuffer(&mut function, handle, part.as_ptr()),
        0,
        "cuExternalMemoryGetMappedBuffer 3e 4096 8192 0 0\n"
    );
    assert_eq!(function, p(0x9000));
    check!(hipDestroyExternalMemory(handle), 0, "cuDestroyExternalMemory 3e\n");
}

/// Each library has its own driver, with separate state.
#[test]
fn two_drivers_may_be_open() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_cuda.c");
    let open = |name| {
        let path = library(folder.path(), name, &source);
        (Api::load_from(Vendor::Nvidia, &path).unwrap(), path)
    };
    let [(first, _), (second, path)] = ["first.so", "second.so"].map(open);
    let (mut count, mut text) = (0, vec![0u8; 4096]);
    // SAFETY: the library is open already, the type is that of the source, and all addresses are valid for writes.
    unsafe {
        assert_eq!(first.hipSetDevice(1), HipError::SUCCESS);
        assert_eq!(second.hipGetDeviceCount(&mut count), HipError::SUCCESS);
        let library = libloading::Library::new(&path).unwrap();
        let get = library.get::<unsafe extern "C" fn(*mut c_char, usize)>("fake_calls").unwrap();
        get(text.as_mut_ptr().cast(), text.len());
    }
    assert_eq!(CStr::from_bytes_until_nul(&text).unwrap(), c"cuInit 0\n");
}

/// Returns a letter for the way an argument is passed, and after a `*` for the type that a pointer points to.
fn code(rust_type: &str) -> &'static str {
    match rust_type {
        "c_int" => "i",
        "c_uint" => "u",
        "usize" => "z",
        "*mut c_int" => "*i",
        "*mut usize" => "*z",
        "*mut f32" => "*f",
        "*mut c_char" | "*const c_char" => "*c",
        "*mut c_void" | "*const c_void" => "*v",
        handle if handle.starts_with("hip") => "*v",
        handles if handles.starts_with("*mut hip") || handles == "*mut *mut c_void" => "**",
        other => panic!("{other} has no letter"),
    }
}

/// Compares every number, signature and layout of this crate with HIP's headers in a C++ compiler.
#[test]
fn agrees_with_the_headers_of_hip() {
    let mut text = String::from("#include \"abi.hpp\"\n");
    let mut line = |line: String| writeln!(text, "{line}").unwrap();
    let errors = ERRORS.iter().map(|(name, value)| (*name, i64::from(*value)));
    for (name, value) in CONSTANTS.iter().copied().chain(errors) {
        line(format!("CONSTANT({name}, {value})"));
    }
    for (name, arguments) in REQUIRED.iter().chain(OPTIONAL) {
        let codes: String = arguments.iter().map(|argument| format!(", \"{}\"", code(argument))).collect();
        match *name {
            "hipGetDevicePropertiesR0600" => line(format!("SINCE_6(FUNCTION({name}{codes}))")),
            _ => line(format!("FUNCTION({name}{codes})")),
        }
    }
    line(
        "static_assert(std::is_same_v<hipStreamCallback_t, void (*)(hipStream_t, hipError_t, void *)>);"
            .into(),
    );
    for (kind, field, at) in [
        ("hipExternalMemoryHandleDesc", "type", offset_of!(ExternalMemoryHandleDesc, kind)),
        ("hipExternalMemoryHandleDesc", "handle.fd", offset_of!(ExternalMemoryHandleDesc, fd)),
        ("hipExternalMemoryHandleDesc", "size", offset_of!(ExternalMemoryHandleDesc, size)),
        ("hipExternalMemoryHandleDesc", "flags", offset_of!(ExternalMemoryHandleDesc, flags)),
        ("hipExternalMemoryBufferDesc", "offset", offset_of!(ExternalMemoryBufferDesc, offset)),
        ("hipExternalMemoryBufferDesc", "size", offset_of!(ExternalMemoryBufferDesc, size)),
        ("hipExternalMemoryBufferDesc", "flags", offset_of!(ExternalMemoryBufferDesc, flags)),
        ("hipPointerAttribute_t", "device", offset_of!(PointerAttributes, device)),
    ] {
        line(format!("FIELD({kind}, {field}, {at}, 128)"));
    }
    line(format!(
        "BEFORE_6(FIELD(hipPointerAttribute_t, memoryType, {}, 128))",
        offset_of!(PointerAttributes, kind)
    ));
    line(format!(
        "SINCE_6(FIELD(hipPointerAttribute_t, type, {}, 128))",
        offset_of!(PointerAttributes, kind)
    ));
    line(format!("BEFORE_6(CONSTANT(hipMemoryTypeDevice, {MEMORY_TYPE_DEVICE_5}))"));
    line(format!("SINCE_6(CONSTANT(hipMemoryTypeDevice, {MEMORY_TYPE_DEVICE}))"));
    line(format!("BEFORE_6(FIELD(hipDeviceProp_t, gcnArchName, {ARCH_OFFSET}, {PROPERTIES_SIZE}))"));
    line(format!(
        "SINCE_6(FIELD(hipDeviceProp_tR0600, gcnArchName, {ARCH_OFFSET_R0600}, {PROPERTIES_SIZE}))"
    ));
    assert_eq!([size_of::<ExternalMemoryHandleDesc>(), size_of::<ExternalMemoryBufferDesc>()], [128; 2]);
    assert_eq!(size_of::<PointerAttributes>(), 128);

    if let Err(message) = compiles("#include <hip/hip_version.h>\n") {
        assert!(std::env::var_os("HIPVMAF_REQUIRE_HIP_HEADERS").is_none(), "{message}");
        eprintln!("not compared: HIP's headers are not installed");
    } else if let Err(message) = compiles(&text) {
        panic!("{message}");
    }
}

/// Compiles C++ and returns the compiler's errors.
fn compiles(text: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("abi.cpp");
    std::fs::write(&source, text).unwrap();
    let output = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()))
        .args(["-std=c++17", "-fsyntax-only", "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/tests")])
        .args([Path::new("-isystem"), Path::new("/opt/rocm/include"), &source])
        .output()
        .expect("a C++ compiler is needed");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
