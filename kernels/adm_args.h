// SPDX-License-Identifier: MPL-2.0
//
// The arguments of ADM's kernels. All of them share the shape of the work.
#pragma once
#include "frame.h"

// Most waves per block, for samples T and `many` passes or not. Each wave has its own tile and does not wait for
// others. But with larger blocks, fewer kinds of kernels are on a multiprocessor at a time, and their code has to fit
// its instruction cache: whole frames of 1920x1080 take 3 % less time on an H200.
#if defined(HV_AMD)
  #define ADM_WAVES(T, many) 1
#else
  #define ADM_WAVES(T, many) ((many) ? 1 : sizeof(T) == 1 ? 8 : 4)
#endif
#define ADM_THREADS(T, many) (HV_WAVE * ADM_WAVES(T, many))
#if defined(HV_NV)
  // Includes the waves that should fit a multiprocessor, because the compiler otherwise uses more registers than these
  // allow.
  #define ADM_BOUNDS(T, many, waves) ADM_THREADS(T, many), (many) ? 1 : (waves) / ADM_WAVES(T, many)
#else
  #define ADM_BOUNDS(T, many, waves) ADM_THREADS(T, many)
#endif
#define ADM_STRIP_W 60  // coefficients that a strip owns: two for each of 30 lanes
#define ADM_TILE_W (HV_WAVE / 32 * ADM_STRIP_W)
#define ADM_PASSES 4
#define ADM_KEEP_WORDS(scale) ((scale) == 0 ? 3 : 6)  // for a row and lane
#define ADM_SLOTS 4  // triples of sums that are added up together

// Shape of one scale. `crates/engine/src/metrics/adm.rs` explains extents, scored parts and shifts.
struct AdmScale {
  int32_t in_width, in_height;                   // samples of the input
  int32_t width, height;                         // coefficients of a band
  int32_t left, right, top, bottom;              // scored columns [left, right) and rows [top, bottom)
  int32_t x0, y0;                                // where the first tile begins: not positive, x0 even
  int32_t tile_height;                           // rows of a tile
  uint32_t cube[2];                              // shifts of the numerator's cubes, h and v, d
  uint32_t reference_square, reference_cube;     // shifts of the denominator's cubes, not used at scale 0
  uint32_t horizontal;                           // shift of the horizontal transform, not used at scales 0 and 1
  uint32_t waves;                                // of a block
};
HV_SIZE(AdmScale, 68);
HV_OFFSET(AdmScale, in_width, 0);
HV_OFFSET(AdmScale, in_height, 4);
HV_OFFSET(AdmScale, width, 8);
HV_OFFSET(AdmScale, height, 12);
HV_OFFSET(AdmScale, left, 16);
HV_OFFSET(AdmScale, right, 20);
HV_OFFSET(AdmScale, top, 24);
HV_OFFSET(AdmScale, bottom, 28);
HV_OFFSET(AdmScale, x0, 32);
HV_OFFSET(AdmScale, y0, 36);
HV_OFFSET(AdmScale, tile_height, 40);
HV_OFFSET(AdmScale, cube, 44);
HV_OFFSET(AdmScale, reference_square, 52);
HV_OFFSET(AdmScale, reference_cube, 56);
HV_OFFSET(AdmScale, horizontal, 60);
HV_OFFSET(AdmScale, waves, 64);

// One way of weighting and masking.
struct AdmPass {
  double gain_limit;    // 1 to 100
  uint32_t weights[2];  // quantised, of h and v, of d: at most 40000 and 54000 at scale 0, below 2^31 elsewhere
  uint32_t aim;         // 1 to sum the additive part as well; only the `_passes` kernels do it
};
HV_SIZE(AdmPass, 24);
HV_OFFSET(AdmPass, gain_limit, 0);
HV_OFFSET(AdmPass, weights, 8);
HV_OFFSET(AdmPass, aim, 16);
struct AdmPasses {
  AdmPass passes[ADM_PASSES];
  uint32_t count;
};
HV_SIZE(AdmPasses, 104);
HV_OFFSET(AdmPasses, passes, 0);
HV_OFFSET(AdmPasses, count, 96);

// The low band of both pictures, int16_t of scale 0 and int32_t of the others. Rows are 16-byte aligned:
// strides are multiples of 8 coefficients.
using AdmPlanes = HvPlanes;

// The row sums of all scales.
struct AdmRows {
  uint32_t first[4];  // where the sums of a scale begin
  int32_t height[4], top[4], bottom[4];
  uint32_t shift[4];            // of row sums of the numerators
  uint32_t reference_shift[4];  // of those of the denominator
};
HV_SIZE(AdmRows, 96);
HV_OFFSET(AdmRows, first, 0);
HV_OFFSET(AdmRows, height, 16);
HV_OFFSET(AdmRows, top, 32);
HV_OFFSET(AdmRows, bottom, 48);
HV_OFFSET(AdmRows, shift, 64);
HV_OFFSET(AdmRows, reference_shift, 80);
