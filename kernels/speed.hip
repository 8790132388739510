// SPDX-License-Identifier: MPL-2.0
//
// SpEED chroma: small images of Cb and Cr, less their local mean, and the covariances of the samples in a block.
//
// All floating point operations are those of the CPU in the same order, and `crates/engine/src/metrics/speed` has the
// tables.
// Planes are numbered as they come in the sums: Cb of the reference and of the distorted picture, then Cr. Kernels take
// all 4 of them, or the 2 of the distorted picture.
#include "frame.h"

#define SPEED_THREADS 128
#define SPEED_PLANES 4
#define SPEED_TILE 32      // samples of the small image in a block, all of one row
#define SPEED_MAX_TAPS 35  // of the low-pass filter
#define SPEED_BLOCK 5      // samples along a side of the blocks that the covariance is of
#define SPEED_OFFSETS (SPEED_BLOCK * SPEED_BLOCK)
#define SPEED_PAIRS (SPEED_OFFSETS * (SPEED_OFFSETS + 1) / 2)
#define SPEED_PART 55   // of these pairs, in a block
#define SPEED_CHUNK 32  // columns of a row at a time
#define SPEED_ADDERS 64  // threads of a block that add up, the first SPEED_PART of them; the others prepare
#define SPEED_KEPT 8192  // samples of a plane that a block keeps in shared memory: those of 4096x2160 pictures

// A sample of a plane and what it counts; `Sample` in `crates/engine/src/metrics/speed/mod.rs`.
struct alignas(8) SpeedSource { uint32_t index; float weight; };
HV_SIZE(SpeedSource, 8);
HV_OFFSET(SpeedSource, index, 0);
HV_OFFSET(SpeedSource, weight, 4);

// How a plane becomes a small image.
struct SpeedScaling {
  const SpeedSource *x, *y;     // for each sample of an axis and each tap, `spread` samples of the plane
  const float *taps;            // of the low-pass filter
  int32_t width, height;        // of the small image
  int32_t count, spread;        // taps, and samples that make a resampled one
  uint32_t bits, normalised;    // of the samples; the weights do not sum to one
  float unit;                   // from samples to 8-bit steps
};
HV_SIZE(SpeedScaling, 56);
HV_OFFSET(SpeedScaling, x, 0);
HV_OFFSET(SpeedScaling, y, 8);
HV_OFFSET(SpeedScaling, taps, 16);
HV_OFFSET(SpeedScaling, width, 24);
HV_OFFSET(SpeedScaling, height, 28);
HV_OFFSET(SpeedScaling, count, 32);
HV_OFFSET(SpeedScaling, spread, 36);
HV_OFFSET(SpeedScaling, bits, 40);
HV_OFFSET(SpeedScaling, normalised, 44);
HV_OFFSET(SpeedScaling, unit, 48);

// How a small image becomes one without its local mean.
struct SpeedMean {
  const float *taps;
  int32_t width, height;  // of the small image
  int32_t used[2];        // width and height of the part that makes whole blocks
  int32_t count;          // taps
  uint32_t stride;        // floats from plane to plane in the sums
};
HV_SIZE(SpeedMean, 32);
HV_OFFSET(SpeedMean, taps, 0);
HV_OFFSET(SpeedMean, width, 8);
HV_OFFSET(SpeedMean, height, 12);
HV_OFFSET(SpeedMean, used, 16);
HV_OFFSET(SpeedMean, count, 24);
HV_OFFSET(SpeedMean, stride, 28);

