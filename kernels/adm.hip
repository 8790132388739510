// SPDX-License-Identifier: MPL-2.0
//
// ADM: one kernel per scale of the wavelet pyramid, from samples to row sums of cubes, and one that rounds
// and adds up the rows.
//
// 32 lanes walk down a strip together, two coefficients of each band per lane; the outer lanes only serve
// their neighbours. Rows above and below a strip are computed again, so strips do not wait for each other.
#include "frame.h"

#define ADM_THREADS 64   // two strips side by side
#define ADM_STRIP_W 60   // coefficients that a strip owns: two for each of 30 lanes
#define ADM_TILE_W (ADM_THREADS / 32 * ADM_STRIP_W)
#define ADM_PASSES 4
#define ADM_SLOTS 5      // triples of sums that are added up together

// Shape of one scale. `src/metrics/adm.rs` has the meaning of extents, scored parts and shifts.
struct AdmScale {
  int32_t in_w, in_h;                // samples of the input
  int32_t w, h;                      // coefficients of a band
  int32_t left, right, top, bottom;  // scored columns [left, right) and rows [top, bottom)
  int32_t x0, y0;                    // where the first tile begins: not positive, x0 even
  int32_t tile_h;                    // rows of a tile
  uint32_t cube[2];                  // shifts of the numerator's cubes, h and v, d
  uint32_t ref_cube;                 // last shift of the denominator's cubes, not used at scale 0
};

// One way of weighting and masking.
struct AdmPass {
  double gain;        // gain limit, 1 .. 100
  uint32_t weight[2]; // quantised, of h and v, of d
  uint32_t aim;       // whether the additive part is summed up as well; only the `_passes` kernels do it
  uint32_t unused;
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

// Types of the input, of vertical and horizontal sums, and of the low band; shifts of both directions.
template <int scale> struct Kind;
template <> struct Kind<0> { using V = int32_t; using H = int32_t; using Low = int16_t; };
template <> struct Kind<1> { using In = int16_t; using V = int32_t; using H = int64_t; using Low = int32_t; };
template <> struct Kind<2> { using In = int32_t; using V = int64_t; using H = int64_t; using Low = int32_t; };
template <> struct Kind<3> { using In = int32_t; using V = int64_t; using H = int64_t; using Low = int32_t; };

// -1 -> 1, n -> n - 1, n + 1 -> n - 2.
HV_DEV int mirror(int i, int n) {
  i = hv_abs(i);
  return i < n ? i : 2 * n - 1 - i;
}

// Samples of one picture.
template <class T> struct Input {
  const uint8_t *data;
  uint32_t stride, shift, bits;

  // Those of four columns, which are successive and begin at a multiple of four unless `edge`.
  HV_MEMBER void load(int32_t v[4], int row, const int col[4], bool edge) const {
    const uint8_t *at = data + (uint64_t)(uint32_t)row * stride;
    if (edge) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const uint8_t *sample = at + (uint32_t)col[i] * sizeof(T);
        if constexpr (sizeof(T) == 1) v[i] = hv_ldg(sample);
        else if constexpr (sizeof(T) == 2) v[i] = number((T)hv_ldg((const uint16_t *)sample));
        else v[i] = (int32_t)hv_ldg((const uint32_t *)sample);
      }
      return;
    }
    at += (uint32_t)col[0] * sizeof(T);
    if constexpr (sizeof(T) == 1) {
      const uint32_t word = hv_ldg((const uint32_t *)at);
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] = (int32_t)(word >> 8 * i & 255);
    } else if constexpr (sizeof(T) == 2) {
      const HvU32x2 words = hv_ldg((const HvU32x2 *)at);
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] = number((T)(words.v[i / 2] >> i % 2 * 16));
    } else {
      const HvU32x4 words = hv_ldg((const HvU32x4 *)at);
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] = (int32_t)words.v[i];
    }
  }

 private:
  HV_MEMBER int32_t number(uint16_t stored) const { return (int32_t)hv_number<uint16_t>(stored, shift, bits); }
  HV_MEMBER int32_t number(int16_t stored) const { return stored; }
};

