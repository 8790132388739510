// SPDX-License-Identifier: MPL-2.0
//
// Scale 0 of VIF for 8-bit samples on NVIDIA's tensor cores.
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
#define VIF_MMA_WARPS 4
// With "one block fits", which lets the compiler use all registers: 8 % faster.
#define VIF_MMA_BOUNDS 32 * VIF_MMA_WARPS, 1

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
HV_DEV void vif_sync_warp() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
template <uint32_t SELECTOR> HV_DEV uint32_t vif_prmt(uint32_t a, uint32_t b) {
  uint32_t r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "n"(SELECTOR));
  return r;
}

// Two lanes' halves of one horizontal B: byte planes of four neighbouring values.
HV_DEV void vif_planes_u16(const uint32_t (&v)[4], uint32_t *planes) {
  const uint32_t t = vif_prmt<0x5140>(v[0], v[1]), u = vif_prmt<0x5140>(v[2], v[3]);
  planes[0] = vif_prmt<0x5410>(t, u);
  planes[1] = vif_prmt<0x7632>(t, u);
}
HV_DEV void vif_planes_u32(const uint32_t (&v)[4], uint32_t *planes) {
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
  uint32_t v[SIZE];
};

// Vertical pass of one picture's means. `b`: inputs of even and of odd columns.
template <int N>
HV_DEV void vif_mma_means(const VifMatrix (&m)[3], const VifProduct &half, const uint32_t (&b)[2][2],
                          VifMmaPlanes<N> &planes) {
  VifProduct lo[2], hi[2], next[2];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    lo[j] = vif_mma(m[0], b[j][0], b[j][1], half);
    hi[j] = vif_mma(m[1], b[j][0], b[j][1], {});
    next[j] = vif_mma(m[2], b[j][0], b[j][1], half);
  }
  uint32_t v[4];
#pragma unroll
  for (int height = 0; height < 2; height++) {
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = hi[i % 2].c[2 * height + i / 2] + (lo[i % 2].c[2 * height + i / 2] >> 8);
    vif_planes_u16(v, planes.v + height * planes.HALF);
  }
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = next[i % 2].c[2 + i / 2] - 128 + (next[i % 2].c[i / 2] >> 8);
  vif_planes_u16(v, planes.v + planes.NEXT);
}

// a b + c, also where the compiler sees that no bits meet and would rather have an `or`.
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

// Vertical pass of one of the products.
template <int N>
HV_DEV void vif_mma_products(const VifMatrix (&m)[3], const uint32_t (&a)[2][2], const uint32_t (&b)[2][2],
                             int which, VifMmaPlanes<N> &planes) {
  uint32_t sum[2][4];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    uint32_t lo[2], hi[2];
    vif_mma_multiply(a[j][0], b[j][0], lo[0], hi[0]);
    vif_mma_multiply(a[j][1], b[j][1], lo[1], hi[1]);
    const VifProduct w0 = vif_mma(m[0], lo[0], lo[1], {});
    const VifProduct w1 = vif_mma(m[1], lo[0], lo[1], vif_mma(m[0], hi[0], hi[1], {}));
    const VifProduct w2 = vif_mma(m[1], hi[0], hi[1], {});
#pragma unroll
    for (int i = 0; i < 4; i++) sum[j][i] = w0.c[i] + w1.c[i] * 256 + w2.c[i] * 65536;
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const uint32_t v[4] = {sum[0][2 * half], sum[1][2 * half], sum[0][2 * half + 1], sum[1][2 * half + 1]};
    vif_planes_u32(v, planes.v + half * planes.HALF + planes.PRODUCTS + 4 * which);
  }
}

