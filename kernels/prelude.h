// SPDX-License-Identifier: MPL-2.0
//
// Device prelude: the ONLY header a kernel source includes.
//
// One kernel source, five ways to compile it:
//   HV_HOST                 plain C++20 for the CPU ("software device" of the test suite)
//   HV_USE_HIP_RUNTIME      any hipcc, real <hip/hip_runtime.h>
//   __HIP__                 bare clang, -x hip  -nogpuinc -nogpulib   (no ROCm installed)
//   __CUDA__ && __clang__   bare clang, -x cuda -nocudainc -nocudalib (no CUDA installed)
//   __NVCC__                nvcc
//
// Kernels may use: threadIdx/blockIdx/blockDim/gridDim .x/.y/.z, __global__, __device__,
// __constant__, __shared__ (static only), __syncthreads(), HV_WAVE, and the hv_* functions below.
// No libc, no libm transcendental functions (there is no ocml/libdevice in the bare builds).
#pragma once

typedef __UINT8_TYPE__ uint8_t;   typedef __INT8_TYPE__ int8_t;
typedef __UINT16_TYPE__ uint16_t; typedef __INT16_TYPE__ int16_t;
typedef __UINT32_TYPE__ uint32_t; typedef __INT32_TYPE__ int32_t;
typedef __UINT64_TYPE__ uint64_t; typedef __INT64_TYPE__ int64_t;

// The data that one thread loads at once.
struct alignas(8) HvU32x2 { uint32_t v[2]; };
struct alignas(16) HvU32x4 { uint32_t v[4]; };

#if defined(HV_HOST)
  #include "prelude_host.h"
#elif defined(HV_USE_HIP_RUNTIME)
  #include <hip/hip_runtime.h>
  #define HV_AMD 1
#elif defined(__NVCC__)
  #define HV_NV 1
#elif defined(__HIP__)
  #define HV_AMD 1
  #define HV_BARE 1
#elif defined(__CUDA__) && defined(__clang__)
  #define HV_NV 1
  #define HV_BARE 1
#else
  #error "prelude.h: unknown compilation mode"
#endif