// tap v + sum, for v of 16 bits where the sum has 32
HV_DEV int32_t mad(int32_t tap, int32_t v, int32_t sum) { return hv_mad_i24(v, tap, sum); }
HV_DEV int64_t mad(int32_t tap, int32_t v, int64_t sum) { return (int64_t)v * tap + sum; }

// The first and the last two of the four taps.
template <class Sum> HV_DEV Sum low_begin(int32_t a, int32_t b, Sum sum) { return mad(27411, b, mad(15826, a, sum)); }
template <class Sum> HV_DEV Sum low_end(int32_t a, int32_t b, Sum sum) { return mad(-4240, b, mad(7345, a, sum)); }
template <class Sum> HV_DEV Sum high_begin(int32_t a, int32_t b, Sum sum) { return mad(-7345, b, mad(-4240, a, sum)); }
template <class Sum> HV_DEV Sum high_end(int32_t a, int32_t b, Sum sum) { return mad(-15826, b, mad(27411, a, sum)); }

// The coefficients of one picture at the two positions of a lane.
struct Bands {
  int32_t low[2], detail[3][2];  // detail: h, v, d
};

// The transform of one picture, row after row; of the low band alone unless `detail`.
template <int scale, class T, bool detail> struct Transform {
  using V = typename Kind<scale>::V;
  using H = typename Kind<scale>::H;
  Input<T> in;
  V low[4], high[4];  // the first two taps of the vertical pass

  HV_MEMBER void begin(const int32_t x[4], const int32_t y[4]) {
    // Half a unit, and at scale 0 the middle of the range taken away from every sample.
    const V half = scale == 0 ? (V)(1u << (in.bits - 1)) : scale == 1 ? 0 : 1 << 15;
    const V start = scale == 0 ? (V)(-46341u << (in.bits - 1)) : half;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      low[i] = low_begin(x[i], y[i], start);
      if (detail) high[i] = high_begin(x[i], y[i], half);
    }
  }
  // To be called before the first row and where a row is not the one after the last.
  HV_MEMBER void seek(int row, int in_h, const int col[4], bool edge) {
    int32_t x[4], y[4];
    in.load(x, mirror(2 * row - 1, in_h), col, edge);
    in.load(y, 2 * row, col, edge);
    begin(x, y);
  }
  HV_MEMBER Bands next(int row, int in_h, const int col[4], bool edge, const Lane &at) {
    int32_t x[4], y[4], lo[4], hi[4];
    in.load(x, mirror(2 * row + 1, in_h), col, edge);
    in.load(y, mirror(2 * row + 2, in_h), col, edge);
    const uint32_t shift = scale == 0 ? in.bits : scale == 1 ? 0 : 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      lo[i] = (int32_t)(low_end(x[i], y[i], low[i]) >> shift);
      if (detail) hi[i] = (int32_t)(high_end(x[i], y[i], high[i]) >> shift);
    }
    begin(x, y);
    Bands out;
    across(lo, out.low, out.detail[1], at);
    if (detail) across(hi, out.detail[0], out.detail[2], at);
    return out;
  }

 private:
  // The horizontal pass over one intermediate row.
  HV_MEMBER void across(const int32_t v[4], int32_t l[2], int32_t h[2], const Lane &at) const {
    const int shift = scale % 2 ? 15 : 16;
    const H half = 1 << (shift - 1);
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
  if constexpr (sizeof(Low) == 2) ((uint32_t *)plane)[at / 2] = (uint32_t)(low[0] & 0xffff) | (uint32_t)low[1] << 16;
  else ((HvU32x2 *)plane)[at / 2] = {{(uint32_t)low[0], (uint32_t)low[1]}};
}

// ---- decoupling ---------------------------------------------------------------------------

