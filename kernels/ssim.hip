// SPDX-License-Identifier: MPL-2.0
#include "ssim.h"

// The first pair of a group takes the kernels without `_later`, the others those with it.

// Adds to sums[0] to [3] the bits of SSIM, luminance, contrast and structure of every place of the window, each with
// `bias` added; see `src/metrics/fixed.rs`. w, h: samples of the pictures, at least 11. kept: room for (w-10) x (h-10), or
// null if no pair follows. Block 128 threads, a tile of 128 x rows places; grid (ceil((w-10)/128), ceil((h-10)/rows)).
#define SSIM_MAP(name, sides, T)                                                                             \
  HV_KERNEL(SSIM_BOUNDS##sides, name)(const HvFrame *__restrict__ frame, uint32_t bits, int w, int h,        \
                                      int rows, double bias, SsimMoments *kept, uint64_t *sums) {            \
    ssim::map<sides>(ssim::Samples<T>(frame, bits), w, h, rows, bias, kept, sums);                           \
  }                                                                                                          \
  HV_EXPORT(name)

// The pictures after the low pass, at every other sample: (w+1)/2 x (h+1)/2. Block 128 threads, a tile of 128 x rows
// samples; grid (ceil(w2/128), ceil(h2/rows)).
#define SSIM_LOW_PASS(name, sides, T)                                                                        \
  HV_KERNEL(SSIM_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, int w, int h, int rows,    \
                                SsimPlanes out) {                                                            \
    ssim::low_pass<sides>(ssim::Samples<T>(frame, bits), w, h, rows, out);                                   \
  }                                                                                                          \
  HV_EXPORT(name)

// Means of factor x factor samples: w2 x h2 of them. Block 128 threads, a tile of 32 x 4; grid (ceil(w2/32),
// ceil(h2/4)).
#define SSIM_BOX(name, sides, T)                                                                             \
  HV_KERNEL(SSIM_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, int w, int h, int factor,  \
                                int w2, int h2, SsimPlanes out) {                                            \
    ssim::box<sides>(ssim::Samples<T>(frame, bits), w, h, factor, w2, h2, out);                              \
  }                                                                                                          \
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
#define SSIM_MAP_DECIMATED(name, sides)                                                                      \
  HV_KERNEL(SSIM_BOUNDS##sides, name)(SsimPlanes in, int w, int h, int rows, double bias, SsimMoments *kept, \
                                      uint64_t *sums) {                                                      \
    ssim::map<sides>(ssim::Samples<float>(in), w, h, rows, bias, kept, sums);                                \
  }                                                                                                          \
  HV_EXPORT(name)
#define SSIM_LOW_PASS_DECIMATED(name, sides)                                                                 \
  HV_KERNEL(SSIM_THREADS, name)(SsimPlanes in, int w, int h, int rows, SsimPlanes out) {                     \
    ssim::low_pass<sides>(ssim::Samples<float>(in), w, h, rows, out);                                        \
  }                                                                                                          \
  HV_EXPORT(name)

SSIM_MAP_DECIMATED(ssim_map, 2)
SSIM_MAP_DECIMATED(ssim_map_later, 1)
SSIM_LOW_PASS_DECIMATED(ssim_low_pass, 2)
SSIM_LOW_PASS_DECIMATED(ssim_low_pass_later, 1)
