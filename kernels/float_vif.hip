// SPDX-License-Identifier: MPL-2.0
//
// Visual information fidelity in single precision. All floating point operations are those of
// `crates/engine/src/backend/cpu/float_vif.rs` and of libvmaf's plain C code, in the same order.
// Formulas and constants are those of libvmaf 3.2.0's float_vif (BSD-2-Clause-Patent).
//
// The smaller scales are made first, one after another. Then each block takes a strip of a scale, eight rows high, from left
// to right: it filters 128 columns vertically, filters the result across, computes a numerator and a denominator for each
// place, and adds those of a row in order. `ordered.hip` adds the sums of the rows.
#include "single.h"

#define FLOAT_VIF_THREADS 128
#define FLOAT_VIF_SCALES 4
#define FLOAT_VIF_TAPS 17      // of the longest filter
#define FLOAT_VIF_ROWS 8       // of a strip
#define FLOAT_VIF_COLUMNS 128  // of a strip at a time
#define FLOAT_VIF_BEFORE 16    // columns before these that the filter across reads as well
#define FLOAT_VIF_STRIDE 148   // of rows with these columns, so that eight threads read different banks, each four numbers
#define FLOAT_VIF_TERMS 132    // the same for the terms of a row
#define FLOAT_VIF_GROUP 8      // columns that a thread filters across
#define FLOAT_VIF_SMALL_COLUMNS 60  // of a smaller scale in a block: with the reach of the filter 127 columns of the larger one
#define FLOAT_VIF_SMALL_ROWS 8
#define FLOAT_VIF_EPSILON 1.0e-10f

// The order of the pictures in the grids for smaller scales. Later pairs of a group end after the first picture.
#define FLOAT_VIF_DISTORTED 0
#define FLOAT_VIF_REFERENCE 1

using FloatVifPlanes = HvPlanesOf<const float>;

// One scale of a picture pair.
struct FloatVifScale {
  FloatVifPlanes planes;  // null for luma of the frame
  float *rows;            // `height` numerators of rows, then as many denominators
  int32_t width, height;
};
HV_SIZE(FloatVifScale, 40);
HV_OFFSET(FloatVifScale, planes, 0);
HV_OFFSET(FloatVifScale, rows, 24);
HV_OFFSET(FloatVifScale, width, 32);
HV_OFFSET(FloatVifScale, height, 36);

// The parameters of the strips of all scales.
struct FloatVifStrips {
  FloatVifScale scales[FLOAT_VIF_SCALES];
  uint32_t first[FLOAT_VIF_SCALES];  // number of the first block of each scale
  float taps[FLOAT_VIF_SCALES][FLOAT_VIF_TAPS];
  float gain_limit, flat_factor;
  float noise_limit;  // the smallest single that is not less than the noise
  float inverse;      // of the noise, if products with it are exact; else 0
  uint32_t unused;
  double noise;
};
HV_SIZE(FloatVifStrips, 480);
HV_OFFSET(FloatVifStrips, scales, 0);
HV_OFFSET(FloatVifStrips, first, 160);
HV_OFFSET(FloatVifStrips, taps, 176);
HV_OFFSET(FloatVifStrips, gain_limit, 448);
HV_OFFSET(FloatVifStrips, flat_factor, 452);
HV_OFFSET(FloatVifStrips, noise_limit, 456);
HV_OFFSET(FloatVifStrips, inverse, 460);
HV_OFFSET(FloatVifStrips, unused, 464);
HV_OFFSET(FloatVifStrips, noise, 472);

// The parameters of a smaller scale.
struct FloatVifHalving {
  FloatVifPlanes from;  // null for luma of the frame
  HvPlanesOf<float> to;
  int32_t width, height;  // of the larger scale
  float taps[FLOAT_VIF_TAPS];
  uint32_t unused;
};
HV_SIZE(FloatVifHalving, 128);
HV_OFFSET(FloatVifHalving, from, 0);
HV_OFFSET(FloatVifHalving, to, 24);
HV_OFFSET(FloatVifHalving, width, 48);
HV_OFFSET(FloatVifHalving, height, 52);
HV_OFFSET(FloatVifHalving, taps, 56);
HV_OFFSET(FloatVifHalving, unused, 124);

