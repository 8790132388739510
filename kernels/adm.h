// SPDX-License-Identifier: MPL-2.0
//
// ADM: from the samples of one scale of the wavelet pyramid to row sums of cubes. The kernels are in adm.hip
// and, as they take long to load and are rarely needed, in adm_passes.hip.
//
// 32 lanes walk down a strip together, two coefficients of each band per lane; the outer lanes only serve
// their neighbours. Rows above and below a strip are computed again, so strips do not wait for each other.
#pragma once
#include "frame.h"

#define ADM_THREADS HV_WAVE
#define ADM_STRIP_W 60  // coefficients that a strip owns: two for each of 30 lanes
#define ADM_TILE_W (ADM_THREADS / 32 * ADM_STRIP_W)
#define ADM_PASSES 4
#define ADM_KEEP_WORDS(scale) ((scale) == 0 ? 3 : 6)  // for a row and lane
#define ADM_SLOTS 4  // triples of sums that are added up together

// Shape of one scale. `src/metrics/adm.rs` has the meaning of extents, scored parts and shifts.
struct AdmScale {
  int32_t in_w, in_h;                // samples of the input
  int32_t w, h;                      // coefficients of a band
  int32_t left, right, top, bottom;  // scored columns [left, right) and rows [top, bottom)
  int32_t x0, y0;                    // where the first tile begins: not positive, x0 even
  int32_t tile_h;                    // rows of a tile
  uint32_t cube[2];                  // shifts of the numerator's cubes, h and v, d
  uint32_t ref_square, ref_cube;     // shifts of the denominator's cubes, not used at scale 0
  uint32_t horizontal;               // shift of the horizontal transform, not used at scales 0 and 1
};

// One way of weighting and masking.
struct AdmPass {
  double gain;        // gain limit, 1 .. 100
  uint32_t weight[2]; // quantised, of h and v, of d: at most 40000 and 54000 at scale 0, below 2^31 elsewhere
  uint32_t aim;       // whether the additive part is summed up as well; only the `_passes` kernels do it
};
struct AdmPasses {
  AdmPass pass[ADM_PASSES];
  uint32_t n;
};

// The low band of both pictures, int16_t of scale 0 and int32_t of the others. Rows are 16-byte aligned.
struct AdmPlanes {
  void *ref, *dis;
  uint32_t stride;  // coefficients from row to row, a multiple of 8
};

