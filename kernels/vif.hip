// SPDX-License-Identifier: MPL-2.0
//
// Visual information fidelity: one kernel for each scale computes the integer sums of that scale and, from
// the same rows, the reference and distorted planes of the next one. Formulas and constants are those of
// libvmaf 3.2.0's integer VIF (BSD-2-Clause-Patent).
//
// Launch of every kernel: block (VIF_THREADS(scale), 1, 1), grid (ceil(w / VIF_TILE_W(scale)), n, 1) with any
// n up to ceil(h / VIF_TILE_H): a block walks down every nth tile, at most 64 tiles. w and h are of the
// kernel's own scale: those of the picture, halved and rounded down once for each scale.
#include "frame.h"

// Tiles of `VIF_TILE_W` x `VIF_TILE_H` pixels. A thread filters one column, then finishes `VIF_RUN` pixels of
// a row.
#if defined(HV_NV)
  #define VIF_THREADS(scale) ((scale) == 0 ? 256 : (scale) == 1 ? 128 : 64)
#else
  #define VIF_THREADS(scale) ((scale) < 2 ? 128 : 64)  // two groups in the shared memory of a compute unit
#endif
#define VIF_RADIUS(scale) (8 >> (scale))
#define VIF_TILE_H 8
#define VIF_RUN 8
#define VIF_TILE_W(scale) ((VIF_THREADS(scale) - 2 * VIF_RADIUS(scale)) / VIF_RUN * VIF_RUN)

#define VIF_MAX_GAINS 4

// What a kernel needs to know besides the pictures.
struct VifArgs {
  int32_t w, h;                 // of this scale
  uint32_t bits;                // of scale 0 samples: 8 to 16
  uint32_t n_gains;             // 1 to 4; 0 for no sums, only the planes of the next scale
  double gains[VIF_MAX_GAINS];  // limits of the enhancement gain, 1.0 to 100.0
};

// The planes of scale 1, 2 or 3, 16-byte aligned. Whole rows may be written.
struct VifPlanes {
  uint16_t *ref, *dis;
  uint32_t stride;  // samples from row to row, a multiple of 8
};

// Vertically filtered samples at one place: means (reference low), squares and product.
struct alignas(16) VifMoments {
  uint32_t means, xx, yy, xy;
};

// An odd distance of rows in units of 16 bytes keeps eight rows in different memory banks, and so does
// a distance of 1 modulo 4 for the words of the next scale.
template <int S> struct VifShared {
  VifMoments moments[VIF_TILE_H][VIF_THREADS(S) + 1];
  uint32_t next[VIF_TILE_H / 2][VIF_THREADS(S) + 1];
  alignas(16) uint16_t log2_steps[4096];
};

static constexpr int32_t VIF_NOISE = 1 << 17;
static constexpr double VIF_EPSILON = 65536 * 1.0e-10;
// What `vif_log2` yields for VIF_NOISE.
static constexpr uint32_t VIF_LOG2_NOISE = 17 * 2048 + 142 * 2048 - 30720;

// Tap `i` from the centre of the filter of a scale, in 1/65536; zero outside.
HV_DEV constexpr uint32_t vif_tap(int scale, int i) {
  constexpr uint16_t taps[4][9] = {{7784, 7455, 6547, 5274, 3896, 2640, 1640, 935, 489},
                                   {14692, 12590, 7925, 3663, 1244},
                                   {26386, 16004, 3571},
                                   {43728, 10904}};
  return i < -8 || i > 8 ? 0 : taps[scale][i < 0 ? -i : i];
}

// Reflects about the first and the last sample; clamped where only pixels outside the picture ask.
HV_DEV int32_t vif_mirror(int32_t i, int32_t n) {
  i = hv_abs(i);
  return hv_max(hv_min(i, 2 * n - 2 - i), 0);
}

// ---- f64 without slow conversions ----------------------------------------------------------
HV_DEV double vif_f64_of_bits(uint64_t bits) { return __builtin_bit_cast(double, bits); }
HV_DEV double vif_f64(uint32_t v) { return vif_f64_of_bits(0x4330000000000000u | v) - 0x1p52; }
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

// As `vif_f64`, for a few: the NVIDIA instruction is slow, but it is only one.
HV_DEV double vif_f64_slow(uint32_t v) {
#if defined(HV_NV)
  double r;
  asm("cvt.rn.f64.u32 %0, %1;" : "=d"(r) : "r"(v));
  return r;
#else
  return vif_f64(v);
#endif
}

// a / b, correctly rounded: the compilers' sequences without the scaling that only extreme exponents need.
HV_DEV double vif_divide(double a, double b) {
#if defined(HV_HOST)
  return a / b;
#else
  #if defined(HV_NV)
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(b));
  double e = __builtin_fma(-b, y, 1.0);
  y = __builtin_fma(__builtin_fma(e, e, e), y, y);
  #else
  double y = __builtin_amdgcn_rcp(b);
  y = __builtin_fma(__builtin_fma(-b, y, 1.0), y, y);
  #endif
  y = __builtin_fma(__builtin_fma(-b, y, 1.0), y, y);
  double q = a * y;
  return __builtin_fma(__builtin_fma(-b, q, a), y, q);
#endif
}

