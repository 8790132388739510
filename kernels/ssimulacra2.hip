// SPDX-License-Identifier: MPL-2.0
//
// SSIMULACRA2: the pictures in XYB on all scales, and the sums of the maps that compare them.
// `crates/engine/src/backend/cpu/ssimulacra2.rs` has the same operations and explains them. `hv_fma_f32` stands wherever
// two of them have one rounding.
#include "frame.h"

#define SS2_SCALES 6
#define SS2_STEPS 1024       // of the table, between black and white
#define SS2_REACH 4          // of the blur
#define SS2_MARGIN 8         // columns of zeros before a row; there are SS2_REACH rows of them above and below
#define SS2_BLOCK 32         // width and height of the part of a picture that a block converts
#define SS2_CONVERT_THREADS 256
#define SS2_ROWS (SS2_BLOCK * SS2_BLOCK / SS2_CONVERT_THREADS)  // of a thread
#define SS2_TILE_W 32        // the part of a channel that a block compares
#define SS2_TILE_H 64
#define SS2_COMPARE_THREADS 256
#if defined(HV_NV)
  // Three blocks fit on a multiprocessor.
  #define SS2_COMPARE_BOUNDS SS2_COMPARE_THREADS, 3
#else
  #define SS2_COMPARE_BOUNDS SS2_COMPARE_THREADS
#endif
#define SS2_RUN 8            // samples of a column that are added as singles
#define SS2_WIDE_H (SS2_TILE_H + 2 * SS2_REACH)
#define SS2_SUMS 12          // of a channel on a scale

// The conversion of samples to light.
struct Ssimulacra2Conversion {
  int32_t black;
  float luma;
  int32_t grey;
  float red_cr, green_cb, green_cr, blue_cb;
  // Weights of five successive chroma samples for an even and an odd place, the third of which the place belongs to.
  int32_t columns[2][5], rows[2][5];
  uint32_t whole_columns, whole_rows;  // chroma is not subsampled along the axis
  uint32_t has_chroma;  // 2 for R'G'B', of which red and blue are without luma
  uint32_t has_primaries;
  float primaries[3][3];
};
HV_SIZE(Ssimulacra2Conversion, 160);
HV_OFFSET(Ssimulacra2Conversion, black, 0);
HV_OFFSET(Ssimulacra2Conversion, luma, 4);
HV_OFFSET(Ssimulacra2Conversion, grey, 8);
HV_OFFSET(Ssimulacra2Conversion, red_cr, 12);
HV_OFFSET(Ssimulacra2Conversion, green_cb, 16);
HV_OFFSET(Ssimulacra2Conversion, green_cr, 20);
HV_OFFSET(Ssimulacra2Conversion, blue_cb, 24);
HV_OFFSET(Ssimulacra2Conversion, columns, 28);
HV_OFFSET(Ssimulacra2Conversion, rows, 68);
HV_OFFSET(Ssimulacra2Conversion, whole_columns, 108);
HV_OFFSET(Ssimulacra2Conversion, whole_rows, 112);
HV_OFFSET(Ssimulacra2Conversion, has_chroma, 116);
HV_OFFSET(Ssimulacra2Conversion, has_primaries, 120);
HV_OFFSET(Ssimulacra2Conversion, primaries, 124);

// One scale of a picture: X, Y and B, in memory with zeros around them.
struct Ssimulacra2Scale {
  uint32_t offset;   // elements from the start of the picture to the first sample of X
  uint32_t plane;    // elements from X to Y, and from Y to B
  uint32_t pitch;    // elements from row to row, a multiple of 4
  int32_t width, height;
  uint32_t columns;  // tiles in a row
  uint32_t first;    // number of the first tile
};
HV_SIZE(Ssimulacra2Scale, 28);
HV_OFFSET(Ssimulacra2Scale, offset, 0);
HV_OFFSET(Ssimulacra2Scale, plane, 4);
HV_OFFSET(Ssimulacra2Scale, pitch, 8);
HV_OFFSET(Ssimulacra2Scale, width, 12);
HV_OFFSET(Ssimulacra2Scale, height, 16);
HV_OFFSET(Ssimulacra2Scale, columns, 20);
HV_OFFSET(Ssimulacra2Scale, first, 24);

