// SPDX-License-Identifier: MPL-2.0
//
// ColorVideoVDP: pictures of opponent colours, their temporal filters, pyramids, and the visible differences of bands.
// Operations and their order are those of `crates/engine/src/backend/cpu/cvvdp.rs`: products and sums are fused only
// where `hv_fma_f32` stands.
#include "frame.h"

#define CVVDP_THREADS 256
#define CVVDP_CHANNELS 4
#define CVVDP_COLOURS 3
#define CVVDP_NODES 32
#define CVVDP_BLUR 13
#define CVVDP_HALF 6
// Columns of the smaller picture that 32 threads have between the first and the last one of them, and the rows that they
// reduce to.
#define CVVDP_COLUMNS 30
#define CVVDP_ROWS 4
#define CVVDP_REST_THREADS 1024
// A tile of masking, and the rows of a thread.
#define CVVDP_TILE_W 64
#define CVVDP_TILE_H 32
#define CVVDP_RUN 8
// Threads of kernels of which three blocks have to find room.
#if defined(HV_NV)
#define CVVDP_DENSE CVVDP_THREADS, 3
#else
#define CVVDP_DENSE CVVDP_THREADS
#endif
#define CVVDP_LANES 64
#define CVVDP_TAPS 61
// Width and height of a cell of the heat map in samples of the picture.
#define CVVDP_CELL 16

// The conversion of samples. Of pairs of numbers, the first is for luma.
struct CvvdpFront {
  int32_t low[2], high[2];
  float scale[2], offset[2];
  float matrix[4];     // weights of Cr in red, of Cb and Cr in green, of Cb in blue
  float colours[9], offsets[3];
  float hlg[3], gamma, peak;
  uint32_t eotf;       // 0 sRGB, 1 PQ, 2 HLG
  float grey;          // chroma of pictures that have none
  uint32_t cosited[2]; // in columns, in rows
  int32_t width, height, chroma_width, chroma_height;
  uint32_t is_rgb;     // red and blue are without luma
};
HV_SIZE(CvvdpFront, 152);
HV_OFFSET(CvvdpFront, low, 0);
HV_OFFSET(CvvdpFront, high, 8);
HV_OFFSET(CvvdpFront, scale, 16);
HV_OFFSET(CvvdpFront, offset, 24);
HV_OFFSET(CvvdpFront, matrix, 32);
HV_OFFSET(CvvdpFront, colours, 48);
HV_OFFSET(CvvdpFront, offsets, 84);
HV_OFFSET(CvvdpFront, hlg, 96);
HV_OFFSET(CvvdpFront, gamma, 108);
HV_OFFSET(CvvdpFront, peak, 112);
HV_OFFSET(CvvdpFront, eotf, 116);
HV_OFFSET(CvvdpFront, grey, 120);
HV_OFFSET(CvvdpFront, cosited, 124);
HV_OFFSET(CvvdpFront, width, 132);
HV_OFFSET(CvvdpFront, height, 136);
HV_OFFSET(CvvdpFront, chroma_width, 140);
HV_OFFSET(CvvdpFront, chroma_height, 144);
HV_OFFSET(CvvdpFront, is_rgb, 148);

// The constants of masking.
struct CvvdpMasking {
  float horizontal[CVVDP_BLUR], vertical[CVVDP_BLUR];
  float powers[4], cross[16], offsets[4];
  float small_gain, power, zero, top, epsilon, two_epsilons;
  float nodes[2];
  float strength[4], base_strength[4];  // weights of the channels in the heat map
  float no_strength;                    // the norm of no differences
};
HV_SIZE(CvvdpMasking, 268);
HV_OFFSET(CvvdpMasking, horizontal, 0);
HV_OFFSET(CvvdpMasking, vertical, 52);
HV_OFFSET(CvvdpMasking, powers, 104);
HV_OFFSET(CvvdpMasking, cross, 120);
HV_OFFSET(CvvdpMasking, offsets, 184);
HV_OFFSET(CvvdpMasking, small_gain, 200);
HV_OFFSET(CvvdpMasking, power, 204);
HV_OFFSET(CvvdpMasking, zero, 208);
HV_OFFSET(CvvdpMasking, top, 212);
HV_OFFSET(CvvdpMasking, epsilon, 216);
HV_OFFSET(CvvdpMasking, two_epsilons, 220);
HV_OFFSET(CvvdpMasking, nodes, 224);
HV_OFFSET(CvvdpMasking, strength, 232);
HV_OFFSET(CvvdpMasking, base_strength, 248);
HV_OFFSET(CvvdpMasking, no_strength, 264);

// A level of the pyramid. Planes of a pair: channels of the reference, then of the distorted picture. Their places count
// floats from the beginning of the pair's memory.
struct CvvdpLevel {
  double scale;            // units of the sums
  uint64_t planes;
  uint64_t results;        // of each channel the smaller contrast, then of each channel the difference
  int32_t width, height;
  uint32_t pitch;          // floats of a plane, a multiple of 4
  uint32_t contrasts;      // number of the first block of cvvdp_contrast
  uint32_t tiles;          // number of the first block of cvvdp_mask
  uint32_t heat;           // place of the cells of the heat map among the sums of a pair; 0 if there are none
};
HV_SIZE(CvvdpLevel, 48);
HV_OFFSET(CvvdpLevel, scale, 0);
HV_OFFSET(CvvdpLevel, planes, 8);
HV_OFFSET(CvvdpLevel, results, 16);
HV_OFFSET(CvvdpLevel, width, 24);
HV_OFFSET(CvvdpLevel, height, 28);
HV_OFFSET(CvvdpLevel, pitch, 32);
HV_OFFSET(CvvdpLevel, contrasts, 36);
HV_OFFSET(CvvdpLevel, tiles, 40);
HV_OFFSET(CvvdpLevel, heat, 44);

