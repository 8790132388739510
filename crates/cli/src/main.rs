// SPDX-License-Identifier: MPL-2.0

//! The program `hipvmaf`; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    hipvmaf_cli::main()
}