// max(v, 0) + VIF_NOISE, and v >= 0, both without the fraction.
HV_DEV uint32_t vif_noise(double v) {
#if defined(HV_NV)
  double r;
  asm("add.rm.f64 %0, %1, %2;" : "=d"(r) : "d"(v), "d"(0x1.8p52 + VIF_NOISE));
  return (uint32_t)hv_max((int32_t)__builtin_bit_cast(uint64_t, r), VIF_NOISE);
#else
  return (uint32_t)(v > 0 ? v : 0) + VIF_NOISE;
#endif
}
HV_DEV uint32_t vif_trunc(double v) {
#if defined(HV_NV)
  double r;
  asm("add.rz.f64 %0, %1, %2;" : "=d"(r) : "d"(v), "d"(0x1p52));
  return (uint32_t)__builtin_bit_cast(uint64_t, r);
#else
  return (uint32_t)v;
#endif
}

// log2 in 1/2048 plus `LOG2_BIAS` of src/metrics/vif.rs, which also describes the table. Here an entry is less
// by 8 times its index, so that the index need not be cut out of what it is added to.
HV_DEV uint32_t vif_log2(const uint16_t *steps, uint32_t v) {
#if defined(HV_NV)
  float f;
  asm("cvt.rz.f32.u32 %0, %1;" : "=f"(f) : "r"(v));
  const uint32_t bits = __builtin_bit_cast(uint32_t, f);
  return (bits + 256 * *(const uint16_t *)((const uint8_t *)steps + (bits >> 10 & 0x1ffe))) >> 12;
#else
  const int zeros = hv_clz(v);
  const uint32_t u = ((uint32_t)(157 - zeros) << 15) + (v << zeros >> 16);
  return (u + steps[u >> 3 & 4095]) >> 4;
#endif
}
HV_DEV void vif_load_log2_steps(const uint16_t *from, uint16_t *steps) {
  for (uint32_t i = threadIdx.x; i < 4096 / 8; i += blockDim.x) {
    HvU32x4 v = hv_ldg((const HvU32x4 *)from + i);
#pragma unroll
    for (int k = 0; k < 4; k++) v.v[k] -= (64 * i + 16 * k) * 0x10001 + 0x80000;
    ((HvU32x4 *)steps)[i] = v;
  }
}

// ---- sums ----------------------------------------------------------------------------------
struct VifSums {
  uint32_t den_log, flat_count;
  uint64_t flat_energy;
  uint32_t num_log[VIF_MAX_GAINS];
};

// Variances and covariances from means with 16 fraction bits and mean products.
template <int N>
HV_DEV void vif_variances(const uint32_t (&m1)[N], const uint32_t (&m2)[N], const uint32_t (&xx)[N],
                          const uint32_t (&yy)[N], const uint32_t (&xy)[N], int32_t (&var1)[N],
                          int32_t (&var2)[N], int32_t (&cov)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    var1[i] = (int32_t)(xx[i] - (uint32_t)(((uint64_t)m1[i] * m1[i] + (1u << 31)) >> 32));
    var2[i] = (int32_t)(yy[i] - (uint32_t)(((uint64_t)m2[i] * m2[i] + (1u << 31)) >> 32));
    cov[i] = (int32_t)(xy[i] - (uint32_t)(((uint64_t)m1[i] * m2[i] + (1u << 31)) >> 32));
  }
}