// Whether (h, v) of reference and distorted point the same way within one degree.
HV_DEV bool same_direction(int32_t oh, int32_t ov, int32_t th, int32_t tv) {
  const float a = (float)oh, b = (float)ov, c = (float)th, d = (float)tv;
  const float dot = a * c + b * d, square = dot * dot;
  const float limit = 0x1.ffd814p-1f * (a * a + b * b) * (c * c + d * d);
  // Where the two are that close all their roundings together amount to less than one in 2^19.
  if (__builtin_fabsf(square - limit) < 0x1p-18f * limit) {
    const double d = (float)((int64_t)oh * th + (int64_t)ov * tv);
    const double o = (float)((int64_t)oh * oh + (int64_t)ov * ov);
    const double t = (float)((int64_t)th * th + (int64_t)tv * tv);
    return d >= 0 && d * d >= 0x1.ffd814p-1 * o * t;
  }
  return dot >= 0 && square >= limit;
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
    if (whole != limit) whole = 0;
    bound = 0xffffffffu / (uint32_t)limit;
  }
};

// The restored part of the distorted coefficient t. Up to |o| = 16384 the table ratio of the specification
// amounts to t, limited to 0 .. o.
template <int scale> HV_DEV int32_t restore(int32_t o, int32_t t, bool same, const Gain &gain) {
  const int32_t sign = o >> 31;
  const uint32_t m = (uint32_t)((o ^ sign) - sign);
  const uint32_t towards = (uint32_t)hv_max((t ^ sign) - sign, 0);
  uint32_t r = hv_min(towards, m);
  if (scale > 0 || m > 16384) {
    // The reciprocal is that of 15 significant bits of m.
    const int up = hv_clz(m | 1);
    const uint32_t inverse = reciprocal((((m << up) >> 16) + 1) >> 1);
    const uint32_t t31 = hv_min(towards, 2 * m) << (up - 1);
    const uint32_t k = hv_min((uint32_t)(((uint64_t)(2 * inverse) * t31 + (1u << 31)) >> 32), 32768u);
    const uint32_t product = (uint32_t)(((uint64_t)k * m + (uint32_t)(16384 + sign)) >> 15);
    r = m > 16384 ? product : r;
  }
  if (same) {
    if (gain.whole) r = hv_min(hv_min(r, gain.bound) * gain.whole, towards);
    else {
      const double most = r * gain.limit;
      r = most < towards ? (uint32_t)most : towards;
    }
  }
  return ((int32_t)r ^ sign) - sign;
}

// ---- masking ------------------------------------------------------------------------------

// What masker coefficients contribute to the threshold of their neighbours, and to their own beyond that.
template <int scale> HV_DEV void mask(const int32_t m[3], const uint32_t weight[2], int32_t &side, int32_t &centre) {
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
      const int64_t product = (int64_t)(int32_t)weight[band / 2] * m[band] + (1 << 27);
      const uint32_t x = (uint32_t)hv_abs((int32_t)(product >> 28));
      // The rounding constant of libvmaf ended up as minus one half.
      s = (int32_t)(((uint64_t)x * 143165577u - (1u << 31)) >> 32);
      c = (int32_t)(((uint64_t)x * 286331153u - (1u << 31)) >> 32);
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
  int lane, used;
  uint64_t *to;  // where the sum that this lane takes part in is added

  HV_MEMBER void push(const uint64_t v[3], uint64_t *rows, uint32_t pitch) {
#pragma unroll
    for (int band = 0; band < 3; band++) lanes[3 * used + band][lane] = v[band];
    const int mine = lane % 16;
    if (mine / 3 == used) to = rows + mine % 3 * pitch;
    if (++used == ADM_SLOTS) flush();
  }
  HV_MEMBER void flush() {
    hv_wave_sync();
    const int mine = lane % 16;
    uint64_t sum = 0;
    if (mine < 3 * used) {
      const uint64_t *from = lanes[mine] + lane / 16 * 16;
#pragma unroll
      for (int i = 0; i < 16; i++) sum += from[i];
    }
    sum += hv_shfl_xor_u64(sum, 16);
    if (lane < 3 * used && sum) hv_atomic_add_u64(to, sum);
    used = 0;
    hv_wave_sync();
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
        x = (uint32_t)hv_abs(hv_mad_i24(q, signal[band][i], 0)) - ((uint32_t)threshold[i] << (band < 2 ? 10 : 12));
        square = band < 2 ? 29 : 30;
      } else {
        const int64_t product = (int64_t)q * signal[band][i] + (1 << 27);
        x = (uint32_t)hv_abs((int32_t)(product >> 28)) - (uint32_t)threshold[i];
      }
      const int32_t rest = at.scored[i] ? hv_max((int32_t)x, 0) : 0;
      const int32_t y = (int32_t)(((uint64_t)rest * (uint32_t)rest + (1u << (square - 1))) >> square);
      sums[band] += (uint64_t)(((int64_t)y * rest + half) >> shift);
    }
  }
}

