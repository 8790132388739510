// SPDX-License-Identifier: MPL-2.0
//
// Visual information fidelity: one kernel for each scale computes the integer sums of that scale and, from
// the same rows, the reference and distorted planes of the next one. Formulas and constants are those of
// libvmaf 3.2.0's integer VIF (BSD-2-Clause-Patent).
//
// Launch of every kernel: block (VIF_THREADS(scale), 1, 1), grid (ceil(width / VIF_TILE_W(scale)), n, 1) with any
// n up to ceil(height / VIF_TILE_H(scale)): a block walks down every nth tile, at most 64 tiles. How many are best is in
// crates/engine/src/backend/hip/vif.rs. width and height are of the kernel's own scale:
// those of the picture, halved and rounded down once for each scale. Other tiles with HV_MMA: see there.
//
// The kernels whose names end in `_group` compare the reference with several distorted pictures, and filter it once.
#pragma once
#include "frame.h"
#include "vif_gain.h"

// Tiles of `VIF_TILE_W` x `VIF_TILE_H` pixels. A thread filters one column, then finishes `VIF_RUN` pixels of a row.
#if defined(HV_NV)
  #define VIF_THREADS(scale) ((scale) == 0 ? 256 : 128)
  // Includes the blocks that should fit a multiprocessor, because the compiler otherwise uses more registers than these
  // allow.
  #define VIF_BOUNDS(scale) VIF_THREADS(scale), (scale) == 0 ? 2 : 5
#else
  #define VIF_THREADS(scale) 128  // two groups in the shared memory of a compute unit
  #define VIF_BOUNDS(scale) VIF_THREADS(scale)
#endif
#define VIF_RADIUS(scale) (8 >> (scale))
// Twice as many rows would be less work, but twice the code, and the instruction cache of a multiprocessor is small for
// all the kernels on it.
#define VIF_TILE_H(scale) ((scale) == 0 ? 8 : 4)
#define VIF_RUN(scale) VIF_TILE_H(scale)
#define VIF_TILE_W(scale) ((VIF_THREADS(scale) - 2 * VIF_RADIUS(scale)) / VIF_RUN(scale) * VIF_RUN(scale))

// Forms for NVIDIA without f64. Sums beyond 32 bits are of 64, as a multiplication adds to as many: half the instructions,
// and no halves to cut out. Elsewhere they are two, of the high and of the low halves, whose multiplications are faster.
#if defined(HV_NV) && !HV_F64_FAST
  #define VIF_WIDE 1
#else
  #define VIF_WIDE 0
#endif

#define VIF_MAX_GAINS 4

// The arguments of a kernel besides the pictures.
struct VifArgs {
  int32_t width, height;                 // of this scale
  uint32_t bits;                // of scale 0 samples: 8 to 16
  uint32_t gains;             // 1 to 4; 0 for no sums, only the planes of the next scale
  double gain_limits[VIF_MAX_GAINS];  // limits of the enhancement gain, 1.0 to 100.0
  uint32_t whole_limits[VIF_MAX_GAINS];  // those that are integers; 0 for others
  uint32_t pictures, pitch;     // distorted pictures, and from the sums of one to those of the next, for `_group`

  HV_MEMBER VifLimit limit(uint32_t k) const {
    // Without addresses, as these are parameters.
    if (k == 0) return {gain_limits[0], whole_limits[0]};
    if (k == 1) return {gain_limits[1], whole_limits[1]};
    if (k == 2) return {gain_limits[2], whole_limits[2]};
    return {gain_limits[3], whole_limits[3]};
  }
};
HV_SIZE(VifArgs, 72);
HV_OFFSET(VifArgs, width, 0);
HV_OFFSET(VifArgs, height, 4);
HV_OFFSET(VifArgs, bits, 8);
HV_OFFSET(VifArgs, gains, 12);
HV_OFFSET(VifArgs, gain_limits, 16);
HV_OFFSET(VifArgs, whole_limits, 48);
HV_OFFSET(VifArgs, pictures, 64);
HV_OFFSET(VifArgs, pitch, 68);

// The planes of scale 1, 2 or 3, 16-byte aligned: strides are multiples of 8 samples. Whole rows may be written. Those
// of further distorted pictures follow the first.
using VifPlanes = HvPlanesOf<uint16_t>;

// Vertically filtered samples at one place: means (reference low), squares and product.
struct alignas(16) VifMoments {
  uint32_t means, xx, yy, xy;
};

// An odd distance of rows in units of 16 bytes keeps eight rows in different memory banks, and so does
// a distance of 1 modulo 4 for the words of the next scale.
template <int S> struct VifShared {
  VifMoments moments[VIF_TILE_H(S)][VIF_THREADS(S) + 1];
  uint32_t next[VIF_TILE_H(S) / 2][VIF_THREADS(S) + 1];
  alignas(16) uint16_t log2_steps[4096];
  alignas(16) uint32_t rows[2][VIF_TILE_H(S) + 2 * VIF_RADIUS(S)];  // offsets of the tile's rows, mirrored
};

// The result of `vif_log2` for VIF_NOISE.
static constexpr uint32_t VIF_LOG2_NOISE = 17 * 2048 + 142 * 2048 - 30720;

