// SPDX-License-Identifier: MPL-2.0
//
// Structural similarity: the window and its statistics, and the decimations before them. Every product is rounded to
// single precision and added to a double in the order of the taps; so do `crates/engine/src/backend/cpu/ssim.rs` and
// libvmaf.
// Formulas and constants are those of libvmaf 3.2.0's float_ssim and float_ms_ssim (BSD-2-Clause-Patent).
//
// Blocks of decimations take one picture. SIDES tells what windows filter: 2, the distorted picture and the reference;
// 1, the distorted picture alone, for the later pairs of a group, with what the first has left of the reference.
#pragma once
#include "frame.h"

#define SSIM_WINDOW 11
#define SSIM_TILE 32   // rows and columns that a block of the window has in shared memory at a time
#define SSIM_PITCH 43  // of a row there, with the samples that its last places need: odd, so that rows differ in banks
#define SSIM_MAP_THREADS(sides) (SSIM_TILE * (1 + 2 * (sides)))
#define SSIM_THREADS 128  // of a block of the low pass, each for a column, and of the means
#define SSIM_STAGE (SSIM_THREADS / 32)  // rows of the low pass in shared memory at a time
#define SSIM_BOX_TILE_H 4
// So many blocks of `map` have to fit a multiprocessor; some targets would spend all registers on less. For one side,
// and for two.
#if defined(HV_NV)
  #define SSIM_BOUNDS1 SSIM_MAP_THREADS(1), 8
  #define SSIM_BOUNDS2 SSIM_MAP_THREADS(2), 5
#else
  #define SSIM_BOUNDS1 SSIM_MAP_THREADS(1)
  #define SSIM_BOUNDS2 SSIM_MAP_THREADS(2)
#endif

// The order of the pictures in the grids of the decimations: the later pairs of a group are through after the first.
#define SSIM_DISTORTED 0
#define SSIM_REFERENCE 1

#define SSIM_PAIRS 8  // at most so many picture pairs in a launch of the window

// What a window has of the reference: its mean and that of its squares.
struct alignas(8) SsimMoments {
  float mean, square;
};
HV_SIZE(SsimMoments, 8);
HV_OFFSET(SsimMoments, mean, 0);
HV_OFFSET(SsimMoments, square, 4);

// Decimated pictures.
using SsimPlanes = HvPlanesOf<float>;

// A picture pair for the window.
struct SsimPair {
  SsimPlanes planes;      // null where it is luma of the frame
  SsimMoments *kept;      // room for (width-10) x (height-10), or null if no pair follows
  uint64_t *sums;         // four
  double bias;            // added to each term; see `crates/engine/src/metrics/fixed.rs`
  int32_t width, height;  // samples, at least 11
  int32_t rows;           // places that a block walks down
  uint32_t columns;       // blocks side by side: ceil((width-10)/32)
  uint32_t first;         // number of the first of its blocks, or more than there are in the launch
};
HV_SIZE(SsimPair, 72);
HV_OFFSET(SsimPair, planes, 0);
HV_OFFSET(SsimPair, kept, 24);
HV_OFFSET(SsimPair, sums, 32);
HV_OFFSET(SsimPair, bias, 40);
HV_OFFSET(SsimPair, width, 48);
HV_OFFSET(SsimPair, height, 52);
HV_OFFSET(SsimPair, rows, 56);
HV_OFFSET(SsimPair, columns, 60);
HV_OFFSET(SsimPair, first, 64);

// Those of one launch, whose blocks follow each other.
struct SsimPairs {
  SsimPair at[SSIM_PAIRS];
};
HV_SIZE(SsimPairs, 576);
HV_OFFSET(SsimPairs, at, 0);

