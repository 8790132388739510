// SPDX-License-Identifier: MPL-2.0
//
// SpEED: small images of Cb and Cr, or of the changes of luma, less their local mean, the covariances of the samples in a block, and the
// variance fields of the blocks. Eigenvalues and entropies are left to the CPU: the former are one long chain of roots and
// quotients, the latter take logarithms.
//
// All floating point operations are those of the CPU in the same order, and `crates/engine/src/metrics/speed` has the
// tables.
// Planes are numbered as they come in the sums: Cb of the reference and of the distorted picture, then Cr. Kernels take
// all 4 of them, or the 2 of the distorted picture.
#include "single.h"

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
#define SPEED_SYSTEMS 128  // blocks of samples that they have at a time
#define SPEED_TEAMS 8      // that reflect, of 32 of these threads each
#define SPEED_STEPS 8      // rows of a system that are solved by the same code
#define SPEED_STRIDE (SPEED_OFFSETS + 3)  // from row to row of a matrix, in whole words of 16 bytes
#define SPEED_EPSILON 1e-6  // numbers below are taken for zero

// A sample of a plane and its weight; `Sample` in `crates/engine/src/metrics/speed/mod.rs`.
struct alignas(8) SpeedSource { uint32_t index; float weight; };
HV_SIZE(SpeedSource, 8);
HV_OFFSET(SpeedSource, index, 0);
HV_OFFSET(SpeedSource, weight, 4);

// Parameters that turn a plane into a small image.
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

// Parameters for subtracting the local mean from a small image.
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

// The samples of a plane.
template <class T> struct Samples {
  HvPlane plane;

  HV_MEMBER float number(uint32_t x, uint32_t y, const SpeedScaling &scaling) const {
    const uint8_t *at = plane.data + (uint64_t)y * plane.stride + x * plane.step * sizeof(T);
    return hv_centred<T>(at, plane.shift, scaling.bits, scaling.unit);
  }
};

// The samples of a plane less those of the next one.
template <class T> struct Changes {
  const T *before, *now;
  uint32_t width;

  HV_MEMBER float number(uint32_t x, uint32_t y, const SpeedScaling &scaling) const {
    const uint64_t at = (uint64_t)y * width + x;
    return (float)((int)before[at] - (int)now[at]) * scaling.unit;
  }
};

// The sum over the taps of the rows, in a column of the plane without resampling.
template <class P>
HV_DEV float plain(const P &plane, const SpeedSource *x, const SpeedSource *y, const SpeedScaling &scaling, int count) {
  float sum = 0;
  for (int k = 0; k < count; k++)
    sum += scaling.taps[k] * plane.number(x->index, y[k].index, scaling);
  return sum;
}

// The same in a column of the resampled plane.
template <class P>
HV_DEV float resampled(const P &plane, const SpeedSource *x, const SpeedSource *y, const SpeedScaling &scaling) {
  float sum = 0;
  for (int k = 0; k < scaling.count; k++, y += scaling.spread) {
    float value = 0, total = 0;
    for (int j = 0; j < scaling.spread; j++)
      for (int i = 0; i < scaling.spread; i++) {
        const float weight = y[j].weight * x[i].weight;
        value += plane.number(x[i].index, y[j].index, scaling) * weight;
        total += weight;
      }
    sum += scaling.taps[k] * (scaling.normalised ? value / total : value);
  }
  return sum;
}

