// SPDX-License-Identifier: MPL-2.0
//
// Structural similarity: the window and its statistics, and the decimations before them. Every product is rounded to
// single precision and added to a double in the order of the taps, as in `crates/engine/src/backend/cpu/ssim.rs` and in
// libvmaf, or in another where that makes no difference.
// Formulas and constants are those of libvmaf 3.2.0's float_ssim and float_ms_ssim (BSD-2-Clause-Patent).
//
// A block of a decimation processes one picture. SIDES is the number of pictures that windows filter: 2, the distorted
// picture and the reference; 1, the distorted picture alone, for later pairs of a group, which use the data of the
// reference that the first pair has kept.
#pragma once
#include "frame.h"

#define SSIM_WINDOW 11
#define SSIM_TILE 32   // rows and columns that a block of the window has in shared memory at a time
#define SSIM_PITCH 44  // samples of a row there, with those that its last places need, and two more: groups of four
#define SSIM_MAP_THREADS(sides) (SSIM_TILE * (1 + 2 * (sides)))
#define SSIM_THREADS 128  // of a block of the low pass, each for a column, and of the means
#define SSIM_LOW_PASS_COLUMNS (SSIM_THREADS - 4)  // results of a block of the low pass side by side
#define SSIM_STAGE (SSIM_THREADS / 32)  // rows of the low pass in shared memory at a time, if it has an order
#define SSIM_BOX_TILE_H 4
// Blocks that have to fit a multiprocessor, as some targets would otherwise use all registers for fewer: those of `map`,
// for one side and for two, and those of the low pass of decimated pictures.
#if defined(HV_NV)
  #define SSIM_BOUNDS1 SSIM_MAP_THREADS(1), 8
  #define SSIM_BOUNDS2 SSIM_MAP_THREADS(2), 4
  #define SSIM_LOW_PASS_BOUNDS SSIM_THREADS, 5
#else
  #define SSIM_BOUNDS1 SSIM_MAP_THREADS(1)
  #define SSIM_BOUNDS2 SSIM_MAP_THREADS(2)
  #define SSIM_LOW_PASS_BOUNDS SSIM_THREADS
#endif

// The order of the pictures in the grids of the decimations. Later pairs of a group end after the first picture.
#define SSIM_DISTORTED 0
#define SSIM_REFERENCE 1

#define SSIM_PAIRS 8  // at most so many picture pairs in a launch of the window

// The data of the reference in a window: its mean and that of its squares.
struct alignas(8) SsimMoments {
  float mean, square;
};
HV_SIZE(SsimMoments, 8);
HV_OFFSET(SsimMoments, mean, 0);
HV_OFFSET(SsimMoments, square, 4);

// Decimated pictures. Rows begin at multiples of 16 bytes and are whole groups of four samples: those past the end of the
// picture are like others, but of no meaning.
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
  uint32_t all_terms;     // 0 if the sums of SSIM and luminance are not read: they stay 0
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
HV_OFFSET(SsimPair, all_terms, 68);

// The picture pairs of one launch, whose blocks follow each other.
struct SsimPairs {
  SsimPair at[SSIM_PAIRS];
};
HV_SIZE(SsimPairs, 576);
HV_OFFSET(SsimPairs, at, 0);

