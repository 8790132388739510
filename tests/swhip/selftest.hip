// SPDX-License-Identifier: MPL-2.0
//
// Every primitive of the prelude once, as values that a host can predict; see check_kernels.cpp.
#include "prelude.h"

// One block of 64 threads. out: 13 groups of 64; counters: two u32 and two u64 that the atomics change.
HV_KERNEL(64, selftest)(uint32_t *__restrict__ out, const HvU32x4 *__restrict__ quads, uint32_t *counters,
                        uint64_t *wide_counters) {
  __shared__ uint32_t exchange[64];
  const uint32_t t = threadIdx.x, v = t * 2654435761u;
  out[t] = hv_lane();
  out[64 + t] = hv_shfl_xor_u32(v, 5);
  out[128 + t] = hv_shfl_down_u32(v, 3);
  out[192 + t] = hv_shfl_u32(v, 7);
  out[256 + t] = (uint32_t)hv_popc64(hv_ballot(v >> 16 & 1));
  out[320 + t] = hv_udot4(v, v ^ 0x5a5a5a5au, t);
  out[384 + t] = (uint32_t)hv_sdot4((int32_t)v, (int32_t)(v ^ 0x5a5a5a5au), (int32_t)t);
  out[448 + t] = (uint32_t)hv_clz(v >> (t & 31)) + blockDim.x * 100 + gridDim.x * 10000 + blockIdx.x;
  out[512 + t] = (uint32_t)hv_mad_i24((int32_t)v >> 9, -7919, (int32_t)t);
  const HvU32x4 quad = hv_ldg(quads + t % 4);
  const HvU32x2 pair = hv_ldg((const HvU32x2 *)quads + t % 8);
  out[576 + t] = hv_ldg((const uint8_t *)quads + t) + hv_ldg((const uint16_t *)quads + t % 32);
  out[640 + t] = quad.v[0] ^ quad.v[3] ^ pair.v[1] ^ hv_ldg((const uint32_t *)quads + t % 16);
  out[704 + t] = (uint32_t)(hv_wave_sum_u64((uint64_t)v << 8) >> 8);
  exchange[t] = v;
  __syncthreads();
  out[768 + t] = exchange[t ^ 31];
  hv_atomic_add_u32(counters, t);
  hv_atomic_max_u32(counters + 1, t);
  hv_atomic_add_u64(wide_counters, (uint64_t)t << 33);
  hv_block_add_u64<64>(wide_counters + 1, (uint64_t)t << 31);
}
HV_EXPORT(selftest)