// Adds the pixels with these variances and covariances.
template <int N>
HV_DEV void vif_statistics(const int32_t (&var1)[N], const int32_t (&var2)[N], const int32_t (&cov)[N],
                           const VifArgs &args, const uint16_t *steps, VifSums &sums) {
  double gain[N], v1[N];
  uint32_t den = 0, noise_log = 0;
  uint32_t noise[N];
#pragma unroll
  for (int i = 0; i < N; i++) {
    // Flat pixels become such that add nothing to the logarithms.
    const bool flat = var1[i] < VIF_NOISE, related = !flat && hv_min(var2[i], cov[i]) > 0;
    const uint32_t x = flat ? 0 : (uint32_t)var1[i], y = (uint32_t)hv_max(var2[i], 0);
    const uint32_t xy = related ? (uint32_t)cov[i] : 0;
    sums.flat_count += flat;
    sums.flat_energy += flat ? y : 0;
    den += vif_log2(steps, x + VIF_NOISE);
    double v12 = vif_f64_slow(xy);
    v1[i] = vif_f64_slow(x);
    gain[i] = vif_divide(v12, v1[i] + VIF_EPSILON);
    double explained = gain[i] * v12;
    noise[i] = vif_noise(vif_f64_slow(y) - explained);
    noise_log += vif_log2(steps, noise[i]);
  }
  sums.den_log += den - N * VIF_LOG2_NOISE;
  uint32_t num = 0;
#pragma unroll
  for (int i = 0; i < N; i++) {
    double g = gain[i] < args.gains[0] ? gain[i] : args.gains[0];
    num += vif_log2(steps, vif_trunc(g * g * v1[i]) + noise[i]);
  }
  sums.num_log[0] += num - noise_log;
#pragma unroll 1
  for (uint32_t k = 1; k < args.n_gains; k++) {
    double limit = k == 1 ? args.gains[1] : k == 2 ? args.gains[2] : args.gains[3];
    num = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
      double g = gain[i] < limit ? gain[i] : limit;
      num += vif_log2(steps, vif_trunc(g * g * v1[i]) + noise[i]);
    }
    num -= noise_log;
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
template <int S> HV_DEV void vif_add_sums(const VifSums &sums, uint32_t n_gains, uint64_t *out) {
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
    if (k < n_gains) {
      const uint32_t num_log = vif_wave_sum(sums.num_log[k]);
      if (hv_lane() == 0) hv_atomic_add_u64(out + 4 + k, num_log);
    }
}

// ---- vertical pass -------------------------------------------------------------------------
// Samples of one column, from row `first` on.
template <class T, int ROWS>
HV_DEV void vif_column(const uint8_t *column, uint32_t stride, uint32_t shift, uint32_t bits, int32_t first,
                       int32_t h, uint32_t (&v)[ROWS]) {
  if (first >= 0 && first + ROWS <= h) {
    const uint8_t *at = column + (uint64_t)(uint32_t)first * stride;
#pragma unroll
    for (int k = 0; k < ROWS; k++, at += stride) v[k] = hv_sample<T>(at, shift, bits);
  } else {
#pragma unroll
    for (int k = 0; k < ROWS; k++)
      v[k] = hv_sample<T>(column + (uint64_t)(uint32_t)vif_mirror(first + k, h) * stride, shift, bits);
  }
}

// Four 8-bit samples a word, for dot products.
template <int ROWS> HV_DEV void vif_pack(const uint32_t (&v)[ROWS], uint32_t (&words)[ROWS / 4]) {
#pragma unroll
  for (int k = 0; k < ROWS; k += 4)
    words[k / 4] = (v[k] | v[k + 1] << 8) | (v[k + 2] | v[k + 3] << 8) << 16;
}

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
template <int F, int ROWS> HV_DEV uint32_t vif_mean_u16(const uint32_t (&v)[ROWS], int row, uint32_t bits) {
  uint32_t sum = 1u << (bits - 1);
#pragma unroll
  for (int k = 0; k < ROWS; k++)
    if (vif_tap(F, k - row)) sum += vif_tap(F, k - row) * v[k];
  return sum >> bits;
}

// Filters one product of all rows, given by `product(row)`, and rounds to 16 fraction bits of an 8-bit step.
template <int S, class T, class Product, class Store>
HV_DEV void vif_products(Product product, uint32_t bits, Store store) {
  constexpr int R = VIF_RADIUS(S), ROWS = VIF_TILE_H + 2 * R;
  const uint32_t shift = 2 * (bits - 8);
  if constexpr (sizeof(T) == 1) {
    uint32_t sum[VIF_TILE_H] = {};
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
      uint32_t p = product(k);
#pragma unroll
      for (int j = 0; j < VIF_TILE_H; j++)
        if (vif_tap(S, k - j - R)) sum[j] += vif_tap(S, k - j - R) * p;
    }
#pragma unroll
    for (int j = 0; j < VIF_TILE_H; j++) store(j, sum[j]);
  } else {
#if HV_F64_FAST
    const double scale = vif_f64_of_bits((uint64_t)(1023 - shift) << 52), offset = -0x1p52 * scale;
    double sum[VIF_TILE_H];
#pragma unroll
    for (int j = 0; j < VIF_TILE_H; j++) sum[j] = VIF_HALF_UP;
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
      double p = vif_exact_fma(vif_f64_of_bits(0x4330000000000000u | product(k)), scale, offset);
#pragma unroll
      for (int j = 0; j < VIF_TILE_H; j++)
        if (vif_tap(S, k - j - R)) sum[j] = vif_exact_fma(vif_tap(S, k - j - R), p, sum[j]);
    }
#pragma unroll
    for (int j = 0; j < VIF_TILE_H; j++) store(j, vif_rint(sum[j]));
#else
    uint32_t hi[VIF_TILE_H] = {}, lo[VIF_TILE_H];
#pragma unroll
    for (int j = 0; j < VIF_TILE_H; j++) lo[j] = 1u << shift >> 1;
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
      uint32_t p = product(k);
#pragma unroll
      for (int j = 0; j < VIF_TILE_H; j++)
        if (vif_tap(S, k - j - R)) {
          hi[j] += vif_tap(S, k - j - R) * (p >> 16);
          lo[j] += vif_tap(S, k - j - R) * (p & 0xffff);
        }
    }
#pragma unroll
    for (int j = 0; j < VIF_TILE_H; j++) store(j, (hi[j] << (16 - shift)) + (lo[j] >> shift));
#endif
  }
}

// Filters one column of the tile from its samples, `VIF_RADIUS(S)` rows more than the tile at either end.
template <int S, class T>
HV_DEV void vif_vertical(VifShared<S> &shared, const uint32_t (&r)[VIF_TILE_H + 2 * VIF_RADIUS(S)],
                         const uint32_t (&d)[VIF_TILE_H + 2 * VIF_RADIUS(S)], uint32_t bits) {
  constexpr int R = VIF_RADIUS(S), ROWS = VIF_TILE_H + 2 * R;
  const uint32_t x = threadIdx.x;
  if constexpr (sizeof(T) == 1) {
    uint32_t rw[ROWS / 4], dw[ROWS / 4];
    vif_pack(r, rw);
    vif_pack(d, dw);
#pragma unroll
    for (int j = 0; j < VIF_TILE_H; j++)
      shared.moments[j][x].means = vif_mean_u8<S, ROWS>(rw, R + j) | vif_mean_u8<S, ROWS>(dw, R + j) << 16;
#pragma unroll
    for (int j = 0; j < VIF_TILE_H; j += 2)
      shared.next[j / 2][x] = vif_mean_u8<S + 1, ROWS>(rw, R + j) | vif_mean_u8<S + 1, ROWS>(dw, R + j) << 16;
  } else {
#pragma unroll
    for (int j = 0; j < VIF_TILE_H; j++)
      shared.moments[j][x].means = vif_mean_u16<S>(r, R + j, bits) | vif_mean_u16<S>(d, R + j, bits) << 16;
    if constexpr (S < 3) {
#pragma unroll
      for (int j = 0; j < VIF_TILE_H; j += 2)
        shared.next[j / 2][x] = vif_mean_u16<S + 1>(r, R + j, bits) | vif_mean_u16<S + 1>(d, R + j, bits) << 16;
    }
  }
  vif_products<S, T>([&](int k) { return r[k] * r[k]; }, bits,
                     [&](int j, uint32_t v) { shared.moments[j][x].xx = v; });
  vif_products<S, T>([&](int k) { return d[k] * d[k]; }, bits,
                     [&](int j, uint32_t v) { shared.moments[j][x].yy = v; });
  vif_products<S, T>([&](int k) { return r[k] * d[k]; }, bits,
                     [&](int j, uint32_t v) { shared.moments[j][x].xy = v; });
}

