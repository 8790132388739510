// SPDX-License-Identifier: MPL-2.0

//! Tests of the backends through the engine's interface. Those of the GPU backend run on the software devices of
//! `tests/swhip`, each in a process of its own.

#[allow(dead_code, reason = "the tests of the plugin need more of it")]
#[path = "../../../../tests/pipeline/common/clip.rs"]
mod clip;
mod cvvdp;
mod device;
mod features;
mod float;
mod float_adm;
mod float_vif;
mod gpu;
mod heat;
#[path = "../../../../tests/swhip/process.rs"]
mod process;
mod ssimulacra2;
mod sums;
#[path = "../../../../tests/swhip/library.rs"]
mod swhip;
mod xpsnr;

use process::{Function, functions, here, on};

const FEATURES: &[Function] = functions![
    features::the_classic_metrics_are_libvmafs_on_every_clip,
    features::ssim_and_ms_ssim_share_what_they_have_in_common,
    features::frames_that_a_metric_is_not_defined_for_are_refused,
    features::rgb_is_refused_by_metrics_of_luma,
    float::features_are_those_of_netflixs_library,
    cvvdp::is_that_of_its_definition,
    cvvdp::of_rgb_is_that_of_its_definition,
    cvvdp::of_parts_is_that_of_the_whole,
    cvvdp::of_still_pictures_is_their_jod,
    float_adm::is_that_of_libvmaf,
    float_vif::is_that_of_libvmaf,
    float_vif::with_rare_options_is_that_of_libvmaf,
    float_vif::of_frames_below_the_filters_is_refused,
    xpsnr::is_that_of_its_specification,
    xpsnr::of_parts_is_that_of_the_whole,
    ssimulacra2::is_that_of_its_specification,
    ssimulacra2::of_rgb_is_that_of_its_specification,
    heat::equal_pictures_are_cold,
    heat::stripes_of_one_sample_that_were_flattened_are_hot,
    heat::more_damage_is_hotter,
    heat::visible_differences_are_where_they_are,
    heat::visible_differences_are_those_of_the_definition,
];

/// Tests of the CPU backend.
const CPU: &[Function] = functions![
    sums::of_overlapping_groups_are_those_of_groups_alone,
    sums::groups_in_flight_end_with_their_backend,
    sums::of_groups_are_those_of_the_pairs,
];

/// Tests that compare a GPU with the CPU.
const SUMS: &[Function] = functions![
    sums::of_groups_equal_the_processors,
    sums::equal_the_processors,
    sums::of_every_metric_equal_the_processors,
    sums::of_scaled_pictures_equal_the_processors,
    sums::of_speed_chroma_equal_the_processors,
    sums::groups_end_for_all_who_wait,
    sums::banding_equals_the_processors,
    sums::similarity_equals_the_processors,
    sums::float_adm_equals_the_processors,
    sums::cvvdp_equals_the_processors,
    sums::cvvdp_of_rgb_equals_the_processors,
    sums::xpsnr_equals_the_processors,
    sums::float_vif_equals_the_processors,
    ssimulacra2::equals_the_processors,
    sums::copies_of_several_threads_equal_the_processors,
];

fn main() {
    let functions = [FEATURES, SUMS, gpu::FUNCTIONS, device::FUNCTIONS].concat();
    process::main(&functions, || {
        let mut tests: Vec<_> =
            [FEATURES, CPU, gpu::TESTS, device::TESTS].concat().into_iter().map(here).collect();
        // Each device has another order of blocks and lanes; `tests/swhip/check` runs each kernel in each order.
        for (device, arch, seed) in [("rdna", gpu::RDNA, "0"), ("cdna", gpu::CDNA, "3")] {
            let environment = vec![arch, ("SWHIP_SEED", seed)];
            tests.extend(SUMS.iter().map(|(name, _)| on((device, name, environment.clone()))));
            let environment = [environment, vec![("HIPVMAF_TEST_BACKEND", "hip")]].concat();
            tests.extend(FEATURES.iter().map(|(name, _)| on((device, name, environment.clone()))));
        }
        tests.extend(gpu::cases().into_iter().chain(device::cases()).map(on));
        tests
    });
}
