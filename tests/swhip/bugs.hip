// SPDX-License-Identifier: MPL-2.0
//
// Deliberate mistakes that the software device must detect, as a test of the checks. Blocks of 256 threads; out has one
// word per thread of the grid.
#include "prelude.h"

// No barrier between writing shared memory and reading it.
HV_KERNEL(256, bug_no_barrier)(uint32_t *out) {
  __shared__ uint32_t s[256];
  s[threadIdx.x] = threadIdx.x;
  out[blockIdx.x * 256 + threadIdx.x] = s[255 - threadIdx.x];
}
HV_EXPORT(bug_no_barrier)

// No barrier before shared memory is overwritten while other threads still read it.
HV_KERNEL(256, bug_overwrite)(uint32_t *out) {
  __shared__ uint32_t s[256];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  const uint32_t v = s[(threadIdx.x + 64) & 255];
  s[threadIdx.x] = 7;
  __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = v + s[threadIdx.x];
}
HV_EXPORT(bug_overwrite)

// Nothing between writing shared memory and reading what another lane of the wave wrote.
HV_KERNEL(256, bug_no_wave_sync)(uint32_t *out) {
  __shared__ uint32_t s[256];
  s[threadIdx.x] = threadIdx.x;
  out[blockIdx.x * 256 + threadIdx.x] = s[threadIdx.x ^ 31];
}
HV_EXPORT(bug_no_wave_sync)

// A ballot in place of hv_sync_wave: it waits for the lanes of the wave but orders no memory.
HV_KERNEL(256, bug_ballot_for_sync)(uint32_t *out) {
  __shared__ uint32_t s[256];
  s[threadIdx.x] = threadIdx.x;
  const uint32_t all = (uint32_t)hv_popc64(hv_ballot(true));
  out[blockIdx.x * 256 + threadIdx.x] = s[threadIdx.x ^ 31] + all - HV_WAVE;
}
HV_EXPORT(bug_ballot_for_sync)

// Waits only for the wave, then reads data that another wave wrote.
HV_KERNEL(256, bug_wave_for_block)(uint32_t *out) {
  __shared__ uint32_t s[256];
  s[threadIdx.x] = threadIdx.x;
  hv_sync_wave();
  out[blockIdx.x * 256 + threadIdx.x] = s[threadIdx.x ^ 128];
}
HV_EXPORT(bug_wave_for_block)

// Assumes that a wave has 32 lanes.
HV_KERNEL(256, bug_wave32)(uint32_t *out) {
  __shared__ uint32_t s[8];
  uint32_t v = threadIdx.x;
  for (uint32_t m = 16; m; m >>= 1) v += hv_shfl_xor_u32(v, m);
  if (hv_lane() == 0) s[threadIdx.x / HV_WAVE] = v;
  __syncthreads();
  uint32_t sum = 0;
  for (int i = 0; i < 256 / HV_WAVE; i++) sum += s[i];
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}
HV_EXPORT(bug_wave32)

// Writes one element past the buffer.
HV_KERNEL(256, bug_past_the_end)(uint32_t *out) { out[blockIdx.x * 256 + threadIdx.x + 1] = 1; }
HV_EXPORT(bug_past_the_end)

// Shuffles under a condition that lanes of a wave see differently.
HV_KERNEL(256, bug_divergent)(uint32_t *out) {
  uint32_t v = threadIdx.x;
  if (threadIdx.x & 1) v += hv_shfl_xor_u32(v, 1);
  __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = v;
}
HV_EXPORT(bug_divergent)

// Reads shared memory that was never written.
HV_KERNEL(256, bug_uninitialised)(uint32_t *out) {
  __shared__ uint32_t s[256];
  if (threadIdx.x < 200) s[threadIdx.x] = 0;
  __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = s[threadIdx.x];
}
HV_EXPORT(bug_uninitialised)

// The same, but multiplies it with zero.
HV_KERNEL(256, bug_uninitialised_factor)(uint32_t *out) {
  __shared__ float s[256];
  if (threadIdx.x < 200) s[threadIdx.x] = 1;
  __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = 0 * s[threadIdx.x] == 0 ? 0 : 1;
}
HV_EXPORT(bug_uninitialised_factor)

// Assumes that blocks run one after another.
HV_KERNEL(256, bug_blocks)(uint32_t *out) {
  if (threadIdx.x == 0) out[blockIdx.x * 256] = blockIdx.x ? out[blockIdx.x * 256 - 256] + 1 : 1;
}
HV_EXPORT(bug_blocks)

// Returns from some threads before a barrier.
HV_KERNEL(256, bug_barrier)(uint32_t *out) {
  if (threadIdx.x < 100) return;
  __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = 1;
}
HV_EXPORT(bug_barrier)

// Writes past an array in shared memory; for the address and undefined-behaviour sanitizers.
HV_KERNEL(256, bug_shared_overrun)(uint32_t *out) {
  __shared__ uint32_t s[256];
  s[threadIdx.x + 1] = threadIdx.x;
  __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = s[threadIdx.x + 1];
}
HV_EXPORT(bug_shared_overrun)
