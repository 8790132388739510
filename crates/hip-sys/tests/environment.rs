// SPDX-License-Identifier: MPL-2.0

//! The variables that name a library. One test, as the environment is one for the whole process.

use hipvmaf_hip_sys::{LoadError, load_amd, load_nvidia};

#[test]
fn variables_name_the_only_library_to_try() {
    let set = |name, value| {
        // SAFETY: this process has no other test, so no other thread reads the environment.
        unsafe { std::env::set_var(name, value) }
    };
    let symbol = |library: &str, symbol: &str| {
        Some(LoadError::Symbol { library: library.to_owned(), symbol: symbol.to_owned() })
    };
    let tried = |error: Option<LoadError>| match error {
        Some(LoadError::Library { tried, .. }) => tried,
        other => panic!("{other:?}"),
    };

    set("HIPVMAF_HIP_LIBRARY", "libm.so.6");
    assert_eq!(load_amd().err(), symbol("libm.so.6", "hipInit"));
    set("HIPVMAF_CUDA_LIBRARY", "libm.so.6");
    assert_eq!(load_nvidia().err(), symbol("libm.so.6", "cuInit"));
    set("HIPVMAF_HIP_LIBRARY", "/no/such.so");
    assert_eq!(tried(load_amd().err()), ["/no/such.so"]);

    // Set to nothing is not set: an empty name would be this program itself.
    set("HIPVMAF_CUDA_LIBRARY", "");
    if let Err(error) = load_nvidia() {
        assert_eq!(tried(Some(error)), ["libcuda.so.1"]);
    }
    set("HIPVMAF_HIP_LIBRARY", "");
    set("ROCM_PATH", "/no/rocm");
    if let Err(error) = load_amd() {
        let tried = tried(Some(error));
        assert_eq!(
            (tried[0].as_str(), tried[4].as_str()),
            ("libamdhip64.so.7", "/no/rocm/lib/libamdhip64.so.7")
        );
    }
}
