// SPDX-License-Identifier: MPL-2.0
//
// Every GPU thread is a fiber with its own stack. It switches only in __syncthreads and in wave operations. A block
// runs to its end before the next one begins.
#include "engine.h"
#include "sanitizers.h"
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sys/mman.h>
#include <unistd.h>

extern "C" void hv_switch(void **save, void *to);

namespace hv {
Kernel *kernels;
Lane *cur;
Grid grid;

namespace {
constexpr unsigned MAX_THREADS = 1024;
constexpr size_t STACK = 256 << 10;

enum State : uint8_t { Ready, AtBarrier, AtWave, Done, Faulted };

struct Fiber {
  Lane lane;  // first: `cur` points here
  State state;
  Op op;              // at which it waits
  uint32_t number;    // wave operations so far
  uint64_t value[2];  // that it hands in; two, as a lane may reach the next operation before others read
  char synced[2];     // tags of the race checker, those of the wave with its first lane
  void *stack_pointer;
  sanitizers::Context context;
};
Fiber fibers[MAX_THREADS];
char *stacks;

void *engine_stack_pointer;
sanitizers::Context engine;
const uint16_t *next_lane, *last_lane;  // of the wave, in the order in which they run
uint64_t ballot;                        // of the wave operation that its lanes come from
// Tags of the race checker.
char block_starts, block_ends;  // of a block, or of guarded work
char barriers[2];
unsigned phase;  // barriers passed

void (*body)(void *);  // of the fibers that start
void *body_data;
volatile sig_atomic_t inside;  // a fiber
char problem[256];
struct sigaction old_segv, old_bus;

Fiber *current() { return reinterpret_cast<Fiber *>(cur); }

void to_engine(Fiber &fiber, bool for_ever) {
  sanitizers::before_switch(fiber.context, engine, for_ever);
  hv_switch(&fiber.stack_pointer, engine_stack_pointer);
  sanitizers::after_switch(fiber.context);
}
Fiber *next_ready() {
  while (next_lane != last_lane)
    if (Fiber &fiber = fibers[*next_lane++]; fiber.state == Ready) return &fiber;
  return nullptr;
}
// Switches to the wave's next lane, and from the last one to the engine.
void to_next(Fiber &fiber, bool for_ever) {
  Fiber *next = next_ready();
  if (!next) return to_engine(fiber, for_ever);
  cur = &next->lane;
  sanitizers::before_switch(fiber.context, next->context, for_ever);
  hv_switch(&fiber.stack_pointer, next->stack_pointer);
  sanitizers::after_switch(fiber.context);
}
void to_fiber(Fiber &fiber) {
  cur = &fiber.lane;
  inside = 1;
  sanitizers::before_switch(engine, fiber.context);
  hv_switch(&engine_stack_pointer, fiber.stack_pointer);
  sanitizers::after_switch(engine);
  inside = 0;
}

void entry() {
  Fiber &fiber = *current();
  sanitizers::after_switch(fiber.context, &engine);
  sanitizers::acquire(block_starts);
  body(body_data);
  sanitizers::release(block_ends);
  fiber.state = Done;
  to_next(fiber, true);
  abort();
}

// A fault of a kernel ends its fiber; the stack of the handler is abandoned.
void on_fault(int signal, siginfo_t *info, void *) {
  if (!inside) {  // not ours: let it recur
    sigaction(signal, signal == SIGSEGV ? &old_segv : &old_bus, nullptr);
    return;
  }
  snprintf(problem, sizeof problem, "illegal address %p", info->si_addr);
  current()->state = Faulted;
  to_engine(*current(), true);
}

void prepare_thread() {
  if (stacks) return;
  const size_t guard = (size_t)sysconf(_SC_PAGESIZE);
  stacks = (char *)mmap(nullptr, STACK * MAX_THREADS, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) abort();
  for (unsigned i = 0; i < MAX_THREADS; i++) mprotect(stacks + i * STACK, guard, PROT_NONE);
  static char handler_stack[65536];
  const stack_t on{handler_stack, 0, sizeof handler_stack};
  sigaltstack(&on, nullptr);
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, &old_segv);
  sigaction(SIGBUS, &action, &old_bus);
  sanitizers::adopt_thread(engine);
}

void start(unsigned i, Dim tid) {
  Fiber &fiber = fibers[i];
  fiber.lane = {tid, i};
  fiber.state = Ready;
  fiber.number = 0;
  sanitizers::prepare(fiber.context, stacks + i * STACK, STACK);
  // Tops that are whole STACKs apart would share a few sets of a cache.
  void **top = (void **)(stacks + (i + 1) * STACK - i % 64 * 7 * 64);
#if defined(__x86_64__)
  *--top = nullptr;  // keeps the stack aligned at the entry, as after a call
  *--top = (void *)entry;
  for (int k = 0; k < 6; k++) *--top = nullptr;
#else
  top -= 20;
  memset(top, 0, 160);
  top[11] = (void *)entry;
#endif
  fiber.stack_pointer = top;
}

bool fail(const char *why) {
  snprintf(problem, sizeof problem, "%s", why);
  return false;
}

// Runs the lanes order[from .. to) of a wave until all of them have returned or stand at a barrier.
bool run_wave(const uint16_t *order, unsigned from, unsigned to, bool &progress, unsigned &done,
              unsigned &waiting) {
  for (;;) {
    unsigned ended = 0, at_barrier = 0;
    const Fiber *at_wave = nullptr;
    next_lane = order + from;
    last_lane = order + to;
    if (Fiber *first = next_ready()) {
      to_fiber(*first);
      progress = true;
      if (current()->state == Faulted) return false;
    }
    ballot = 0;
    for (unsigned k = from; k < to; k++) {
      const Fiber &fiber = fibers[order[k]];
      ended += fiber.state == Done;
      at_barrier += fiber.state == AtBarrier;
      if (fiber.state != AtWave) continue;
      if (!at_wave) at_wave = &fiber;
      if (fiber.op != at_wave->op || fiber.number != at_wave->number)
        return fail("lanes of one wave are in different wave operations");
      ballot |= (fiber.value[fiber.number & 1] & 1) << (order[k] - from);
    }
    if (!at_wave) {
      done += ended;
      waiting += at_barrier;
      return true;
    }
    if (at_barrier) return fail("wave operation and __syncthreads mixed inside one wave (divergence)");
    if (ended) return fail("wave operation after some lanes of the wave have returned");
    for (unsigned k = from; k < to; k++) fibers[order[k]].state = Ready;
  }
}

bool run_block(const Kernel &kernel, unsigned threads, const uint16_t *order) {
  const unsigned wave = (unsigned)kernel.wave;
  // NaN in either precision, so that zero times it is not zero.
  if (kernel.shared) memset(kernel.shared, 0xFF, kernel.shared_end - kernel.shared);
  sanitizers::release(block_starts);
  for (unsigned i = 0; i < threads; i++) {
    const unsigned x = grid.bdim.x, y = grid.bdim.y;
    start(i, {i % x, i / x % y, i / (x * y)});
  }
  for (;;) {
    bool progress = false;
    unsigned done = 0, waiting = 0;
    for (unsigned from = 0; from < threads; from += wave)
      if (!run_wave(order, from, std::min(from + wave, threads), progress, done, waiting)) return false;
    if (done == threads) break;
    if (done && waiting) return fail("__syncthreads after some threads of the block have returned");
    if (!progress) return fail("deadlock inside a block");
    for (unsigned i = 0; i < threads; i++) fibers[i].state = Ready;
    phase++;
  }
  sanitizers::acquire(block_ends);
  return true;
}

struct Random {
  uint64_t state;
  uint64_t operator()() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
};

// The order of the lanes within each wave.
void shuffle_lanes(uint16_t *order, unsigned threads, unsigned wave, uint64_t seed, Random &random) {
  for (unsigned i = 0; i < threads; i++) order[i] = (uint16_t)i;
  for (unsigned from = 0; from < threads; from += wave) {
    uint16_t *first = order + from, *last = order + std::min(from + wave, threads);
    if (seed == 1) std::reverse(first, last);
    if (seed > 1)
      for (uint16_t *at = last - 1; at > first; at--)
        std::swap(*at, first[random() % (uint64_t)(at - first + 1)]);
  }
}
}  // namespace

