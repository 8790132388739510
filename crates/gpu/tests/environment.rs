// SPDX-License-Identifier: MPL-2.0

//! Variables with empty values. There is one test, as the environment belongs to the whole process.

mod code;

use hipvmaf_gpu::{Device, Selection, devices};

use code::Empty;

/// An empty name would open this program itself.
#[test]
fn set_to_nothing_is_not_set() {
    for variable in ["HIPVMAF_HIP_LIBRARY", "HIPVMAF_CUDA_LIBRARY"] {
        // SAFETY: this process has no other test, so no other thread reads the environment.
        unsafe { std::env::set_var(variable, "") };
    }
    let error = Device::open(&Selection::default(), &Empty { covers: false }).err().unwrap().to_string();
    assert!(
        !devices().is_empty() || error.contains("libamdhip64.so") && error.contains("libcuda.so.1"),
        "{error}"
    );
}
