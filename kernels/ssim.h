// SPDX-License-Identifier: MPL-2.0
//
// Structural similarity: the window and its statistics, and the decimations before them. Every product is rounded to
// single precision and added to a double in the order of the taps; so do `crates/engine/src/backend/cpu/ssim.rs` and
// libvmaf.
// Formulas and constants are those of libvmaf 3.2.0's float_ssim and float_ms_ssim (BSD-2-Clause-Patent).
//
// SIDES tells what is computed: 2, of the distorted picture and of the reference; 1, of the distorted picture alone, for
// the later pairs of a group, with what the first has left of the reference.
#pragma once
#include "frame.h"

#define SSIM_THREADS 128  // each walks down a column
#define SSIM_STAGE 4      // rows in shared memory at a time
#define SSIM_WINDOW 11
#define SSIM_BOX_TILE_H 4
// So many blocks of `map` have to fit a multiprocessor; some targets would spend all registers on less. For one side, and
// for two.
#if defined(HV_NV)
  #define SSIM_BOUNDS1 SSIM_THREADS, 4
  #define SSIM_BOUNDS2 SSIM_THREADS, 3
#else
  #define SSIM_BOUNDS1 SSIM_THREADS
  #define SSIM_BOUNDS2 SSIM_THREADS
#endif

#define SSIM_DISTORTED 0
#define SSIM_REFERENCE 1

// A sample of the distorted picture, and of the reference, in the range of 8 bits.
template <int SIDES> struct alignas(4 * SIDES) SsimSample {
  float of[SIDES];
};

// What a window has of the reference: its mean and that of its squares.
struct alignas(8) SsimMoments {
  float mean, square;
};
HV_SIZE(SsimMoments, 8);
HV_OFFSET(SsimMoments, mean, 0);
HV_OFFSET(SsimMoments, square, 4);

// Decimated pictures.
using SsimPlanes = HvPlanesOf<float>;

namespace ssim {

// Luma of the frame pair.
template <class T> struct Samples {
  static constexpr bool NEGATIVE = false;
  HvPlane reference, distorted;
  uint32_t bits;
  float unit;
  HV_MEMBER Samples(const HvFrame *frame, uint32_t bits)
      : reference(frame->reference[0]),
        distorted(frame->distorted[0]),
        bits(bits),
        unit(1.0f / (float)(1u << (bits - 8))) {}
  HV_MEMBER float sample(const HvPlane &plane, int x, int y) const {
    const uint8_t *at = plane.data + (uint64_t)y * plane.stride + (uint32_t)x * sizeof(T);
    const float v = (float)hv_sample<T>(at, plane.shift, bits);
    return sizeof(T) == 1 ? v : v * unit;
  }
  template <int SIDES> HV_MEMBER SsimSample<SIDES> read(int x, int y) const {
    SsimSample<SIDES> s;
    s.of[SSIM_DISTORTED] = sample(distorted, x, y);
    if constexpr (SIDES == 2) s.of[SSIM_REFERENCE] = sample(reference, x, y);
    return s;
  }
};

template <> struct Samples<float> {
  // The low pass has negative taps.
  static constexpr bool NEGATIVE = true;
  SsimPlanes planes;
  HV_MEMBER explicit Samples(const SsimPlanes &planes) : planes(planes) {}
  template <int SIDES> HV_MEMBER SsimSample<SIDES> read(int x, int y) const {
    const uint64_t at = (uint64_t)y * planes.stride + (uint32_t)x;
    SsimSample<SIDES> s;
    s.of[SSIM_DISTORTED] = planes.distorted[at];
    if constexpr (SIDES == 2) s.of[SSIM_REFERENCE] = planes.reference[at];
    return s;
  }
};

template <int SIDES> HV_DEV void write(const SsimPlanes &to, int x, int y, const double v[SIDES]) {
  const uint64_t at = (uint64_t)y * to.stride + (uint32_t)x;
  to.distorted[at] = (float)v[SSIM_DISTORTED];
  if constexpr (SIDES == 2) to.reference[at] = (float)v[SSIM_REFERENCE];
}

HV_DEV int mirror(int i, int n) {
  i = i < 0 ? -1 - i : i;
  return i < n ? i : hv_max(2 * n - 1 - i, 0);
}

HV_DEV uint64_t bits_of(double v) { return __builtin_bit_cast(uint64_t, v); }

// `v`, which is not negative, in double precision: the bits moved by two operations of integers, where a conversion takes as
// long as eight. What is less than 2^-126, zero too, becomes something less than 2^-125. That is lost in each sum with
// anything that comes from a sample, and where all samples are zero, in those with the constants of `terms_of`.
HV_DEV double widen_positive(float v) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, v);
  return __builtin_bit_cast(double, (uint64_t)((bits >> 3) + 0x38000000) << 32 | bits << 29);
}

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

