// SPDX-License-Identifier: MPL-2.0

//! Compiles the GPU kernels, each file into one compressed stream for all GPU targets (see `src/backend/hip/images.rs`).
//!
//! Clang 19 or newer with lld is all it takes: no ROCm, no CUDA. Without it, or with `HIPVMAF_NO_KERNELS=1`,
//! the crate is built without GPU code. `HIPVMAF_CLANG` names another compiler. `HIPVMAF_KERNEL_DIR` names a
//! folder for the compiled kernels, so that builds of different profiles can share them.
//! `HIPVMAF_KERNEL_TARGETS=gfx1100,sm_80` compiles for these targets only, which is for development.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs, thread};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A GPU target: a kind of GPU to compile for.
struct Target {
    name: &'static str,
    flags: &'static [&'static str],
    /// GPU targets with the same instructions, whose code objects differ from this one's in the name and in
    /// the number of the target in the ELF header (`EF_AMDGPU_MACH`). `scripts/kernel-report` verifies it.
    twins: &'static [(&'static str, u8)],
    /// GPU targets that have every instruction of this one which the kernels use, and which the compiler does not know: their
    /// code objects are made in this way, too. `scripts/kernel-report` looks for the instructions that they lack.
    heirs: &'static [(&'static str, u8)],
}

