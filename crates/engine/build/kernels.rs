// SPDX-License-Identifier: MPL-2.0

//! Compiles the GPU kernels, for the build script and for `tools/src/bin/compile-kernels.rs`.
//!
//! `GPUS` says for which GPUs: `native` (those of this machine, the default), `all`, `none`, or names with commas between them
//! (`gfx1100,sm_90`). Clang 19 or newer with lld is all it takes, no ROCm and no CUDA; `HIPVMAF_CLANG` names another compiler.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs, thread};

#[path = "../src/backend/hip/targets.rs"]
mod targets;

pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A GPU target: a kind of GPU to compile for.
struct Target {
    name: &'static str,
    flags: &'static [&'static str],
    /// GPU targets with the same instructions. Their code objects differ from this one's in the name and in the number
    /// of the target in the ELF header (`EF_AMDGPU_MACH`). `scripts/kernel-report` verifies this.
    twins: &'static [(&'static str, u8)],
    /// GPU targets that have all instructions of this target that the kernels use, but that the compiler does not know.
    /// Their code objects are made in the same way. `scripts/kernel-report` searches for instructions that they lack.
    heirs: &'static [(&'static str, u8)],
}

const fn target(name: &'static str, flags: &'static [&'static str]) -> Target {
    Target { name, flags, twins: &[], heirs: &[] }
}

/// All GPU targets. AMD code objects have the oldest version that a runtime with support for the GPU may require: ROCm
/// 5.0 reads version 4, 5.7 reads 5, and 6.4 reads 6, which has the generic targets. NVIDIA's PTX uses 64-bit floating
/// point where that is fast; the driver compiles it for newer GPUs.
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

    /// Returns the target itself and those whose code objects are derived from it, each with its relation.
    fn family(&self) -> impl Iterator<Item = (&'static str, Option<(u8, &'static str)>)> {
        let derived = |others: &'static [(&'static str, u8)], relation| {
            others.iter().map(move |&(name, mach)| (name, Some((mach, relation))))
        };
        // The dictionary of a compressed stream reaches back, so derived objects stand beside their origin.
        derived(self.twins, "twin").chain(derived(self.heirs, "heir")).chain([(self.name, None)])
    }
}

/// Returns the names of all GPU targets.
pub fn all() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().flat_map(Target::family).map(|(name, _)| name)
}

/// The targets to compile for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Names of GPU targets.
    pub targets: BTreeSet<&'static str>,
    /// GPUs of this machine without a target.
    pub unsupported: Vec<String>,
}

impl Selection {
    /// Chooses the targets for a value of `GPUS` and the GPUs of this machine.
    ///
    /// # Errors
    ///
    /// A name is unknown.
    pub fn new(gpus: &str, native: impl Fn() -> Result<Vec<String>>) -> Result<Self> {
        let mut selection = Self::default();
        let gpus = if gpus.trim().is_empty() { "native" } else { gpus };
        for gpu in gpus.split([',', ' ']).filter(|gpu| !gpu.is_empty()) {
            match gpu {
                "none" => {}
                "all" => selection.targets.extend(all()),
                "native" => {
                    for found in native()? {
                        match target_for(&found) {
                            Some(target) => _ = selection.targets.insert(target),
                            None => selection.unsupported.push(found),
                        }
                    }
                }
                _ => {
                    let target = target_for(gpu).ok_or_else(|| {
                        let all: Vec<_> = all().collect();
                        format!(
                            "GPUS={gpus}: there are no kernels for {gpu}. It takes native, all, none, or a list of \
                             GPUs: sm_70 and later, {}",
                            all.join(", ")
                        )
                    })?;
                    selection.targets.insert(target);
                }
            }
        }
        Ok(selection)
    }
}

/// Returns the best target for a GPU, or the target with this name.
fn target_for(gpu: &str) -> Option<&'static str> {
    let named = |wanted: &str| all().find(|name| *name == wanted);
    // Names of GPUs come first: `sm_80` is one, for which the code of `sm_80-f64` is better than that of `sm_80`.
    targets::targets(gpu).into_iter().find_map(named).or_else(|| named(gpu))
}

