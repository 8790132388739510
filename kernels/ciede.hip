// SPDX-License-Identifier: MPL-2.0
//
// CIEDE2000: the sum of the colour differences. `crates/engine/src/backend/cpu/ciede.rs` has the same functions,
// operation by operation, and explains them.
#include "frame.h"

#define CIEDE_THREADS 128
#define CIEDE_ROWS 4  // that each thread walks down

// Converts samples of limited range to fractions.
struct CiedeRange {
  double black, luma, grey, chroma;
};
HV_SIZE(CiedeRange, 32);
HV_OFFSET(CiedeRange, black, 0);
HV_OFFSET(CiedeRange, luma, 8);
HV_OFFSET(CiedeRange, grey, 16);
HV_OFFSET(CiedeRange, chroma, 24);

namespace ciede {

constexpr double PI = 3.14159265358979323846;
constexpr double TO_INTEGER = 6755399441055744.0;  // 1.5 x 2^52: leaves the nearest integer in the lowest bits

struct Lab {
  float l, a, b;
};

HV_DEV double root(double v) {
#if defined(HV_HOST) || defined(HV_BARE)
  return __builtin_sqrt(v);
#else
  return sqrt(v);
#endif
}
HV_DEV uint64_t bits_of(double v) { return __builtin_bit_cast(uint64_t, v); }
HV_DEV float magnitude(float v) {
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, v) & 0x7fffffffu);
}
HV_DEV double magnitude(double v) {
  return __builtin_bit_cast(double, bits_of(v) & 0x7fffffffffffffffull);
}

HV_DEV double seventh_power(double x) {
  const double square = x * x;
  return (square * square) * (square * x);
}

HV_DEV float guess(float t, float exponent, float offset) {
  const float bits = (float)(int32_t)__builtin_bit_cast(uint32_t, t);
  return __builtin_bit_cast(float, (int32_t)(bits * exponent + offset));
}

HV_DEV double cube_root(double t) {
  const float single = (float)t;
  float y = guess(single, -1.0f / 3.0f, 1419917116.0f);
#pragma unroll
  for (int i = 0; i < 3; i++) y *= (4.0f - single * ((y * y) * y)) * (1.0f / 3.0f);
  const double r = (double)(single * (y * y)), cube = (r * r) * r;
  double inverse = (double)(((y * y) * y) * (1.0f / 3.0f));
  inverse *= 2.0 - (2.0 * cube + t) * inverse;
  return r + r * ((t - cube) * inverse);
}

HV_DEV double fifth_root(double t) {
  const float single = (float)t;
  float y = guess(single, -0.2f, 1277950000.0f);
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const float square = y * y;
    y *= (6.0f - single * ((square * square) * y)) * 0.2f;
  }
  const float fourth = (y * y) * (y * y);
  const double r = (double)(single * fourth), square = r * r, power = (square * square) * r;
  double inverse = (double)((fourth * y) * 0.2f);
  inverse *= 2.0 - (3.0 * power + 2.0 * t) * inverse;
  return r + r * ((t - power) * inverse);
}

HV_DEV double exponential(double x) {
  constexpr double factorials[] = {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0,
                                   5040.0,      720.0,      120.0,     24.0,     6.0};
  const double integer = x * 1.44269504088896340736 + TO_INTEGER, k = integer - TO_INTEGER;
  const double r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10;
  double sum = 1.0 / 6227020800.0;
#pragma unroll
  for (int i = 0; i < 10; i++) sum = sum * r + 1.0 / factorials[i];
  sum = (sum * r + 0.5) * (r * r) + r + 1.0;
  return sum * __builtin_bit_cast(double, (bits_of(integer) + 1023) << 52);
}