namespace speed {

HV_DEV int plane_of(uint32_t i, uint32_t planes) { return (int)(planes == SPEED_PLANES ? i : 2 * i + 1); }

HV_DEV int reflect(int i, int n) {
  i = hv_abs(i);
  return i < n ? i : 2 * (n - 1) - i;
}

template <class T>
HV_DEV float number(const HvPlane &plane, uint32_t x, uint32_t y, const SpeedScaling &scaling) {
  const uint8_t *at = plane.data + (uint64_t)y * plane.stride + x * plane.step * sizeof(T);
  return (float)(int)hv_sample<T>(at, plane.shift, scaling.bits) * scaling.unit - 128.0f;
}

// The sum over the taps of the rows, in a column of the plane as it is.
template <class T>
HV_DEV float plain(const HvPlane &plane, const SpeedSource *x, const SpeedSource *y, const SpeedScaling &scaling,
                   int count) {
  float sum = 0;
  for (int k = 0; k < count; k++)
    sum += scaling.taps[k] * number<T>(plane, x->index, y[k].index, scaling);
  return sum;
}

// The same in a column of the resampled plane.
template <class T>
HV_DEV float resampled(const HvPlane &plane, const SpeedSource *x, const SpeedSource *y, const SpeedScaling &scaling) {
  float sum = 0;
  for (int k = 0; k < scaling.count; k++, y += scaling.spread) {
    float value = 0, total = 0;
    for (int j = 0; j < scaling.spread; j++)
      for (int i = 0; i < scaling.spread; i++) {
        const float weight = y[j].weight * x[i].weight;
        value += number<T>(plane, x[i].index, y[j].index, scaling) * weight;
        total += weight;
      }
    sum += scaling.taps[k] * (scaling.normalised ? value / total : value);
  }
  return sum;
}

// `line` is room for the vertical sums of a tile.
template <class T>
HV_DEV void small(const HvFrame *frame, const SpeedScaling &scaling, uint32_t planes, float *images, float *line) {
  const int taps = scaling.count, left = (int)blockIdx.x * SPEED_TILE, width = hv_min(SPEED_TILE, scaling.width - left);
  const int plane = plane_of(blockIdx.y % planes, planes), y = (int)(blockIdx.y / planes);
  const HvPlane from = plane % 2 ? frame->distorted[1 + plane / 2] : frame->reference[1 + plane / 2];
  for (int i = (int)threadIdx.x; i < width * taps; i += SPEED_THREADS) {
    const SpeedSource *column = scaling.x + (left * taps + i) * scaling.spread;
    const SpeedSource *rows = scaling.y + y * taps * scaling.spread;
    if (scaling.spread > 1) line[i] = resampled<T>(from, column, rows, scaling);
    else if (taps == 9) line[i] = plain<T>(from, column, rows, scaling, 9);  // unrolled, for the usual filter
    else line[i] = plain<T>(from, column, rows, scaling, taps);
  }
  __syncthreads();
  const int x = (int)threadIdx.x;
  if (x >= width) return;
  float sum = 0;
  for (int k = 0; k < taps; k++) sum += scaling.taps[k] * line[x * taps + k];
  images[(plane * scaling.height + y) * scaling.width + left + x] = sum;
}

}  // namespace speed

// Small images of the planes, one after another. Block 128 threads; grid (ceil(width/32), planes x height).
#define SPEED_SMALL(name, T)                                                                                 \
  HV_KERNEL(SPEED_THREADS, name)(const HvFrame *__restrict__ frame, SpeedScaling scaling, uint32_t planes,   \
                                 float *images) {                                                            \
    __shared__ float line[SPEED_TILE * SPEED_MAX_TAPS];                                                      \
    speed::small<T>(frame, scaling, planes, images, line);                                                   \
  }                                                                                                          \
  HV_EXPORT(name)

SPEED_SMALL(speed_small_u8, uint8_t)
SPEED_SMALL(speed_small_u16, uint16_t)

// The used parts of the small images less their local mean, each to the end of its plane's sums.
// Block 128 threads; grid (ceil(used width * used height / 128), planes).
HV_KERNEL(SPEED_THREADS, speed_mean)(const float *__restrict__ images, SpeedMean mean, uint32_t planes,
                                     float *sums) {
  const int i = (int)(blockIdx.x * SPEED_THREADS + threadIdx.x), plane = speed::plane_of(blockIdx.y, planes);
  if (i >= mean.used[0] * mean.used[1]) return;
  const int x = i % mean.used[0], y = i / mean.used[0], radius = mean.count / 2;
  const float *image = images + plane * mean.width * mean.height;
  float row = 0;
  for (int l = 0; l < mean.count; l++) {
    const int column = speed::reflect(x + l - radius, mean.width);
    float sum = 0;
    for (int k = 0; k < mean.count; k++)
      sum += mean.taps[k] * image[speed::reflect(y + k - radius, mean.height) * mean.width + column];
    row += mean.taps[l] * sum;
  }
  sums[plane * mean.stride + SPEED_PAIRS + 1 + i] = image[y * mean.width + x] - row;
}
HV_EXPORT(speed_mean)

