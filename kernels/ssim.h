// SPDX-License-Identifier: MPL-2.0
//
// Structural similarity: the window and its statistics, and the decimations before them. Every product is rounded to
// single precision and added to a double in the order of the taps; so do `src/cpu/ssim.rs` and libvmaf.
// Formulas and constants are those of libvmaf 3.2.0's float_ssim and float_ms_ssim (BSD-2-Clause-Patent).
#pragma once
#include "frame.h"

#define SSIM_THREADS 128  // each walks down a column
#define SSIM_STAGE 4      // rows in shared memory at a time
#define SSIM_WINDOW 11
#define SSIM_BOX_TILE_H 4
// Two blocks have to fit a multiprocessor; some targets would spend all registers on less.
#if defined(HV_NV)
  #define SSIM_BOUNDS SSIM_THREADS, 3
#else
  #define SSIM_BOUNDS SSIM_THREADS
#endif

// A sample of the reference and of the distorted picture, in the range of 8 bits.
struct alignas(8) SsimPair {
  float ref, dis;
};

// Decimated pictures.
struct SsimPlanes {
  float *ref, *dis;
  uint32_t stride;  // samples from row to row
};

namespace ssim {

// Luma of the frame pair.
template <class T> struct Samples {
  HvPlane ref, dis;
  uint32_t bits;
  float unit;
  HV_MEMBER Samples(const HvFrame *frame, uint32_t bits)
      : ref(frame->ref[0]), dis(frame->dis[0]), bits(bits), unit(1.0f / (float)(1u << (bits - 8))) {}
  HV_MEMBER float sample(const HvPlane &plane, int x, int y) const {
    const uint8_t *at = plane.data + (uint64_t)y * plane.stride + (uint32_t)x * sizeof(T);
    return (float)hv_sample<T>(at, plane.shift, bits) * unit;
  }
  HV_MEMBER SsimPair read(int x, int y) const { return {sample(ref, x, y), sample(dis, x, y)}; }
};

template <> struct Samples<float> {
  SsimPlanes planes;
  HV_MEMBER explicit Samples(const SsimPlanes &planes) : planes(planes) {}
  HV_MEMBER SsimPair read(int x, int y) const {
    const uint64_t at = (uint64_t)y * planes.stride + (uint32_t)x;
    return {planes.ref[at], planes.dis[at]};
  }
};

HV_DEV int mirror(int i, int n) {
  i = i < 0 ? -1 - i : i;
  return i < n ? i : hv_max(2 * n - 1 - i, 0);
}

HV_DEV float root(float v) {
#if defined(HV_HOST) || defined(HV_BARE)
  return __builtin_sqrtf(v);
#else
  return sqrtf(v);
#endif
}

HV_DEV uint64_t bits_of(double v) { return __builtin_bit_cast(uint64_t, v); }

// Adds to each of four totals the sum over the block.
HV_DEV void add_to_all(uint64_t *totals, const uint64_t v[4]) {
  __shared__ uint64_t waves[HV_MAX_WAVES_PER_BLOCK(SSIM_THREADS)][4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint64_t sum = hv_wave_sum_u64(v[i]);
    if (hv_lane() == 0) waves[threadIdx.x / HV_WAVE][i] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= 4) return;
  uint64_t sum = 0;
  for (int i = 0; i < SSIM_THREADS / HV_WAVE; i++) sum += waves[i][threadIdx.x];
  hv_atomic_add_u64(totals + threadIdx.x, sum);
}

// Both pictures, their squares and their product after a row of the window whose first sample is `at`.
HV_DEV void window_row(const SsimPair *at, const float taps[6], float row[5]) {
  double sums[5] = {};
#pragma unroll
  for (int k = 0; k < SSIM_WINDOW; k++) {
    const SsimPair s = at[k];
    const float values[] = {s.ref, s.dis, s.ref * s.ref, s.dis * s.dis, s.ref * s.dis};
#pragma unroll
    for (int i = 0; i < 5; i++) sums[i] += (double)(values[i] * taps[k < 6 ? k : 10 - k]);
  }
#pragma unroll
  for (int i = 0; i < 5; i++) row[i] = (float)sums[i];
}

// SSIM, and its luminance, contrast and structure terms, of one place of the window.
HV_DEV void terms_of(const float filtered[5], double terms[4]) {
  constexpr float c1 = (0.01f * 255.0f) * (0.01f * 255.0f), c2 = (0.03f * 255.0f) * (0.03f * 255.0f);
  constexpr float c3 = c2 / 2.0f;
  const float m1 = filtered[0], m2 = filtered[1];
  const float variance1 = hv_max(filtered[2] - m1 * m1, 0.0f), variance2 = hv_max(filtered[3] - m2 * m2, 0.0f);
  const float difference = filtered[4] - m1 * m2, deviations = root(variance1 * variance2);
  const double luminance =
      ((2.0 * (double)m1) * (double)m2 + (double)c1) / (double)((m1 * m1 + m2 * m2) + c1);
  const double contrast = (2.0 * (double)deviations + (double)c2) / (double)((variance1 + variance2) + c2);
  const bool flat = (difference < 0.0f) & (deviations <= 0.0f);
  const float covariance = flat ? 0.0f : difference;
  const double structure = (double)((covariance + c3) / (deviations + c3));
  terms[0] = (luminance * contrast) * structure;
  terms[1] = luminance, terms[2] = contrast, terms[3] = structure;
}

template <class S>
HV_DEV void map(const S source, int w, int h, int rows, double bias, uint64_t *totals) {
  constexpr float taps[] = {0.001028f, 0.007599f, 0.036001f, 0.109361f, 0.213006f, 0.266012f};
  constexpr int columns = SSIM_THREADS + SSIM_WINDOW - 1;
  // Double buffered: one barrier for each stage.
  __shared__ SsimPair staged[2][SSIM_STAGE][columns];
  const int x0 = (int)blockIdx.x * SSIM_THREADS, y0 = (int)blockIdx.y * rows;
  const int needed = hv_min(rows, h - (SSIM_WINDOW - 1) - y0) + SSIM_WINDOW - 1;
  const bool inside = x0 + (int)threadIdx.x < w - (SSIM_WINDOW - 1);

  // The windows that the rows so far belong to, by how many rows each still lacks.
  double begun[5][SSIM_WINDOW - 1] = {};
  uint64_t sums[4] = {};
  for (int first = 0, turn = 0; first < needed; first += SSIM_STAGE, turn ^= 1) {
    for (int i = (int)threadIdx.x; i < SSIM_STAGE * columns; i += SSIM_THREADS)
      staged[turn][i / columns][i % columns] =
          source.read(hv_min(x0 + i % columns, w - 1), hv_min(y0 + first + i / columns, h - 1));
    __syncthreads();
    for (int r = 0; r < SSIM_STAGE && first + r < needed; r++) {
      float row[5], filtered[5];
      window_row(staged[turn][r] + threadIdx.x, taps, row);
#pragma unroll
      for (int i = 0; i < 5; i++) {
        double products[6];
#pragma unroll
        for (int k = 0; k < 6; k++) products[k] = (double)(row[i] * taps[k]);
        filtered[i] = (float)(begun[i][SSIM_WINDOW - 2] + products[0]);
#pragma unroll
        for (int k = SSIM_WINDOW - 2; k > 0; k--) begun[i][k] = begun[i][k - 1] + products[k < 6 ? k : 10 - k];
        begun[i][0] = products[0];
      }
      if (first + r < SSIM_WINDOW - 1) continue;
      double terms[4];
      terms_of(filtered, terms);
#pragma unroll
      for (int i = 0; i < 4; i++) sums[i] += inside ? bits_of(terms[i] + bias) : 0;
    }
  }
  add_to_all(totals, sums);
}

// The low pass at every other sample, with `rows` of the result for a block.
template <class S>
HV_DEV void low_pass(const S source, int w, int h, int rows, const SsimPlanes out) {
  // Columns 0-8 of rows 0-4; rows 5-8 are 3-0.
  constexpr float taps[5][9] = {
      {0.000714f, -0.000450f, -0.002090f, 0.007132f, 0.016114f, 0.007132f, -0.002090f, -0.000450f, 0.000714f},
      {-0.000450f, 0.000283f, 0.001316f, -0.004490f, -0.010146f, -0.004490f, 0.001316f, 0.000283f, -0.000450f},
      {-0.002090f, 0.001316f, 0.006115f, -0.020867f, -0.047149f, -0.020867f, 0.006115f, 0.001316f, -0.002090f},
      {0.007132f, -0.004490f, -0.020867f, 0.071207f, 0.160885f, 0.071207f, -0.020867f, -0.004490f, 0.007132f},
      {0.016114f, -0.010146f, -0.047149f, 0.160885f, 0.363505f, 0.160885f, -0.047149f, -0.010146f, 0.016114f}};
  constexpr int columns = SSIM_THREADS + 4;
  // Even and odd columns from -4 on apart, so that neighbours read neighbours.
  __shared__ SsimPair staged[2][SSIM_STAGE][2][columns];
  const int w2 = (w + 1) / 2, h2 = (h + 1) / 2;
  const int x = (int)blockIdx.x * SSIM_THREADS + (int)threadIdx.x, y0 = (int)blockIdx.y * rows;
  const int needed = 2 * hv_min(rows, h2 - y0) + 7;

  // The results that the rows so far belong to: those that have had two rows, four, six and eight.
  double begun[2][4] = {};
  for (int first = 0, turn = 0; first < needed; first += SSIM_STAGE, turn ^= 1) {
    for (int i = (int)threadIdx.x; i < SSIM_STAGE * 2 * columns; i += SSIM_THREADS) {
      const int column = i % (2 * columns), row = i / (2 * columns);
      const int left = 2 * (int)blockIdx.x * SSIM_THREADS - 4 + column, top = 2 * y0 - 4 + first + row;
      staged[turn][row][column % 2][column / 2] = source.read(mirror(left, w), mirror(top, h));
    }
    __syncthreads();
#pragma unroll 2
    for (int r = 0; r < SSIM_STAGE; r++) {
      double done[2], next[2][4];
#pragma unroll
      for (int side = 0; side < 2; side++) {
        done[side] = begun[side][3];
#pragma unroll
        for (int k = 0; k < 4; k++) next[side][k] = r % 2 ? begun[side][k] : k ? begun[side][k - 1] : 0;
      }
#pragma unroll
      for (int u = 0; u < 9; u++) {
        const SsimPair s = staged[turn][r][u % 2][threadIdx.x + u / 2];
        const float values[] = {s.ref, s.dis};
#pragma unroll
        for (int side = 0; side < 2; side++) {
          if (r % 2) {  // rows 1, 3, 5 and 7 of the filter
            const double outer = (double)(values[side] * taps[1][u]), inner = (double)(values[side] * taps[3][u]);
            next[side][0] += outer, next[side][1] += inner, next[side][2] += inner, next[side][3] += outer;
          } else {  // rows 0, 2, 4, 6 and 8
            const double outer = (double)(values[side] * taps[0][u]), inner = (double)(values[side] * taps[2][u]);
            next[side][0] += outer, next[side][1] += inner;
            next[side][2] += (double)(values[side] * taps[4][u]);
            next[side][3] += inner, done[side] += outer;
          }
        }
      }
#pragma unroll
      for (int side = 0; side < 2; side++)
#pragma unroll
        for (int k = 0; k < 4; k++) begun[side][k] = next[side][k];
      const int row = first + r - 8;
      if (r % 2 == 0 && row >= 0 && first + r < needed && x < w2) {
        const uint64_t at = (uint64_t)(y0 + row / 2) * out.stride + (uint32_t)x;
        out.ref[at] = (float)done[0], out.dis[at] = (float)done[1];
      }
    }
  }
}

// Means of `factor` x `factor` samples. Doubles hold their sums exactly.
template <class S>
HV_DEV void box(const S source, int w, int h, int factor, int w2, int h2, const SsimPlanes out) {
  const int x = (int)(blockIdx.x * 32 + threadIdx.x % 32);
  const int y = (int)(blockIdx.y * SSIM_BOX_TILE_H + threadIdx.x / 32);
  if (x >= w2 || y >= h2) return;
  const float weight = 1.0f / (float)(factor * factor);
  double ref = 0, dis = 0;
  for (int v = 0; v < factor; v++)
    for (int u = 0; u < factor; u++) {
      const SsimPair s =
          source.read(mirror(x * factor + u - factor / 2, w), mirror(y * factor + v - factor / 2, h));
      ref += (double)(s.ref * weight), dis += (double)(s.dis * weight);
    }
  const uint64_t at = (uint64_t)y * out.stride + (uint32_t)x;
  out.ref[at] = (float)ref, out.dis[at] = (float)dis;
}

}  // namespace ssim
