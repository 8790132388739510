// SPDX-License-Identifier: MPL-2.0

//! The mapping from GPUs to the targets of their code. The build script includes this file as well, to choose the
//! targets to compile.

/// Returns the targets whose images a GPU may take, best first, given its name in the runtime: `gfx90a:sramecc+:xnack-`
/// or `sm_90`.
pub fn targets(arch: &str) -> Vec<&str> {
    // Images without a suffix run with any setting of the features that suffixes name.
    let processor = arch.split(':').next().unwrap_or_default();
    if let Some(capability) = processor.strip_prefix("sm_").and_then(|number| number.parse::<u32>().ok()) {
        // On these GPUs, 64-bit floating point has half the rate of 32 bits.
        let fast_f64 = matches!(capability, 60 | 70 | 80 | 90 | 100);
        let forms = match fast_f64 {
            true => ["sm_80-f64", "sm_70-f64", "sm_80", "sm_70"],
            // The other form also runs, which allows measuring it.
            false => ["sm_80", "sm_70", "sm_80-f64", "sm_70-f64"],
        };
        let runs = |target: &&str| match capability {
            80.. => true,
            70.. => target.starts_with("sm_70"),
            _ => false,
        };
        return forms.into_iter().filter(runs).collect();
    }
    let generic = match processor {
        "gfx900" | "gfx902" | "gfx904" | "gfx906" | "gfx909" | "gfx90c" => Some("gfx9-generic"),
        _ if processor.starts_with("gfx103") => Some("gfx10-3-generic"),
        _ if processor.starts_with("gfx11") => Some("gfx11-generic"),
        _ if processor.starts_with("gfx12") => Some("gfx12-generic"),
        _ => None,
    };
    std::iter::once(processor).filter(|processor| processor.starts_with("gfx")).chain(generic).collect()
}
