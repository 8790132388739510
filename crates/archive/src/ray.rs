// SPDX-License-Identifier: MPL-2.0

//! Ray: the package hipvmaf-ray makes a task of each chunk that is missing, and merges.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use super::submit::Args;
use score::error::Error;

/// Runs the package to its end, in the Python that users have.
pub fn run(args: &Args, address: Option<&str>) -> Result<ExitCode, Error> {
    let mut command = Command::new("python3");
    command.args(["-m", "hipvmaf_ray", "--retries", &args.retries.to_string(), "--program"]);
    // A name may begin with a dash.
    let mut output = OsString::from("--output=");
    output.push(&args.merge.output);
    command.arg(std::env::current_exe()?).arg(output);
    command.args(address.iter().flat_map(|address| ["--address", address]));
    command.args(args.gpus.iter().flat_map(|gpus| ["--gpus".to_owned(), gpus.to_string()]));
    command.args(args.merge.no_provenance.then_some("--no-provenance"));
    command.args(args.means.options()).arg("--").arg(&args.merge.folder);
    let ended = command.status().map_err(|error| {
        Error::Failed(format!("cannot run python3: {error}; --on ray needs it with the package hipvmaf-ray"))
    })?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
