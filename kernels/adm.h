// SPDX-License-Identifier: MPL-2.0
//
// ADM: from the samples of one scale of the wavelet pyramid to row sums of cubes. The kernels are in adm.hip, and in
// adm_passes.hip those that take long to load and are rarely needed.
//
// 32 lanes process a strip together from top to bottom, two coefficients of each band per lane; the outer lanes only
// compute inputs of their neighbours. Strips also compute the rows above and below them, so they do not wait for each
// other.
#pragma once
#include "adm_decouple.h"
#include "adm_mask.h"

namespace adm {

// The detail of the reference, which the first picture of a group keeps for the others: for each tile the rows that it
// reads.
template <int scale> struct Keep {
  static constexpr int WORDS = ADM_KEEP_WORDS(scale);
  uint32_t *at;  // of the first row, for this lane

  HV_MEMBER void save(int row, const int32_t detail[3][2]) const {
    uint32_t *to = at + row * WORDS * HV_WAVE;
#pragma unroll
    for (int i = 0; i < WORDS; i++)
      to[i * HV_WAVE] = scale == 0 ? (uint32_t)(detail[i][0] & 0xffff) | (uint32_t)detail[i][1] << 16
                                       : (uint32_t)detail[i / 2][i % 2];
  }
  HV_MEMBER void load(int row, int32_t detail[3][2]) const {
    const uint32_t *from = at + row * WORDS * HV_WAVE;
#pragma unroll
    for (int i = 0; i < 6; i++) {
      const uint32_t word = from[(scale == 0 ? i / 2 : i) * HV_WAVE];
      detail[i / 2][i % 2] = scale > 0 ? (int32_t)word : i % 2 ? (int32_t)word >> 16 : (int16_t)word;
    }
  }
};

template <int scale, class T, bool many, bool group> struct Tile {
  Input<T> reference, distorted;
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
    if ((scale == 2 && !out.reference) || !at.own || (uint32_t)at.x >= (uint32_t)shape.width) return;
    if (fresh()) store<scale>(out.reference, out.stride, row, at.x, o.low);
    store<scale>(out.distorted, out.stride, row, at.x, t.low);
  }
  HV_MEMBER Pair<T> pair(const Input<T> &in, int y) const {
    return {{in.load(2 * y + 1, 2 * at.x, edge), in.load(2 * y + 2, 2 * at.x, edge)}};
  }

  // Outside the scored part only the low band is needed, for the next scale.
  HV_MEMBER void low_band() const {
    Transform<scale, T, false> o{}, t{};
    Pair<T> p{}, q{};  // not left undefined: ptxas then takes the later pair for the earlier
    for (int y = first - 2; y < end; y++) {  // the first two times only fill the pipeline
      const Pair<T> pp = fresh() ? pair(reference, y + 1) : p, qq = pair(distorted, y + 1);
      if (y >= first) {
        const Bands a = fresh() ? o.next(reference, p, shape, at) : Bands{}, b = t.next(distorted, q, shape, at);
        put(y, a, b);
      } else if (y == first - 1) o.begin(reference, p), t.begin(distorted, q);
      p = pp, q = qq;
    }
  }