/// Detects the GPUs of this machine, or of one whose file system is below `root`: `gfx1100`, `sm_90`.
///
/// # Errors
///
/// There is no shell.
pub fn native(root: &Path) -> Result<Vec<String>> {
    const SCAN: &str = include_str!("../native-gpus");
    let output = Command::new("sh").args(["-c", SCAN, "native-gpus"]).arg(root).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(String::from).collect())
}

/// A suitable compiler.
pub struct Clang {
    program: OsString,
    version: String,
}

impl Clang {
    /// Finds the compiler.
    ///
    /// # Errors
    ///
    /// The reason why there is none.
    pub fn find() -> std::result::Result<Self, String> {
        if let Some(program) = env::var_os("HIPVMAF_CLANG") {
            return Self::new(program.clone()).map_err(|reason| format!("{}: {reason}", program.display()));
        }
        let versions = (20..40).rev().map(|version| format!("clang-{version}"));
        std::iter::once("clang-19".into())
            .chain(versions)
            .chain(["clang".into()])
            .find_map(|program| Self::new(program.into()).ok())
            .ok_or_else(|| "there is no clang 19 or newer with AMDGPU and NVPTX and its lld".into())
    }

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
        // Clang prints a bare name if it did not find the program.
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

/// The code of one file of kernels for one GPU target.
#[allow(dead_code, reason = "neither program that compiles kernels needs all of it")]
pub struct Object {
    /// The name of the source, without its extension.
    pub module: String,
    /// The name of the target.
    pub target: &'static str,
    /// The compiled code.
    pub file: PathBuf,
    /// The arguments of the compiler, or the target that it is a twin or an heir of.
    pub origin: String,
}

/// Compiles every `.hip` file in `sources` for the targets. `dir` caches objects under a key of everything that they
/// depend on, so nothing is compiled twice, even after builds with other targets and sources.
///
/// # Errors
///
/// The error of the compiler or the file system.
pub fn compile(
    clang: &Clang,
    sources: &Path,
    wanted: &BTreeSet<&'static str>,
    dir: &Path,
    threads: usize,
) -> Result<Vec<Object>> {
    fs::create_dir_all(dir)?;
    let mut kernels = Vec::new();
    for path in sorted(sources)?.into_iter().filter(|path| path.extension().is_some_and(|it| it == "hip")) {
        let mut hasher = DefaultHasher::new();
        clang.version.hash(&mut hasher);
        hash_sources(&path, &mut BTreeSet::new(), &mut hasher)?;
        kernels.push((path, hasher));
    }
    // The largest files come first, so that no thread has one left at the end.
    kernels.sort_by_key(|(path, _)| std::cmp::Reverse(fs::metadata(path).map_or(0, |data| data.len())));

    let targets = || TARGETS.iter().filter(|target| target.family().any(|(name, _)| wanted.contains(name)));
    let jobs: Vec<_> = kernels
        .iter()
        .flat_map(|(kernel, hasher)| targets().map(move |target| Job::new(kernel, target, hasher.clone())))
        .collect();
    let queue = Mutex::new(jobs.iter());
    let worker = || -> Result<()> {
        loop {
            let job = queue.lock().map_or(None, |mut queue| queue.next());
            let Some(job) = job else { return Ok(()) };
            job.compile(clang, dir).inspect_err(|_| {
                // After an error, the other threads start no more jobs.
                let _ = queue.lock().map(|mut queue| queue.by_ref().for_each(drop));
            })?;
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a compiling thread failed")?)
    })?;

    let mut objects = Vec::new();
    for job in &jobs {
        for (name, derived) in job.target.family().filter(|(name, _)| wanted.contains(name)) {
            objects.push(job.object(dir, name, derived)?);
        }
    }
    Ok(objects)
}

/// A file of kernels to compile for a target.
struct Job<'a> {
    kernel: &'a Path,
    target: &'static Target,
    arguments: Vec<String>,
    /// The hash of everything that the object depends on.
    key: u64,
}

impl<'a> Job<'a> {
    fn new(kernel: &'a Path, target: &'static Target, mut hasher: DefaultHasher) -> Self {
        let arguments = target.arguments();
        arguments.hash(&mut hasher);
        Self { kernel, target, arguments, key: hasher.finish() }
    }

