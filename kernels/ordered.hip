// SPDX-License-Identifier: MPL-2.0
//
// Sums in single precision in a fixed order: the terms of each row from left to right, then the sums of the rows from the
// first to the last. Each addition rounds, so the order is part of the result. Rows are added side by side, a thread each.
#include "frame.h"

#define ORDERED_THREADS 128
#define ORDERED_ROWS 32     // of a block
#define ORDERED_COLUMNS 64  // of a tile in shared memory
#define ORDERED_STRIDE (ORDERED_COLUMNS + 4)  // the threads of a wave read from different banks
#define ORDERED_CHUNK (4 * ORDERED_THREADS)   // sums of rows in shared memory at a time

// A plane of terms. Places are in units of 4 bytes from the scratch of the pair, and multiples of 4.
struct HvTerms {
  uint32_t terms;   // of the first term
  uint32_t stride;  // from row to row
  uint32_t width, height;
  uint32_t rows;    // of the sums of the rows
  uint32_t sum;     // index of the sum among those of the pair
};
HV_SIZE(HvTerms, 24);
HV_OFFSET(HvTerms, terms, 0);
HV_OFFSET(HvTerms, stride, 4);
HV_OFFSET(HvTerms, width, 8);
HV_OFFSET(HvTerms, height, 12);
HV_OFFSET(HvTerms, rows, 16);
HV_OFFSET(HvTerms, sum, 20);

namespace ordered {

struct alignas(16) Four { float v[4]; };

// Adds `count` successive terms.
HV_DEV float add(float sum, const float *terms, uint32_t count) {
  const Four *some = (const Four *)terms;
  if (count >= ORDERED_COLUMNS) {
#pragma unroll
    for (int i = 0; i < ORDERED_COLUMNS / 4; i++) {
      const Four four = some[i];
#pragma unroll
      for (int j = 0; j < 4; j++) sum += four.v[j];
    }
    return sum;
  }
  for (uint32_t i = 0; i < count; i++) sum += terms[i];
  return sum;
}

}  // namespace ordered

// The sums of the rows of planes of terms. pitch: from the scratch of a pair to that of the next one, in units of 4 bytes.
// Block 128 threads, 32 rows; grid (ceil(height/32) of the highest plane, planes of all pairs).
HV_KERNEL(ORDERED_THREADS, ordered_rows)(const HvTerms *__restrict__ planes, uint32_t count, uint32_t pitch, float *scratch) {
  alignas(16) __shared__ float tile[2][ORDERED_ROWS][ORDERED_STRIDE];
  constexpr uint32_t beside = ORDERED_COLUMNS / 4, together = ORDERED_THREADS / beside, steps = ORDERED_ROWS / together;
  const HvTerms plane = planes[blockIdx.y % count];
  const uint32_t first = blockIdx.x * ORDERED_ROWS;
  if (first >= plane.height) return;
  scratch += (uint64_t)(blockIdx.y / count) * pitch;
  const float *terms = scratch + plane.terms;
  const uint32_t column = threadIdx.x % beside * 4, row = threadIdx.x / beside, last = (plane.width - 1) / 4 * 4;
  ordered::Four loaded[steps];
  // Terms outside of the plane are not used.
  const auto load = [&](uint32_t x, uint32_t i) {
    const uint32_t y = hv_min(first + row + i * together, plane.height - 1);
    return *(const ordered::Four *)(terms + (uint64_t)y * plane.stride + hv_min(x + column, last));
  };
#pragma unroll
  for (uint32_t i = 0; i < steps; i++) loaded[i] = load(0, i);
  float sum = 0;
  uint32_t at = 0;
  for (uint32_t x = 0; x < plane.width; x += ORDERED_COLUMNS, at ^= 1) {
#pragma unroll
    for (uint32_t i = 0; i < steps; i++) *(ordered::Four *)&tile[at][row + i * together][column] = loaded[i];
    __syncthreads();
    if (x + ORDERED_COLUMNS < plane.width) {
#pragma unroll
      for (uint32_t i = 0; i < steps; i++) loaded[i] = load(x + ORDERED_COLUMNS, i);
    }
    if (threadIdx.x < ORDERED_ROWS) sum = ordered::add(sum, tile[at][threadIdx.x], plane.width - x);
  }
  if (threadIdx.x < ORDERED_ROWS && first + threadIdx.x < plane.height) scratch[plane.rows + first + threadIdx.x] = sum;
}
HV_EXPORT(ordered_rows)

// The bits of the sums of the sums of rows. sums_pitch: from the sums of a pair to those of the next one. Block 128 threads;
// grid (planes, pairs).
HV_KERNEL(ORDERED_THREADS, ordered_sums)(const HvTerms *__restrict__ planes, uint32_t pitch, const float *scratch,
                                         uint32_t sums_pitch, uint64_t *sums) {
  alignas(16) __shared__ float rows[2][ORDERED_CHUNK];
  const HvTerms plane = planes[blockIdx.x];
  const float *of_rows = scratch + (uint64_t)blockIdx.y * pitch + plane.rows;
  float sum = 0;
  uint32_t at = 0;
  for (uint32_t first = 0; first < plane.height; first += ORDERED_CHUNK, at ^= 1) {
    for (uint32_t i = threadIdx.x; i < ORDERED_CHUNK && first + i < plane.height; i += ORDERED_THREADS)
      rows[at][i] = of_rows[first + i];
    __syncthreads();
    if (threadIdx.x != 0) continue;
    const uint32_t count = hv_min(plane.height - first, (uint32_t)ORDERED_CHUNK);
    for (uint32_t i = 0; i < count; i += ORDERED_COLUMNS) sum = ordered::add(sum, rows[at] + i, count - i);
  }
  if (threadIdx.x == 0) sums[blockIdx.y * sums_pitch + plane.sum] = __builtin_bit_cast(uint32_t, sum);
}
HV_EXPORT(ordered_sums)
