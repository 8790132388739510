// SPDX-License-Identifier: MPL-2.0
//
// Scales one component of a picture to the size of the reference, as defined in `crates/engine/src/scale.rs`: first
// along the rows, then along the columns.
#include "frame.h"

#define SCALE_THREADS 256  // beside each other in a row of the output
#define SCALE_ROWS 4       // of a thread, along the rows

// The output samples of one axis. The weight of source sample first[i] + k is weights[k * size + i].
struct ScaleAxis {
  const uint32_t *first, *weights;
  int32_t size, taps;
};
HV_SIZE(ScaleAxis, 24);
HV_OFFSET(ScaleAxis, first, 0);
HV_OFFSET(ScaleAxis, weights, 8);
HV_OFFSET(ScaleAxis, size, 16);
HV_OFFSET(ScaleAxis, taps, 20);

namespace scale {

HV_DEV int32_t rounded(int32_t sum, uint32_t shift) { return (sum + (1 << (shift - 1))) >> shift; }

template <class T>
HV_DEV void rows(const HvPlane &in, int height, uint32_t bits, const ScaleAxis &axis, uint32_t shift, int32_t *out,
                 uint32_t stride) {
  const int x = (int)(blockIdx.x * SCALE_THREADS + threadIdx.x), top = (int)blockIdx.y * SCALE_ROWS;
  if (x >= axis.size) return;
  const uint8_t *at = in.data + (uint64_t)top * in.stride + (uint64_t)hv_ldg(axis.first + x) * in.step * sizeof(T);
  int32_t sum[SCALE_ROWS] = {};
  for (int k = 0; k < axis.taps; k++, at += in.step * sizeof(T)) {
    const int32_t weight = (int32_t)hv_ldg(axis.weights + k * axis.size + x);
#pragma unroll
    for (int i = 0; i < SCALE_ROWS; i++)
      if (top + i < height)
        sum[i] = hv_mad_i24(weight, (int32_t)hv_sample<T>(at + (uint64_t)i * in.stride, in.shift, bits), sum[i]);
  }
#pragma unroll
  for (int i = 0; i < SCALE_ROWS; i++)
    if (top + i < height) out[(uint64_t)(top + i) * stride + x] = rounded(sum[i], shift);
}

template <class T>
HV_DEV void columns(const int32_t *__restrict__ in, int width, uint32_t in_stride, uint32_t bits, const ScaleAxis &axis,
                    uint32_t shift, void *__restrict__ out, uint32_t out_stride) {
  const int x = (int)(blockIdx.x * SCALE_THREADS + threadIdx.x), y = (int)blockIdx.y;
  if (x >= width) return;
  const int32_t *at = in + (uint64_t)hv_ldg(axis.first + y) * in_stride + x;
  int32_t sum = 0;
  for (int k = 0; k < axis.taps; k++, at += in_stride)
    sum = hv_mad_i24((int32_t)hv_ldg(axis.weights + k * axis.size + y), (int32_t)hv_ldg((const uint32_t *)at), sum);
  const int32_t sample = hv_max(hv_min(rounded(sum, shift), (1 << bits) - 1), 0);
  ((T *)((uint8_t *)out + (uint64_t)y * out_stride))[x] = (T)sample;
}

}  // namespace scale

// scale_rows_*: height rows of a component, with the columns of the output; out_stride in numbers.
// Block 256 threads, a tile of 256 x 4; grid (ceil(width/256), ceil(height/4)).
// scale_columns_*: of these rows, width columns, the output; out_stride in bytes.
// Block 256 threads, 256 columns of a row; grid (ceil(width/256), rows).
#define SCALE(T, u)                                                                                               \
  HV_KERNEL(SCALE_THREADS, scale_rows_##u)(HvPlane in, int height, uint32_t bits, ScaleAxis axis, uint32_t shift, \
                                           int32_t *out, uint32_t out_stride) {                                   \
    scale::rows<T>(in, height, bits, axis, shift, out, out_stride);                                               \
  }                                                                                                               \
  HV_EXPORT(scale_rows_##u)                                                                                       \
  HV_KERNEL(SCALE_THREADS, scale_columns_##u)(const int32_t *__restrict__ in, int width, uint32_t in_stride,      \
                                              uint32_t bits, ScaleAxis axis, uint32_t shift,                      \
                                              void *__restrict__ out, uint32_t out_stride) {                      \
    scale::columns<T>(in, width, in_stride, bits, axis, shift, out, out_stride);                                  \
  }                                                                                                               \
  HV_EXPORT(scale_columns_##u)

SCALE(uint8_t, u8)
SCALE(uint16_t, u16)