namespace adm {

// Where a lane works.
struct Lane {
  int x;                 // first of the two columns
  uint32_t left, right;  // neighbouring lanes
  bool own;              // not just there for its neighbours
  bool scored[2];
};

// ---- transform ----------------------------------------------------------------------------

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

// Four successive samples of a row, as stored.
template <class T> struct Run { uint32_t words[sizeof(T)]; };

// One picture.
template <class T> struct Input {
  const uint8_t *data;
  uint32_t stride, shift, bits;
  int w, h;

  // The samples from column x on, a multiple of four. The row is mirrored at both ends, and the columns at
  // the right one if they may lie beyond it, which `edge` says; what is left of the picture is arbitrary.
  HV_MEMBER Run<T> load(int row, int x, bool edge) const {
    row = hv_max(mirror(row, h), 0);
    const uint8_t *at = data + (uint64_t)(uint32_t)row * stride;
    Run<T> run{};
    if (edge) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const uint8_t *sample = at + (uint32_t)hv_max(mirror(hv_max(x + i, 0), w), 0) * sizeof(T);
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
    // Half a unit, and at scale 0 the middle of the range taken away from every sample.
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

// The detail of the reference, on its way from the first picture of a group to the others: for each tile the rows that
// it looks at.
template <int scale> struct Keep {
  static constexpr int WORDS = ADM_KEEP_WORDS(scale);
  uint32_t *at;  // of the first row, for this lane

  HV_MEMBER void save(int row, const int32_t detail[3][2]) const {
    uint32_t *to = at + row * WORDS * ADM_THREADS;
#pragma unroll
    for (int i = 0; i < WORDS; i++)
      to[i * ADM_THREADS] = scale == 0 ? (uint32_t)(detail[i][0] & 0xffff) | (uint32_t)detail[i][1] << 16
                                       : (uint32_t)detail[i / 2][i % 2];
  }
  HV_MEMBER void load(int row, int32_t detail[3][2]) const {
    const uint32_t *from = at + row * WORDS * ADM_THREADS;
#pragma unroll
    for (int i = 0; i < 6; i++) {
      const uint32_t word = from[(scale == 0 ? i / 2 : i) * ADM_THREADS];
      detail[i / 2][i % 2] = scale > 0 ? (int32_t)word : i % 2 ? (int32_t)word >> 16 : (int16_t)word;
    }
  }
};

// ---- decoupling ---------------------------------------------------------------------------

// Whether (h, v) of reference and distorted point the same way within one degree.
HV_DEV bool same_direction(int32_t oh, int32_t ov, int32_t th, int32_t tv) {
  const float a = (float)oh, b = (float)ov, c = (float)th, d = (float)tv;
  const float dot = a * c + b * d, square = dot * dot;
  const float limit = 0x1.ffd814p-1f * (a * a + b * b) * (c * c + d * d);
  bool same = dot >= 0 && square >= limit;
  // Where the two are that close all their roundings together amount to less than one in 2^19.
  if (__builtin_fabsf(square - limit) < 0x1p-18f * limit) {
    const double x = (float)hv_mad_i64(oh, th, hv_mad_i64(ov, tv, 0));
    const double o = (float)hv_mad_i64(oh, oh, hv_mad_i64(ov, ov, 0));
    const double t = (float)hv_mad_i64(th, th, hv_mad_i64(tv, tv, 0));
    same = x >= 0 && x * x >= 0x1.ffd814p-1 * o * t;
  }
  return same;
}

// floor(2^30 / m) for m of 2^14 .. 2^15: the rounded quotient is that or one more.
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

// The restored part of the distorted coefficient t, for any coefficients; for integer gain limits if `whole`.
HV_DEV int32_t restore(int32_t o, int32_t t, bool same, const Gain &gain, bool whole) {
  const int32_t sign = o >> 31;
  const uint32_t m = (uint32_t)((o ^ sign) - sign);
  const uint32_t towards = (uint32_t)hv_max((t ^ sign) - sign, 0);
  // The reciprocal is that of 15 significant bits of m.
  const int up = hv_clz(m | 1);
  const uint32_t inverse = reciprocal((((m << up) >> 16) + 1) >> 1);
  const uint32_t t31 = hv_min(towards, 2 * m) << (up - 1);
  const uint32_t k = hv_min((uint32_t)(hv_mad_u64(2 * inverse, t31, 1u << 31) >> 32), 32768u);
  uint32_t r = (uint32_t)(hv_mad_u64(k, m, (uint32_t)(16384 + sign)) >> 15);
  // Up to here all this amounts to t, limited to 0 .. o.
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
    // Up to |o| = 16384 the table ratio of the specification amounts to t, limited to 0 .. o.
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

// ---- masking ------------------------------------------------------------------------------

// What masker coefficients contribute to the threshold of their neighbours, and to their own beyond that.
template <int scale>
HV_DEV void mask(const int32_t m[3], const uint32_t weight[2], int32_t &side, int32_t &centre) {
  side = centre = 0;
#pragma unroll
  for (int band = 0; band < 3; band++) {
    int32_t s, c;
    if constexpr (scale == 0) {
      const int32_t q = (int32_t)weight[band / 2];
      const int32_t x = hv_abs(hv_mad_i24(q, m[band], band < 2 ? 16384 : 65535) >> (band < 2 ? 15 : 17));
      const int32_t twice = hv_mad_i24(x, 4369, 1024);
      s = (twice + 1024) >> 12;
      c = (int16_t)(twice >> 11);
    } else {
      const int64_t product = hv_mad_i64((int32_t)weight[band / 2], m[band], 1 << 27);
      const uint32_t x = (uint32_t)hv_abs((int32_t)(product >> 28));
      // The rounding constant of libvmaf ended up as minus one half.
      s = (int32_t)(hv_mad_u64(x, 143165577, -(1ull << 31)) >> 32);
      c = (int32_t)(hv_mad_u64(x, 286331153, -(1ull << 31)) >> 32);
    }
    side += s;
    centre += c - s;
  }
}

// One signal under one threshold, as the rows go by.
struct Chain {
  int32_t box[2];        // side terms of the latest row, of three columns
  int32_t partial[2];    // threshold of the latest row but for the row after
  int32_t signal[3][2];  // of the latest row

  HV_MEMBER void load(const int32_t from[10][ADM_THREADS]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      box[i] = from[i][threadIdx.x];
      partial[i] = from[2 + i][threadIdx.x];
#pragma unroll
      for (int band = 0; band < 3; band++) signal[band][i] = from[4 + 2 * band + i][threadIdx.x];
    }
  }
  HV_MEMBER void save(int32_t to[10][ADM_THREADS]) const {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      to[i][threadIdx.x] = box[i];
      to[2 + i][threadIdx.x] = partial[i];
#pragma unroll
      for (int band = 0; band < 3; band++) to[4 + 2 * band + i][threadIdx.x] = signal[band][i];
    }
  }
};

// Row sums on their way from registers to memory: triples of each lane, added up ADM_SLOTS at a time.
struct RowSums {
  uint64_t (*lanes)[33];  // of this strip
  uint64_t *rows;         // in memory
  uint32_t pitch;         // from band to band
  int lane, used;
  uint32_t to;            // where the sum that this lane takes part in is added

  HV_MEMBER void push(const uint64_t v[3], uint32_t row) {
#pragma unroll
    for (int band = 0; band < 3; band++) lanes[3 * used + band][lane] = v[band];
    const int mine = lane % 16;
    if (mine / 3 == used) to = row + (uint32_t)mine % 3 * pitch;
    used++;
  }
  HV_MEMBER void flush() {
    __syncthreads();
    const int mine = lane % 16;
    uint64_t sum = 0;
    if (mine < 3 * used) {
      const uint64_t *from = lanes[mine] + lane / 16 * 16;
#pragma unroll
      for (int i = 0; i < 16; i++) sum += from[i];
    }
    sum += hv_shfl_xor_u64(sum, 16);
    if (lane < 3 * used && sum) hv_atomic_add_u64(rows + to, sum);
    used = 0;
    __syncthreads();
  }
};

template <int scale>
HV_DEV void cubes(const int32_t signal[3][2], const int32_t threshold[2], const AdmScale &shape,
                  const uint32_t weight[2], const Lane &at, uint64_t sums[3]) {
#pragma unroll
  for (int band = 0; band < 3; band++) {
    const int32_t q = (int32_t)weight[band / 2];
    const uint32_t shift = shape.cube[band / 2];
    const int64_t half = (int64_t)((1ull << shift) >> 1);
    sums[band] = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t x, square = 30;
      if constexpr (scale == 0) {
        const uint32_t limit = (uint32_t)threshold[i] << (band < 2 ? 10 : 12);
        x = (uint32_t)hv_abs(hv_mad_i24(q, signal[band][i], 0)) - limit;
        square = band < 2 ? 29 : 30;
      } else {
        const int64_t product = hv_mad_i64(q, signal[band][i], 1 << 27);
        x = (uint32_t)hv_abs((int32_t)(product >> 28)) - (uint32_t)threshold[i];
      }
      const int32_t rest = at.scored[i] ? hv_max((int32_t)x, 0) : 0;
      const int32_t y = (int32_t)(hv_mad_u64((uint32_t)rest, (uint32_t)rest, 1u << (square - 1)) >> square);
      sums[band] += (uint64_t)(hv_mad_i64(y, rest, half) >> shift);
    }
  }
}

template <int scale>
HV_DEV void reference_cubes(const int32_t detail[3][2], const AdmScale &shape, const Lane &at,
                            uint64_t sums[3]) {
#pragma unroll
  for (int band = 0; band < 3; band++) {
    sums[band] = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t u = at.scored[i] ? (uint32_t)hv_abs(detail[band][i]) : 0;
      if constexpr (scale == 0) {
        const uint32_t square = (uint32_t)hv_mad_i24((int32_t)u, (int32_t)u, 0);
        sums[band] = hv_mad_u64(square, u, sums[band]);
      } else {
        // The rounding constant of libvmaf is a full unit here.
        const uint32_t shift = shape.ref_square;
        const uint32_t square = (uint32_t)(hv_mad_u64(u, u, 1u << shift) >> shift);
        sums[band] += hv_mad_u64(square, u, (1ull << shape.ref_cube) >> 1) >> shape.ref_cube;
      }
    }
  }
}

