// SPDX-License-Identifier: MPL-2.0
//
// Runs every kernel on one small frame pair, the primitives of the prelude, and the deliberate mistakes.
#define HV_HOST 1
#define HV_WAVE 32  // of no meaning here
#include "../../kernels/frame.h"
#include "check.h"
#include "engine.h"
#include <cstring>
#include <memory>
#include <set>

namespace {
// Odd sizes, so that every border is within some tile; more than one tile in either direction.
constexpr int WIDTH = 251, HEIGHT = 45;

// Pictures of noise, as I420 where the sample has one byte and as P010 where it has two.
template <class T> class Frame {
 public:
  Frame() {
    HvFrame content{};
    for (int i = 0; i < 3; i++) content.ref[i] = plane(i), content.dis[i] = plane(i);
    for (HvPlane &earlier : content.earlier) earlier = plane(0);
    frame = std::make_unique<Array<HvFrame>>(std::vector<HvFrame>{content});
  }
  const HvFrame *data() const { return frame->data(); }
  static int width(int component) { return component ? WIDTH / 2 : WIDTH; }
  static int height(int component) { return component ? HEIGHT / 2 : HEIGHT; }

 private:
  HvPlane plane(int component) {
    const unsigned step = component && sizeof(T) == 2 ? 2 : 1;
    const size_t stride = (width(component) * step * sizeof(T) + 15) / 16 * 16;
    std::vector<uint8_t> bytes(stride * (size_t)height(component));
    for (uint8_t &byte : bytes) byte = (uint8_t)((random = random * 1103515245 + 12345) >> 16);
    planes.push_back(std::make_unique<Array<uint8_t>>(bytes));
    const auto shift = (uint16_t)(sizeof(T) == 1 ? 0 : 16 - bits);
    return {planes.back()->data() + (component == 2) * (step - 1) * sizeof(T), (uint32_t)stride, shift, (uint16_t)step};
  }

 public:
  static constexpr uint32_t bits = sizeof(T) == 1 ? 8 : 10;

 private:
  uint32_t random = 1;
  std::vector<std::unique_ptr<Array<uint8_t>>> planes;
  std::unique_ptr<Array<HvFrame>> frame;
};

unsigned tiles(int size, int tile) { return (unsigned)((size + tile - 1) / tile); }

class Run {
 public:
  // Launches and prints what the kernel added to `n` sums.
  template <class... A> void sums(const std::string &name, Shape shape, size_t n, A... arguments) {
    const Array<uint64_t> sums(std::vector<uint64_t>(n, 0));
    OK(launch(kernels[name], shape, nullptr, arguments..., sums.data()));
    seen.insert(name);
    printf("%s", name.c_str());
    for (const uint64_t sum : sums.read()) printf(" %llu", (unsigned long long)sum);
    printf("\n");
  }
  // All kernels of the plugin have run.
  void finish() const {
    const std::set<std::string> ours = {"selftest"};
    for (const hv::Kernel *kernel = hv::kernels; kernel; kernel = kernel->next)
      if (!ours.count(kernel->name) && strncmp(kernel->name, "bug_", 4) != 0 && !seen.count(kernel->name)) {
        fprintf(stderr, "check_kernels.cpp does not run the kernel %s\n", kernel->name);
        exit(1);
      }
  }

 private:
  Kernels kernels;
  std::set<std::string> seen;
};

template <class T> void run_all(Run &run, const std::string &type) {
  const Frame<T> frame;
  for (const uint32_t lag : {1u, 2u})
    run.sums("motion_" + type, {tiles(WIDTH, 240), tiles(HEIGHT, 20), 128}, 1, frame.data(), lag, WIDTH, HEIGHT,
             frame.bits);
  for (const int i : {0, 1, 2}) {
    const Shape shape{tiles(frame.width(i), 512 / (int)sizeof(T)), tiles(frame.height(i), 16), 256};
    run.sums("psnr_" + type, shape, 1, frame.data(), (uint32_t)i, frame.width(i), frame.height(i), frame.bits);
  }
}
}  // namespace

void run_kernels() {
  Run run;
  run_all<uint8_t>(run, "u8");
  run_all<uint16_t>(run, "u16");
  run.finish();
}