// Tap `i` from the centre of the filter of a scale, in 1/65536; zero outside.
// The zeros are in the table: a branch would have to be folded once for every tap of every unrolled loop, which took
// most of the compiler's time.
HV_DEV constexpr uint32_t vif_tap(int scale, int i) {
  constexpr uint16_t taps[4][64] = {{7784, 7455, 6547, 5274, 3896, 2640, 1640, 935, 489},
                                    {14692, 12590, 7925, 3663, 1244},
                                    {26386, 16004, 3571},
                                    {43728, 10904}};
  return taps[scale][i < 0 ? -i : i];
}

#if VIF_WIDE
// a b + c in 64 bits. The compiler of PTX makes one instruction of these two. Of `mad.wide` in sums of several it does not:
// it adds two products at a time, by two more instructions.
HV_DEV uint64_t vif_mad_wide(uint32_t a, uint32_t b, uint64_t c) {
  uint32_t lo, hi;
  asm("{mad.lo.cc.u32 %0, %2, %3, %4;\n\tmadc.hi.u32 %1, %2, %3, %5;}"
      : "=&r"(lo), "=r"(hi)
      : "r"(a), "r"(b), "r"((uint32_t)c), "r"((uint32_t)(c >> 32)));
  return (uint64_t)hi << 32 | lo;
}
#endif

// Reflects an index at the first and the last sample. Clamped for pixels outside the picture, which are not used.
HV_DEV int32_t vif_mirror(int32_t i, int32_t n) {
  i = hv_abs(i);
  return hv_max(hv_min(i, 2 * n - 2 - i), 0);
}

// ---- filters in f64 -----------------------------------------------------------------------
#if HV_F64_FAST
// Rounds 0 <= v < 2^32 to an integer; halves up where v is a multiple of 2^-16 plus VIF_HALF_UP.
HV_DEV uint32_t vif_rint(double v) { return (uint32_t)__builtin_bit_cast(uint64_t, v + 0x1p52); }
static constexpr double VIF_HALF_UP = 0x1p-18;

// a b + c where that is exact, so that the CPU needs no fused operation.
HV_DEV double vif_exact_fma(double a, double b, double c) {
  #if defined(HV_HOST)
  return a * b + c;
  #else
  return __builtin_fma(a, b, c);
  #endif
}
#endif

#if defined(HV_NV)
// The address of a shared variable in shared memory, for inline instructions.
HV_DEV uint32_t vif_shared_address(const void *p) {
  #if defined(HV_BARE)
  return (uint32_t)(uint64_t)(__attribute__((address_space(3))) const void *)p;
  #else
  return (uint32_t)__cvta_generic_to_shared(p);
  #endif
}
#endif

// log2 in 1/2048 plus `LOG2_BIAS` of crates/engine/src/metrics/vif.rs, which also describes the table. Here an entry is
// less by 8 times its index, so that the index need not be cut out of what it is added to.
HV_DEV uint32_t vif_log2(const uint16_t *steps, uint32_t v) {
#if defined(HV_NV)
  float f;
  asm("cvt.rz.f32.u32 %0, %1;" : "=f"(f) : "r"(v));
  const uint32_t bits = __builtin_bit_cast(uint32_t, f);
  // Masked first, the shift and the addition are one instruction; the compiler would do it the other way.
  uint32_t at, step;
  asm("and.b32 %0, %1, 0x7ff800;" : "=r"(at) : "r"(bits));
  at = vif_shared_address(steps) + (at >> 10);
  asm("ld.shared.u16 %0, [%1];" : "=r"(step) : "r"(at));
  return (bits + 256 * step) >> 12;
#else
  const int zeros = hv_clz(v);
  const uint32_t u = ((uint32_t)(157 - zeros) << 15) + (v << zeros >> 16);
  return (u + steps[u >> 3 & 4095]) >> 4;
#endif
}
template <int THREADS> HV_DEV void vif_load_log2_steps(const uint16_t *from, uint16_t *steps) {
#pragma unroll
  for (uint32_t k = 0; k < 4096 / 8 / THREADS; k++) {
    const uint32_t i = k * THREADS + threadIdx.x;
    HvU32x4 v = hv_ldg((const HvU32x4 *)from + i);
#pragma unroll
    for (int j = 0; j < 4; j++) v.v[j] -= (64 * i + 16 * j) * 0x10001 + 0x80000;
    ((HvU32x4 *)steps)[i] = v;
  }
}

// ---- sums ----------------------------------------------------------------------------------
struct VifSums {
  uint32_t den_log, flat_count;  // of the reference alone
  uint64_t flat_energy;
  uint32_t num_log[VIF_MAX_GAINS];

  HV_MEMBER void next_picture() {
    flat_energy = 0;
#pragma unroll
    for (int k = 0; k < VIF_MAX_GAINS; k++) num_log[k] = 0;
  }
};

// Variances or covariances from means with 16 fraction bits and the mean products.
template <int N>
HV_DEV void vif_variances(const uint32_t (&mx)[N], const uint32_t (&my)[N], const uint32_t (&xy)[N],
                          int32_t (&cov)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++)
    cov[i] = (int32_t)(xy[i] - (uint32_t)(((uint64_t)mx[i] * my[i] + (1u << 31)) >> 32));
}

