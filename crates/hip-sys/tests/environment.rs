// SPDX-License-Identifier: MPL-2.0

//! The variables that locate ROCm. There is one test, as the environment belongs to the whole process.

use hipvmaf_hip_sys::{Api, LoadError, Vendor};

#[test]
fn rocm_is_looked_for_where_the_environment_says() {
    let set = |name, value| {
        // SAFETY: this process has no other test, so no other thread reads the environment.
        unsafe { std::env::set_var(name, value) }
    };
    let tried = || match Api::load(Vendor::Amd) {
        Ok(_) => None,
        Err(LoadError::Library { tried, .. }) => Some(tried),
        Err(other) => panic!("{other:?}"),
    };
    set("ROCM_PATH", "/no/rocm");
    // An empty value counts as unset; it would be the root folder.
    set("HIP_PATH", "");
    if let Some(tried) = tried() {
        assert_eq!(
            (tried[0].as_str(), tried[4].as_str(), tried[8].as_str()),
            ("libamdhip64.so.7", "/no/rocm/lib/libamdhip64.so.7", "/opt/rocm/lib/libamdhip64.so.7")
        );
        assert_eq!(tried.len(), 12);
    }
}