// Y, Cb and Cr of a picture.
struct CvvdpPicture {
  HvPlane planes[3];
};

namespace cvvdp {

HV_DEV float absolute(float x) { return __builtin_fabsf(x); }
// The smaller and the larger one of numbers: one instruction on NVIDIA.
HV_DEV float smaller(float a, float b) {
#if defined(HV_NV) && defined(HV_BARE)
  return __builtin_fminf(a, b);
#else
  return hv_min(a, b);
#endif
}
HV_DEV float larger(float a, float b) {
#if defined(HV_NV) && defined(HV_BARE)
  return __builtin_fmaxf(a, b);
#else
  return hv_max(a, b);
#endif
}
HV_DEV uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
HV_DEV float float_of(uint32_t x) { return __builtin_bit_cast(float, x); }

// The binary logarithm of a number that is not below 2^-126.
HV_DEV float log2_of(float x) {
  const uint32_t bits = bits_of(x);
  const int32_t e = (int32_t)(bits - 0x3f3504f3u) >> 23;
  const float t = float_of(bits - ((uint32_t)e << 23)) - 1.0f;
  float p = -0.14574447f;
  p = hv_fma_f32(p, t, 0.23689038f);
  p = hv_fma_f32(p, t, -0.25006905f);
  p = hv_fma_f32(p, t, 0.28670746f);
  p = hv_fma_f32(p, t, -0.36008722f);
  p = hv_fma_f32(p, t, 0.48093945f);
  p = hv_fma_f32(p, t, -0.72135717f);
  p = hv_fma_f32(p, t, 1.4426948f);
  return hv_fma_f32(p, t, (float)e);
}

// 2^y for y from -126 to 126.
HV_DEV float exp2_within(float y) {
  const float to_integer = 12582912.0f;  // 1.5 x 2^23: leaves the nearest integer in the lowest bits
  const float integer = y + to_integer;
  const float f = y - (integer - to_integer);
  float p = 0.0013264727f;
  p = hv_fma_f32(p, f, 0.009671513f);
  p = hv_fma_f32(p, f, 0.055507336f);
  p = hv_fma_f32(p, f, 0.24022242f);
  p = hv_fma_f32(p, f, 0.693147f);
  p = hv_fma_f32(p, f, 1.0f);
  return float_of(bits_of(p) + (bits_of(integer) << 23));
}

// 2^y, with y limited to -126 and 126.
HV_DEV float exp2_of(float y) { return exp2_within(smaller(larger(y, -126.0f), 126.0f)); }

// x^e for x not below 2^-30 and e to 4: only large powers have to be limited.
HV_DEV float masking_power(float x, float e) { return exp2_within(smaller(log2_of(x) * e, 126.0f)); }

// x^e for x not below 2^-126.
HV_DEV float power(float x, float e) { return exp2_of(log2_of(x) * e); }

// Adds the difference of a channel to the fourth power of the strength.
HV_DEV float add_strength(const CvvdpMasking &masking, float sum, float difference, float weight) {
  const float x = hv_fma_f32(difference, weight, masking.epsilon), square = x * x;
  return hv_fma_f32(square, square, sum);
}
// The strength in units of the sums, from its fourth power.
HV_DEV uint64_t strength_units(const CvvdpMasking &masking, float sum) {
  const float strength = hv_sqrt_f32(hv_sqrt_f32(sum)) - masking.no_strength;
  return (uint32_t)(smaller(strength, 32767.0f) * 65536.0f);
}

// The cells of the heat map of a level: of 16 x 16 samples of the picture, or of one of the level.
struct Cells {
  uint64_t *sums;
  uint32_t shift, columns;