void barrier() {
  Fiber &fiber = *current();
  fiber.state = AtBarrier;
  char &tag = barriers[phase & 1];
  sanitizers::release(tag);
  to_next(fiber, false);
  sanitizers::acquire(tag);
}

uint64_t wave_op(Op op, uint64_t v, uint32_t src, uint32_t width) {
  Fiber &fiber = *current();
  const unsigned slot = fiber.number & 1, first = fiber.lane.lin & ~(width - 1);
  const unsigned threads = grid.bdim.x * grid.bdim.y * grid.bdim.z;
  fiber.op = op;
  fiber.value[slot] = v;
  fiber.state = AtWave;
  if (op == Sync) sanitizers::release(fibers[first].synced[slot]);
  to_next(fiber, false);
  if (op == Sync) sanitizers::acquire(fibers[first].synced[slot]);
  fiber.number++;
  if (op != Shfl) return ballot;
  return first + src < threads ? fibers[first + src].value[slot] : 0xA5A5A5A5u;
}

const char *run_grid(const Kernel *kernel, Dim gdim, Dim bdim, void **arguments, uint64_t seed) {
  struct Call {
    const Kernel *kernel;
    void **arguments;
  } call{kernel, arguments};
  prepare_thread();
  body = [](void *data) { ((Call *)data)->kernel->invoke(((Call *)data)->arguments); };
  body_data = &call;
  grid.bdim = bdim;
  grid.gdim = gdim;

  const unsigned threads = bdim.x * bdim.y * bdim.z, wave = (unsigned)kernel->wave;
  const uint64_t blocks = (uint64_t)gdim.x * gdim.y * gdim.z;
  Random random{seed * 0x9E3779B97F4A7C15ull | 1};
  uint64_t stride = 1;  // from block to block, coprime to their number
  if (seed > 1 && blocks > 2)
    for (stride = random() % blocks; std::gcd(stride, blocks) != 1;) stride++;
  uint16_t order[MAX_THREADS];
  for (uint64_t i = 0; i < blocks; i++) {
    const uint64_t block = seed == 1 ? blocks - 1 - i : i * stride % blocks;
    grid.bid = {(unsigned)(block % gdim.x), (unsigned)(block / gdim.x % gdim.y),
                (unsigned)(block / gdim.x / gdim.y)};
    shuffle_lanes(order, threads, wave, seed, random);
    if (run_block(*kernel, threads, order)) continue;
    static char text[512];
    snprintf(text, sizeof text, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u), wave%u: %s", kernel->name,
             grid.bid.x, grid.bid.y, grid.bid.z, cur->tid.x, cur->tid.y, cur->tid.z, wave, problem);
    return text;
  }
  return nullptr;
}

const char *run_guarded(void (*work)(void *), void *data) {
  prepare_thread();
  body = work;
  body_data = data;
  next_lane = last_lane;  // a fault may have left some behind
  start(0, {0, 0, 0});
  sanitizers::release(block_starts);
  to_fiber(fibers[0]);
  sanitizers::acquire(block_ends);
  return fibers[0].state == Faulted ? problem : nullptr;
}
}  // namespace hv