// Takes the chain to row y, and if `count` sums up the cubes of the row before.
template <int scale>
HV_DEV void advance(Chain &chain, const int32_t masker[3][2], const int32_t signal[3][2],
                    const AdmScale &shape, const uint32_t weight[2], const Lane &at, int y, bool count,
                    uint64_t sums[3]) {
  int32_t side[2], centre[2], box[2], threshold[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int32_t m[3] = {masker[0][i], masker[1][i], masker[2][i]};
    mask<scale>(m, weight, side[i], centre[i]);
  }
  if (at.x == shape.w - 1) side[1] = side[0];
  int32_t before = (int32_t)hv_shfl_u32((uint32_t)side[1], at.left);
  int32_t after = (int32_t)hv_shfl_u32((uint32_t)side[0], at.right);
  if (at.x == 0) before = side[1];
  if (at.x == shape.w - 2) after = side[1];
  box[0] = before + side[0] + side[1];
  box[1] = side[0] + side[1] + after;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    if (y == shape.h) box[i] = chain.box[i];  // the row below the last is the last
    threshold[i] = chain.partial[i] + box[i];
    if (y == 1) threshold[i] += box[i];  // the one above the first is the second
  }
  if (count) cubes<scale>(chain.signal, threshold, shape, weight, at, sums);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    chain.partial[i] = chain.box[i] + box[i] + centre[i];
    chain.box[i] = box[i];