// ---- bare builds: keywords and built-in variables -----------------------------------------
#if defined(HV_BARE)
  #define __global__   __attribute__((global))
  #define __device__   __attribute__((device))
  #define __host__     __attribute__((host))
  #define __shared__   __attribute__((shared))
  #define __constant__ __attribute__((constant))
  #if defined(HV_AMD)  // launch_bounds is silently ignored there, and 1024 threads leave 64 to 128 registers
    #define __launch_bounds__(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
  #else
    #define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
  #endif
  #define __forceinline__ inline __attribute__((always_inline))
  #if defined(HV_AMD)
    // workgroup_size/grid_size lower to the dispatch packet (code object v4) or to the hidden
    // kernel arguments (v5+); both are filled in by every HIP runtime. grid_size is in threads.
    #define HV_TID(c) __builtin_amdgcn_workitem_id_##c()
    #define HV_BID(c) __builtin_amdgcn_workgroup_id_##c()
    #define HV_BDIM(c) __builtin_amdgcn_workgroup_size_##c()
    #define HV_GDIM(c) (__builtin_amdgcn_grid_size_##c() / __builtin_amdgcn_workgroup_size_##c())
  #else
    #define HV_TID(c) __nvvm_read_ptx_sreg_tid_##c()
    #define HV_BID(c) __nvvm_read_ptx_sreg_ctaid_##c()
    #define HV_BDIM(c) __nvvm_read_ptx_sreg_ntid_##c()
    #define HV_GDIM(c) __nvvm_read_ptx_sreg_nctaid_##c()
  #endif
  #define HV_FIELD(T, c) \
    __declspec(property(get = hv_get_##c)) unsigned int c; \
    static __forceinline__ __device__ unsigned int hv_get_##c() { return T(c); }
  #define HV_VAR(name, T) \
    struct hv_##name##_t { HV_FIELD(T, x) HV_FIELD(T, y) HV_FIELD(T, z) }; \
    extern const __device__ __attribute__((weak)) hv_##name##_t name;
  HV_VAR(threadIdx, HV_TID) HV_VAR(blockIdx, HV_BID)
  HV_VAR(blockDim, HV_BDIM) HV_VAR(gridDim, HV_GDIM)
  #if defined(HV_AMD)
    static __forceinline__ __device__ void __syncthreads() {
      __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
      __builtin_amdgcn_s_barrier();   // s_barrier_signal/_wait on gfx12
      __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
    }
  #endif                              // NVPTX: __syncthreads is a clang builtin
#endif

// ---- wave width: a compile-time constant of the target ------------------------------------
// (__AMDGCN_WAVEFRONT_SIZE is going away and warpSize is no constant in ROCm 7; these are stable.)
#if defined(HV_AMD)
  #if defined(__GFX8__) || defined(__GFX9__)
    #define HV_WAVE 64
  #else
    #define HV_WAVE 32
  #endif
#elif defined(HV_NV)
  #define HV_WAVE 32
#endif
#define HV_MAX_WAVES_PER_BLOCK(threads) (((threads) + 31) / 32)  // safe for both widths

// ---- forms of a kernel: the same results by the fastest means of the target ----------------
// HV_F64_FAST: sums beyond 32 bits as f64 if f64 has half the rate of f32 or more, else as integers. HV_MMA: NVIDIA
// tensor cores (sm_80 and later).
#if !defined(HV_F64_FAST)
  #if defined(HV_HOST) || defined(HV_AMD)
    #define HV_F64_FAST (HV_WAVE == 64)
  #else
    #define HV_F64_FAST 0
  #endif
#endif
#if !defined(HV_MMA)
  #define HV_MMA 0
#endif

// ---- kernels ------------------------------------------------------------------------------
#if !defined(HV_HOST)
  #define HV_KERNEL(max_threads, name) \
    extern "C" __global__ void __launch_bounds__(max_threads) name
  #define HV_EXPORT(name)        // registers the kernel in the host build only
  #define HV_DEV static __forceinline__ __device__
#endif

#define HV_MEMBER __forceinline__ __device__  // as HV_DEV, for member functions

#if !defined(HV_HOST)
// ---- lanes and shuffles (every lane of the wave must take part) ---------------------------
#if defined(HV_AMD)
  HV_DEV uint32_t hv_lane() {
    #if HV_WAVE == 64
      return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
    #else
      return __builtin_amdgcn_mbcnt_lo(~0u, 0u);
    #endif
  }
  HV_DEV uint32_t hv_shfl_u32(uint32_t v, uint32_t src) {        // ds_bpermute wraps the lane id
    return (uint32_t)__builtin_amdgcn_ds_bpermute((int)(src << 2), (int)v);
  }
  HV_DEV uint32_t hv_shfl_xor_u32(uint32_t v, uint32_t m) { return hv_shfl_u32(v, hv_lane() ^ m); }
  HV_DEV uint32_t hv_shfl_down_u32(uint32_t v, uint32_t d) {
    uint32_t l = hv_lane();
    return hv_shfl_u32(v, l + d < HV_WAVE ? l + d : l);
  }
  // Waits for the wave's lanes and makes their writes to shared memory visible to each other.
  HV_DEV void hv_sync_wave() {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
  }
  HV_DEV uint64_t hv_ballot(bool p) {
    #if HV_WAVE == 64 && __has_builtin(__builtin_amdgcn_ballot_w64)
      return __builtin_amdgcn_ballot_w64(p);
    #elif HV_WAVE == 32 && __has_builtin(__builtin_amdgcn_ballot_w32)
      return (uint64_t)__builtin_amdgcn_ballot_w32(p);
    #else
      return __builtin_amdgcn_uicmp((unsigned)p, 0u, 33 /* != */);   // clang 15 and before
    #endif
  }
#else
  HV_DEV uint32_t hv_lane() {
    uint32_t l; asm("mov.u32 %0, %%laneid;" : "=r"(l)); return l;
  }
  HV_DEV void hv_sync_wave() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
  #if defined(HV_BARE)
    HV_DEV uint32_t hv_shfl_u32(uint32_t v, uint32_t s) { return (uint32_t)__nvvm_shfl_sync_idx_i32(~0u, (int)v, (int)s, 0x1f); }
    HV_DEV uint32_t hv_shfl_xor_u32(uint32_t v, uint32_t m) { return (uint32_t)__nvvm_shfl_sync_bfly_i32(~0u, (int)v, (int)m, 0x1f); }
    HV_DEV uint32_t hv_shfl_down_u32(uint32_t v, uint32_t d) { return (uint32_t)__nvvm_shfl_sync_down_i32(~0u, (int)v, (int)d, 0x1f); }
    HV_DEV uint64_t hv_ballot(bool p) { return __nvvm_vote_ballot_sync(~0u, p); }
  #else
    HV_DEV uint32_t hv_shfl_u32(uint32_t v, uint32_t s) { return __shfl_sync(~0u, v, s); }
    HV_DEV uint32_t hv_shfl_xor_u32(uint32_t v, uint32_t m) { return __shfl_xor_sync(~0u, v, m); }
    HV_DEV uint32_t hv_shfl_down_u32(uint32_t v, uint32_t d) { return __shfl_down_sync(~0u, v, d); }
    HV_DEV uint64_t hv_ballot(bool p) { return __ballot_sync(~0u, p); }
  #endif
#endif

// ---- atomics: relaxed, device scope -------------------------------------------------------
#if defined(HV_AMD)
  HV_DEV uint32_t hv_atomic_add_u32(uint32_t *p, uint32_t v) { return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
  HV_DEV uint64_t hv_atomic_add_u64(uint64_t *p, uint64_t v) { return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
  HV_DEV uint32_t hv_atomic_max_u32(uint32_t *p, uint32_t v) { return __hip_atomic_fetch_max(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
#elif defined(HV_BARE)
  HV_DEV uint32_t hv_atomic_add_u32(uint32_t *p, uint32_t v) { return __nvvm_atom_add_gen_i((int *)p, (int)v); }
  HV_DEV uint64_t hv_atomic_add_u64(uint64_t *p, uint64_t v) { return __nvvm_atom_add_gen_ll((long long *)p, (long long)v); }
  HV_DEV uint32_t hv_atomic_max_u32(uint32_t *p, uint32_t v) { return __nvvm_atom_max_gen_ui(p, v); }
#else
  HV_DEV uint32_t hv_atomic_add_u32(uint32_t *p, uint32_t v) { return atomicAdd(p, v); }
  HV_DEV uint64_t hv_atomic_add_u64(uint64_t *p, uint64_t v) { return atomicAdd((unsigned long long *)p, (unsigned long long)v); }
  HV_DEV uint32_t hv_atomic_max_u32(uint32_t *p, uint32_t v) { return atomicMax(p, v); }
#endif

// ---- read-only loads from global memory ---------------------------------------------------
// AMD has no such instruction; declaring the address as global suffices there.
#if defined(HV_BARE)
  typedef uint32_t hv_v2 __attribute__((ext_vector_type(2)));
  typedef uint32_t hv_v4 __attribute__((ext_vector_type(4)));
#endif
#if defined(HV_NV) && defined(HV_BARE)
  // Loads 32 bits at once, as narrow results of the builtins cost a mask each.
  HV_DEV uint32_t hv_ldg(const uint8_t *p) {
    uint32_t v; asm("ld.global.nc.u8 %0, [%1];" : "=r"(v) : "l"(p)); return v;
  }
  HV_DEV uint32_t hv_ldg(const uint16_t *p) {
    uint32_t v; asm("ld.global.nc.u16 %0, [%1];" : "=r"(v) : "l"(p)); return v;
  }
  HV_DEV uint32_t hv_ldg(const uint32_t *p) { return __nvvm_ldg_ui(p); }
  HV_DEV HvU32x2 hv_ldg(const HvU32x2 *p) {
    return __builtin_bit_cast(HvU32x2, __nvvm_ldg_ui2((const hv_v2 *)p));
  }
  HV_DEV HvU32x4 hv_ldg(const HvU32x4 *p) {
    return __builtin_bit_cast(HvU32x4, __nvvm_ldg_ui4((const hv_v4 *)p));
  }
#elif defined(HV_NV)
  template <class T> HV_DEV T hv_ldg(const T *p) { return __ldg(p); }
  HV_DEV HvU32x2 hv_ldg(const HvU32x2 *p) { uint2 v = __ldg((const uint2 *)p); return {{v.x, v.y}}; }
  HV_DEV HvU32x4 hv_ldg(const HvU32x4 *p) {
    uint4 v = __ldg((const uint4 *)p); return {{v.x, v.y, v.z, v.w}};
  }
#elif defined(HV_BARE)
  #define HV_GLOBAL const __attribute__((address_space(1)))
  template <class T> HV_DEV T hv_ldg(const T *p) { return *(HV_GLOBAL T *)p; }
  HV_DEV HvU32x2 hv_ldg(const HvU32x2 *p) { return __builtin_bit_cast(HvU32x2, *(HV_GLOBAL hv_v2 *)p); }
  HV_DEV HvU32x4 hv_ldg(const HvU32x4 *p) { return __builtin_bit_cast(HvU32x4, *(HV_GLOBAL hv_v4 *)p); }
#else
  template <class T> HV_DEV T hv_ldg(const T *p) { return *p; }
#endif

// ---- bit operations, wide multiplies ------------------------------------------------------
#if defined(__clang__)
  HV_DEV int hv_clz(uint32_t x) { return x ? __builtin_clz(x) : 32; }
  HV_DEV int hv_popc64(uint64_t x) { return __builtin_popcountll(x); }
#else
  HV_DEV int hv_clz(uint32_t x) { return __clz((int)x); }
  HV_DEV int hv_popc64(uint64_t x) { return __popcll(x); }
#endif

// 1 / x with an error of less than two units in the last place.
HV_DEV float hv_rcp_f32(float x) {
#if defined(HV_AMD)
  return __builtin_amdgcn_rcpf(x);
#else
  float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r;
#endif
}

// a * b + c in 64 bits: one instruction, which the compiler does not always find on NVIDIA.
#if defined(HV_NV)
HV_DEV int64_t hv_mad_i64(int32_t a, int32_t b, int64_t c) {
  int64_t d; asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(d) : "r"(a), "r"(b), "l"(c)); return d;
}
HV_DEV uint64_t hv_mad_u64(uint32_t a, uint32_t b, uint64_t c) {
  uint64_t d; asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(d) : "r"(a), "r"(b), "l"(c)); return d;
}
#else
HV_DEV int64_t hv_mad_i64(int32_t a, int32_t b, int64_t c) { return (int64_t)a * b + c; }
HV_DEV uint64_t hv_mad_u64(uint32_t a, uint32_t b, uint64_t c) { return (uint64_t)a * b + c; }
#endif

// Selects four of the bytes 0-3 of a and 4-7 of b by four hexadecimal digits, the lowest byte by the last.
template <uint32_t digits> HV_DEV uint32_t hv_bytes(uint32_t a, uint32_t b) {
#if defined(HV_AMD)
  constexpr uint32_t sel =
      (digits & 15) | (digits & 0xf0) << 4 | (digits & 0xf00) << 8 | (digits & 0xf000) << 12;
  return __builtin_amdgcn_perm(b, a, sel);
#else
  uint32_t r; asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "n"(digits)); return r;
#endif
}

// Byte i of v. Compilers would multiply such numbers as integers and convert each product.
HV_DEV float hv_float_of_byte(uint32_t v, int i) {
#if defined(HV_NV)
  uint32_t r; asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(v), "r"(0x4b000000), "r"(0x7440 + i));
  return __builtin_bit_cast(float, r) - 0x1p23f;
#else
  float r = (float)(v >> 8 * i & 0xff);
  asm("" : "+v"(r));
  return r;
#endif
}

// ---- packed dot products: native where the target has them --------------------------------
// __has_builtin is false when the target lacks the required feature (gfx9-generic, gfx11 ...).
HV_DEV uint32_t hv_udot4(uint32_t a, uint32_t b, uint32_t c) {
#if defined(HV_NV)
  uint32_t d; asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d;
#elif __has_builtin(__builtin_amdgcn_udot4)
  return __builtin_amdgcn_udot4(a, b, c, false);
#else
  for (int i = 0; i < 4; i++) c += ((a >> (8 * i)) & 255u) * ((b >> (8 * i)) & 255u);
  return c;
#endif
}
HV_DEV int32_t hv_sdot4(int32_t a, int32_t b, int32_t c) {
#if defined(HV_NV)
  int32_t d; asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d;
#elif __has_builtin(__builtin_amdgcn_sdot4)
  return __builtin_amdgcn_sdot4(a, b, c, false);
#elif __has_builtin(__builtin_amdgcn_sudot4)   // gfx11, gfx12
  return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#else
  for (int i = 0; i < 4; i++) c += (int32_t)(int8_t)(a >> (8 * i)) * (int32_t)(int8_t)(b >> (8 * i));
  return c;
#endif
}
#endif  // !HV_HOST

// ---- common to all ------------------------------------------------------------------------
template <class T> HV_DEV T hv_min(T a, T b) { return a < b ? a : b; }
template <class T> HV_DEV T hv_max(T a, T b) { return a > b ? a : b; }
HV_DEV int32_t hv_abs(int32_t a) { return a < 0 ? -a : a; }
// The square root, correctly rounded.
HV_DEV float hv_sqrt_f32(float v) {
#if defined(HV_HOST) || defined(HV_BARE)
  return __builtin_sqrtf(v);
#else
  return sqrtf(v);
#endif
}
// a * b + c with one rounding.
HV_DEV float hv_fma_f32(float a, float b, float c) {
#if defined(HV_HOST) || defined(HV_BARE)
  return __builtin_fmaf(a, b, c);
#else
  return fmaf(a, b, c);
#endif
}
HV_DEV double hv_fma_f64(double a, double b, double c) {
#if defined(HV_HOST) || defined(HV_BARE)
  return __builtin_fma(a, b, c);
#else
  return fma(a, b, c);
#endif
}
// 1 / b and a / b, correctly rounded, for b from 2^-100 to 2^100, and for a of 0 or with a quotient not below 2^-100. On
// NVIDIA this is the compiler's division without its test for operands of other ranges.
//
// The inverse r has e = 1 - b r, below 2^-24. The first quotient q = a r is off by d units in its last place, |d| < 1/2 +
// 2^24 |e| < 3/2. As b d has at most 25 bits, the correction adds d less at most d (|e| + 2^-24) before it rounds. No
// quotient of two numbers of 24 bits lies in the middle between two others: with the bits of b as the integer B, the middle
// is k / 2B units away, and k is an integer other than 0. So a wrong result needs |k| < 2 B |d| (|e| + 2^-24) < 6. All
// quotients with such k were tried, for each of the 2^23 values of B and each guess that is off by at most one unit, as
// NVIDIA documents it. They are right, and so are the inverses.
HV_DEV float hv_inverse_f32(float b) {
#if defined(HV_NV)
  const float guess = hv_rcp_f32(b);
  return hv_fma_f32(hv_fma_f32(-b, guess, 1.0f), guess, guess);
#else
  return 1.0f / b;
#endif
}
// a / b, where the inverse of b is known, correctly rounded.
HV_DEV float hv_quotient_f32(float a, float b, float inverse) {
  const float q = a * inverse;
  return hv_fma_f32(hv_fma_f32(-b, q, a), inverse, q);
}
HV_DEV float hv_quotient_f32(float a, float b) {
#if defined(HV_NV)
  return hv_quotient_f32(a, b, hv_inverse_f32(b));
#else
  return a / b;
#endif
}
// a * b + c for factors of at most 24 bits, modulo 2^32. AMD multiplies 24 bits four times as fast.
HV_DEV int32_t hv_mad_i24(int32_t a, int32_t b, int32_t c) {
#if defined(HV_AMD)
  a = (int32_t)((uint32_t)a << 8) >> 8; b = (int32_t)((uint32_t)b << 8) >> 8;
#endif
  return (int32_t)((uint32_t)a * (uint32_t)b + (uint32_t)c);
}
#if !defined(HV_HOST)
HV_DEV uint64_t hv_shfl_xor_u64(uint64_t v, uint32_t m) {
  uint32_t lo = hv_shfl_xor_u32((uint32_t)v, m), hi = hv_shfl_xor_u32((uint32_t)(v >> 32), m);
  return ((uint64_t)hi << 32) | lo;
}
#endif
// Sum over the wave, for every lane. It is an integer sum, so the order does not matter.
HV_DEV uint64_t hv_wave_sum_u64(uint64_t v) {
  for (uint32_t m = HV_WAVE / 2; m; m >>= 1) v += hv_shfl_xor_u64(v, m);
  return v;
}
// Adds the sum over the block of `threads`, all of which call it once, to *total.
template <int threads> HV_DEV void hv_block_add_u64(uint64_t *total, uint64_t v) {
  __shared__ uint64_t waves[HV_MAX_WAVES_PER_BLOCK(threads)];
  v = hv_wave_sum_u64(v);
  if (hv_lane() == 0) waves[threadIdx.x / HV_WAVE] = v;
  __syncthreads();
  if (threadIdx.x != 0) return;
  v = 0;
  for (int i = 0; i < threads / HV_WAVE; i++) v += waves[i];
  hv_atomic_add_u64(total, v);
}
