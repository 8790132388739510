// SPDX-License-Identifier: MPL-2.0
//
// The sums of float_psnr and float_moment: squared differences of luma, and the first and the second power of the samples
// of each picture. Squares are rounded to single precision, as `crates/engine/src/metrics/moments.rs` defines them. They are
// integers, so sums below 2^53 are the same in any order. Larger ones are rounded by each addition, and are added in order.
#include "frame.h"

#define MOMENTS_THREADS 256  // 32 along a row, 8 rows at a time
#define MOMENTS_ROWS 2       // of a thread
#define MOMENTS_SAMPLES(T) (16 / (int)sizeof(T))  // of a thread in a row, loaded at once
#define MOMENTS_TILE_H (MOMENTS_THREADS / 32 * MOMENTS_ROWS)
#define MOMENTS_SUMS 5  // errors, then samples and their squares of the reference, and of the distorted picture
#define MOMENTS_KINDS 3  // of squares
#define MOMENTS_CHUNK 2048  // terms in shared memory at a time

namespace moments {

// The square of a number of at most 16 bits, rounded to single precision.
HV_DEV float square(float v) { return v * v; }

template <class T>
HV_DEV void sums(const HvFrame *__restrict__ frames, int width, int height, uint32_t bits, uint32_t pitch, uint64_t *totals) {
  const int tiles = (height + MOMENTS_TILE_H - 1) / MOMENTS_TILE_H, pair = (int)blockIdx.y / tiles;
  const HvPlane a = frames[pair].reference[0], b = frames[pair].distorted[0];
  const int lane = threadIdx.x % 32, x = ((int)blockIdx.x * 32 + lane) * MOMENTS_SAMPLES(T);
  uint64_t sums[MOMENTS_SUMS] = {};
#pragma unroll
  for (int i = 0; i < MOMENTS_ROWS; i++) {
    const int y = (int)blockIdx.y % tiles * MOMENTS_TILE_H + i * (MOMENTS_THREADS / 32) + (int)threadIdx.x / 32;
    if (y >= height || x >= width) continue;
    const HvU32x4 p = hv_ldg((const HvU32x4 *)(a.data + (uint64_t)y * a.stride + (uint32_t)x * sizeof(T)));
    const HvU32x4 q = hv_ldg((const HvU32x4 *)(b.data + (uint64_t)y * b.stride + (uint32_t)x * sizeof(T)));
#pragma unroll
    for (int k = 0; k < MOMENTS_SAMPLES(T); k++) {
      if (x + k >= width) continue;
      const uint32_t r = hv_sample_in<T>(p.v, k, a.shift, bits), d = hv_sample_in<T>(q.v, k, b.shift, bits);
      sums[0] += (uint32_t)square((float)(int)(r - d));
      sums[1] += r, sums[2] += (uint32_t)square((float)(int)r);
      sums[3] += d, sums[4] += (uint32_t)square((float)(int)d);
    }
  }
#pragma unroll
  for (int i = 0; i < MOMENTS_SUMS; i++) {
    hv_block_add_u64<MOMENTS_THREADS>(totals + (uint64_t)pair * pitch + i, sums[i]);
    __syncthreads();
  }
}

// The sum of a kind of squares that has more than 53 bits.
template <class T>
HV_DEV void ordered(const HvFrame *__restrict__ frames, int width, int height, uint32_t bits, uint32_t pitch, uint64_t *totals) {
  __shared__ float terms[MOMENTS_CHUNK];
  const uint32_t kind = blockIdx.x;
  totals += (uint64_t)blockIdx.y * pitch;
  if (totals[2 * kind] < 1ull << 53) return;
  const HvPlane a = frames[blockIdx.y].reference[0], b = frames[blockIdx.y].distorted[0];
  double sum = 0;
  for (int y = 0; y < height; y++) {
    for (int x = 0; x < width; x += MOMENTS_CHUNK) {
      const int count = hv_min(width - x, MOMENTS_CHUNK);
      for (int i = (int)threadIdx.x; i < count; i += MOMENTS_THREADS) {
        const uint32_t offset = (uint32_t)(x + i) * sizeof(T);
        const int r = (int)hv_sample<T>(a.data + (uint64_t)y * a.stride + offset, a.shift, bits);
        const int d = (int)hv_sample<T>(b.data + (uint64_t)y * b.stride + offset, b.shift, bits);
        terms[i] = square((float)(kind == 0 ? r - d : kind == 1 ? r : d));
      }
      __syncthreads();
      if (threadIdx.x == 0)
        for (int i = 0; i < count; i++) sum += (double)terms[i];
      __syncthreads();
    }
  }
  if (threadIdx.x == 0) totals[MOMENTS_SUMS + kind] = __builtin_bit_cast(uint64_t, sum);
}

}  // namespace moments

// Adds the sums of each pair to its totals, which are `pitch` apart. Block 256 threads, a tile of 512 x 16 (u8) or 256 x 16
// (u16) samples; grid (ceil(width/512), ceil(height/16) of each pair), or (ceil(width/256), ceil(height/16) of each pair).
#define MOMENTS(name, T)                                                                                          \
  HV_KERNEL(MOMENTS_THREADS, name)(const HvFrame *__restrict__ frames, int width, int height, uint32_t bits,      \
                                   uint32_t pitch, uint64_t *totals) {                                            \
    moments::sums<T>(frames, width, height, bits, pitch, totals);                                                 \
  }                                                                                                               \
  HV_EXPORT(name)

MOMENTS(moments_u8, uint8_t)
MOMENTS(moments_u16, uint16_t)

// Writes the bits of those sums of squares, as doubles, that have more than 53 bits, behind the sums of each pair. Block 256
// threads, grid (3, pairs).
HV_KERNEL(MOMENTS_THREADS, moments_ordered)(const HvFrame *__restrict__ frames, int width, int height, uint32_t bits,
                                            uint32_t pitch, uint64_t *totals) {
  moments::ordered<uint16_t>(frames, width, height, bits, pitch, totals);
}
HV_EXPORT(moments_ordered)
