// SPDX-License-Identifier: MPL-2.0
//
// Scale 0 of VIF for samples of up to 12 bits on NVIDIA's tensor cores.
#pragma once
#include "vif.h"

// Both filters are products with constant matrices: 16 outputs of the 17-tap filter need exactly 32 inputs.
// Taps and samples wider than a byte are split into bytes; products of equal weight add up in one
// accumulator. A warp finishes 16 rows and walks along x by 16 columns; its lane is 4 g + q below.
//
// Vertical pass: A[row][input row] B[input row][column]. The eight columns of a product are every second one,
// so that the results of a thread are four neighbours in two rows, which the horizontal pass,
// A[column][input column] B[input column][row], takes as they are: the 16 columns before them
// and these are its 32 inputs.
//
// Both passes keep what the other needs in shared memory: the planes of 16 columns and, for the next 16, those before.
// That leaves few enough registers for twice the warps, which is worth 14 %, and more than to filter the reference once for
// several distorted pictures.
#define VIF_MMA_WARPS 4
// Includes the blocks that should fit a multiprocessor, which bounds the registers.
#define VIF_MMA_BOUNDS 32 * VIF_MMA_WARPS, HV_F64_FAST ? 4 : 3

// Words of A for each lane: the taps' low bytes and high bytes; then those of the next scale, low bytes in
// the rows 0 to 7 and high bytes in the rows 8 to 15.
struct VifMatrices {
  alignas(16) uint32_t words[3][32][4];
  constexpr VifMatrices() : words() {
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++)
        for (int byte = 0; byte < 4; byte++) {
          const int g = lane / 4, q = lane % 4, row = g + i % 2 * 8, input = i / 2 * 16 + 4 * q + byte;
          const uint32_t tap = vif_tap(0, input - row - 8), next = vif_tap(1, input - 2 * g - 8);
          words[0][lane][i] |= (tap & 255) << 8 * byte;
          words[1][lane][i] |= (tap >> 8) << 8 * byte;
          words[2][lane][i] |= (i % 2 ? next >> 8 : next & 255) << 8 * byte;
        }
  }
};
static __device__ const VifMatrices vif_matrices;

struct VifMatrix {
  uint32_t a[4];
};
struct VifProduct {
  uint32_t c[4];
};
HV_DEV VifMatrix vif_matrix(int which) {
  const HvU32x4 words = hv_ldg((const HvU32x4 *)vif_matrices.words[which][hv_lane()]);
  return {{words.v[0], words.v[1], words.v[2], words.v[3]}};
}

// m b + c. The pair b is one column of inputs 0 to 15 and one of inputs 16 to 31.
HV_DEV VifProduct vif_mma(const VifMatrix &m, uint32_t b0, uint32_t b1, const VifProduct &c) {
  VifProduct r;
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=r"(r.c[0]), "=r"(r.c[1]), "=r"(r.c[2]), "=r"(r.c[3])
      : "r"(m.a[0]), "r"(m.a[1]), "r"(m.a[2]), "r"(m.a[3]), "r"(b0), "r"(b1), "r"(c.c[0]), "r"(c.c[1]),
        "r"(c.c[2]), "r"(c.c[3]));
  return r;
}
template <uint32_t SELECTOR> HV_DEV uint32_t vif_prmt(uint32_t a, uint32_t b) {
  uint32_t r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "n"(SELECTOR));
  return r;
}

// The words that one lane writes to shared memory: those of all lanes take turns, so that a plane is eight rows of 16 bytes.
struct VifMmaWords {
  uint32_t *first;
  HV_MEMBER uint32_t &operator[](int i) const { return first[32 * i]; }
  HV_MEMBER VifMmaWords operator+(int i) const { return {first + 32 * i}; }
};