namespace ssim {

// The samples of a picture: where they lie as `Stored`, and what they are in the range of 8 bits. These are those of
// luma.
template <class T> struct Samples {
  using Stored = uint32_t;
  static constexpr bool NEGATIVE = false;
  HvPlane plane;
  uint32_t bits;
  float unit;
  HV_MEMBER Samples(const HvFrame *frame, int picture, uint32_t bits)
      : plane(picture == SSIM_REFERENCE ? frame->reference[0] : frame->distorted[0]),
        bits(bits),
        unit(1.0f / (float)(1u << (bits - 8))) {}
  HV_MEMBER Stored load(int x, int y) const {
    return hv_ldg((const T *)(plane.data + (uint64_t)(uint32_t)y * plane.stride) + (uint32_t)x);
  }
  HV_MEMBER float value(Stored stored) const {
    const float v = (float)hv_number<T>(stored, plane.shift, bits);
    return sizeof(T) == 1 ? v : v * unit;
  }
  HV_MEMBER float read(int x, int y) const { return value(load(x, y)); }
};

HV_DEV float *plane(const SsimPlanes &planes, int picture) {
  return picture == SSIM_REFERENCE ? planes.reference : planes.distorted;
}

template <> struct Samples<float> {
  using Stored = float;
  // The low pass has negative taps.
  static constexpr bool NEGATIVE = true;
  const float *data;
  uint32_t stride;
  HV_MEMBER Samples(const SsimPlanes &planes, int picture) : data(plane(planes, picture)), stride(planes.stride) {}
  HV_MEMBER Stored load(int x, int y) const { return data[(uint32_t)y * stride + (uint32_t)x]; }
  HV_MEMBER float value(Stored stored) const { return stored; }
  HV_MEMBER float read(int x, int y) const { return load(x, y); }
};

HV_DEV void write(const SsimPlanes &to, int picture, int x, int y, float v) {
  plane(to, picture)[(uint64_t)(uint32_t)y * to.stride + (uint32_t)x] = v;
}

HV_DEV int mirror(int i, int n) {
  const int after_first = (int)hv_min((uint32_t)i, ~(uint32_t)i);  // -1 - i for what is negative
  return hv_max(hv_min(after_first, 2 * n - 1 - after_first), 0);
}

HV_DEV uint64_t bits_of(double v) { return __builtin_bit_cast(uint64_t, v); }

// Adds to each of four totals the sum over the block. A block need not end with a whole wave of 64, so the sums are of
// 32 threads.
template <int THREADS> HV_DEV void add_to_all(uint64_t *totals, const uint64_t v[4]) {
  constexpr int parts = THREADS / 32;
  __shared__ uint64_t shared[parts][4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint64_t sum = v[i];
    for (uint32_t m = 16; m; m >>= 1) sum += hv_shfl_xor_u64(sum, m);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32][i] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= 4) return;
  uint64_t sum = 0;
  for (int i = 0; i < parts; i++) sum += shared[i][threadIdx.x];
  hv_atomic_add_u64(totals + threadIdx.x, sum);
}

// ---- doubles for sums ----------------------------------------------------------------------
// The filters add doubles that are 2^-896 times what they stand for: these are the bits of a float that is not
// negative, moved to the left by 29. That is one operation of integers, a multiplication on NVIDIA, where a conversion
// takes as long as eight. It takes one more where floats may be negative: these leave copies of the sign behind, and
// only the first remains. Additions round as they would, and to come back, sums get 896 more in the exponent. A sum of
// zeros comes back as 2^-127. That is lost in each sum with anything that comes from a sample, and where all samples
// are zero, in those with the constants of `terms_of`.
template <bool NEGATIVE> HV_DEV double scale_down(float v, [[maybe_unused]] bool shifted) {
#if defined(HV_NV)
  double r;
  if (NEGATIVE) {
    // As 64 bits it would be two operations more.
    asm("{.reg .b32 low, high;\n\t"
        ".reg .b64 moved;\n\t"
        "mul.wide.s32 moved, %1, 0x20000000;\n\t"
        "mov.b64 {low, high}, moved;\n\t"
        "and.b32 high, high, 0x8fffffff;\n\t"
        "mov.b64 %0, {low, high};}" : "=d"(r) : "r"(__builtin_bit_cast(uint32_t, v)));
    return r;
  }
  if (shifted) {
    asm("{.reg .b32 low, high;\n\t"
        "shl.b32 low, %1, 29;\n\t"
        "shr.u32 high, %1, 3;\n\t"
        "mov.b64 %0, {low, high};}" : "=d"(r) : "r"(__builtin_bit_cast(uint32_t, v)));
    return r;
  }
#else
  if (NEGATIVE) {
    const auto moved = (uint64_t)((int64_t)__builtin_bit_cast(int32_t, v) * (1 << 29));
    return __builtin_bit_cast(double, moved & ~(7ull << 60));
  }
#endif
  return __builtin_bit_cast(double, (uint64_t)__builtin_bit_cast(uint32_t, v) << 29);
}
// Which products with a tap of the window, and with a row of the low pass, are shifted in place of multiplied on
// NVIDIA, so that both of the units are busy that can do it.
constexpr bool window_shifts(int tap) { return tap >= 4; }
constexpr bool low_pass_shifts(int row) { return row < 1; }
HV_DEV float scale_up(double v) {
  constexpr uint32_t up = 896u << 20;
#if defined(HV_NV)
  // As 64 bits it would be two additions.
  double r;
  asm("{.reg .b32 low, high;\n\t"
      "mov.b64 {low, high}, %1;\n\t"
      "add.u32 high, high, %2;\n\t"
      "mov.b64 %0, {low, high};}" : "=d"(r) : "d"(v), "n"(up));
  return (float)r;
#else
  return (float)__builtin_bit_cast(double, bits_of(v) + ((uint64_t)up << 32));
#endif
}

