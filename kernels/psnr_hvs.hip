// SPDX-License-Identifier: MPL-2.0
//
// PSNR-HVS: the weighted errors of all blocks, and their sum. Formulas are those of libvmaf 3.2.0's psnr_hvs
// (BSD-2-Clause-Patent), which has them from Daala (Xiph.Org, BSD-2-Clause).
#include "frame.h"

#define HVS_THREADS 64   // a block of the picture each
#define HVS_STEP 7       // samples from one block to the next
#define HVS_SUM_THREADS 1024
#define HVS_SUM_BLOCKS 4  // blocks of the picture for each of them
// Distance from the bits of a power of two to those of the next: added to any sum, it crosses the power.
#define HVS_FULL 0x00800000u

// The layout of the scratch of a distorted picture: for Y, Cb and Cr, the offsets in units of 4 bytes, and the numbers
// of blocks, in a row and altogether.
struct HvsLayout {
  uint32_t errors[3], totals[3], waves[3], additions[3], columns[3], blocks[3];
};
HV_SIZE(HvsLayout, 72);
HV_OFFSET(HvsLayout, errors, 0);
HV_OFFSET(HvsLayout, totals, 12);
HV_OFFSET(HvsLayout, waves, 24);
HV_OFFSET(HvsLayout, additions, 36);
HV_OFFSET(HvsLayout, columns, 48);
HV_OFFSET(HvsLayout, blocks, 60);

// The factors of an error and of a squared coefficient, and the reciprocal of the latter.
struct alignas(16) HvsWeights {
  float error, mask, inverse, unused;
};
HV_SIZE(HvsWeights, 16);
HV_OFFSET(HvsWeights, error, 0);
HV_OFFSET(HvsWeights, mask, 4);
HV_OFFSET(HvsWeights, inverse, 8);
HV_OFFSET(HvsWeights, unused, 12);

namespace hvs {

// The component of a block of threads, of which each component has as many as its blocks take, and the block's index
// there.
template <int threads> HV_DEV uint32_t component_of(const HvsLayout &layout, uint32_t &tile) {
  uint32_t component = 0;
  for (tile = blockIdx.x; component < 2; component++) {
    const uint32_t tiles = (layout.blocks[component] + threads - 1) / threads;
    if (tile < tiles) break;
    tile -= tiles;
  }
  return component;
}

HV_DEV uint32_t bits_of(float v) { return __builtin_bit_cast(uint32_t, v); }
HV_DEV float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// Half of a number, rounded towards zero.
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

// Turns the samples of a block into coefficients. Returns the strength with which they mask errors.
HV_DEV float masking(int32_t block[64], const HvsWeights *weights) {
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
  for (int k = 1; k < 64; k++) energy += (float)(block[k] * block[k]) * float_of(hv_ldg((const uint32_t *)&weights[k].mask));
  return hv_sqrt_f32(energy * ratio) * (1.0f / 32.0f);
}

template <class T> HV_DEV void load(const HvPlane &plane, uint32_t bits, int x, int y, int32_t block[64]) {
  const uint8_t *at = plane.data + (uint64_t)y * plane.stride + (uint32_t)x * plane.step * sizeof(T);
#pragma unroll
  for (int k = 0; k < 64; k++)
    block[k] = (int32_t)hv_sample<T>(at + (uint32_t)(k / 8) * plane.stride + (uint32_t)(k % 8) * plane.step * sizeof(T),
                                     plane.shift, bits);
}

// The sum over the wave, in any order.
HV_DEV float wave_sum(float v) {
#pragma unroll
  for (uint32_t m = HV_WAVE / 2; m; m >>= 1) v += float_of(hv_shfl_xor_u32(bits_of(v), m));
  return v;
}

template <class T>
HV_DEV void errors_of(const HvFrame *__restrict__ frame, uint32_t bits, const HvsLayout &layout,
                      const HvsWeights *__restrict__ tables, uint32_t pictures, uint32_t pitch, float *scratch) {
  // Each thread's own coefficients of the reference, which would not fit its registers.
  __shared__ int32_t reference[64][HVS_THREADS];
  uint32_t tile;
  const uint32_t component = component_of<HVS_THREADS>(layout, tile);
  const uint32_t columns = layout.columns[component], blocks = layout.blocks[component];
  const uint32_t index = tile * HVS_THREADS + threadIdx.x;
  // Threads after the last block repeat it without using the result.
  const bool inside = index < blocks;
  const uint32_t block_index = inside ? index : blocks - 1;
  const int x = (int)(block_index % columns) * HVS_STEP, y = (int)(block_index / columns) * HVS_STEP;
  const HvsWeights *weights = tables + component * 64;
  int32_t block[64];
  float of_reference = 0;
#pragma unroll 1
  for (uint32_t side = 0; side <= pictures; side++) {
    load<T>(side ? frame[side - 1].distorted[component] : frame->reference[component], bits, x, y, block);
    const float own = masking(block, weights);
    if (side == 0) {
      of_reference = own;
#pragma unroll
      for (int k = 0; k < 64; k++) reference[k][threadIdx.x] = block[k];
      continue;
    }
    const float strength = hv_max(of_reference, own);
    float *errors = scratch + layout.errors[component];
    float total = 0;
#pragma unroll
    for (int k = 0; k < 64; k++) {
      const HvsWeights weight = __builtin_bit_cast(HvsWeights, hv_ldg((const HvU32x4 *)(weights + k)));
      float error = (float)hv_abs(reference[k][threadIdx.x] - block[k]);
      if (k) {
        const float threshold = hv_quotient_f32(strength, weight.mask, weight.inverse);
        error = error > threshold ? error - threshold : 0.0f;
      }
      error *= weight.error;
      error *= error;
      if (inside) errors[(uint64_t)k * blocks + index] = error;
      total += error;
    }
    total = inside ? total : 0.0f;
    if (inside) scratch[layout.totals[component] + index] = total;
    total = wave_sum(total);
    if (hv_lane() == 0) scratch[layout.waves[component] + index / HV_WAVE] = total;
    scratch += pitch;
  }
}

}  // namespace hvs