  HV_MEMBER Cells(uint64_t *sums, uint32_t number, const CvvdpLevel &level)
      : sums(sums + level.heat), shift(number < 4 ? 4 - number : 0),
        columns((uint32_t)(level.width + (1 << shift) - 1) >> shift) {}
  HV_MEMBER void add(int x, int y, uint64_t units) const {
    hv_atomic_add_u64(sums + ((uint32_t)y >> shift) * columns + ((uint32_t)x >> shift), units);
  }
};
static_assert(CVVDP_CELL == 1 << 4, "as the shift has it");

const float TINY = 0x1p-100f;

template <uint32_t eotf> HV_DEV float linear(const CvvdpFront &front, float v) {
  if (eotf == 0) {
    const float high = power(hv_fma_f32(v, (float)(1.0 / 1.055), (float)(0.055 / 1.055)), 2.4f);
    return v > 0.04045f ? high : v * (float)(1.0 / 12.92);
  }
  if (eotf == 1) {
    const float t = power(larger(v, TINY), (float)(1.0 / 78.84375));
    const float u = larger(t - 0.8359375f, TINY) / hv_fma_f32(-18.6875f, t, 18.8515625f);
    const float light = power(u, (float)(1.0 / 0.1593017578125)) * 10000.0f;
    return smaller(larger(light, 0.005f), front.peak);
  }
  const float light = exp2_of(hv_fma_f32(v, front.hlg[0], front.hlg[1]));
  const float high = hv_fma_f32(light, (float)(1.0 / 12.0), front.hlg[2]);
  return v <= 0.5f ? (v * v) * (float)(1.0 / 3.0) : high;
}

// Two neighbours, at an even and the next odd column.
struct alignas(8) Two {
  float v[2];
};

// Where a sample is interpolated from: the nearer and the farther one, and their weights in quarters.
struct Between {
  int near, far, near_weight, far_weight;
};
HV_DEV Between interpolation(int i, int n, int from, bool cosited) {
  const int last = from - 1;
  if (from >= n) return {hv_min(i, last), hv_min(i, last), 4, 0};
  const int near = hv_min(i >> 1, last);
  const bool odd = i & 1;
  const int far = odd ? hv_min(near + 1, last) : cosited ? near : hv_max(near - 1, 0);
  const int weight = cosited ? (odd ? 2 : 0) : 1;
  return {near, far, 4 - weight, weight};
}

template <class T> HV_DEV int sample(const HvPlane &plane, uint32_t bits, int x, int y) {
  return (int)hv_sample<T>(plane.data + (uint64_t)y * plane.stride + (uint64_t)((uint32_t)x * plane.step) * sizeof(T),
                           plane.shift, bits);
}

// Where two neighbours at columns 2m and 2m + 1 are interpolated from: the samples at columns `at`, and the weights in
// quarters of the first and second sample for the one, and of the first and third sample for the other.
struct Columns {
  int at[3], weights[2][2];
};
HV_DEV Columns columns(int m, int n, int from, bool cosited) {
  const int last = from - 1;
  if (from >= n) {
    const int here = hv_min(2 * m, last);
    return {{here, here, hv_min(2 * m + 1, last)}, {{4, 0}, {0, 4}}};
  }
  const int near = hv_min(m, last), before = cosited ? near : hv_max(near - 1, 0), next = hv_min(near + 1, last);
  const int even = cosited ? 0 : 1, odd = cosited ? 2 : 1;
  return {{near, before, next}, {{4 - even, even}, {4 - odd, odd}}};
}

template <class T>
HV_DEV Two chroma(const CvvdpFront &front, const HvPlane &plane, uint32_t bits, const Columns &columns,
                  const Between &row) {
  const int low = front.low[1], high = front.high[1];
  auto at = [&](int x, int y) { return hv_min(hv_max(sample<T>(plane, bits, x, y), low), high); };
  int sums[3];
#pragma unroll
  for (int i = 0; i < 3; i++)
    sums[i] = row.near_weight * at(columns.at[i], row.near) + row.far_weight * at(columns.at[i], row.far);
  Two out;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int sum = columns.weights[i][0] * sums[0] + columns.weights[i][1] * sums[1 + i];
    out.v[i] = hv_fma_f32((float)sum, front.scale[1], front.offset[1]);
  }
  return out;
}

HV_DEV float unit(float x) { return smaller(larger(x, 0.0f), 1.0f); }

template <class T, uint32_t eotf>
HV_DEV void convert(const CvvdpPicture &picture, uint32_t bits, const CvvdpFront &front, uint32_t pitch, float *out) {
  const int m = (int)blockIdx.x * CVVDP_THREADS + (int)threadIdx.x, y = (int)blockIdx.y, width = front.width;
  if (2 * m >= width) return;
  Two u{{front.grey, front.grey}}, v = u;
  if (front.chroma_width > 0) {
    const Columns at = columns(m, width, front.chroma_width, front.cosited[0]);
    const Between row = interpolation(y, front.height, front.chroma_height, front.cosited[1]);
    u = chroma<T>(front, picture.planes[1], bits, at, row);
    v = chroma<T>(front, picture.planes[2], bits, at, row);
  }
  Two colours[CVVDP_COLOURS];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int x = hv_min(2 * m + i, width - 1);
    const int code = hv_min(hv_max(sample<T>(picture.planes[0], bits, x, y), front.low[0]), front.high[0]);
    const float luma = hv_fma_f32((float)code, front.scale[0], front.offset[0]);
    const float added = front.is_rgb ? 0.0f : luma;
    float r = linear<eotf>(front, unit(hv_fma_f32(front.matrix[0], v.v[i], added)));
    float g = linear<eotf>(front, unit(hv_fma_f32(front.matrix[2], v.v[i], hv_fma_f32(front.matrix[1], u.v[i], luma))));
    float b = linear<eotf>(front, unit(hv_fma_f32(front.matrix[3], u.v[i], added)));
    if (eotf == 2) {
      const float light = hv_fma_f32(0.0593f, b, hv_fma_f32(0.6780f, g, 0.2627f * r));
      const float gain = power(larger(light, TINY), front.gamma);
      r = r * gain;
      g = g * gain;
      b = b * gain;
    }
#pragma unroll
    for (int c = 0; c < CVVDP_COLOURS; c++) {
      const float *weights = front.colours + 3 * c;
      colours[c].v[i] =
          hv_fma_f32(weights[0], r, hv_fma_f32(weights[1], g, hv_fma_f32(weights[2], b, front.offsets[c])));
    }
  }
  out += (uint64_t)y * (uint32_t)width + 2 * (uint32_t)m;
#pragma unroll
  for (uint32_t c = 0; c < CVVDP_COLOURS; c++) {
    float *to = out + (uint64_t)c * pitch;
    if ((width & 1) == 0) {
      *(Two *)to = colours[c];
    } else {
      to[0] = colours[c].v[0];
      if (2 * m + 1 < width) to[1] = colours[c].v[1];
    }
  }
}

template <class T>
HV_DEV void front(const CvvdpPicture &picture, uint32_t bits, const CvvdpFront &front, uint32_t pitch, float *out) {
  if (front.eotf == 0) convert<T, 0>(picture, bits, front, pitch, out);
  else if (front.eotf == 1) convert<T, 1>(picture, bits, front, pitch, out);
  else convert<T, 2>(picture, bits, front, pitch, out);
}

struct alignas(16) Four {
  float v[4];
};
HV_DEV Four four(const float *at) { return __builtin_bit_cast(Four, hv_ldg((const HvU32x4 *)at)); }

// Returns the memory of the pair with the reference's planes for pair `pair`, which pairs with equal history share.
HV_DEV const float *reference(const HvFrame *frame, uint32_t pair, const float *memory, uint64_t pair_pitch) {
  return memory + frame[pair].like * pair_pitch;
}

