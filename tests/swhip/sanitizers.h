// SPDX-License-Identifier: MPL-2.0
//
// Announces fibers to the address and thread sanitizers; does nothing in an ordinary build.
//
// The thread sanitizer is the race checker: with HV_RACECHECK only the kernels are compiled with
// -fsanitize=thread. A switch from fiber to fiber orders nothing for it, __syncthreads and hv_sync_wave do.
#pragma once
#include <cstddef>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(HV_RACECHECK)
extern "C" {
void *__tsan_get_current_fiber();
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
}
#endif

namespace sanitizers {

struct Context {  // one per fiber, and one for the engine
#if defined(__SANITIZE_ADDRESS__)
  void *fake_stack;
  const void *stack;
  size_t size;
#elif defined(HV_RACECHECK)
  void *fiber;
#endif
};

// Call order around a switch: before_switch, the switch, after_switch on the other side.
inline void before_switch([[maybe_unused]] Context &from, [[maybe_unused]] Context &to,
                          [[maybe_unused]] bool for_ever = false) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &from.fake_stack, to.stack, to.size);
#elif defined(HV_RACECHECK)
  if (!to.fiber) to.fiber = __tsan_create_fiber(0);
  __tsan_switch_to_fiber(to.fiber, 1);
#endif
}
inline void after_switch([[maybe_unused]] Context &to, [[maybe_unused]] Context *from = nullptr) {
#if defined(__SANITIZE_ADDRESS__)
  // Only the first fiber of all is certain to come from the engine's stack.
  const bool unknown = from && !from->stack;
  __sanitizer_finish_switch_fiber(to.fake_stack, unknown ? &from->stack : nullptr, unknown ? &from->size : nullptr);
#endif
}
// Called before the fiber runs for the first time.
inline void prepare([[maybe_unused]] Context &context, [[maybe_unused]] void *stack,
                    [[maybe_unused]] size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  context = {nullptr, stack, size};
#endif
}
inline void adopt_thread([[maybe_unused]] Context &engine) {
#if defined(HV_RACECHECK)
  engine.fiber = __tsan_get_current_fiber();
#endif
}

// Work before `release(tag)` happened before work after `acquire(tag)`.
inline void release([[maybe_unused]] char &tag) {
#if defined(HV_RACECHECK)
  __tsan_release(&tag);
#endif
}
inline void acquire([[maybe_unused]] char &tag) {
#if defined(HV_RACECHECK)
  __tsan_acquire(&tag);
#endif
}

}  // namespace sanitizers
