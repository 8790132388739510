// SPDX-License-Identifier: MPL-2.0
//
// The part of a distorted pixel that the reference explains, computed with the fastest means of the target. From the
// variances x and y and the covariance c of a pixel, libvmaf computes in double precision
//   gain = c / (x + epsilon),   y - gain c,   gain gain x,
// and continues with the integer parts of the latter two. On targets with fast f64 it is done here in the same way.
//
// Elsewhere the integer parts are found without f64. With n = c c, both terms in c are, as real numbers, n / (x + epsilon) or
// n x / (x + epsilon)^2, so n / x less a little. With n = q x + rest in integers they are
//   q + (rest - k q epsilon) / x,   k = 1 or 2,
// but for some 2^-35: the next term of the series is n / x (k epsilon / x)^2, and |rest| < 0.6 x. So the sign of
// s = rest - k q epsilon decides the integer part, unless s is so close to 0 that rounding decides:
//  - Double precision rounds x + epsilon, the quotient, and one product, or has the first two errors twice and rounds two
//    products: for terms below 2^31 it is off by less than 6 * 2^-53 * 2^31 < 2^-19.4, and the difference from y < 2^31 by
//    2^-23 more.
//  - s is computed in single precision. n / x epsilon / x is 2^-3.2 at most, and the relative error of q epsilon below 2^-20,
//    besides 2^7 epsilon < 2^-27 x; so k q epsilon is off by less than 2^-22 x; rest, by less than 2^-24.7 x; and their
//    difference by 2^-24 x.
// The total error is less than 2^-18.9 x. If |s| is not above 2^-18 x - 2^-17, or a term might not be below 2^31, f64
// decides: for one pixel in 60,000 if s were evenly distributed. c = 0 is exact, and for c = x, as in equal pictures, |s|
// is above 2^-17.3 x.
#pragma once
#include "prelude.h"

static constexpr int32_t VIF_NOISE = 1 << 17;
static constexpr double VIF_EPSILON = 65536 * 1.0e-10;

// ---- f64 without slow conversions ----------------------------------------------------------
#if HV_F64_FAST || !defined(HV_NV)
HV_DEV double vif_f64_of_bits(uint64_t bits) { return __builtin_bit_cast(double, bits); }
HV_DEV double vif_f64(uint32_t v) { return vif_f64_of_bits(0x4330000000000000u | v) - 0x1p52; }
#endif

// Does the same as `vif_f64` for a few numbers: the NVIDIA instruction is slow, but only one.
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

// ---- of a pixel ----------------------------------------------------------------------------
// A limit of the gain, from 1 to 100; `whole` is the same as an integer, or 0 where it is none.
struct VifLimit {
  double exact;
  uint32_t whole;
};

// A pixel computed with f64.
struct VifPixelF64 {
  double gain, x;
  uint32_t noise;  // the unexplained part, and the noise of the eye

  HV_MEMBER VifPixelF64() {}
  HV_MEMBER VifPixelF64(uint32_t x, uint32_t y, uint32_t c) : x(vif_f64_slow(x)) {
    const double f = vif_f64_slow(c);
    gain = vif_divide(f, this->x + VIF_EPSILON);
    const double explained = gain * f;
    noise = vif_noise(vif_f64_slow(y) - explained);
  }
  // The variance that is explained with the gain up to a limit.
  HV_MEMBER uint32_t explained(VifLimit limit) const {
    const double g = gain < limit.exact ? gain : limit.exact;
    return vif_trunc(g * g * x);
  }
};

