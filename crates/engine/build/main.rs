// SPDX-License-Identifier: MPL-2.0

//! Compiles the GPU kernels, each file into one compressed stream for all GPU targets (see
//! `src/backend/hip/images.rs`). `kernels.rs` chooses the targets and the compiler. `HIPVMAF_KERNEL_DIR` names a folder
//! for the compiled kernels, which builds of different profiles can share.

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
    // In the repository, this is a link to a folder that the tests and the tools share; in a published crate it is a
    // folder.
    let sources = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("kernels").canonicalize()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let dir = env::var_os("HIPVMAF_KERNEL_DIR").map_or_else(|| out.join("kernels"), PathBuf::from);
    watch(&sources, &dir);

    // The alignment that a loader may expect.
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
                // The driver reads PTX as a C string.
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

/// Declares the inputs of this program to cargo.
fn watch(sources: &Path, dir: &Path) {
    for variable in ["GPUS", "HIPVMAF_CLANG", "HIPVMAF_KERNEL_DIR"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=native-gpus");
    println!("cargo::rerun-if-changed={}", sources.display());
    // `scripts/bootstrap` stores the GPUs of the machine there. Cargo treats a missing file as changed.
    let native = dir.join("native");
    if native.exists() {
        println!("cargo::rerun-if-changed={}", native.display());
    }
}

/// Compiles the kernels for the selected GPUs.
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
        // If the user has not selected GPUs, a GPU without a target is no error.
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
    // The dictionary covers the related code objects before each one.
    let options = lzma_rust2::LzmaOptions { dict_size: 4 << 20, ..lzma_rust2::LzmaOptions::with_preset(3) };
    let mut writer = lzma_rust2::LzmaWriter::new_use_header(Vec::new(), &options, Some(bytes.len() as u64))?;
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}
