// SPDX-License-Identifier: MPL-2.0

//! The command `devices`: lists the GPUs of this machine.

use engine::backend::hip;

use score::error::Error;
use score::output;

/// Prints a line for each GPU. No GPU is not an error: the CPU is used.
pub fn list(json: bool) -> Result<(), Error> {
    let found = hip::gpus();
    if json {
        return output::print_json(found.as_deref().unwrap_or_default());
    }
    match found {
        Ok(gpus) => gpus.iter().try_for_each(output::print),
        Err(why) => output::print(format_args!("No GPU can be used, so the CPU scores: {why}")),
    }
}
