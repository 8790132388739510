// SPDX-License-Identifier: MPL-2.0
//
// prelude.h, compiled as ordinary C++ for the CPU: the "software device".
// Each GPU thread is a fiber; __syncthreads and wave operations are the only switching points.
// HV_WAVE (32 or 64) comes from the command line: the same source is compiled once per width. So may HV_SHARED, the name of
// the section for shared memory, another for each source and width.
#pragma once
#ifndef HV_WAVE
#error "host build: pass -DHV_WAVE=32 or -DHV_WAVE=64"
#endif
#ifndef HV_SHARED
#define HV_SHARED hv_shared
#endif
#define HV_PASTE(a, b) HV_PASTE_(a, b)
#define HV_PASTE_(a, b) a##b
#define HV_TEXT(a) HV_TEXT_(a)
#define HV_TEXT_(a) #a
// The ends of the section, from the linker; null if it is empty.
extern char HV_PASTE(__start_, HV_SHARED)[] __attribute__((weak, visibility("hidden")));
extern char HV_PASTE(__stop_, HV_SHARED)[] __attribute__((weak, visibility("hidden")));

namespace hv {
struct Dim { unsigned x, y, z; };
// The state of the running fiber. The engine (tests/swhip/engine.cpp) sets `cur` before it resumes a fiber.
struct Lane { Dim tid; uint32_t lin; };
struct Grid { Dim bid, bdim, gdim; };
extern Lane *cur;
extern Grid grid;
void barrier();                                        // all live threads of the block
// All live lanes of the wave pass `v`; each gets its view of them. `op` must agree. Only Sync orders memory.
enum Op : uint32_t { Shfl, Ballot, Sync };
uint64_t wave_op(Op op, uint64_t v, uint32_t src, uint32_t width);
struct Kernel {                                        // one registered kernel
  const char *name; int wave, max_threads, nargs;
  void (*invoke)(void **args);
  void (*save)(void **args, unsigned char *dst, void **slots);  // deep-copies the arguments
  char *shared, *shared_end;                           // where its __shared__ variables lie, among others
  Kernel *next;
};
extern Kernel *kernels;
template <unsigned...> struct Seq {};
template <unsigned N, unsigned... S> struct Gen : Gen<N - 1, N - 1, S...> {};
template <unsigned... S> struct Gen<0, S...> { using T = Seq<S...>; };
template <auto F, class T> struct Bind;
template <auto F, class... A> struct Bind<F, void (*)(A...)> {
  template <unsigned... I> static void call(void **a, Seq<I...>) { F((*(A *)a[I])...); }
  static void invoke(void **a) { call(a, typename Gen<sizeof...(A)>::T()); }
  static void save(void **a, unsigned char *d, void **slots) {
    unsigned i = 0; unsigned long o = 0;
    ((o = (o + alignof(A) - 1) / alignof(A) * alignof(A), __builtin_memcpy(d + o, a[i], sizeof(A)), slots[i] = d + o, o += sizeof(A), i++), ...);
  }
  static constexpr int n = sizeof...(A);
};
struct Register { Register(Kernel *k) { k->next = kernels; kernels = k; } };
}  // namespace hv

#define threadIdx (hv::cur->tid)
#define blockIdx (hv::grid.bid)
#define blockDim (hv::grid.bdim)
#define gridDim (hv::grid.gdim)
#define __device__
#define __global__
#define __constant__ const
#define __forceinline__ inline
#define __launch_bounds__(...)
// One block runs at a time, so a static is exactly "shared by the block". The section lets the engine fill
// shared memory with garbage before every block, as on real hardware, and not that of all other kernels; the address
// sanitizer guards only what is in no section of its own.
#if defined(__SANITIZE_ADDRESS__)
#define __shared__ static
#else
#define __shared__ static __attribute__((section(HV_TEXT(HV_SHARED))))
#endif
#define HV_DEV [[maybe_unused]] static inline
#define HV_KERNEL(max_threads, name) enum { hv_max_##name = max_threads }; static void name
#define HV_EXPORT(name)                                                                        \
  static hv::Kernel hv_k_##name{#name, HV_WAVE, hv_max_##name, hv::Bind<&name, decltype(&name)>::n, \
                                hv::Bind<&name, decltype(&name)>::invoke,                      \
                                hv::Bind<&name, decltype(&name)>::save,                        \
                                HV_PASTE(__start_, HV_SHARED), HV_PASTE(__stop_, HV_SHARED), nullptr}; \
  static hv::Register hv_r_##name(&hv_k_##name);

