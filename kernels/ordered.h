// SPDX-License-Identifier: MPL-2.0
//
// Sums of single precision in a fixed order, from the first number to the last.
#pragma once
#include "prelude.h"

// The sum of `count` numbers that are `step` numbers apart. Numbers are loaded some ahead, as each addition waits for the
// one before.
HV_DEV float hv_ordered_sum(const float *from, uint32_t step, int count) {
  const int AHEAD = 16;
  float sum = 0;
  for (int i = 0; i < count; i += AHEAD) {
    float next[AHEAD];
    for (int k = 0; k < AHEAD; k++) next[k] = from[(uint64_t)hv_min(i + k, count - 1) * step];
    for (int k = 0; k < AHEAD; k++) sum = i + k < count ? sum + next[k] : sum;
  }
  return sum;
}