namespace float_vif {

struct alignas(16) Four { float v[4]; };

// Luma as singles in the range of 8 bits, less 128.
template <class T> struct Samples {
  HvPlane plane;
  uint32_t bits;
  float unit;
  HV_MEMBER Samples(const HvPlane &plane, uint32_t bits)
      : plane(plane), bits(bits), unit(1.0f / (float)(1 << (bits - 8))) {}
  HV_MEMBER float at(int x, int y) const {
    const uint8_t *row = plane.data + (uint64_t)y * plane.stride;
    return hv_centred<T>((const uint8_t *)((const T *)row + x), plane.shift, bits, unit);
  }
};

// A smaller scale.
struct Singles {
  const float *data;
  uint32_t stride;
  HV_MEMBER Singles(const float *data, uint32_t stride) : data(data), stride(stride) {}
  HV_MEMBER float at(int x, int y) const {
    return __builtin_bit_cast(float, hv_ldg((const uint32_t *)data + (uint64_t)y * stride + x));
  }
};

// Means and mean squares of the reference, those of the distorted picture, and mean products, after the vertical filter.
struct alignas(16) Strip {
  float filtered[5][FLOAT_VIF_ROWS][FLOAT_VIF_STRIDE];
  float terms[2][FLOAT_VIF_ROWS][FLOAT_VIF_TERMS];
};

// Filters a column of a strip vertically.
template <int REACH, class S>
HV_DEV void down(const S &reference, const S &distorted, const float *taps, int x, int top, int height, Strip &strip,
                 int place) {
  float sums[5][FLOAT_VIF_ROWS];
#pragma unroll
  for (int i = 0; i < FLOAT_VIF_ROWS + 2 * REACH; i++) {
    const int y = hv_mirror(top - REACH + i, height);
    const float a = reference.at(x, y), b = distorted.at(x, y);
    const float values[5] = {a, a * a, b, b * b, a * b};
#pragma unroll
    for (int row = 0; row < FLOAT_VIF_ROWS; row++) {
      const int k = i - row;
      if (k < 0 || k > 2 * REACH) continue;
#pragma unroll
      for (int q = 0; q < 5; q++) {
        const float product = taps[k] * values[q];
        sums[q][row] = k == 0 ? product : sums[q][row] + product;
      }
    }
  }
#pragma unroll
  for (int q = 0; q < 5; q++)
#pragma unroll
    for (int row = 0; row < FLOAT_VIF_ROWS; row++) strip.filtered[q][row][place] = sums[q][row];
}

// Filters eight columns of a row across.
template <int REACH> HV_DEV void across(const float *row, const float *taps, float (&sums)[FLOAT_VIF_GROUP]) {
  // Reads begin at a multiple of four numbers.
  constexpr int skipped = (FLOAT_VIF_BEFORE - 2 * REACH) % 4, count = skipped + FLOAT_VIF_GROUP + 2 * REACH;
  float values[(count + 3) / 4 * 4];
#pragma unroll
  for (int i = 0; i < (count + 3) / 4; i++) {
    const Four four = *(const Four *)(row + FLOAT_VIF_BEFORE - 2 * REACH - skipped + 4 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) values[4 * i + j] = four.v[j];
  }
#pragma unroll
  for (int k = 0; k <= 2 * REACH; k++)
#pragma unroll
    for (int i = 0; i < FLOAT_VIF_GROUP; i++) {
      const float product = taps[k] * values[skipped + i + k];
      sums[i] = k == 0 ? product : sums[i] + product;
    }
}

// The logarithm of a number from 1 on; that of infinity is 128, that of no number what CPUs have.
HV_DEV float log2(float x) {
  const uint32_t bits = x != x ? 0x7fc00000u : __builtin_bit_cast(uint32_t, x);
  const float exponent = (float)((int)(bits >> 23 & 255) - 127);
  const float rest = __builtin_bit_cast(float, (bits & 0x7fffff) | 0x3f800000u) - 1.0f;
  float log = -0.012671635276421f;
  log = log * rest + 0.064841182402670f;
  log = log * rest + -0.157048836463065f;
  log = log * rest + 0.257167726303123f;
  log = log * rest + -0.353800560300520f;
  log = log * rest + 0.480131410397451f;
  log = log * rest + -0.721314327952201f;
  log = log * rest + 1.442694803896991f;
  return exponent + log * rest;
}

// The numerator and the denominator of a place with these means.
HV_DEV void terms(const FloatVifStrips &given, float mean1, float square1, float mean2, float square2, float product,
                  float &num, float &den) {
  float variance1 = hv_max(square1 - mean1 * mean1, 0.0f);
  const float variance2 = hv_max(square2 - mean2 * mean2, 0.0f);
  const float covariance = product - mean1 * mean2;
  float gain = hv_quotient_f32(covariance, variance1 + FLOAT_VIF_EPSILON);
  float rest = variance2 - gain * covariance;
  if (variance1 < FLOAT_VIF_EPSILON) gain = 0.0f, rest = variance2, variance1 = 0.0f;
  if (variance2 < FLOAT_VIF_EPSILON) gain = 0.0f, rest = 0.0f;
  if (gain < 0.0f) gain = 0.0f, rest = variance2;
  rest = hv_max(rest, FLOAT_VIF_EPSILON);
  gain = hv_min(gain, given.gain_limit);
  if (variance1 < given.noise_limit) {
    num = 1.0f - variance2 * given.flat_factor;
    den = 1.0f;
    return;
  }
  const double kept = (double)(gain * gain * variance1) / ((double)rest + given.noise);
  num = covariance < 0.0f ? 0.0f : log2((float)(1.0 + kept));
  // The sum of 1 and a single is the same in both precisions, once it is rounded to single precision.
  den = log2(given.inverse != 0.0f ? 1.0f + variance1 * given.inverse : (float)(1.0 + (double)variance1 / given.noise));
}

// Adds up the terms of the rows of a strip.
template <int REACH, class S>
HV_DEV void strip(const S &reference, const S &distorted, const FloatVifStrips &given, int scale, Strip &shared) {
  const FloatVifScale &at = given.scales[scale];
  const float *taps = given.taps[scale];
  const int t = (int)threadIdx.x, width = at.width, height = at.height;
  const int top = (int)(blockIdx.x - given.first[scale]) * FLOAT_VIF_ROWS;
  const int row = t % FLOAT_VIF_ROWS, group = t / FLOAT_VIF_ROWS * FLOAT_VIF_GROUP;
  float sum = 0;  // of the first 16 threads: of the numerators of a row, or of the denominators
  for (int left = 0; left < width + REACH; left += FLOAT_VIF_COLUMNS) {
    down<REACH>(reference, distorted, taps, hv_mirror(left + t, width), top, height, shared, FLOAT_VIF_BEFORE + t);
    __syncthreads();
    if (left == 0) {
      for (int i = t; i < 5 * FLOAT_VIF_ROWS * REACH; i += FLOAT_VIF_THREADS) {
        float *of = shared.filtered[i / (FLOAT_VIF_ROWS * REACH)][i / REACH % FLOAT_VIF_ROWS] + FLOAT_VIF_BEFORE;
        of[-1 - i % REACH] = of[1 + i % REACH];
      }
      __syncthreads();
    }
    float means[5][FLOAT_VIF_GROUP];
#pragma unroll
    for (int q = 0; q < 5; q++) across<REACH>(shared.filtered[q][row] + group, taps, means[q]);
    // Columns that the next step reads again.
    float again[5 * FLOAT_VIF_ROWS * FLOAT_VIF_BEFORE / FLOAT_VIF_THREADS];
#pragma unroll
    for (int q = 0; q < 5; q++)
      again[q] = shared.filtered[q][t / FLOAT_VIF_BEFORE][FLOAT_VIF_COLUMNS + t % FLOAT_VIF_BEFORE];
#pragma unroll
    for (int part = 0; part < FLOAT_VIF_GROUP; part += 4) {
      Four nums, dens;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int j = part + i, x = left - REACH + group + j;
        terms(given, means[0][j], means[1][j], means[2][j], means[3][j], means[4][j], nums.v[i], dens.v[i]);
        if (x < 0 || x >= width) nums.v[i] = dens.v[i] = 0.0f;  // which changes no sum
      }
      *(Four *)(shared.terms[0][row] + group + part) = nums;
      *(Four *)(shared.terms[1][row] + group + part) = dens;
    }
    __syncthreads();
#pragma unroll
    for (int q = 0; q < 5; q++) shared.filtered[q][t / FLOAT_VIF_BEFORE][t % FLOAT_VIF_BEFORE] = again[q];
    if (t < 2 * FLOAT_VIF_ROWS) {
      const Four *fours = (const Four *)shared.terms[t / FLOAT_VIF_ROWS][row];
#pragma unroll 4
      for (int i = 0; i < FLOAT_VIF_COLUMNS / 4; i++) {
        const Four four = fours[i];
#pragma unroll
        for (int j = 0; j < 4; j++) sum += four.v[j];
      }
    }
  }
  if (t < 2 * FLOAT_VIF_ROWS && top + row < height) at.rows[t / FLOAT_VIF_ROWS * height + top + row] = sum;
}

