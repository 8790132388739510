// SPDX-License-Identifier: MPL-2.0
//
// Windows of the damage map; see `crates/engine/src/metrics/damage.rs`.
#include "frame.h"

#define DAMAGE_THREADS 256
#define DAMAGE_CELL 16
#define DAMAGE_MARGIN 8
#define DAMAGE_WINDOW 32                                // threads of a cell, each with a column of the window
#define DAMAGE_CELLS (DAMAGE_THREADS / DAMAGE_WINDOW)  // of a block

static_assert(DAMAGE_WINDOW == DAMAGE_CELL + 2 * DAMAGE_MARGIN, "a thread for each column");

namespace damage {

// The sum over the threads of a cell, for each of them.
HV_DEV uint64_t total(uint64_t sum) {
  for (uint32_t m = DAMAGE_WINDOW / 2; m; m >>= 1) sum += hv_shfl_xor_u64(sum, m);
  return sum;
}

template <class T>
HV_DEV void windows(const HvFrame *__restrict__ frame, uint32_t bits, int width, int height, uint64_t *out) {
  const int columns = (width + DAMAGE_CELL - 1) / DAMAGE_CELL, row = (int)blockIdx.y;
  const int column = (int)(blockIdx.x * DAMAGE_CELLS + threadIdx.x / DAMAGE_WINDOW);
  const int lane = (int)(threadIdx.x % DAMAGE_WINDOW), x = column * DAMAGE_CELL - DAMAGE_MARGIN + lane;
  const int y0 = hv_max(row * DAMAGE_CELL - DAMAGE_MARGIN, 0);
  const int y1 = hv_min((row + 1) * DAMAGE_CELL + DAMAGE_MARGIN, height);
  const HvPlane reference = frame->reference[0], distorted = frame->distorted[0];
  uint32_t n = 0, r = 0, d = 0;
  uint64_t rr = 0, dd = 0, rd = 0;
  if (x >= 0 && x < width) {
    n = (uint32_t)(y1 - y0);
    const uint8_t *p = reference.data + (uint64_t)y0 * reference.stride + (uint32_t)x * reference.step * sizeof(T);
    const uint8_t *q = distorted.data + (uint64_t)y0 * distorted.stride + (uint32_t)x * distorted.step * sizeof(T);
    for (int y = y0; y < y1; y++, p += reference.stride, q += distorted.stride) {
      const uint32_t a = hv_sample<T>(p, reference.shift, bits), b = hv_sample<T>(q, distorted.shift, bits);
      r += a, d += b;
      rr = hv_mad_u64(a, a, rr), dd = hv_mad_u64(b, b, dd), rd = hv_mad_u64(a, b, rd);
    }
  }
  // Below 2^52 with the factor, as windows have at most 2^10 samples.
  const uint64_t all = total(n), of_r = total(r), of_d = total(d), factor = 1ull << (32 - 2 * bits), square = all * all;
  rr = total(rr), dd = total(dd), rd = total(rd);
  if (lane != 0 || column >= columns) return;
  const uint64_t variance1 = (all * rr - of_r * of_r) * factor / square;
  const uint64_t variance2 = (all * dd - of_d * of_d) * factor / square;
  const int64_t covariance = ((int64_t)(all * rd) - (int64_t)(of_r * of_d)) * (int64_t)factor / (int64_t)square;
  out += 2 * (uint32_t)(row * columns + column);
  out[0] = variance1 | variance2 << 32;
  out[1] = (uint64_t)covariance;
}

}  // namespace damage

// Writes two u64 for each cell of the pair, row by row: the variance of the reference below that of the distorted picture,
// and the covariance. width, height: luma samples. Block 256 threads, 8 cells; grid (ceil(width/16/8), ceil(height/16)).
#define DAMAGE(name, T)                                                                                              \
  HV_KERNEL(DAMAGE_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, int width, int height, uint64_t *out) { \
    damage::windows<T>(frame, bits, width, height, out);                                                              \
  }                                                                                                                   \
  HV_EXPORT(name)

DAMAGE(damage_u8, uint8_t)
DAMAGE(damage_u16, uint16_t)
