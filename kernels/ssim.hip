// SPDX-License-Identifier: MPL-2.0
#include "ssim.h"

// Adds to the sums of each of the picture pairs the bits of SSIM, luminance, contrast and structure of every place of
// the window, each with the bias added. The first pair of a group takes the kernels without `_later`, the others those
// with it. Block SSIM_MAP_THREADS, a strip of 32 x rows places; grid: the blocks of all, those that take longest first.
// Steps are of 32 rows, so multiples of that less ten fit best.
#define SSIM_MAP(name, sides, T)                                                                           \
  HV_KERNEL(SSIM_BOUNDS##sides, name)(const HvFrame *__restrict__ frame, uint32_t bits, SsimPairs pairs) { \
    ssim::map<sides, T>(frame, bits, pairs);                                                               \
  }                                                                                                        \
  HV_EXPORT(name)

// Decimations process the distorted picture, and the reference too if the grid has twice the columns.

// Luma after the low pass, at every other sample: (width+1)/2 x (height+1)/2. Block 128 threads, a tile of 124 x rows
// samples; grid (ceil(to_width/124) for each picture, ceil(to_height/rows)).
#define SSIM_LOW_PASS(name, T)                                                                                       \
  HV_KERNEL(SSIM_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, int width, int height, int rows,   \
                                SsimPlanes out) {                                                                    \
    const ssim::Part part = ssim::part((width + 1) / 2, SSIM_LOW_PASS_COLUMNS);                                      \
    __shared__ ssim::LowPassColumns columns;                                                                         \
    ssim::low_pass_by_columns(ssim::Samples<T>(frame, part.picture, bits), part, width, height, rows, out, columns); \
  }                                                                                                                  \
  HV_EXPORT(name)

// Means of factor x factor samples: to_width x to_height of them. Block 128 threads, a tile of 32 x 4; grid
// (ceil(to_width/32) for each picture, ceil(to_height/4)).
#define SSIM_BOX(name, T)                                                                                            \
  HV_KERNEL(SSIM_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, int width, int height, int factor, \
                                int to_width, int to_height, SsimPlanes out) {                                       \
    const ssim::Part part = ssim::part(to_width, 32);                                                                \
    ssim::box(ssim::Samples<T>(frame, part.picture, bits), part, width, height, factor, to_height, out);             \
  }                                                                                                                  \
  HV_EXPORT(name)

SSIM_MAP(ssim_map_u8, 2, uint8_t)
SSIM_MAP(ssim_map_u16, 2, uint16_t)
SSIM_MAP(ssim_map_later_u8, 1, uint8_t)
SSIM_MAP(ssim_map_later_u16, 1, uint16_t)
SSIM_LOW_PASS(ssim_low_pass_u8, uint8_t)
SSIM_LOW_PASS(ssim_low_pass_u16, uint16_t)
SSIM_BOX(ssim_box_u8, uint8_t)
SSIM_BOX(ssim_box_u16, uint16_t)

// The same for decimated pictures. A block that finds a sample too small for sums in any order repeats its part.
HV_KERNEL(SSIM_LOW_PASS_BOUNDS, ssim_low_pass)(SsimPlanes in, int width, int height, int rows, SsimPlanes out) {
  __shared__ union {
    ssim::LowPassColumns columns;
    ssim::LowPassRows rows;
  } shared;
  __shared__ uint32_t small;
  if (threadIdx.x == 0) small = 0;  // as all see after the first step
  const ssim::Part part = ssim::part((width + 1) / 2, SSIM_LOW_PASS_COLUMNS);
  const ssim::Samples<float> source(in, part.picture);
  const bool large = ssim::low_pass_by_columns(source, part, width, height, rows, out, shared.columns);
  if (!large) hv_atomic_max_u32(&small, 1);
  __syncthreads();
  if (small) ssim::low_pass_in_order(source, part, width, height, rows, out, shared.rows);
}
HV_EXPORT(ssim_low_pass)
