// SPDX-License-Identifier: MPL-2.0
//
// The wavelet transform of ADM: from the samples of one scale of a picture to its four bands, row after row. Only the
// low band is stored, as the input of the next scale: the vertical filters keep rows in registers, and the horizontal
// ones use shuffles.
#pragma once
#include "adm_args.h"

namespace adm {

// The place of a lane's work.
struct Lane {
  int x;                 // first of the two columns
  uint32_t left, right;  // neighbouring lanes
  bool own;              // not just there for its neighbours
  bool scored[2];
};

// Types of the input, of vertical and horizontal sums, and of the low band. Scales 2 and 3 have the same.
template <int scale> struct Kind;
template <> struct Kind<0> { using V = int32_t; using H = int32_t; using Low = int16_t; };
template <> struct Kind<1> { using In = int16_t; using V = int32_t; using H = int64_t; using Low = int32_t; };
template <> struct Kind<2> { using In = int32_t; using V = int64_t; using H = int64_t; using Low = int32_t; };

// -1 -> 1, n -> n - 1, n + 1 -> n - 2.
HV_DEV int mirror(int i, int n) {
  i = hv_abs(i);
  return i < n ? i : 2 * n - 1 - i;
}

// Four consecutive samples of a row, as stored.
template <class T> struct Run { uint32_t words[sizeof(T)]; };

// One picture.
template <class T> struct Input {
  const uint8_t *data;
  uint32_t stride, shift, bits;
  int width, height;

  // The samples from column x on, a multiple of four. The row is mirrored at both ends. Columns are mirrored at the
  // right end only if `edge` says that they may lie beyond it; samples to the left of the picture are arbitrary.
  HV_MEMBER Run<T> load(int row, int x, bool edge) const {
    row = hv_max(mirror(row, height), 0);
    const uint8_t *at = data + (uint64_t)(uint32_t)row * stride;
    Run<T> run{};
    if (edge) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const uint8_t *sample = at + (uint32_t)hv_max(mirror(hv_max(x + i, 0), width), 0) * sizeof(T);
        const int word = i * (int)sizeof(T) / 4, bit = i * (int)sizeof(T) % 4 * 8;
        if constexpr (sizeof(T) == 1) run.words[word] |= (uint32_t)hv_ldg(sample) << bit;
        else if constexpr (sizeof(T) == 2)
          run.words[word] |= (uint32_t)hv_ldg((const uint16_t *)sample) << bit;
        else run.words[word] = hv_ldg((const uint32_t *)sample);
      }
      return run;
    }
    at += (uint32_t)hv_max(x, 0) * sizeof(T);
    if constexpr (sizeof(T) == 1) run.words[0] = hv_ldg((const uint32_t *)at);
    else if constexpr (sizeof(T) == 2) run = __builtin_bit_cast(Run<T>, hv_ldg((const HvU32x2 *)at));
    else run = __builtin_bit_cast(Run<T>, hv_ldg((const HvU32x4 *)at));
    return run;
  }
  HV_MEMBER int32_t number(const Run<T> &run, int i) const {
    if constexpr (sizeof(T) == 4) return (int32_t)run.words[i];
    else if constexpr ((T)-1 < 0) return (T)(run.words[i / 2] >> i % 2 * 16);
    else return (int32_t)hv_sample_in<T>(run.words, i, shift, bits);
  }
};

// Two rows of it.
template <class T> struct Pair { Run<T> run[2]; };

// tap v + sum, for v of 16 bits where the sum has 32
HV_DEV int32_t mad(int32_t tap, int32_t v, int32_t sum) { return hv_mad_i24(v, tap, sum); }
HV_DEV int64_t mad(int32_t tap, int32_t v, int64_t sum) { return hv_mad_i64(v, tap, sum); }

// The first and the last two of the four taps.
template <class Sum> HV_DEV Sum low_begin(int32_t a, int32_t b, Sum sum) {
  return mad(27411, b, mad(15826, a, sum));
}
template <class Sum> HV_DEV Sum low_end(int32_t a, int32_t b, Sum sum) {
  return mad(-4240, b, mad(7345, a, sum));
}
template <class Sum> HV_DEV Sum high_begin(int32_t a, int32_t b, Sum sum) {
  return mad(-7345, b, mad(-4240, a, sum));
}
template <class Sum> HV_DEV Sum high_end(int32_t a, int32_t b, Sum sum) {
  return mad(-15826, b, mad(27411, a, sum));
}

// The coefficients of one picture at the two positions of a lane.
struct Bands {
  int32_t low[2], detail[3][2];  // detail: h, v, d
};

