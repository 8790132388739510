// SPDX-License-Identifier: MPL-2.0
//
// The terms of float_motion: absolute differences of two filtered luma pictures of the reference.
// `crates/engine/src/metrics/float_motion.rs` has the definition; all operations are those of the CPU in the same order.
// `ordered.hip` adds the terms.
#include "single.h"

#define FLOAT_MOTION_THREADS 256
#define FLOAT_MOTION_TILE_W 64
#define FLOAT_MOTION_TILE_H 16
#define FLOAT_MOTION_TAPS 5
#define FLOAT_MOTION_REACH 2
#define FLOAT_MOTION_RUN 4  // pixels of a thread, one beside or below the other

// A filter, and the place of its terms.
struct FloatMotionTerms {
  float taps[FLOAT_MOTION_TAPS];
  uint32_t terms;   // of the first term in the scratch, in units of 4 bytes
  uint32_t stride;  // from row to row
};
HV_SIZE(FloatMotionTerms, 28);
HV_OFFSET(FloatMotionTerms, taps, 0);
HV_OFFSET(FloatMotionTerms, terms, 20);
HV_OFFSET(FloatMotionTerms, stride, 24);

namespace float_motion {

constexpr int WIDTH = FLOAT_MOTION_TILE_W + 2 * FLOAT_MOTION_REACH, HEIGHT = FLOAT_MOTION_TILE_H + 2 * FLOAT_MOTION_REACH;

HV_DEV float filter(const float *v, const float (&taps)[FLOAT_MOTION_TAPS]) {
  float sum = taps[0] * v[0];
#pragma unroll
  for (int k = 1; k < FLOAT_MOTION_TAPS; k++) sum += taps[k] * v[k];
  return sum;
}

template <class T>
HV_DEV void terms(const HvFrame *__restrict__ frame, int width, int height, uint32_t bits, float unit, FloatMotionTerms out,
                  float *scratch) {
  __shared__ float samples[2][HEIGHT][WIDTH], filtered[2][FLOAT_MOTION_TILE_H][WIDTH];
  const HvPlane planes[2] = {frame->earlier[0], frame->reference[0]};
  if (!planes[0].data) return;
  const int left = (int)blockIdx.x * FLOAT_MOTION_TILE_W, top = (int)blockIdx.y * FLOAT_MOTION_TILE_H;
#pragma unroll
  for (int side = 0; side < 2; side++) {
    const HvPlane plane = planes[side];
    for (int i = (int)threadIdx.x; i < WIDTH * HEIGHT; i += FLOAT_MOTION_THREADS) {
      const int x = hv_mirror(left + i % WIDTH - FLOAT_MOTION_REACH, width), y = hv_mirror(top + i / WIDTH - FLOAT_MOTION_REACH, height);
      const uint8_t *at = plane.data + (uint64_t)y * plane.stride + (uint32_t)x * sizeof(T);
      samples[side][i / WIDTH][i % WIDTH] = hv_centred<T>(at, plane.shift, bits, unit);
    }
  }
  __syncthreads();
  constexpr int runs = FLOAT_MOTION_TILE_H / FLOAT_MOTION_RUN;
  for (int i = (int)threadIdx.x; i < 2 * runs * WIDTH; i += FLOAT_MOTION_THREADS) {
    const int side = i / (runs * WIDTH), first = i / WIDTH % runs * FLOAT_MOTION_RUN, x = i % WIDTH;
    float v[FLOAT_MOTION_RUN + 2 * FLOAT_MOTION_REACH];
#pragma unroll
    for (int k = 0; k < FLOAT_MOTION_RUN + 2 * FLOAT_MOTION_REACH; k++) v[k] = samples[side][first + k][x];
#pragma unroll
    for (int k = 0; k < FLOAT_MOTION_RUN; k++) filtered[side][first + k][x] = filter(v + k, out.taps);
  }
  __syncthreads();
  constexpr int beside = FLOAT_MOTION_TILE_W / FLOAT_MOTION_RUN;
  const int row = (int)threadIdx.x / beside, column = (int)threadIdx.x % beside * FLOAT_MOTION_RUN;
  const int x = left + column, y = top + row;
  if (x >= width || y >= height) return;
  float v[2][FLOAT_MOTION_RUN + 2 * FLOAT_MOTION_REACH];
#pragma unroll
  for (int side = 0; side < 2; side++)
#pragma unroll
    for (int k = 0; k < FLOAT_MOTION_RUN + 2 * FLOAT_MOTION_REACH; k++) v[side][k] = filtered[side][row][column + k];
  float *to = scratch + out.terms + (uint64_t)y * out.stride + (uint32_t)x;
#pragma unroll
  for (int k = 0; k < FLOAT_MOTION_RUN; k++) {
    const float difference = filter(v[0] + k, out.taps) - filter(v[1] + k, out.taps);
    if (x + k < width) to[k] = difference < 0 ? -difference : difference;
  }
}

}  // namespace float_motion

// Does nothing where there is no earlier picture. width, height: pixels, at least 3. unit: from samples to 8-bit steps. Block
// 256 threads, a tile of 64 x 16 pixels; grid (ceil(width/64), ceil(height/16)).
#define FLOAT_MOTION(name, T)                                                                                      \
  HV_KERNEL(FLOAT_MOTION_THREADS, name)(const HvFrame *__restrict__ frame, int width, int height, uint32_t bits,   \
                                        float unit, FloatMotionTerms out, float *scratch) {                        \
    float_motion::terms<T>(frame, width, height, bits, unit, out, scratch);                                        \
  }                                                                                                                \
  HV_EXPORT(name)

FLOAT_MOTION(float_motion_u8, uint8_t)
FLOAT_MOTION(float_motion_u16, uint16_t)
