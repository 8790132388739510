// SPDX-License-Identifier: MPL-2.0
#include "ssim.h"

// The first pair of a group takes the kernels without `_later`, the others those with it.

// Adds to sums[0] to [3] the bits of SSIM, luminance, contrast and structure of every place of the window, each with
// `bias` added; see `crates/engine/src/metrics/fixed.rs`. width, height: samples of the pictures, at least 11. kept:
// room for (width-10) x (height-10), or null if no pair follows. Block SSIM_MAP_THREADS, a strip of 32 x rows places; grid
// (ceil((width-10)/32), ceil((height-10)/rows)). Steps are of 32 rows, so multiples of that less ten fit best.
#define SSIM_MAP(name, sides, T)                                                                               \
  HV_KERNEL(SSIM_BOUNDS##sides, name)(const HvFrame *__restrict__ frame, uint32_t bits, int width, int height, \
                                      int rows, double bias, SsimMoments *kept, uint64_t *sums) {              \
    ssim::map<sides>(ssim::Samples<T>(frame, bits), width, height, rows, bias, kept, sums);                    \
  }                                                                                                            \
  HV_EXPORT(name)

// The pictures after the low pass, at every other sample: (width+1)/2 x (height+1)/2. Block 128 threads, a tile of
// 128 x rows samples; grid (ceil(to_width/128), ceil(to_height/rows)).
#define SSIM_LOW_PASS(name, sides, T)                                                                              \
  HV_KERNEL(SSIM_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, int width, int height, int rows, \
                                SsimPlanes out) {                                                                  \
    ssim::low_pass<sides>(ssim::Samples<T>(frame, bits), width, height, rows, out);                                \
  }                                                                                                                \
  HV_EXPORT(name)

// Means of factor x factor samples: to_width x to_height of them. Block 128 threads, a tile of 32 x 4; grid
// (ceil(to_width/32), ceil(to_height/4)).
#define SSIM_BOX(name, sides, T)                                                                                     \
  HV_KERNEL(SSIM_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, int width, int height, int factor, \
                                int to_width, int to_height, SsimPlanes out) {                                       \
    ssim::box<sides>(ssim::Samples<T>(frame, bits), width, height, factor, to_width, to_height, out);                \
  }                                                                                                                  \
  HV_EXPORT(name)

SSIM_MAP(ssim_map_u8, 2, uint8_t)
SSIM_MAP(ssim_map_u16, 2, uint16_t)
SSIM_MAP(ssim_map_later_u8, 1, uint8_t)
SSIM_MAP(ssim_map_later_u16, 1, uint16_t)
SSIM_LOW_PASS(ssim_low_pass_u8, 2, uint8_t)
SSIM_LOW_PASS(ssim_low_pass_u16, 2, uint16_t)
SSIM_LOW_PASS(ssim_low_pass_later_u8, 1, uint8_t)
SSIM_LOW_PASS(ssim_low_pass_later_u16, 1, uint16_t)
SSIM_BOX(ssim_box_u8, 2, uint8_t)
SSIM_BOX(ssim_box_u16, 2, uint16_t)
SSIM_BOX(ssim_box_later_u8, 1, uint8_t)
SSIM_BOX(ssim_box_later_u16, 1, uint16_t)

// The same of decimated pictures.
#define SSIM_MAP_DECIMATED(name, sides)                                                                               \
  HV_KERNEL(SSIM_BOUNDS##sides, name)(SsimPlanes in, int width, int height, int rows, double bias, SsimMoments *kept, \
                                      uint64_t *sums) {                                                               \
    ssim::map<sides>(ssim::Samples<float>(in), width, height, rows, bias, kept, sums);                                \
  }                                                                                                                   \
  HV_EXPORT(name)
#define SSIM_LOW_PASS_DECIMATED(name, sides)                                                                 \
  HV_KERNEL(SSIM_THREADS, name)(SsimPlanes in, int width, int height, int rows, SsimPlanes out) {            \
    ssim::low_pass<sides>(ssim::Samples<float>(in), width, height, rows, out);                               \
  }                                                                                                          \
  HV_EXPORT(name)

SSIM_MAP_DECIMATED(ssim_map, 2)
SSIM_MAP_DECIMATED(ssim_map_later, 1)
SSIM_LOW_PASS_DECIMATED(ssim_low_pass, 2)
SSIM_LOW_PASS_DECIMATED(ssim_low_pass_later, 1)