struct Turn {
  double sin, cos;
};
HV_DEV Turn sin_cos(double x) {
  constexpr double odd[] = {-1307674368000.0, 6227020800.0, -39916800.0, 362880.0, -5040.0, 120.0, -6.0};
  constexpr double even[] = {-87178291200.0, 479001600.0, -3628800.0, 40320.0, -720.0, 24.0, -2.0};
  const double integer = x * 0.63661977236758134308 + TO_INTEGER, k = integer - TO_INTEGER;
  const double r = (x - k * 1.5707963267341256) - k * 6.077100506506192e-11, square = r * r;
  double sin = 1.0 / 355687428096000.0, cos = 1.0 / 20922789888000.0;
#pragma unroll
  for (int i = 0; i < 7; i++) sin = sin * square + 1.0 / odd[i], cos = cos * square + 1.0 / even[i];
  sin = r + r * (square * sin);
  cos = 1.0 + square * cos;
  const uint32_t quadrant = (uint32_t)bits_of(integer);
  const double a = quadrant & 1 ? cos : sin, b = quadrant & 1 ? sin : cos;
  return {quadrant & 2 ? -a : a, (quadrant + 1) & 2 ? -b : b};
}

// The sine alone: where it equals the cosine of the reduced angle, the cosine's polynomial is used.
HV_DEV double sine(double x) {
  constexpr double odd[] = {-1307674368000.0, 6227020800.0, -39916800.0, 362880.0, -5040.0, 120.0, -6.0};
  constexpr double even[] = {-87178291200.0, 479001600.0, -3628800.0, 40320.0, -720.0, 24.0, -2.0};
  const double integer = x * 0.63661977236758134308 + TO_INTEGER, k = integer - TO_INTEGER;
  const double r = (x - k * 1.5707963267341256) - k * 6.077100506506192e-11, square = r * r;
  const uint32_t quadrant = (uint32_t)bits_of(integer);
  const bool cosine = quadrant & 1;
  double sum = cosine ? 1.0 / 20922789888000.0 : 1.0 / 355687428096000.0;
#pragma unroll
  for (int i = 0; i < 7; i++) sum = sum * square + (cosine ? 1.0 / even[i] : 1.0 / odd[i]);
  sum = square * sum;
  const double value = cosine ? 1.0 + sum : r + r * sum;
  return quadrant & 2 ? -value : value;
}

HV_DEV double atan2(float y, float x) {
  constexpr float to_integer = 12582912.0f;  // 1.5 x 2^23
  constexpr double divisors[] = {-15.0, 13.0, -11.0, 9.0, -7.0, 5.0, -3.0};
  const float ax = magnitude(x), ay = magnitude(y);
  const bool steep = ay > ax;
  const float less = steep ? ax : ay, more = steep ? ay : ax;
  const float k = ((less / more) * 4.0f + to_integer) - to_integer;
  double near = k == 1.0f ? 0.24497866312686414 : 0.0;
  near = k == 2.0f ? 0.46364760900080615 : near;
  near = k == 3.0f ? 0.6435011087932844 : near;
  near = k == 4.0f ? 0.78539816339744830962 : near;
  const double tangent = (double)k * 0.25, low = (double)less, high = (double)more, z = (low - tangent * high) / (high + tangent * low), square = z * z;
  double sum = 1.0 / 17.0;
#pragma unroll
  for (int i = 0; i < 7; i++) sum = sum * square + 1.0 / divisors[i];
  double angle = near + (z + z * (square * sum));
  angle = steep ? PI / 2.0 - angle : angle;
  angle = x < 0.0f ? PI - angle : angle;
  return y < 0.0f ? -angle : angle;
}

HV_DEV double linear(double t) {
  constexpr double limit = 10.0 / 255.0;
  const double base = (hv_max(t, limit) + 0.055) * (1.0 / 1.055), square = base * base;
  const double power = square * fifth_root(square);
  return t > limit ? power : t * (1.0 / 12.92);
}

HV_DEV double lightness(double t) {
  constexpr double limit = 216.0 / 24389.0;
  const double root = cube_root(hv_max(t, limit));
  return (double)(float)(t > limit ? root : ((24389.0 / 27.0) * t + 16.0) * (1.0 / 116.0));
}

