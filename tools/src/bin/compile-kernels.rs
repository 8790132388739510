// SPDX-License-Identifier: MPL-2.0

//! Compiles the kernels for `all` GPUs or for a list of them into the folder that builds read. The file `list` in it has
//! the name and the origin of each object, for `scripts/kernel-report`.

#[path = "../../../crates/engine/build/kernels.rs"]
mod kernels;

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, thread};

use kernels::{Clang, Result, Selection};

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let (Some(folder), Some(gpus)) = (arguments.next(), arguments.next()) else {
        return Err("usage: compile-kernels FOLDER GPUS".into());
    };
    let selection = Selection::new(&gpus, || kernels::native(Path::new("")))?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
    let threads = thread::available_parallelism()?.get();
    let mut list = String::new();
    for object in
        kernels::compile(&Clang::find()?, &sources, &selection.targets, Path::new(&folder), threads)?
    {
        let name = object.file.file_name().unwrap_or_default().display();
        writeln!(list, "{name}\t{}", object.origin)?;
    }
    Ok(fs::write(Path::new(&folder).join("list"), list)?)
}