template <int REACH> HV_DEV void strip_of_singles(const FloatVifStrips &given, int scale, Strip &shared) {
  const FloatVifPlanes &planes = given.scales[scale].planes;
  const Singles reference(planes.reference, planes.stride), distorted(planes.distorted, planes.stride);
  strip<REACH>(reference, distorted, given, scale, shared);
}

template <class T>
HV_DEV void strips(const HvFrame *frame, uint32_t bits, const FloatVifStrips &given, Strip &shared) {
  const uint32_t block = blockIdx.x;
  if (block < given.first[1])
    strip<8>(Samples<T>(frame->reference[0], bits), Samples<T>(frame->distorted[0], bits), given, 0, shared);
  else if (block < given.first[2]) strip_of_singles<4>(given, 1, shared);
  else if (block < given.first[3]) strip_of_singles<2>(given, 2, shared);
  else strip_of_singles<1>(given, 3, shared);
}

// Columns of a picture after the vertical filter at every other row.
using Halved = float[FLOAT_VIF_SMALL_ROWS][FLOAT_VIF_THREADS];

// Blocks in a row of a smaller scale.
HV_DEV int small_tiles(const FloatVifHalving &given) {
  return (given.width / 2 + FLOAT_VIF_SMALL_COLUMNS - 1) / FLOAT_VIF_SMALL_COLUMNS;
}
HV_DEV bool is_reference(const FloatVifHalving &given) {
  return (int)blockIdx.x / small_tiles(given) == FLOAT_VIF_REFERENCE;
}