// Adds the pixels with these variances and covariances that are inside the picture; the terms of the reference alone
// only if `first`.
template <int N>
HV_DEV void vif_statistics(const int32_t (&var1)[N], const int32_t (&var2)[N], const int32_t (&cov)[N],
                           const bool (&inside)[N], const VifArgs &args, const uint16_t *steps, bool first,
                           VifSums &sums) {
  uint32_t x[N], y[N], xy[N], den = 0;
#pragma unroll
  for (int i = 0; i < N; i++) {
    // Without a branch: other pixels get values that add nothing to the logarithms.
    const bool flat = inside[i] && var1[i] < VIF_NOISE, busy = inside[i] && var1[i] >= VIF_NOISE;
    x[i] = busy ? (uint32_t)var1[i] : 0, y[i] = (uint32_t)hv_max(var2[i], 0);
    xy[i] = busy && hv_min(var2[i], cov[i]) > 0 ? (uint32_t)cov[i] : 0;
    if (first) {
      sums.flat_count += flat;
      den += vif_log2(steps, x[i] + VIF_NOISE);
    }
    sums.flat_energy += flat ? y[i] : 0;
    if (!HV_F64_FAST && !(busy && hv_min(var2[i], cov[i]) > 0)) x[i] = 1;
  }
  if (first) sums.den_log += den - N * VIF_LOG2_NOISE;
  const VifPixels<N> pixels(x, y, xy);
  uint32_t noise_log = 0;
#pragma unroll
  for (int i = 0; i < N; i++) noise_log += vif_log2(steps, pixels.noise(i));
  const auto explained_log = [&](uint32_t k) {
    uint32_t explained[N], sum = 0;
    pixels.explained(args.limit(k), explained);
#pragma unroll
    for (int i = 0; i < N; i++) sum += vif_log2(steps, explained[i] + pixels.noise(i));
    return sum - noise_log;
  };
  // The first limit is outside the loop: most launches have only one, and in the loop choosing the sum takes longer
  // than adding to it.
  sums.num_log[0] += explained_log(0);
#pragma unroll 1
  for (uint32_t k = 1; k < args.gains; k++) {
    const uint32_t num = explained_log(k);
    sums.num_log[1] += k == 1 ? num : 0;
    sums.num_log[2] += k == 2 ? num : 0;
    sums.num_log[3] += k == 3 ? num : 0;
  }
}

HV_DEV uint32_t vif_wave_sum(uint32_t v) {
  for (uint32_t m = HV_WAVE / 2; m; m >>= 1) v += hv_shfl_xor_u32(v, m);
  return v;
}

// Adds the sums of a wave's threads to `out`. Its logarithms fit 32 bits: they are less than 2^15 each.
template <int S> HV_DEV void vif_add_sums(const VifSums &sums, uint32_t gains, uint64_t *out) {
  const uint32_t den_log = vif_wave_sum(sums.den_log), flat_count = vif_wave_sum(sums.flat_count);
  const uint64_t flat_energy = hv_wave_sum_u64(sums.flat_energy);
  out += 8 * S;
  if (hv_lane() == 0) {
    hv_atomic_add_u64(out, den_log);
    hv_atomic_add_u64(out + 1, flat_count);
    hv_atomic_add_u64(out + 2, flat_energy);
  }
#pragma unroll
  for (uint32_t k = 0; k < VIF_MAX_GAINS; k++)
    if (k < gains) {
      const uint32_t num_log = vif_wave_sum(sums.num_log[k]);
      if (hv_lane() == 0) hv_atomic_add_u64(out + 4 + k, num_log);
    }
}

// ---- vertical pass -------------------------------------------------------------------------
template <bool, class A, class> struct VifEither {
  using Type = A;
};
template <class A, class B> struct VifEither<false, A, B> {
  using Type = B;
};

// Samples of one column.
template <int ROWS> struct VifColumn {
  uint32_t v[ROWS];
  HV_MEMBER uint32_t operator[](int k) const { return v[k]; }
  // Four 8-bit samples a word, for dot products.
  HV_MEMBER void pack(uint32_t (&words)[ROWS / 4]) const {
#pragma unroll
    for (int k = 0; k < ROWS; k += 4)
      words[k / 4] = (v[k] | v[k + 1] << 8) | (v[k + 2] | v[k + 3] << 8) << 16;
  }
};
// Loads from the rows at these offsets.
template <class T, int ROWS>
HV_DEV void vif_load_column(const uint8_t *column, const uint32_t (&rows)[ROWS], uint32_t shift, uint32_t bits,
                            VifColumn<ROWS> &to) {
#pragma unroll
  for (int k = 0; k < ROWS; k++) to.v[k] = hv_sample<T>(column + rows[k], shift, bits);
}