const fn target(name: &'static str, flags: &'static [&'static str]) -> Target {
    Target { name, flags, twins: &[], heirs: &[] }
}

/// All GPU targets. For AMD code objects, in the oldest version that a runtime with support for the GPU may ask for:
/// ROCm 5.0 reads version 4, 5.7 reads 5, and 6.4 reads 6, which has the generic targets. For NVIDIA PTX, with 64-bit
/// floating point where that is fast; the driver compiles it for newer GPUs.
const TARGETS: &[Target] = &[
    target("gfx906", V4),
    target("gfx908", V4),
    target("gfx90a", V4),
    Target { heirs: &[("gfx950", 0x4f)], ..target("gfx942", V5) },
    Target { twins: &[("gfx1013", 0x42)], ..target("gfx1010", V4) },
    // These two have dot products.
    Target { twins: &[("gfx1012", 0x35)], ..target("gfx1011", V4) },
    Target {
        twins: &[
            ("gfx1031", 0x37),
            ("gfx1032", 0x38),
            ("gfx1033", 0x39),
            ("gfx1034", 0x3e),
            ("gfx1035", 0x3d),
            ("gfx1036", 0x45),
        ],
        ..target("gfx1030", V4)
    },
    target("gfx1100", V4),
    target("gfx1101", V4),
    target("gfx1102", V4),
    target("gfx1103", V4),
    target("gfx1150", V5),
    target("gfx1151", V5),
    Target { twins: &[("gfx1201", 0x4e)], ..target("gfx1200", V5) },
    target("gfx9-generic", V6),
    target("gfx10-3-generic", V6),
    target("gfx11-generic", V6),
    target("gfx12-generic", V6),
    target("sm_70", &["--cuda-gpu-arch=sm_70", "--cuda-feature=+ptx63", "-DHV_F64_FAST=0"]),
    target("sm_70-f64", &["--cuda-gpu-arch=sm_70", "--cuda-feature=+ptx63", "-DHV_F64_FAST=1"]),
    target("sm_80", &["--cuda-gpu-arch=sm_80", "--cuda-feature=+ptx70", "-DHV_F64_FAST=0", "-DHV_MMA=1"]),
    target("sm_80-f64", &["--cuda-gpu-arch=sm_80", "--cuda-feature=+ptx70", "-DHV_F64_FAST=1", "-DHV_MMA=1"]),
];
const V4: &[&str] = &["-mcode-object-version=4"];
const V5: &[&str] = &["-mcode-object-version=5"];
const V6: &[&str] = &["-mcode-object-version=6"];

/// `-fuse-cuid=none` keeps the path of the source out of the symbols.
const FLAGS: &[&str] = &["-nostdinc", "-std=c++17", "-O3", "-ffp-contract=off", "-fuse-cuid=none"];
const AMD_FLAGS: &[&str] = &[
    "-x",
    "hip",
    "--offload-device-only",
    "--no-gpu-bundle-output",
    "-nogpulib",
    "-nogpuinc",
    "-Xoffload-linker",
    "--strip-all",
];
const NVIDIA_FLAGS: &[&str] = &["-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-S"];

impl Target {
    fn is_amd(&self) -> bool {
        self.name.starts_with("gfx")
    }

    fn arguments(&self) -> Vec<String> {
        let vendor = if self.is_amd() { AMD_FLAGS } else { NVIDIA_FLAGS };
        let arch = self.is_amd().then(|| format!("--offload-arch={}", self.name));
        [FLAGS, vendor, self.flags].concat().into_iter().map(String::from).chain(arch).collect()
    }
}

fn main() {
    if let Err(error) = embed_kernels() {
        for line in error.to_string().lines() {
            println!("cargo::error={line}");
        }
    }
}

fn embed_kernels() -> Result<()> {
    // A link to the folder that the tests and the tools share, and a folder in what is published.
    let kernels = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("kernels").canonicalize()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    watch(&kernels);

    let (images, missing) = match find_clang() {
        Ok(clang) => (compile(&clang, &kernels, &kernel_dir(&out))?, None),
        Err(reason) => {
            println!("cargo::warning=building without GPU code: {reason}");
            (Vec::new(), Some(reason))
        }
    };

    // Where a loader may expect alignment.
    const ALIGN: usize = 64;
    let mut modules = vec![];
    for of_module in images.chunk_by(|one, next| one.module == next.module) {
        let module = &of_module[0].module;
        let mut stream = Vec::new();
        let mut index = String::new();
        for Image { target, bytes, .. } in of_module {
            stream.resize(stream.len().next_multiple_of(ALIGN), 0);
            write!(index, "({target:?}, {}, {}), ", stream.len(), bytes.len())?;
            stream.extend(bytes);
        }
        let file = format!("{module}.lzma");
        fs::write(out.join(&file), compress(&stream)?)?;
        modules
            .push(format!("Module::new({module:?}, &[{index}], {}, include_bytes!({file:?}))", stream.len()));
    }
    let source = format!(
        "pub const MISSING: Option<&str> = {missing:?};\n\
         pub const ALIGN: usize = {ALIGN};\n\
         #[cfg(test)]\n\
         pub const LIMITED: bool = {};\n\
         pub static MODULES: [Module; {}] = [{}];\n",
        env::var_os("HIPVMAF_KERNEL_TARGETS").is_some_and(|names| !names.is_empty()),
        modules.len(),
        modules.join(",\n"),
    );
    fs::write(out.join("images.rs"), source)?;

    // For build scripts of crates that depend on this one, as `DEP_HIPVMAF_KERNELS_BUILT`.
    println!("cargo::metadata=BUILT={}", missing.is_none());
    Ok(())
}

/// Tells cargo what this program reads.
fn watch(kernels: &Path) {
    for variable in ["HIPVMAF_CLANG", "HIPVMAF_NO_KERNELS", "HIPVMAF_KERNEL_DIR", "HIPVMAF_KERNEL_TARGETS"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", kernels.display());
}

fn kernel_dir(out: &Path) -> PathBuf {
    env::var_os("HIPVMAF_KERNEL_DIR").map_or_else(|| out.join("kernels"), PathBuf::from)
}

/// A compiler that can do it.
struct Clang {
    program: OsString,
    version: String,
}

/// The compiler to use, or why there is none.
fn find_clang() -> std::result::Result<Clang, String> {
    if env::var_os("HIPVMAF_NO_KERNELS").is_some_and(|value| !value.is_empty() && value != "0") {
        return Err("HIPVMAF_NO_KERNELS is set".into());
    }
    if let Some(program) = env::var_os("HIPVMAF_CLANG") {
        return Clang::new(program.clone()).map_err(|reason| format!("{}: {reason}", program.display()));
    }
    let versions = (20..40).rev().map(|version| format!("clang-{version}"));
    std::iter::once("clang-19".into())
        .chain(versions)
        .chain(["clang".into()])
        .find_map(|program| Clang::new(program.into()).ok())
        .ok_or_else(|| "there is no clang 19 or newer with AMDGPU and NVPTX and its lld".into())
}

impl Clang {
    fn new(program: OsString) -> std::result::Result<Self, String> {
        let ask = |question: &str| {
            let output = Command::new(&program).arg(question).output().map_err(|error| error.to_string())?;
            Ok::<_, String>(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let version = ask("--version")?;
        let number = version.split("clang version ").nth(1).unwrap_or_default();
        let major = number.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < 19) {
            return Err("not clang 19 or newer".into());
        }
        let targets = ask("--print-targets")?;
        let has = |name: &str| targets.lines().any(|line| line.split_whitespace().next() == Some(name));
        if !has("amdgcn") || !has("nvptx64") {
            return Err("built without AMDGPU or NVPTX".into());
        }
        // A bare name is one that clang did not find.
        if !Path::new(ask("--print-prog-name=lld")?.trim_end()).is_absolute() {
            return Err("its lld is not installed".into());
        }
        Ok(Self { program, version })
    }

    fn run(&self, arguments: &[String], source: &Path, output: &Path) -> Result<()> {
        let result = Command::new(&self.program).args(arguments).arg("-o").args([output, source]).output()?;
        if result.status.success() {
            return Ok(());
        }
        let messages = String::from_utf8_lossy(&result.stderr).into_owned();
        Err(format!("{} {} {}\n{messages}", self.program.display(), arguments.join(" "), source.display())
            .into())
    }
}

/// What goes into the stream of a module, which has the name of the file.
struct Image {
    module: String,
    target: &'static str,
    bytes: Vec<u8>,
}

/// The targets to compile for.
fn targets() -> Result<Vec<&'static Target>> {
    let names = env::var("HIPVMAF_KERNEL_TARGETS").unwrap_or_default();
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let find = |name: &str| {
        TARGETS.iter().find(|target| target.name == name).ok_or(format!("there is no kernel target {name}"))
    };
    Ok(names.split(',').map(find).collect::<std::result::Result<_, _>>()?)
}

/// Compiles every `.hip` file in `sources` into `dir`, with a list of the objects and of how they came about.
fn compile(clang: &Clang, sources: &Path, dir: &Path) -> Result<Vec<Image>> {
    let mut kernels = Vec::new();
    let mut headers = DefaultHasher::new();
    clang.version.hash(&mut headers);
    for path in sorted(sources)? {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("hip") => kernels.push(path),
            _ => fs::read(&path)?.hash(&mut headers),
        }
    }
    fs::create_dir_all(dir)?;

    // What takes longest comes first, so that no thread is left with it at the end.
    kernels.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).map_or(0, |data| data.len())));
    let targets = targets()?;
    let jobs: Vec<_> =
        kernels.iter().flat_map(|kernel| targets.iter().map(move |target| (kernel, *target))).collect();
    let queue = Mutex::new(jobs.iter());
    let threads = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1);
    let worker = || -> Result<()> {
        loop {
            let job = queue.lock().map_or(None, |mut queue| queue.next());
            let Some((kernel, target)) = job else { return Ok(()) };
            compile_one(clang, kernel, target, headers.clone(), dir).inspect_err(|_| {
                // The others need not start anything more.
                let _ = queue.lock().map(|mut queue| queue.by_ref().for_each(drop));
            })?;
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a compiling thread failed")?)
    })?;

    let mut images = Vec::new();
    let mut list = String::new();
    for (kernel, target) in jobs {
        let module = kernel.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let file = object(kernel, target.name);
        writeln!(list, "{file}\t{}", target.arguments().join(" "))?;
        let mut bytes = fs::read(dir.join(file))?;
        let twins = target.twins.iter().map(|twin| (twin, "twin"));
        for ((twin, mach), relation) in twins.chain(target.heirs.iter().map(|heir| (heir, "heir"))) {
            let bytes = twin_of(&bytes, target.name, twin, *mach)?;
            let file = object(kernel, twin);
            writeln!(list, "{file}\t{relation} of {}", target.name)?;
            fs::write(dir.join(file), &bytes)?;
            images.push(Image { module: module.clone(), target: twin, bytes });
        }
        if !target.is_amd() {
            // The driver wants PTX as a C string.
            bytes.push(0);
        }
        images.push(Image { module, target: target.name, bytes });
    }
    fs::write(dir.join("list"), list)?;
    Ok(images)
}