// Two lanes' halves of one horizontal B: byte planes of four neighbouring values.
HV_DEV void vif_planes_u16(const uint32_t (&v)[4], VifMmaWords planes) {
  const uint32_t t = vif_prmt<0x5140>(v[0], v[1]), u = vif_prmt<0x5140>(v[2], v[3]);
  planes[0] = vif_prmt<0x5410>(t, u);
  planes[1] = vif_prmt<0x7632>(t, u);
}
HV_DEV void vif_planes_u32(const uint32_t (&v)[4], VifMmaWords planes) {
  vif_planes_u16(v, planes);
  const uint32_t t = vif_prmt<0x7362>(v[0], v[1]), u = vif_prmt<0x7362>(v[2], v[3]);
  planes[2] = vif_prmt<0x5410>(t, u);
  planes[3] = vif_prmt<0x7632>(t, u);
}

// Planes of one picture and `N` products: of each of the two 8-row halves 2 of the means and 4 of each product, and 2
// of the means of the next scale. The reference's product is its square, the distorted picture's are its square and
// that with the reference.
template <int N> struct VifMmaPlanes {
  enum { PRODUCTS = 2, HALF = 2 + 4 * N, NEXT = 2 * HALF, SIZE = NEXT + 2 };
};

// B of the vertical pass, for even and odd columns and for the first and the last 16 rows: samples of four rows, a byte each,
// or in two words of two.
template <class T> struct VifMmaColumns;
template <> struct VifMmaColumns<uint8_t> {
  uint32_t v[2][2];
};
template <> struct VifMmaColumns<uint16_t> {
  uint32_t v[2][2][2];
};

// Vertical pass of one picture's means.
template <int N>
HV_DEV void vif_mma_means(const VifMatrix (&m)[3], const VifProduct &half, const VifMmaColumns<uint8_t> &b, uint32_t,
                          VifMmaWords planes) {
  using Planes = VifMmaPlanes<N>;
  VifProduct lo[2], hi[2], next[2];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    lo[j] = vif_mma(m[0], b.v[j][0], b.v[j][1], half);
    hi[j] = vif_mma(m[1], b.v[j][0], b.v[j][1], {});
    next[j] = vif_mma(m[2], b.v[j][0], b.v[j][1], half);
  }
  uint32_t v[4];
#pragma unroll
  for (int height = 0; height < 2; height++) {
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = hi[i % 2].c[2 * height + i / 2] + (lo[i % 2].c[2 * height + i / 2] >> 8);
    vif_planes_u16(v, planes + height * Planes::HALF);
  }
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = next[i % 2].c[2 + i / 2] - 128 + (next[i % 2].c[i / 2] >> 8);
  vif_planes_u16(v, planes + Planes::NEXT);
}
template <int N>
HV_DEV void vif_mma_means(const VifMatrix (&m)[3], const VifProduct &, const VifMmaColumns<uint16_t> &b, uint32_t bits,
                          VifMmaWords planes) {
  using Planes = VifMmaPlanes<N>;
  const uint32_t round = 1u << (bits - 1);
  uint32_t mean[2][4], next[2][2];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    uint32_t lo[2], hi[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
      lo[k] = vif_prmt<0x6420>(b.v[j][k][0], b.v[j][k][1]);
      hi[k] = vif_prmt<0x7531>(b.v[j][k][0], b.v[j][k][1]);
    }
    const VifProduct w0 = vif_mma(m[0], lo[0], lo[1], {});
    const VifProduct w1 = vif_mma(m[1], lo[0], lo[1], vif_mma(m[0], hi[0], hi[1], {}));
    const VifProduct w2 = vif_mma(m[1], hi[0], hi[1], {});
#pragma unroll
    for (int i = 0; i < 4; i++) mean[j][i] = (w0.c[i] + w1.c[i] * 256 + w2.c[i] * 65536 + round) >> bits;
    const VifProduct a = vif_mma(m[2], lo[0], lo[1], {}), b2 = vif_mma(m[2], hi[0], hi[1], {});
#pragma unroll
    for (int i = 0; i < 2; i++)
      next[j][i] = (a.c[i] + (a.c[2 + i] + b2.c[i]) * 256 + b2.c[2 + i] * 65536 + round) >> bits;
  }