namespace ssim {

// Four samples side by side, from a multiple of 16 bytes on.
struct alignas(16) Four { float v[4]; };

// The samples of a picture: where they lie as `Stored`, and what they are in the range of 8 bits. These are those of
// luma.
template <class T> struct Samples {
  using Stored = uint32_t;
  static constexpr bool ORDINARY = true;
  HvPlane plane;
  uint32_t bits;
  float unit;
  HV_MEMBER Samples(const HvFrame *frame, int picture, uint32_t bits)
      : plane(picture == SSIM_REFERENCE ? frame->reference[0] : frame->distorted[0]),
        bits(bits),
        unit(1.0f / (float)(1u << (bits - 8))) {}
  HV_MEMBER const T *at(int x, int y) const {
    return hv_at((const T *)plane.data, (uint32_t)x, (uint32_t)y, plane.stride);
  }
  HV_MEMBER Stored load(int x, int y) const { return hv_ldg(at(x, y)); }
  HV_MEMBER float value(Stored stored) const {
    const float v = (float)hv_number<T>(stored, plane.shift, bits);
    return sizeof(T) == 1 ? v : v * unit;
  }
  HV_MEMBER float read(int x, int y) const { return value(load(x, y)); }
  HV_MEMBER Four read_four(int x, int y) const {
    Four four;
    if constexpr (sizeof(T) == 1) {
      const uint32_t bytes = hv_ldg((const uint32_t *)at(x, y));
#pragma unroll
      for (int i = 0; i < 4; i++) four.v[i] = hv_float_of_byte(bytes, i);
    } else {
      const HvU32x2 words = hv_ldg((const HvU32x2 *)at(x, y));
#pragma unroll
      for (int i = 0; i < 4; i++) four.v[i] = value(words.v[i / 2] >> 16 * (i % 2) & 0xffff);
    }
    return four;
  }
};

HV_DEV float *plane(const SsimPlanes &planes, int picture) {
  return picture == SSIM_REFERENCE ? planes.reference : planes.distorted;
}

template <> struct Samples<float> {
  using Stored = float;
  // The low pass has negative taps.
  static constexpr bool ORDINARY = false;
  const float *data;
  uint32_t stride;  // in bytes
  HV_MEMBER Samples(const SsimPlanes &planes, int picture)
      : data(plane(planes, picture)), stride(planes.stride * (uint32_t)sizeof(float)) {}
  HV_MEMBER const float *at(int x, int y) const { return hv_at(data, (uint32_t)x, (uint32_t)y, stride); }
  HV_MEMBER Stored load(int x, int y) const { return *at(x, y); }
  HV_MEMBER float value(Stored stored) const { return stored; }
  HV_MEMBER float read(int x, int y) const { return load(x, y); }
  HV_MEMBER Four read_four(int x, int y) const { return *(const Four *)at(x, y); }
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

// ---- doubles -------------------------------------------------------------------------------
// Converts a float to a double. On NVIDIA's GPUs, a conversion takes as long as seven other operations, and much longer on
// those without fast f64. Two integer operations have the same result: they move the bits to their places and correct the
// exponent. If all threads wait for these, some floats are better `converted` by units that are idle meanwhile.
//
// The integer operations are for ORDINARY floats: those from 2^-126 on, and 0, which becomes 2^-127.
template <bool ORDINARY> HV_DEV double widen(float v, [[maybe_unused]] bool converted) {
  if (!ORDINARY) return (double)v;
  constexpr uint32_t exponent = 896u << 20;
#if defined(HV_NV)
  if (HV_F64_FAST && converted) return (double)v;
  // With 64 bits it would be one more operation.
  double r;
  asm("{.reg .b32 low, high;\n\t"
      "shl.b32 low, %1, 29;\n\t"
      "shr.u32 high, %1, 3;\n\t"
      "add.u32 high, high, %2;\n\t"
      "mov.b64 %0, {low, high};}" : "=d"(r) : "r"(__builtin_bit_cast(uint32_t, v)), "n"(exponent));
  return r;
#else
  const uint64_t moved = (uint64_t)__builtin_bit_cast(uint32_t, v) << 29;
  return __builtin_bit_cast(double, moved + ((uint64_t)exponent << 32));
#endif
}
// Chooses the products with a tap of the window, and of the low pass, that are converted.
constexpr bool window_converts(int tap) { return tap >= 4; }
constexpr bool low_pass_converts(int row, int column) { return (row + column) % 3 == 0; }

// Samples of decimated pictures from here on have products with taps, and their squares have, that are ordinary floats.
//
// So have those of luma, although they may be 0: the 2^-127 in place of a product with 0 is lost in each sum with
// another product, which is at least 2^-36 in the window and 2^-20 in the low pass. Sums of nothing else, and those
// that would be 0, are below 2^-120. They are lost in the sums with the constants of `terms_of`.
#define SSIM_ORDINARY 0x1p-30f

// The smallest of some samples, compared as integers, for which all negative ones come before the others.
struct Least {
  int32_t bits = 0x7fffffff;
  HV_MEMBER void add(float v) { bits = hv_min(bits, __builtin_bit_cast(int32_t, v)); }
  HV_MEMBER bool from(float least) const { return bits >= __builtin_bit_cast(int32_t, least); }
};

// ---- the window ----------------------------------------------------------------------------
// A thread filters one quantity, the distorted picture, say, or its squares. It walks along a row and keeps all windows
// that are begun, so that each sample is multiplied with six taps, not eleven. When the threads of a quantity are
// through with the rows of a tile, they walk down its columns in the same way, from tile to tile. Results take the
// place of samples.

// The windows that the samples so far belong to, by how many they have had less one, get the next sample, which is
// number `from` to `to` of those of interest. Returns the one that has had all, if `to` is the last number.
template <bool ORDINARY> HV_DEV float advance(double begun[SSIM_WINDOW - 1], float v, int from, int to) {
  constexpr float taps[] = {0.001028f, 0.007599f, 0.036001f, 0.109361f, 0.213006f, 0.266012f};
  constexpr int last = SSIM_WINDOW - 1;
  double products[6];
#pragma unroll
  for (int k = 0; k < 6; k++) products[k] = widen<ORDINARY>(v * taps[k], window_converts(k));
  const double done = to == last ? begun[last - 1] + products[0] : 0;
#pragma unroll
  for (int k = last - 1; k > 0; k--)
    if (from <= k && k <= to) begun[k] = begun[k - 1] + products[k < 6 ? k : last - k];
  if (from == 0) begun[0] = products[0];
  return (float)done;
}

#define SSIM_AHEAD 2  // columns before the result of the first window in a row

// The windows that begin in a row. At its ends only those are of interest that are wholly there. Results lie two columns
// after the samples that their windows begin with, so that the windows that four samples complete are such a group as
// well. Rows are an odd number of groups apart: neighbours read from different banks.
template <bool ORDINARY> HV_DEV void across(float *row) {
  constexpr int reach = SSIM_WINDOW - 1;
  Four *groups = (Four *)row;
  double begun[reach] = {};
#pragma unroll
  for (int g = 0; g < 3; g++) {
    Four at = groups[g];
#pragma unroll
    for (int i = 0; i < 4; i++) at.v[i] = advance<ORDINARY>(begun, at.v[i], 0, hv_min(4 * g + i, reach));
    if (g == 2) groups[g - 2] = at;
  }
#pragma unroll 1
  for (int g = 3; g < 8; g++) {
    Four at = groups[g];
#pragma unroll
    for (int i = 0; i < 4; i++) at.v[i] = advance<ORDINARY>(begun, at.v[i], 0, reach);
    groups[g - 2] = at;
  }
#pragma unroll
  for (int g = 8; g < 11; g++) {
    Four at = groups[g];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int past = 4 * g + i - (SSIM_TILE - 1);
      if (past <= reach) at.v[i] = advance<ORDINARY>(begun, at.v[i], hv_max(past, 0), reach);
    }
    groups[g - 2] = at;
  }
}

// The windows that end in a column.
template <bool ORDINARY> HV_DEV void down(double begun[SSIM_WINDOW - 1], float *column) {
#pragma unroll 4
  for (int y = 0; y < SSIM_TILE; y++) {
    float &at = column[y * SSIM_PITCH];
    at = advance<ORDINARY>(begun, at, 0, SSIM_WINDOW - 1);
  }
}

// ---- statistics ----------------------------------------------------------------------------
// a / b, correctly rounded, for any b of ordinary size above 0. The reciprocal in single precision is wrong by 2^-22,
// the one after it by 2^-44, and the last quotient before its rounding by 2^-88. b has 24 bits: as the quotient of that
// and 53 bits, nothing comes closer than 2^-78 to the middle between two doubles.
HV_DEV double divide(double a, float b) {
  const double divisor = widen<true>(b, false), first = widen<true>(hv_rcp_f32(b), true);
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

// The number of terms of one position of the window: structure and contrast; if `all`, also luminance and SSIM.
constexpr int terms(bool all) { return all ? 4 : 2; }
template <bool ALL>
HV_DEV void terms_of(const float filtered[3], const SsimMoments &reference, double to[terms(ALL)]) {
  constexpr float c1 = (0.01f * 255.0f) * (0.01f * 255.0f), c2 = (0.03f * 255.0f) * (0.03f * 255.0f);
  constexpr float c3 = c2 / 2.0f;
  const float m1 = reference.mean, m2 = filtered[0], square1 = m1 * m1, square2 = m2 * m2;
  const float variance1 = hv_max(reference.square - square1, 0.0f), variance2 = hv_max(filtered[1] - square2, 0.0f);
  const float difference = filtered[2] - m1 * m2, product = variance1 * variance2;
  // Less than 2^-50 would be lost in both sums with it.
  const float deviations = root(hv_max(product, 0x1p-100f));
  const bool flat = (difference < 0.0f) & (product <= 0.0f);
  const float covariance = flat ? 0.0f : difference;
  to[0] = (double)divide(covariance + c3, deviations + c3);
  to[1] = divide(__builtin_fma(widen<true>(deviations, true), 2.0, (double)c2), (variance1 + variance2) + c2);
  if constexpr (ALL) {
    // Doubles hold products of floats exactly.
    to[2] = divide(__builtin_fma((double)(m1 + m1), (double)m2, (double)c1), (square1 + square2) + c1);
    to[3] = (to[2] * to[1]) * to[0];
  }
}

template <auto VALUE> struct Constant { static constexpr auto value = VALUE; };

// The statistics of a tile are two rows for 32 threads at a time, whatever the quantity that they filtered: in one alone
// each step of a quotient waits for the one before. The moments of the reference are kept for the later pairs, if there
// are any.
template <int SIDES, class T> HV_DEV void map(const HvFrame *frame, uint32_t bits, const SsimPairs &pairs) {
  constexpr int n = 1 + 2 * SIDES, reach = SSIM_WINDOW - 1, threads = SSIM_MAP_THREADS(SIDES);
  constexpr int groups = SSIM_TILE * SSIM_PITCH / 4;  // of four samples in a tile
  // The distorted picture, its squares and its product with the reference; then the reference and its squares.
  alignas(16) __shared__ float tile[n][SSIM_TILE][SSIM_PITCH];
  __shared__ uint32_t extraordinary[2];  // 1 if a sample of this tile is, and of the next
  // Not a loop that ends at the pair: for that, the compiler makes a copy of all pairs on NVIDIA.
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
  if (threadIdx.x < 2) extraordinary[threadIdx.x] = 0;
  __syncthreads();

  double begun[reach] = {};
  uint64_t sums[4] = {};
  for (int first = 0, turn = 0; first < needed; first += SSIM_TILE, turn ^= 1) {
    const auto stage = [&](const auto distorted_picture, const auto reference_picture) {
      Least least;
      const auto put = [&](int group) {
        const int r = group / (SSIM_PITCH / 4), column = group % (SSIM_PITCH / 4) * 4;
        const int x = hv_min(x0 + column, (width - 1) & ~3), y = hv_min(y0 + first + r, height - 1);
        const Four distorted = distorted_picture.read_four(x, y), reference = reference_picture.read_four(x, y);
        Four values[5];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float d = distorted.v[i], v = reference.v[i];
          const float products[] = {d, d * d, v * d, v, v * v};
#pragma unroll
          for (int k = 0; k < 5; k++) values[k].v[i] = products[k];
          least.add(d), least.add(v);
        }
#pragma unroll
        for (int k = 0; k < n; k++) ((Four *)tile[k])[group] = values[k];
      };
#pragma unroll
      for (int i = 0; i < groups / threads; i++) put((int)threadIdx.x + i * threads);
      if (threadIdx.x < groups % threads) put((int)threadIdx.x + groups / threads * threads);
      if (!distorted_picture.ORDINARY && !least.from(SSIM_ORDINARY)) hv_atomic_max_u32(&extraordinary[turn], 1);
    };
    if (pair.planes.distorted)
      stage(Samples<float>(pair.planes, SSIM_DISTORTED), Samples<float>(pair.planes, SSIM_REFERENCE));
    else
      stage(Samples<T>(frame, SSIM_DISTORTED, bits), Samples<T>(frame, SSIM_REFERENCE, bits));
    __syncthreads();
    if (threadIdx.x == 0) extraordinary[turn ^ 1] = 0;
    if (extraordinary[turn]) {
      across<false>(tile[quantity][lane]);
      hv_sync_wave();
      down<false>(begun, tile[quantity][0] + SSIM_AHEAD + lane);
    } else {
      across<true>(tile[quantity][lane]);
      hv_sync_wave();
      down<true>(begun, tile[quantity][0] + SSIM_AHEAD + lane);
    }
    __syncthreads();
    const int from = hv_max(reach - first, 0), to = hv_min(needed - first, SSIM_TILE);
    const auto kept_at = [&](int at) -> SsimMoments & {
      return pair.kept[(uint64_t)(y0 + first + at - reach) * (uint32_t)places + (uint32_t)(x0 + lane)];
    };
    const auto result = [&](int k, int at) { return tile[k][at][SSIM_AHEAD + lane]; };
    const auto reference_at = [&](int at) { return SsimMoments{result(n - 2, at), result(n - 1, at)}; };
    const auto statistics = [&](const auto all, const auto count, int r) {
      constexpr int some = decltype(count)::value, n_terms = terms(all.value);
      double found[some][n_terms];
#pragma unroll
      for (int j = 0; j < some; j++) {
        const int at = r + j * n;
        const float filtered[] = {result(0, at), result(1, at), result(2, at)};
        terms_of<all.value>(filtered, SIDES == 2 ? reference_at(at) : kept_at(at), found[j]);
      }
#pragma unroll
      for (int i = 0; i < n_terms; i++)
#pragma unroll
        for (int j = 0; j < some; j++) sums[3 - i] += bits_of(found[j][i] + pair.bias);
    };
    const auto all_statistics = [&](const auto all) {
      int r = from + quantity;
#pragma unroll 1
      for (; r + n < to; r += 2 * n) statistics(all, Constant<2>(), r);
      if (r < to) statistics(all, Constant<1>(), r);
    };
    if (x0 + lane < places) {
      if (SIDES == 2 && pair.kept)
        for (int r = from + quantity; r < to; r += n) kept_at(r) = reference_at(r);
      if (pair.all_terms) all_statistics(Constant<true>());
      else all_statistics(Constant<false>());
    }
    __syncthreads();
  }
  add_to_all<threads>(pair.sums, sums);
}

// ---- decimations ---------------------------------------------------------------------------
// The part of a block of a decimation: one of the pictures, which are side by side in the grid, from column `x0` on.
struct Part {
  int picture, x0;
};
HV_DEV Part part(int width, int tile) {
  const int columns = (width + tile - 1) / tile, column = (int)blockIdx.x;
  if (column < columns) return {SSIM_DISTORTED, column * tile};
  return {SSIM_REFERENCE, (column - columns) * tile};
}

// Columns 0-4 of rows 0-4 of the low pass; those beyond mirror them in either direction.
HV_DEV constexpr float low_pass_tap(int row, int column) {
  constexpr float taps[5][5] = {{0.000714f, -0.000450f, -0.002090f, 0.007132f, 0.016114f},
                                {-0.000450f, 0.000283f, 0.001316f, -0.004490f, -0.010146f},
                                {-0.002090f, 0.001316f, 0.006115f, -0.020867f, -0.047149f},
                                {0.007132f, -0.004490f, -0.020867f, 0.071207f, 0.160885f},
                                {0.016114f, -0.010146f, -0.047149f, 0.160885f, 0.363505f}};
  return taps[row][column < 5 ? column : 8 - column];
}

// The amount that a sample adds to a result for which it is in this row (0-4) and column (0-8) of the low pass.
template <bool ORDINARY> HV_DEV double low_pass_product(float v, int row, int column) {
  const float tap = low_pass_tap(row, column);
  const bool converted = low_pass_converts(row, column);
  return tap > 0 ? widen<ORDINARY>(v * tap, converted) : -widen<ORDINARY>(v * -tap, converted);
}

// ---- the low pass in any order --------------------------------------------------------------
// Sums of these products are exact in any order where no sample is small. Those of luma are multiples of 2^-8 at least,
// in the range of 8 bits, and the smallest tap is 2^-11.8, so that products, of 24 bits each, are multiples of 2^-43, and
// all sums are below 2^9: that takes 52 bits of the 53 that a double has. Decimated samples from SSIM_EXACT on have
// products that are multiples of 2^-40. What a low pass adds up is at most 1.91 times its largest sample, and the fourth
// is the last, so that all sums are below 256 * 1.91^4 < 2^12: 52 bits again.
//
// So each column is added up by itself, once for each tap that columns left and right of it have in common, and results
// are sums of columns: 48 additions instead of 81, of 25 products instead of 45.

#define SSIM_EXACT 0x1p-5f

// The sums of a column with one column of the low pass: those of results that have had two rows, four, six and eight.
struct ColumnSums {
  double begun[4] = {};
  // Adds an even row of samples. Returns the completed sum.
  HV_MEMBER double even_row(float v, int column) {
    const double outer = low_pass_product<true>(v, 0, column), inner = low_pass_product<true>(v, 2, column);
    const double done = begun[3] + outer;
    begun[3] = begun[2] + inner;
    begun[2] = begun[1] + low_pass_product<true>(v, 4, column);
    begun[1] = begun[0] + inner;
    begun[0] = outer;
    return done;
  }
  // Adds the odd row below.
  HV_MEMBER void odd_row(float v, int column) {
    const double outer = low_pass_product<true>(v, 1, column), inner = low_pass_product<true>(v, 3, column);
    begun[0] += outer, begun[1] += inner, begun[2] += inner, begun[3] += outer;
  }
};

// The inputs from other threads, for two steps: the sums of even columns with the outermost tap and the next but one, and
// of odd ones with the same.
using LowPassColumns = double[2][4][SSIM_THREADS];

// The low pass at every other sample, with `rows` of the result for a block. A thread has the two columns of a result; the
// first two and the last two threads are there for their columns only. Returns whether the samples of this thread were
// large enough.
template <class T>
HV_DEV bool low_pass_by_columns(const Samples<T> source, const Part part, int width, int height, int rows,
                                const SsimPlanes &out, LowPassColumns &shared) {
  constexpr int n = SSIM_THREADS;
  const int to_height = (height + 1) / 2;
  const int thread = (int)threadIdx.x, x = part.x0 + thread - 2, y0 = (int)blockIdx.y * rows;
  const int even = mirror(2 * x, width), odd = mirror(2 * x + 1, width), top = 2 * y0 - 4;
  const int end = hv_min(rows, to_height - y0) + 4;
  Least least;
  typename Samples<T>::Stored ahead[2][2][2];  // samples of two steps that are on their way
  const auto load = [&](int step, int turn) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int y = mirror(top + 2 * step + i, height);
      ahead[turn][i][0] = source.load(even, y), ahead[turn][i][1] = source.load(odd, y);
    }
  };
  load(0, 0);
  load(1, 1);
  ColumnSums columns[5];  // with column 0, 2, 4 of the low pass, of even samples, and with 1 and 3, of odd ones
  const auto two_rows = [&](int step, int turn) {
    float v[2][2];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int k = 0; k < 2; k++) {
        v[i][k] = source.value(ahead[turn][i][k]);
        if (!source.ORDINARY) least.add(v[i][k]);
      }
    load(step + 2, turn);
    double done[5];