// The errors of all blocks, each 64: error k of block i of a component is errors[k * blocks + i] there. Beside them what
// they come to, about, for each block and for each wave of the blocks. tables: for each component 64 weights. pitch: from
// the scratch of a distorted picture to the next one's. Block 64 threads, grid ceil(blocks/64) of each component.
#define PSNR_HVS(name, T)                                                                                       \
  HV_KERNEL(HVS_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, HvsLayout layout,              \
                               const HvsWeights *__restrict__ tables, uint32_t pictures, uint32_t pitch,  \
                               float *scratch) {                                                                \
    hvs::errors_of<T>(frame, bits, layout, tables, pictures, pitch, scratch);                                   \
  }                                                                                                             \
  HV_EXPORT(name)

PSNR_HVS(psnr_hvs_u8, uint8_t)
PSNR_HVS(psnr_hvs_u16, uint16_t)

// The sum of the errors of a component is a single to which they are added one after another, block by block, with rounding.
// Still, many threads compute it. While the sum stays below the next power of two, the amount that an error adds to its bits
// depends only on whether these are even, since only the rounding of halves depends on them. So the addition of a block of
// the picture is a function of two values (`v`, for even and odd), and a sequence of such functions is one again: a scan
// over the blocks gives the sum after each.
//
// The functions depend on the power of two. psnr_hvs_additions guesses it from the approximate total of the blocks before,
// so it computes the functions of all blocks in parallel. psnr_hvs_sum knows the power. If the guess was wrong, which
// happens only near powers of two, or if the sum crosses one, it adds the errors of the block one by one.
namespace hvs {

HV_DEV uint32_t plus(uint32_t total, HvU32x2 added) { return total + (total & 1 ? added.v[1] : added.v[0]); }

// Applies one after the other.
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

// The addition of a block for a sum with this power of two. It is read from the result of psnr_hvs_additions, whose
// upper 8 bits are the exponent that it was made for.
HV_DEV HvU32x2 addition(HvU32x2 left, uint32_t power) {
  const bool known = left.v[0] >> 24 == power >> 23;
  return {{known ? left.v[0] & 0x00ffffffu : HVS_FULL, known ? left.v[1] : HVS_FULL}};
}

}  // namespace hvs

