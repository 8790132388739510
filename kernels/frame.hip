// SPDX-License-Identifier: MPL-2.0
//
// The first and the last kernels of a group of frame pairs. They copy between the host's page-locked memory and device
// memory, because copy engines and fills take longer to start than these take to run.
#include "frame.h"

#define FRAME_THREADS 128

// Copies the descriptions of the frame pairs of a group from host memory and zeroes n sums of each; those of the next
// pair are `pitch` sums on. Block 128 threads, grid one block for each pair.
HV_KERNEL(FRAME_THREADS, frame_begin)(const volatile uint32_t *given, HvFrame *frame, uint64_t *sums, uint32_t n,
                                      uint32_t pitch) {
  const uint32_t words = sizeof(HvFrame) / 4, first = blockIdx.x * words;
  for (uint32_t i = threadIdx.x; i < words; i += FRAME_THREADS) ((uint32_t *)frame)[first + i] = given[first + i];
  for (uint32_t i = threadIdx.x; i < n; i += FRAME_THREADS) sums[blockIdx.x * pitch + i] = 0;
}
HV_EXPORT(frame_begin)

// Copies n sums of each pair to host memory. Launched alike.
HV_KERNEL(FRAME_THREADS, frame_end)(const uint64_t *sums, volatile uint64_t *taken, uint32_t n, uint32_t pitch) {
  const uint32_t first = blockIdx.x * pitch;
  for (uint32_t i = threadIdx.x; i < n; i += FRAME_THREADS) taken[first + i] = sums[first + i];
}
HV_EXPORT(frame_end)