// ---- the window ----------------------------------------------------------------------------
// A thread filters one quantity, the distorted picture, say, or its squares. It walks along a row and keeps all windows
// that are begun, so that each sample is multiplied with six taps, not eleven. When the threads of a quantity are
// through with the rows of a tile, they walk down its columns in the same way, from tile to tile. Results take the
// place of samples.

// The windows that the samples so far belong to, by how many they have had less one, get the next sample, which is
// number `from` to `to` of those of interest. Returns the one that has had all, if `to` is the last number.
template <bool NEGATIVE> HV_DEV float advance(double begun[SSIM_WINDOW - 1], float v, int from, int to) {
  constexpr float taps[] = {0.001028f, 0.007599f, 0.036001f, 0.109361f, 0.213006f, 0.266012f};
  constexpr int last = SSIM_WINDOW - 1;
  double products[6];
#pragma unroll
  for (int k = 0; k < 6; k++) products[k] = scale_down<NEGATIVE>(v * taps[k], window_shifts(k));
  const double done = to == last ? begun[last - 1] + products[0] : 0;
#pragma unroll
  for (int k = last - 1; k > 0; k--)
    if (from <= k && k <= to) begun[k] = begun[k - 1] + products[k < 6 ? k : last - k];
  if (from == 0) begun[0] = products[0];
  return scale_up(done);
}

// The windows that begin in a row. At its ends only those are of interest that are wholly there.
template <bool NEGATIVE> HV_DEV void across(float *row) {
  constexpr int reach = SSIM_WINDOW - 1;
  double begun[reach] = {};
#pragma unroll
  for (int x = 0; x < reach; x++) advance<NEGATIVE>(begun, row[x], 0, x);
#pragma unroll 2
  for (int x = reach; x < SSIM_TILE; x++) row[x - reach] = advance<NEGATIVE>(begun, row[x], 0, reach);
#pragma unroll
  for (int x = SSIM_TILE; x < SSIM_TILE + reach; x++)
    row[x - reach] = advance<NEGATIVE>(begun, row[x], x - SSIM_TILE + 1, reach);
}

// The windows that end in a column.
template <bool NEGATIVE> HV_DEV void down(double begun[SSIM_WINDOW - 1], float *column) {
#pragma unroll 4
  for (int y = 0; y < SSIM_TILE; y++) {
    float &at = column[y * SSIM_PITCH];
    at = advance<NEGATIVE>(begun, at, 0, SSIM_WINDOW - 1);
  }
}

// ---- statistics ----------------------------------------------------------------------------
// a / b, correctly rounded, for any b of ordinary size. The reciprocal in single precision is wrong by 2^-22, the one
// after it by 2^-44, and the last quotient before its rounding by 2^-88. b has 24 bits: as the quotient of that and 53
// bits, nothing comes closer than 2^-78 to the middle between two doubles.
HV_DEV double divide(double a, float b) {
  const double divisor = (double)b, first = (double)hv_rcp_f32(b);
  const double reciprocal = __builtin_fma(__builtin_fma(-divisor, first, 1.0), first, first);
  const double quotient = a * reciprocal;
  return __builtin_fma(__builtin_fma(-divisor, quotient, a), reciprocal, quotient);
}

// The same in single precision: the compilers' sequence without the scaling that only extreme exponents need.
HV_DEV float divide(float a, float b) {
  const float first = hv_rcp_f32(b), reciprocal = __builtin_fmaf(__builtin_fmaf(-b, first, 1.0f), first, first);
  float quotient = a * reciprocal;
  quotient = __builtin_fmaf(__builtin_fmaf(-b, quotient, a), reciprocal, quotient);
  return __builtin_fmaf(__builtin_fmaf(-b, quotient, a), reciprocal, quotient);
}