// Filters a picture, and keeps every other column of every other row.
template <int REACH, class S>
HV_DEV void halve(const S &source, const FloatVifHalving &given, float *to, Halved &shared) {
  const int width = given.width / 2, height = given.height / 2, t = (int)threadIdx.x;
  const int left = (int)blockIdx.x % small_tiles(given) * FLOAT_VIF_SMALL_COLUMNS;
  const int top = (int)blockIdx.y * FLOAT_VIF_SMALL_ROWS, x = hv_mirror(2 * left - REACH + t, given.width);
  float sums[FLOAT_VIF_SMALL_ROWS];
#pragma unroll
  for (int i = 0; i < 2 * FLOAT_VIF_SMALL_ROWS - 1 + 2 * REACH; i++) {
    const float value = source.at(x, hv_mirror(2 * top - REACH + i, given.height));
#pragma unroll
    for (int row = 0; row < FLOAT_VIF_SMALL_ROWS; row++) {
      const int k = i - 2 * row;
      if (k < 0 || k > 2 * REACH) continue;
      const float product = given.taps[k] * value;
      sums[row] = k == 0 ? product : sums[row] + product;
    }
  }
#pragma unroll
  for (int row = 0; row < FLOAT_VIF_SMALL_ROWS; row++) shared[row][t] = sums[row];
  __syncthreads();
  for (int i = t; i < FLOAT_VIF_SMALL_ROWS * FLOAT_VIF_SMALL_COLUMNS; i += FLOAT_VIF_THREADS) {
    const int row = i / FLOAT_VIF_SMALL_COLUMNS, column = i % FLOAT_VIF_SMALL_COLUMNS;
    if (left + column >= width || top + row >= height) continue;
    float sum = given.taps[0] * shared[row][2 * column];
#pragma unroll
    for (int k = 1; k <= 2 * REACH; k++) sum += given.taps[k] * shared[row][2 * column + k];
    to[(uint64_t)(top + row) * given.to.stride + left + column] = sum;
  }
}

