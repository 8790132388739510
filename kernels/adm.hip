// SPDX-License-Identifier: MPL-2.0
//
// ADM for one pass without the additive part, scales 1 to 3, and the sums over rows.
#include "adm.h"

ADM(adm1, 1, false)
ADM(adm2, 2, false)

#define ADM_ROWS_THREADS 128

// Adds the rounded row sums of every scale to `sums` and zeroes them for the next frame: 12 of the reference,
// [scale][band], and for each pass 12 of the restored and 12 of the additive part. Block 128 threads; grid (3 + 6 n, 4)
// for n passes, or (6, 4) for one pass without the additive part. Later pictures of a group copy the sums of the
// reference from `first`.
HV_KERNEL(ADM_ROWS_THREADS, adm_rows)(AdmRows shape, uint64_t *rows, const uint64_t *first, uint64_t *sums) {
  const int scale = blockIdx.y, kind = blockIdx.x / 3, band = blockIdx.x % 3;
  if (first && kind == 0) {
    if (threadIdx.x == 0) sums[3 * scale + band] = first[3 * scale + band];
    return;
  }
  uint64_t *from = rows + shape.first[scale] + (uint64_t)blockIdx.x * (uint32_t)shape.height[scale];
  const uint32_t shift = kind == 0 ? shape.reference_shift[scale] : shape.shift[scale];
  const int64_t half = (int64_t)((1ull << shift) >> 1);
  uint64_t sum = 0;
  for (int row = shape.top[scale] + (int)threadIdx.x; row < shape.bottom[scale]; row += ADM_ROWS_THREADS) {
    sum += (uint64_t)(((int64_t)from[row] + half) >> shift);
    from[row] = 0;
  }
  hv_block_add_u64<ADM_ROWS_THREADS>(sums + 12 * kind + 3 * scale + band, sum);
}
HV_EXPORT(adm_rows)