#pragma unroll
    for (int band = 0; band < 3; band++) chain.signal[band][i] = signal[band][i];
  }
}

// ---- one tile -----------------------------------------------------------------------------

template <int scale, class T, bool many, bool group> struct Tile {
  Input<T> ref, dis;
  AdmPlanes out;
  const AdmScale &shape;
  const AdmPasses &passes;
  Keep<scale> keep;
  bool later;      // the reference was looked at with another picture of the group
  int first, end;  // rows of the tile
  bool edge;
  Lane at;

  HV_MEMBER bool fresh() const { return !group || !later; }
  HV_MEMBER void put(int row, const Bands &o, const Bands &t) const {
    if ((scale == 2 && !out.ref) || !at.own || (uint32_t)at.x >= (uint32_t)shape.w) return;
    if (fresh()) store<scale>(out.ref, out.stride, row, at.x, o.low);
    store<scale>(out.dis, out.stride, row, at.x, t.low);
  }
  HV_MEMBER Pair<T> pair(const Input<T> &in, int y) const {
    return {{in.load(2 * y + 1, 2 * at.x, edge), in.load(2 * y + 2, 2 * at.x, edge)}};
  }

  // Outside the scored part the next scale needs the low band, and nobody the rest.
  HV_MEMBER void low_band() const {
    Transform<scale, T, false> o{}, t{};
    Pair<T> p{}, q{};  // not left undefined: ptxas then takes the later pair for the earlier
    for (int y = first - 2; y < end; y++) {  // the first two times only fill the pipeline
      const Pair<T> pp = fresh() ? pair(ref, y + 1) : p, qq = pair(dis, y + 1);
      if (y >= first) {
        const Bands a = fresh() ? o.next(ref, p, shape, at) : Bands{}, b = t.next(dis, q, shape, at);
        put(y, a, b);
      } else if (y == first - 1) o.begin(ref, p), t.begin(dis, q);
      p = pp, q = qq;
    }
  }

  HV_MEMBER void all(RowSums sums, int32_t (*kept)[10][ADM_THREADS]) const {
    Transform<scale, T, true> o{}, t{};
    // A branch would cost more than the cubes of the two rows that need none, unless tiles are low.
    const bool always = scale == 0;
    const uint32_t h = (uint32_t)shape.h;
    Chain chain{};
    if (many)
      for (int i = 0; i < 2 * ADM_PASSES; i++) chain.save(kept[i]);
    Pair<T> p{}, q{};
    const int begin = hv_max(first - 1, 0);
    for (int y = begin - 2; y <= end; y++) {  // as above
      const Pair<T> pp = fresh() ? pair(ref, y + 1) : p, qq = pair(dis, y + 1);
      if (y < begin) {
        if (y == begin - 1) o.begin(ref, p), t.begin(dis, q);
        p = pp, q = qq;
        continue;
      }
      Bands a = fresh() ? o.next(ref, p, shape, at) : Bands{};
      if constexpr (group) {
        if (later) keep.load(y - begin, a.detail);
        else keep.save(y - begin, a.detail);
      }
      const Bands b = t.next(dis, q, shape, at);
      p = pp, q = qq;
      const bool inside = y >= first && y < end, counted = inside && y >= shape.top && y < shape.bottom;
      const bool scored = y > first && y > shape.top && y <= shape.bottom;  // the row before
      if (inside) put(y, a, b);
      uint64_t v[3];
      if (fresh() && (always || counted)) reference_cubes<scale>(a.detail, shape, at, v);
      if (fresh() && counted) sums.push(v, (uint32_t)y);
      bool same[2];
#pragma unroll
      for (int i = 0; i < 2; i++)
        same[i] = same_direction(a.detail[0][i], a.detail[1][i], b.detail[0][i], b.detail[1][i]);
      int32_t restored[3][2];
      for (uint32_t n = 0; n < (many ? 2 * passes.n : 1); n++) {
        const AdmPass &pass = passes.pass[n / 2];
        const bool aim = many && n % 2;
        if (aim && !pass.aim) continue;
        if (!aim) decouple<scale>(a, b, same, Gain(pass.gain), restored);
        int32_t masker[3][2], signal[3][2];
#pragma unroll
        for (int i = 0; i < 6; i++) {
          const int32_t r = restored[i / 2][i % 2], rest = b.detail[i / 2][i % 2] - r;
          masker[i / 2][i % 2] = aim ? r : rest;
          signal[i / 2][i % 2] = aim ? rest : r;
        }
        if (many) chain.load(kept[n]);
        advance<scale>(chain, masker, signal, shape, pass.weight, at, y, always || scored, v);
        if (many) chain.save(kept[n]);
        if (scored) sums.push(v, (3 + 3 * n) * h + (uint32_t)y - 1);
        if (sums.used > ADM_SLOTS - 2 || y == end) sums.flush();
      }
    }
  }
};