// Horizontal pass over planes `first` on of the columns before and of these.
HV_DEV void vif_mma_mean_row(const VifMatrix (&m)[3], const uint32_t *before, const uint32_t *planes,
                             uint32_t *mean) {
  const VifProduct w0 = vif_mma(m[0], before[0], planes[0], {});
  const VifProduct w1 = vif_mma(m[1], before[0], planes[0], vif_mma(m[0], before[1], planes[1], {}));
  const VifProduct w2 = vif_mma(m[1], before[1], planes[1], {});
#pragma unroll
  for (int i = 0; i < 4; i++) mean[i] = w0.c[i] + w1.c[i] * 256 + w2.c[i] * 65536;
}
HV_DEV void vif_mma_product_row(const VifMatrix (&m)[3], const VifProduct &half, const uint32_t *before,
                                const uint32_t *planes, uint32_t *mean) {
  const VifProduct w0 = vif_mma(m[0], before[0], planes[0], {});
  const VifProduct w1 = vif_mma(m[1], before[0], planes[0], vif_mma(m[0], before[1], planes[1], half));
  const VifProduct w2 = vif_mma(m[1], before[1], planes[1], vif_mma(m[0], before[2], planes[2], {}));
  const VifProduct w3 = vif_mma(m[1], before[2], planes[2], vif_mma(m[0], before[3], planes[3], {}));
  const VifProduct w4 = vif_mma(m[1], before[3], planes[3], {});
#pragma unroll
  for (int i = 0; i < 4; i++)
    mean[i] = (w4.c[i] * 256 + w3.c[i]) * 256 + (w2.c[i] + ((w1.c[i] + (w0.c[i] >> 8)) >> 8));
}

// `PICTURES`: distorted ones. In words of 32 lanes.
template <int PICTURES> struct VifMmaShared {
  alignas(16) uint32_t samples[VIF_MMA_WARPS][1 + PICTURES][32][4];  // of 16 columns, by row
  // Planes of the 16 columns before.
  uint32_t reference[VIF_MMA_WARPS][VifMmaPlanes<1>::SIZE][32];
  uint32_t distorted[VIF_MMA_WARPS][PICTURES][VifMmaPlanes<2>::SIZE][32];
  alignas(16) uint16_t log2_steps[4096];
};
template <int N> HV_DEV VifMmaPlanes<N> vif_mma_restore(const uint32_t (&from)[VifMmaPlanes<N>::SIZE][32]) {
  VifMmaPlanes<N> planes;
#pragma unroll
  for (int i = 0; i < planes.SIZE; i++) planes.v[i] = from[i][hv_lane()];
  return planes;
}
template <int N> HV_DEV void vif_mma_keep(const VifMmaPlanes<N> &planes, uint32_t (&to)[VifMmaPlanes<N>::SIZE][32]) {
#pragma unroll
  for (int i = 0; i < planes.SIZE; i++) to[i][hv_lane()] = planes.v[i];
}

// Sixteen samples of a row from column `x` on.
struct VifSamples {
  uint32_t v[4];
};
HV_DEV VifSamples vif_mma_load(const uint8_t *row, int32_t x, int32_t width) {
  VifSamples s;
  if (x >= 0 && x + 16 <= width) {
    const HvU32x2 lo = hv_ldg((const HvU32x2 *)(row + x)), hi = hv_ldg((const HvU32x2 *)(row + x + 8));
    s = {{lo.v[0], lo.v[1], hi.v[0], hi.v[1]}};
  } else {
    s = {};
#pragma unroll 1
    for (int k = 15; k >= 0; k--) {
      const uint32_t v = hv_ldg(row + vif_mirror(x + k, width));
      s.v[3] = s.v[3] << 8 | s.v[2] >> 24;
      s.v[2] = s.v[2] << 8 | s.v[1] >> 24;
      s.v[1] = s.v[1] << 8 | s.v[0] >> 24;
      s.v[0] = s.v[0] << 8 | v;
    }
  }
  return s;
}
// B of the vertical pass for even and odd columns.
HV_DEV void vif_mma_inputs(const uint32_t (*rows)[4], uint32_t (&b)[2][2]) {
  uint32_t r0, r1, r2, r3;
  const uint32_t at = vif_shared_address(rows[hv_lane()]);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
               : "r"(at)
               : "memory");
  b[0][0] = vif_prmt<0x6420>(r0, r1);
  b[1][0] = vif_prmt<0x7531>(r0, r1);
  b[0][1] = vif_prmt<0x6420>(r2, r3);
  b[1][1] = vif_prmt<0x7531>(r2, r3);
}