template <int scale>
HV_DEV void reference_cubes(const int32_t detail[3][2], const AdmScale &shape, const Lane &at, uint64_t sums[3]) {
#pragma unroll
  for (int band = 0; band < 3; band++) {
    sums[band] = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t u = at.scored[i] ? (uint32_t)hv_abs(detail[band][i]) : 0;
      if constexpr (scale == 0) sums[band] += (uint64_t)(uint32_t)hv_mad_i24((int32_t)u, (int32_t)u, 0) * u;
      else {
        // The rounding constant of libvmaf is a full unit here.
        const int shift = scale == 2 ? 30 : 31;
        const uint32_t square = (uint32_t)(((uint64_t)u * u + (1ull << shift)) >> shift);
        sums[band] += ((uint64_t)square * u + ((1ull << shape.ref_cube) >> 1)) >> shape.ref_cube;
      }
    }
  }
}

// Takes the chain to the next row, and where `score` pushes the sums of the row before that.
template <int scale>
HV_DEV void advance(Chain &chain, const int32_t masker[3][2], const int32_t signal[3][2], const AdmScale &shape,
                    const uint32_t weight[2], const Lane &at, bool score, RowSums &sums, uint64_t *rows) {
  int32_t side[2], centre[2];
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
  const int32_t both = side[0] + side[1], box[2] = {before + both, both + after};
  if (score) {
    const int32_t threshold[2] = {chain.partial[0] + box[0], chain.partial[1] + box[1]};
    uint64_t v[3];
    cubes<scale>(chain.signal, threshold, shape, weight, at, v);
    sums.push(v, rows, (uint32_t)shape.h);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    chain.partial[i] = chain.box[i] + box[i] + centre[i];
    chain.box[i] = box[i];
#pragma unroll
    for (int band = 0; band < 3; band++) chain.signal[band][i] = signal[band][i];
  }
}

// ---- one tile -----------------------------------------------------------------------------

