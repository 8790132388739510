// SPDX-License-Identifier: MPL-2.0
//
// The signal and the noise of float_ansnr at each pixel: the squares of the filtered reference, and of its difference to
// the filtered distorted picture. `crates/engine/src/metrics/ansnr.rs` has the definition; all operations are those of the
// CPU in the same order. `ordered.hip` adds the terms.
#include "single.h"

#define ANSNR_THREADS 256
#define ANSNR_TILE_W 64
#define ANSNR_TILE_H 16
#define ANSNR_ROWS (ANSNR_TILE_W * ANSNR_TILE_H / ANSNR_THREADS)  // of a thread
#define ANSNR_REACH 2

// Places of the terms in the scratch of a pair, in units of 4 bytes.
struct AnsnrTerms {
  uint32_t signal, noise;  // of the first term
  uint32_t stride;         // from row to row
  uint32_t pitch;          // from pair to pair
};
HV_SIZE(AnsnrTerms, 16);
HV_OFFSET(AnsnrTerms, signal, 0);
HV_OFFSET(AnsnrTerms, noise, 4);
HV_OFFSET(AnsnrTerms, stride, 8);
HV_OFFSET(AnsnrTerms, pitch, 12);

namespace ansnr {

// Mirrored at the first sample, and behind the last one. Far behind the picture any will do.
HV_DEV int mirror(int i, int n) {
  i = hv_abs(i);
  return i < n ? i : hv_max(2 * n - 1 - i, 0);
}

struct Tile {
  float samples[2][ANSNR_TILE_H + 2 * ANSNR_REACH][ANSNR_TILE_W + 2 * ANSNR_REACH];  // of both pictures
};

template <class T>
HV_DEV void load(Tile &tile, const HvPlane (&planes)[2], int left, int top, int width, int height, uint32_t bits, float unit) {
  constexpr int w = ANSNR_TILE_W + 2 * ANSNR_REACH, h = ANSNR_TILE_H + 2 * ANSNR_REACH;
#pragma unroll
  for (int side = 0; side < 2; side++) {
    const HvPlane plane = planes[side];
    for (int i = (int)threadIdx.x; i < w * h; i += ANSNR_THREADS) {
      const int x = mirror(left + i % w - ANSNR_REACH, width), y = mirror(top + i / w - ANSNR_REACH, height);
      const uint8_t *at = plane.data + (uint64_t)y * plane.stride + (uint32_t)x * sizeof(T);
      tile.samples[side][i / w][i % w] = hv_centred<T>(at, plane.shift, bits, unit);
    }
  }
}

// The sum of a row of the filter of the distorted picture.
HV_DEV float inner(const float (&v)[5], float outer, float next, float middle) {
  float sum = outer * v[0];
  sum += next * v[1];
  sum += middle * v[2];
  sum += next * v[3];
  return sum + outer * v[4];
}

template <class T>
HV_DEV void terms(const HvFrame *__restrict__ frames, int width, int height, uint32_t bits, float unit, AnsnrTerms places,
                  float *scratch) {
  __shared__ Tile tile;
  const int tiles = (height + ANSNR_TILE_H - 1) / ANSNR_TILE_H, pair = (int)blockIdx.y / tiles;
  const int left = (int)blockIdx.x * ANSNR_TILE_W, top = (int)blockIdx.y % tiles * ANSNR_TILE_H;
  const HvPlane planes[2] = {frames[pair].reference[0], frames[pair].distorted[0]};
  load<T>(tile, planes, left, top, width, height, bits, unit);
  __syncthreads();
  const int column = (int)threadIdx.x % ANSNR_TILE_W, first = (int)threadIdx.x / ANSNR_TILE_W * ANSNR_ROWS;
  float filtered[2][ANSNR_ROWS] = {};
#pragma unroll
  for (int i = 0; i < ANSNR_ROWS + 2 * ANSNR_REACH; i++) {
    float a[5], b[5];
#pragma unroll
    for (int k = 0; k < 5; k++) {
      a[k] = tile.samples[0][first + i][column + k];
      b[k] = tile.samples[1][first + i][column + k];
    }
    // The filter of the reference is exact in any order.
    const float across = (a[1] + 2.0f * a[2] + a[3]) * (1.0f / 16);
    const float rows[3] = {inner(b, 2.0 / 571.0, 7.0 / 571.0, 12.0 / 571.0), inner(b, 7.0 / 571.0, 31.0 / 571.0, 52.0 / 571.0),
                           inner(b, 12.0 / 571.0, 52.0 / 571.0, 127.0 / 571.0)};
#pragma unroll
    for (int row = 0; row < ANSNR_ROWS; row++) {
      const int tap = i - row;
      if (tap >= 0 && tap < 5) filtered[1][row] += rows[tap < 3 ? tap : 4 - tap];
      if (tap >= 1 && tap < 4) filtered[0][row] += tap == 2 ? 2.0f * across : across;
    }
  }
  scratch += (uint64_t)pair * places.pitch;
  const int x = left + column;
#pragma unroll
  for (int row = 0; row < ANSNR_ROWS; row++) {
    const int y = top + first + row;
    if (x >= width || y >= height) continue;
    const float signal = filtered[0][row], noise = signal - filtered[1][row];
    const uint64_t at = (uint64_t)y * places.stride + (uint32_t)x;
    scratch[places.signal + at] = signal * signal;
    scratch[places.noise + at] = noise * noise;
  }
}

}  // namespace ansnr

// width, height: pixels, at least 3. unit: from samples to 8-bit steps. Block 256 threads, a tile of 64 x 16 pixels; grid
// (ceil(width/64), ceil(height/16) of each pair).
#define ANSNR(name, T)                                                                                            \
  HV_KERNEL(ANSNR_THREADS, name)(const HvFrame *__restrict__ frames, int width, int height, uint32_t bits,        \
                                 float unit, AnsnrTerms places, float *scratch) {                                 \
    ansnr::terms<T>(frames, width, height, bits, unit, places, scratch);                                          \
  }                                                                                                               \
  HV_EXPORT(name)

ANSNR(ansnr_u8, uint8_t)
ANSNR(ansnr_u16, uint16_t)