// The square root of `v`, at least 2^-100, correctly rounded: likewise.
HV_DEV float root(float v) {
#if defined(HV_NV)
  float reciprocal;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(v));
  const float first = v * reciprocal;
  return __builtin_fmaf(__builtin_fmaf(-first, first, v), reciprocal * 0.5f, first);
#else
  return hv_sqrt_f32(v);
#endif
}

// SSIM, and its luminance, contrast and structure terms, of one place of the window.
HV_DEV void terms_of(const float filtered[3], const SsimMoments &reference, double terms[4]) {
  constexpr float c1 = (0.01f * 255.0f) * (0.01f * 255.0f), c2 = (0.03f * 255.0f) * (0.03f * 255.0f);
  constexpr float c3 = c2 / 2.0f;
  const float m1 = reference.mean, m2 = filtered[0], square1 = m1 * m1, square2 = m2 * m2;
  const float variance1 = hv_max(reference.square - square1, 0.0f), variance2 = hv_max(filtered[1] - square2, 0.0f);
  const float difference = filtered[2] - m1 * m2, product = variance1 * variance2;
  // Less than 2^-50 would be lost in both of the sums with it.
  const float deviations = root(hv_max(product, 0x1p-100f));
  // Doubles hold products of floats exactly.
  const double luminance = divide(__builtin_fma((double)(m1 + m1), (double)m2, (double)c1), (square1 + square2) + c1);
  const double contrast = divide(__builtin_fma((double)deviations, 2.0, (double)c2), (variance1 + variance2) + c2);
  const bool flat = (difference < 0.0f) & (product <= 0.0f);
  const float covariance = flat ? 0.0f : difference;
  const double structure = (double)divide(covariance + c3, deviations + c3);
  terms[0] = (luminance * contrast) * structure;
  terms[1] = luminance, terms[2] = contrast, terms[3] = structure;
}

template <int count> struct Count { static constexpr int value = count; };

// The statistics of a tile are two rows for 32 threads at a time, whatever the quantity that they filtered: in one alone
// each step of a quotient waits for the one before. The moments of the reference are kept for the later pairs, if there
// are any.
template <int SIDES, class T> HV_DEV void map(const HvFrame *frame, uint32_t bits, const SsimPairs &pairs) {
  constexpr int n = 1 + 2 * SIDES, reach = SSIM_WINDOW - 1, columns = SSIM_TILE + reach;
  constexpr int threads = SSIM_MAP_THREADS(SIDES), rows_at_once = threads / columns;
  constexpr int turns = (SSIM_TILE + rows_at_once - 1) / rows_at_once;
  // The distorted picture, its squares and its product with the reference; then the reference and its squares. Some
  // last rows may be there only so that all threads take equally many.
  __shared__ float tile[n][turns * rows_at_once][SSIM_PITCH];
  __shared__ uint32_t negative;  // whether a sample of the strip so far was
  // No loop that ends at the pair: a copy of all would be made for it on NVIDIA.
  int index = 0;
#pragma unroll
  for (int i = 1; i < SSIM_PAIRS; i++) index += blockIdx.x >= pairs.at[i].first;
  const SsimPair &pair = pairs.at[index];
  const uint32_t block = blockIdx.x - pair.first;
  const int width = pair.width, height = pair.height, rows = pair.rows;
  const int x0 = (int)(block % pair.columns) * SSIM_TILE, y0 = (int)(block / pair.columns) * rows;
  const int places = width - reach;
  const int needed = hv_min(rows, height - reach - y0) + reach;
  const int lane = (int)threadIdx.x % SSIM_TILE, quantity = (int)threadIdx.x / SSIM_TILE;
  const int column = (int)threadIdx.x % columns, row = (int)threadIdx.x / columns;
  const int x = hv_min(x0 + column, width - 1);
  if (threadIdx.x == 0) negative = 0;
  __syncthreads();

  double begun[reach] = {};
  uint64_t sums[4] = {};
  for (int first = 0; first < needed; first += SSIM_TILE) {
    uint32_t signs = 0;
    const auto stage = [&](const auto distorted_picture, const auto reference_picture) {
#pragma unroll
      for (int i = 0; i < turns; i++) {
        const int r = row + i * rows_at_once, y = hv_min(y0 + first + r, height - 1);
        const float distorted = distorted_picture.read(x, y), reference = reference_picture.read(x, y);
        const float values[] = {distorted, distorted * distorted, reference * distorted, reference,
                                reference * reference};
#pragma unroll
        for (int k = 0; k < n; k++) tile[k][r][column] = values[k];
        signs |= __builtin_bit_cast(uint32_t, distorted) | __builtin_bit_cast(uint32_t, reference);
      }
    };
    if (row < rows_at_once) {
      if (pair.planes.distorted)
        stage(Samples<float>(pair.planes, SSIM_DISTORTED), Samples<float>(pair.planes, SSIM_REFERENCE));
      else
        stage(Samples<T>(frame, SSIM_DISTORTED, bits), Samples<T>(frame, SSIM_REFERENCE, bits));
    }
    if (signs >> 31) hv_atomic_max_u32(&negative, 1);
    __syncthreads();
    if (negative) {
      across<true>(tile[quantity][lane]);
      hv_sync_wave();
      down<true>(begun, tile[quantity][0] + lane);
    } else {
      across<false>(tile[quantity][lane]);
      hv_sync_wave();
      down<false>(begun, tile[quantity][0] + lane);
    }
    __syncthreads();
    const int from = hv_max(reach - first, 0), to = hv_min(needed - first, SSIM_TILE);
    const auto statistics = [&](const auto count, int r) {
      constexpr int some = decltype(count)::value;
      double terms[some][4];
#pragma unroll
      for (int j = 0; j < some; j++) {
        const int at = r + j * n;
        const float filtered[] = {tile[0][at][lane], tile[1][at][lane], tile[2][at][lane]};
        const uint64_t place = (uint64_t)(y0 + first + at - reach) * (uint32_t)places + (uint32_t)(x0 + lane);
        SsimMoments reference;
        if constexpr (SIDES == 2) {
          reference = {tile[3][at][lane], tile[4][at][lane]};
          if (pair.kept) pair.kept[place] = reference;
        } else {
          reference = pair.kept[place];
        }
        terms_of(filtered, reference, terms[j]);
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < some; j++) sums[i] += bits_of(terms[j][i] + pair.bias);
    };
    if (x0 + lane < places) {
      int r = from + quantity;
#pragma unroll 1
      for (; r + n < to; r += 2 * n) statistics(Count<2>(), r);
      if (r < to) statistics(Count<1>(), r);
    }
    __syncthreads();
  }
  add_to_all<threads>(pair.sums, sums);
}

