// SPDX-License-Identifier: MPL-2.0
//
// XPSNR: activities of the reference's luma and squared errors of all components, for each block of the picture. A block of
// threads counts one of them alone, so no sum is shared. Definition: `crates/engine/src/metrics/xpsnr.rs`.
#include "frame.h"

#define XPSNR_THREADS 128
#define XPSNR_SUMS 5  // of a block: spatial and temporal activity, squared errors of Y, Cb and Cr

// The sizes of the planes and their blocks: columns and rows.
struct XpsnrLayout {
  int32_t luma[2];
  int32_t block;      // a multiple of 4
  int32_t columns;    // blocks in a row
  int32_t present[2]; // chroma in memory, zeros without chroma
  int32_t whole[2];   // chroma with the column and row that repeat the last ones
  int32_t chroma_block[2];
  uint32_t bits;
  uint32_t second_order;
};
HV_SIZE(XpsnrLayout, 48);
HV_OFFSET(XpsnrLayout, luma, 0);
HV_OFFSET(XpsnrLayout, block, 8);
HV_OFFSET(XpsnrLayout, columns, 12);
HV_OFFSET(XpsnrLayout, present, 16);
HV_OFFSET(XpsnrLayout, whole, 24);
HV_OFFSET(XpsnrLayout, chroma_block, 32);
HV_OFFSET(XpsnrLayout, bits, 40);
HV_OFFSET(XpsnrLayout, second_order, 44);

namespace xpsnr {

template <class T> struct Four;  // four samples as loaded
template <> struct Four<uint8_t> {
  uint32_t v[1];
  HV_MEMBER explicit Four(const uint8_t *at) : v{hv_ldg((const uint32_t *)at)} {}
};
template <> struct Four<uint16_t> {
  uint32_t v[2];
  HV_MEMBER explicit Four(const uint8_t *at) {
    const HvU32x2 words = hv_ldg((const HvU32x2 *)at);
    v[0] = words.v[0], v[1] = words.v[1];
  }
};

HV_DEV int limited(int i, int n) { return hv_max(hv_min(i, n - 1), 0); }

// Sample x of row y.
template <class T> HV_DEV int32_t sample(const HvPlane &plane, int x, int y, uint32_t bits) {
  const uint8_t *row = plane.data + (uint64_t)(uint32_t)y * plane.stride;
  return (int32_t)hv_sample<T>(row + (uint32_t)x * plane.step * sizeof(T), plane.shift, bits);
}

// Samples x to x + 3 of row y, x being a multiple of 4. Columns after the end repeat the last one.
template <class T> HV_DEV void load(int32_t to[4], const HvPlane &plane, int x, int y, int width, uint32_t bits) {
  if (plane.step == 1 && x + 4 <= width) {
    const uint8_t *row = plane.data + (uint64_t)(uint32_t)y * plane.stride;
    const Four<T> four(row + (uint32_t)x * sizeof(T));
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = (int32_t)hv_sample_in<T>(four.v, i, plane.shift, bits);
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = sample<T>(plane, limited(x + i, width), y, bits);
  }
}

// Adds the high pass of single samples, in 4x4 samples that begin at (x, y).
template <class T> HV_DEV uint64_t high_pass_of_ones(const HvPlane &plane, int x, int y, int width, int height, uint32_t bits) {
  int32_t blur[6][4], centre[6][4];
#pragma unroll
  for (int r = 0; r < 6; r++) {
    const int row = limited(y + r - 1, height);
    load<T>(centre[r], plane, x, row, width, bits);
    const int32_t left = sample<T>(plane, limited(x - 1, width), row, bits);
    const int32_t right = sample<T>(plane, limited(x + 4, width), row, bits);
#pragma unroll
    for (int i = 0; i < 4; i++)
      blur[r][i] = (i ? centre[r][i - 1] : left) + 2 * centre[r][i] + (i < 3 ? centre[r][i + 1] : right);
  }
  uint32_t sum = 0;  // below 16 times 2^18
#pragma unroll
  for (int r = 0; r < 4; r++) {
    if (y + r < 1 || y + r >= height - 1) continue;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int32_t f = 16 * centre[r + 1][i] - (blur[r][i] + 2 * blur[r + 1][i] + blur[r + 2][i]);
      sum += x + i >= 1 && x + i < width - 1 ? (uint32_t)hv_abs(f) : 0;
    }
  }
  return sum;
}