// For each block of the picture, the addition of its errors to a sum close to that of the blocks before it. Block 64
// threads, grid (ceil(blocks/64) of each component, pictures).
HV_KERNEL(HVS_THREADS, psnr_hvs_additions)(HvsLayout layout, uint32_t pitch, float *scratch) {
  uint32_t tile;
  const uint32_t component = hvs::component_of<HVS_THREADS>(layout, tile), lane = hv_lane();
  const uint32_t blocks = layout.blocks[component], index = tile * HVS_THREADS + threadIdx.x;
  scratch += (uint64_t)blockIdx.y * pitch;
  const float *waves = scratch + layout.waves[component];
  float before = 0;
#pragma unroll 4
  for (uint32_t i = lane; i < index / HV_WAVE; i += HV_WAVE) before += waves[i];
  before = hvs::wave_sum(before);
  const float own = index < blocks ? scratch[layout.totals[component] + index] : 0.0f;
  float until = own;
#pragma unroll
  for (uint32_t d = 1; d < HV_WAVE; d *= 2) {
    const float other = hvs::float_of(hv_shfl_u32(hvs::bits_of(until), lane >= d ? lane - d : lane));
    until += lane >= d ? other : 0.0f;
  }
  const uint32_t power = hvs::bits_of(before + (until - own)) & 0x7f800000u;
  if (index >= blocks) return;
  const float *errors = scratch + layout.errors[component] + index;
  float even = hvs::float_of(power), odd = hvs::float_of(power | 1);
#pragma unroll 16
  for (uint32_t k = 0; k < 64; k++) {
    const float error = errors[(uint64_t)k * blocks];
    even += error, odd += error;
  }
  const HvU32x2 added = {{hv_min(hvs::bits_of(even) - power, HVS_FULL), hv_min(hvs::bits_of(odd) - (power | 1), HVS_FULL)}};
  ((HvU32x2 *)(scratch + layout.additions[component]))[index] = {{added.v[0] | power << 1, added.v[1]}};
}
HV_EXPORT(psnr_hvs_additions)

// The bits of the sums of the errors of each component. Block 1024 threads, grid (3, pictures); pitches from the scratch of
// a distorted picture to the next one's, and from its sums.
HV_KERNEL(HVS_SUM_THREADS, psnr_hvs_sum)(HvsLayout layout, uint32_t pitch, const float *scratch, uint32_t sums_pitch,
                                         uint64_t *sums) {
  __shared__ HvU32x2 waves[HV_MAX_WAVES_PER_BLOCK(HVS_SUM_THREADS)];
  __shared__ uint32_t state[2];
  const uint32_t blocks = layout.blocks[blockIdx.x], lane = hv_lane(), wave = threadIdx.x / HV_WAVE;
  scratch += (uint64_t)blockIdx.y * pitch;
  const float *errors = scratch + layout.errors[blockIdx.x];
  const HvU32x2 *additions = (const HvU32x2 *)(scratch + layout.additions[blockIdx.x]);
  uint32_t total = 0;  // the bits of the sum of all blocks before `next`
  for (uint32_t next = 0; next < blocks; next = state[1], total = state[0]) {
    const uint32_t power = total & 0x7f800000u, first = next + threadIdx.x * HVS_SUM_BLOCKS;
    HvU32x2 own[HVS_SUM_BLOCKS], added = {{0, 0}};
#pragma unroll
    for (uint32_t i = 0; i < HVS_SUM_BLOCKS; i++) {
      own[i] = first + i < blocks ? hvs::addition(additions[first + i], power) : HvU32x2{{0, 0}};
      added = hvs::then(added, own[i]);
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
    uint32_t before = lane ? of_lane_before : before_wave;
    // Sums only grow, so at most one thread has the sum below the power before its blocks and not after them.
    const bool below = (after ^ total) >> 23 == 0;
    if (!below && (before ^ total) >> 23 == 0) {
      uint32_t block = first;
#pragma unroll
      for (uint32_t i = 0; i < HVS_SUM_BLOCKS; i++) {
        const uint32_t with = hvs::plus(before, own[i]);
        const bool still = block == first + i && (with ^ total) >> 23 == 0;
        before = still ? with : before, block += still;
      }
      float sum = hvs::float_of(before);
#pragma unroll 16
      for (uint32_t k = 0; k < 64; k++) sum += errors[(uint64_t)k * blocks + block];
      state[0] = hvs::bits_of(sum), state[1] = block + 1;
    } else if (below && threadIdx.x == HVS_SUM_THREADS - 1) {
      state[0] = after, state[1] = first + HVS_SUM_BLOCKS;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.y * sums_pitch + blockIdx.x] = total;
}
HV_EXPORT(psnr_hvs_sum)