HV_DEV Lab lab_of(uint32_t luma, uint32_t cb, uint32_t cr, const CiedeRange &range) {
  const double y = ((double)luma - range.black) * range.luma;
  const double u = ((double)cb - range.grey) * range.chroma, v = ((double)cr - range.grey) * range.chroma;
  const double r = linear(y + 1.28033 * v), g = linear((y - 0.21482 * u) - 0.38059 * v);
  const double b = linear(y + 2.12798 * u);
  const double x = (r * 0.4124564390896921 + g * 0.357576077643909) + b * 0.18043748326639894;
  const double width = (r * 0.21267285140562248 + g * 0.715152155287818) + b * 0.07217499330655958;
  const double z = (r * 0.019333895582329317 + g * 0.119192025881303) + b * 0.9503040785363677;
  const double fx = lightness(x * (1.0 / 0.95047)), fy = lightness(width), fz = lightness(z * (1.0 / 1.08883));
  return {(float)(116.0 * fy - 16.0), (float)(500.0 * (fx - fy)), (float)(200.0 * (fy - fz))};
}

HV_DEV double square_of(float v) { return (double)v * (double)v; }
HV_DEV float length(float a, float b) { return (float)root(square_of(a) + square_of(b)); }

HV_DEV float hue(float b, float a) {
  float angle = (float)atan2(b, a);
  angle = angle < 0.0f ? (float)((double)angle + 2.0 * PI) : angle;
  const bool grey = (a == 0.0f) & (b == 0.0f);
  return grey ? 0.0f : angle;
}

HV_DEV float delta_e(const Lab &p, const Lab &q) {
  constexpr double power = 6103515625.0;  // 25^7
  const float dl = q.l - p.l, mean_l = (p.l + q.l) / 2.0f;
  const float c1 = length(p.a, p.b), c2 = length(q.a, q.b);
  const double p7 = seventh_power((double)((c1 + c2) / 2.0f)), k = 1.0 - root(p7 / (p7 + power));
  const float ap1 = (float)((double)p.a + (double)(p.a / 2.0f) * k);
  const float ap2 = (float)((double)q.a + (double)(q.a / 2.0f) * k);
  const float cp1 = length(ap1, p.b), cp2 = length(ap2, q.b);
  const float mean_c = (cp1 + cp2) / 2.0f, dc = cp2 - cp1;

  const double l2 = square_of(mean_l - 50.0f);
  const float sl = (float)(1.0 + (0.015 * l2) / root(20.0 + l2)), sc = (float)(1.0 + 0.045 * (double)mean_c);

  const float h1 = hue(p.b, ap1), h2 = hue(q.b, ap2);
  const bool far = magnitude((double)(h1 - h2)) > PI;
  float angle = h2 - h1;
  angle = far ? (float)((double)angle + (h2 <= h1 ? 2.0 * PI : -2.0 * PI)) : angle;
  const bool grey = (c1 == 0.0f) | (c2 == 0.0f);
  angle = grey ? 0.0f : angle;
  const float dh = (float)((2.0 * root((double)(cp1 * cp2))) * sine((double)angle / 2.0));
  const float sum = h1 + h2, mean_h = far ? (float)(((double)sum + 2.0 * PI) / 2.0) : sum / 2.0f;

  const Turn turn = sin_cos((double)mean_h);
  const double s = turn.sin, c = turn.cos;
  const double cos2 = c * c - s * s, sin2 = 2.0 * (s * c);
  const double cos3 = cos2 * c - sin2 * s, sin3 = sin2 * c + cos2 * s;
  const double cos4 = cos2 * cos2 - sin2 * sin2, sin4 = 2.0 * (sin2 * cos2);
  const double t = 1.0 - 0.17 * (c * 0.8660254037844387 + s * 0.5) + 0.24 * cos2 +
                   0.32 * (cos3 * 0.9945218953682733 - sin3 * 0.10452846326765347) -
                   0.20 * (cos4 * 0.45399049973954675 + sin4 * 0.8910065241883679);
  const float sh = (float)(1.0 + (0.015 * (double)mean_c) * (double)(float)t);

  const float degrees = (float)((double)mean_h * (180.0 / PI));
  const float g = (float)(((double)degrees - 275.0) * (1.0 / 25.0));
  const float e = (float)(60.0 * exponential(-(double)(g * g)));
  const float radians = (float)((double)e * (PI / 180.0));
  const float c7 = (float)seventh_power((double)mean_c), fraction = c7 / (c7 + (float)power);
  const float rt = (float)((-2.0 * root((double)fraction)) * sine((double)radians));

  const float li = dl / (0.65f * sl), ch = dc / sc, hu = dh / (4.0f * sh), cross = (rt * ch) * hu;
  return (float)root(((square_of(li) + square_of(ch)) + square_of(hu)) + (double)cross);
}