// Adds the high pass of 2x2 samples, in 4x4 samples that begin at (x, y).
template <class T> HV_DEV uint64_t high_pass_of_quads(const HvPlane &plane, int x, int y, int width, int height, uint32_t bits) {
  int32_t rows[8][8];  // from (x - 2, y - 2) on
#pragma unroll
  for (int r = 0; r < 8; r++) {
    const int row = limited(y + r - 2, height);
    int32_t beside[4];
    load<T>(beside, plane, hv_max(x - 4, 0), row, width, bits);
    rows[r][0] = beside[2], rows[r][1] = beside[3];
    load<T>(rows[r] + 2, plane, x, row, width, bits);
    load<T>(beside, plane, x + 4, row, width, bits);
    rows[r][6] = beside[0], rows[r][7] = beside[1];
  }
  uint32_t sum = 0;  // below 4 times 2^20
#pragma unroll
  for (int r = 0; r < 4; r += 2) {
    if (y + r < 2 || y + r >= height - 2) continue;
    int32_t outer[8], next[8], inner[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      outer[i] = rows[r][i] + rows[r + 5][i];
      next[i] = rows[r + 1][i] + rows[r + 4][i];
      inner[i] = rows[r + 2][i] + rows[r + 3][i];
    }
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int32_t *a = outer + i, *b = next + i, *c = inner + i;
      const int32_t f = 12 * (c[2] + c[3]) - 3 * (c[1] + c[4]) - (c[0] + c[5]) - 3 * (b[2] + b[3]) -
                        2 * (b[1] + b[4]) - (b[0] + b[5]) - (a[1] + a[2] + a[3] + a[4]);
      sum += x + i >= 2 && x + i < width - 2 ? (uint32_t)hv_abs(f) : 0;
    }
  }
  return sum;
}

// Adds twice the differences over time in 4x4 samples that begin at (x, y): of each sample, or of 2x2 samples.
template <class T, int STEP>
HV_DEV uint64_t change(const HvFrame *__restrict__ frame, int x, int y, int width, int height, uint32_t bits, bool second_order) {
  const HvPlane now = frame->reference[0], before = frame->earlier[0];
  HvPlane first = frame->earlier[1];
  if (!second_order) first.data = nullptr;
  uint32_t sum = 0;
#pragma unroll
  for (int r = 0; r < 4; r += STEP) {
    if (y + r >= height) continue;
    int32_t total[4] = {};
#pragma unroll
    for (int s = 0; s < STEP; s++) {
      const int row = limited(y + r + s, height);
      int32_t values[4];
      load<T>(values, now, x, row, width, bits);
#pragma unroll
      for (int i = 0; i < 4; i++) total[i] += values[i];
      if (before.data) {
        load<T>(values, before, x, row, width, bits);
#pragma unroll
        for (int i = 0; i < 4; i++) total[i] -= second_order ? 2 * values[i] : values[i];
      }
      if (first.data) {
        load<T>(values, first, x, row, width, bits);
#pragma unroll
        for (int i = 0; i < 4; i++) total[i] += values[i];
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i += STEP) {
      const int32_t t = STEP == 1 ? total[i] : total[i] + total[i + 1];
      sum += x + i < width ? (uint32_t)hv_abs(t) : 0;
    }
  }
  return 2 * (uint64_t)sum;
}

// Adds the squared errors of the columns from `left` to `right` among four samples of a row.
template <class T>
HV_DEV uint32_t squares(const HvPlane &a, const HvPlane &b, int x, int y, int width, uint32_t bits, int left, int right) {
  int32_t reference[4], distorted[4];
  load<T>(reference, a, x, y, width, bits);
  load<T>(distorted, b, x, y, width, bits);
  uint32_t sum = 0;  // below 4 times 2^28
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int32_t error = reference[i] - distorted[i];
    sum += x + i >= left && x + i < right ? (uint32_t)(error * error) : 0;
  }
  return sum;
}