// What the window is for: the distorted picture, its squares and its product with the reference; then the reference and its
// squares. Part of the conversions by `widen_positive` keeps both of the units busy that can do them.
HV_DEV double widen(int quantity, float v) { return quantity == 1 || quantity == 4 ? widen_positive(v) : (double)v; }

// The first N of these after a row of the window whose first sample is `at`.
template <int N> HV_DEV void window_row(const SsimSample<2> *at, const float taps[6], float row[N]) {
  double sums[N] = {};
#pragma unroll
  for (int k = 0; k < SSIM_WINDOW; k++) {
    const float distorted = at[k].of[SSIM_DISTORTED], reference = at[k].of[SSIM_REFERENCE];
    const float values[] = {distorted, distorted * distorted, reference * distorted, reference, reference * reference};
#pragma unroll
    for (int i = 0; i < N; i++) sums[i] += widen(i, values[i] * taps[k < 6 ? k : 10 - k]);
  }
#pragma unroll
  for (int i = 0; i < N; i++) row[i] = (float)sums[i];
}

// SSIM, and its luminance, contrast and structure terms, of one place of the window.
HV_DEV void terms_of(const float filtered[3], const SsimMoments &reference, double terms[4]) {
  constexpr float c1 = (0.01f * 255.0f) * (0.01f * 255.0f), c2 = (0.03f * 255.0f) * (0.03f * 255.0f);
  constexpr float c3 = c2 / 2.0f;
  const float m1 = reference.mean, m2 = filtered[0];
  const float variance1 = hv_max(reference.square - m1 * m1, 0.0f), variance2 = hv_max(filtered[1] - m2 * m2, 0.0f);
  const float difference = filtered[2] - m1 * m2, deviations = hv_sqrt_f32(variance1 * variance2);
  const double luminance =
      ((2.0 * (double)m1) * (double)m2 + (double)c1) / (double)((m1 * m1 + m2 * m2) + c1);
  const double contrast = (2.0 * (double)deviations + (double)c2) / (double)((variance1 + variance2) + c2);
  const bool flat = (difference < 0.0f) & (deviations <= 0.0f);
  const float covariance = flat ? 0.0f : difference;
  const double structure = (double)((covariance + c3) / (deviations + c3));
  terms[0] = (luminance * contrast) * structure;
  terms[1] = luminance, terms[2] = contrast, terms[3] = structure;
}

