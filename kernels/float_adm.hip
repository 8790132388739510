// SPDX-License-Identifier: MPL-2.0
//
// ADM in floating point. crates/engine/src/metrics/float_adm.rs has the definition. The terms are summed by ordered.hip.
#include "single.h"

#define FADM_THREADS 256
#define FADM_SCALES 4

// The shape of one scale.
struct FloatAdmScale {
  int32_t in_width, in_height;  // of the picture or the band that is transformed
  int32_t width, height;        // of each band
  int32_t left, top;            // the first column and row that are scored
  int32_t columns, rows;        // how many are scored
  uint32_t stride;              // numbers from row to row of a band
  uint32_t bands;               // where its bands begin among the numbers of a picture: a, h, v, d
  uint32_t terms;               // where its terms begin in a set: h, v, d
  uint32_t terms_stride;        // numbers from row to row of terms
  uint32_t area;                // numbers from the terms of a band to those of the next
  uint32_t tile;                // the number of its first tile
  uint32_t across;              // tiles side by side
};
HV_SIZE(FloatAdmScale, 60);
HV_OFFSET(FloatAdmScale, in_width, 0);
HV_OFFSET(FloatAdmScale, in_height, 4);
HV_OFFSET(FloatAdmScale, width, 8);
HV_OFFSET(FloatAdmScale, height, 12);
HV_OFFSET(FloatAdmScale, left, 16);
HV_OFFSET(FloatAdmScale, top, 20);
HV_OFFSET(FloatAdmScale, columns, 24);
HV_OFFSET(FloatAdmScale, rows, 28);
HV_OFFSET(FloatAdmScale, stride, 32);
HV_OFFSET(FloatAdmScale, bands, 36);
HV_OFFSET(FloatAdmScale, terms, 40);
HV_OFFSET(FloatAdmScale, terms_stride, 44);
HV_OFFSET(FloatAdmScale, area, 48);
HV_OFFSET(FloatAdmScale, tile, 52);
HV_OFFSET(FloatAdmScale, across, 56);

// All scales, and where data lies. Each pair has three sets of terms: of the reference (only the first pair), of the restored
// detail, of the additive part.
struct FloatAdmLayout {
  FloatAdmScale scales[FADM_SCALES];
  uint32_t picture;  // numbers from picture to picture; the reference is the first
  uint32_t set;      // numbers from set to set
  uint32_t pair;     // numbers from pair to pair
};
HV_SIZE(FloatAdmLayout, 252);
HV_OFFSET(FloatAdmLayout, scales, 0);
HV_OFFSET(FloatAdmLayout, picture, 240);
HV_OFFSET(FloatAdmLayout, set, 244);
HV_OFFSET(FloatAdmLayout, pair, 248);

// One way of weighting and masking.
struct FloatAdmPass {
  double gain_limit;
  float weights[FADM_SCALES][2];  // of the bands h and v, and of d
  uint32_t masks, aim;
};
HV_SIZE(FloatAdmPass, 48);
HV_OFFSET(FloatAdmPass, gain_limit, 0);
HV_OFFSET(FloatAdmPass, weights, 8);
HV_OFFSET(FloatAdmPass, masks, 40);
HV_OFFSET(FloatAdmPass, aim, 44);