// The same for packed 8-bit samples.
template <int ROWS> struct VifByteColumn {
  uint32_t words[ROWS / 4];
  HV_MEMBER uint32_t operator[](int k) const {
    const uint32_t word = words[k / 4];
    switch (k % 4) {
    case 0: return word & 255;
    case 1: return hv_bytes<0x4441>(word, 0);
    case 2: return hv_bytes<0x4442>(word, 0);
    default: return word >> 24;
    }
  }
  HV_MEMBER void pack(uint32_t (&to)[ROWS / 4]) const {
#pragma unroll
    for (int k = 0; k < ROWS / 4; k++) to[k] = words[k];
  }
};
#if VIF_WIDE
// The columns of both pictures for a wave of 32, from column `x` on, a multiple of 4. A lane loads four neighbours at a
// time, of four rows, and turns them; that takes a third fewer instructions than to load each sample. The lanes exchange
// words where the moments of their own columns will be.
template <int S>
HV_DEV void vif_load_byte_columns(VifShared<S> &shared, const uint8_t *reference, const uint8_t *distorted, int32_t x,
                                  int32_t width, VifByteColumn<VIF_TILE_H(S) + 2 * VIF_RADIUS(S)> &r,
                                  VifByteColumn<VIF_TILE_H(S) + 2 * VIF_RADIUS(S)> &d) {
  constexpr int WORDS = (VIF_TILE_H(S) + 2 * VIF_RADIUS(S)) / 4, TURNS = 2 * WORDS / 4;
  static_assert(2 * WORDS % 4 == 0 && TURNS <= VIF_TILE_H(S), "a lane stores as many words as it takes");
  const uint32_t lane = hv_lane();
  x += (int32_t)(lane % 8 * 4);
  uint32_t v[TURNS][4], rows[TURNS][4];
  const uint8_t *from[TURNS];
#pragma unroll
  for (uint32_t t = 0; t < TURNS; t++) {
    const uint32_t word = 4 * t + lane / 8;  // first those of the reference
    from[t] = word < WORDS ? reference : distorted;
    const HvU32x4 offsets = ((const HvU32x4 *)shared.rows)[word];
#pragma unroll
    for (int k = 0; k < 4; k++) rows[t][k] = offsets.v[k];
  }
  if (x >= 0 && x + 4 <= width) {
#pragma unroll
    for (uint32_t t = 0; t < TURNS; t++)
#pragma unroll
      for (int k = 0; k < 4; k++) v[t][k] = hv_ldg((const uint32_t *)(from[t] + x + rows[t][k]));
  } else {
#pragma unroll
    for (uint32_t t = 0; t < TURNS; t++)
#pragma unroll
      for (int k = 0; k < 4; k++) v[t][k] = 0;
#pragma unroll 1
    for (int i = 3; i >= 0; i--) {
      const int32_t column = vif_mirror(x + i, width);
#pragma unroll
      for (uint32_t t = 0; t < TURNS; t++)
#pragma unroll
        for (int k = 0; k < 4; k++) v[t][k] = v[t][k] << 8 | hv_ldg(from[t] + column + rows[t][k]);
    }
  }
#pragma unroll
  for (uint32_t t = 0; t < TURNS; t++) {
    const uint32_t a = hv_bytes<0x5140>(v[t][0], v[t][1]), b = hv_bytes<0x5140>(v[t][2], v[t][3]);
    const uint32_t e = hv_bytes<0x7362>(v[t][0], v[t][1]), f = hv_bytes<0x7362>(v[t][2], v[t][3]);
    *(HvU32x4 *)&shared.moments[t][threadIdx.x] = {{hv_bytes<0x5410>(a, b), hv_bytes<0x7632>(a, b),
                                                    hv_bytes<0x5410>(e, f), hv_bytes<0x7632>(e, f)}};
  }
  hv_sync_wave();
  const uint32_t first = threadIdx.x - lane;
#pragma unroll
  for (uint32_t k = 0; k < WORDS; k++) {
    const auto word = [&](uint32_t i) { return ((const uint32_t *)&shared.moments[i / 4][first])[i % 4 * 32 + lane]; };
    r.words[k] = word(k), d.words[k] = word(WORDS + k);
  }
  hv_sync_wave();
}
#endif