// A row of a tile of the small image of a plane. `line` has room for the vertical sums.
template <class P>
HV_DEV void small(const P &from, int plane, int y, const SpeedScaling &scaling, float *images, float *line) {
  const int taps = scaling.count, left = (int)blockIdx.x * SPEED_TILE, width = hv_min(SPEED_TILE, scaling.width - left);
  for (int i = (int)threadIdx.x; i < width * taps; i += SPEED_THREADS) {
    const SpeedSource *column = scaling.x + (left * taps + i) * scaling.spread;
    const SpeedSource *rows = scaling.y + y * taps * scaling.spread;
    if (scaling.spread > 1) line[i] = resampled(from, column, rows, scaling);
    else if (taps == 9) line[i] = plain(from, column, rows, scaling, 9);  // unrolled, for the usual filter
    else line[i] = plain(from, column, rows, scaling, taps);
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
    const int plane = speed::plane_of(blockIdx.y % planes, planes), y = (int)(blockIdx.y / planes);          \
    const HvPlane *of = plane % 2 ? frame->distorted : frame->reference;                                     \
    speed::small(speed::Samples<T>{of[1 + plane / 2]}, plane, y, scaling, images, line);                     \
  }                                                                                                          \
  HV_EXPORT(name)

SPEED_SMALL(speed_small_u8, uint8_t)
SPEED_SMALL(speed_small_u16, uint16_t)

// Luma of the latest pictures of the reference and of all renditions: `places` groups of `streams` planes, `pitch` samples
// apart.
struct SpeedHistory {
  uint64_t samples;
  uint32_t places, streams, pitch, width;
};
HV_SIZE(SpeedHistory, 24);
HV_OFFSET(SpeedHistory, samples, 0);
HV_OFFSET(SpeedHistory, places, 8);
HV_OFFSET(SpeedHistory, streams, 12);
HV_OFFSET(SpeedHistory, pitch, 16);
HV_OFFSET(SpeedHistory, width, 20);

namespace speed {

template <class T> HV_DEV T *history(const SpeedHistory &from, uint32_t place, uint32_t stream) {
  return (T *)from.samples + ((uint64_t)place * from.streams + stream) * from.pitch;
}

// The changes of the reference, or of the distorted picture, which may go to the present reference.
template <class T>
HV_DEV Changes<T> changes(const HvFrame &frame, const SpeedHistory &from, bool distorted, bool to_reference) {
  const uint32_t stream = distorted ? 1 + frame.rendition : 0, last = frame.place ? frame.place - 1 : from.places - 1;
  return {history<T>(from, last, stream), history<T>(from, frame.place, to_reference ? 0 : stream), from.width};
}

}  // namespace speed

// Keeps luma of a picture. Block 128 threads; grid (ceil(width/128), height).
#define SPEED_KEEP(name, T)                                                                                       \
  HV_KERNEL(SPEED_THREADS, name)(HvPlane plane, uint32_t bits, SpeedHistory to, uint32_t place, uint32_t stream) { \
    const uint32_t x = blockIdx.x * SPEED_THREADS + threadIdx.x, y = blockIdx.y;                                  \
    if (x >= to.width) return;                                                                                    \
    const uint8_t *at = plane.data + (uint64_t)y * plane.stride + x * plane.step * sizeof(T);                     \
    speed::history<T>(to, place, stream)[(uint64_t)y * to.width + x] = (T)hv_sample<T>(at, plane.shift, bits);    \
  }                                                                                                               \
  HV_EXPORT(name)

SPEED_KEEP(speed_keep_u8, uint8_t)
SPEED_KEEP(speed_keep_u16, uint16_t)

// Small images of the changes of luma, of the reference as the second plane and of the distorted picture as the fourth. Sets
// *known where both pictures follow others, and does nothing else where not. Block 128 threads; grid (ceil(width/32), 2 x
// height).
#define SPEED_CHANGES(name, T)                                                                                 \
  HV_KERNEL(SPEED_THREADS, name)(const HvFrame *__restrict__ frame, SpeedHistory from, uint32_t to_reference,  \
                                 SpeedScaling scaling, float *images, uint64_t *known) {                       \
    __shared__ float line[SPEED_TILE * SPEED_MAX_TAPS];                                                        \
    if (frame->age < 2) return;                                                                                \
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *known = 1;                                    \
    const bool distorted = blockIdx.y % 2;                                                                     \
    const auto changes = speed::changes<T>(*frame, from, distorted, to_reference);                             \
    speed::small(changes, distorted ? 3 : 1, (int)(blockIdx.y / 2), scaling, images, line);                    \
  }                                                                                                            \
  HV_EXPORT(name)

SPEED_CHANGES(speed_changes_u8, uint8_t)
SPEED_CHANGES(speed_changes_u16, uint16_t)

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

// The data that a thread loads at once.
template <class T> struct alignas(16) Vector { static constexpr int size = 16 / sizeof(T); T v[size]; };

// Terms of some sums at some positions, with padding that keeps sums off each other's banks.
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

// Adds `count` groups of terms to the sum, one after the other. Half a group is loaded while the other half is added,
// so that an addition waits only for the one before it.
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

  // A chunk from the position `first` on. Beyond the last position are zeros, which change no sum.
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

  // The sums of the terms at all positions, each in one of the first threads.
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

// The orthogonal factor of the covariance is found by Householder's reflections, each of which depends on the one before.
// The slowest step is the direction of the next one, two sums and two roots one after the other: one wave runs ahead of
// the others and has it ready when they have finished the reflection. Rows that no later reflection changes are multiplied
// with the operands meanwhile, so that only the systems remain.

// The data that a reflection changes.
struct State {
  // The columns of the transposed orthogonal factor, and then the remaining ones of the covariance, backwards: a finished
  // column is behind all others. The first and the last column of the covariance are never read.
  alignas(16) float columns[2 * SPEED_OFFSETS - 2][SPEED_STRIDE];
  // The row on the diagonal of the column to reflect next, the rows below, and the direction.
  float pivot;
  alignas(16) float below[SPEED_STRIDE], direction[SPEED_STRIDE];
};

struct Solver {
  State states[2];  // before a reflection, and after it
  // The triangle, its diagonal included.
  alignas(16) float triangle[SPEED_OFFSETS][SPEED_STRIDE];
  float diagonal[SPEED_OFFSETS];
  // The operands of the factor, which are the covariance and the samples of each block, and its product with the latter.
  float given[SPEED_OFFSETS][SPEED_OFFSETS + SPEED_SYSTEMS], right[SPEED_OFFSETS][SPEED_SYSTEMS];
};

using Row = float[SPEED_OFFSETS];

// The numbers of a row from `from` on, in vectors.
template <int from> HV_DEV void load(Row &to, const float *numbers) {
#pragma unroll
  for (int i = from; i < SPEED_OFFSETS; i += 4) {
    const Vector<float> some = *(const Vector<float> *)(numbers + i);
#pragma unroll
    for (int j = 0; j < 4 && i + j < SPEED_OFFSETS; j++) to[i + j] = some.v[j];
  }
}

// A row of the reflection, from the column `from` on. The row of the identity is an argument, as finding the position
// of the one takes longer.
template <int from> HV_DEV void reflection(Row &h, const float *direction, int row, const Row &identity) {
  load<from>(h, direction);
  const float twice = -2 * direction[row];
#pragma unroll
  for (int i = from; i < SPEED_OFFSETS; i++) h[i] = twice * h[i] + identity[i];
}

// The direction of the reflection `k`, of which a thread has the row `t`, and `own` of the column. Each of the threads
// finds the length, so that none waits for another one. Zeros above the pivot change no sum.
template <int from> HV_DEV void direct(const Solver &s, State &state, int k, int t, float own) {
  const float pivot = state.pivot;
  Row v;
  load<from>(v, state.below);
  float squares = pivot * pivot;
#pragma unroll
  for (int i = from; i < SPEED_OFFSETS; i++) squares += v[i] * v[i];
  // The sign is that of the original covariance, not of the transformed one.
  const float moved = pivot + (s.given[k][k] >= 0 ? 1.0f : -1.0f) * hv_sqrt_f32(squares);
  float length = moved * moved;
#pragma unroll
  for (int i = from; i < SPEED_OFFSETS; i++) length += v[i] * v[i];
  state.direction[t] = t < k ? 0 : (t == k ? moved : own) / hv_sqrt_f32(length);
}

// The number of columns that are left after the next one.
HV_DEV int columns_left(int k) { return SPEED_OFFSETS + hv_max(SPEED_OFFSETS - 3 - k, 0); }

// The leading wave reflects the next column before all others, to find the next direction while they are reflected.
// Each thread has a row.
template <int from>
HV_DEV void lead(const Solver &s, const State &before, State &after, int k, int t, const Row &identity) {
  float sum = 0;
  if (t < SPEED_OFFSETS) {
    Row h, v;
    load<from>(v, before.columns[columns_left(k)]);
    reflection<from>(h, before.direction, t, identity);
#pragma unroll
    for (int i = from; i < SPEED_OFFSETS; i++) sum += h[i] * v[i];
    after.below[t] = t > k + 1 ? sum : 0;
    if (t == k + 1) after.pivot = sum;
  }
  hv_sync_wave();
  if (t < SPEED_OFFSETS) direct<from>(s, after, k + 1, t, sum);
}

// A row of some columns after a reflection.
template <int from, int count, int stride>
HV_DEV void reflect(const State &before, State &after, int row, const Row &h, int first) {
  float sum[count] = {};
#pragma unroll
  for (int i = from; i < SPEED_OFFSETS; i += 4) {
    Vector<float> v[count];
#pragma unroll
    for (int c = 0; c < count; c++) v[c] = *(const Vector<float> *)(before.columns[first + c * stride] + i);
#pragma unroll
    for (int j = 0; j < 4 && i + j < SPEED_OFFSETS; j++)
#pragma unroll
      for (int c = 0; c < count; c++) sum[c] += h[i + j] * v[c].v[j];
  }
#pragma unroll
  for (int c = 0; c < count; c++) after.columns[first + c * stride][row] = sum[c];
}

// A row of the other columns that are read again, of every `stride`th from the first on: two at a time, so that one is
// added while the other waits.
template <int from, int stride>
HV_DEV void follow(const State &before, State &after, int k, int first, int row, const Row &identity) {
  Row h;
  reflection<from>(h, before.direction, row, identity);
  const int count = columns_left(k);
  int column = first;
  if (from == 0 && k == 0) {  // the orthogonal factor is the identity, which becomes the reflection
#pragma unroll
    for (int i = 0; i < SPEED_OFFSETS; i++)
      if (i % stride == first) after.columns[i][row] = h[i];
    column += SPEED_OFFSETS;
  }
#pragma unroll 1
  for (; column + stride < count; column += 2 * stride) reflect<from, 2, stride>(before, after, row, h, column);
  if (column < count) reflect<from, 1, stride>(before, after, row, h, column);
}

// The product of a row of the orthogonal factor with a column of the operand.
HV_DEV void finish(Solver &s, int row, int column, const Row &given) {
  // No later reflection changes it.
  const State &state = s.states[(hv_min(row, SPEED_OFFSETS - 2) + 1) % 2];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < SPEED_OFFSETS; i++) sum += state.columns[i][row] * given[i];
  if (column >= SPEED_OFFSETS) s.right[row][column - SPEED_OFFSETS] = sum;
  else if (column > row) s.triangle[row][column - row - 1] = sum;
  else if (column == row) s.diagonal[row] = sum;
}