#pragma unroll
  for (int height = 0; height < 2; height++) {
    const int at = 2 * height;
    const uint32_t v[4] = {mean[0][at], mean[1][at], mean[0][at + 1], mean[1][at + 1]};
    vif_planes_u16(v, planes + height * Planes::HALF);
  }
  const uint32_t v[4] = {next[0][0], next[1][0], next[0][1], next[1][1]};
  vif_planes_u16(v, planes + Planes::NEXT);
}

// a b + c, also if the compiler sees that no bits overlap and would prefer an `or`.
HV_DEV uint32_t vif_mad(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r;
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

// Byte planes of the products of four samples in each of `a` and `b`.
HV_DEV void vif_mma_multiply(uint32_t a, uint32_t b, uint32_t &lo, uint32_t &hi) {
  // A sample in the second byte has a product in the third and fourth.
  const uint32_t a2 = a >> 16, b2 = b >> 16;
  const uint32_t p = vif_mad(a & 0xff00, b & 0xff00, (a & 255) * (b & 255));
  const uint32_t p2 = vif_mad(a2 & 0xff00, b2 & 0xff00, (a2 & 255) * (b2 & 255));
  lo = vif_prmt<0x6420>(p, p2);
  hi = vif_prmt<0x7531>(p, p2);
}
HV_DEV void vif_mma_multiply(const uint32_t (&a)[2], const uint32_t (&b)[2], uint32_t &lo, uint32_t &mid, uint32_t &hi) {
  uint32_t p[4];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    p[2 * i] = (a[i] & 0xffff) * (b[i] & 0xffff);
    p[2 * i + 1] = (a[i] >> 16) * (b[i] >> 16);
  }
  const uint32_t t = vif_prmt<0x5140>(p[0], p[1]), u = vif_prmt<0x5140>(p[2], p[3]);
  lo = vif_prmt<0x5410>(t, u);
  mid = vif_prmt<0x7632>(t, u);
  hi = vif_prmt<0x5410>(vif_prmt<0x0062>(p[0], p[1]), vif_prmt<0x0062>(p[2], p[3]));
}

// Vertical pass over one of the products: of 16 rows, by even and odd columns, in 1/65536 of the square of an 8-bit step.
HV_DEV void vif_mma_sums(const VifMatrix (&m)[3], const VifMmaColumns<uint8_t> &a, const VifMmaColumns<uint8_t> &b, uint32_t,
                         uint32_t (&sum)[2][4]) {
#pragma unroll
  for (int j = 0; j < 2; j++) {
    uint32_t lo[2], hi[2];
#pragma unroll
    for (int k = 0; k < 2; k++) vif_mma_multiply(a.v[j][k], b.v[j][k], lo[k], hi[k]);
    const VifProduct w0 = vif_mma(m[0], lo[0], lo[1], {});
    const VifProduct w1 = vif_mma(m[1], lo[0], lo[1], vif_mma(m[0], hi[0], hi[1], {}));
    const VifProduct w2 = vif_mma(m[1], hi[0], hi[1], {});
#pragma unroll
    for (int i = 0; i < 4; i++) sum[j][i] = w0.c[i] + w1.c[i] * 256 + w2.c[i] * 65536;
  }
}
HV_DEV void vif_mma_sums(const VifMatrix (&m)[3], const VifMmaColumns<uint16_t> &a, const VifMmaColumns<uint16_t> &b,
                         uint32_t bits, uint32_t (&sum)[2][4]) {
  const uint32_t shift = 2 * (bits - 8), round = 1u << shift >> 1;
#pragma unroll
  for (int j = 0; j < 2; j++) {
    uint32_t lo[2], mid[2], hi[2];
#pragma unroll
    for (int k = 0; k < 2; k++) vif_mma_multiply(a.v[j][k], b.v[j][k], lo[k], mid[k], hi[k]);
    const VifProduct w0 = vif_mma(m[0], lo[0], lo[1], {});
    const VifProduct w1 = vif_mma(m[1], lo[0], lo[1], vif_mma(m[0], mid[0], mid[1], {}));
    const VifProduct w2 = vif_mma(m[1], mid[0], mid[1], vif_mma(m[0], hi[0], hi[1], {}));
    const VifProduct w3 = vif_mma(m[1], hi[0], hi[1], {});
    // The upper products are multiples of what is cut off.
#pragma unroll
    for (int i = 0; i < 4; i++)
      sum[j][i] = (w3.c[i] << (24 - shift)) + (w2.c[i] << (16 - shift)) + ((w0.c[i] + w1.c[i] * 256 + round) >> shift);
  }
}
template <int N, class T>
HV_DEV void vif_mma_products(const VifMatrix (&m)[3], const VifMmaColumns<T> &a, const VifMmaColumns<T> &b, int which,
                             uint32_t bits, VifMmaWords planes) {
  using Planes = VifMmaPlanes<N>;
  uint32_t sum[2][4];
  vif_mma_sums(m, a, b, bits, sum);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const uint32_t v[4] = {sum[0][2 * half], sum[1][2 * half], sum[0][2 * half + 1], sum[1][2 * half + 1]};
    vif_planes_u32(v, planes + half * Planes::HALF + Planes::PRODUCTS + 4 * which);
  }
}