#if VIF_WIDE
// c and the products of two 16-bit factors with the lower or the upper two of four bytes.
template <bool UPPER> HV_DEV uint32_t vif_dot2(uint32_t factors, uint32_t bytes, uint32_t c) {
  uint32_t d;
  if constexpr (UPPER) asm("dp2a.hi.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(factors), "r"(bytes), "r"(c));
  else asm("dp2a.lo.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(factors), "r"(bytes), "r"(c));
  return d;
}
// The filter of scale F at row `row`, rounded to 8 fraction bits.
template <int F, int ROWS> HV_DEV uint32_t vif_mean_u8(const uint32_t (&words)[ROWS / 4], int row) {
  uint32_t sum = 128;
#pragma unroll
  for (int k = 0; k < ROWS; k += 2) {
    const uint32_t taps = vif_tap(F, k - row) | vif_tap(F, k + 1 - row) << 16;
    if (taps) sum = k % 4 ? vif_dot2<true>(taps, words[k / 4], sum) : vif_dot2<false>(taps, words[k / 4], sum);
  }
  return sum >> 8;
}
#else
// The filter of scale F at row `row`, rounded to 8 fraction bits. 8-bit samples: the taps' high and low
// bytes by dot products; ((hi << 8) + lo + 128) >> 8 is hi + ((lo + 128) >> 8).
template <int F, int ROWS> HV_DEV uint32_t vif_mean_u8(const uint32_t (&words)[ROWS / 4], int row) {
  uint32_t lo = 128, hi = 0;
#pragma unroll
  for (int g = 0; g < ROWS / 4; g++) {
    uint32_t lo_taps = 0, hi_taps = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      uint32_t tap = vif_tap(F, 4 * g + i - row);
      lo_taps |= (tap & 255) << 8 * i;
      hi_taps |= (tap >> 8) << 8 * i;
    }
    if (lo_taps | hi_taps) {
      lo = hv_udot4(words[g], lo_taps, lo);
      hi = hv_udot4(words[g], hi_taps, hi);
    }
  }
  return hi + (lo >> 8);
}
#endif
template <int F, int ROWS> HV_DEV uint32_t vif_mean_u16(const uint32_t (&v)[ROWS], int row, uint32_t bits) {
  uint32_t sum = 1u << (bits - 1);
#pragma unroll
  for (int k = 0; k < ROWS; k++)
    if (vif_tap(F, k - row)) sum += vif_tap(F, k - row) * v[k];
  return sum >> bits;
}

// Filters one column for the means of this scale and, every second row, of the next.
template <int S, class T, class Column, class Store, class Next>
HV_DEV void vif_vertical_means(const Column &column, uint32_t bits, Store store, Next next) {
  constexpr int R = VIF_RADIUS(S), ROWS = VIF_TILE_H(S) + 2 * R;
  if constexpr (sizeof(T) == 1) {
    uint32_t words[ROWS / 4];
    column.pack(words);
#pragma unroll
    for (int j = 0; j < VIF_TILE_H(S); j++) store(j, vif_mean_u8<S, ROWS>(words, R + j));
#pragma unroll
    for (int j = 0; j < VIF_TILE_H(S); j += 2) next(j / 2, vif_mean_u8<S + 1, ROWS>(words, R + j));
  } else {
#pragma unroll
    for (int j = 0; j < VIF_TILE_H(S); j++) store(j, vif_mean_u16<S>(column.v, R + j, bits));
    if constexpr (S < 3) {
#pragma unroll
      for (int j = 0; j < VIF_TILE_H(S); j += 2) next(j / 2, vif_mean_u16<S + 1>(column.v, R + j, bits));
    }
  }
}

// A product of two samples. For an ordinary multiplication, the compiler of PTX would multiply once more for each sum
// of two instead of adding.
template <class T> HV_DEV uint32_t vif_product(uint32_t a, uint32_t b) {
  return VIF_WIDE && sizeof(T) == 1 ? hv_udot4(a, b, 0) : a * b;
}

// Filters one product of all rows, given by `product(row)`, and rounds to 16 fraction bits of an 8-bit step.
template <int S, class T, class Product, class Store>
HV_DEV void vif_products(Product product, uint32_t bits, Store store) {
  constexpr int R = VIF_RADIUS(S), ROWS = VIF_TILE_H(S) + 2 * R;
  const uint32_t shift = 2 * (bits - 8);
  if constexpr (sizeof(T) == 1) {
#if VIF_WIDE
    // Rows with the same tap first: additions run in parallel with multiplications, of which there are many more.
    uint32_t p[ROWS], sum[VIF_TILE_H(S)];
#pragma unroll
    for (int k = 0; k < ROWS; k++) p[k] = product(k);
#pragma unroll
    for (int j = 0; j < VIF_TILE_H(S); j++) {
      sum[j] = vif_tap(S, 0) * p[j + R];
#pragma unroll
      for (int i = 1; i <= R; i++) sum[j] += vif_tap(S, i) * (p[j + R - i] + p[j + R + i]);
    }
#else
    uint32_t sum[VIF_TILE_H(S)] = {};
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
      uint32_t p = product(k);
#pragma unroll
      for (int j = 0; j < VIF_TILE_H(S); j++)
        if (vif_tap(S, k - j - R)) sum[j] += vif_tap(S, k - j - R) * p;
    }
#endif
#pragma unroll
    for (int j = 0; j < VIF_TILE_H(S); j++) store(j, sum[j]);
  } else {
#if HV_F64_FAST
    const double scale = vif_f64_of_bits((uint64_t)(1023 - shift) << 52), offset = -0x1p52 * scale;
    double sum[VIF_TILE_H(S)];
#pragma unroll
    for (int j = 0; j < VIF_TILE_H(S); j++) sum[j] = VIF_HALF_UP;
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
      double p = vif_exact_fma(vif_f64_of_bits(0x4330000000000000u | product(k)), scale, offset);
#pragma unroll
      for (int j = 0; j < VIF_TILE_H(S); j++)
        if (vif_tap(S, k - j - R)) sum[j] = vif_exact_fma(vif_tap(S, k - j - R), p, sum[j]);
    }
#pragma unroll
    for (int j = 0; j < VIF_TILE_H(S); j++) store(j, vif_rint(sum[j]));
#elif VIF_WIDE
    uint64_t sum[VIF_TILE_H(S)];
#pragma unroll
    for (int j = 0; j < VIF_TILE_H(S); j++) sum[j] = 1u << shift >> 1;
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
      const uint32_t p = product(k);
#pragma unroll
      for (int j = 0; j < VIF_TILE_H(S); j++)
        if (vif_tap(S, k - j - R)) sum[j] = vif_mad_wide(p, vif_tap(S, k - j - R), sum[j]);
    }
#pragma unroll
    for (int j = 0; j < VIF_TILE_H(S); j++) store(j, (uint32_t)(sum[j] >> shift));
#else
    uint32_t hi[VIF_TILE_H(S)] = {}, lo[VIF_TILE_H(S)];
#pragma unroll
    for (int j = 0; j < VIF_TILE_H(S); j++) lo[j] = 1u << shift >> 1;
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
      uint32_t p = product(k);
