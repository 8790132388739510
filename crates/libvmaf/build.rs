// SPDX-License-Identifier: MPL-2.0

//! Gives the shared library the name that programs linked to libvmaf 3 look for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvmaf.so.3");
    // Threads of the library outlive the last context, so that its code has to stay in memory after `dlclose`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