// Two planes, of the previous columns and of these, each as a B.
struct VifMmaPair {
  uint32_t b[2][2];
};
// The planes `plane` and `plane + 1`. A lane gets the words that it has written itself, but four of them by one instruction, in
// registers next to each other, as products want them. `row` is what this lane says for all: where in shared memory row
// lane % 8 of the columns before (lane / 8 even) or of these (odd) is, of plane 0 (the first half of the lanes) or 1.
HV_DEV VifMmaPair vif_mma_pair(uint32_t row, int plane) {
  VifMmaPair p;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(p.b[0][0]), "=r"(p.b[0][1]), "=r"(p.b[1][0]), "=r"(p.b[1][1])
               : "r"(row + 128 * plane)
               : "memory");
  return p;
}
HV_DEV VifProduct vif_mma(const VifMatrix &m, const uint32_t (&b)[2], const VifProduct &c) {
  return vif_mma(m, b[0], b[1], c);
}

// Horizontal pass over planes of the previous columns and of these.
HV_DEV void vif_mma_mean_row(const VifMatrix (&m)[3], uint32_t row, int plane, uint32_t *mean) {
  const VifMmaPair p = vif_mma_pair(row, plane);
  const VifProduct w0 = vif_mma(m[0], p.b[0], {});
  const VifProduct w1 = vif_mma(m[1], p.b[0], vif_mma(m[0], p.b[1], {}));
  const VifProduct w2 = vif_mma(m[1], p.b[1], {});
#pragma unroll
  for (int i = 0; i < 4; i++) mean[i] = w0.c[i] + w1.c[i] * 256 + w2.c[i] * 65536;
}
HV_DEV void vif_mma_product_row(const VifMatrix (&m)[3], const VifProduct &half, uint32_t row, int plane, uint32_t *mean) {
  const VifMmaPair lo = vif_mma_pair(row, plane), hi = vif_mma_pair(row, plane + 2);
  const VifProduct w0 = vif_mma(m[0], lo.b[0], {});
  const VifProduct w1 = vif_mma(m[1], lo.b[0], vif_mma(m[0], lo.b[1], half));
  const VifProduct w2 = vif_mma(m[1], lo.b[1], vif_mma(m[0], hi.b[0], {}));
  const VifProduct w3 = vif_mma(m[1], hi.b[0], vif_mma(m[0], hi.b[1], {}));
  const VifProduct w4 = vif_mma(m[1], hi.b[1], {});
#pragma unroll
  for (int i = 0; i < 4; i++)
    mean[i] = (w4.c[i] * 256 + w3.c[i]) * 256 + (w2.c[i] + ((w1.c[i] + (w0.c[i] >> 8)) >> 8));
}

struct VifMmaShared {
  // Of 16 columns by turns: first their samples, then the planes of the reference and of the distorted picture.
  enum { DISTORTED = VifMmaPlanes<1>::SIZE, SIZE = DISTORTED + VifMmaPlanes<2>::SIZE };
  alignas(16) uint32_t words[VIF_MMA_WARPS][2][SIZE][32];
  alignas(16) uint16_t log2_steps[4096];
};