static inline void __syncthreads() { hv::barrier(); }
HV_DEV uint32_t hv_lane() { return hv::cur->lin % HV_WAVE; }
HV_DEV uint32_t hv_shfl_u32(uint32_t v, uint32_t s) { return (uint32_t)hv::wave_op(hv::Shfl, v, s % HV_WAVE, HV_WAVE); }
HV_DEV uint32_t hv_shfl_xor_u32(uint32_t v, uint32_t m) { return hv_shfl_u32(v, hv_lane() ^ m); }
HV_DEV uint64_t hv_shfl_xor_u64(uint64_t v, uint32_t m) { return hv::wave_op(hv::Shfl, v, hv_lane() ^ m, HV_WAVE); }
HV_DEV uint32_t hv_shfl_down_u32(uint32_t v, uint32_t d) {
  uint32_t l = hv_lane();
  return hv_shfl_u32(v, l + d < HV_WAVE ? l + d : l);
}
HV_DEV void hv_sync_wave() { hv::wave_op(hv::Sync, 0, 0, HV_WAVE); }
HV_DEV uint64_t hv_ballot(bool p) { return hv::wave_op(hv::Ballot, p, 0, HV_WAVE); }
HV_DEV float hv_rcp_f32(float x) { return 1 / x; }
HV_DEV uint32_t hv_atomic_add_u32(uint32_t *p, uint32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
HV_DEV uint64_t hv_atomic_add_u64(uint64_t *p, uint64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
HV_DEV uint32_t hv_atomic_max_u32(uint32_t *p, uint32_t v) {
  uint32_t o = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (o < v && !__atomic_compare_exchange_n(p, &o, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
  return o;
}
template <class T> HV_DEV T hv_ldg(const T *p) { return *p; }
HV_DEV int hv_clz(uint32_t x) { return x ? __builtin_clz(x) : 32; }
HV_DEV int hv_popc64(uint64_t x) { return __builtin_popcountll(x); }
HV_DEV int64_t hv_mad_i64(int32_t a, int32_t b, int64_t c) { return (int64_t)a * b + c; }
HV_DEV uint64_t hv_mad_u64(uint32_t a, uint32_t b, uint64_t c) { return (uint64_t)a * b + c; }
HV_DEV float hv_float_of_byte(uint32_t v, int i) { return (float)(v >> 8 * i & 0xff); }
template <uint32_t digits> HV_DEV uint32_t hv_bytes(uint32_t a, uint32_t b) {
  const uint64_t both = (uint64_t)b << 32 | a;
  uint32_t r = 0;
  for (int i = 0; i < 4; i++) r |= (uint32_t)(both >> (digits >> 4 * i & 7) * 8 & 255) << 8 * i;
  return r;
}
HV_DEV uint32_t hv_udot4(uint32_t a, uint32_t b, uint32_t c) {
  for (int i = 0; i < 4; i++) c += ((a >> (8 * i)) & 255u) * ((b >> (8 * i)) & 255u);
  return c;
}
HV_DEV int32_t hv_sdot4(int32_t a, int32_t b, int32_t c) {
  for (int i = 0; i < 4; i++) c += (int32_t)(int8_t)(a >> (8 * i)) * (int32_t)(int8_t)(b >> (8 * i));
  return c;
}
