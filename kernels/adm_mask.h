// SPDX-License-Identifier: MPL-2.0
//
// Contrast masking and the sums: the part of a signal counts that exceeds the threshold of visibility which its masker
// sets around it. Its cubes are summed row by row. A threshold needs the rows above and below, so a chain is one row
// behind.
#pragma once
#include "adm_transform.h"

namespace adm {

// The contributions of masker coefficients to the threshold of their neighbours, and the additional ones to their own.
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
      // libvmaf's rounding constant is minus one half.
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

  template <int threads> HV_MEMBER void load(const int32_t (&from)[10][threads]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      box[i] = from[i][threadIdx.x];
      partial[i] = from[2 + i][threadIdx.x];
#pragma unroll
      for (int band = 0; band < 3; band++) signal[band][i] = from[4 + 2 * band + i][threadIdx.x];
    }
  }
  template <int threads> HV_MEMBER void save(int32_t (&to)[10][threads]) const {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      to[i][threadIdx.x] = box[i];
      to[2 + i][threadIdx.x] = partial[i];
#pragma unroll
      for (int band = 0; band < 3; band++) to[4 + 2 * band + i][threadIdx.x] = signal[band][i];
    }
  }
};

// Row sums between registers and memory: triples of each lane, of which ADM_SLOTS are summed at a time.
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
    hv_sync_wave();
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
    hv_sync_wave();
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
        // libvmaf's rounding constant is a full unit here.
        const uint32_t shift = shape.reference_square;
        const uint32_t square = (uint32_t)(hv_mad_u64(u, u, 1u << shift) >> shift);
        sums[band] += hv_mad_u64(square, u, (1ull << shape.reference_cube) >> 1) >> shape.reference_cube;
      }
    }
  }
}

// Advances the chain to row y and, if `count`, sums the cubes of the row before.
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
  if (at.x == shape.width - 1) side[1] = side[0];
  int32_t before = (int32_t)hv_shfl_u32((uint32_t)side[1], at.left);
  int32_t after = (int32_t)hv_shfl_u32((uint32_t)side[0], at.right);
  if (at.x == 0) before = side[1];
  if (at.x == shape.width - 2) after = side[1];
  box[0] = before + side[0] + side[1];
  box[1] = side[0] + side[1] + after;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    if (y == shape.height) box[i] = chain.box[i];  // the row below the last is the last
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

}  // namespace adm