// All scales. Those that there are not have no samples, and no tile is theirs.
struct Ssimulacra2Layout {
  Ssimulacra2Scale at[SS2_SCALES];
  uint32_t picture;  // elements of a picture
};
HV_SIZE(Ssimulacra2Layout, 172);
HV_OFFSET(Ssimulacra2Layout, at, 0);
HV_OFFSET(Ssimulacra2Layout, picture, 168);

namespace ss2 {

struct Colour {
  float v[3];
};

HV_DEV float most(float a, float b) { return a > b ? a : b; }
HV_DEV float magnitude(float v) {
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, v) & 0x7fffffffu);
}

HV_DEV float to_light(float signal, const HvU32x2 *__restrict__ table) {
  const float place = hv_min(most(signal, 0.0f), 0x1.fffffep0f) * (float)SS2_STEPS;
  const int step = (int)place;
  const HvU32x2 entry = hv_ldg(table + step);
  return hv_fma_f32(place - (float)step, __builtin_bit_cast(float, entry.v[1]), __builtin_bit_cast(float, entry.v[0]));
}

HV_DEV float cube_root(float m) {
  // A third, as the bits of m are below 2^31.
  const uint32_t third = (uint32_t)((uint64_t)__builtin_bit_cast(uint32_t, m) * 0x55555556u >> 32);
  float r = __builtin_bit_cast(float, 0x54a1f000u - third);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const float cube = (r * r) * r, h = hv_fma_f32(-m, cube, 1.0f);
    const float q = hv_fma_f32(h, 0.222222224f, 0.333333343f) * h;
    r = hv_fma_f32(r, q, r);
  }
  return (m * r) * r;
}

HV_DEV float mixture(float wr, float wg, float wb, const Colour &c) {
  const float mixed = hv_fma_f32(wr, c.v[0], hv_fma_f32(wg, c.v[1], hv_fma_f32(wb, c.v[2], 0.00379307335f)));
  return cube_root(most(mixed, 0x1p-30f));
}

HV_DEV Colour xyb_of(const Colour &c) {
  const float c0 = mixture(0.300000012f, 0.621999979f, 0.0780000016f, c);
  const float c1 = mixture(0.230000004f, 0.691999972f, 0.0780000016f, c);
  const float c2 = mixture(0.243422687f, 0.204767451f, 0.551809847f, c), sum = c0 + c1;
  return {{hv_fma_f32(7.0f, c0 - c1, 0.42f), hv_fma_f32(0.5f, sum, -0.145954207f), hv_fma_f32(-0.5f, sum, c2) + 0.55f}};
}

// Writes the sample x, y of a scale of a picture.
HV_DEV void put(float *picture, const Ssimulacra2Scale &scale, int x, int y, const Colour &c) {
  float *to = picture + scale.offset + (uint32_t)y * scale.pitch + (uint32_t)x;
#pragma unroll
  for (int i = 0; i < 3; i++) to[i * scale.plane] = c.v[i];
}

// Chroma of the block, at the width of luma: rows of the plane from two above the block on.
using Chroma = int32_t[2][SS2_BLOCK + SS2_REACH][SS2_BLOCK];