// ---- horizontal pass -----------------------------------------------------------------------
// Variances and covariances of `VIF_RUN` pixels from their vertically filtered neighbourhood.
template <int S>
HV_DEV void vif_horizontal(const VifMoments *row, int32_t (&var1)[VIF_RUN], int32_t (&var2)[VIF_RUN],
                           int32_t (&cov)[VIF_RUN]) {
  constexpr int R = VIF_RADIUS(S);
  uint32_t m1[VIF_RUN] = {}, m2[VIF_RUN] = {};
#if HV_F64_FAST
  double xx[VIF_RUN], yy[VIF_RUN], xy[VIF_RUN];
#pragma unroll
  for (int j = 0; j < VIF_RUN; j++) xx[j] = yy[j] = xy[j] = VIF_HALF_UP;
#else
  uint32_t xx[VIF_RUN] = {}, yy[VIF_RUN] = {}, xy[VIF_RUN] = {};  // of the high halves
  uint32_t xx_lo[VIF_RUN], yy_lo[VIF_RUN], xy_lo[VIF_RUN];
#pragma unroll
  for (int j = 0; j < VIF_RUN; j++) xx_lo[j] = yy_lo[j] = xy_lo[j] = 1 << 15;
#endif
#pragma unroll
  for (int k = 0; k < VIF_RUN + 2 * R; k++) {
    const VifMoments v = row[k];
    const uint32_t v1 = v.means & 0xffff, v2 = v.means >> 16;
#if HV_F64_FAST
    const double vxx = vif_f64(v.xx), vyy = vif_f64(v.yy), vxy = vif_f64(v.xy);
#endif
#pragma unroll
    for (int j = 0; j < VIF_RUN; j++) {
      const uint32_t tap = vif_tap(S, k - j - R);
      if (!tap) continue;
      m1[j] += tap * v1;
      m2[j] += tap * v2;
#if HV_F64_FAST
      xx[j] = vif_exact_fma(tap * 0x1p-16, vxx, xx[j]);
      yy[j] = vif_exact_fma(tap * 0x1p-16, vyy, yy[j]);
      xy[j] = vif_exact_fma(tap * 0x1p-16, vxy, xy[j]);
#else
      xx[j] += tap * (v.xx >> 16);
      yy[j] += tap * (v.yy >> 16);
      xy[j] += tap * (v.xy >> 16);
      xx_lo[j] += tap * (v.xx & 0xffff);
      yy_lo[j] += tap * (v.yy & 0xffff);
      xy_lo[j] += tap * (v.xy & 0xffff);
#endif
    }
  }
  uint32_t xx_mean[VIF_RUN], yy_mean[VIF_RUN], xy_mean[VIF_RUN];
#pragma unroll
  for (int j = 0; j < VIF_RUN; j++) {
#if HV_F64_FAST
    xx_mean[j] = vif_rint(xx[j]), yy_mean[j] = vif_rint(yy[j]), xy_mean[j] = vif_rint(xy[j]);
#else
    xx_mean[j] = xx[j] + (xx_lo[j] >> 16);
    yy_mean[j] = yy[j] + (yy_lo[j] >> 16);
    xy_mean[j] = xy[j] + (xy_lo[j] >> 16);
#endif
  }
  vif_variances(m1, m2, xx_mean, yy_mean, xy_mean, var1, var2, cov);
}

// The next scale's samples of the tile at x0, y0: two neighbours for each thread.
template <int S>
HV_DEV void vif_next_scale(const VifShared<S> &shared, int32_t x0, int32_t y0, const VifArgs &args,
                           const VifPlanes &next) {
  constexpr int R = VIF_RADIUS(S + 1);
  const uint32_t pair = threadIdx.x / (VIF_TILE_H / 2), row = threadIdx.x % (VIF_TILE_H / 2);
  const uint32_t x = (uint32_t)x0 / 2 + 2 * pair, y = (uint32_t)y0 / 2 + row;
  if (pair >= VIF_TILE_W(S) / 4 || x >= (uint32_t)args.w / 2 || y >= (uint32_t)args.h / 2) return;
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
  *(uint32_t *)(next.ref + at) = r[0] >> 16 | (r[1] & 0xffff0000);
  *(uint32_t *)(next.dis + at) = d[0] >> 16 | (d[1] & 0xffff0000);
}