// The sum of five rows in column x, with rows before the first and after the last mirrored.
HV_DEV float five(float a, float b, float c, float d, float e) {
  float sum = 0.05f * a;
  sum = hv_fma_f32(0.25f, b, sum);
  sum = hv_fma_f32(0.4f, c, sum);
  sum = hv_fma_f32(0.25f, d, sum);
  return hv_fma_f32(0.05f, e, sum);
}

HV_DEV float between_even(float before, float here, float next) {
  return hv_fma_f32(0.1f, next, hv_fma_f32(0.8f, here, 0.1f * before));
}

HV_DEV Two two(const float *at) { return __builtin_bit_cast(Two, hv_ldg((const HvU32x2 *)at)); }
HV_DEV float one(const float *at) { return float_of(hv_ldg((const uint32_t *)at)); }

// Two neighbours of an even and of the next odd row.
struct Quad {
  Two rows[2];
};

HV_DEV float shuffled(float x, uint32_t lane) { return float_of(hv_shfl_u32(bits_of(x), lane)); }

// The threads of the wave that have the columns before and after this thread's.
struct Beside {
  uint32_t before, after;
};
HV_DEV Beside beside() { return {(hv_lane() + HV_WAVE - 1) % HV_WAVE, (hv_lane() + 1) % HV_WAVE}; }

// Expands a plane of the smaller level at rows 2n and 2n + 1, from the samples at `places` in rows n - 1 to n + 1 of this
// thread's column, and from the columns beside it.
HV_DEV Quad expand(const float *plane, const uint32_t (&places)[3], const Beside &beside) {
  const float above = one(plane + places[0]), here = one(plane + places[1]), below = one(plane + places[2]);
  const float rows[2] = {between_even(above, here, below), (here + below) * 0.5f};
  Quad out;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const float before = shuffled(rows[i], beside.before), after = shuffled(rows[i], beside.after);
    out.rows[i] = {{between_even(before, rows[i], after), (rows[i] + after) * 0.5f}};
  }
  return out;
}

// The sensitivity at a node and the fraction to the next.
HV_DEV float sensitivity(const Two &node, float fraction) { return exp2_of(hv_fma_f32(fraction, node.v[1], node.v[0])); }
HV_DEV float node_of(const CvvdpMasking &masking, float luminance) {
  const float t = hv_fma_f32(log2_of(luminance), masking.nodes[0], masking.nodes[1]);
  return smaller(larger(t, 0.0f), (float)(CVVDP_NODES - 1));
}

HV_DEV int mirrored(int i, int n) {
  i = hv_abs(i);
  i = i < n ? i : 2 * (n - 1) - i;
  return hv_max(hv_min(i, n - 1), 0);  // beyond the tile
}

// The number of groups of 32 threads for a plane of the smaller picture.
HV_DEV uint32_t groups(const CvvdpLevel &small) {
  return (uint32_t)((small.width + CVVDP_COLUMNS - 1) / CVVDP_COLUMNS * ((small.height + CVVDP_ROWS - 1) / CVVDP_ROWS));
}

// Computes samples of a plane of the smaller picture. Each thread filters two columns, and gets its neighbours' by shuffles.
// All threads of the wave take part, even those of groups that do not exist.
HV_DEV void reduce(const CvvdpLevel &large, const CvvdpLevel &small, const float *from, float *to, uint32_t group) {
  const int w = large.width, h = large.height, lane = (int)(threadIdx.x % 32);
  const uint32_t high = (uint32_t)(small.height + CVVDP_ROWS - 1) / CVVDP_ROWS;
  const int x = (int)(group / high) * CVVDP_COLUMNS + lane - 1, top = (int)(group % high) * CVVDP_ROWS;
  int columns[2];
  for (int i = 0; i < 2; i++) {
    const int at = 2 * x + i, last = 2 * w - 1 - at;
    // The end of rows follows the parity of the height as well.
    const bool odd = at == w + 1 && (w & 1) && !(h & 1);
    columns[i] = hv_max(hv_min(at < 0 ? -1 - at : at < w ? at : odd ? w - 1 : last, w - 1), 0);
  }
  const bool turned = columns[0] > columns[1];
  float samples[2 * CVVDP_ROWS + 3][2];
  auto row = [&](int i) {
    const int y = 2 * top - 2 + i;
    return from + (uint32_t)(hv_max(y < 0 ? -1 - y : y < h ? y : 2 * h - 1 - y, 0) * w);
  };
  if ((w & 1) == 0) {
    const int first = hv_min(columns[0], columns[1]);
#pragma unroll
    for (int i = 0; i < 2 * CVVDP_ROWS + 3; i++) {
      const Two pair = *(const Two *)(row(i) + first);
      samples[i][0] = pair.v[0];
      samples[i][1] = pair.v[1];
    }
  } else {
#pragma unroll
    for (int i = 0; i < 2 * CVVDP_ROWS + 3; i++) {
      const float *at = row(i);
      samples[i][0] = at[turned ? columns[1] : columns[0]];
      samples[i][1] = at[turned ? columns[0] : columns[1]];
    }
  }
  const Beside lanes = beside();
#pragma unroll
  for (int j = 0; j < CVVDP_ROWS; j++) {
    float sums[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      sums[i] = five(samples[2 * j][i], samples[2 * j + 1][i], samples[2 * j + 2][i], samples[2 * j + 3][i],
                     samples[2 * j + 4][i]);
    }
    float even = turned ? sums[1] : sums[0], odd = turned ? sums[0] : sums[1];
    if (2 * x == w && (h & 1)) even = hv_fma_f32(5.0f, even, odd);
    if (2 * x + 1 == w && !(h & 1)) odd = 0;
    const float before[2] = {shuffled(even, lanes.before), shuffled(odd, lanes.before)};
    const float sum = five(before[0], before[1], even, odd, shuffled(even, lanes.after));
    const int y = top + j;
    if (lane > 0 && lane <= CVVDP_COLUMNS && x < small.width && y < small.height) to[y * small.width + x] = sum;
  }
}