#pragma unroll
    for (int k = 0; k < 5; k++) {
      done[k] = columns[k].even_row(v[0][k % 2], k);
      columns[k].odd_row(v[1][k % 2], k);
    }
    double(&all)[4][n] = shared[turn];
#pragma unroll
    for (int k = 0; k < 4; k++) all[k][thread] = done[k];
    __syncthreads();
    if (thread < 2 || thread >= n - 2 || x >= (int)out.stride || step < 4 || step >= end) return;
    const double outer = (all[0][thread - 2] + all[1][thread - 2]) + (all[0][thread + 2] + all[1][thread + 1]);
    const double inner = (all[2][thread - 1] + all[3][thread - 1]) + (all[2][thread + 1] + done[3]);
    write(out, part.picture, x, y0 + step - 4, (float)((outer + inner) + done[4]));
  };
#pragma unroll 1
  for (int step = 0; step < end; step += 2) {
    two_rows(step, 0);
    two_rows(step + 1, 1);
  }
  return source.ORDINARY || least.from(SSIM_EXACT);
}

// ---- the low pass in the order of its taps ---------------------------------------------------
// A row of the low pass: number 1, 3, 5 or 7 of the filter for one result each, or 0, 2, 4, 6 or 8. `at` has the even
// columns and the odd ones apart. `begun` are the results that the rows so far belong to: those that have had two rows,
// four, six and eight. Returns the one that has had all.
template <bool ORDINARY, int COLUMNS>
HV_DEV double low_pass_row(const float (&at)[2][COLUMNS], bool odd, double begun[4]) {
  double done = begun[3], next[4];
#pragma unroll
  for (int k = 0; k < 4; k++) next[k] = odd ? begun[k] : k ? begun[k - 1] : 0;
#pragma unroll
  for (int u = 0; u < 9; u++) {
    const float v = at[u % 2][threadIdx.x + u / 2];
    if (odd) {
      const double outer = low_pass_product<ORDINARY>(v, 1, u), inner = low_pass_product<ORDINARY>(v, 3, u);
      next[0] += outer, next[1] += inner, next[2] += inner, next[3] += outer;
    } else {
      const double outer = low_pass_product<ORDINARY>(v, 0, u), inner = low_pass_product<ORDINARY>(v, 2, u);
      const double middle = low_pass_product<ORDINARY>(v, 4, u);
      next[0] += outer, next[1] += inner, next[2] += middle, next[3] += inner, done += outer;
    }
  }
#pragma unroll
  for (int k = 0; k < 4; k++) begun[k] = next[k];
  return done;
}