template <class T> HV_DEV uint32_t sample(const HvPlane &plane, uint32_t bits, int x, int y) {
  return hv_sample<T>(plane.data + (uint64_t)y * plane.stride + (uint32_t)x * plane.step * sizeof(T), plane.shift,
                      bits);
}

// The colour at a luma sample. If chroma ends earlier, its last sample is repeated.
template <class T>
HV_DEV Lab colour(const HvPlane *planes, uint32_t bits, int x, int y, int cx, int cy, const CiedeRange &range) {
  return lab_of(sample<T>(planes[0], bits, x, y), sample<T>(planes[1], bits, cx, cy),
                sample<T>(planes[2], bits, cx, cy), range);
}

template <class T, bool GROUP>
HV_DEV void differences(const HvFrame *__restrict__ frame, uint32_t bits, int width, int height, int chroma_width,
                        int chroma_height, const CiedeRange &range, double bias, uint32_t pictures, uint32_t pitch,
                        uint64_t *total) {
  const int x = (int)(blockIdx.x * CIEDE_THREADS + threadIdx.x);
  const int cx = hv_min(x >> (chroma_width < width), chroma_width - 1);
  uint64_t sum = 0;
  for (int i = 0; i < CIEDE_ROWS; i++) {
    const int y = (int)blockIdx.y * CIEDE_ROWS + i, cy = hv_min(y >> (chroma_height < height), chroma_height - 1);
    const bool inside = x < width && y < height;
    if (!GROUP && !inside) break;
    const Lab reference = inside ? colour<T>(frame->reference, bits, x, y, cx, cy, range) : Lab{};
    for (uint32_t p = 0; p < (GROUP ? pictures : 1); p++) {
      if (inside) {
        const Lab distorted = colour<T>(frame[p].distorted, bits, x, y, cx, cy, range);
        sum += bits_of((double)delta_e(reference, distorted) + bias);
      }
      if constexpr (GROUP) {
        __syncthreads();  // the sum before is read
        hv_block_add_u64<CIEDE_THREADS>(total + p * pitch, sum);
        sum = 0;
      }
    }
  }
  if constexpr (!GROUP) hv_block_add_u64<CIEDE_THREADS>(total, sum);
}

}  // namespace ciede

// Adds to *sum the bits of the difference at each luma sample, with `bias` added; see
// `crates/engine/src/metrics/fixed.rs`. width, height: luma samples; chroma_width, chroma_height: chroma samples, at
// least 1. Block 128 threads, a tile of 128 x 4 samples; grid (ceil(width/128), ceil(height/4)). With the suffix
// `_group` for several distorted pictures, each with a frame and a sum, `pitch` from sum to sum.
#define CIEDE(name, T, GROUP)                                                                                               \
  HV_KERNEL(CIEDE_THREADS, name)(const HvFrame *__restrict__ frame, uint32_t bits, int width, int height, int chroma_width, \
                                 int chroma_height, CiedeRange range, double bias, uint32_t pictures, uint32_t pitch,       \
                                 uint64_t *sum) {                                                                           \
    ciede::differences<T, GROUP>(frame, bits, width, height, chroma_width, chroma_height, range, bias, pictures,            \
                                 pitch, sum);                                                                               \
  }                                                                                                                         \
  HV_EXPORT(name)

CIEDE(ciede_u8, uint8_t, false)
CIEDE(ciede_u16, uint16_t, false)
CIEDE(ciede_u8_group, uint8_t, true)
CIEDE(ciede_u16_group, uint16_t, true)