// Filters four successive samples of a row from column x on.
HV_DEV Four blur(const float *taps, const float *row, int x, int width) {
  const int spare = 2;
  float samples[20];  // from column x - 8 on
  if (width % 4 == 0 && x >= CVVDP_HALF + spare && x + 4 + CVVDP_HALF + spare <= width) {
#pragma unroll
    for (int i = 0; i < 5; i++) {
      const Four some = four(row + x - CVVDP_HALF - spare + 4 * i);
      for (int j = 0; j < 4; j++) samples[4 * i + j] = some.v[j];
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4 + 2 * CVVDP_HALF; i++) samples[spare + i] = one(row + mirrored(x - CVVDP_HALF + i, width));
  }
  Four sums;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    float sum = taps[0] * samples[spare + j];
#pragma unroll
    for (int k = 1; k < CVVDP_BLUR; k++) sum = hv_fma_f32(taps[k], samples[spare + j + k], sum);
    sums.v[j] = sum;
  }
  return sums;
}

// Computes the contrasts of a pair's pictures from two samples of two rows. `paired`: the width is even. Each thread has
// a column of the next level; of 32 threads, the first and the last one have theirs for their neighbours only.
template <bool paired>
HV_DEV void contrasts(const CvvdpLevel &level, const CvvdpLevel &next, const Two *table, const CvvdpMasking &masking,
                      const float *reference, float *own, uint32_t group) {
  const int width = level.width, lane = (int)(threadIdx.x % 32);
  const int column = (int)(group / (uint32_t)next.height) * CVVDP_COLUMNS + lane - 1;
  const int m = hv_max(hv_min(column, next.width - 1), 0), n = (int)(group % (uint32_t)next.height);
  uint32_t around[3];
#pragma unroll
  for (int i = 0; i < 3; i++) around[i] = (uint32_t)(hv_max(hv_min(n + i - 1, next.height - 1), 0) * next.width + m);
  // The last row and the last column may have no neighbour: then they are computed twice.
  const uint32_t right = paired || 2 * m + 1 < width, below = 2 * n + 1 < level.height;
  const uint32_t place[2] = {(uint32_t)(2 * n * width + 2 * m), (uint32_t)((2 * n + (int)below) * width + 2 * m)};
  const bool stored = lane > 0 && lane <= CVVDP_COLUMNS && column < next.width;
  const Beside lanes = beside();
  float inverse[2][2][2], fraction[2][2];
  int node[2][2];
#pragma unroll 1
  for (uint32_t c = 0; c < CVVDP_CHANNELS; c++) {
    Quad expanded[2], samples[2];
#pragma unroll
    for (uint32_t s = 0; s < 2; s++) {
      const uint64_t plane = s * CVVDP_CHANNELS + c;
      const float *here = (s ? own : reference) + level.planes + plane * level.pitch;
      expanded[s] = expand((s ? own : reference) + next.planes + plane * next.pitch, around, lanes);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const float *at = here + place[i];
        samples[s].rows[i] = paired ? two(at) : Two{{one(at), one(at + right)}};
      }
    }
    if (c == 0) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float luminance[2];
        for (int s = 0; s < 2; s++) {
          luminance[s] = larger(expanded[s].rows[i / 2].v[i % 2], 0.01f);
          inverse[s][i / 2][i % 2] = hv_inverse_f32(luminance[s]);
        }
        const float t = node_of(masking, luminance[0]);
        node[i / 2][i % 2] = (int)t;
        fraction[i / 2][i % 2] = t - (float)(int)t;
      }
    }
    float *results = own + level.results + (uint64_t)c * level.pitch;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
      Two least, difference;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const float gain = sensitivity(table[c * CVVDP_NODES + (uint32_t)node[i][j]], fraction[i][j]);
        float contrast[2];
#pragma unroll
        for (int s = 0; s < 2; s++) {
          const float change = samples[s].rows[i].v[j] - expanded[s].rows[i].v[j];
          contrast[s] = smaller(change * inverse[s][i][j], 1000.0f) * gain;
        }
        least.v[j] = smaller(absolute(contrast[1]), absolute(contrast[0]));
        difference.v[j] = absolute(contrast[1] - contrast[0]);
      }
      if (!stored || i > below) continue;
      float *to = results + place[i], *differences = to + (uint64_t)CVVDP_CHANNELS * level.pitch;
      if (paired) {
        *(Two *)to = least;
        *(Two *)differences = difference;
        continue;
      }
      for (uint32_t j = 0; j <= right; j++) {
        to[j] = least.v[j];
        differences[j] = difference.v[j];
      }
    }
  }
}

// The sum of the 64 lanes, for every thread.
HV_DEV double strided(double *lanes, double mine) {
  __syncthreads();  // the sum before is read
  if (threadIdx.x < CVVDP_LANES) lanes[threadIdx.x] = mine;
  for (uint32_t n = CVVDP_LANES / 2; n; n /= 2) {
    __syncthreads();
    if (threadIdx.x < n) lanes[threadIdx.x] = lanes[threadIdx.x] + lanes[threadIdx.x + n];
  }
  __syncthreads();
  return lanes[0];
}