    fn module(&self) -> String {
        self.kernel.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn file(&self, dir: &Path, target: &str) -> PathBuf {
        let extension = if self.target.is_amd() { "co" } else { "ptx" };
        dir.join(format!("{}.{target}.{:016x}.{extension}", self.module(), self.key))
    }

    /// Compiles it unless it is in the cache.
    fn compile(&self, clang: &Clang, dir: &Path) -> Result<()> {
        let file = self.file(dir, self.target.name);
        if file.is_file() {
            return Ok(());
        }
        replace(&file, |unfinished| clang.run(&self.arguments, self.kernel, unfinished))
    }

    /// Returns the object for a target of the family. Makes it here if it is derived.
    fn object(&self, dir: &Path, name: &'static str, derived: Option<(u8, &'static str)>) -> Result<Object> {
        let file = self.file(dir, name);
        let origin = match derived {
            None => self.arguments.join(" "),
            Some((mach, relation)) => {
                let bytes =
                    twin_of(&fs::read(self.file(dir, self.target.name))?, self.target.name, name, mach)?;
                replace(&file, |unfinished| Ok(fs::write(unfinished, &bytes)?))?;
                format!("{relation} of {}", self.target.name)
            }
        };
        Ok(Object { module: self.module(), target: name, file, origin })
    }
}

/// Writes a file atomically, as another build may be reading or writing it.
fn replace(file: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let unfinished = file.with_extension(format!("{}.new", std::process::id()));
    write(&unfinished)?;
    Ok(fs::rename(unfinished, file)?)
}

/// Hashes a source and all local files that it includes, each once.
fn hash_sources(path: &Path, seen: &mut BTreeSet<PathBuf>, hasher: &mut impl Hasher) -> Result<()> {
    if !seen.insert(path.into()) {
        return Ok(());
    }
    let text = fs::read_to_string(path)?;
    text.hash(hasher);
    for line in text.lines() {
        let included = line.trim_start().strip_prefix("#include \"").and_then(|rest| rest.split('"').next());
        if let Some(included) = included.map(|name| path.with_file_name(name)).filter(|file| file.is_file()) {
            hash_sources(&included, seen, hasher)?;
        }
    }
    Ok(())
}

/// Makes the code object for the target `twin` from that for `name`, which has the same instructions.
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