// The moments of the reference are kept for the later pairs, if there are any: `kept` may be null.
template <int SIDES, class S>
HV_DEV void map(const S source, int width, int height, int rows, double bias, SsimMoments *kept, uint64_t *totals) {
  constexpr float taps[] = {0.001028f, 0.007599f, 0.036001f, 0.109361f, 0.213006f, 0.266012f};
  constexpr int columns = SSIM_THREADS + SSIM_WINDOW - 1, n = 1 + 2 * SIDES;
  // Double buffered: one barrier for each stage.
  __shared__ SsimSample<2> staged[2][SSIM_STAGE][columns];
  const int x0 = (int)blockIdx.x * SSIM_THREADS, y0 = (int)blockIdx.y * rows;
  const int needed = hv_min(rows, height - (SSIM_WINDOW - 1) - y0) + SSIM_WINDOW - 1;
  const int places = width - (SSIM_WINDOW - 1);
  const bool inside = x0 + (int)threadIdx.x < places;

  // A thread takes samples of its column to shared memory, and the first ones also of those on the right.
  const int edge = (int)threadIdx.x % (SSIM_WINDOW - 1) + SSIM_THREADS, edge_row = (int)threadIdx.x / (SSIM_WINDOW - 1);
  const auto sample = [&](int column, int row) {
    return source.template read<2>(hv_min(x0 + column, width - 1), hv_min(y0 + row, height - 1));
  };

  // The windows that the rows so far belong to, by how many rows each still lacks.
  double begun[n][SSIM_WINDOW - 1] = {};
  uint64_t sums[4] = {};
  for (int first = 0, turn = 0; first < needed; first += SSIM_STAGE, turn ^= 1) {
#pragma unroll
    for (int r = 0; r < SSIM_STAGE; r++) staged[turn][r][threadIdx.x] = sample((int)threadIdx.x, first + r);
    if (edge_row < SSIM_STAGE) staged[turn][edge_row][edge] = sample(edge, first + edge_row);
    __syncthreads();
    for (int r = 0; r < SSIM_STAGE && first + r < needed; r++) {
      float row[n], filtered[n];
      window_row<n>(staged[turn][r] + threadIdx.x, taps, row);
#pragma unroll
      for (int i = 0; i < n; i++) {
        double products[6];
#pragma unroll
        for (int k = 0; k < 6; k++) products[k] = widen(i, row[i] * taps[k]);
        filtered[i] = (float)(begun[i][SSIM_WINDOW - 2] + products[0]);
#pragma unroll
        for (int k = SSIM_WINDOW - 2; k > 0; k--) begun[i][k] = begun[i][k - 1] + products[k < 6 ? k : 10 - k];
        begun[i][0] = products[0];
      }
      if (first + r < SSIM_WINDOW - 1 || !inside) continue;
      SsimMoments reference;
      const uint64_t place =
          (uint64_t)(y0 + first + r - (SSIM_WINDOW - 1)) * (uint32_t)places + (uint32_t)x0 + threadIdx.x;
      if constexpr (SIDES == 2) {
        reference = {filtered[3], filtered[4]};
        if (kept) kept[place] = reference;
      } else {
        reference = kept[place];
      }
      double terms[4];
      terms_of(filtered, reference, terms);
#pragma unroll
      for (int i = 0; i < 4; i++) sums[i] += bits_of(terms[i] + bias);
    }
  }
  add_to_all(totals, sums);
}

