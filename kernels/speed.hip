// SPDX-License-Identifier: MPL-2.0
//
// SpEED chroma: small images of Cb and Cr, less their local mean, the covariances of the samples in a block, and the
// variance fields of the blocks. Eigenvalues and entropies are left to the CPU: the former are one long chain of roots and
// quotients, the latter take logarithms.
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
#define SPEED_PARTS (SPEED_BLOCK * (SPEED_BLOCK + 1) / 2)  // blocks of threads that the pairs of offsets are dealt out to
#define SPEED_COMPARERS 256  // threads of such a block
#define SPEED_ADDERS 64      // of them add up, the first of them at that; the others prepare
#define SPEED_PLACES 96      // that are prepared at a time; of single numbers four times as many
#define SPEED_GROUP 32       // terms that are loaded ahead
#define SPEED_SOLVERS 512  // threads that compute the variance fields of a plane
#define SPEED_SYSTEMS 128  // of them have a block of samples each
#define SPEED_STRIDE (SPEED_OFFSETS + 3)  // from row to row of a matrix, in whole words of 16 bytes
#define SPEED_EPSILON 1e-6  // numbers below are taken for zero

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
};
HV_SIZE(SpeedMean, 32);
HV_OFFSET(SpeedMean, taps, 0);
HV_OFFSET(SpeedMean, width, 8);
HV_OFFSET(SpeedMean, height, 12);
HV_OFFSET(SpeedMean, used, 16);
HV_OFFSET(SpeedMean, count, 24);

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

// The fields: the used parts of the small images less their local mean, one after another.
// Block 128 threads; grid (ceil(used width * used height / 128), planes).
HV_KERNEL(SPEED_THREADS, speed_mean)(const float *__restrict__ images, SpeedMean mean, uint32_t planes,
                                     float *fields) {
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
  fields[plane * mean.used[0] * mean.used[1] + i] = image[y * mean.width + x] - row;
}
HV_EXPORT(speed_mean)

namespace speed {

// What a thread loads at once.
template <class T> struct alignas(16) Vector { static constexpr int size = 16 / sizeof(T); T v[size]; };

// Terms of some sums at some places, and at a few more to keep sums off each other's banks.
template <class T, int sums, int count> struct alignas(16) Chunk {
  static constexpr int places = count;
  Vector<T> terms[sums][count / Vector<T>::size + 1];

  HV_MEMBER T &at(int sum, int place) { return terms[sum][place / Vector<T>::size].v[place % Vector<T>::size]; }
};

struct Room {
  union {
    Chunk<float, 2 * SPEED_BLOCK, 4 * SPEED_PLACES> samples[2];
    Chunk<double, SPEED_OFFSETS, SPEED_PLACES> products[2];
  };
  double means[2 * SPEED_BLOCK];
};

// The sum and `count` groups of terms, one after the other. Half a group is on its way while the other half is added,
// so that an addition waits for the one before it alone.
template <class T> HV_DEV T add(T sum, int count, const Vector<T> *terms) {
  constexpr int size = Vector<T>::size, half = SPEED_GROUP / size / 2;
  Vector<T> some[half], others[half];
  const auto load = [&](Vector<T> (&to)[half]) {
#pragma unroll
    for (int i = 0; i < half; i++) to[i] = terms[i];
    terms += half;
  };
  const auto add = [&](const Vector<T> (&from)[half]) {
#pragma unroll
    for (int i = 0; i < SPEED_GROUP / 2; i++) sum += from[i / size].v[i % size];
  };
  load(some);
  load(others);
#pragma unroll 1
  for (int i = 1; i < count; i++) {
    add(some);
    load(some);
    add(others);
    load(others);
  }
  add(some);
  add(others);
  return sum;
}

// A block of threads has the pairs of the offsets in a row of the block of samples with those in the same or an
// earlier row. Additions come one after the other, so what they wait for has to be there: a wave adds up the terms of
// a chunk of places while the others prepare the next one. First these are the samples at each offset, which make its
// mean, and then the products of what samples differ from their means by.
struct Part {
  const float *field;
  int width, columns, places;  // of the field, and those that blocks of samples begin at
  int later, earlier;          // the rows of the part

