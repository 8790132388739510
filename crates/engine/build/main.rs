// SPDX-License-Identifier: MPL-2.0

//! Compiles the GPU kernels, each file into one compressed stream for all GPU targets (see `src/backend/hip/images.rs`).
//! `kernels.rs` says what decides for which, and with what. `HIPVMAF_KERNEL_DIR` names a folder for the compiled kernels, so
//! that builds of different profiles can share them.

mod kernels;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use kernels::{Clang, Object, Result, Selection};

fn main() {
    if let Err(error) = embed_kernels() {
        for line in error.to_string().lines() {
            println!("cargo::error={line}");
        }
    }
}

fn embed_kernels() -> Result<()> {
    // A link to the folder that the tests and the tools share, and a folder in what is published.
    let sources = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("kernels").canonicalize()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let dir = env::var_os("HIPVMAF_KERNEL_DIR").map_or_else(|| out.join("kernels"), PathBuf::from);
    watch(&sources, &dir);

    // Where a loader may expect alignment.
    const ALIGN: usize = 64;
    let mut modules = vec![];
    for of_module in objects(&sources, &dir)?.chunk_by(|one, next| one.module == next.module) {
        let module = &of_module[0].module;
        let mut stream = Vec::new();
        let mut index = String::new();
        for Object { target, file, .. } in of_module {
            stream.resize(stream.len().next_multiple_of(ALIGN), 0);
            let start = stream.len();
            stream.extend(fs::read(file)?);
            if target.starts_with("sm_") {
                // The driver wants PTX as a C string.
                stream.push(0);
            }
            write!(index, "({target:?}, {start}, {}), ", stream.len() - start)?;
        }
        let file = format!("{module}.lzma");
        fs::write(out.join(&file), compress(&stream)?)?;
        modules
            .push(format!("Module::new({module:?}, &[{index}], {}, include_bytes!({file:?}))", stream.len()));
    }
    let source = format!(
        "pub const TARGETS: &[&str] = &{:?};\n\
         pub const ALIGN: usize = {ALIGN};\n\
         pub static MODULES: [Module; {}] = [{}];\n",
        kernels::all().collect::<Vec<_>>(),
        modules.len(),
        modules.join(",\n"),
    );
    Ok(fs::write(out.join("images.rs"), source)?)
}

/// Tells cargo what this program reads.
fn watch(sources: &Path, dir: &Path) {
    for variable in ["GPUS", "HIPVMAF_CLANG", "HIPVMAF_KERNEL_DIR"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=native-gpus");
    println!("cargo::rerun-if-changed={}", sources.display());
    // scripts/bootstrap keeps the GPUs of the machine there. Cargo takes for changed what is not there.
    let native = dir.join("native");
    if native.exists() {
        println!("cargo::rerun-if-changed={}", native.display());
    }
}

/// The compiled kernels for the GPUs that are wanted.
fn objects(sources: &Path, dir: &Path) -> Result<Vec<Object>> {
    let gpus = env::var("GPUS").unwrap_or_default();
    let selection = Selection::new(&gpus, || kernels::native(Path::new("")))?;
    for gpu in &selection.unsupported {
        println!("cargo::warning=there are no kernels for the GPU {gpu} of this machine");
    }
    if selection.targets.is_empty() {
        return Ok(vec![]);
    }
    let clang = match Clang::find() {
        Ok(clang) => clang,
        // Where no GPU was asked for, one that cannot be compiled for is no error.
        Err(reason) if matches!(gpus.trim(), "" | "native") => {
            println!("cargo::warning=building without code for the GPUs of this machine: {reason}");
            return Ok(vec![]);
        }
        Err(reason) => return Err(format!("GPUS={gpus}: {reason}").into()),
    };
    let threads = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1);
    kernels::compile(&clang, sources, &selection.targets, dir, threads)
}

fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    // The dictionary reaches from a code object to those of its relatives before it.
    let options = lzma_rust2::LzmaOptions { dict_size: 4 << 20, ..lzma_rust2::LzmaOptions::with_preset(3) };
    let mut writer = lzma_rust2::LzmaWriter::new_use_header(Vec::new(), &options, Some(bytes.len() as u64))?;
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}
