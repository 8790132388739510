// SPDX-License-Identifier: MPL-2.0
//
// The first and the last kernel of a frame, between the host's page-locked memory and the others: copy engines and
// fills take longer to start than these take to run.
#include "frame.h"

#define FRAME_THREADS 128

// Copies the frame's description from host memory and zeroes n sums. Block 128 threads, grid 1.
HV_KERNEL(FRAME_THREADS, frame_begin)(const volatile uint32_t *given, HvFrame *frame, uint64_t *sums, uint32_t n) {
  for (uint32_t i = threadIdx.x; i < sizeof(HvFrame) / 4; i += FRAME_THREADS) ((uint32_t *)frame)[i] = given[i];
  for (uint32_t i = threadIdx.x; i < n; i += FRAME_THREADS) sums[i] = 0;
}
HV_EXPORT(frame_begin)

// Copies n sums to host memory. Block 128 threads, grid 1.
HV_KERNEL(FRAME_THREADS, frame_end)(const uint64_t *sums, volatile uint64_t *taken, uint32_t n) {
  for (uint32_t i = threadIdx.x; i < n; i += FRAME_THREADS) taken[i] = sums[i];
}
HV_EXPORT(frame_end)
