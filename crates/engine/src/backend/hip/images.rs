// SPDX-License-Identifier: MPL-2.0

//! The compiled kernels in this crate: a module for each file, with one image per GPU target. `build.rs` compresses the
//! images of a module as one stream, because those of related targets are similar: separate streams would be four times
//! as large. A process decompresses only the modules that it loads.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::sync::{Arc, OnceLock};

use gpu::{Code, Device, DeviceInfo, Error, Ownership, Selection};
use lzma_rust2::LzmaReader;

use super::targets::targets;

mod built {
    use super::Module;

    include!(concat!(env!("OUT_DIR"), "/images.rs"));
}

/// Returns the GPU targets that this crate has kernels for: `all`, `none`, or their names separated by commas.
pub fn built_for() -> String {
    let built = targets_built();
    match built.len() {
        0 => "none".into(),
        count if count == built::TARGETS.len() => "all".into(),
        _ => built.join(", "),
    }
}

/// Returns the GPU targets with kernels. They are the same for all modules.
fn targets_built() -> Vec<&'static str> {
    let index = built::MODULES.first().map_or(&[][..], |module| module.index);
    index.iter().map(|(target, ..)| *target).collect()
}

/// Returns true if there are kernels for a GPU.
pub fn supports(info: &DeviceInfo) -> bool {
    covers(&info.arch)
}

/// Returns a hash of the kernels.
pub(super) fn hash() -> u64 {
    static HASH: OnceLock<u64> = OnceLock::new();
    *HASH.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        built::MODULES.iter().for_each(|module| module.packed.hash(&mut hasher));
        hasher.finish()
    })
}

/// Opens the selected GPU for the kernels of this crate, or shares it if it is already open.
pub fn open(selection: &Selection) -> Result<Arc<Device>, Error> {
    Device::open(selection, &Kernels)
}

/// Opens the least loaded of the selected GPUs, but none of `others`.
pub(super) fn ownership(selection: &Selection, others: &[&'static DeviceInfo]) -> Result<Ownership, Error> {
    Ownership::new(selection, &Kernels, others)
}

/// The kernels of this crate.
struct Kernels;

impl Code for Kernels {
    fn covers(&self, arch: &str) -> bool {
        covers(arch)
    }

    fn remedy(&self, arch: &str) -> String {
        remedy(arch)
    }

    fn probe(&self) -> Option<&'static str> {
        Some("frame")
    }

    fn images(&self, module: &str, arch: &str) -> Vec<gpu::Image> {
        // SAFETY: a compiler has written the code object or PTX for the build script, which has put a zero after PTX.
        candidates(module, arch)
            .into_iter()
            .map(|(target, image)| unsafe { gpu::Image::new(target, image) })
            .collect()
    }
}

/// A code object for AMD, PTX with a zero at its end for NVIDIA. It never moves, as runtimes require.
type Image = &'static [u8];

/// The images of a file of kernels.
struct Module {
    name: &'static str,
    /// The start and the size of each GPU target's image.
    index: &'static [(&'static str, usize, usize)],
    /// Size of all images.
    size: usize,
    packed: &'static [u8],
    images: OnceLock<Image>,
}

impl Module {
    #[allow(dead_code, reason = "a build without kernels has no modules")]
    const fn new(
        name: &'static str,
        index: &'static [(&'static str, usize, usize)],
        size: usize,
        packed: &'static [u8],
    ) -> Self {
        Self { name, index, size, packed, images: OnceLock::new() }
    }

    /// Returns the image for a target (`gfx1100`).
    fn image(&self, target: &str) -> Option<Image> {
        let (_, start, size) = self.index.iter().find(|(name, ..)| *name == target)?;
        self.images().get(*start..)?.get(..*size)
    }

    /// Returns all images, which the first call decompresses. They are empty if that fails, which happens only if the
    /// program file is damaged.
    fn images(&self) -> Image {
        self.images.get_or_init(|| self.decompress().unwrap_or_default())
    }

    fn decompress(&self) -> std::io::Result<Image> {
        let memory = vec![0; self.size + built::ALIGN].leak();
        let start = memory.as_ptr().align_offset(built::ALIGN);
        let images =
            memory.get_mut(start..).and_then(|memory| memory.get_mut(..self.size)).unwrap_or_default();
        LzmaReader::new_mem_limit(self.packed, u32::MAX, None)?.read_exact(images)?;
        Ok(images)
    }
}

/// Finds a module by its name (`vif`).
fn module(name: &str) -> Option<&'static Module> {
    built::MODULES.iter().find(|module| module.name == name)
}

/// Returns true if there are images for a GPU, given its name in [`DeviceInfo::arch`].
fn covers(arch: &str) -> bool {
    let mut images = built::MODULES.iter().flat_map(|module| module.index);
    let targets = targets(arch);
    images.any(|(target, ..)| targets.contains(target))
}

/// Returns the advice, as the end of a sentence, how to get a build with images for a GPU.
pub(super) fn remedy(arch: &str) -> String {
    let processor = arch.split(':').next().unwrap_or_default();
    match targets(arch).iter().any(|target| built::TARGETS.contains(target)) {
        true => {
            format!("`make plugin GPUS={processor}` builds it with some, `make plugin GPUS=all` for all GPUs")
        }
        false => "there is none for this kind of GPU".into(),
    }
}