// Stores the four sums of the base band of a pair as doubles, and adds it to the heat map if there is one. `table`: the
// sensitivity of the base, which is level `number`. `sums`: those of the pair. Of the block's threads, 64 have every 64th
// sample.
HV_DEV void base(const float *one, const float *two, uint32_t number, const CvvdpLevel &base, const Two *table,
                 const CvvdpMasking &masking, uint64_t *sums) {
  __shared__ double lanes[CVVDP_LANES];
  const int n = base.width * base.height, first = threadIdx.x < CVVDP_LANES ? (int)threadIdx.x : n;
  one += base.planes;
  two += base.planes + (uint64_t)CVVDP_CHANNELS * base.pitch;
  float luminance[2];
  for (int s = 0; s < 2; s++) {
    double sum = 0;
    for (int i = first; i < n; i += CVVDP_LANES) sum = sum + (double)hv_max((s ? two : one)[i], 0.01f);
    luminance[s] = (float)(strided(lanes, sum) / (double)n);
  }
  const float inverse[2] = {1.0f / luminance[0], 1.0f / luminance[1]};
  const float t = node_of(masking, hv_max(luminance[0], 0.01f));
  const int node = (int)t;
  auto difference_at = [&](int c, int i) {
    const float gain = sensitivity(table[c * CVVDP_NODES + node], t - (float)node);
    const float r = hv_min(one[(uint64_t)c * base.pitch + (uint32_t)i] * inverse[0], 1000.0f);
    const float d = hv_min(two[(uint64_t)c * base.pitch + (uint32_t)i] * inverse[1], 1000.0f);
    return absolute(d - r) * gain;
  };
  for (int c = 0; c < CVVDP_CHANNELS; c++) {
    double sum = 0;
    for (int i = first; i < n; i += CVVDP_LANES) {
      const float difference = difference_at(c, i);
      sum = sum + (double)(difference * (difference + masking.two_epsilons));
    }
    sum = strided(lanes, sum);
    if (threadIdx.x == 0) sums[number * CVVDP_CHANNELS + (uint32_t)c] = __builtin_bit_cast(uint64_t, sum);
  }
  if (base.heat == 0) return;
  const Cells cells(sums, number, base);
  for (int i = first; i < n; i += CVVDP_LANES) {
    float sum = masking.epsilon;
    for (int c = 0; c < CVVDP_CHANNELS; c++) sum = add_strength(masking, sum, difference_at(c, i), masking.base_strength[c]);
    cells.add(i % base.width, i / base.width, strength_units(masking, sum));
  }
}

// Masks the differences of a tile and adds them to the sums of the pair, and with `heat` to the heat map. `memory`: that of
// the pair.
template <bool heat>
HV_DEV void mask(const CvvdpLevel *__restrict__ levels, const CvvdpMasking &masking, uint32_t bands,
                 const float *__restrict__ memory, uint64_t *sums) {
  const int high = CVVDP_TILE_H + 2 * CVVDP_HALF, quads = CVVDP_TILE_W / 4;
  __shared__ Four filtered[2][high][quads];
  __shared__ uint64_t waves[CVVDP_CHANNELS][HV_MAX_WAVES_PER_BLOCK(CVVDP_THREADS)];
  // The contrasts that were written last come first, as they may still be in the cache.
  const uint32_t block = gridDim.x - 1 - blockIdx.x;
  uint32_t band = 0;
  while (band + 1 < bands && levels[band + 1].tiles <= block) band++;
  const CvvdpLevel &level = levels[band];
  const int width = level.width, height = level.height;
  const uint32_t tile = block - level.tiles, in_row = (uint32_t)(width + CVVDP_TILE_W - 1) / CVVDP_TILE_W;
  const int left = (int)(tile % in_row) * CVVDP_TILE_W, top = (int)(tile / in_row) * CVVDP_TILE_H;
  const int tx = (int)threadIdx.x % CVVDP_TILE_W, ty = (int)threadIdx.x / CVVDP_TILE_W * CVVDP_RUN;
  const bool blurred = width > CVVDP_HALF && height > CVVDP_HALF;
  const float *results = memory + level.results;
  const uint32_t place = (uint32_t)((top + ty) * width + left + tx);
  const int inside = left + tx < width ? height - top - ty : 0;  // rows of the picture
  float masked[CVVDP_CHANNELS][CVVDP_RUN];
#pragma unroll
  for (int j = 0; j < CVVDP_RUN; j++)
    for (int o = 0; o < CVVDP_CHANNELS; o++) masked[o][j] = masking.offsets[o];
#pragma unroll 1
  for (int c = CVVDP_CHANNELS - 1; c >= 0; c--) {
    const float *plane = results + (uint64_t)c * level.pitch;
    float local[CVVDP_RUN];
    if (blurred) {
      // The other half may still be read.
      Four(*to)[quads] = filtered[c & 1];
      for (int i = (int)threadIdx.x; i < high * quads; i += CVVDP_THREADS) {
        const float *row = plane + (uint32_t)(mirrored(top + i / quads - CVVDP_HALF, height) * width);
        to[i / quads][i % quads] = blur(masking.horizontal, row, left + i % quads * 4, width);
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < CVVDP_RUN + 2 * CVVDP_HALF; i++) {
        const float sample = ((const float *)to[ty + i])[tx];
#pragma unroll
        for (int j = 0; j < CVVDP_RUN; j++) {
          const int k = i - j;
          if (k == 0) local[j] = masking.vertical[0] * sample;
          if (k > 0 && k < CVVDP_BLUR) local[j] = hv_fma_f32(masking.vertical[k], sample, local[j]);
        }
      }
    } else {
#pragma unroll
      for (int j = 0; j < CVVDP_RUN; j++)
        local[j] = j < inside ? one(plane + place + (uint32_t)(j * width)) * masking.small_gain : 0;
    }
#pragma unroll
    for (int j = 0; j < CVVDP_RUN; j++) {
      const float power = masking_power(local[j] + masking.epsilon, masking.powers[c]);
#pragma unroll
      for (int o = 0; o < CVVDP_CHANNELS; o++) masked[o][j] = hv_fma_f32(masking.cross[4 * c + o], power, masked[o][j]);
    }
  }
  float strength[CVVDP_RUN];
#pragma unroll
  for (int j = 0; j < CVVDP_RUN; j++) strength[j] = masking.epsilon;
  const double to_integer = 0x1.8p52;  // leaves the nearest integer in the lowest bits
#pragma unroll
  for (int o = 0; o < CVVDP_CHANNELS; o++) {
    const float *plane = results + (uint64_t)(CVVDP_CHANNELS + o) * level.pitch;
    uint64_t sum = 0 - CVVDP_RUN * __builtin_bit_cast(uint64_t, to_integer);
#pragma unroll
    for (int j = 0; j < CVVDP_RUN; j++) {
      // Samples beyond the picture have no difference, so they add 0.
      const float difference = j < inside ? one(plane + place + (uint32_t)(j * width)) : 0;
      const float power = masking_power(difference + masking.epsilon, masking.power);
      const float u = larger(power - masking.zero, 0.0f);
      const float d = hv_quotient_f32(u, hv_fma_f32(u, masking.top, masked[o][j]));
      const float v = d * (d + masking.two_epsilons);
      if (heat) strength[j] = add_strength(masking, strength[j], d, masking.strength[o]);
      sum += __builtin_bit_cast(uint64_t, hv_fma_f64((double)v, level.scale, to_integer));
    }
    sum = hv_wave_sum_u64(sum);
    if (hv_lane() == 0) waves[o][threadIdx.x / HV_WAVE] = sum;
  }
  if (heat) {
    const Cells cells(sums, band, level);
    uint64_t units = 0;
#pragma unroll
    for (int j = 0; j < CVVDP_RUN; j++) {
      if (j >= inside) continue;
      units += strength_units(masking, strength[j]);
      const int next = top + ty + j + 1;
      const bool ends = j + 1 == CVVDP_RUN || j + 1 == inside || (next & ((1 << cells.shift) - 1)) == 0;
      if (!ends) continue;
      cells.add(left + tx, next - 1, units);
      units = 0;
    }
  }
  __syncthreads();
  if (threadIdx.x >= CVVDP_CHANNELS) return;
  uint64_t sum = 0;
  for (int i = 0; i < CVVDP_THREADS / HV_WAVE; i++) sum += waves[threadIdx.x][i];
  hv_atomic_add_u64(sums + band * CVVDP_CHANNELS + threadIdx.x, sum);
}

}  // namespace cvvdp