namespace speed {

struct Room {
  double deviations[2][SPEED_CHUNK][SPEED_OFFSETS];
  float means[SPEED_OFFSETS];
};

// Additions come one after the other, so what they wait for has to be there: some threads add up a chunk of columns while
// the others prepare the next one, each sample less the mean of its offset in the block.
HV_DEV void covariances(const float *image, int width, int height, Room &room, float *covariance) {
  const int t = (int)threadIdx.x, columns = width - SPEED_BLOCK + 1, rows = height - SPEED_BLOCK + 1;
  if (t < SPEED_OFFSETS) {
    float sum = 0;
    for (int y = 0; y < rows; y++) {
      const float *row = image + (y + t / SPEED_BLOCK) * width + t % SPEED_BLOCK;
#pragma unroll 16
      for (int x = 0; x < columns; x++) sum += row[x];
    }
    room.means[t] = sum / (float)(columns * rows);
  }
  __syncthreads();

  const auto prepare = [&](int step, int y, int left, int thread, int threads) {
    for (int i = thread; i < SPEED_CHUNK * SPEED_OFFSETS; i += threads) {
      const int x = i % SPEED_CHUNK, e = i / SPEED_CHUNK;
      if (left + x >= columns) continue;
      const float value = image[(y + e / SPEED_BLOCK) * width + left + x + e % SPEED_BLOCK];
      room.deviations[step % 2][x][e] = (double)value - (double)room.means[e];
    }
  };
  const int pair = (int)blockIdx.x * SPEED_PART + t;
  const bool adds = t < SPEED_PART && pair < SPEED_PAIRS;
  int a = 0;
  while (a + 1 < SPEED_OFFSETS && (a + 1) * (a + 2) / 2 <= pair) a++;
  const int b = pair - a * (a + 1) / 2;
  double sum = 0;
  prepare(0, 0, 0, t, SPEED_THREADS);
  __syncthreads();
  for (int step = 0, y = 0, left = 0; y < rows; step++) {
    const int chunk = hv_min(SPEED_CHUNK, columns - left);
    const bool ends = left + SPEED_CHUNK >= columns;
    const int next_y = ends ? y + 1 : y, next_left = ends ? 0 : left + SPEED_CHUNK;
    if (t >= SPEED_ADDERS) {
      if (next_y < rows) prepare(step + 1, next_y, next_left, t - SPEED_ADDERS, SPEED_THREADS - SPEED_ADDERS);
    } else if (adds) {
      const auto &deviations = room.deviations[step % 2];
#pragma unroll 8
      for (int x = 0; x < chunk; x++) sum += deviations[x][a] * deviations[x][b];
    }
    y = next_y, left = next_left;
    __syncthreads();
  }
  if (adds) covariance[pair] = (float)(sum / (double)(columns * rows));
}

}  // namespace speed

// The covariances of a block's samples over all places, each pair of offsets once, to the start of the plane's sums.
// width, height: of the used part. Block 128 threads; grid (6, planes).
HV_KERNEL(SPEED_THREADS, speed_covariance)(int width, int height, uint32_t stride, uint32_t planes, float *sums) {
  __shared__ speed::Room room;
  __shared__ float kept[SPEED_KEPT];
  float *covariance = sums + (uint32_t)speed::plane_of(blockIdx.y, planes) * stride;
  const float *image = covariance + SPEED_PAIRS + 1;
  if (width * height > SPEED_KEPT) return speed::covariances(image, width, height, room, covariance);
  for (int i = (int)threadIdx.x; i < width * height; i += SPEED_THREADS) kept[i] = image[i];
  __syncthreads();
  speed::covariances(kept, width, height, room, covariance);
}
HV_EXPORT(speed_covariance)