template <class T>
HV_DEV void load_chroma(const HvPlane *planes, uint32_t bits, int width, int height, int left, int top,
                        const Ssimulacra2Conversion &c, Chroma to) {
  const int rows = c.whole_rows ? SS2_BLOCK : SS2_BLOCK / 2 + 4, first = c.whole_rows ? top : top / 2 - 2;
  const HvPlane from[2] = {planes[1], planes[2]};
  const auto sample = [&](int plane, int x, int y) {
    x = hv_max(0, hv_min(x, width - 1)), y = hv_max(0, hv_min(first + y, height - 1));
    const uint8_t *row = from[plane].data + (uint64_t)(uint32_t)y * from[plane].stride;
    return (int32_t)hv_sample<T>(row + (uint32_t)x * (from[plane].step * (uint32_t)sizeof(T)), from[plane].shift, bits);
  };
  if (c.whole_columns) {
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < rows * SS2_BLOCK; i += SS2_CONVERT_THREADS) {
      const int x = i % SS2_BLOCK, y = i / SS2_BLOCK;
#pragma unroll
      for (int plane = 0; plane < 2; plane++) to[plane][y][x] = sample(plane, left + x, y);
    }
    return;
  }
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < rows * SS2_BLOCK / 2; i += SS2_CONVERT_THREADS) {
    const int j = i % (SS2_BLOCK / 2), y = i / (SS2_BLOCK / 2);
#pragma unroll
    for (int plane = 0; plane < 2; plane++) {
      int32_t even = 0, odd = 0;
#pragma unroll
      for (int k = 0; k < 5; k++) {
        const int32_t value = sample(plane, left / 2 + j + k - 2, y);
        even += c.columns[0][k] * value, odd += c.columns[1][k] * value;
      }
      to[plane][y][2 * j] = even, to[plane][y][2 * j + 1] = odd;
    }
  }
}

// Chroma at SS2_ROWS rows of a column of the block from `row` on.
HV_DEV void chroma_down(const Ssimulacra2Conversion &c, const int32_t (&plane)[SS2_BLOCK + SS2_REACH][SS2_BLOCK], int x, int row,
                        float to[SS2_ROWS]) {
  if (c.whole_rows) {
#pragma unroll
    for (int i = 0; i < SS2_ROWS; i++) to[i] = (float)(plane[row + i][x] - c.grey);
    return;
  }
  int32_t values[SS2_ROWS / 2 + 4];
#pragma unroll
  for (int i = 0; i < SS2_ROWS / 2 + 4; i++) values[i] = plane[row / 2 + i][x];
#pragma unroll
  for (int i = 0; i < SS2_ROWS; i++) {
    int32_t sum = -c.grey;
#pragma unroll
    for (int k = 0; k < 5; k++) sum += c.rows[i % 2][k] * values[i / 2 + k];
    to[i] = (float)sum;
  }
}