// Converts a picture to planes of opponent colours, `pitch` floats apart. Block 256 threads of two samples of a row; grid
// (ceil(width/512), height).
HV_KERNEL(CVVDP_THREADS, cvvdp_front_u8)(CvvdpPicture picture, uint32_t bits, CvvdpFront front, uint32_t pitch, float *out) {
  cvvdp::front<uint8_t>(picture, bits, front, pitch, out);
}
HV_EXPORT(cvvdp_front_u8)
HV_KERNEL(CVVDP_THREADS, cvvdp_front_u16)(CvvdpPicture picture, uint32_t bits, CvvdpFront front, uint32_t pitch, float *out) {
  cvvdp::front<uint16_t>(picture, bits, front, pitch, out);
}
HV_EXPORT(cvvdp_front_u16)

// Filters the frames of opponent colours in `ring` to the channels of the first level. The ring has `places` frames of
// `streams` pictures with planes of `pitch` floats. `taps`: weights of n frames for each channel, the oldest first.
// `memory`: that of the pairs, `pair_pitch` floats each. Block 256 threads of 4 samples; grid (ceil(pitch/1024), 2 x
// pairs): the reference and the distorted picture of each pair.
HV_KERNEL(CVVDP_THREADS, cvvdp_filter)(const HvFrame *__restrict__ frame, const float *__restrict__ ring,
                                       const float *__restrict__ taps, uint32_t n, uint32_t places, uint32_t streams,
                                       uint32_t pitch, uint64_t pair_pitch, float *__restrict__ memory) {
  __shared__ float weights[CVVDP_TAPS * CVVDP_CHANNELS];
  const uint32_t pair = blockIdx.y >> 1, distorted = blockIdx.y & 1;
  const HvFrame &of = frame[pair];
  if (!distorted && of.like != pair) return;
  for (uint32_t i = threadIdx.x; i < n * CVVDP_CHANNELS; i += CVVDP_THREADS) weights[i] = taps[i];
  __syncthreads();
  const uint32_t stream = distorted ? 1 + of.rendition : 0;
  const uint32_t at = (blockIdx.x * CVVDP_THREADS + threadIdx.x) * 4;
  if (at >= pitch) return;
  float sums[CVVDP_CHANNELS][4];
  for (uint32_t k = 0; k < n; k++) {
    const uint32_t back = hv_min(n - 1 - k, of.age - 1);
    const uint32_t place = of.place >= back ? of.place - back : of.place + places - back;
    const float *planes = ring + ((uint64_t)place * streams + stream) * CVVDP_COLOURS * pitch + at;
    for (int c = 0; c < CVVDP_COLOURS; c++) {
      const cvvdp::Four samples = cvvdp::four(planes + (uint64_t)c * pitch);
      for (int i = 0; i < 4; i++) {
        const float weight = weights[k * CVVDP_CHANNELS + c];
        sums[c][i] = k ? hv_fma_f32(weight, samples.v[i], sums[c][i]) : weight * samples.v[i];
        if (c) continue;
        const float change = weights[k * CVVDP_CHANNELS + 3];
        sums[3][i] = k ? hv_fma_f32(change, samples.v[i], sums[3][i]) : change * samples.v[i];
      }
    }
  }
  float *out = memory + pair * pair_pitch + (uint64_t)(distorted * CVVDP_CHANNELS) * pitch + at;
  for (int c = 0; c < CVVDP_CHANNELS; c++) {
    *(cvvdp::Four *)(out + (uint64_t)c * pitch) = {{sums[c][0], sums[c][1], sums[c][2], sums[c][3]}};
  }
}
HV_EXPORT(cvvdp_filter)