namespace fadm {
constexpr float LOW[4] = {0.482962913144690f, 0.836516303737469f, 0.224143868041857f, -0.129409522550921f};
constexpr float HIGH[4] = {-0.129409522550921f, -0.224143868041857f, 0.836516303737469f, -0.482962913144690f};
constexpr double NEIGHBOUR = 0.0333333351, CENTRE = 0.0666666701;
constexpr float EPSILON = 1e-30f, COS_SQUARED = 0.9996954202651978f;

// ---- the wavelet transform ----------------------------------------------------------------
constexpr int TRANSFORM_W = 32, TRANSFORM_H = 8;  // coefficients of each band that a block computes
constexpr int IN_W = 2 * TRANSFORM_W + 2;

// The place of row or column i: beyond the first one lies the second, beyond the last one the last.
HV_DEV int mirror(int i, int n) { return i < 0 ? -i : i >= n ? 2 * n - i - 1 : i; }

HV_DEV float weigh(const float *taps, float a, float b, float c, float d) {
  return taps[0] * a + taps[1] * b + taps[2] * c + taps[3] * d;
}

struct Filtered {
  float low[TRANSFORM_H][IN_W + 1], high[TRANSFORM_H][IN_W + 1];
};

// Transforms the picture that `at(x, y)` reads.
template <class At> HV_DEV void transform(At at, const FloatAdmScale &scale, float *bands, Filtered &filtered) {
  const int x0 = (int)(blockIdx.x % scale.across) * TRANSFORM_W, y0 = (int)(blockIdx.x / scale.across) * TRANSFORM_H;
  for (int i = (int)threadIdx.x; i < IN_W * TRANSFORM_H; i += FADM_THREADS) {
    const int u = i % IN_W, v = i / IN_W;
    // Beyond the last coefficient nothing is used, so any sample will do.
    const int x = mirror(hv_min(2 * x0 + u - 1, scale.in_width + 1), scale.in_width);
    float taps[4];
    for (int k = 0; k < 4; k++)
      taps[k] = at(x, mirror(hv_min(2 * (y0 + v) + k - 1, scale.in_height + 1), scale.in_height));
    filtered.low[v][u] = weigh(LOW, taps[0], taps[1], taps[2], taps[3]);
    filtered.high[v][u] = weigh(HIGH, taps[0], taps[1], taps[2], taps[3]);
  }
  __syncthreads();
  const int u = (int)threadIdx.x % TRANSFORM_W, v = (int)threadIdx.x / TRANSFORM_W, x = x0 + u, y = y0 + v;
  if (x >= scale.width || y >= scale.height) return;
  const float *low = filtered.low[v] + 2 * u, *high = filtered.high[v] + 2 * u;
  const uint64_t size = (uint64_t)scale.stride * (uint32_t)scale.height;
  float *to = bands + scale.bands + (uint64_t)scale.stride * (uint32_t)y + x;
  to[0] = weigh(LOW, low[0], low[1], low[2], low[3]);
  // Masking reads one coefficient beyond the scored ones.
  const int column = x - scale.left + 1, row = y - scale.top + 1;
  if (column < 0 || row < 0 || column >= scale.columns + 2 || row >= scale.rows + 2) return;
  to[size] = weigh(LOW, high[0], high[1], high[2], high[3]);
  to[2 * size] = weigh(HIGH, low[0], low[1], low[2], low[3]);
  to[3 * size] = weigh(HIGH, high[0], high[1], high[2], high[3]);
}

// ---- decoupling and masking ---------------------------------------------------------------
constexpr int MASK_W = 32, MASK_H = 16;  // coefficients that a block scores
constexpr int HALO_W = MASK_W + 2, HALO_H = MASK_H + 2;

using Plane = float[HALO_W * HALO_H];

// The weighted magnitudes of a tile for the bands h, v and d: restored detail, additive part, and for both the amounts that
// they add to the threshold of neighbours.
struct Tile {
  Plane magnitudes[2][3], shares[2][3], reference[3];
};

// n / d by the approximate inverse of the host's processor and one Newton step. `table` has the estimates for the numbers
// from 1 to 2, by the 12 highest bits of the fraction; without it, this is the quotient.
HV_DEV float quotient(float n, float d, const uint32_t *table) {
  if (!table) return n / d;
  const uint32_t bits = __builtin_bit_cast(uint32_t, d), exponent = bits >> 23 & 255;
  // The estimate of the smallest numbers is infinite. Coefficients never have the largest ones.
  uint32_t estimate = hv_ldg(table + (bits >> 11 & 4095)) - ((exponent - 127) << 23);
  estimate = exponent == 0 ? 0x7f800000 : exponent > 252 ? 0 : estimate;
  const float y = __builtin_bit_cast(float, estimate | (bits & 0x80000000));
  return n * (y + y * (1.0f - d * y));
}

// The restored part of t.
HV_DEV float restore(float o, float t, bool near, double gain_limit, const uint32_t *table) {
  float k = quotient(t, o + EPSILON, table);
  k = k < 0.0f ? 0.0f : k > 1.0f ? 1.0f : k;
  const float r = k * o, whole = (float)gain_limit;
  // If the limit is a single, its product in doubles is exact, so that rounding it is rounding the product of singles.
  const float gained = (double)whole == gain_limit ? r * whole : (float)((double)r * gain_limit);
  if (near && r > 0.0f) return gained < t ? gained : t;
  if (near && r < 0.0f) return gained > t ? gained : t;
  return r;
}

HV_DEV float threshold(const Plane *shares, const Plane *magnitudes, int at) {
  float all = 0;
  for (int band = 0; band < 3; band++) {
    const float *share = shares[band] + at;
    float sum = share[-HALO_W - 1];
    sum += share[-HALO_W];
    sum += share[-HALO_W + 1];
    sum += share[-1];
    sum = (float)((double)sum + CENTRE * (double)magnitudes[band][at]);
    sum += share[1];
    sum += share[HALO_W - 1];
    sum += share[HALO_W];
    sum += share[HALO_W + 1];
    all += sum;
  }
  return all;
}

HV_DEV float cube(float x) { return x * x * x; }

// Computes the terms of a tile.
HV_DEV void mask(const FloatAdmLayout &layout, const FloatAdmPass &pass, const uint32_t *table, const float *bands,
                 float *terms, Tile &tile) {
  int s = FADM_SCALES - 1;
  while (s > 0 && blockIdx.x < layout.scales[s].tile) s--;
  const FloatAdmScale &scale = layout.scales[s];
  const uint32_t number = blockIdx.x - scale.tile, pair = blockIdx.y;
  const int x0 = (int)(number % scale.across) * MASK_W, y0 = (int)(number / scale.across) * MASK_H;
  const float weights[3] = {pass.weights[s][0], pass.weights[s][0], pass.weights[s][1]};
  const uint64_t size = (uint64_t)scale.stride * (uint32_t)scale.height;
  const float *reference = bands + scale.bands, *distorted = reference + (uint64_t)(pair + 1) * layout.picture;
  for (int i = (int)threadIdx.x; i < HALO_W * HALO_H; i += FADM_THREADS) {
    const int u = i % HALO_W, v = i / HALO_W, x = scale.left + x0 + u - 1, y = scale.top + y0 + v - 1;
    const int column = x < 0 ? 1 : hv_min(x, scale.width - 1), row = y < 0 ? 1 : hv_min(y, scale.height - 1);
    const uint64_t from = (uint64_t)scale.stride * (uint32_t)row + column;
    float o[3], t[3];
    for (int band = 0; band < 3; band++) {
      o[band] = reference[(band + 1) * size + from];
      t[band] = distorted[(band + 1) * size + from];
    }
    const float product = o[0] * t[0] + o[1] * t[1];
    const float squares_o = o[0] * o[0] + o[1] * o[1], squares_t = t[0] * t[0] + t[1] * t[1];
    const bool near = product >= 0.0f && product * product >= COS_SQUARED * squares_o * squares_t;
    for (int band = 0; band < 3; band++) {
      const float r = restore(o[band], t[band], near, pass.gain_limit, table);
      const float parts[2] = {r, t[band] - r};
      for (int part = 0; part < 2; part++) {
        const float magnitude = __builtin_fabsf(weights[band] * parts[part]);
        tile.magnitudes[part][band][i] = magnitude;
        tile.shares[part][band][i] = (float)(NEIGHBOUR * (double)magnitude);
      }
      tile.reference[band][i] = __builtin_fabsf(weights[band] * o[band]);
    }
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < MASK_W * MASK_H; i += FADM_THREADS) {
    const int u = i % MASK_W, v = i / MASK_W, column = x0 + u, row = y0 + v, at = (v + 1) * HALO_W + u + 1;
    if (column >= scale.columns || row >= scale.rows) continue;
    float *const to = terms + (uint64_t)pair * layout.pair + scale.terms +
                      (uint64_t)scale.terms_stride * (uint32_t)row + column;
    for (int part = 0; part < (pass.aim ? 2 : 1); part++) {
      const float least = pass.masks ? threshold(tile.shares[1 - part], tile.magnitudes[1 - part], at) : 0.0f;
      for (int band = 0; band < 3; band++) {
        const float rest = tile.magnitudes[part][band][at] - least;
        to[(uint64_t)(part + 1) * layout.set + (uint32_t)band * scale.area] = cube(rest < 0.0f ? 0.0f : rest);
      }
    }
    if (pair == 0) {
      for (int band = 0; band < 3; band++)
        to[(uint32_t)band * scale.area] = cube(tile.reference[band][at]);
    }
  }
}
}  // namespace fadm