#pragma unroll
      for (int j = 0; j < VIF_TILE_H(S); j++)
        if (vif_tap(S, k - j - R)) {
          hi[j] += vif_tap(S, k - j - R) * (p >> 16);
          lo[j] += vif_tap(S, k - j - R) * (p & 0xffff);
        }
    }
#pragma unroll
    for (int j = 0; j < VIF_TILE_H(S); j++) store(j, (hi[j] << (16 - shift)) + (lo[j] >> shift));
#endif
  }
}

// Filters one column of a tile from its samples, `VIF_RADIUS(S)` rows more than the tile at either end. The moments
// of the reference alone are needed only if `first`. All moments of a place are stored at once: stored one by one, those of
// neighbours would be 16 bytes apart, in a quarter of the memory banks.
template <int S, class T, class Column>
HV_DEV void vif_vertical(VifShared<S> &shared, const Column &r, const Column &d, uint32_t bits, bool first) {
  const uint32_t x = threadIdx.x;
  uint32_t means[VIF_TILE_H(S)] = {}, next[VIF_TILE_H(S) / 2] = {}, xx[VIF_TILE_H(S)] = {}, yy[VIF_TILE_H(S)];
  if (first) {
    vif_vertical_means<S, T>(r, bits, [&](int j, uint32_t v) { means[j] = v; }, [&](int j, uint32_t v) { next[j] = v; });
    vif_products<S, T>([&](int k) { return vif_product<T>(r[k], r[k]); }, bits, [&](int j, uint32_t v) { xx[j] = v; });
  }
  vif_vertical_means<S, T>(d, bits, [&](int j, uint32_t v) { means[j] |= v << 16; },
                           [&](int j, uint32_t v) { shared.next[j][x] = next[j] | v << 16; });
  vif_products<S, T>([&](int k) { return vif_product<T>(d[k], d[k]); }, bits, [&](int j, uint32_t v) { yy[j] = v; });
  vif_products<S, T>([&](int k) { return vif_product<T>(r[k], d[k]); }, bits, [&](int j, uint32_t v) {
    *(HvU32x4 *)&shared.moments[j][x] = {{means[j], xx[j], yy[j], v}};
  });
}

// ---- horizontal pass -----------------------------------------------------------------------
// The filtered quantities of a row: means and variances of the reference, and variances and covariances of a distorted
// picture, which need the reference's means.
enum VifPart { VIF_BOTH, VIF_REFERENCE, VIF_DISTORTED };

// A mean of 32-bit values by taps, rounded.
struct VifMean {
#if HV_F64_FAST
  struct Value {
    double v;
    HV_MEMBER explicit Value(uint32_t v) : v(vif_f64(v)) {}
  };
  double sum = VIF_HALF_UP;
  HV_MEMBER void add(uint32_t tap, Value value) { sum = vif_exact_fma(tap * 0x1p-16, value.v, sum); }
  HV_MEMBER uint32_t get() const { return vif_rint(sum); }
#elif VIF_WIDE
  struct Value {
    uint32_t v;
    HV_MEMBER explicit Value(uint32_t v) : v(v) {}
  };
  uint64_t sum = 1 << 15;
  HV_MEMBER void add(uint32_t tap, Value value) { sum = vif_mad_wide(value.v, tap, sum); }
  HV_MEMBER uint32_t get() const { return (uint32_t)(sum >> 16); }
#else
  struct Value {
    uint32_t hi, lo;
    HV_MEMBER explicit Value(uint32_t v) : hi(v >> 16), lo(v & 0xffff) {}
  };
  uint32_t hi = 0, lo = 1 << 15;
  HV_MEMBER void add(uint32_t tap, Value value) { hi += tap * value.hi, lo += tap * value.lo; }
  HV_MEMBER uint32_t get() const { return hi + (lo >> 16); }
#endif
};

#if VIF_WIDE
// Computes the same differently: the sum modulo 2^32, and an approximation in f32 that selects one of the numbers with this
// remainder. A tap is two instructions, but only one of them is an integer multiplication.
//
// `most` is 2^23 and the mean in units of 2^9. Values are at most 65535 65535, so the mean is below 2^23 - 2^7 and `most`
// below 2^24, where each of 17 additions is wrong by 1/2 at most; the values are by 2^-24 of themselves, so by 1/2 in all.
// The total error is less than 10 2^9 < 2^15. `sum` has the last 16 bits of the mean, so the mean is the nearest number with these.
struct VifMeanF32 {
  struct Value {
    uint32_t v;
    float f;
    HV_MEMBER explicit Value(uint32_t v) : v(v), f((float)v) {}
  };
  uint32_t sum = 1 << 15;
  float most = 0x1p23f;
  HV_MEMBER void add(uint32_t tap, Value value) {
    sum += tap * value.v;
    most = vif_fma((float)tap * 0x1p-25f, value.f, most);
  }
  HV_MEMBER uint32_t get() const {
    const uint32_t about = vif_bits(most) << 9;
    return about + (uint32_t)((int32_t)(sum - (about << 16)) >> 16);
  }
};
// Scale 0 has the most taps, so its multiplications would delay the others. On an H200, the other scales are faster
// with fewer instructions.
template <int S> using VifMeanAt = typename VifEither<S == 0, VifMeanF32, VifMean>::Type;
#else
template <int S> using VifMeanAt = VifMean;
#endif