// Computes a level of the pyramid from the one before. Block 256 threads, 8 groups of 32; grid (ceil(groups/8),
// 8 x pairs).
HV_KERNEL(CVVDP_THREADS, cvvdp_reduce)(const HvFrame *__restrict__ frame, const CvvdpLevel *__restrict__ levels,
                                       uint32_t level, uint64_t pair_pitch, float *memory) {
  // The planes that were written last come first, as they may still be in the cache.
  const uint32_t at = gridDim.y - 1 - blockIdx.y;
  const uint32_t pair = at / (2 * CVVDP_CHANNELS), plane = at % (2 * CVVDP_CHANNELS);
  if (plane < CVVDP_CHANNELS && frame[pair].like != pair) return;
  const CvvdpLevel &large = levels[level - 1], &small = levels[level];
  float *own = memory + pair * pair_pitch;
  cvvdp::reduce(large, small, own + large.planes + (uint64_t)plane * large.pitch,
                own + small.planes + (uint64_t)plane * small.pitch, (blockIdx.x * CVVDP_THREADS + threadIdx.x) / 32);
}
HV_EXPORT(cvvdp_reduce)

// Computes the levels from `level` to `last`, each from the one before. Block 1024 threads; grid (1, 8 x pairs).
HV_KERNEL(CVVDP_REST_THREADS, cvvdp_reduce_rest)(const HvFrame *__restrict__ frame,
                                                 const CvvdpLevel *__restrict__ levels, uint32_t level, uint32_t last,
                                                 uint64_t pair_pitch, float *memory) {
  const uint32_t pair = blockIdx.y / (2 * CVVDP_CHANNELS), plane = blockIdx.y % (2 * CVVDP_CHANNELS);
  if (plane < CVVDP_CHANNELS && frame[pair].like != pair) return;
  float *own = memory + pair * pair_pitch;
  for (; level <= last; level++) {
    const CvvdpLevel &large = levels[level - 1], &small = levels[level];
    const uint32_t groups = cvvdp::groups(small);
    for (uint32_t first = 0; first < groups; first += CVVDP_REST_THREADS / 32) {
      cvvdp::reduce(large, small, own + large.planes + (uint64_t)plane * large.pitch,
                    own + small.planes + (uint64_t)plane * small.pitch, first + threadIdx.x / 32);
    }
    __syncthreads();
  }
}
HV_EXPORT(cvvdp_reduce_rest)

// Computes the contrasts of all bands: the smaller one of both pictures, and the difference. `tables`: for each level,
// channel and luminance the sensitivity and the step to the next. The first block stores the sums of the base, those of
// the next pair `pitch` sums on. Block 256 threads, 8 groups of 32; grid (1 + blocks of all bands, pairs).
HV_KERNEL(CVVDP_DENSE, cvvdp_contrast)(const HvFrame *__restrict__ frame, const CvvdpLevel *__restrict__ levels,
                                       const cvvdp::Two *__restrict__ tables, CvvdpMasking masking, uint32_t bands,
                                       uint64_t pair_pitch, float *memory, uint32_t pitch, uint64_t *sums) {
  __shared__ cvvdp::Two table[CVVDP_CHANNELS * CVVDP_NODES];
  const uint32_t size = CVVDP_CHANNELS * CVVDP_NODES, pair = blockIdx.y;
  float *own = memory + pair * pair_pitch;
  const float *reference = cvvdp::reference(frame, pair, memory, pair_pitch);
  if (blockIdx.x == 0) {
    cvvdp::base(reference, own, bands, levels[bands], tables + bands * size, masking, sums + (uint64_t)pair * pitch);
    return;
  }
  uint32_t band = 0;
  while (band + 1 < bands && levels[band + 1].contrasts <= blockIdx.x) band++;
  for (uint32_t i = threadIdx.x; i < size; i += CVVDP_THREADS) table[i] = tables[band * size + i];
  __syncthreads();
  const CvvdpLevel &level = levels[band], &next = levels[band + 1];
  const uint32_t group = ((blockIdx.x - level.contrasts) * CVVDP_THREADS + threadIdx.x) / 32;
  if (level.width & 1) cvvdp::contrasts<false>(level, next, table, masking, reference, own, group);
  else cvvdp::contrasts<true>(level, next, table, masking, reference, own, group);
}
HV_EXPORT(cvvdp_contrast)

// Masks the differences of all bands and adds them to the sums: four of each band, those of the next pair `pitch` sums
// on. cvvdp_mask_heat also adds them to the heat map. Block 256 threads, a tile of 64 x 32 samples; grid (tiles of all
// bands, pairs).
#define CVVDP_MASK(name, heat)                                                                                         \
  HV_KERNEL(CVVDP_DENSE, name)(const CvvdpLevel *__restrict__ levels, CvvdpMasking masking, uint32_t bands,            \
                               uint64_t pair_pitch, const float *__restrict__ memory, uint32_t pitch, uint64_t *sums) { \
    cvvdp::mask<heat>(levels, masking, bands, memory + blockIdx.y * pair_pitch, sums + (uint64_t)blockIdx.y * pitch);  \
  }                                                                                                                    \
  HV_EXPORT(name)

CVVDP_MASK(cvvdp_mask, false)
CVVDP_MASK(cvvdp_mask_heat, true)