// Transforms luma of the reference and of the distorted pictures. Block 256 threads, a tile of 32 x 8 coefficients; grid
// (tiles, 1 + pairs).
#define FLOAT_ADM(name, T)                                                                                              \
  HV_KERNEL(FADM_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, FloatAdmScale scale, uint32_t picture, \
                                float *__restrict__ bands) {                                                            \
    __shared__ fadm::Filtered filtered;                                                                                 \
    const uint32_t i = blockIdx.y;                                                                                      \
    const HvPlane plane = i == 0 ? frame->reference[0] : frame[i - 1].distorted[0];                                     \
    const float unit = 1.0f / (float)(1u << (bits - 8));                                                                \
    const auto at = [=](int x, int y) {                                                                                 \
      const T *sample = hv_at((const T *)plane.data, (uint32_t)x, (uint32_t)y, plane.stride);                           \
      return hv_centred<T>((const uint8_t *)sample, plane.shift, bits, unit);                                           \
    };                                                                                                                  \
    fadm::transform(at, scale, bands + (uint64_t)i * picture, filtered);                                                \
  }                                                                                                                     \
  HV_EXPORT(name)
FLOAT_ADM(float_adm_u8, uint8_t)
FLOAT_ADM(float_adm_u16, uint16_t)

// Transforms band a of the scale above, whose shape is `above`.
HV_KERNEL(FADM_THREADS, float_adm_transform)(FloatAdmScale above, FloatAdmScale scale, uint32_t picture, float *bands) {
  __shared__ fadm::Filtered filtered;
  float *const own = bands + (uint64_t)blockIdx.y * picture;
  const float *const from = own + above.bands;
  const auto at = [=](int x, int y) { return from[(uint64_t)above.stride * (uint32_t)y + x]; };
  fadm::transform(at, scale, own, filtered);
}
HV_EXPORT(float_adm_transform)

// Computes the terms of all scales. Block 256 threads, a tile of 32 x 16 coefficients; grid (tiles of all scales, pairs).
HV_KERNEL(FADM_THREADS, float_adm_mask)(FloatAdmLayout layout, FloatAdmPass pass, const uint32_t *__restrict__ table,
                                        const float *__restrict__ bands, float *__restrict__ terms) {
  __shared__ fadm::Tile tile;
  fadm::mask(layout, pass, table, bands, terms, tile);
}
HV_EXPORT(float_adm_mask)