// Variances and covariances of `VIF_RUN` pixels from their vertically filtered neighbourhood.
template <int S, VifPart PART>
HV_DEV void vif_horizontal(const VifMoments *row, uint32_t (&m1)[VIF_RUN(S)], int32_t (&var1)[VIF_RUN(S)],
                           int32_t (&var2)[VIF_RUN(S)], int32_t (&cov)[VIF_RUN(S)]) {
  constexpr int R = VIF_RADIUS(S);
  constexpr bool REF = PART != VIF_DISTORTED, DIS = PART != VIF_REFERENCE;
  // Modulo 2^32 the sum of whole words has that of the high halves 2^16 times, which is subtracted from it in the end.
  constexpr bool WORDS = VIF_WIDE && REF && DIS;
  uint32_t m2[VIF_RUN(S)] = {};
#pragma unroll
  for (int j = 0; REF && j < VIF_RUN(S); j++) m1[j] = 0;
  VifMeanAt<S> xx[VIF_RUN(S)], yy[VIF_RUN(S)], xy[VIF_RUN(S)];
#pragma unroll
  for (int k = 0; k < VIF_RUN(S) + 2 * R; k++) {
    const VifMoments v = row[k];
    const uint32_t v1 = WORDS ? v.means : v.means & 0xffff, v2 = v.means >> 16;
    const typename VifMeanAt<S>::Value vxx(v.xx), vyy(v.yy), vxy(v.xy);
#pragma unroll
    for (int j = 0; j < VIF_RUN(S); j++) {
      const uint32_t tap = vif_tap(S, k - j - R);
      if (!tap) continue;
      if constexpr (REF) m1[j] += tap * v1;
      if constexpr (DIS) m2[j] += tap * v2;
      if constexpr (REF) xx[j].add(tap, vxx);
      if constexpr (DIS) yy[j].add(tap, vyy);
      if constexpr (DIS) xy[j].add(tap, vxy);
    }
  }
#pragma unroll
  for (int j = 0; WORDS && j < VIF_RUN(S); j++) m1[j] -= m2[j] << 16;
  uint32_t xx_mean[VIF_RUN(S)], yy_mean[VIF_RUN(S)], xy_mean[VIF_RUN(S)];
#pragma unroll
  for (int j = 0; j < VIF_RUN(S); j++) xx_mean[j] = xx[j].get(), yy_mean[j] = yy[j].get(), xy_mean[j] = xy[j].get();
  if constexpr (REF) vif_variances(m1, m1, xx_mean, var1);
  if constexpr (DIS) {
    vif_variances(m2, m2, yy_mean, var2);
    vif_variances(m1, m2, xy_mean, cov);
  }
}

// The next scale's samples of the tile at x0, y0: two neighbours for each thread. `p`: which distorted picture; the
// reference's come with the first.
template <int S>
HV_DEV void vif_next_scale(const VifShared<S> &shared, int32_t x0, int32_t y0, const VifArgs &args,
                           const VifPlanes &next, uint32_t p) {
  constexpr int R = VIF_RADIUS(S + 1);
  const uint32_t pair = threadIdx.x / (VIF_TILE_H(S) / 2), row = threadIdx.x % (VIF_TILE_H(S) / 2);
  const uint32_t x = (uint32_t)x0 / 2 + 2 * pair, y = (uint32_t)y0 / 2 + row, height = (uint32_t)args.height / 2;
  if (pair >= VIF_TILE_W(S) / 4 || x >= (uint32_t)args.width / 2 || y >= height) return;
  const uint32_t *v = &shared.next[row][4 * pair + VIF_RADIUS(S) - R];
  uint32_t r[2] = {1 << 15, 1 << 15}, d[2] = {1 << 15, 1 << 15};
#pragma unroll
  for (int k = 0; k < 2 * R + 3; k++) {
    const uint32_t v1 = v[k] & 0xffff, v2 = v[k] >> 16;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      r[j] += vif_tap(S + 1, k - R - 2 * j) * v1;
      d[j] += vif_tap(S + 1, k - R - 2 * j) * v2;
    }
  }
  const uint64_t at = (uint64_t)y * next.stride + x;
  if (p == 0) *(uint32_t *)(next.reference + at) = r[0] >> 16 | (r[1] & 0xffff0000);
  *(uint32_t *)(next.distorted + (uint64_t)p * next.stride * height + at) = d[0] >> 16 | (d[1] & 0xffff0000);
}