template <int scale, class T, bool many, bool group>
HV_DEV void tile(const Input<T> &ref, const Input<T> &dis, const AdmPlanes &out, const AdmScale &shape,
                 const AdmPasses &passes, uint64_t *rows, uint32_t *kept_words, bool later) {
  __shared__ uint64_t lanes[ADM_THREADS / 32][3 * ADM_SLOTS][33];
  __shared__ int32_t kept[many ? 2 * ADM_PASSES : 1][10][ADM_THREADS];
  const int lane = threadIdx.x % 32, strip = threadIdx.x / 32;
  const int left = shape.x0 + (int)blockIdx.x * ADM_TILE_W, right = left + ADM_TILE_W;
  const int top = shape.y0 + (int)blockIdx.y * shape.tile_h;
  const int x = left + strip * ADM_STRIP_W + 2 * (lane - 1);
  const bool own = lane != 0 && lane != 31;
  const Lane at{x, threadIdx.x - 1, threadIdx.x + 1, own,
                {own && x >= shape.left && x < shape.right,
                 own && x + 1 >= shape.left && x + 1 < shape.right}};
  const int first = hv_max(top, 0), end = hv_min(top + shape.tile_h, shape.h);
  const bool edge = 2 * right + 4 > shape.in_w;
  Keep<scale> keep{};
  if constexpr (group) {
    const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x, rows_kept = (uint32_t)shape.tile_h + 2;
    keep.at = kept_words + (uint64_t)block * rows_kept * keep.WORDS * ADM_THREADS + threadIdx.x;
  }
  const Tile<scale, T, many, group> tile{ref, dis, out, shape, passes, keep, later, first, end, edge, at};
  if (left < shape.right && right > shape.left && first < shape.bottom && end > shape.top)
    tile.all({lanes[strip], rows, (uint32_t)shape.h, lane, 0, 0}, kept);
  else tile.low_band();
}

}  // namespace adm

