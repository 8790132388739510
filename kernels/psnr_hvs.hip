// SPDX-License-Identifier: MPL-2.0
//
// PSNR-HVS: the weighted errors of all blocks, and their sum. Formulas are those of libvmaf 3.2.0's psnr_hvs
// (BSD-2-Clause-Patent), which has them from Daala (Xiph.Org, BSD-2-Clause).
#include "frame.h"

#define HVS_THREADS 64   // a block of the picture each
#define HVS_STEP 7       // samples from one block to the next
#define HVS_SUM_THREADS 1024  // a block of the picture each
#define HVS_FULL 0x00800000u  // from the bits of a power of two to those of the next

// Where the errors of Y, Cb and Cr begin, and of how many blocks they are.
struct HvsErrors {
  uint32_t first[3], blocks[3];
};
HV_SIZE(HvsErrors, 24);
HV_OFFSET(HvsErrors, first, 0);
HV_OFFSET(HvsErrors, blocks, 12);

namespace hvs {

HV_DEV float root(float v) {
#if defined(HV_HOST) || defined(HV_BARE)
  return __builtin_sqrtf(v);
#else
  return sqrtf(v);
#endif
}
HV_DEV uint32_t bits_of(float v) { return __builtin_bit_cast(uint32_t, v); }
HV_DEV float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// Half, rounded towards zero.
HV_DEV int32_t half(int32_t a) { return (a - (a >> 31)) >> 1; }
template <int shift> HV_DEV int32_t scaled(int32_t a, int32_t factor) {
  return (a * factor + (1 << (shift - 1))) >> shift;
}

// The integer DCT of eight numbers `step` apart.
template <int step> HV_DEV void transform(int32_t *x) {
  const int32_t d07 = x[0] - x[7 * step], h07 = half(d07), s07 = x[0] - h07;
  const int32_t s16 = x[step] + x[6 * step], h16 = half(s16), d16 = x[6 * step] - h16;
  const int32_t d25 = x[2 * step] - x[5 * step], s25 = x[2 * step] - half(d25);
  const int32_t s34 = x[3 * step] + x[4 * step], h34 = half(s34), d34 = h34 - x[4 * step];

  int32_t e0 = s07 + h34, e6 = e0 - s34, e2 = h16 - s25, e4 = e2 - s16;
  e0 -= scaled<15>(e4, 13573);
  e4 += scaled<14>(e0, 11585);
  e0 -= scaled<15>(e4, 13573);
  e6 -= scaled<15>(e2, 21895);
  e2 += scaled<14>(e6, 15137);
  e6 -= scaled<15>(e2, 21895);

  int32_t o3 = d25 + scaled<15>(d16, 19195), o5 = d16 + scaled<14>(o3, 11585);
  o3 -= scaled<13>(o5, 7489);
  int32_t o7 = half(o5) - d34;
  o5 -= o7;
  o3 = h07 - o3;
  int32_t o1 = d07 - o3;
  o7 += scaled<15>(o1, 3227);
  o1 -= scaled<15>(o7, 6393);
  o7 += scaled<15>(o1, 3227);
  o5 += scaled<13>(o3, 2485);
  o3 -= scaled<15>(o5, 18205);
  o5 += scaled<13>(o3, 2485);

  x[0] = e0, x[step] = o1, x[2 * step] = e2, x[3 * step] = o3;
  x[4 * step] = e4, x[5 * step] = o5, x[6 * step] = e6, x[7 * step] = o7;
}

// Sum of squared differences from the mean of size x size samples.
template <int size> HV_DEV float deviation(const int32_t *samples) {
  int32_t sum = 0;
#pragma unroll
  for (int k = 0; k < size * size; k++) sum += samples[k / size * 8 + k % size];
  const float mean = (float)sum * (1.0f / (float)(size * size));
  float squares = 0;
#pragma unroll
  for (int k = 0; k < size * size; k++) {
    const float difference = (float)samples[k / size * 8 + k % size] - mean;
    squares += difference * difference;
  }
  return squares;
}

// Turns the samples of a block into coefficients; returns how strongly they mask errors.
HV_DEV float masking(int32_t block[64], const float *mask) {
  const float all = deviation<8>(block) * ((1.0f / 63.0f) * 64.0f);
  constexpr float factor = (1.0f / 15.0f) * 16.0f;
  float quarters = deviation<4>(block) * factor;
  quarters += deviation<4>(block + 32) * factor;
  quarters += deviation<4>(block + 4) * factor;
  quarters += deviation<4>(block + 36) * factor;
  const float ratio = all > 0.0f ? quarters / all : 0.0f;
#pragma unroll
  for (int i = 0; i < 8; i++) transform<8>(block + i);
#pragma unroll
  for (int i = 0; i < 8; i++) transform<1>(block + 8 * i);
  float energy = 0;
#pragma unroll
  for (int k = 1; k < 64; k++) energy += (float)(block[k] * block[k]) * __builtin_bit_cast(float, hv_ldg((const uint32_t *)mask + k));
  return root(energy * ratio) * (1.0f / 32.0f);
}

template <class T> HV_DEV void load(const HvPlane &plane, uint32_t bits, int x, int y, int32_t block[64]) {
  const uint8_t *at = plane.data + (uint64_t)y * plane.stride + (uint32_t)x * plane.step * sizeof(T);
#pragma unroll
  for (int k = 0; k < 64; k++)
    block[k] = (int32_t)hv_sample<T>(at + (uint32_t)(k / 8) * plane.stride + (uint32_t)(k % 8) * plane.step * sizeof(T),
                                     plane.shift, bits);
}

template <class T>
HV_DEV void errors_of(const HvFrame *__restrict__ frame, uint32_t component, uint32_t bits, uint32_t columns,
                      uint32_t blocks, const float *__restrict__ tables, uint32_t pictures, uint32_t pitch,
                      float *errors) {
  // Each thread's own coefficients of the reference, which would not fit its registers.
  __shared__ int32_t reference[64][HVS_THREADS];
  const uint32_t index = blockIdx.x * HVS_THREADS + threadIdx.x;
  if (index >= blocks) return;
  const int x = (int)(index % columns) * HVS_STEP, y = (int)(index / columns) * HVS_STEP;
  const float *csf = tables + component * 128, *mask = csf + 64;
  int32_t block[64];
  float of_reference = 0;
#pragma unroll 1
  for (uint32_t side = 0; side <= pictures; side++) {
    load<T>(side ? frame[side - 1].distorted[component] : frame->reference[component], bits, x, y, block);
    const float own = masking(block, mask);
    if (side == 0) {
      of_reference = own;
#pragma unroll
      for (int k = 0; k < 64; k++) reference[k][threadIdx.x] = block[k];
      continue;
    }
    const float strength = hv_max(of_reference, own);
#pragma unroll
    for (int k = 0; k < 64; k++) {
      float error = (float)hv_abs(reference[k][threadIdx.x] - block[k]);
      if (k) {
        const float threshold = strength / __builtin_bit_cast(float, hv_ldg((const uint32_t *)mask + k));
        error = error > threshold ? error - threshold : 0.0f;
      }
      error *= __builtin_bit_cast(float, hv_ldg((const uint32_t *)csf + k));
      errors[(uint64_t)k * blocks + index] = error * error;
    }
    errors += pitch;
  }
}

}  // namespace hvs