// ---- a scale -------------------------------------------------------------------------------
// `plane_of(p)` is the plane of a distorted picture: of the only one, or of those of a group.
template <int S, class T, bool GROUP, class PlaneOf>
HV_DEV void vif_scale(VifShared<S> &shared, const HvPlane &reference, PlaneOf plane_of, uint32_t bits,
                      const VifArgs &args, const VifPlanes &next, const uint16_t *log2_steps, uint64_t *out) {
  constexpr int R = VIF_RADIUS(S), ROWS = VIF_TILE_H(S) + 2 * R;
  using Column = typename VifEither<VIF_WIDE && sizeof(T) == 1, VifByteColumn<ROWS>, VifColumn<ROWS>>::Type;
  vif_load_log2_steps<VIF_THREADS(S)>(log2_steps, shared.log2_steps);

  const int32_t x0 = (int32_t)blockIdx.x * VIF_TILE_W(S);
  const uint32_t column = (uint32_t)vif_mirror(x0 - R + (int32_t)threadIdx.x, args.width) * (uint32_t)sizeof(T);
  const uint32_t tile_row = threadIdx.x % VIF_TILE_H(S), run = threadIdx.x / VIF_TILE_H(S) * VIF_RUN(S);
  const uint32_t pictures = GROUP ? args.pictures : 1;
  VifSums sums = {};
  for (int32_t tile = (int32_t)blockIdx.y; tile * VIF_TILE_H(S) < args.height; tile += (int32_t)gridDim.y) {
    const int32_t y0 = tile * VIF_TILE_H(S);
    uint32_t m1[VIF_RUN(S)];
    int32_t var1[VIF_RUN(S)];
    if constexpr (GROUP) sums = {};
    for (uint32_t p = 0; p < pictures; p++) {
      const bool first = !GROUP || p == 0;
      const HvPlane distorted = plane_of(p);
      if (threadIdx.x < 2 * ROWS) {
        const uint32_t k = threadIdx.x % ROWS, picture = threadIdx.x / ROWS;
        const uint32_t row = (uint32_t)vif_mirror(y0 - R + (int32_t)k, args.height);
        shared.rows[picture][k] = row * (picture ? distorted.stride : reference.stride);
      }
      __syncthreads();
      Column r, d;
#if VIF_WIDE
      if constexpr (sizeof(T) == 1) {
        const int32_t x = x0 - R + (int32_t)(threadIdx.x - hv_lane());
        vif_load_byte_columns<S>(shared, reference.data, distorted.data, x, args.width, r, d);
      } else
#endif
      {
        vif_load_column<T>(reference.data + column, shared.rows[0], reference.shift, bits, r);
        vif_load_column<T>(distorted.data + column, shared.rows[1], distorted.shift, bits, d);
      }
      vif_vertical<S, T>(shared, r, d, bits, first);
      __syncthreads();
      if (args.gains && run < VIF_TILE_W(S)) {
        int32_t var2[VIF_RUN(S)], cov[VIF_RUN(S)];
        const VifMoments *row = &shared.moments[tile_row][run];
        if constexpr (GROUP) {
          if (first) vif_horizontal<S, VIF_REFERENCE>(row, m1, var1, var2, cov);
          vif_horizontal<S, VIF_DISTORTED>(row, m1, var1, var2, cov);
        } else vif_horizontal<S, VIF_BOTH>(row, m1, var1, var2, cov);
        bool inside[VIF_RUN(S)];
#pragma unroll
        for (int i = 0; i < VIF_RUN(S); i++)
          inside[i] = y0 + (int32_t)tile_row < args.height && x0 + (int32_t)run + i < args.width;
        vif_statistics(var1, var2, cov, inside, args, shared.log2_steps, first, sums);
      }
      if constexpr (S < 3) vif_next_scale<S>(shared, x0, y0, args, next, p);
      if constexpr (GROUP) {
        if (args.gains) vif_add_sums<S>(sums, args.gains, out + p * args.pitch);
        sums.next_picture();
      }
    }
  }
  if (!GROUP && args.gains) vif_add_sums<S>(sums, args.gains, out);
}

// Scale 0 from the luma of a frame, 8-bit samples and wider ones. Writes the planes of scale 1 to `next` and
// adds to `out`: 8 u64 for each scale, zeroed before the frame: den_log, flat_count, flat_energy, unused,
// then num_log of each gain limit. `log2_steps`: `LOG2_STEPS` of
// crates/engine/src/metrics/vif.rs as 4096 u16, 16-byte aligned. A group has a frame for each distorted picture.
#define VIF_SCALE_0(name, T, BITS, GROUP)                                                                              \
  HV_KERNEL(VIF_BOUNDS(0), name)(const HvFrame *__restrict__ frame, VifArgs args, VifPlanes next,                      \
                                  const uint16_t *__restrict__ log2_steps, uint64_t *__restrict__ out) {               \
    __shared__ VifShared<0> shared;                                                                                    \
    vif_scale<0, T, GROUP>(shared, frame->reference[0], [=](uint32_t p) { return frame[p].distorted[0]; }, BITS, args, \
                           next, log2_steps, out);                                                                     \
  }                                                                                                                    \
  HV_EXPORT(name)

// Scales 1 to 3 from the planes of the scale before. Scale 3 has no `next`.
#define VIF_SCALE(name, S, GROUP)                                                                            \
  HV_KERNEL(VIF_BOUNDS(S), name)(VifPlanes in, VifArgs args, VifPlanes next,                                 \
                                  const uint16_t *__restrict__ log2_steps, uint64_t *__restrict__ out) {     \
    __shared__ VifShared<S> shared;                                                                          \
    const auto plane = [=](const uint16_t *data) {                                                           \
      return HvPlane{(const uint8_t *)data, in.stride * 2, 0, 1};                                            \
    };                                                                                                       \
    const uint64_t size = (uint64_t)in.stride * (uint32_t)args.height;                                       \
    const auto plane_of = [=](uint32_t p) { return plane(in.distorted + p * size); };                        \
    vif_scale<S, uint16_t, GROUP>(shared, plane(in.reference), plane_of, 16, args, next, log2_steps, out);   \
  }                                                                                                          \
  HV_EXPORT(name)