// Scale 0: reads the luma of both pictures, writes their low bands to `out`, and adds to `rows` the sums of
// cubes of each scored row: rows[(3 k + band) h + row], band h, v, d, k 0 for the reference, 1 + 2 p for the
// restored part of pass p and 2 + 2 p for its additive part. Pictures have at least 33 rows and columns.
// Without suffix for one pass without the additive part, `_passes` for 1 to 4 passes.
// Block of one wave, 32 or 64 threads, a tile of tile_w = 60 or 120 columns by tile_h rows of coefficients
// from (x0, y0) on; grid (ceil((w - x0) / tile_w), ceil((h - y0) / tile_h)). Tiles begin where the scored
// part does: x0 is the largest number up to 0 that differs from left - left mod 2 by a multiple of tile_w,
// y0 likewise from top by one of tile_h. Good heights are 14, 6, 3, 2 at the four scales.
//
// With the suffix `_group` for the pictures that are compared with one reference, one launch each: `keep` has room for
// ADM_KEEP_WORDS words for each thread and row of each tile, and two rows more. They are written by the first picture, and
// read by those which are `later`; these do not write the reference's low band, nor its sums.
#define ADM0_TILE(T, many, group, keep, later)                                                               \
  const HvPlane ref = frame->ref[0], dis = frame->dis[0];                                                    \
  adm::tile<0, T, many, group>({ref.data, ref.stride, ref.shift, bits, shape.in_w, shape.in_h},              \
                               {dis.data, dis.stride, dis.shift, bits, shape.in_w, shape.in_h}, out, shape,  \
                               passes, rows, keep, later);
#define ADM0(name, T, many)                                                                                  \
  HV_KERNEL(ADM_THREADS, name)(const HvFrame *__restrict__ frame, AdmPlanes out, AdmScale shape,             \
                               uint32_t bits, AdmPasses passes, uint64_t *rows) {                            \
    ADM0_TILE(T, many, false, nullptr, false)                                                                \
  }                                                                                                          \
  HV_EXPORT(name)
#define ADM0_GROUP(name, T, many)                                                                            \
  HV_KERNEL(ADM_THREADS, name)(const HvFrame *__restrict__ frame, AdmPlanes out, AdmScale shape,             \
                               uint32_t bits, AdmPasses passes, uint64_t *rows, uint32_t *keep,              \
                               uint32_t later) {                                                             \
    ADM0_TILE(T, many, true, keep, later)                                                                    \
  }                                                                                                          \
  HV_EXPORT(name)

// Scales 1 to 3, the latter two with one kernel: the same from the low bands of the scale before. Without
// `out.ref` no low band is written.
#define ADM_TILE(scale, many, group, keep, later)                                                            \
  using T = adm::Kind<scale>::In;                                                                            \
  const uint32_t stride = in.stride * (uint32_t)sizeof(T);                                                   \
  adm::tile<scale, T, many, group>({(const uint8_t *)in.ref, stride, 0, 0, shape.in_w, shape.in_h},          \
                                   {(const uint8_t *)in.dis, stride, 0, 0, shape.in_w, shape.in_h}, out,     \
                                   shape, passes, rows, keep, later);
#define ADM(name, scale, many)                                                                               \
  HV_KERNEL(ADM_THREADS, name)(AdmPlanes in, AdmPlanes out, AdmScale shape, AdmPasses passes,                \
                               uint64_t *rows) {                                                             \
    ADM_TILE(scale, many, false, nullptr, false)                                                             \
  }                                                                                                          \
  HV_EXPORT(name)
#define ADM_GROUP(name, scale, many)                                                                         \
  HV_KERNEL(ADM_THREADS, name)(AdmPlanes in, AdmPlanes out, AdmScale shape, AdmPasses passes,                \
                               uint64_t *rows, uint32_t *keep, uint32_t later) {                             \
    ADM_TILE(scale, many, true, keep, later)                                                                 \
  }                                                                                                          \
  HV_EXPORT(name)