template <class T>
HV_DEV void convert(const HvFrame *__restrict__ frame, uint32_t bits, int chroma_width, int chroma_height,
                    const Ssimulacra2Conversion &c, const HvU32x2 *__restrict__ table, const Ssimulacra2Layout &layout,
                    float *pictures) {
  __shared__ Chroma chroma;
  // Light of the scales with even and with odd numbers.
  __shared__ float light0[3][SS2_BLOCK * SS2_BLOCK], light1[3][SS2_BLOCK * SS2_BLOCK / 4];
  const int width = layout.at[0].width, height = layout.at[0].height;
  const int across = (width + SS2_BLOCK - 1) / SS2_BLOCK;
  const uint32_t picture = blockIdx.x / (uint32_t)across;
  const int bx = (int)(blockIdx.x % (uint32_t)across), by = (int)blockIdx.y;
  const HvPlane *planes = picture ? frame[picture - 1].distorted : frame->reference;
  float *to = pictures + (uint64_t)picture * layout.picture;
  const int left = bx * SS2_BLOCK, top = by * SS2_BLOCK;

  if (c.has_chroma) {
    load_chroma<T>(planes, bits, chroma_width, chroma_height, left, top, c, chroma);
    __syncthreads();
  }
  const int t = (int)threadIdx.x, column = t % SS2_BLOCK, row = t / SS2_BLOCK * SS2_ROWS;
  float u[SS2_ROWS], v[SS2_ROWS];
  if (c.has_chroma) {
    chroma_down(c, chroma[0], column, row, u);
    chroma_down(c, chroma[1], column, row, v);
  }
#pragma unroll
  for (int i = 0; i < SS2_ROWS; i++) {
    const int x = left + column, y = top + row + i;
    const HvPlane &from = planes[0];
    const uint32_t sample = hv_sample<T>(from.data + (uint64_t)hv_min(y, height - 1) * from.stride +
                                             (uint32_t)hv_min(x, width - 1) * from.step * sizeof(T),
                                         from.shift, bits);
    const float luma = (float)((int32_t)sample - c.black) * c.luma;
    Colour colour = {{luma, luma, luma}};
    if (c.has_chroma) {
      const float added = c.has_chroma == 2 ? 0.0f : luma;
      colour.v[0] = hv_fma_f32(c.red_cr, v[i], added);
      colour.v[1] = hv_fma_f32(c.green_cr, v[i], hv_fma_f32(c.green_cb, u[i], luma));
      colour.v[2] = hv_fma_f32(c.blue_cb, u[i], added);
    }
#pragma unroll
    for (int k = 0; k < 3; k++) colour.v[k] = to_light(colour.v[k], table);
    if (c.has_primaries) {
      const Colour from = colour;
#pragma unroll
      for (int k = 0; k < 3; k++)
        colour.v[k] = hv_fma_f32(c.primaries[k][0], from.v[0],
                                 hv_fma_f32(c.primaries[k][1], from.v[1], c.primaries[k][2] * from.v[2]));
    }
#pragma unroll
    for (int k = 0; k < 3; k++) light0[k][(row + i) * SS2_BLOCK + column] = colour.v[k];
    if (x < width && y < height) put(to, layout.at[0], x, y, xyb_of(colour));
  }
#pragma unroll
  for (int s = 1; s < SS2_SCALES; s++) {
    const Ssimulacra2Scale &above = layout.at[s - 1], &scale = layout.at[s];
    if (scale.width == 0) return;
    const int size = SS2_BLOCK >> s;
    __syncthreads();
    if (t >= size * size) continue;
    const int x = t % size, y = t / size, gx = bx * size + x, gy = by * size + y;
    // The last of an odd number becomes one with itself.
    const int right = 2 * gx + 1 < above.width, below = 2 * gy + 1 < above.height ? 2 * size : 0;
    const int at = 2 * y * (2 * size) + 2 * x;
    Colour colour;
#pragma unroll
    for (int k = 0; k < 3; k++) {
      const float *from = (s % 2 ? light0[k] : light1[k]) + at;
      colour.v[k] = (((from[0] + from[right]) + from[below]) + from[below + right]) * 0.25f;
      (s % 2 ? light1[k] : light0[k])[y * size + x] = colour.v[k];
    }
    if (gx < scale.width && gy < scale.height) put(to, scale, gx, gy, xyb_of(colour));
  }
}

constexpr float TAPS[SS2_REACH + 1] = {0.264621109f, 0.212928593f, 0.10933537f, 0.0360111147f, 0.00941436738f};

// Blurs SS2_RUN samples, of which the first is v[SS2_REACH].
HV_DEV void blur(const float v[SS2_RUN + 2 * SS2_REACH], float to[SS2_RUN]) {
#pragma unroll
  for (int i = 0; i < SS2_RUN; i++) {
    float sum = TAPS[0] * v[SS2_REACH + i];
#pragma unroll
    for (int k = 1; k <= SS2_REACH; k++) sum = hv_fma_f32(TAPS[k], v[SS2_REACH + i - k] + v[SS2_REACH + i + k], sum);
    to[i] = sum;
  }
}

// x, y, the sum of their squares, and the square of their difference, blurred along rows.
using Blurred = float[4][SS2_WIDE_H][SS2_TILE_W];

HV_DEV void load(const float *from, float to[SS2_RUN + 2 * SS2_REACH]) {
#pragma unroll
  for (int i = 0; i < (SS2_RUN + 2 * SS2_REACH) / 4; i++) {
    const HvU32x4 four = hv_ldg((const HvU32x4 *)from + i);
#pragma unroll
    for (int k = 0; k < 4; k++) to[4 * i + k] = __builtin_bit_cast(float, four.v[k]);
  }
}