  HV_MEMBER void all(RowSums sums, int32_t (*kept)[10][ADM_THREADS(T, many)]) const {
    Transform<scale, T, true> o{}, t{};
    // A branch would cost more than the cubes of the two rows that do not need them, unless tiles are low.
    const bool always = scale == 0;
    const uint32_t height = (uint32_t)shape.height;
    Chain chain{};
    if (many)
      for (int i = 0; i < 2 * ADM_PASSES; i++) chain.save(kept[i]);
    Pair<T> p{}, q{};
    const int begin = hv_max(first - 1, 0);
    for (int y = begin - 2; y <= end; y++) {  // as above
      const Pair<T> pp = fresh() ? pair(reference, y + 1) : p, qq = pair(distorted, y + 1);
      if (y < begin) {
        if (y == begin - 1) o.begin(reference, p), t.begin(distorted, q);
        p = pp, q = qq;
        continue;
      }
      Bands a = fresh() ? o.next(reference, p, shape, at) : Bands{};
      if constexpr (group) {
        if (later) keep.load(y - begin, a.detail);
        else keep.save(y - begin, a.detail);
      }
      const Bands b = t.next(distorted, q, shape, at);
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
      for (uint32_t n = 0; n < (many ? 2 * passes.count : 1); n++) {
        const AdmPass &pass = passes.passes[n / 2];
        const bool aim = many && n % 2;
        if (aim && !pass.aim) continue;
        if (!aim) decouple<scale>(a, b, same, Gain(pass.gain_limit), restored);
        int32_t masker[3][2], signal[3][2];
#pragma unroll
        for (int i = 0; i < 6; i++) {
          const int32_t r = restored[i / 2][i % 2], rest = b.detail[i / 2][i % 2] - r;
          masker[i / 2][i % 2] = aim ? r : rest;
          signal[i / 2][i % 2] = aim ? rest : r;
        }
        if (many) chain.load(kept[n]);
        advance<scale>(chain, masker, signal, shape, pass.weights, at, y, always || scored, v);
        if (many) chain.save(kept[n]);
        if (scored) sums.push(v, (3 + 3 * n) * height + (uint32_t)y - 1);
        if (sums.used > ADM_SLOTS - 2 || y == end) sums.flush();
      }
    }
  }
};

template <int scale, class T, bool many, bool group>
HV_DEV void tile(const Input<T> &reference, const Input<T> &distorted, const AdmPlanes &out, const AdmScale &shape,
                 const AdmPasses &passes, uint64_t *rows, uint32_t *kept_words, bool later) {
  __shared__ uint64_t lanes[ADM_THREADS(T, many) / 32][3 * ADM_SLOTS][33];
  __shared__ int32_t kept[many ? 2 * ADM_PASSES : 1][10][ADM_THREADS(T, many)];
  const int lane = threadIdx.x % 32, strip = threadIdx.x / 32;
  const int left = shape.x0 + (int)blockIdx.x * ADM_TILE_W, right = left + ADM_TILE_W;
  const uint32_t below = blockIdx.y * shape.waves + threadIdx.x / HV_WAVE;  // which tile of this column of tiles
  const int top = shape.y0 + (int)below * shape.tile_height;
  if (top >= shape.height) return;
  const int x = left + strip % (HV_WAVE / 32) * ADM_STRIP_W + 2 * (lane - 1);
  const bool own = lane != 0 && lane != 31;
  const Lane at{x, hv_lane() - 1, hv_lane() + 1, own,
                {own && x >= shape.left && x < shape.right,
                 own && x + 1 >= shape.left && x + 1 < shape.right}};
  const int first = hv_max(top, 0), end = hv_min(top + shape.tile_height, shape.height);
  const bool edge = 2 * right + 4 > shape.in_width;
  Keep<scale> keep{};
  if constexpr (group) {
    const uint32_t which = below * gridDim.x + blockIdx.x, rows_kept = (uint32_t)shape.tile_height + 2;
    keep.at = kept_words + (uint64_t)which * rows_kept * keep.WORDS * HV_WAVE + hv_lane();
  }
  const Tile<scale, T, many, group> tile{reference, distorted, out, shape, passes, keep, later, first, end, edge, at};
  if (left < shape.right && right > shape.left && first < shape.bottom && end > shape.top)
    tile.all({lanes[strip], rows, (uint32_t)shape.height, lane, 0, 0}, kept);
  else tile.low_band();
}

}  // namespace adm