// The vertical pass over four columns of one picture, of the low band alone unless `detail`. Row y takes the
// rows 2 y - 1 to 2 y + 2 of the input, in pairs.
template <int scale, class T, bool detail> struct Vertical {
  using V = typename Kind<scale>::V;
  V low[4], high[4];  // sums of the first pair

  HV_MEMBER void begin(const Input<T> &in, const Pair<T> &pair) {
    // Half a unit, and at scale 0 the middle of the range that was subtracted from every sample.
    const V half = scale == 0 ? (V)(1u << (in.bits - 1)) : scale == 1 ? 0 : 1 << 15;
    const V start = scale == 0 ? (V)(-46341u << (in.bits - 1)) : half;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int32_t x = in.number(pair.run[0], i), y = in.number(pair.run[1], i);
      low[i] = low_begin(x, y, start);
      if (detail) high[i] = high_begin(x, y, half);
    }
  }
  HV_MEMBER void next(const Input<T> &in, const Pair<T> &pair, int32_t lo[4], int32_t hi[4]) {
    const uint32_t shift = scale == 0 ? in.bits : scale == 1 ? 0 : 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int32_t x = in.number(pair.run[0], i), y = in.number(pair.run[1], i);
      lo[i] = (int32_t)(low_end(x, y, low[i]) >> shift);
      if (detail) hi[i] = (int32_t)(high_end(x, y, high[i]) >> shift);
    }
    begin(in, pair);
  }
};

// Bytes are multiplied four at a time, by the bytes of the taps.
template <bool detail> struct Vertical<0, uint8_t, detail> {
  uint32_t first[2];  // the first pair, row by row within a column

  HV_MEMBER static void weave(const Pair<uint8_t> &pair, uint32_t to[2]) {
    const uint32_t middle = 0x80808080u, a = pair.run[0].words[0] ^ middle, b = pair.run[1].words[0] ^ middle;
    to[0] = hv_bytes<0x5140>(a, b);
    to[1] = hv_bytes<0x7362>(a, b);
  }
  HV_MEMBER static constexpr int32_t taps(int a, int b, int c, int d) {
    return (int32_t)((a & 255u) | (b & 255u) << 8 | (c & 255u) << 16 | (uint32_t)d << 24);
  }
  HV_MEMBER static int32_t filter(uint32_t column, int32_t upper, int32_t lower) {
    return hv_sdot4((int32_t)column, upper, hv_sdot4((int32_t)column, lower, 128) >> 8);
  }
  HV_MEMBER void begin(const Input<uint8_t> &, const Pair<uint8_t> &pair) { weave(pair, first); }
  HV_MEMBER void next(const Input<uint8_t> &, const Pair<uint8_t> &pair, int32_t lo[4], int32_t hi[4]) {
    uint32_t second[2];
    weave(pair, second);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t a = first[i / 2], b = second[i / 2];
      const uint32_t column = i % 2 ? hv_bytes<0x7632>(a, b) : hv_bytes<0x5410>(a, b);
      lo[i] = filter(column, taps(62, 107, 29, -17), taps(-46, 19, -79, 112));
      if (detail) hi[i] = filter(column, taps(-17, -29, 107, -62), taps(112, 79, 19, 46));
    }
    first[0] = second[0], first[1] = second[1];
  }
};

// The transform of one picture, row after row.
template <int scale, class T, bool detail> struct Transform {
  using H = typename Kind<scale>::H;
  Vertical<scale, T, detail> down;

  HV_MEMBER void begin(const Input<T> &in, const Pair<T> &pair) { down.begin(in, pair); }
  HV_MEMBER Bands next(const Input<T> &in, const Pair<T> &pair, const AdmScale &shape, const Lane &at) {
    int32_t lo[4], hi[4];
    down.next(in, pair, lo, hi);
    const uint32_t shift = scale == 0 ? 16 : scale == 1 ? 15 : shape.horizontal;
    Bands out;
    across(lo, out.low, out.detail[1], shift, at);
    if (detail) across(hi, out.detail[0], out.detail[2], shift, at);
    return out;
  }

 private:
  // The horizontal pass over one intermediate row.
  HV_MEMBER static void across(const int32_t v[4], int32_t l[2], int32_t h[2], uint32_t shift,
                               const Lane &at) {
    const H half = 1u << (shift - 1);
    int32_t before = (int32_t)hv_shfl_u32((uint32_t)v[3], at.left);
    const int32_t after = (int32_t)hv_shfl_u32((uint32_t)v[0], at.right);
    if (at.x == 0) before = v[1];
    l[0] = (int32_t)(low_end(v[1], v[2], low_begin(before, v[0], half)) >> shift);
    l[1] = (int32_t)(low_end(v[3], after, low_begin(v[1], v[2], half)) >> shift);
    if (detail) {
      h[0] = (int32_t)(high_end(v[1], v[2], high_begin(before, v[0], half)) >> shift);
      h[1] = (int32_t)(high_end(v[3], after, high_begin(v[1], v[2], half)) >> shift);
    }
  }
};

// The low band of one picture, at the two positions of a lane.
template <int scale> HV_DEV void store(void *plane, uint32_t stride, int row, int x, const int32_t low[2]) {
  using Low = typename Kind<scale>::Low;
  const uint64_t at = (uint64_t)(uint32_t)row * stride + (uint32_t)x;
  if constexpr (sizeof(Low) == 2)
    ((uint32_t *)plane)[at / 2] = (uint32_t)(low[0] & 0xffff) | (uint32_t)low[1] << 16;
  else ((HvU32x2 *)plane)[at / 2] = {{(uint32_t)low[0], (uint32_t)low[1]}};
}

}  // namespace adm