/// Compiles one file unless it was compiled before from the same sources in the same way.
fn compile_one(
    clang: &Clang,
    kernel: &Path,
    target: &Target,
    headers: DefaultHasher,
    dir: &Path,
) -> Result<()> {
    let arguments = target.arguments();
    let mut hasher = headers;
    fs::read(kernel)?.hash(&mut hasher);
    arguments.hash(&mut hasher);
    let key = format!("{:016x}\n", hasher.finish());

    let file = dir.join(object(kernel, target.name));
    let key_file = file.with_extension("key");
    if file.is_file() && fs::read_to_string(&key_file).is_ok_and(|old| old == key) {
        return Ok(());
    }
    let unfinished = file.with_extension("new");
    clang.run(&arguments, kernel, &unfinished)?;
    fs::rename(unfinished, file)?;
    Ok(fs::write(key_file, key)?)
}

/// The name of the file with the code of a kernel source for a target.
fn object(kernel: &Path, target: &str) -> String {
    let extension = if target.starts_with("gfx") { "co" } else { "ptx" };
    format!("{}.{target}.{extension}", kernel.file_stem().unwrap_or_default().display())
}

/// The code object for the target `twin`, made of that for `name`, whose instructions it has.
fn twin_of(bytes: &[u8], name: &str, twin: &str, mach: u8) -> Result<Vec<u8>> {
    const ELF_FLAGS: usize = 48;
    let (old, new) = (format!("amdgcn-amd-amdhsa--{name}"), format!("amdgcn-amd-amdhsa--{twin}"));
    let at: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(old.as_bytes())).collect();
    let [at] = at[..] else {
        return Err(format!("the code object for {name} does not have its name once").into());
    };
    let mut bytes = bytes.to_vec();
    bytes[ELF_FLAGS] = mach;
    bytes[at..][..old.len()].copy_from_slice(new.as_bytes());
    Ok(bytes)
}

fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    // The dictionary reaches from a code object to those of its relatives before it.
    let options = lzma_rust2::LzmaOptions { dict_size: 4 << 20, ..lzma_rust2::LzmaOptions::with_preset(3) };
    let mut writer = lzma_rust2::LzmaWriter::new_use_header(Vec::new(), &options, Some(bytes.len() as u64))?;
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}

/// The files of a folder in the order of their names.
fn sorted(dir: &Path) -> Result<BTreeSet<PathBuf>> {
    Ok(fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>()?)
}