template <int scale, class T, bool many> struct Tile {
  Input<T> ref, dis;
  AdmPlanes out;
  const AdmScale &shape;
  const AdmPasses &passes;
  uint64_t *rows;
  int first, end;  // rows of the tile
  int col[4];
  bool edge;
  Lane at;

  HV_MEMBER void put(int row, const Bands &o, const Bands &t) const {
    if (scale == 3 || !at.own || (uint32_t)at.x >= (uint32_t)shape.w) return;
    store<scale>(out.ref, out.stride, row, at.x, o.low);
    store<scale>(out.dis, out.stride, row, at.x, t.low);
  }

  // Outside the scored part the next scale needs the low band, and nobody the rest.
  HV_MEMBER void low_band() const {
    Transform<scale, T, false> o{ref, {}, {}}, t{dis, {}, {}};
    o.seek(first, shape.in_h, col, edge);
    t.seek(first, shape.in_h, col, edge);
    for (int row = first; row < end; row++) {
      const Bands a = o.next(row, shape.in_h, col, edge, at);
      const Bands b = t.next(row, shape.in_h, col, edge, at);
      put(row, a, b);
    }
  }

  HV_MEMBER void all(uint64_t (*lanes)[33], int32_t (*kept)[10][ADM_THREADS]) const {
    Transform<scale, T, true> o{ref, {}, {}}, t{dis, {}, {}};
    RowSums sums{lanes, (int)threadIdx.x % 32, 0, nullptr};
    const uint64_t band = (uint32_t)shape.h;
    Chain chain{};
    for (int y = first - 1, before = -2; y <= end; y++) {
      const int row = mirror(y, shape.h);
      if (row != before + 1) {
        o.seek(row, shape.in_h, col, edge);
        t.seek(row, shape.in_h, col, edge);
      }
      before = row;
      const Bands a = o.next(row, shape.in_h, col, edge, at);
      const Bands b = t.next(row, shape.in_h, col, edge, at);
      const bool inside = y >= first && y < end;
      if (inside) {
        put(row, a, b);
        if (y >= shape.top && y < shape.bottom) {
          uint64_t v[3];
          reference_cubes<scale>(a.detail, shape, at, v);
          sums.push(v, rows + row, (uint32_t)shape.h);
        }
      }
      const bool score = y > first && y > shape.top && y <= shape.bottom;
      bool same[2];
#pragma unroll
      for (int i = 0; i < 2; i++)
        same[i] = same_direction(a.detail[0][i], a.detail[1][i], b.detail[0][i], b.detail[1][i]);
      for (uint32_t p = 0; p < (many ? passes.n : 1); p++) {
        const AdmPass &pass = passes.pass[p];
        const Gain gain(pass.gain);
        int32_t restored[3][2], additive[3][2];
#pragma unroll
        for (int k = 0; k < 3; k++)
#pragma unroll
          for (int i = 0; i < 2; i++) {
            restored[k][i] = restore<scale>(a.detail[k][i], b.detail[k][i], same[i], gain);
            additive[k][i] = b.detail[k][i] - restored[k][i];
          }
        uint64_t *to = rows + (3 + 6 * p) * band + y - 1;
        if constexpr (many) chain.load(kept[2 * p]);
        advance<scale>(chain, additive, restored, shape, pass.weight, at, score, sums, to);
        if constexpr (many) {
          chain.save(kept[2 * p]);
          if (!pass.aim) continue;
          chain.load(kept[2 * p + 1]);
          advance<scale>(chain, restored, additive, shape, pass.weight, at, score, sums, to + 3 * band);
          chain.save(kept[2 * p + 1]);
        }
      }
    }
    sums.flush();
  }
};

template <int scale, class T, bool many>
HV_DEV void tile(const Input<T> &ref, const Input<T> &dis, const AdmPlanes &out, const AdmScale &shape,
                 const AdmPasses &passes, uint64_t *rows) {
  __shared__ uint64_t lanes[ADM_THREADS / 32][3 * ADM_SLOTS][33];
  __shared__ int32_t kept[many ? 2 * ADM_PASSES : 1][10][ADM_THREADS];
  const int lane = threadIdx.x % 32, strip = threadIdx.x / 32;
  const int tile_x = shape.x0 + (int)blockIdx.x * ADM_TILE_W, tile_y = shape.y0 + (int)blockIdx.y * shape.tile_h;
  // The strips of one wave go the same way.
  const int left = tile_x + (int)threadIdx.x / HV_WAVE * (HV_WAVE / 32) * ADM_STRIP_W;
  const int right = left + HV_WAVE / 32 * ADM_STRIP_W;

  Tile<scale, T, many> tile{ref, dis, out, shape, passes, rows, hv_max(tile_y, 0),
                            hv_min(tile_y + shape.tile_h, shape.h), {}, 2 * right + 4 > shape.in_w, {}};
  tile.at = {tile_x + strip * ADM_STRIP_W + 2 * (lane - 1), hv_lane() - 1, hv_lane() + 1,
             lane != 0 && lane != 31, {}};
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int x = tile.at.x + i;
    tile.at.scored[i] = tile.at.own && x >= shape.left && x < shape.right;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) tile.col[i] = hv_max(mirror(hv_max(2 * tile.at.x + i, 0), shape.in_w), 0);

  if (left < shape.right && right > shape.left && tile.first < shape.bottom && tile.end > shape.top)
    tile.all(lanes[strip], kept);
  else tile.low_band();
}

}  // namespace adm

