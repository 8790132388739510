// SPDX-License-Identifier: MPL-2.0

//! Where the software devices are, for the tests of all crates.

use std::path::PathBuf;

/// A library that `make swhip` builds: `libamdhip64.so.6` or `libcuda.so.1`.
pub fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "target"));
    let library = target.expect("tests are built in `target`").join("swhip").join(name);
    assert!(library.exists(), "no {}: build it with `make swhip`", library.display());
    library
}