// a b + c of f32, rounded once or twice.
HV_DEV float vif_fma(float a, float b, float c) {
#if defined(HV_HOST)
  return a * b + c;
#else
  return __builtin_fmaf(a, b, c);
#endif
}
// The minimum of two numbers, and of their absolute values; comparisons would have to handle NaN.
HV_DEV float vif_min(float a, float b) {
#if defined(HV_NV)
  float r;
  asm("min.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#elif defined(HV_HOST)
  return hv_min(a, b);
#else
  return __builtin_fminf(a, b);
#endif
}
HV_DEV uint32_t vif_bits(float v) { return __builtin_bit_cast(uint32_t, v); }

// Detects pixels that f64 has to decide.
struct VifDoubt {
  float least;  // by how much |s| is above what it has to be
  float most;   // n / x, and 2^31

  HV_MEMBER VifDoubt() : least(1), most(0) {}
  // If c is 0 and x is 1, s is 0 and exact: it becomes less by 2^-18, which does not matter to others.
  HV_MEMBER bool any() const { return !(least > -0x1p-17f && most < 0x1.f8p31f); }
};

// A pixel without f64. x is at least VIF_NOISE, or 1 if c is 0; all are below 2^31.
struct VifPixelU32 {
  uint32_t x, c;
  uint32_t noise;
  uint32_t most;  // the part that is explained with its own gain

  HV_MEMBER VifPixelU32() {}
  HV_MEMBER VifPixelU32(uint32_t x, uint32_t y, uint32_t c, VifDoubt &doubt) : x(x), c(c) {
    const float fx = (float)x, fc = (float)c, reciprocal = hv_rcp_f32(fx);
    // n / x + 2^31, wrong by 2^-21 of n / x and by 2^7: by less than 2^11. It is a multiple of 2^8, and the last 24 bits of
    // its representation are those of n / x without its last 8.
    const float about = vif_fma(fc * reciprocal, fc, 0x1p31f);
    const uint32_t minus_first = vif_bits(about) * (0u - 256);
    const int64_t left = hv_mad_i64((int32_t)minus_first, (int32_t)x, (int64_t)hv_mad_u64(c, c, 0));
    // The rest of the quotient to a tenth, rounded by an addition.
    constexpr float ROUND = 0x1.8p23f;
    const float second = vif_fma((float)(int32_t)(left >> 13) * reciprocal, 8192, ROUND);
    const uint32_t minus_more = vif_bits(ROUND) - vif_bits(second);
    const uint32_t q = 0u - minus_more - minus_first;
    const float rest = (float)(int32_t)((uint32_t)left + minus_more * x), of_n = about - 0x1p31f;
    const float minus_s1 = vif_fma(of_n, (float)VIF_EPSILON, -rest), s2 = vif_fma(of_n, -2 * (float)VIF_EPSILON, rest);
    // Signs are bits. Of the difference from y the whole number is that after q where s > 0.
    noise = (uint32_t)hv_max((int32_t)(y - q) + ((int32_t)vif_bits(minus_s1) >> 31), 0) + VIF_NOISE;
    most = q + (uint32_t)((int32_t)vif_bits(s2) >> 31);
    const float least = vif_min(__builtin_fabsf(minus_s1), __builtin_fabsf(s2));
    doubt.least = vif_min(doubt.least, vif_fma(fx, -0x1p-18f, least));
    doubt.most = -vif_min(-doubt.most, -about);
  }
  HV_MEMBER void decide(uint32_t y) {
    const VifPixelF64 exact(x, y, c);
    noise = exact.noise;
    most = vif_trunc(hv_min(exact.gain * exact.gain * exact.x, 0x1p31));
  }
  // With a whole limit. Where c <= whole x, `most` is not above whole whole x. Else it is: n / x is above it by 2 whole at
  // least, of which epsilon takes 2 whole whole epsilon < 0.2, and the fraction less than 1.
  HV_MEMBER uint32_t explained(uint32_t whole) const {
    const uint32_t square = whole * whole;
    // For a greater x the product might not fit, but for this it is already above 2^31.
    const uint32_t greatest = (uint32_t)(0x1.8p31f * hv_rcp_f32((float)square));
    return hv_min(most, square * hv_min(x, greatest));
  }
};

// ---- of several pixels ---------------------------------------------------------------------
// Pixels with these variances and covariances. What f64 has to decide is in loops over what differs, so that its code is
// there once.
#if HV_F64_FAST
template <int N> struct VifPixels {
  VifPixelF64 pixels[N];

  HV_MEMBER VifPixels(const uint32_t (&x)[N], const uint32_t (&y)[N], const uint32_t (&c)[N]) {
  #pragma unroll
    for (int i = 0; i < N; i++) pixels[i] = VifPixelF64(x[i], y[i], c[i]);
  }
  HV_MEMBER uint32_t noise(int i) const { return pixels[i].noise; }
  HV_MEMBER void explained(VifLimit limit, uint32_t (&to)[N]) const {
  #pragma unroll
    for (int i = 0; i < N; i++) to[i] = pixels[i].explained(limit);
  }
};
#else
template <int N> struct VifPixels {
  VifPixelU32 pixels[N];

  HV_MEMBER VifPixels(const uint32_t (&x)[N], const uint32_t (&y)[N], const uint32_t (&c)[N]) {
    VifDoubt doubt;
  #pragma unroll
    for (int i = 0; i < N; i++) pixels[i] = VifPixelU32(x[i], y[i], c[i], doubt);
    if (doubt.any()) decide(y);
  }
  // Processes each pixel again to find the undecided ones.
  HV_MEMBER void decide(const uint32_t (&y)[N]) {
  #pragma unroll 1
    for (int at = 0; at < N; at++) {
      uint32_t of_y = 0;
  #pragma unroll
      for (int i = 0; i < N; i++) of_y = i == at ? y[i] : of_y;
      VifDoubt doubt;
      VifPixelU32 pixel = pick(at);
      pixel = VifPixelU32(pixel.x, of_y, pixel.c, doubt);
      if (!doubt.any()) continue;
      pixel.decide(of_y);
  #pragma unroll
      for (int i = 0; i < N; i++) {
        pixels[i].noise = i == at ? pixel.noise : pixels[i].noise;
        pixels[i].most = i == at ? pixel.most : pixels[i].most;
      }
    }
  }
  // Selects a pixel by a number that is not a constant: registers have no addresses.
  HV_MEMBER VifPixelU32 pick(int at) const {
    VifPixelU32 pixel = pixels[0];
  #pragma unroll
    for (int i = 1; i < N; i++) {
      pixel.x = i == at ? pixels[i].x : pixel.x;
      pixel.c = i == at ? pixels[i].c : pixel.c;
    }
    return pixel;
  }
  HV_MEMBER uint32_t noise(int i) const { return pixels[i].noise; }
  HV_MEMBER void explained(VifLimit limit, uint32_t (&to)[N]) const {
    if (limit.whole) {
  #pragma unroll
      for (int i = 0; i < N; i++) to[i] = pixels[i].explained(limit.whole);
      return;
    }
  #pragma unroll 1
    for (int at = 0; at < N; at++) {
      const VifPixelU32 pixel = pick(at);
      const uint32_t explained = VifPixelF64(pixel.x, 0, pixel.c).explained(limit);
  #pragma unroll
      for (int i = 0; i < N; i++) to[i] = i == at ? explained : to[i];
    }
  }
};
#endif