// Sixteen samples of a row as they are stored, from column `x` on, a multiple of 16.
template <class T> struct VifSamples {
  enum { WORDS = 4 * sizeof(T) };
  uint32_t v[WORDS];
};
template <class T> HV_DEV VifSamples<T> vif_mma_load(const uint8_t *row, int32_t x, int32_t width) {
  using Samples = VifSamples<T>;
  Samples s;
  if (x >= 0 && x + 16 <= width) {
#pragma unroll
    for (int i = 0; i < Samples::WORDS; i += 4) {
      const HvU32x4 words = hv_ldg((const HvU32x4 *)((const T *)row + x) + i / 4);
#pragma unroll
      for (int j = 0; j < 4; j++) s.v[i + j] = words.v[j];
    }
  } else {
    const int bits = 8 * sizeof(T);
    s = {};
#pragma unroll 1
    for (int k = 15; k >= 0; k--) {
#pragma unroll
      for (int i = Samples::WORDS - 1; i > 0; i--) s.v[i] = s.v[i] << bits | s.v[i - 1] >> (32 - bits);
      s.v[0] = s.v[0] << bits | hv_ldg((const T *)row + vif_mirror(x + k, width));
    }
  }
  return s;
}

// Rows of samples in shared memory. `ldmatrix` takes pairs of bytes: two columns of 8 bits, or one of 16, where the even
// columns lie before all odd ones.
template <class T> struct VifMmaRows {
  uint32_t v[sizeof(T)][32][4];
};
HV_DEV void vif_mma_store(const VifSamples<uint8_t> &s, uint32_t, uint32_t, VifMmaRows<uint8_t> &rows) {
  *(HvU32x4 *)rows.v[0][hv_lane()] = {{s.v[0], s.v[1], s.v[2], s.v[3]}};
}
HV_DEV void vif_mma_store(const VifSamples<uint16_t> &s, uint32_t shift, uint32_t bits, VifMmaRows<uint16_t> &rows) {
  const uint32_t stored = (0xffffu >> shift) * 0x10001, most = (1u << bits) - 1;
  uint32_t v[8], above = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = s.v[i] >> shift & stored, above |= v[i];
  // Only if bits are set that the format does not use.
  if (above & ~(most * 0x10001)) {
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = hv_min(v[i] & 0xffff, most) | hv_min(v[i] >> 16, most) << 16;
  }
  HvU32x4 even, odd;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    even.v[i] = vif_prmt<0x5410>(v[2 * i], v[2 * i + 1]);
    odd.v[i] = vif_prmt<0x7632>(v[2 * i], v[2 * i + 1]);
  }
  *(HvU32x4 *)rows.v[0][hv_lane()] = even;
  *(HvU32x4 *)rows.v[1][hv_lane()] = odd;
}
HV_DEV VifProduct vif_mma_matrices(const uint32_t (&rows)[32][4]) {
  VifProduct r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.c[0]), "=r"(r.c[1]), "=r"(r.c[2]), "=r"(r.c[3])
               : "r"(vif_shared_address(rows[hv_lane()]))
               : "memory");
  return r;
}
HV_DEV VifMmaColumns<uint8_t> vif_mma_columns(const VifMmaRows<uint8_t> &rows) {
  const VifProduct r = vif_mma_matrices(rows.v[0]);
  VifMmaColumns<uint8_t> b;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    b.v[0][k] = vif_prmt<0x6420>(r.c[2 * k], r.c[2 * k + 1]);
    b.v[1][k] = vif_prmt<0x7531>(r.c[2 * k], r.c[2 * k + 1]);
  }
  return b;
}
HV_DEV VifMmaColumns<uint16_t> vif_mma_columns(const VifMmaRows<uint16_t> &rows) {
  VifMmaColumns<uint16_t> b;
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const VifProduct r = vif_mma_matrices(rows.v[j]);
#pragma unroll
    for (int i = 0; i < 4; i++) b.v[j][i / 2][i % 2] = r.c[i];
  }
  return b;
}

