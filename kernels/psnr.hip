// SPDX-License-Identifier: MPL-2.0
//
// PSNR: the sum of squared differences of one component.
#include "frame.h"

#define PSNR_THREADS 256  // 32 along a row, 8 rows at a time
#define PSNR_ROWS 2       // of a thread
#define PSNR_SAMPLES(T) (16 / (int)sizeof(T))  // of a thread in a row, loaded at once
#define PSNR_TILE_H (PSNR_THREADS / 32 * PSNR_ROWS)

namespace psnr {

// The sum over the samples of 16 bytes, of which the first `n` count.
template <class T>
HV_DEV uint64_t squares(const HvU32x4 &a, uint32_t a_shift, const HvU32x4 &b, uint32_t b_shift, uint32_t bits,
                        int n) {
  if (sizeof(T) == 1) {
    uint32_t equal = 0, mixed = 0;  // (a - b)^2 = a^2 + b^2 - 2 a b, four at once
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int m = n - 4 * i;
      const uint32_t mask = m >= 4 ? ~0u : m <= 0 ? 0 : (1u << 8 * m) - 1;
      const uint32_t p = a.v[i] & mask, q = b.v[i] & mask;
      equal = hv_udot4(p, p, hv_udot4(q, q, equal));
      mixed = hv_udot4(p, q, mixed);
    }
    return equal - 2 * mixed;
  } else {
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < PSNR_SAMPLES(T); i++) {
      const uint32_t e = hv_sample_in<T>(a.v, i, a_shift, bits) - hv_sample_in<T>(b.v, i, b_shift, bits);
      sum += i < n ? e * e : 0;  // below 2^32, whatever the sign
    }
    return sum;
  }
}

template <class T>
HV_DEV void psnr(const HvFrame *__restrict__ frame, uint32_t component, int width, int height, uint32_t bits,
                 uint64_t *total) {
  const HvPlane a = frame->reference[component], b = frame->distorted[component];
  const int lane = threadIdx.x % 32, left = (int)blockIdx.x * 32 * PSNR_SAMPLES(T);
  uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < PSNR_ROWS; i++) {
    const int y = (int)blockIdx.y * PSNR_TILE_H + i * (PSNR_THREADS / 32) + (int)threadIdx.x / 32;
    if (y >= height) continue;
    const uint8_t *p = a.data + (uint64_t)y * a.stride, *q = b.data + (uint64_t)y * b.stride;
    if (a.step == 1 && b.step == 1) {
      const int x = left + lane * PSNR_SAMPLES(T);
      if (x >= width) continue;
      const HvU32x4 reference = hv_ldg((const HvU32x4 *)(p + x * sizeof(T)));
      const HvU32x4 distorted = hv_ldg((const HvU32x4 *)(q + x * sizeof(T)));
      sum += squares<T>(reference, a.shift, distorted, b.shift, bits, width - x);
    } else {
      for (int x = left + lane; x < hv_min(width, left + 32 * PSNR_SAMPLES(T)); x += 32) {
        const uint32_t e = hv_sample<T>(p + (uint32_t)x * a.step * sizeof(T), a.shift, bits) -
                           hv_sample<T>(q + (uint32_t)x * b.step * sizeof(T), b.shift, bits);
        sum += e * e;
      }
    }
  }
  hv_block_add_u64<PSNR_THREADS>(total, sum);
}

}  // namespace psnr

// Adds to *sum the squared differences of component 0, 1 or 2 of the pair. width, height: samples of the component.
// Block 256 threads, a tile of 512 x 16 (u8) or 256 x 16 (u16) samples; grid (ceil(width/512), ceil(height/16)) or
// (ceil(width/256), ceil(height/16)).
#define PSNR(name, T)                                                                                         \
  HV_KERNEL(PSNR_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t component, int width, int height, \
                                uint32_t bits, uint64_t *sum) {                                               \
    psnr::psnr<T>(frame, component, width, height, bits, sum);                                                \
  }                                                                                                           \
  HV_EXPORT(name)

PSNR(psnr_u8, uint8_t)
PSNR(psnr_u16, uint16_t)