// ---- scale 0 of 8-bit samples on tensor cores -----------------------------------------------
#if HV_MMA
// Both filters are products with constant matrices: 16 outputs of the 17-tap filter need exactly 32 inputs.
// Taps and samples wider than a byte are split into bytes; products of equal weight add up in one
// accumulator. A warp finishes 16 rows and walks along x by 16 columns; its lane is 4 g + q below.
//
// Vertical pass: A[row][input row] B[input row][column]. The eight columns of a product are every second one,
// so that the results of a thread are four neighbours in two rows, which the horizontal pass,
// A[column][input column] B[input column][row], takes as they are: the 16 columns before them
// and these are its 32 inputs.
#define VIF_MMA_WARPS 4

// Words of A for each lane: the taps' low bytes and high bytes; then those of the next scale, low bytes in
// the rows 0 to 7 and high bytes in the rows 8 to 15. First for the vertical pass, whose inputs come in the
// order of `ldmatrix`, then for the horizontal one.
struct VifMatrices {
  alignas(16) uint32_t words[2][3][32][4];
  constexpr VifMatrices() : words() {
    for (int pass = 0; pass < 2; pass++)
      for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
          for (int byte = 0; byte < 4; byte++) {
            const int g = lane / 4, q = lane % 4, row = g + i % 2 * 8;
            const int input = i / 2 * 16 + (pass ? 4 * q + byte : byte / 2 * 8 + 2 * q + byte % 2);
            const uint32_t tap = vif_tap(0, input - row - 8), next = vif_tap(1, input - 2 * g - 8);
            words[pass][0][lane][i] |= (tap & 255) << 8 * byte;
            words[pass][1][lane][i] |= (tap >> 8) << 8 * byte;
            words[pass][2][lane][i] |= (i % 2 ? next >> 8 : next & 255) << 8 * byte;
          }
  }
};
static __device__ const VifMatrices vif_matrices;

struct VifMatrix {
  uint32_t a[4];
};
struct VifProduct {
  uint32_t c[4];
};
HV_DEV VifMatrix vif_matrix(int pass, int which) {
  const HvU32x4 words = hv_ldg((const HvU32x4 *)vif_matrices.words[pass][which][hv_lane()]);
  return {{words.v[0], words.v[1], words.v[2], words.v[3]}};
}

// m b + c. The pair b is one column of inputs 0 to 15 and one of inputs 16 to 31.
HV_DEV VifProduct vif_mma(const VifMatrix &m, uint32_t b0, uint32_t b1, const VifProduct &c) {
  VifProduct r;
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=r"(r.c[0]), "=r"(r.c[1]), "=r"(r.c[2]), "=r"(r.c[3])
      : "r"(m.a[0]), "r"(m.a[1]), "r"(m.a[2]), "r"(m.a[3]), "r"(b0), "r"(b1), "r"(c.c[0]), "r"(c.c[1]), "r"(c.c[2]),
        "r"(c.c[3]));
  return r;
}
HV_DEV void vif_sync_warp() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
HV_DEV uint32_t vif_prmt(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "n"(selector));
  return r;
}

// Two lanes' halves of one horizontal B: byte planes of four neighbouring values.
HV_DEV void vif_planes_u16(const uint32_t (&v)[4], uint32_t *planes) {
  const uint32_t t = vif_prmt(v[0], v[1], 0x5140), u = vif_prmt(v[2], v[3], 0x5140);
  planes[0] = vif_prmt(t, u, 0x5410);
  planes[1] = vif_prmt(t, u, 0x7632);
}
HV_DEV void vif_planes_u32(const uint32_t (&v)[4], uint32_t *planes) {
  vif_planes_u16(v, planes);
  const uint32_t t = vif_prmt(v[0], v[1], 0x7362), u = vif_prmt(v[2], v[3], 0x7362);
  planes[2] = vif_prmt(t, u, 0x5410);
  planes[3] = vif_prmt(t, u, 0x7632);
}

// Indices of planes: of each of the two 8-row halves the means' 2 + 2 and the products' 3 x 4, and the means
// of the next scale.
enum { VIF_MEANS = 0, VIF_PRODUCTS = 4, VIF_HALF = 16, VIF_NEXT = 32, VIF_N_PLANES = 36 };

// Vertical pass of one picture's means. `b`: inputs of even and of odd columns.
HV_DEV void vif_mma_means(const VifMatrix (&m)[3], const VifProduct &half, const uint32_t (&b)[2][2],
                          int picture, uint32_t (&planes)[VIF_N_PLANES]) {
  VifProduct lo[2], hi[2], next[2];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    lo[j] = vif_mma(m[0], b[j][0], b[j][1], half);
    hi[j] = vif_mma(m[1], b[j][0], b[j][1], {});
    next[j] = vif_mma(m[2], b[j][0], b[j][1], half);
  }
  uint32_t v[4];
#pragma unroll
  for (int h = 0; h < 2; h++) {
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = hi[i % 2].c[2 * h + i / 2] + (lo[i % 2].c[2 * h + i / 2] >> 8);
    vif_planes_u16(v, planes + h * VIF_HALF + VIF_MEANS + 2 * picture);
  }
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = next[i % 2].c[2 + i / 2] - 128 + (next[i % 2].c[i / 2] >> 8);
  vif_planes_u16(v, planes + VIF_NEXT + 2 * picture);
}

