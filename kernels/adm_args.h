// SPDX-License-Identifier: MPL-2.0
//
// What the host tells the kernels of ADM. The shape of the work is theirs in common, so it stands apart from what they
// do with it.
#pragma once
#include "frame.h"

#define ADM_THREADS HV_WAVE
#define ADM_STRIP_W 60  // coefficients that a strip owns: two for each of 30 lanes
#define ADM_TILE_W (ADM_THREADS / 32 * ADM_STRIP_W)
#define ADM_PASSES 4
#define ADM_KEEP_WORDS(scale) ((scale) == 0 ? 3 : 6)  // for a row and lane
#define ADM_SLOTS 4  // triples of sums that are added up together

// Shape of one scale. `src/metrics/adm.rs` has the meaning of extents, scored parts and shifts.
struct AdmScale {
  int32_t in_w, in_h;                // samples of the input
  int32_t w, h;                      // coefficients of a band
  int32_t left, right, top, bottom;  // scored columns [left, right) and rows [top, bottom)
  int32_t x0, y0;                    // where the first tile begins: not positive, x0 even
  int32_t tile_h;                    // rows of a tile
  uint32_t cube[2];                  // shifts of the numerator's cubes, h and v, d
  uint32_t ref_square, ref_cube;     // shifts of the denominator's cubes, not used at scale 0
  uint32_t horizontal;               // shift of the horizontal transform, not used at scales 0 and 1
};

// One way of weighting and masking.
struct AdmPass {
  double gain;        // gain limit, 1 .. 100
  uint32_t weight[2]; // quantised, of h and v, of d: at most 40000 and 54000 at scale 0, below 2^31 elsewhere
  uint32_t aim;       // whether the additive part is summed up as well; only the `_passes` kernels do it
};
struct AdmPasses {
  AdmPass pass[ADM_PASSES];
  uint32_t n;
};

// The low band of both pictures, int16_t of scale 0 and int32_t of the others. Rows are 16-byte aligned.
struct AdmPlanes {
  void *ref, *dis;
  uint32_t stride;  // coefficients from row to row, a multiple of 8
};
