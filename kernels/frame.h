// SPDX-License-Identifier: MPL-2.0
//
// What kernels know of the pictures of one frame pair. `src/hip/frame.rs` has the same structures.
#pragma once
#include "prelude.h"

// One component of one picture in device memory.
struct HvPlane {
  const uint8_t *data;  // first sample; a multiple of 16 where step is 1; null where there is none
  uint32_t stride;      // bytes from row to row; a multiple of 16 where step is 1, and all of it readable
  uint16_t shift;       // unused low bits of a 16-bit sample (6 for P010)
  uint16_t step;        // samples from one sample to the next: 1, or 2 in interleaved chroma
};

// The pictures of one frame pair. Lies in device memory: the kernels of a graph keep their arguments from
// frame to frame, so what changes is here.
struct HvFrame {
  HvPlane ref[3], dis[3];  // Y, Cb, Cr
  HvPlane earlier[2];      // luma of the reference one and two frames ago, null at the start of a run
};

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