// The reflections from one to before another, and the product of the orthogonal factor with the first `columns` of what
// is given, a row in the step after the one that was the last to change it. The first wave leads; then come teams of 32
// threads, each of which has a row, in some columns at once if there are so few rows; then those that finish a column
// each.
template <int begin, int end> HV_DEV void reflect_some(Solver &s, int columns) {
  constexpr int from = begin / 4 * 4, rows = SPEED_OFFSETS - begin, beside = 32 / rows;
  static_assert(SPEED_SOLVERS - HV_WAVE - 32 * SPEED_TEAMS >= SPEED_OFFSETS + SPEED_SYSTEMS, "a column each");
  const int t = (int)threadIdx.x, follower = t - HV_WAVE, finisher = follower - 32 * SPEED_TEAMS;
  const int inside = follower % 32, first = follower / 32 * beside + inside / rows;
  const int row = follower < 0 ? t : begin + inside % rows;
  const bool finishes = finisher >= 0 && finisher < columns, follows = finisher < 0 && inside / rows < beside;
  Row own;  // of the identity, or the column that is finished
  const float *given = &s.given[0][finishes ? finisher : 0];
#pragma unroll
  for (int i = 0; i < SPEED_OFFSETS; i++) {
    const float element = given[i * (SPEED_OFFSETS + SPEED_SYSTEMS)];
    own[i] = finishes ? element : row == i;
  }
  State *before = &s.states[begin % 2], *after = &s.states[(begin + 1) % 2];
#pragma unroll 1
  for (int k = begin; k < end; k++) {
    if (follower < 0) {
      if (k < SPEED_OFFSETS - 2) lead<from>(s, *before, *after, k, row, own);
    } else if (follows) {
      if (row >= k) follow<from, SPEED_TEAMS * beside>(*before, *after, k, first, row, own);
    } else if (finishes && k > 0) {
      finish(s, k - 1, finisher, own);
    }
    __syncthreads();
    State *const done = before;
    before = after;
    after = done;
  }
  if (end < SPEED_OFFSETS - 1) return;
  if (finishes)
#pragma unroll
    for (int i = SPEED_OFFSETS - 2; i < SPEED_OFFSETS; i++) finish(s, i, finisher, own);
  __syncthreads();
}