// ---- decimations ---------------------------------------------------------------------------
// A row of the low pass: number 1, 3, 5 or 7 of the filter for one result each, or 0, 2, 4, 6 or 8. `at` has the even
// columns and the odd ones apart. `begun` are the results that the rows so far belong to: those that have had two rows,
// four, six and eight. Returns the one that has had all.
template <bool NEGATIVE, int COLUMNS>
HV_DEV double low_pass_row(const float (&at)[2][COLUMNS], bool odd, double begun[4]) {
  // Columns 0-8 of rows 0-4; rows 5-8 are 3-0.
  constexpr float taps[5][9] = {
      {0.000714f, -0.000450f, -0.002090f, 0.007132f, 0.016114f, 0.007132f, -0.002090f, -0.000450f, 0.000714f},
      {-0.000450f, 0.000283f, 0.001316f, -0.004490f, -0.010146f, -0.004490f, 0.001316f, 0.000283f, -0.000450f},
      {-0.002090f, 0.001316f, 0.006115f, -0.020867f, -0.047149f, -0.020867f, 0.006115f, 0.001316f, -0.002090f},
      {0.007132f, -0.004490f, -0.020867f, 0.071207f, 0.160885f, 0.071207f, -0.020867f, -0.004490f, 0.007132f},
      {0.016114f, -0.010146f, -0.047149f, 0.160885f, 0.363505f, 0.160885f, -0.047149f, -0.010146f, 0.016114f}};
  const auto product = [&](float v, int row, int u) {
    const float tap = taps[row][u];
    const bool shifted = low_pass_shifts(row);
    return NEGATIVE || tap > 0 ? scale_down<NEGATIVE>(v * tap, shifted) : -scale_down<NEGATIVE>(v * -tap, shifted);
  };
  double done = begun[3], next[4];
#pragma unroll
  for (int k = 0; k < 4; k++) next[k] = odd ? begun[k] : k ? begun[k - 1] : 0;
#pragma unroll
  for (int u = 0; u < 9; u++) {
    const float v = at[u % 2][threadIdx.x + u / 2];
    if (odd) {
      const double outer = product(v, 1, u), inner = product(v, 3, u);
      next[0] += outer, next[1] += inner, next[2] += inner, next[3] += outer;
    } else {
      const double outer = product(v, 0, u), inner = product(v, 2, u);
      next[0] += outer, next[1] += inner, next[2] += product(v, 4, u), next[3] += inner, done += outer;
    }
  }
#pragma unroll
  for (int k = 0; k < 4; k++) begun[k] = next[k];
  return done;
}