// One picture's samples of the next scale from one column and two rows, at x, y of that scale.
template <int N>
HV_DEV void vif_mma_next(const VifMatrix (&m)[3], const VifProduct &half, const VifMmaPlanes<N> &before,
                         const VifMmaPlanes<N> &planes, uint32_t x, uint32_t y, uint32_t width, uint32_t height, uint16_t *to,
                         uint32_t stride) {
  const VifProduct a = vif_mma(m[2], before.v[planes.NEXT], planes.v[planes.NEXT], {});
  const VifProduct b = vif_mma(m[2], before.v[planes.NEXT + 1], planes.v[planes.NEXT + 1], half);
#pragma unroll
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t v = (((a.c[i] >> 8) + a.c[2 + i] + b.c[i]) >> 8) + b.c[2 + i] - 128;
    // With `&`, predicates are packed into registers and unpacked again: 8 % slower.
    if (x < width && y + i < height) to[(uint64_t)(y + i) * stride + x] = (uint16_t)v;
  }
}

// Scale 0 of 8-bit samples: the arguments and results are those of `VIF_SCALE_0`, but the block is (128, 1, 1) and tiles
// are any multiple of 16 x 64 pixels: grid (ceil(width / 128), ceil(height / 64), 1) is best. `PICTURES` distorted ones.
template <int PICTURES>
HV_DEV void vif_mma_scale(VifMmaShared<PICTURES> &shared, const HvFrame *frame, const VifArgs &args,
                          const VifPlanes &next, const uint16_t *log2_steps, uint64_t *out) {
  vif_load_log2_steps<32 * VIF_MMA_WARPS>(log2_steps, shared.log2_steps);
  __syncthreads();

  const uint32_t lane = hv_lane(), warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
  // Of a row: `ldmatrix` gives a lane the places 2 q, 2 q + 1, 2 q + 8, 2 q + 9: those are to be the rows 4 q
  // to 4 q + 3.
  const uint32_t place = (lane & 17) | (lane & 2) << 2 | (lane & 12) >> 1;
  const int32_t width = args.width, height = args.height;
  const int32_t steps = ((width + 15) / 16 + (int32_t)gridDim.x - 1) / (int32_t)gridDim.x;
  const int32_t x0 = (int32_t)blockIdx.x * steps * 16;
  const HvPlane reference = frame->reference[0];
  HvPlane distorted[PICTURES];
#pragma unroll
  for (int p = 0; p < PICTURES; p++) distorted[p] = frame[p].distorted[0];
  const VifMatrix matrix[3] = {vif_matrix(0), vif_matrix(1), vif_matrix(2)};
  // What rounds when a sum is cut by 8 bits. Without the assembler the compiler would make it anew each time.
  VifProduct half;
#pragma unroll
  for (int i = 0; i < 4; i++) asm volatile("mov.b32 %0, 128;" : "=r"(half.c[i]));
  // Those of the reference are in the first.
  VifSums sums[PICTURES] = {};
  for (int32_t y0 = 16 * (int32_t)(blockIdx.y * VIF_MMA_WARPS + warp); y0 < height;
       y0 += 16 * VIF_MMA_WARPS * (int32_t)gridDim.y) {
    const uint32_t y = (uint32_t)vif_mirror(y0 - 8 + (int32_t)lane, height);
    const uint8_t *reference_row = reference.data + (uint64_t)y * reference.stride;
    const uint8_t *distorted_row[PICTURES];
    VifSamples r = vif_mma_load(reference_row, x0 - 8, width), d[PICTURES];
#pragma unroll
    for (int p = 0; p < PICTURES; p++) {
      distorted_row[p] = distorted[p].data + (uint64_t)y * distorted[p].stride;
      d[p] = vif_mma_load(distorted_row[p], x0 - 8, width);
    }
    for (int32_t t = 0; t <= steps; t++) {
      const int32_t x = x0 - 8 + 16 * t;  // of these columns; results are for 8 columns less
      if (x - 8 >= width) break;
      *(VifSamples *)shared.samples[warp][0][place] = r;
#pragma unroll
      for (int p = 0; p < PICTURES; p++) *(VifSamples *)shared.samples[warp][1 + p][place] = d[p];
      vif_sync_warp();
      VifMmaPlanes<1> planes;
      VifMmaPlanes<2> distorted_planes[PICTURES];
      {
        uint32_t rb[2][2], db[PICTURES][2][2];
        vif_mma_inputs(shared.samples[warp][0], rb);
#pragma unroll
        for (int p = 0; p < PICTURES; p++) vif_mma_inputs(shared.samples[warp][1 + p], db[p]);
        vif_sync_warp();
        if (t < steps) {
          r = vif_mma_load(reference_row, x + 16, width);
#pragma unroll
          for (int p = 0; p < PICTURES; p++) d[p] = vif_mma_load(distorted_row[p], x + 16, width);
        }
        vif_mma_means(matrix, half, rb, planes);
        vif_mma_products(matrix, rb, rb, 0, planes);
#pragma unroll
        for (int p = 0; p < PICTURES; p++) {
          vif_mma_means(matrix, half, db[p], distorted_planes[p]);
          vif_mma_products(matrix, db[p], db[p], 0, distorted_planes[p]);
          vif_mma_products(matrix, rb, db[p], 1, distorted_planes[p]);
        }
      }
      if (t > 0) {
        const VifMmaPlanes<1> before = vif_mma_restore<1>(shared.reference[warp]);
        const uint32_t nx = (uint32_t)(x - 8) / 2 + g, ny = (uint32_t)y0 / 2 + 2 * q;
        const uint32_t nw = (uint32_t)width / 2, nh = (uint32_t)height / 2;
        vif_mma_next(matrix, half, before, planes, nx, ny, nw, nh, next.reference, next.stride);
        VifMmaPlanes<2> distorted_before[PICTURES];
#pragma unroll
        for (int p = 0; p < PICTURES; p++) {
          distorted_before[p] = vif_mma_restore<2>(shared.distorted[warp][p]);
          uint16_t *to = next.distorted + (uint64_t)p * next.stride * nh;
          vif_mma_next(matrix, half, distorted_before[p], distorted_planes[p], nx, ny, nw, nh, to, next.stride);
        }
        if (args.gains) {
          uint32_t m1[8], xx[8], m2[8], yy[8], xy[8];
          int32_t var1[8], var2[8], cov[8];
          bool inside[8];
          const auto filter = [&](int p, int i) {
            const VifMmaPlanes<2> &before = distorted_before[p], &planes = distorted_planes[p];
            const int at = i / 4 * planes.HALF;
            vif_mma_mean_row(matrix, before.v + at, planes.v + at, m2 + i);
            vif_mma_product_row(matrix, half, before.v + at + 2, planes.v + at + 2, yy + i);
            vif_mma_product_row(matrix, half, before.v + at + 6, planes.v + at + 6, xy + i);
          };
#pragma unroll
          for (int i = 0; i < 8; i += 4) {
            const int at = i / 4 * planes.HALF;
            vif_mma_mean_row(matrix, before.v + at, planes.v + at, m1 + i);
            vif_mma_product_row(matrix, half, before.v + at + 2, planes.v + at + 2, xx + i);
            // Beside the reference's it is faster; for several pictures there are no registers for that.
            if (PICTURES == 1) filter(0, i);
          }
          vif_variances(m1, m1, xx, var1);
#pragma unroll
          for (int i = 0; i < 8; i++)
            inside[i] = x - 8 + (int32_t)g + i / 2 % 2 * 8 < width && y0 + i / 4 * 8 + 2 * (int32_t)q + i % 2 < height;
#pragma unroll
          for (int p = 0; p < PICTURES; p++) {
            if (PICTURES > 1) filter(p, 0), filter(p, 4);
            vif_variances(m2, m2, yy, var2);
            vif_variances(m1, m2, xy, cov);
            vif_statistics(var1, var2, cov, inside, args, shared.log2_steps, p == 0, sums[p]);
          }
        }
      }
      vif_mma_keep(planes, shared.reference[warp]);
#pragma unroll
      for (int p = 0; p < PICTURES; p++) vif_mma_keep(distorted_planes[p], shared.distorted[warp][p]);
    }
  }
#pragma unroll
  for (int p = 0; p < PICTURES; p++) {
    sums[p].den_log = sums[0].den_log, sums[p].flat_count = sums[0].flat_count;
    if (args.gains) vif_add_sums<0>(sums[p], args.gains, out + p * args.pitch);
  }
}

#define VIF_MMA_SCALE(name, PICTURES)                                                                        \
  HV_KERNEL(VIF_MMA_BOUNDS, name)(const HvFrame *__restrict__ frame, VifArgs args, VifPlanes next,           \
                                  const uint16_t *__restrict__ log2_steps, uint64_t *__restrict__ out) {     \
    __shared__ VifMmaShared<PICTURES> shared;                                                                \
    vif_mma_scale<PICTURES>(shared, frame, args, next, log2_steps, out);                                     \
  }                                                                                                          \
  HV_EXPORT(name)