// The errors of all blocks of one component, each 64: error k of block i is errors[k * blocks + i], those of the next
// distorted picture are `pitch` on. columns: blocks in a row. tables: for each component 64 factors of errors and 64 of
// squared coefficients. Block 64 threads, grid ceil(blocks/64).
#define PSNR_HVS(name, T)                                                                                    \
  HV_KERNEL(HVS_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t component, uint32_t bits,         \
                               uint32_t columns, uint32_t blocks, const float *__restrict__ tables,          \
                               uint32_t pictures, uint32_t pitch, float *errors) {                           \
    hvs::errors_of<T>(frame, component, bits, columns, blocks, tables, pictures, pitch, errors);             \
  }                                                                                                          \
  HV_EXPORT(name)

PSNR_HVS(psnr_hvs_u8, uint8_t)
PSNR_HVS(psnr_hvs_u16, uint16_t)

// Adding errors to a sum, as additions to its bits. As long as the sum stays below the next power of two, these depend
// only on whether the bits are even: on that alone the rounding of halves depends. `v` has both cases. What is HVS_FULL
// takes any sum across the power.
namespace hvs {

HV_DEV uint32_t plus(uint32_t total, HvU32x2 added) { return total + (total & 1 ? added.v[1] : added.v[0]); }

// One after the other.
HV_DEV HvU32x2 then(HvU32x2 a, HvU32x2 b) {
  return {{hv_min(plus(a.v[0], b), HVS_FULL), hv_min(plus(a.v[1] + 1, b) - 1, HVS_FULL)}};
}

// Each lane's addition after those of the lanes before.
HV_DEV HvU32x2 after_lanes_before(HvU32x2 own) {
  const uint32_t lane = hv_lane();
#pragma unroll
  for (uint32_t d = 1; d < HV_WAVE; d *= 2) {
    const uint32_t from = lane >= d ? lane - d : lane;
    const HvU32x2 before = {{hv_shfl_u32(own.v[0], from), hv_shfl_u32(own.v[1], from)}};
    if (lane >= d) own = then(before, own);
  }
  return own;
}

}  // namespace hvs