// Scale 0: reads the luma of both pictures, writes their low bands to `out`, and adds to `rows` the sums of
// cubes of each scored row: rows[(3 k + band) shape.h + row], band h, v, d, k 0 for the reference, 1 + 2 p for
// the restored part of pass p and 2 + 2 p for its additive part.
// Without suffix for one pass without the additive part, `_passes` for 1 to 4 passes.
// Block 64 threads, a tile of 120 columns by shape.tile_h rows of coefficients from (x0, y0) on; grid
// (ceil((w - x0) / 120), ceil((h - y0) / tile_h)). x0 is the largest number up to 0 that differs from
// left - left mod 2 by a multiple of 120, y0 likewise from top by one of tile_h.
#define ADM0(name, T, many)                                                                                  \
  HV_KERNEL(ADM_THREADS, name)(const HvFrame *__restrict__ frame, AdmPlanes out, AdmScale shape, uint32_t bits, \
                               AdmPasses passes, uint64_t *rows) {                                           \
    const HvPlane ref = frame->ref[0], dis = frame->dis[0];                                                  \
    adm::tile<0, T, many>({ref.data, ref.stride, ref.shift, bits}, {dis.data, dis.stride, dis.shift, bits},  \
                          out, shape, passes, rows);                                                         \
  }                                                                                                          \
  HV_EXPORT(name)

ADM0(adm0_u8, uint8_t, false)
ADM0(adm0_u16, uint16_t, false)
ADM0(adm0_u8_passes, uint8_t, true)
ADM0(adm0_u16_passes, uint16_t, true)

// Scales 1 to 3: the same from the low bands of the scale before; adm3 writes none.
#define ADM(name, scale, many)                                                                               \
  HV_KERNEL(ADM_THREADS, name)(AdmPlanes in, AdmPlanes out, AdmScale shape, AdmPasses passes, uint64_t *rows) { \
    using T = adm::Kind<scale>::In;                                                                          \
    const uint32_t stride = in.stride * (uint32_t)sizeof(T);                                                 \
    adm::tile<scale, T, many>({(const uint8_t *)in.ref, stride, 0, 0}, {(const uint8_t *)in.dis, stride, 0, 0}, \
                              out, shape, passes, rows);                                                     \
  }                                                                                                          \
  HV_EXPORT(name)

ADM(adm1, 1, false)
ADM(adm2, 2, false)
ADM(adm3, 3, false)
ADM(adm1_passes, 1, true)
ADM(adm2_passes, 2, true)
ADM(adm3_passes, 3, true)

#define ADM_ROWS_THREADS 128

// The row sums of all scales.
struct AdmRows {
  uint32_t first[4];   // where the sums of a scale begin
  int32_t h[4], top[4], bottom[4];
  uint32_t shift[4];   // of row sums of the numerators
  uint32_t ref_shift[4];
};

// Adds the rounded row sums of every scale to `sums` and zeroes them for the next frame: 12 of the reference,
// [scale][band], and for each pass 12 of the restored and 12 of the additive part. Block 128 threads; grid
// (3 + 6 n, 4) for n passes, or (6, 4) for one pass without the additive part.
HV_KERNEL(ADM_ROWS_THREADS, adm_rows)(AdmRows shape, uint64_t *rows, uint64_t *sums) {
  const int scale = blockIdx.y, kind = blockIdx.x / 3, band = blockIdx.x % 3;
  uint64_t *from = rows + shape.first[scale] + (uint64_t)blockIdx.x * (uint32_t)shape.h[scale];
  const uint32_t shift = kind == 0 ? shape.ref_shift[scale] : shape.shift[scale];
  const int64_t half = (int64_t)((1ull << shift) >> 1);
  uint64_t sum = 0;
  for (int row = shape.top[scale] + (int)threadIdx.x; row < shape.bottom[scale]; row += ADM_ROWS_THREADS) {
    sum += (uint64_t)(((int64_t)from[row] + half) >> shift);
    from[row] = 0;
  }
  hv_block_add_u64<ADM_ROWS_THREADS>(sums + 12 * kind + 3 * scale + band, sum);
}
HV_EXPORT(adm_rows)