void run_selftest() {
  constexpr uint32_t N = 64;
  int wave;
  OK(hipDeviceGetAttribute(&wave, 87, 0));
  const auto W = (uint32_t)wave;
  std::vector<HvU32x4> quads;
  for (uint32_t i = 0; i < 4; i++) quads.push_back({{i * 77777777u, i * 99999989u + 1, i * 123456789u, ~(i * 55555u)}});
  uint8_t bytes[64];
  uint16_t halves[32];
  uint32_t words[16];
  memcpy(bytes, quads.data(), 64);
  memcpy(halves, quads.data(), 64);
  memcpy(words, quads.data(), 64);

  const auto value = [](uint32_t t) { return t * 2654435761u; };
  std::vector<uint32_t> expected;
  const auto expect = [&](auto group) {
    for (uint32_t t = 0; t < N; t++) expected.push_back((uint32_t)group(t));
  };
  const auto dot = [&](uint32_t t, auto sample) {
    uint32_t a = value(t), b = a ^ 0x5a5a5a5au, sum = t;
    for (int i = 0; i < 32; i += 8) sum += (uint32_t)(sample(a >> i) * sample(b >> i));
    return sum;
  };
  const auto over_wave = [&](uint32_t t, auto term) {
    uint64_t sum = 0;
    for (uint32_t lane = 0; lane < W; lane++) sum += term(t - t % W + lane);
    return sum;
  };
  expect([&](uint32_t t) { return t % W; });
  expect([&](uint32_t t) { return value(t ^ 5); });
  expect([&](uint32_t t) { return value(t % W + 3 < W ? t + 3 : t); });
  expect([&](uint32_t t) { return value(t - t % W + 7); });
  expect([&](uint32_t t) { return over_wave(t, [&](uint32_t u) { return value(u) >> 16 & 1; }); });
  expect([&](uint32_t t) { return dot(t, [](uint32_t v) { return (int)(uint8_t)v; }); });
  expect([&](uint32_t t) { return dot(t, [](uint32_t v) { return (int)(int8_t)v; }); });
  expect([&](uint32_t t) { return (uint32_t)__builtin_clzll(2ull * (value(t) >> (t & 31)) + 1) - 31 + N * 100 + 10000; });
  expect([&](uint32_t t) { return (int64_t)((int32_t)value(t) >> 9) * -7919 + t; });
  expect([&](uint32_t t) { return bytes[t] + halves[t % 32]; });
  expect([&](uint32_t t) { return words[t % 4 * 4] ^ words[t % 4 * 4 + 3] ^ words[t % 8 * 2 + 1] ^ words[t % 16]; });
  expect([&](uint32_t t) { return over_wave(t, [&](uint32_t u) { return (uint64_t)value(u); }); });

  const Array<uint32_t> out(expected.size()), counters(std::vector<uint32_t>{5, 5});
  const Array<uint64_t> wide(std::vector<uint64_t>{5, 5});
  const Array<HvU32x4> table(quads);
  const Kernels kernels;
  OK(launch(kernels["selftest"], {1, 1, N}, nullptr, out.data(), table.data(), counters.data(), wide.data()));
  const std::vector<uint32_t> found = out.read();
  for (size_t i = 0; i < expected.size(); i++) {
    if (found[i] == expected[i]) continue;
    fprintf(stderr, "selftest: group %zu, thread %zu: %u, not %u\n", i / N, i % N, found[i], expected[i]);
    exit(1);
  }
  constexpr uint32_t TOTAL = N * (N - 1) / 2;
  EXPECT((counters.read() == std::vector<uint32_t>{5 + TOTAL, N - 1}));
  EXPECT((wide.read() == std::vector<uint64_t>{5 + ((uint64_t)TOTAL << 33), 5 + ((uint64_t)TOTAL << 31)}));
}

bool caught(const std::string &bug) {
  constexpr uint32_t BLOCKS = 4, THREADS = 256;
  const Array<uint32_t> out(BLOCKS * THREADS);
  const Kernels kernels;
  OK(launch(kernels[bug], {BLOCKS, 1, THREADS}, nullptr, out.data()));
  const bool failed = hipDeviceSynchronize() != hipSuccess;
  swhip_revive();
  if (failed) return true;
  const std::vector<uint32_t> found = out.read();
  for (uint32_t i = 0; i < found.size(); i++) {
    const uint32_t t = i % THREADS, block = i / THREADS;
    const bool wrong = bug == "bug_no_barrier"      ? found[i] != 255 - t
                       : bug == "bug_overwrite"     ? found[i] != ((t + 64) & 255) + 7
                       : bug == "bug_wave32"        ? found[i] != 32640
                       : bug == "bug_uninitialised" ? found[i] != 0
                       : bug == "bug_blocks"        ? t == 0 && found[i] != block + 1
                                                    : false;
    if (wrong) return true;
  }
  return false;
}