  HV_MEMBER Part(const float *samples, int w, int h)
      : field(samples), width(w), columns(w - SPEED_BLOCK + 1), places(columns * (h - SPEED_BLOCK + 1)), later(0) {
    while ((later + 1) * (later + 2) / 2 <= (int)blockIdx.x) later++;
    earlier = (int)blockIdx.x - later * (later + 1) / 2;
  }

  // A chunk from the place `first` on. Beyond the last place are zeros, which change no sum.
  template <class Chunk, class Terms>
  HV_MEMBER void prepare(Chunk &chunk, int first, int thread, int threads, const Terms &terms) const {
    for (int i = thread; i < Chunk::places; i += threads) {
      const uint32_t place = (uint32_t)(first + i), across = (uint32_t)columns;
      const bool inside = place < (uint32_t)places;
      const float *at = field + (inside ? place / across * (uint32_t)width + place % across : 0);
      float samples[2 * SPEED_BLOCK];
#pragma unroll
      for (int offset = 0; offset < 2 * SPEED_BLOCK; offset++)
        samples[offset] = at[(offset < SPEED_BLOCK ? later : earlier) * width + offset % SPEED_BLOCK];
      terms(chunk, i, samples, inside);
    }
  }

  // The sums of the terms at all places, each in one of the first threads.
  template <class T, int sums, int count, class Terms>
  HV_MEMBER T sum(Chunk<T, sums, count> (&chunks)[2], const Terms &terms) const {
    const int t = (int)threadIdx.x;
    T sum = 0;
    prepare(chunks[0], 0, t, SPEED_COMPARERS, terms);
    __syncthreads();
    for (int i = 0, left = places; left > 0; i++, left -= count) {
      if (t >= SPEED_ADDERS) {
        if (left > count)
          prepare(chunks[(i + 1) % 2], (i + 1) * count, t - SPEED_ADDERS, SPEED_COMPARERS - SPEED_ADDERS, terms);
      } else if (t < sums) {
        sum = add(sum, (hv_min(left, count) + SPEED_GROUP - 1) / SPEED_GROUP, chunks[i % 2].terms[t]);
      }
      __syncthreads();
    }
    return sum;
  }
};

HV_DEV void covariances(const Part &part, Room &room, float *covariance) {
  const int t = (int)threadIdx.x;
  const float all = part.sum(room.samples, [](auto &chunk, int place, const auto &samples, bool inside) {
#pragma unroll
    for (int i = 0; i < 2 * SPEED_BLOCK; i++) chunk.at(i, place) = inside ? samples[i] : 0;
  });
  if (t < 2 * SPEED_BLOCK) room.means[t] = all / (float)part.places;
  __syncthreads();
  const double sum = part.sum(room.products, [&](auto &chunk, int place, const auto &samples, bool inside) {
    double deviations[2 * SPEED_BLOCK];
#pragma unroll
    for (int i = 0; i < 2 * SPEED_BLOCK; i++) deviations[i] = inside ? (double)samples[i] - room.means[i] : 0;
#pragma unroll
    for (int i = 0; i < SPEED_OFFSETS; i++)
      chunk.at(i, place) = deviations[i / SPEED_BLOCK] * deviations[SPEED_BLOCK + i % SPEED_BLOCK];
  });
  const int row = part.later * SPEED_BLOCK + t / SPEED_BLOCK, column = part.earlier * SPEED_BLOCK + t % SPEED_BLOCK;
  if (t < SPEED_OFFSETS && column <= row) covariance[row * (row + 1) / 2 + column] = (float)(sum / (double)part.places);
}

}  // namespace speed