template <class T, int STEP>
HV_DEV void count(const HvFrame *__restrict__ frame, const XpsnrLayout &layout, bool activity, uint64_t *sums) {
  const uint32_t bits = layout.bits;
  const int thread = threadIdx.x, column = blockIdx.x, row = blockIdx.y;
  uint64_t own[XPSNR_SUMS] = {};
  {
    const HvPlane a = frame->reference[0], b = frame->distorted[0];
    const int width = layout.luma[0], height = layout.luma[1];
    const int left = column * layout.block, right = hv_min(left + layout.block, width);
    const int top = row * layout.block, bottom = hv_min(top + layout.block, height);
    const int across = (right - left + 3) / 4, down = (bottom - top + 3) / 4;
    for (int i = thread; i < across * down; i += XPSNR_THREADS) {
      const int x = left + i % across * 4, y = top + i / across * 4;
      if (activity) {
        own[0] += STEP == 1 ? high_pass_of_ones<T>(a, x, y, width, height, bits) : high_pass_of_quads<T>(a, x, y, width, height, bits);
        own[1] += change<T, STEP>(frame, x, y, width, height, bits, layout.second_order);
      }
#pragma unroll
      for (int r = 0; r < 4; r++)
        if (y + r < bottom) own[2] += squares<T>(a, b, x, y + r, width, bits, left, right);
    }
  }
  if (layout.present[0]) {
    const int left = column * layout.chroma_block[0], right = hv_min(left + layout.chroma_block[0], layout.whole[0]);
    const int top = row * layout.chroma_block[1], bottom = hv_min(top + layout.chroma_block[1], layout.whole[1]);
    const int first = left / 4 * 4, across = (right - first + 3) / 4, pieces = across * (bottom - top);
    for (int i = thread; i < 2 * pieces; i += XPSNR_THREADS) {
      const int second = i >= pieces, piece = second ? i - pieces : i;
      const int x = first + piece % across * 4, y = hv_min(top + piece / across, layout.present[1] - 1);
      const HvPlane a = frame->reference[1 + second], b = frame->distorted[1 + second];
      const uint32_t sum = squares<T>(a, b, x, y, layout.present[0], bits, left, right);
      own[3] += second ? 0 : sum, own[4] += second ? sum : 0;
    }
  }
  __shared__ uint64_t waves[XPSNR_SUMS][HV_MAX_WAVES_PER_BLOCK(XPSNR_THREADS)];
#pragma unroll
  for (int i = 0; i < XPSNR_SUMS; i++) {
    const uint64_t sum = hv_wave_sum_u64(own[i]);
    if (hv_lane() == 0) waves[i][thread / HV_WAVE] = sum;
  }
  __syncthreads();
  if (thread >= XPSNR_SUMS) return;
  uint64_t sum = 0;
  for (int i = 0; i < XPSNR_THREADS / HV_WAVE; i++) sum += waves[thread][i];
  sums[(uint32_t)(row * layout.columns + column) * XPSNR_SUMS + thread] = sum;
}

}  // namespace xpsnr

// Writes five sums for each block of a pair, in raster order; activities only if `activity` is not 0. Block 128 threads;
// grid (blocks in a row, rows of blocks). _large is for pictures above 2048x1152.
#define XPSNR(name, T, step)                                                                            \
  HV_KERNEL(XPSNR_THREADS, name)(const HvFrame *__restrict__ frame, XpsnrLayout layout, uint32_t activity, \
                                 uint64_t *sums) {                                                      \
    xpsnr::count<T, step>(frame, layout, activity, sums);                                               \
  }                                                                                                     \
  HV_EXPORT(name)

XPSNR(xpsnr_u8, uint8_t, 1)
XPSNR(xpsnr_u16, uint16_t, 1)
XPSNR(xpsnr_large_u8, uint8_t, 2)
XPSNR(xpsnr_large_u16, uint16_t, 2)