/// Returns the images of a module that a GPU may take, best first, each with its target. `$HIPVMAF_GPU_CODE` selects a
/// single target.
fn candidates(name: &str, arch: &str) -> Vec<(&'static str, Image)> {
    let only = std::env::var("HIPVMAF_GPU_CODE").ok().filter(|name| !name.is_empty());
    let wanted = |target: &&str| only.as_ref().is_none_or(|only| only == target);
    let Some(module) = module(name) else { return vec![] };
    let named = |target: &str| module.index.iter().find(|(name, ..)| *name == target);
    let found = targets(arch).into_iter().filter(wanted).filter_map(named);
    found.filter_map(|(target, ..)| Some((*target, module.image(target)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHES: &[&str] = &[
        "gfx906:sramecc+:xnack-",
        "gfx908",
        "gfx90a:sramecc+:xnack-",
        "gfx942",
        "gfx950:sramecc+:xnack-",
        "gfx1010:xnack-",
        "gfx1011",
        "gfx1012",
        "gfx1013",
        "gfx1030",
        "gfx1031",
        "gfx1032",
        "gfx1033",
        "gfx1034",
        "gfx1035",
        "gfx1036",
        "gfx1100",
        "gfx1101",
        "gfx1102",
        "gfx1103",
        "gfx1150",
        "gfx1151",
        "gfx1200",
        "gfx1201",
        "sm_70",
        "sm_75",
        "sm_80",
        "sm_86",
        "sm_90",
        "sm_120",
    ];

    #[test]
    fn there_is_a_target_for_every_processor() {
        for arch in ARCHES {
            assert!(built::TARGETS.contains(&targets(arch)[0]), "{arch}");
        }
    }

    #[test]
    fn every_module_has_an_image_for_every_target_that_this_is_built_for() {
        let built = targets_built();
        for module in &built::MODULES {
            assert!(
                module.index.iter().map(|(target, ..)| *target).eq(built.iter().copied()),
                "{}",
                module.name
            );
            for &target in &built {
                let image = module.image(target).unwrap_or_else(|| panic!("{} lacks {target}", module.name));
                assert_eq!(image.as_ptr().addr() % built::ALIGN, 0);
                match target.strip_prefix("sm_") {
                    None => assert!(
                        image.starts_with(b"\x7fELF") && contains(image, &format!("amdhsa--{target}"))
                    ),
                    Some(number) => {
                        assert_eq!(
                            image.iter().position(|byte| *byte == 0),
                            Some(image.len() - 1),
                            "{target}"
                        );
                        assert!(contains(image, &format!(".target sm_{}\n", &number[..2])), "{target}");
                    }
                }
            }
        }
    }

    fn contains(image: Image, text: &str) -> bool {
        image.windows(text.len()).any(|part| part == text.as_bytes())
    }

    #[test]
    fn every_image_is_for_some_processor() {
        let others = ["gfx900", "gfx1037", "gfx1152", "gfx1299"];
        let all: Vec<_> = ARCHES.iter().chain(&others).flat_map(|arch| targets(arch)).collect();
        for target in built::TARGETS {
            assert!(all.contains(target), "{target}");
        }
    }

    #[test]
    fn a_gpu_without_code_has_a_remedy_where_there_is_one() {
        for (arch, gpus) in [
            ("gfx90a:sramecc+:xnack-", "GPUS=gfx90a`"),
            ("sm_90", "GPUS=sm_90`"),
            ("gfx1152", "GPUS=gfx1152`"),
        ] {
            assert!(remedy(arch).contains(gpus), "{}", remedy(arch));
        }
        for arch in ["gfx803", "sm_61"] {
            assert!(!remedy(arch).contains("GPUS"), "{}", remedy(arch));
        }
    }

    #[test]
    fn candidates_of_processors() {
        assert_eq!(targets("gfx90a:sramecc+:xnack-"), ["gfx90a"]);
        assert_eq!(targets("gfx1103"), ["gfx1103", "gfx11-generic"]);
        assert_eq!(targets("gfx1035"), ["gfx1035", "gfx10-3-generic"]);
        assert_eq!(targets("gfx1010:xnack-"), ["gfx1010"]);
        assert_eq!(targets("sm_75"), ["sm_70", "sm_70-f64"]);
        assert_eq!(targets("sm_86"), ["sm_80", "sm_70", "sm_80-f64", "sm_70-f64"]);
        assert_eq!(targets("sm_90"), ["sm_80-f64", "sm_70-f64", "sm_80", "sm_70"]);
        assert_eq!(targets("sm_103"), ["sm_80", "sm_70", "sm_80-f64", "sm_70-f64"]);
        for other in ["", "sm_61", "sm_", "sm_x", "spirv", ":gfx906"] {
            assert!(targets(other).is_empty(), "{other}");
        }
        assert_eq!(candidates("vif", "gfx000"), []);
        assert_eq!(candidates("none", "gfx906"), []);
    }
}
