// SPDX-License-Identifier: MPL-2.0
//
// Motion: the sum of absolute blurred differences of two luma pictures of the reference.
#pragma once
#include "frame.h"

// 32 lanes process a strip together from top to bottom, eight columns each; the outer two only compute inputs of their
// neighbours. More rows save loads, but leave fewer blocks in flight. Moving differences from row to row costs a tenth
// of the operations; without it, the code would be seven times as long and fill the instruction cache of the
// multiprocessor.
#define MOTION_THREADS 128
#define MOTION_COLUMNS 8  // of a lane
#define MOTION_ROWS 10    // of a strip
#define MOTION_TILE_W (30 * MOTION_COLUMNS)
#define MOTION_TILE_H (MOTION_THREADS / 32 * MOTION_ROWS)

namespace motion {

template <class T> struct Run;  // the samples of a lane in one row, as loaded
template <> struct Run<uint8_t> { using Words = HvU32x2; };
template <> struct Run<uint16_t> { using Words = HvU32x4; };

HV_DEV int mirror(int i, int n) {
  i = hv_abs(i);
  return i < n ? i : 2 * (n - 1) - i;
}

// (3571 (a + e) + 16004 (b + d) + 26386 c + 2^(bits-1)) >> bits for numbers of 17 bits: the sum has 33 bits,
// its half 32, and all taps but the outer one are even.
HV_DEV int32_t blur(int32_t a, int32_t b, int32_t c, int32_t d, int32_t e, uint32_t bits) {
  int32_t outer = hv_mad_i24(a + e, 3571, 1 << (bits - 1)) >> 1;
  return hv_mad_i24(c, 13193, hv_mad_i24(b + d, 8002, outer)) >> (bits - 1);
}

template <class T>
HV_DEV void motion(const HvFrame *__restrict__ frame, uint32_t lag, int width, int height, uint32_t bits,
                   uint64_t *total) {
  const HvPlane a = frame->earlier[lag - 1], b = frame->reference[0];
  if (!a.data) return;
  const int lane = threadIdx.x % 32, strip = blockIdx.y * (MOTION_THREADS / 32) + threadIdx.x / 32;
  const int x = (int)blockIdx.x * MOTION_TILE_W + (lane - 1) * MOTION_COLUMNS, y0 = strip * MOTION_ROWS;
  const int inside = width - x;  // columns from x on
  const uint32_t first = hv_min(hv_max(x, 0), (width - 1) / MOTION_COLUMNS * MOTION_COLUMNS) * sizeof(T);
  const uint32_t left = hv_lane() - 1, right = hv_lane() + 1;

  // Differences of the present row, of the two above it and of the two below.
  int32_t e[5][MOTION_COLUMNS];
  auto load = [&](int32_t to[MOTION_COLUMNS], int y) {
    const uint64_t row = hv_max(mirror(y, height), 0);  // far below the picture any row will do
    using Words = typename Run<T>::Words;
    const Words p = hv_ldg((const Words *)(a.data + row * a.stride + first));
    const Words q = hv_ldg((const Words *)(b.data + row * b.stride + first));
#pragma unroll
    for (int i = 0; i < MOTION_COLUMNS; i++)
      to[i] = (int32_t)(hv_sample_in<T>(p.v, i, a.shift, bits) - hv_sample_in<T>(q.v, i, b.shift, bits));
  };
#pragma unroll
  for (int i = 0; i < 4; i++) load(e[i], y0 + i - 2);

  uint32_t sums[MOTION_COLUMNS] = {};  // at most 2^16 for each row
#pragma unroll 1
  for (int k = 0; k < MOTION_ROWS; k++) {
    load(e[4], y0 + k + 2);
    int32_t v[MOTION_COLUMNS + 4];  // from column x - 2 on
#pragma unroll
    for (int i = 0; i < MOTION_COLUMNS; i++) {
      v[i + 2] = blur(e[0][i], e[1][i], e[2][i], e[3][i], e[4][i], bits);
#pragma unroll
      for (int j = 0; j < 4; j++) e[j][i] = e[j + 1][i];
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      v[i] = (int32_t)hv_shfl_u32((uint32_t)v[i + MOTION_COLUMNS], left);
      v[i + MOTION_COLUMNS + 2] = (int32_t)hv_shfl_u32((uint32_t)v[i + 2], right);
    }
    if (y0 + k >= height) continue;  // not before: a wave of 64 lanes has two strips
    if (x == 0) v[0] = v[4], v[1] = v[3];
    if (inside < MOTION_COLUMNS + 2) {
#pragma unroll
      for (int i = 1; i < MOTION_COLUMNS + 2; i++)
        v[i + 2] = i == inside ? v[i] : i == inside + 1 ? v[i - 2] : v[i + 2];
    }
#pragma unroll
    for (int i = 0; i < MOTION_COLUMNS; i++)
      sums[i] += (uint32_t)hv_abs(blur(v[i], v[i + 1], v[i + 2], v[i + 3], v[i + 4], 16));
  }

  uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < MOTION_COLUMNS; i++) sum += i < inside ? sums[i] : 0;
  hv_block_add_u64<MOTION_THREADS>(total, lane == 0 || lane == 31 ? 0 : sum);
}

}  // namespace motion

// Adds to *sum the sum over all pixels of |blur(earlier - later)|, where later is the reference's luma and
// earlier the one `lag` (1 or 2) frames ago, in 1/256 of an 8-bit step. Does nothing where that is null.
// width, height: pixels, at least 3. Block 128 threads, a tile of 240 x 40 pixels; grid (ceil(width/240),
// ceil(height/40)).
#define MOTION(name, T)                                                                                      \
  HV_KERNEL(MOTION_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t lag, int width, int height,    \
                                  uint32_t bits, uint64_t *sum) {                                            \
    motion::motion<T>(frame, lag, width, height, bits, sum);                                                 \
  }                                                                                                          \
  HV_EXPORT(name)