/// Returns the files of a folder in the order of their names.
fn sorted(dir: &Path) -> Result<BTreeSet<PathBuf>> {
    Ok(fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn selected(gpus: &str, native: &[&str]) -> Selection {
        Selection::new(gpus, || Ok(native.iter().copied().map(String::from).collect())).unwrap()
    }

    #[test]
    fn gpus_are_names_or_those_of_the_machine_or_all_or_none() {
        let names = |gpus, native| selected(gpus, native).targets.into_iter().collect::<Vec<_>>();
        for gpus in ["", "native", " native "] {
            assert_eq!(names(gpus, &["sm_90", "gfx1100"]), ["gfx1100", "sm_80-f64"]);
            assert!(names(gpus, &[]).is_empty());
        }
        assert!(names("none", &["gfx1100"]).is_empty());
        assert_eq!(names("all", &[]).len(), all().count());
        // A twin, an heir, a target of several GPUs, a GPU that only the generic code suits, and targets by their own
        // names.
        assert_eq!(
            names("gfx1031,gfx950,sm_86,gfx1152", &[]),
            ["gfx1031", "gfx11-generic", "gfx950", "sm_80"]
        );
        assert_eq!(
            names("gfx90a:sramecc+:xnack-,sm_70-f64,gfx9-generic", &[]),
            ["gfx9-generic", "gfx90a", "sm_70-f64"]
        );
        assert_eq!(names("native,gfx1036", &["gfx1100"]), ["gfx1036", "gfx1100"]);
    }

    #[test]
    fn a_gpu_without_kernels_is_an_error_only_where_it_is_named() {
        let found = selected("native", &["gfx803", "sm_61", "gfx1100"]);
        assert_eq!((found.targets.len(), found.unsupported), (1, vec!["gfx803".into(), "sm_61".into()]));
        for gpus in ["gfx803", "gfx1100,sm_61", "al"] {
            let refused = Selection::new(gpus, || Ok(vec![])).unwrap_err().to_string();
            assert!(refused.contains(gpus) && refused.contains("gfx12-generic"), "{refused}");
        }
    }

    /// Returns the GPUs that are detected on a machine with these files and this output of nvidia-smi.
    fn scan(files: &[(&str, &str)], nvidia_smi: Option<&str>) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let tools = root.path().join("tools");
        fs::create_dir(&tools).unwrap();
        let script = nvidia_smi.map_or("exit 127".into(), |answer| format!("cat <<'END'\n{answer}\nEND"));
        executable(&tools.join("nvidia-smi"), &script);
        let path =
            env::join_paths([tools].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap())));
        let scan = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/engine/native-gpus");
        let output = Command::new(scan).arg(root.path()).env("PATH", path.unwrap()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(String::from).collect()
    }

    fn executable(path: &Path, script: &str) {
        fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn gpus_are_found_by_what_their_drivers_show() {
        assert!(scan(&[], None).is_empty());
        let node = |number, version: u32| {
            let path = format!("sys/class/kfd/kfd/topology/nodes/{number}/properties");
            (path, format!("cpu_cores_count 0\ngfx_target_version {version}\nvendor_id 4098\n"))
        };
        let nodes = [node(0, 0), node(1, 90_010), node(2, 110_501), node(3, 90_402), node(4, 90_010)];
        let nodes: Vec<_> = nodes.iter().map(|(path, text)| (&**path, &**text)).collect();
        assert_eq!(scan(&nodes, None), ["gfx1151", "gfx90a", "gfx942"]);
        assert_eq!(scan(&nodes[..1], Some("9.0\n9.0\n12.0")), ["sm_120", "sm_90"]);
        assert_eq!(scan(&nodes[..2], Some("8.6")), ["gfx90a", "sm_86"]);
        // A driver without nvidia-smi, or whose nvidia-smi does not answer, gets code for all its possible GPUs.
        let driver = [("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: NVIDIA H200\n")];
        for answer in [None, Some("NVIDIA-SMI has failed because it couldn't communicate"), Some("[N/A]")] {
            let targets = selected(&scan(&driver, answer).join(","), &[]).targets;
            assert_eq!(targets.into_iter().collect::<Vec<_>>(), ["sm_70", "sm_70-f64", "sm_80", "sm_80-f64"]);
        }
    }

    #[test]
    fn nothing_is_compiled_twice() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let compiler = r#"
            case $1 in
            --version) echo "clang version 19.1.0"; exit ;;
            --print-targets) printf ' amdgcn \n nvptx64 \n'; exit ;;
            --print-prog-name=lld) echo /usr/bin/lld; exit ;;
            esac
            for argument; do case $last in -o) cat >"$argument" <<END
            $*
END
            esac; last=$argument; done
            echo >>"$0.runs""#;
        executable(&at("clang"), compiler);
        let clang = Clang::new(at("clang").into()).unwrap();
        let sources = at("sources");
        fs::create_dir(&sources).unwrap();
        let write = |name: &str, text: &str| fs::write(sources.join(name), text).unwrap();
        write("one.hip", "#include \"one.h\"\n");
        write("one.h", "#include \"both.h\"\n");
        write("two.hip", "#include \"both.h\"\n#include \"elsewhere.h\"\n");
        write("both.h", "");
        let compiled = |gpus: &str| {
            let _ = fs::remove_file(at("clang.runs"));
            let targets = selected(gpus, &[]).targets;
            let objects = compile(&clang, &sources, &targets, &at("objects"), 2).unwrap();
            assert_eq!(objects.len(), 2 * targets.len());
            assert!(objects.iter().all(|object| object.file.is_file()));
            fs::read_to_string(at("clang.runs")).map_or(0, |runs| runs.lines().count())
        };
        assert_eq!(compiled("gfx1100,sm_90"), 4);
        assert_eq!(compiled("gfx1100,sm_90"), 0);
        assert_eq!(compiled("gfx1100,gfx90a"), 2);
        assert_eq!(compiled("none"), 0);
        assert_eq!(compiled("gfx1100,gfx90a,sm_90"), 0);
        write("one.h", "#include \"both.h\"\n// changed\n");
        assert_eq!(compiled("gfx1100"), 1);
        write("both.h", "// changed");
        assert_eq!(compiled("gfx1100"), 2);
        // Returns to an earlier content.
        write("both.h", "");
        assert_eq!(compiled("gfx1100"), 0);
    }
}
