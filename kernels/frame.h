// SPDX-License-Identifier: MPL-2.0
//
// The structures that describe the pictures of one frame pair to kernels, and the checks of structures that the host
// fills in.
#pragma once
#include "prelude.h"

// Structures that the host fills in are declared once here and once in Rust, with the same names and with their layout.
// The kernels' compiler checks this declaration; the Rust side (`shared!`) checks its own and compares it with these
// lines. So a change on one side alone does not compile.
#define HV_SIZE(type, size) static_assert(sizeof(type) == size, #type)
#define HV_OFFSET(type, field, offset) static_assert(__builtin_offsetof(type, field) == offset, #type "." #field)

// One component of one picture in device memory.
struct HvPlane {
  const uint8_t *data;  // first sample; a multiple of 16 where step is 1; null where there is none
  uint32_t stride;      // bytes from row to row; a multiple of 16 where step is 1, and all of it readable
  uint16_t shift;       // unused low bits of a 16-bit sample (6 for P010)
  uint16_t step;        // samples from one sample to the next: 1, or 2 in interleaved chroma
};
HV_SIZE(HvPlane, 16);
HV_OFFSET(HvPlane, data, 0);
HV_OFFSET(HvPlane, stride, 8);
HV_OFFSET(HvPlane, shift, 12);
HV_OFFSET(HvPlane, step, 14);

// The pictures of one frame pair. It is in device memory: the kernels of a graph keep their arguments from frame to
// frame, so the parts that change are here.
struct HvFrame {
  HvPlane reference[3], distorted[3];  // Y, Cb, Cr
  HvPlane earlier[2];      // luma of the reference one and two frames ago, null at the start of a run
  uint32_t place;          // of the group in the history of metrics that keep one
  uint32_t age;            // successive frames of the pair up to this one, as far as it matters
  uint32_t rendition;
  uint32_t like;           // the first pair of the group with this age
};
HV_SIZE(HvFrame, 144);
HV_OFFSET(HvFrame, reference, 0);
HV_OFFSET(HvFrame, distorted, 48);
HV_OFFSET(HvFrame, earlier, 96);
HV_OFFSET(HvFrame, place, 128);
HV_OFFSET(HvFrame, age, 132);
HV_OFFSET(HvFrame, rendition, 136);
HV_OFFSET(HvFrame, like, 140);

// Planes that one kernel passes to another: one of the reference and one of the distorted picture, or consecutive ones
// of several distorted pictures.
template <class T> struct HvPlanesOf {
  T *reference, *distorted;
  uint32_t stride;  // elements from row to row
};
using HvPlanes = HvPlanesOf<void>;
HV_SIZE(HvPlanes, 24);
HV_OFFSET(HvPlanes, reference, 0);
HV_OFFSET(HvPlanes, distorted, 8);
HV_OFFSET(HvPlanes, stride, 16);

// Sample x of row y; rows are `stride` bytes apart. AMD's loads add x to an address that all threads share, as they often
// do a row. On NVIDIA it is one multiplication that adds the address of a column, if `stride` is widened where it is used.
template <class T> HV_DEV const T *hv_at(const T *data, uint32_t x, uint32_t y, uint32_t stride) {
#if defined(HV_NV)
  asm volatile("" : "+r"(stride));  // as a loop would widen it once, and multiply all 64 bits in each step
  return (const T *)((const uint8_t *)(data + x) + (uint64_t)y * stride);
#else
  return (const T *)((const uint8_t *)data + (uint64_t)y * stride) + x;
#endif
}

// A stored sample of `T` (uint8_t or uint16_t) as a number in 0 .. 2^bits - 1.
template <class T> HV_DEV uint32_t hv_number(uint32_t stored, uint32_t shift, uint32_t bits) {
  return sizeof(T) == 1 ? stored : hv_min(stored >> shift, (1u << bits) - 1);
}
// The same of the sample at the address `at`.
template <class T> HV_DEV uint32_t hv_sample(const uint8_t *at, uint32_t shift, uint32_t bits) {
  return hv_number<T>(hv_ldg((const T *)at), shift, bits);
}
// The same of the sample `i` in successive samples that were loaded as words.
template <class T> HV_DEV uint32_t hv_sample_in(const uint32_t *words, int i, uint32_t shift, uint32_t bits) {
  const int n = 4 / sizeof(T), size = 8 * sizeof(T);
  return hv_number<T>(words[i / n] >> (i % n * size) & ((1u << size) - 1), shift, bits);
}