// The orthogonal factor of the covariance, by reflections that are multiplied out, and its product with the first
// `columns` of what is given. Rows and columns before a reflection are those of the identity. The code leaves out what
// all of its steps can; it changes where the rows of two columns, and then those of four, fit in a team.
HV_DEV void reflect_all(Solver &s, int columns) {
  const int t = (int)threadIdx.x;
  if (t < SPEED_OFFSETS) direct<0>(s, s.states[0], 0, t, t == 0 ? s.states[0].pivot : s.states[0].below[t]);
  __syncthreads();
  reflect_some<0, 9>(s, columns);
  reflect_some<9, 17>(s, columns);
  reflect_some<17, SPEED_OFFSETS - 1>(s, columns);
}

// An element of the covariance, before all reflections.
HV_DEV void begin(Solver &s, int row, int column, float value) {
  State &state = s.states[0];
  s.given[row][column] = value;
  s.triangle[row][column] = 0;
  if (column == 0) (row == 0 ? state.pivot : state.below[row]) = value;
  else if (column < SPEED_OFFSETS - 1) state.columns[2 * SPEED_OFFSETS - 2 - column][row] = value;
  if (row == 0 && column == 0) state.below[0] = 0;
}

// Loads the samples of blocks from the first on.
HV_DEV void take(Solver &s, const float *field, int width, int beside, int first, int blocks) {
  const int t = (int)threadIdx.x, system = t % SPEED_SYSTEMS, block = first + system;
  constexpr int together = SPEED_SOLVERS / SPEED_SYSTEMS;
  if (block >= blocks) return;
  const float *samples = field + (block / beside * width + block % beside) * SPEED_BLOCK;
#pragma unroll
  for (int some = 0; some < SPEED_OFFSETS; some += together) {
    const int i = some + t / SPEED_SYSTEMS;
    if (i < SPEED_OFFSETS) s.given[i][SPEED_OFFSETS + system] = samples[i / SPEED_BLOCK * width + i % SPEED_BLOCK];
  }
}