template <class T>
HV_DEV void halve_luma(const HvFrame *frame, uint32_t bits, const FloatVifHalving &given, Halved &shared) {
  const bool reference = is_reference(given);
  const HvPlane &from = reference ? frame->reference[0] : frame->distorted[0];
  halve<4>(Samples<T>(from, bits), given, reference ? given.to.reference : given.to.distorted, shared);
}

template <int REACH> HV_DEV void halve_singles(const FloatVifHalving &given, Halved &shared) {
  const bool reference = is_reference(given);
  const Singles from(reference ? given.from.reference : given.from.distorted, given.from.stride);
  halve<REACH>(from, given, reference ? given.to.reference : given.to.distorted, shared);
}

}  // namespace float_vif

// The next smaller scale. Block 128 threads, a tile of 60 x 8 of it; grid (ceil(width / 60) for each picture,
// ceil(height / 8)). The distorted picture comes first; the reference follows if the grid has twice the columns.
#define FLOAT_VIF_HALVE_LUMA(name, T)                                                                           \
  HV_KERNEL(FLOAT_VIF_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, FloatVifHalving given) { \
    __shared__ float_vif::Halved shared;                                                                        \
    float_vif::halve_luma<T>(frame, bits, given, shared);                                                       \
  }                                                                                                             \
  HV_EXPORT(name)
#define FLOAT_VIF_HALVE(name, reach)                          \
  HV_KERNEL(FLOAT_VIF_THREADS, name)(FloatVifHalving given) { \
    __shared__ float_vif::Halved shared;                      \
    float_vif::halve_singles<reach>(given, shared);           \
  }                                                           \
  HV_EXPORT(name)

FLOAT_VIF_HALVE_LUMA(float_vif_halve_u8, uint8_t)
FLOAT_VIF_HALVE_LUMA(float_vif_halve_u16, uint16_t)
FLOAT_VIF_HALVE(float_vif_quarter, 2)
FLOAT_VIF_HALVE(float_vif_eighth, 1)

// The sums of the rows of all scales. Block 128 threads, a strip of eight rows; grid: the strips of all scales.
#define FLOAT_VIF_STRIPS(name, T)                                                                              \
  HV_KERNEL(FLOAT_VIF_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, FloatVifStrips given) { \
    __shared__ float_vif::Strip shared;                                                                        \
    float_vif::strips<T>(frame, bits, given, shared);                                                          \
  }                                                                                                            \
  HV_EXPORT(name)

FLOAT_VIF_STRIPS(float_vif_strips_u8, uint8_t)
FLOAT_VIF_STRIPS(float_vif_strips_u16, uint16_t)