// The low pass at every other sample, with `rows` of the result for a block.
template <int SIDES, class S>
HV_DEV void low_pass(const S source, int width, int height, int rows, const SsimPlanes out) {
  // Columns 0-8 of rows 0-4; rows 5-8 are 3-0.
  constexpr float taps[5][9] = {
      {0.000714f, -0.000450f, -0.002090f, 0.007132f, 0.016114f, 0.007132f, -0.002090f, -0.000450f, 0.000714f},
      {-0.000450f, 0.000283f, 0.001316f, -0.004490f, -0.010146f, -0.004490f, 0.001316f, 0.000283f, -0.000450f},
      {-0.002090f, 0.001316f, 0.006115f, -0.020867f, -0.047149f, -0.020867f, 0.006115f, 0.001316f, -0.002090f},
      {0.007132f, -0.004490f, -0.020867f, 0.071207f, 0.160885f, 0.071207f, -0.020867f, -0.004490f, 0.007132f},
      {0.016114f, -0.010146f, -0.047149f, 0.160885f, 0.363505f, 0.160885f, -0.047149f, -0.010146f, 0.016114f}};
  constexpr int columns = SSIM_THREADS + 4;
  // Even and odd columns from -4 on apart, so that neighbours read neighbours.
  __shared__ SsimSample<SIDES> staged[2][SSIM_STAGE][2][columns];
  const int to_width = (width + 1) / 2, to_height = (height + 1) / 2;
  const int x = (int)blockIdx.x * SSIM_THREADS + (int)threadIdx.x, y0 = (int)blockIdx.y * rows;
  const int needed = 2 * hv_min(rows, to_height - y0) + 7;
  const int edge = (int)threadIdx.x % 8 + 2 * SSIM_THREADS, edge_row = (int)threadIdx.x / 8;
  // Those products that are outermost in a column are converted as in `widen`.
  const auto widen_outer = [](float v, float tap) {
    if constexpr (S::NEGATIVE) return (double)(v * tap);
    else return tap < 0 ? -widen_positive(v * -tap) : widen_positive(v * tap);
  };

  // The results that the rows so far belong to: those that have had two rows, four, six and eight.
  double begun[SIDES][4] = {};
  for (int first = 0, turn = 0; first < needed; first += SSIM_STAGE, turn ^= 1) {
    const auto stage = [&](int column, int row) {
      const int left = 2 * (int)blockIdx.x * SSIM_THREADS - 4 + column, top = 2 * y0 - 4 + first + row;
      staged[turn][row][column % 2][column / 2] = source.template read<SIDES>(mirror(left, width), mirror(top, height));
    };
#pragma unroll
    for (int r = 0; r < SSIM_STAGE; r++) stage((int)threadIdx.x, r), stage((int)threadIdx.x + SSIM_THREADS, r);
    if (edge_row < SSIM_STAGE) stage(edge, edge_row);
    __syncthreads();
#pragma unroll 2
    for (int r = 0; r < SSIM_STAGE; r++) {
      double done[SIDES], next[SIDES][4];
#pragma unroll
      for (int side = 0; side < SIDES; side++) {
        done[side] = begun[side][3];
#pragma unroll
        for (int k = 0; k < 4; k++) next[side][k] = r % 2 ? begun[side][k] : k ? begun[side][k - 1] : 0;
      }
#pragma unroll
      for (int u = 0; u < 9; u++) {
        const SsimSample<SIDES> s = staged[turn][r][u % 2][threadIdx.x + u / 2];
#pragma unroll
        for (int side = 0; side < SIDES; side++) {
          if (r % 2) {  // rows 1, 3, 5 and 7 of the filter
            const double outer = widen_outer(s.of[side], taps[1][u]), inner = (double)(s.of[side] * taps[3][u]);
            next[side][0] += outer, next[side][1] += inner, next[side][2] += inner, next[side][3] += outer;
          } else {  // rows 0, 2, 4, 6 and 8
            const double outer = widen_outer(s.of[side], taps[0][u]), inner = (double)(s.of[side] * taps[2][u]);
            next[side][0] += outer, next[side][1] += inner;
            next[side][2] += (double)(s.of[side] * taps[4][u]);
            next[side][3] += inner, done[side] += outer;
          }
        }
      }
#pragma unroll
      for (int side = 0; side < SIDES; side++)
#pragma unroll
        for (int k = 0; k < 4; k++) begun[side][k] = next[side][k];
      const int row = first + r - 8;
      if (r % 2 == 0 && row >= 0 && first + r < needed && x < to_width) write<SIDES>(out, x, y0 + row / 2, done);
    }
  }
}

// Means of `factor` x `factor` samples. Doubles hold their sums exactly.
template <int SIDES, class S>
HV_DEV void box(const S source, int width, int height, int factor, int to_width, int to_height, const SsimPlanes out) {
  const int x = (int)(blockIdx.x * 32 + threadIdx.x % 32);
  const int y = (int)(blockIdx.y * SSIM_BOX_TILE_H + threadIdx.x / 32);
  if (x >= to_width || y >= to_height) return;
  const float weight = 1.0f / (float)(factor * factor);
  double sums[SIDES] = {};
  for (int v = 0; v < factor; v++)
    for (int u = 0; u < factor; u++) {
      const SsimSample<SIDES> s = source.template read<SIDES>(mirror(x * factor + u - factor / 2, width),
                                                              mirror(y * factor + v - factor / 2, height));
#pragma unroll
      for (int side = 0; side < SIDES; side++) sums[side] += (double)(s.of[side] * weight);
    }
  write<SIDES>(out, x, y, sums);
}

}  // namespace ssim