// The bits of the single precision sums of the errors of each component, added up one after the other in the order of
// blocks, yet by many threads: each finds out what the errors of its block add, and as additions one after the other are
// one addition, a scan over the threads has the sum after each block. A block that takes the sum across a power of two is
// added up for itself, and the next ones anew. Block 1024 threads, grid (3, pictures); pitches as above, of errors and of sums.
HV_KERNEL(HVS_SUM_THREADS, psnr_hvs_sum)(const float *errors, HvsErrors where, uint32_t pitch, uint32_t sums_pitch,
                                         uint64_t *sums) {
  __shared__ HvU32x2 waves[HV_MAX_WAVES_PER_BLOCK(HVS_SUM_THREADS)];
  __shared__ uint32_t state[2];
  const uint32_t blocks = where.blocks[blockIdx.x], lane = hv_lane(), wave = threadIdx.x / HV_WAVE;
  errors += where.first[blockIdx.x] + (uint64_t)blockIdx.y * pitch;
  uint32_t total = 0;  // the bits of the sum of all blocks before `next`
  for (uint32_t next = 0; next < blocks; next = state[1], total = state[0]) {
    const uint32_t power = total & 0x7f800000u, block = next + threadIdx.x;
    HvU32x2 added = {{0, 0}};
    if (block < blocks) {
      float even = hvs::float_of(power), odd = hvs::float_of(power | 1);
#pragma unroll 16
      for (uint32_t k = 0; k < 64; k++) {
        const float error = errors[(uint64_t)k * blocks + block];
        even += error, odd += error;
      }
      added = {{hv_min(hvs::bits_of(even) - power, HVS_FULL), hv_min(hvs::bits_of(odd) - (power | 1), HVS_FULL)}};
    }
    added = hvs::after_lanes_before(added);
    if (lane == HV_WAVE - 1) waves[wave] = added;
    __syncthreads();
    HvU32x2 of_waves = {{0, 0}};
    if (lane < HVS_SUM_THREADS / HV_WAVE) of_waves = waves[lane];
    of_waves = hvs::after_lanes_before(of_waves);
    const uint32_t after_wave = hv_shfl_u32(hvs::plus(total, of_waves), wave ? wave - 1 : 0);
    const uint32_t before_wave = wave ? after_wave : total, after = hvs::plus(before_wave, added);
    const uint32_t of_lane_before = hv_shfl_u32(after, lane ? lane - 1 : 0);
    const uint32_t before = lane ? of_lane_before : before_wave;
    // Sums only grow: there is one block at most with the sum below the power before it and not after.
    const bool below = (after ^ total) >> 23 == 0;
    if (!below && (before ^ total) >> 23 == 0) {
      float sum = hvs::float_of(before);
#pragma unroll 16
      for (uint32_t k = 0; k < 64; k++) sum += errors[(uint64_t)k * blocks + block];
      state[0] = hvs::bits_of(sum), state[1] = block + 1;
    } else if (below && threadIdx.x == HVS_SUM_THREADS - 1) {
      state[0] = after, state[1] = block + 1;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.y * sums_pitch + blockIdx.x] = total;
}
HV_EXPORT(psnr_hvs_sum)