// A row of a system.
template <int count> struct Equation {
  float right, diagonal, sample, triangle[count];

  HV_MEMBER void load(const Solver &s, int system, int row) {
    right = s.right[row][system], diagonal = s.diagonal[row], sample = s.given[row][SPEED_OFFSETS + system];
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      const Vector<float> some = *(const Vector<float> *)(s.triangle[row] + i);
#pragma unroll
      for (int j = 0; j < 4; j++) triangle[i + j] = some.v[j];
    }
  }
};

// The solutions of a system from the last row on, the nearest first. Missing ones are zero.
struct Solutions {
  float all[SPEED_OFFSETS - 1], product;  // and what the nearest makes with its sample
};

// Some rows of a system, above up to `count` others; the triangle is zero beyond its end. The share of the row
// below in the mean, which no row waits for, replaces a right-hand side that is no longer needed.
template <int count> HV_DEV void solve(Solver &s, int system, Solutions &solutions) {
  constexpr int last = SPEED_OFFSETS + SPEED_STEPS - 1 - count;
  constexpr int first = count < SPEED_OFFSETS - 1 ? SPEED_OFFSETS - count : 0;
  Equation<count> equation;
  equation.load(s, system, last);
#pragma unroll 1
  for (int row = last; row >= first; row--) {
    float sum = equation.right;
#pragma unroll
    for (int i = 0; i < count; i++) sum -= solutions.all[i] * equation.triangle[i];
    const float share = solutions.product / (float)SPEED_OFFSETS;
    const float diagonal = equation.diagonal, sample = equation.sample;
    equation.load(s, system, hv_max(row - 1, 0));
    s.right[row][system] = share;
    const float solution = sum / diagonal;
#pragma unroll
    for (int i = count - 1; i > 0; i--) solutions.all[i] = solutions.all[i - 1];
    solutions.all[0] = solution;
    solutions.product = solution * sample;
  }
}

