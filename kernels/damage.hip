// SPDX-License-Identifier: MPL-2.0
//
// Windows of the damage map from the pictures of scale 1 of VIF; see
// `crates/engine/src/metrics/damage.rs`.
#include "vif.h"

#define DAMAGE_THREADS 64  // cells of a row
#define DAMAGE_STEP 8
#define DAMAGE_MARGIN 4

// Writes two u64 for each cell, row by row: the variance of the reference below that of the distorted picture, and
// the covariance. width, height: samples of the pictures. Block 64 threads, grid (ceil(width/8/64), ceil(height/8)).
HV_KERNEL(DAMAGE_THREADS, damage)(VifPlanes in, int32_t width, int32_t height, uint64_t *out) {
  const int32_t columns = (width + DAMAGE_STEP - 1) / DAMAGE_STEP, row = (int32_t)blockIdx.y;
  const int32_t column = (int32_t)(blockIdx.x * DAMAGE_THREADS + threadIdx.x);
  if (column >= columns) return;
  const int32_t x0 = hv_max(column * DAMAGE_STEP - DAMAGE_MARGIN, 0), y0 = hv_max(row * DAMAGE_STEP - DAMAGE_MARGIN, 0);
  const int32_t x1 = hv_min((column + 1) * DAMAGE_STEP + DAMAGE_MARGIN, width);
  const int32_t y1 = hv_min((row + 1) * DAMAGE_STEP + DAMAGE_MARGIN, height);
  uint32_t r = 0, d = 0;
  uint64_t rr = 0, dd = 0, rd = 0;
  for (int32_t y = y0; y < y1; y++) {
    const uint16_t *reference = in.reference + (uint64_t)y * in.stride;
    const uint16_t *distorted = in.distorted + (uint64_t)y * in.stride;
    for (int32_t x = x0; x < x1; x++) {
      const uint32_t a = hv_ldg(reference + x), b = hv_ldg(distorted + x);
      r += a, d += b;
      rr = hv_mad_u64(a, a, rr), dd = hv_mad_u64(b, b, dd), rd = hv_mad_u64(a, b, rd);
    }
  }
  // The products are below 2^48, as windows have at most 2^8 samples.
  const uint32_t n = (uint32_t)((x1 - x0) * (y1 - y0));
  const uint64_t var1 = (n * rr - (uint64_t)r * r) / (n * n), var2 = (n * dd - (uint64_t)d * d) / (n * n);
  const int64_t cov = ((int64_t)(n * rd) - (int64_t)((uint64_t)r * d)) / (int64_t)(n * n);
  out += 2 * ((uint64_t)row * (uint32_t)columns + (uint32_t)column);
  out[0] = var1 | var2 << 32;
  out[1] = (uint64_t)cov;
}
HV_EXPORT(damage)
