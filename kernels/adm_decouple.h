// SPDX-License-Identifier: MPL-2.0
//
// Decoupling: it splits the distorted picture's detail into the part that restores the reference's and an additive
// part. Detail that points in the same direction within one degree may be enhanced up to the gain limit.
#pragma once
#include "adm_transform.h"

namespace adm {

// Tests whether (h, v) of reference and distorted point in the same direction within one degree.
HV_DEV bool same_direction(int32_t oh, int32_t ov, int32_t th, int32_t tv) {
  const float a = (float)oh, b = (float)ov, c = (float)th, d = (float)tv;
  const float dot = a * c + b * d, square = dot * dot;
  const float limit = 0x1.ffd814p-1f * (a * a + b * b) * (c * c + d * d);
  bool same = dot >= 0 && square >= limit;
  // Near the limit, all rounding errors together are less than one in 2^19.
  if (__builtin_fabsf(square - limit) < 0x1p-18f * limit) {
    const double x = (float)hv_mad_i64(oh, th, hv_mad_i64(ov, tv, 0));
    const double o = (float)hv_mad_i64(oh, oh, hv_mad_i64(ov, ov, 0));
    const double t = (float)hv_mad_i64(th, th, hv_mad_i64(tv, tv, 0));
    same = x >= 0 && x * x >= 0x1.ffd814p-1 * o * t;
  }
  return same;
}

// floor(2^30 / m) for m of 2^14 .. 2^15: the rounded quotient is equal to it or one more.
HV_DEV uint32_t reciprocal(uint32_t m) {
  const float magic = hv_rcp_f32((float)m) * 0x1p30f + 0x1p23f;  // rounds to an integer, in its low bits
  const uint32_t q = __builtin_bit_cast(uint32_t, magic) & 0x7fffff;
  return q + (uint32_t)((int32_t)((1u << 30) - q * m) >> 31);
}

// Gain limit of a pass.
struct Gain {
  double limit;
  uint32_t whole;  // the same as an integer, 0 if it has a fraction
  uint32_t bound;  // larger factors exceed every coefficient

  HV_MEMBER explicit Gain(double limit) : limit(limit), whole((uint32_t)limit) {
    bound = 0xffffffffu / whole;
    if (whole != limit) whole = 0;
  }
};

// The restored part of the distorted coefficient t, for any coefficients; only for integer gain limits if `whole`.
HV_DEV int32_t restore(int32_t o, int32_t t, bool same, const Gain &gain, bool whole) {
  const int32_t sign = o >> 31;
  const uint32_t m = (uint32_t)((o ^ sign) - sign);
  const uint32_t towards = (uint32_t)hv_max((t ^ sign) - sign, 0);
  // The reciprocal is that of the 15 significant bits of m.
  const int up = hv_clz(m | 1);
  const uint32_t inverse = reciprocal((((m << up) >> 16) + 1) >> 1);
  const uint32_t t31 = hv_min(towards, 2 * m) << (up - 1);
  const uint32_t k = hv_min((uint32_t)(hv_mad_u64(2 * inverse, t31, 1u << 31) >> 32), 32768u);
  uint32_t r = (uint32_t)(hv_mad_u64(k, m, (uint32_t)(16384 + sign)) >> 15);
  // Up to this value the result is t, limited to 0 .. o.
  if (m <= 16384) r = hv_min(towards, m);
  uint32_t most;
  if (whole) most = hv_min(hv_min(r, gain.bound) * gain.whole, towards);
  else {
    const double product = r * gain.limit;
    most = product < towards ? (uint32_t)product : towards;
  }
  r = same ? most : r;
  return ((int32_t)r ^ sign) - sign;
}

// The restored parts of the coefficients at the positions of a lane.
template <int scale>
HV_DEV void decouple(const Bands &o, const Bands &t, const bool same[2], const Gain &gain, int32_t r[3][2]) {
  bool rare = !gain.whole;
  if constexpr (scale == 0) {
    // Up to |o| = 16384 the table ratio of the specification gives t, limited to 0 .. o.
    uint32_t wide = 0;
#pragma unroll
    for (int i = 0; i < 6; i++) {
      const int32_t a = o.detail[i / 2][i % 2];
      const int32_t limit = hv_mad_i24(a, same[i % 2] ? (int32_t)gain.whole : 1, 0);
      wide |= (uint32_t)(a + 16384);
      r[i / 2][i % 2] = hv_max(hv_min(limit, 0), hv_min(hv_max(limit, 0), t.detail[i / 2][i % 2]));
    }
    rare = rare || wide >= 32768;
  } else {
#pragma unroll
    for (int i = 0; i < 6; i++)
      r[i / 2][i % 2] = restore(o.detail[i / 2][i % 2], t.detail[i / 2][i % 2], same[i % 2], gain, true);
  }
  if (rare) {  // a loop that passes all values on, for less code
    int32_t a[6], b[6], c[6];
#pragma unroll
    for (int i = 0; i < 6; i++) a[i] = o.detail[i / 2][i % 2], b[i] = t.detail[i / 2][i % 2], c[i] = 0;
#pragma unroll 1
    for (int n = 0; n < 6; n++) {
      const bool s = n % 2 ? same[1] : same[0];
      const int32_t last = restore(a[0], b[0], s, gain, gain.whole);
#pragma unroll
      for (int i = 0; i < 5; i++) a[i] = a[i + 1], b[i] = b[i + 1], c[i] = c[i + 1];
      c[5] = last;
    }
#pragma unroll
    for (int i = 0; i < 6; i++) r[i / 2][i % 2] = c[i];
  }
}

}  // namespace adm