// Scale 0: reads the luma of both pictures, writes their low bands to `out`, and adds to `rows` the sums of
// cubes of each scored row: rows[(3 k + band) h + row], band h, v, d, k 0 for the reference, 1 + 2 p for the
// restored part of pass p and 2 + 2 p for its additive part. Pictures have at least 33 rows and columns.
// Without suffix for one pass without the additive part, `_passes` for 1 to 4 passes.
// Block of `waves` waves of 32 or 64 threads, ADM_WAVES at most; each has a tile of tile_width = 60 or 120 columns by
// tile_height rows of coefficients from (x0, y0) on, those of a block one below the other; grid
// (ceil((w - x0) / tile_width), ceil((h - y0) / (waves tile_height))). Tiles begin where the scored
// part does: x0 is the largest number up to 0 that differs from left - left mod 2 by a multiple of tile_width,
// y0 likewise from top by one of tile_height. Good heights are in crates/engine/src/backend/hip/adm.rs.
//
// With the suffix `_group` for the pictures that are compared with one reference, one launch each: `keep` has room for
// ADM_KEEP_WORDS words for each thread and row of each tile, and two rows more. They are written by the first picture,
// and read by those which are `later`; these do not write the reference's low band, nor its sums.
#define ADM0_TILE(T, many, group, keep, later)                                                                 \
  const HvPlane r = frame->reference[0], d = frame->distorted[0];                                              \
  adm::tile<0, T, many, group>({r.data, r.stride, r.shift, bits, shape.in_width, shape.in_height},             \
                               {d.data, d.stride, d.shift, bits, shape.in_width, shape.in_height}, out, shape, \
                               passes, rows, keep, later);
#define ADM0(name, T, many)                                                                                  \
  HV_KERNEL(ADM_BOUNDS(T, many, sizeof(T) == 1 ? 24 : 20), name)(                                            \
                               const HvFrame *__restrict__ frame, AdmPlanes out, AdmScale shape,             \
                               uint32_t bits, AdmPasses passes, uint64_t *rows) {                            \
    ADM0_TILE(T, many, false, nullptr, false)                                                                \
  }                                                                                                          \
  HV_EXPORT(name)
#define ADM0_GROUP(name, T, many)                                                                            \
  HV_KERNEL(ADM_BOUNDS(T, many, sizeof(T) == 1 ? 24 : 20), name)(                                            \
                               const HvFrame *__restrict__ frame, AdmPlanes out, AdmScale shape,             \
                               uint32_t bits, AdmPasses passes, uint64_t *rows, uint32_t *keep,              \
                               uint32_t later) {                                                             \
    ADM0_TILE(T, many, true, keep, later)                                                                    \
  }                                                                                                          \
  HV_EXPORT(name)

// Scales 1 to 3, the latter two with one kernel: the same from the low bands of the scale before. If `out.reference` is
// null, no low band is written.
#define ADM_TILE(scale, many, group, keep, later)                                                                       \
  using T = adm::Kind<scale>::In;                                                                                       \
  const uint32_t stride = in.stride * (uint32_t)sizeof(T);                                                              \
  adm::tile<scale, T, many, group>({(const uint8_t *)in.reference, stride, 0, 0, shape.in_width, shape.in_height},      \
                                   {(const uint8_t *)in.distorted, stride, 0, 0, shape.in_width, shape.in_height}, out, \
                                   shape, passes, rows, keep, later);
#define ADM(name, scale, many)                                                                               \
  HV_KERNEL(ADM_BOUNDS(int32_t, many, 16), name)(                                                            \
                               AdmPlanes in, AdmPlanes out, AdmScale shape, AdmPasses passes,                \
                               uint64_t *rows) {                                                             \
    ADM_TILE(scale, many, false, nullptr, false)                                                             \
  }                                                                                                          \
  HV_EXPORT(name)
#define ADM_GROUP(name, scale, many)                                                                         \
  HV_KERNEL(ADM_BOUNDS(int32_t, many, 16), name)(                                                            \
                               AdmPlanes in, AdmPlanes out, AdmScale shape, AdmPasses passes,                \
                               uint64_t *rows, uint32_t *keep, uint32_t later) {                             \
    ADM_TILE(scale, many, true, keep, later)                                                                 \
  }                                                                                                          \
  HV_EXPORT(name)
