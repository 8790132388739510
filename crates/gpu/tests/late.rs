// SPDX-License-Identifier: MPL-2.0

//! A runtime that appears after the first request. There is one test, as the environment and the runtimes belong to the
//! whole process.

mod code;

use std::path::Path;
use std::process::Command;

use hipvmaf_gpu::{Device, Error, Selection, Stream, Vendor, devices, owner};

use code::Empty;

/// Returns functions that get and set the current context of a thread in the fake driver.
fn contexts(driver: &Path) -> (impl Fn() -> usize, impl Fn(usize)) {
    type Get = unsafe extern "C" fn(*mut usize) -> i32;
    type Set = unsafe extern "C" fn(usize) -> i32;
    // SAFETY: the library is open already, and the types are those of its source.
    let (get, set) = unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(driver).unwrap()));
        (*library.get::<Get>("cuCtxGetCurrent").unwrap(), *library.get::<Set>("cuCtxSetCurrent").unwrap())
    };
    let get = move || {
        let mut context = 1;
        // SAFETY: the address is valid for a write.
        assert_eq!(unsafe { get(&mut context) }, 0);
        context
    };
    // SAFETY: the fake keeps any number.
    (get, move |context| assert_eq!(unsafe { set(context) }, 0))
}

#[test]
fn a_driver_that_was_missing_is_found_later_and_then_kept() {
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("libcuda.so.1");
    // SAFETY: this process has no other test, so no other thread reads the environment.
    unsafe {
        std::env::set_var("HIPVMAF_HIP_LIBRARY", "libm.so.6");
        std::env::set_var("HIPVMAF_CUDA_LIBRARY", &driver);
    }
    assert!(devices().is_empty());
    let refused = Device::open(&Selection::default(), &Empty { covers: true }).err();
    let Some(Error::NoDevice(reason)) = refused else { panic!("{refused:?}") };
    assert!(
        reason.contains(driver.to_str().unwrap()) && reason.contains("libm.so.6 has no function"),
        "{reason}"
    );

    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hip-sys/tests/fake_cuda.c");
    let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(cc).args(["-shared", "-fPIC", "-o"]).args([&driver, &source]).status();
    assert!(compiled.expect("a C compiler is needed").success());

    let found = devices();
    let names: Vec<_> =
        found.iter().map(|info| (info.vendor, info.name.as_str(), info.arch.as_str())).collect();
    assert_eq!(names, [(Vendor::Nvidia, "Fake 40", "sm_90"), (Vendor::Nvidia, "Fake 41", "sm_90")]);
    assert_eq!(owner(0xde).map(|info| info.ordinal), Some(1));

    let selection = Selection { vendor: None, ordinal: Some(1) };
    let device = Device::open(&selection, &Empty { covers: true }).unwrap();
    let (get, set) = contexts(&driver);
    std::fs::remove_file(&driver).unwrap();
    assert!(std::ptr::eq(devices()[1], found[1]));
    assert!(std::sync::Arc::ptr_eq(&device, &Device::open(&selection, &Empty { covers: true }).unwrap()));

    // After each call the application's context is current, or none if there was none.
    for theirs in [5, 0] {
        set(theirs);
        device.memory().unwrap();
        // In the fake driver, this address is in a third context.
        device.synchronize_owner(0xde).unwrap();
        drop(Stream::new(&device).unwrap());
        assert_eq!(get(), theirs);
    }
}
