// SPDX-License-Identifier: MPL-2.0
//
// Pictures in single precision.
#pragma once
#include "frame.h"

// The sample at the address `at`, in the range of 8 bits, less 128. unit: from samples to steps of 8 bits.
template <class T> HV_DEV float hv_centred(const uint8_t *at, uint32_t shift, uint32_t bits, float unit) {
  return (float)(int)hv_sample<T>(at, shift, bits) * unit - 128.0f;
}

// Row or column i, mirrored at the first and the last of n. Beyond one reflection it is some index inside, whose value is not used.
HV_DEV int hv_mirror(int i, int n) {
  i = hv_abs(i);
  return i < n ? i : hv_max(2 * (n - 1) - i, 0);
}