// Byte planes of the products of four samples in each of `a` and `b`.
HV_DEV void vif_mma_multiply(uint32_t a, uint32_t b, uint32_t &lo, uint32_t &hi) {
  // A sample in the second byte has a product in the third and fourth.
  const uint32_t a2 = a >> 16, b2 = b >> 16;
  const uint32_t p = (a & 255) * (b & 255) + (a & 0xff00) * (b & 0xff00);
  const uint32_t p2 = (a2 & 255) * (b2 & 255) + (a2 & 0xff00) * (b2 & 0xff00);
  lo = vif_prmt(p, p2, 0x6420);
  hi = vif_prmt(p, p2, 0x7531);
}

// Vertical pass of one of the three products.
HV_DEV void vif_mma_products(const VifMatrix (&m)[3], const uint32_t (&a)[2][2], const uint32_t (&b)[2][2], int which,
                             uint32_t (&planes)[VIF_N_PLANES]) {
  uint32_t sum[2][4];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    uint32_t lo[2], hi[2];
    vif_mma_multiply(a[j][0], b[j][0], lo[0], hi[0]);
    vif_mma_multiply(a[j][1], b[j][1], lo[1], hi[1]);
    const VifProduct w0 = vif_mma(m[0], lo[0], lo[1], {});
    const VifProduct w1 = vif_mma(m[1], lo[0], lo[1], vif_mma(m[0], hi[0], hi[1], {}));
    const VifProduct w2 = vif_mma(m[1], hi[0], hi[1], {});
#pragma unroll
    for (int i = 0; i < 4; i++) sum[j][i] = w0.c[i] + w1.c[i] * 256 + w2.c[i] * 65536;
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const uint32_t v[4] = {sum[0][2 * half], sum[1][2 * half], sum[0][2 * half + 1], sum[1][2 * half + 1]};
    vif_planes_u32(v, planes + half * VIF_HALF + VIF_PRODUCTS + 4 * which);
  }
}

// Horizontal pass over planes `first` on of the columns before and of these.
HV_DEV void vif_mma_mean_row(const VifMatrix (&m)[3], const uint32_t *before, const uint32_t *planes,
                             uint32_t (&mean)[4]) {
  const VifProduct w0 = vif_mma(m[0], before[0], planes[0], {});
  const VifProduct w1 = vif_mma(m[1], before[0], planes[0], vif_mma(m[0], before[1], planes[1], {}));
  const VifProduct w2 = vif_mma(m[1], before[1], planes[1], {});
#pragma unroll
  for (int i = 0; i < 4; i++) mean[i] = w0.c[i] + w1.c[i] * 256 + w2.c[i] * 65536;
}
HV_DEV void vif_mma_product_row(const VifMatrix (&m)[3], const VifProduct &half, const uint32_t *before,
                                const uint32_t *planes, uint32_t (&mean)[4]) {
  const VifProduct w0 = vif_mma(m[0], before[0], planes[0], {});
  const VifProduct w1 = vif_mma(m[1], before[0], planes[0], vif_mma(m[0], before[1], planes[1], half));
  const VifProduct w2 = vif_mma(m[1], before[1], planes[1], vif_mma(m[0], before[2], planes[2], {}));
  const VifProduct w3 = vif_mma(m[1], before[2], planes[2], vif_mma(m[0], before[3], planes[3], {}));
  const VifProduct w4 = vif_mma(m[1], before[3], planes[3], {});
#pragma unroll
  for (int i = 0; i < 4; i++)
    mean[i] = (w4.c[i] * 256 + w3.c[i]) * 256 + (w2.c[i] + ((w1.c[i] + (w0.c[i] >> 8)) >> 8));
}

struct VifMmaShared {
  alignas(16) uint32_t samples[VIF_MMA_WARPS][2][32][4];  // of 16 columns, by row
  uint32_t before[VIF_MMA_WARPS][VIF_N_PLANES][32];       // planes of the 16 columns before, by lane
  alignas(16) uint16_t log2_steps[4096];
};

// Sixteen samples of a row from column `x` on.
struct VifSamples {
  uint32_t v[4];
};
HV_DEV VifSamples vif_mma_load(const uint8_t *row, int32_t x, int32_t w) {
  VifSamples s;
  if (x >= 0 && x + 16 <= w) {
    const uint64_t *at = (const uint64_t *)(row + x);
    const uint64_t lo = at[0], hi = at[1];
    s = {{(uint32_t)lo, (uint32_t)(lo >> 32), (uint32_t)hi, (uint32_t)(hi >> 32)}};
  } else {
    s = {};
#pragma unroll 1
    for (int k = 15; k >= 0; k--) {
      const uint32_t v = hv_ldg(row + vif_mirror(x + k, w));
      s.v[3] = s.v[3] << 8 | s.v[2] >> 24;
      s.v[2] = s.v[2] << 8 | s.v[1] >> 24;
      s.v[1] = s.v[1] << 8 | s.v[0] >> 24;
      s.v[0] = s.v[0] << 8 | v;
    }
  }
  return s;
}
// B of the vertical pass for even and odd columns.
HV_DEV void vif_mma_inputs(const uint32_t (*rows)[4], uint32_t (&b)[2][2]) {
  uint32_t r0, r1, r2, r3;
  const uint32_t at = (uint32_t)(uint64_t)(__attribute__((address_space(3))) const uint32_t *)rows[hv_lane()];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
               : "r"(at)
               : "memory");
  b[0][0] = vif_prmt(r0, r1, 0x6420);
  b[1][0] = vif_prmt(r0, r1, 0x7531);
  b[0][1] = vif_prmt(r2, r3, 0x6420);
  b[1][1] = vif_prmt(r2, r3, 0x7531);
}