HV_DEV void blur_to(const float v[SS2_RUN + 2 * SS2_REACH], float *to) {
  float out[SS2_RUN];
  blur(v, out);
#pragma unroll
  for (int i = 0; i < SS2_RUN / 4; i++) {
    HvU32x4 four;
#pragma unroll
    for (int k = 0; k < 4; k++) four.v[k] = __builtin_bit_cast(uint32_t, out[4 * i + k]);
    *((HvU32x4 *)to + i) = four;
  }
}

HV_DEV void blur_rows(const float *x, const float *y, uint32_t pitch, Blurred to) {
  constexpr int RUNS = SS2_TILE_W / SS2_RUN, N = SS2_RUN + 2 * SS2_REACH;
  for (int i = (int)threadIdx.x; i < SS2_WIDE_H * RUNS; i += SS2_COMPARE_THREADS) {
    const int row = i / RUNS, column = i % RUNS * SS2_RUN;
    const uint32_t at = (uint32_t)row * pitch + (uint32_t)column;
    float a[N], b[N], both[N];
    load(x + at, a);
    load(y + at, b);
    blur_to(a, &to[0][row][column]);
    blur_to(b, &to[1][row][column]);
#pragma unroll
    for (int k = 0; k < N; k++) both[k] = hv_fma_f32(a[k], a[k], b[k] * b[k]);
    blur_to(both, &to[2][row][column]);
#pragma unroll
    for (int k = 0; k < N; k++) both[k] = (a[k] - b[k]) * (a[k] - b[k]);
    blur_to(both, &to[3][row][column]);
  }
}

// The sums of a run, for the maps of lost structure, artefacts and lost detail.
struct Run {
  float plain[3], fourth[3];

  HV_MEMBER void add(float x, float y, float m1, float m2, float squares, float error, bool inside) {
    const float g = m1 - m2, u = g * g, v = most(error - u, 0.0f);
    const float denominator = hv_fma_f32(-m2, m2, hv_fma_f32(-m1, m1, squares)) + 0.0009f;
    const float d = most(hv_fma_f32(1.0f - u, hv_quotient_f32(v, denominator), u), 0.0f);
    const float a = magnitude(y - m2), b = magnitude(x - m1), e = hv_quotient_f32(a - b, 1.0f + b);
    const float values[3] = {d, most(e, 0.0f), most(-e, 0.0f)};
#pragma unroll
    for (int i = 0; i < 3; i++) {
      const float value = inside ? values[i] : 0.0f, square = value * value;
      plain[i] += value;
      fourth[i] += square * square;
    }
  }
};

HV_DEV void compare(const float *__restrict__ pictures, const Ssimulacra2Layout &layout, uint32_t pitch, uint64_t *sums) {
  constexpr int RUNS = SS2_TILE_W * SS2_TILE_H / SS2_RUN, PITCH = RUNS + 16;
  static_assert(RUNS == SS2_COMPARE_THREADS, "each thread has a run");
  static_assert(SS2_SUMS * PITCH <= 4 * SS2_WIDE_H * SS2_TILE_W, "the sums of runs lie where the blurred planes lay");
  alignas(16) __shared__ Blurred blurred;
  const uint32_t channel = blockIdx.y % 3, pair = blockIdx.y / 3;
  int s = 0;
  while (s + 1 < SS2_SCALES && blockIdx.x >= layout.at[s + 1].first) s++;
  const Ssimulacra2Scale scale = layout.at[s];
  const uint32_t tile = blockIdx.x - scale.first;
  const int left = (int)(tile % scale.columns) * SS2_TILE_W, top = (int)(tile / scale.columns) * SS2_TILE_H;
  // The first sample of the tile.
  const float *x = pictures + scale.offset + channel * scale.plane + (uint32_t)top * scale.pitch + (uint32_t)left;
  const float *y = x + (uint64_t)(1 + pair) * layout.picture;
  const uint32_t before = SS2_REACH * scale.pitch + SS2_REACH;
  blur_rows(x - before, y - before, scale.pitch, blurred);
  __syncthreads();

  const int t = (int)threadIdx.x, column = t % SS2_TILE_W, row = t / SS2_TILE_W * SS2_RUN;
  float planes[4][SS2_RUN];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float values[SS2_RUN + 2 * SS2_REACH];
#pragma unroll
    for (int k = 0; k < SS2_RUN + 2 * SS2_REACH; k++) values[k] = blurred[i][row + k][column];
    blur(values, planes[i]);
  }
  Run run = {};