// Two stages of samples, even and odd columns from -4 on apart, so that neighbours read neighbours, and half of the banks
// apart, so that they write to different ones.
using LowPassRows = float[2][SSIM_STAGE][2][SSIM_THREADS + 16];

// The low pass at every other sample of a decimated picture, with `rows` of the result per block. The last four threads
// have no result.
HV_DEV void low_pass_in_order(const Samples<float> source, const Part part, int width, int height, int rows,
                              const SsimPlanes &out, LowPassRows &staged) {
  __shared__ uint32_t extraordinary[3];  // 1 if a sample of this stage is, of the next, and of the one after it
  const int to_height = (height + 1) / 2;
  const int x = part.x0 + (int)threadIdx.x, y0 = (int)blockIdx.y * rows, left = 2 * part.x0 - 4, top = 2 * y0 - 4;
  const int needed = 2 * hv_min(rows, to_height - y0) + 7;
  // 32 threads process a row of a stage, and eight of them one sample more than the others.
  constexpr int turns = 2 * SSIM_THREADS / 32 + 1;
  const int lane = (int)threadIdx.x % 32, row_of_stage = (int)threadIdx.x / 32;
  int from[turns];
#pragma unroll
  for (int i = 0; i < turns; i++) from[i] = mirror(left + lane + 32 * i, width);
  if (threadIdx.x < 3) extraordinary[threadIdx.x] = 0;
  __syncthreads();

  // The samples of a stage are loaded while those of the one before are processed.
  float ahead[turns];
  const auto load = [&](int first) {
    const int y = mirror(top + first + row_of_stage, height);
#pragma unroll
    for (int i = 0; i < turns; i++) ahead[i] = source.load(from[i], y);
  };
  load(0);
  double begun[4] = {};
  for (int first = 0, stage = 0; first < needed; first += SSIM_STAGE, stage++) {
    const int turn = stage % 2;
    Least least;
#pragma unroll
    for (int i = 0; i < turns; i++) {
      const float v = ahead[i];
      if (i < turns - 1 || lane < 8) staged[turn][row_of_stage][lane % 2][lane / 2 + 16 * i] = v;
      least.add(v);
    }
    if (!least.from(SSIM_ORDINARY)) hv_atomic_max_u32(&extraordinary[stage % 3], 1);
    __syncthreads();
    if (threadIdx.x == 0) extraordinary[(stage + 2) % 3] = 0;
    if (first + SSIM_STAGE < needed) load(first + SSIM_STAGE);
#pragma unroll 2
    for (int r = 0; r < SSIM_STAGE; r++) {
      const double done = extraordinary[stage % 3] ? low_pass_row<false>(staged[turn][r], r % 2, begun)
                                                   : low_pass_row<true>(staged[turn][r], r % 2, begun);
      const int row = first + r - 8;
      if (r % 2 || row < 0 || first + r >= needed) continue;
      if (x >= (int)out.stride || threadIdx.x >= SSIM_LOW_PASS_COLUMNS) continue;
      write(out, part.picture, x, y0 + row / 2, (float)done);
    }
  }
}

// ---- means ---------------------------------------------------------------------------------
// Means of `factor` x `factor` samples of a picture. Doubles hold their sums exactly.
template <class S>
HV_DEV void box(const S source, const Part part, int width, int height, int factor, int to_height,
                const SsimPlanes &out) {
  const int x = part.x0 + (int)threadIdx.x % 32;
  const int y = (int)(blockIdx.y * SSIM_BOX_TILE_H + threadIdx.x / 32);
  if (x >= (int)out.stride || y >= to_height) return;
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