// The mean over a block of the product of its samples with the solution of the system that has them on its right-hand
// side.
HV_DEV float variance(Solver &s, int system) {
  Solutions solutions{};
  solve<SPEED_STEPS>(s, system, solutions);
  solve<2 * SPEED_STEPS>(s, system, solutions);
  solve<3 * SPEED_STEPS>(s, system, solutions);
  float sum = 0;
  sum += solutions.product / (float)SPEED_OFFSETS;
#pragma unroll
  for (int i = 0; i < SPEED_OFFSETS - 1; i++) sum += s.right[i][system];
  return sum;
}

HV_DEV void variances(Solver &s, const float *field, int width, int height, float *sums) {
  const int t = (int)threadIdx.x, beside = width / SPEED_BLOCK, blocks = beside * (height / SPEED_BLOCK);
  constexpr int some = (SPEED_OFFSETS * SPEED_OFFSETS + SPEED_SOLVERS - 1) / SPEED_SOLVERS;
  float values[some];
#pragma unroll
  for (int j = 0; j < some; j++) {
    const int i = t + j * SPEED_SOLVERS, row = i / SPEED_OFFSETS, column = i % SPEED_OFFSETS;
    const int a = hv_max(row, column), b = hv_min(row, column);
    values[j] = row < SPEED_OFFSETS ? sums[a * (a + 1) / 2 + b] : 0;
  }
  take(s, field, width, beside, 0, blocks);
#pragma unroll
  for (int j = 0; j < some; j++) {
    const int i = t + j * SPEED_SOLVERS;
    if (i < SPEED_OFFSETS * SPEED_OFFSETS) begin(s, i / SPEED_OFFSETS, i % SPEED_OFFSETS, values[j]);
  }
  // The second reflection leaves out this row of the orthogonal factor, and the third one multiplies it with zero.
  if (t < SPEED_OFFSETS) s.states[0].columns[t][0] = 0;
  __syncthreads();
  reflect_all(s, SPEED_OFFSETS + hv_min(blocks, SPEED_SYSTEMS));
  if (t == SPEED_SYSTEMS) {
    bool singular = false;
    for (int i = 0; i < SPEED_OFFSETS; i++) {
      const float value = s.diagonal[i];
      singular |= (double)(value < 0 ? -value : value) < SPEED_EPSILON;
    }
    sums[SPEED_PAIRS] = singular ? 0 : 1;
  }
  const int system = t % SPEED_SYSTEMS;
  for (int first = 0; first < blocks; first += SPEED_SYSTEMS) {
    const bool inside = first + system < blocks;
    if (first > 0) {
      __syncthreads();
      take(s, field, width, beside, first, blocks);
      __syncthreads();
      Row given;
#pragma unroll
      for (int i = 0; i < SPEED_OFFSETS; i++) given[i] = s.given[i][SPEED_OFFSETS + system];
#pragma unroll 1
      for (int i = t / SPEED_SYSTEMS; inside && i < SPEED_OFFSETS; i += SPEED_SOLVERS / SPEED_SYSTEMS)
        finish(s, i, SPEED_OFFSETS + system, given);
      __syncthreads();
    }
    if (t < SPEED_SYSTEMS && inside) sums[SPEED_PAIRS + 1 + first + t] = variance(s, t);
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