#ifndef VIF_MMA_BLOCKS
#define VIF_MMA_BLOCKS 1
#endif
extern "C" __global__ void __launch_bounds__(32 * VIF_MMA_WARPS, VIF_MMA_BLOCKS) vif0_u8(const HvFrame *__restrict__ frame, VifArgs args, VifPlanes next,
                                       const uint16_t *__restrict__ log2_steps, uint64_t *__restrict__ out) {
  __shared__ VifMmaShared shared;
  vif_load_log2_steps(log2_steps, shared.log2_steps);
  __syncthreads();

  const uint32_t lane = hv_lane(), warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
  const int32_t w = args.w, h = args.h;
  const int32_t steps = ((w + 15) / 16 + (int32_t)gridDim.x - 1) / (int32_t)gridDim.x;
  const int32_t x0 = (int32_t)blockIdx.x * steps * 16;
  const HvPlane ref = frame->ref[0], dis = frame->dis[0];
  const VifMatrix v_matrix[3] = {vif_matrix(0, 0), vif_matrix(0, 1), vif_matrix(0, 2)};
  const VifMatrix h_matrix[3] = {vif_matrix(1, 0), vif_matrix(1, 1), vif_matrix(1, 2)};
  // What rounds when a sum is cut by 8 bits. Without the assembler the compiler would make it anew each time.
  VifProduct half;
#pragma unroll
  for (int i = 0; i < 4; i++) asm volatile("mov.b32 %0, 128;" : "=r"(half.c[i]));
  VifSums sums = {};
  for (int32_t y0 = 16 * (int32_t)(blockIdx.y * VIF_MMA_WARPS + warp); y0 < h;
       y0 += 16 * VIF_MMA_WARPS * (int32_t)gridDim.y) {
    const uint32_t y = (uint32_t)vif_mirror(y0 - 8 + (int32_t)lane, h);
    const uint8_t *ref_row = ref.data + (uint64_t)y * ref.stride, *dis_row = dis.data + (uint64_t)y * dis.stride;
    VifSamples r = vif_mma_load(ref_row, x0 - 8, w), d = vif_mma_load(dis_row, x0 - 8, w);
    for (int32_t t = 0; t <= steps; t++) {
      const int32_t x = x0 - 8 + 16 * t;  // of these columns; results are for 8 columns less
      if (x - 8 >= w) break;
      *(VifSamples *)shared.samples[warp][0][lane] = r;
      *(VifSamples *)shared.samples[warp][1][lane] = d;
      vif_sync_warp();
      uint32_t planes[VIF_N_PLANES];
      {
        uint32_t rb[2][2], db[2][2];
        vif_mma_inputs(shared.samples[warp][0], rb);
        vif_mma_inputs(shared.samples[warp][1], db);
        vif_sync_warp();
        if (t < steps) {
          r = vif_mma_load(ref_row, x + 16, w);
          d = vif_mma_load(dis_row, x + 16, w);
        }
        vif_mma_means(v_matrix, half, rb, 0, planes);
        vif_mma_means(v_matrix, half, db, 1, planes);
        vif_mma_products(v_matrix, rb, rb, 0, planes);
        vif_mma_products(v_matrix, db, db, 1, planes);
        vif_mma_products(v_matrix, rb, db, 2, planes);
      }
      if (t > 0) {
        uint32_t before[VIF_N_PLANES];
#pragma unroll
        for (int i = 0; i < VIF_N_PLANES; i++) before[i] = shared.before[warp][i][lane];
        // The next scale: one column, two rows.
#pragma unroll
        for (int picture = 0; picture < 2; picture++) {
          const int p = VIF_NEXT + 2 * picture;
          const VifProduct a = vif_mma(h_matrix[2], before[p], planes[p], {});
          const VifProduct b = vif_mma(h_matrix[2], before[p + 1], planes[p + 1], half);
#pragma unroll
          for (uint32_t i = 0; i < 2; i++) {
            const uint32_t v = (((a.c[i] >> 8) + a.c[2 + i] + b.c[i]) >> 8) + b.c[2 + i] - 128;
            const uint32_t nx = (uint32_t)(x - 8) / 2 + g, ny = (uint32_t)y0 / 2 + 2 * q + i;
            if (nx < (uint32_t)w / 2 && ny < (uint32_t)h / 2)
              (picture ? next.dis : next.ref)[(uint64_t)ny * next.stride + nx] = (uint16_t)v;
          }
        }
        if (args.n_gains) {
#pragma unroll
          for (int i8 = 0; i8 < 2; i8++) {
            const int p = i8 * VIF_HALF;
            uint32_t m1[4], m2[4], xx[4], yy[4], xy[4];
            int32_t var1[4], var2[4], cov[4];
            vif_mma_mean_row(h_matrix, before + p, planes + p, m1);
            vif_mma_mean_row(h_matrix, before + p + 2, planes + p + 2, m2);
            vif_mma_product_row(h_matrix, half, before + p + 4, planes + p + 4, xx);
            vif_mma_product_row(h_matrix, half, before + p + 8, planes + p + 8, yy);
            vif_mma_product_row(h_matrix, half, before + p + 12, planes + p + 12, xy);
            vif_variances(m1, m2, xx, yy, xy, var1, var2, cov);
            if (x + 8 > w || y0 + 16 > h) {
#pragma unroll
              for (int i = 0; i < 4; i++)
                if (x - 8 + (int32_t)g + 8 * (i / 2) >= w || y0 + 8 * i8 + 2 * (int32_t)q + i % 2 >= h) {
                  var1[i] = var2[i] = 0;
                  sums.flat_count--;
                }
            }
            vif_statistics(var1, var2, cov, args, shared.log2_steps, sums);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < VIF_N_PLANES; i++) shared.before[warp][i][lane] = planes[i];
    }
  }
  if (args.n_gains) vif_add_sums<0>(sums, args.n_gains, out);
}
#endif

// ---- a scale -------------------------------------------------------------------------------
template <int S, class T>
HV_DEV void vif_scale(VifShared<S> &shared, const uint8_t *ref, uint32_t ref_stride, uint32_t ref_shift,
                      const uint8_t *dis, uint32_t dis_stride, uint32_t dis_shift, uint32_t bits,
                      const VifArgs &args, const VifPlanes &next, const uint16_t *log2_steps, uint64_t *out) {
  constexpr int R = VIF_RADIUS(S), ROWS = VIF_TILE_H + 2 * R;
  vif_load_log2_steps(log2_steps, shared.log2_steps);

  const int32_t x0 = (int32_t)blockIdx.x * VIF_TILE_W(S);
  const uint32_t column = (uint32_t)vif_mirror(x0 - R + (int32_t)threadIdx.x, args.w) * (uint32_t)sizeof(T);
  const uint32_t tile_row = threadIdx.x % VIF_TILE_H, run = threadIdx.x / VIF_TILE_H * VIF_RUN;
  VifSums sums = {};
  for (int32_t y0 = (int32_t)blockIdx.y * VIF_TILE_H; y0 < args.h; y0 += (int32_t)gridDim.y * VIF_TILE_H) {
    uint32_t r[ROWS], d[ROWS];
    vif_column<T>(ref + column, ref_stride, ref_shift, bits, y0 - R, args.h, r);
    vif_column<T>(dis + column, dis_stride, dis_shift, bits, y0 - R, args.h, d);
    vif_vertical<S, T>(shared, r, d, bits);
    __syncthreads();
    if (args.n_gains && run < VIF_TILE_W(S)) {
      int32_t var1[VIF_RUN], var2[VIF_RUN], cov[VIF_RUN];
      vif_horizontal<S>(&shared.moments[tile_row][run], var1, var2, cov);
      const int32_t inside = y0 + (int32_t)tile_row < args.h ? args.w - x0 - (int32_t)run : 0;
      if (inside < VIF_RUN) {
#pragma unroll
        for (int i = 0; i < VIF_RUN; i++)
          if (i >= inside) {
            var1[i] = var2[i] = 0;
            sums.flat_count--;
          }
      }
      vif_statistics(var1, var2, cov, args, shared.log2_steps, sums);
    }
    if constexpr (S < 3) vif_next_scale<S>(shared, x0, y0, args, next);
    __syncthreads();
  }
  if (args.n_gains) vif_add_sums<S>(sums, args.n_gains, out);
}

// Scale 0 from the luma of a frame, 8-bit samples and wider ones. Writes the planes of scale 1 to `next` and
// adds to `out`: 8 u64 for each scale, zeroed before the frame: den_log, flat_count, flat_energy, unused,
// then num_log of each gain limit. `log2_steps`: `LOG2_STEPS` of src/metrics/vif.rs as
// 4096 u16, 16-byte aligned.
#define VIF_SCALE_0(name, T, BITS)                                                                            \
  HV_KERNEL(VIF_THREADS(0), name)(const HvFrame *__restrict__ frame, VifArgs args, VifPlanes next,            \
                                  const uint16_t *__restrict__ log2_steps, uint64_t *__restrict__ out) {      \
    __shared__ VifShared<0> shared;                                                                           \
    const HvPlane ref = frame->ref[0], dis = frame->dis[0];                                                   \
    vif_scale<0, T>(shared, ref.data, ref.stride, ref.shift, dis.data, dis.stride, dis.shift, BITS, args,     \
                    next, log2_steps, out);                                                                   \
  }                                                                                                           \
  HV_EXPORT(name)
#if !HV_MMA
VIF_SCALE_0(vif0_u8, uint8_t, 8)
#endif
VIF_SCALE_0(vif0_u16, uint16_t, args.bits)

// Scales 1 to 3 from the planes that the scale before has written. Scale 3 has no `next`.
#define VIF_SCALE(name, S)                                                                                    \
  HV_KERNEL(VIF_THREADS(S), name)(VifPlanes in, VifArgs args, VifPlanes next,                                 \
                                  const uint16_t *__restrict__ log2_steps, uint64_t *__restrict__ out) {      \
    __shared__ VifShared<S> shared;                                                                           \
    vif_scale<S, uint16_t>(shared, (const uint8_t *)in.ref, in.stride * 2, 0, (const uint8_t *)in.dis,        \
                           in.stride * 2, 0, 16, args, next, log2_steps, out);                                \
  }                                                                                                           \
  HV_EXPORT(name)
VIF_SCALE(vif1, 1)
VIF_SCALE(vif2, 2)
VIF_SCALE(vif3, 3)