// One picture's samples of the next scale from one column and two rows, at x, y of that scale.
HV_DEV void vif_mma_next(const VifMatrix (&m)[3], const VifProduct &half, uint32_t row, int plane, uint32_t x, uint32_t y,
                         uint32_t width, uint32_t height, uint16_t *to, uint32_t stride) {
  const VifMmaPair p = vif_mma_pair(row, plane);
  const VifProduct a = vif_mma(m[2], p.b[0], {});
  const VifProduct b = vif_mma(m[2], p.b[1], half);
#pragma unroll
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t v = (((a.c[i] >> 8) + a.c[2 + i] + b.c[i]) >> 8) + b.c[2 + i] - 128;
    // With `&`, predicates are packed into registers and unpacked again: 8 % slower.
    if (x < width && y + i < height) to[(uint64_t)(y + i) * stride + x] = (uint16_t)v;
  }
}

// Scale 0: the arguments and results are those of `VIF_SCALE_0`, for samples of up to 12 bits, but the block
// is (32 * VIF_MMA_WARPS, 1, 1) and tiles are any multiple of 16 columns and of 16 rows a warp: grid (ceil(width / 128),
// ceil(height / (16 * VIF_MMA_WARPS)), 1), or half as wide with frames in flight.
//
// The first tile begins 8 columns before the picture. So the samples that go in begin at multiples of 16, and a lane loads 16
// bytes of its row at a time: each lane has cache lines of its own, and a load takes as long as there are lines.
template <class T>
HV_DEV void vif_mma_scale(VifMmaShared &shared, const HvFrame *frame, const VifArgs &args,
                          const VifPlanes &next, const uint16_t *log2_steps, uint64_t *out) {
  vif_load_log2_steps<32 * VIF_MMA_WARPS>(log2_steps, shared.log2_steps);
  __syncthreads();

  const uint32_t lane = hv_lane(), warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
  // The row that a lane loads. `ldmatrix` gives it what the lanes 2 q, 2 q + 1, 2 q + 8, 2 q + 9 have stored: that is to be
  // the rows 4 q to 4 q + 3.
  const uint32_t row = (lane & 17) | (lane & 8) >> 2 | (lane & 6) << 1;
  const int32_t width = args.width, height = args.height;
  const int32_t steps = ((width + 8 + 15) / 16 + (int32_t)gridDim.x - 1) / (int32_t)gridDim.x;
  const int32_t x0 = (int32_t)blockIdx.x * steps * 16;
  const HvPlane reference = frame->reference[0], distorted = frame->distorted[0];
  const VifMatrix matrix[3] = {vif_matrix(0), vif_matrix(1), vif_matrix(2)};
  // Rounds a sum that is cut by 8 bits. Without the assembler the compiler would compute it each time.
  VifProduct half;
#pragma unroll
  for (int i = 0; i < 4; i++) asm volatile("mov.b32 %0, 128;" : "=r"(half.c[i]));
  VifSums sums = {};
  for (int32_t y0 = 16 * (int32_t)(blockIdx.y * VIF_MMA_WARPS + warp); y0 < height;
       y0 += 16 * VIF_MMA_WARPS * (int32_t)gridDim.y) {
    const uint32_t y = (uint32_t)vif_mirror(y0 - 8 + (int32_t)row, height);
    const uint8_t *reference_row = reference.data + (uint64_t)y * reference.stride;
    const uint8_t *distorted_row = distorted.data + (uint64_t)y * distorted.stride;
    VifSamples<T> r = vif_mma_load<T>(reference_row, x0 - 16, width), d = vif_mma_load<T>(distorted_row, x0 - 16, width);
    for (int32_t t = 0; t <= steps; t++) {
      const int32_t x = x0 - 16 + 16 * t;  // of these columns; results are for 8 columns less
      if (x - 8 >= width) break;
      auto &words = shared.words[warp][t & 1];
      const VifMmaWords planes = {&words[0][lane]};
      const VifMmaWords distorted_planes = planes + shared.DISTORTED;
      {
        auto &rows = *(VifMmaRows<T>(*)[2]) & words;
        static_assert(sizeof rows <= sizeof words, "samples lie where the planes are to be");
        // Other lanes may still read the earlier content.
        hv_sync_wave();
        vif_mma_store(r, reference.shift, args.bits, rows[0]);
        vif_mma_store(d, distorted.shift, args.bits, rows[1]);
        hv_sync_wave();
        const VifMmaColumns<T> rb = vif_mma_columns(rows[0]), db = vif_mma_columns(rows[1]);
        hv_sync_wave();
        if (t < steps) {
          r = vif_mma_load<T>(reference_row, x + 16, width);
          d = vif_mma_load<T>(distorted_row, x + 16, width);
        }
        vif_mma_means<1>(matrix, half, rb, args.bits, planes);
        vif_mma_products<1>(matrix, rb, rb, 0, args.bits, planes);
        vif_mma_means<2>(matrix, half, db, args.bits, distorted_planes);
        vif_mma_products<2>(matrix, db, db, 0, args.bits, distorted_planes);
        vif_mma_products<2>(matrix, rb, db, 1, args.bits, distorted_planes);
      }
      if (t == 0) continue;
      hv_sync_wave();
      const uint32_t slot = ((uint32_t)t + 1 + lane / 8) & 1;  // of the columns before, or of these
      const uint32_t planes_row = vif_shared_address(&shared.words[warp][slot][lane / 16][lane % 8 * 4]);
      const uint32_t nx = (uint32_t)((x - 8) / 2) + g, ny = (uint32_t)y0 / 2 + 2 * q;
      const uint32_t nw = (uint32_t)width / 2, nh = (uint32_t)height / 2;
      const int next_r = VifMmaPlanes<1>::NEXT, next_d = shared.DISTORTED + VifMmaPlanes<2>::NEXT;
      vif_mma_next(matrix, half, planes_row, next_r, nx, ny, nw, nh, next.reference, next.stride);
      vif_mma_next(matrix, half, planes_row, next_d, nx, ny, nw, nh, next.distorted, next.stride);
      if (!args.gains) continue;
      // Eight rows at a time: for 16 there are not enough registers.
#pragma unroll 1
      for (int h = 0; h < 2; h++) {
        uint32_t m1[4], xx[4], m2[4], yy[4], xy[4];
        int32_t var1[4], var2[4], cov[4];
        bool inside[4];
        const int of_r = h * VifMmaPlanes<1>::HALF, of_d = shared.DISTORTED + h * VifMmaPlanes<2>::HALF;
        vif_mma_mean_row(matrix, planes_row, of_r, m1);
        vif_mma_product_row(matrix, half, planes_row, of_r + 2, xx);
        vif_mma_mean_row(matrix, planes_row, of_d, m2);
        vif_mma_product_row(matrix, half, planes_row, of_d + 2, yy);
        vif_mma_product_row(matrix, half, planes_row, of_d + 6, xy);
        vif_variances(m1, m1, xx, var1);
        vif_variances(m2, m2, yy, var2);
        vif_variances(m1, m2, xy, cov);
#pragma unroll
        for (int i = 0; i < 4; i++)
          inside[i] = (uint32_t)(x - 8 + i / 2 * 8) + g < (uint32_t)width && y0 + h * 8 + 2 * (int32_t)q + i % 2 < height;
        vif_statistics(var1, var2, cov, inside, args, shared.log2_steps, true, sums);
      }
    }
  }
  if (args.gains) vif_add_sums<0>(sums, args.gains, out);
}

#define VIF_MMA_SCALE(name, T)                                                                               \
  HV_KERNEL(VIF_MMA_BOUNDS, name)(const HvFrame *__restrict__ frame, VifArgs args, VifPlanes next,           \
                                  const uint16_t *__restrict__ log2_steps, uint64_t *__restrict__ out) {     \
    __shared__ VifMmaShared shared;                                                                          \
    vif_mma_scale<T>(shared, frame, args, next, log2_steps, out);                                            \
  }                                                                                                          \
  HV_EXPORT(name)