#pragma unroll
  for (int i = 0; i < SS2_RUN; i++) {
    const uint32_t at = (uint32_t)(row + i) * scale.pitch + (uint32_t)column;
    const bool inside = left + column < scale.width && top + row + i < scale.height;
    const float a = __builtin_bit_cast(float, hv_ldg((const uint32_t *)x + at));
    const float b = __builtin_bit_cast(float, hv_ldg((const uint32_t *)y + at));
    run.add(a, b, planes[0][i], planes[1][i], planes[2][i], planes[3][i], inside);
  }
  __syncthreads();
  uint32_t *totals = (uint32_t *)&blurred[0][0][0];
#pragma unroll
  for (int i = 0; i < 3; i++) {
    uint32_t *to = totals + 4 * i * PITCH + t;
    to[0] = (uint32_t)hv_fma_f32(run.plain[i], 0x1p27f, 0.5f);
    float rest = run.fourth[i] * 0x1p22f;
#pragma unroll
    for (int k = 1; k < 4; k++) {
      const uint32_t whole = (uint32_t)rest;
      to[k * PITCH] = whole;
      rest = (rest - (float)whole) * 0x1p32f;
    }
  }
  __syncthreads();
  // Sixteen threads add the runs of each sum.
  const int sum = t / 16;
  uint64_t total = 0;
  if (sum < SS2_SUMS)
    for (int i = t % 16; i < RUNS; i += 16) total += totals[sum * PITCH + i];
#pragma unroll
  for (uint32_t m = 8; m; m >>= 1) total += hv_shfl_xor_u64(total, m);
  if (sum < SS2_SUMS && t % 16 == 0)
    hv_atomic_add_u64(sums + (uint64_t)pair * pitch + ((uint32_t)s * 3 + channel) * SS2_SUMS + sum, total);
}

}  // namespace ss2

// Converts the reference of the first pair and the distorted picture of each to XYB on all scales. chroma_width,
// chroma_height: chroma samples, at least 1 if there is any. table: the light at the start of each of 2048 steps, and its
// distance to that of the next. Block 256 threads, 32 x 32 luma samples of a picture; grid (ceil(width/32) for each
// picture, ceil(height/32)).
#define SS2_CONVERT(name, T)                                                                                           \
  HV_KERNEL(SS2_CONVERT_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, int chroma_width,             \
                                       int chroma_height, Ssimulacra2Conversion conversion,                            \
                                       const HvU32x2 *__restrict__ table, Ssimulacra2Layout layout, float *pictures) { \
    ss2::convert<T>(frame, bits, chroma_width, chroma_height, conversion, table, layout, pictures);                    \
  }                                                                                                                    \
  HV_EXPORT(name)

SS2_CONVERT(ssimulacra2_convert_u8, uint8_t)
SS2_CONVERT(ssimulacra2_convert_u16, uint16_t)

// Adds to the sums of each pair those of all tiles: for each scale, each channel and each map four. pitch: from the sums
// of a pair to those of the next. Block 256 threads, a tile of 32 x 64 samples of a channel of a scale; grid (tiles of
// all scales, 3 for each pair).
HV_KERNEL(SS2_COMPARE_BOUNDS, ssimulacra2_compare)(const float *__restrict__ pictures, Ssimulacra2Layout layout, uint32_t pitch,
                                                    uint64_t *sums) {
  ss2::compare(pictures, layout, pitch, sums);
}
HV_EXPORT(ssimulacra2_compare)