// The covariances of a block's samples over all places, each pair of offsets once, to the start of the plane's sums.
// width, height: of the fields; stride: floats from plane to plane in the sums. Block 256 threads; grid (15, planes).
HV_KERNEL(SPEED_COMPARERS, speed_covariance)(const float *__restrict__ fields, int width, int height, uint32_t stride,
                                             uint32_t planes, float *__restrict__ sums) {
  __shared__ speed::Room room;
  const int plane = speed::plane_of(blockIdx.y, planes);
  const speed::Part part(fields + plane * width * height, width, height);
  speed::covariances(part, room, sums + (uint32_t)plane * stride);
}
HV_EXPORT(speed_covariance)

namespace speed {

using Matrix = float[SPEED_OFFSETS][SPEED_STRIDE];

struct Solver {
  // What is left of the covariance, and beside it the transposed orthogonal factor, before and after a reflection. There
  // are whole groups of four rows, the last of which are zero.
  alignas(16) float both[2][SPEED_STRIDE][2 * SPEED_STRIDE];
  alignas(16) Matrix covariance, triangle;
  alignas(16) float direction[SPEED_STRIDE];
  float solutions[SPEED_OFFSETS][SPEED_SYSTEMS];

  // A row of the orthogonal factor: no reflection changes it any more after its own.
  HV_MEMBER const float *orthogonal(int i) const {
    return both[(hv_min(i, SPEED_OFFSETS - 2) + 1) % 2][i] + SPEED_STRIDE;
  }
};

// The orthogonal factor of the covariance, by Householder's reflections that are multiplied out.
HV_DEV void reflect_all(Solver &s) {
  const int t = (int)threadIdx.x;
  for (int k = 0; k < SPEED_OFFSETS - 1; k++) {
    const auto &before = s.both[k % 2];
    auto &after = s.both[(k + 1) % 2];
    // Each thread that needs the length finds it, so that none waits for another one.
    if (t >= k && t < SPEED_OFFSETS) {
      float v[SPEED_OFFSETS], squares = 0, length = 0;
#pragma unroll
      for (int i = 0; i < SPEED_OFFSETS; i++) v[i] = i < k ? 0 : before[i][k];
#pragma unroll
      for (int i = 0; i < SPEED_OFFSETS; i++) squares += v[i] * v[i];
      // The sign is that of the covariance, not of what has become of it.
      const float first = (s.covariance[k][k] >= 0 ? 1.0f : -1.0f) * hv_sqrt_f32(squares);
#pragma unroll
      for (int i = 0; i < SPEED_OFFSETS; i++) {
        if (i == k) v[i] += first;
        length += v[i] * v[i];
      }
      s.direction[t] = (before[t][k] + (t == k ? first : 0)) / hv_sqrt_f32(length);
    }
    if (t < k || (t >= SPEED_OFFSETS && t < SPEED_STRIDE)) s.direction[t] = 0;
    __syncthreads();
    // A thread has a column of both, and some of its rows. Nobody looks at columns up to k again, of what is left of the
    // covariance.
    const int of_both = t % 64;
    if (of_both > k && of_both < 2 * SPEED_OFFSETS) {
      const int column = of_both < SPEED_OFFSETS ? of_both : of_both + SPEED_STRIDE - SPEED_OFFSETS;
      float v[SPEED_STRIDE];
#pragma unroll
      for (int i = 0; i < SPEED_STRIDE; i++) v[i] = before[i][column];
      for (int row = k + t / 64; row < SPEED_OFFSETS; row += SPEED_SOLVERS / 64) {
        const float twice = -2 * s.direction[row];
        float sum = 0;
#pragma unroll
        for (int j = 0; j < SPEED_STRIDE; j += 4) {
          if (j + 4 <= k) continue;
#pragma unroll
          for (int i = j; i < j + 4; i++) {
            float reflection = twice * s.direction[i];
            if (i == row) reflection += 1;
            sum += reflection * v[i];
          }
        }
        after[row][column] = sum;
      }
    }
    __syncthreads();
  }
}

// The mean over a block of the product of its samples with the solution of the system that has them on its right-hand side.
HV_DEV float variance(Solver &s, const float *block, int width) {
  const int t = (int)threadIdx.x;
  float y[SPEED_OFFSETS], last = 0;
#pragma unroll
  for (int i = 0; i < SPEED_OFFSETS; i++) y[i] = block[i / SPEED_BLOCK * width + i % SPEED_BLOCK];
  for (int i = SPEED_OFFSETS - 1; i >= 0; i--) {
    const float *orthogonal = s.orthogonal(i), *triangle = s.triangle[i];
    float sum = 0;
#pragma unroll
    for (int j = 0; j < SPEED_OFFSETS; j++) sum += orthogonal[j] * y[j];
    // What was just found is at hand, the others are in memory.
    if (i + 1 < SPEED_OFFSETS) sum -= last * triangle[i + 1];
#pragma unroll 8
    for (int j = i + 2; j < SPEED_OFFSETS; j++) sum -= s.solutions[j][t] * triangle[j];
    last = sum / triangle[i];
    s.solutions[i][t] = last;
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < SPEED_OFFSETS; i++) sum += s.solutions[i][t] * y[i] / (float)SPEED_OFFSETS;
  return sum;
}

HV_DEV void variances(Solver &s, const float *field, int width, int height, float *sums) {
  const int t = (int)threadIdx.x;
  for (int i = t; i < SPEED_STRIDE * SPEED_STRIDE; i += SPEED_SOLVERS) {
    const int row = i / SPEED_STRIDE, column = i % SPEED_STRIDE;
    const bool inside = row < SPEED_OFFSETS && column < SPEED_OFFSETS;
    const int a = hv_max(row, column), b = hv_min(row, column);
    const float value = inside ? sums[a * (a + 1) / 2 + b] : 0;
    if (row < SPEED_OFFSETS) s.covariance[row][column] = value;
    for (auto &both : s.both) {
      both[row][column] = value;
      both[row][SPEED_STRIDE + column] = inside && row == column ? 1 : 0;
    }
  }
  __syncthreads();
  reflect_all(s);
  for (int i = t; i < SPEED_OFFSETS * SPEED_OFFSETS; i += SPEED_SOLVERS) {
    const int row = i / SPEED_OFFSETS, column = i % SPEED_OFFSETS;
    const float *orthogonal = s.orthogonal(row);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < SPEED_OFFSETS; j++) sum += orthogonal[j] * s.covariance[j][column];
    s.triangle[row][column] = sum;
  }
  __syncthreads();
  if (t == SPEED_SYSTEMS) {
    bool singular = false;
    for (int i = 0; i < SPEED_OFFSETS; i++) {
      const float value = s.triangle[i][i];
      singular |= (double)(value < 0 ? -value : value) < SPEED_EPSILON;
    }
    sums[SPEED_PAIRS] = singular ? 0 : 1;
  }
  const int beside = width / SPEED_BLOCK, blocks = beside * (height / SPEED_BLOCK);
  if (t >= SPEED_SYSTEMS) return;
  for (int i = t; i < blocks; i += SPEED_SYSTEMS) {
    const float *block = field + (i / beside * width + i % beside) * SPEED_BLOCK;
    sums[SPEED_PAIRS + 1 + i] = variance(s, block, width);
  }
}

}  // namespace speed

// After the covariances in the plane's sums: one if they are regular, and zero if not, and the variance field of each block
// of samples. width, height: of the fields. Block 512 threads; grid (1, planes).
HV_KERNEL(SPEED_SOLVERS, speed_variances)(const float *__restrict__ fields, int width, int height, uint32_t stride,
                                          uint32_t planes, float *__restrict__ sums) {
  __shared__ speed::Solver solver;
  const int plane = speed::plane_of(blockIdx.y, planes);
  speed::variances(solver, fields + plane * width * height, width, height, sums + (uint32_t)plane * stride);
}
HV_EXPORT(speed_variances)
