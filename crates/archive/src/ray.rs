// SPDX-License-Identifier: MPL-2.0

//! Ray: the Python package hipvmaf-ray makes one task per missing chunk, then merges.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use super::submit::Args;
use score::error::Error;

/// Runs the package in the user's Python until it ends.
pub fn run(args: &Args, address: Option<&str>) -> Result<ExitCode, Error> {
    let mut command = Command::new("python3");
    command.args(["-m", "hipvmaf_ray", "--retries", &args.retries.to_string(), "--program"]);
    // In this form, a name may begin with a dash.
    let mut output = OsString::from("--output=");
    output.push(&args.merge.output);
    command.arg(std::env::current_exe()?).arg(output);
    command.args(address.iter().flat_map(|address| ["--address", address]));
    command.args(args.gpus.iter().flat_map(|gpus| ["--gpus".to_owned(), gpus.to_string()]));
    command.args(args.merge.no_provenance.then_some("--no-provenance"));
    command.args(args.hardware.options()).arg("--").arg(&args.merge.folder);
    let ended = command.status().map_err(|error| {
        Error::Failed(format!("cannot run python3: {error}; --on ray needs it with the package hipvmaf-ray"))
    })?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