// What a block of a decimation is for: one of the pictures, which lie side by side in the grid, from column `x0` on.
struct Part {
  int picture, x0;
};
HV_DEV Part part(int width, int tile) {
  const int columns = (width + tile - 1) / tile, column = (int)blockIdx.x;
  if (column < columns) return {SSIM_DISTORTED, column * tile};
  return {SSIM_REFERENCE, (column - columns) * tile};
}

// The low pass at every other sample of a picture, with `rows` of the result for a block.
template <class S>
HV_DEV void low_pass(const S source, const Part part, int width, int height, int rows, const SsimPlanes &out) {
  // Even and odd columns from -4 on apart, so that neighbours read neighbours, and half of the banks apart, so that
  // they write to different ones.
  constexpr int pitch = SSIM_THREADS + 16;
  __shared__ float staged[2][SSIM_STAGE][2][pitch];
  __shared__ uint32_t negative[2];  // whether a sample so far was of those that came to either place
  const int to_width = (width + 1) / 2, to_height = (height + 1) / 2;
  const int x = part.x0 + (int)threadIdx.x, y0 = (int)blockIdx.y * rows, left = 2 * part.x0 - 4, top = 2 * y0 - 4;
  const int needed = 2 * hv_min(rows, to_height - y0) + 7;
  // 32 threads take a row of a stage, and eight of them one sample more than the others.
  constexpr int turns = 2 * SSIM_THREADS / 32 + 1;
  const int lane = (int)threadIdx.x % 32, row_of_stage = (int)threadIdx.x / 32;
  int from[turns];
#pragma unroll
  for (int i = 0; i < turns; i++) from[i] = mirror(left + lane + 32 * i, width);
  if constexpr (S::NEGATIVE) {
    if (threadIdx.x < 2) negative[threadIdx.x] = 0;
    __syncthreads();
  }

  // The samples of a stage are on their way while those of the one before are worked on.
  typename S::Stored ahead[turns];
  const auto load = [&](int first) {
    const int y = mirror(top + first + row_of_stage, height);
#pragma unroll
    for (int i = 0; i < turns; i++) ahead[i] = source.load(from[i], y);
  };
  load(0);
  double begun[4] = {};
  for (int first = 0, turn = 0; first < needed; first += SSIM_STAGE, turn ^= 1) {
    uint32_t signs = 0;
#pragma unroll
    for (int i = 0; i < turns; i++) {
      const float v = source.value(ahead[i]);
      if (i < turns - 1 || lane < 8) staged[turn][row_of_stage][lane % 2][lane / 2 + 16 * i] = v;
      signs |= __builtin_bit_cast(uint32_t, v);
    }
    if (S::NEGATIVE && signs >> 31) hv_atomic_max_u32(&negative[turn], 1);
    __syncthreads();
    if (first + SSIM_STAGE < needed) load(first + SSIM_STAGE);
#pragma unroll 2
    for (int r = 0; r < SSIM_STAGE; r++) {
      const double done = S::NEGATIVE && negative[turn] ? low_pass_row<true>(staged[turn][r], r % 2, begun)
                                                        : low_pass_row<false>(staged[turn][r], r % 2, begun);
      const int row = first + r - 8;
      if (r % 2 || row < 0 || first + r >= needed || x >= to_width) continue;
      write(out, part.picture, x, y0 + row / 2, scale_up(done));
    }
  }
}

// Means of `factor` x `factor` samples of a picture. Doubles hold their sums exactly.
template <class S>
HV_DEV void box(const S source, const Part part, int width, int height, int factor, int to_width, int to_height,
                const SsimPlanes &out) {
  const int x = part.x0 + (int)threadIdx.x % 32;
  const int y = (int)(blockIdx.y * SSIM_BOX_TILE_H + threadIdx.x / 32);
  if (x >= to_width || y >= to_height) return;
  const float weight = 1.0f / (float)(factor * factor);
  double sum = 0;
  for (int v = 0; v < factor; v++)
    for (int u = 0; u < factor; u++) {
      const int column = mirror(x * factor + u - factor / 2, width), row = mirror(y * factor + v - factor / 2, height);
      sum += (double)(source.read(column, row) * weight);
    }
  write(out, part.picture, x, y, (float)sum);
}

}  // namespace ssim
