// SPDX-License-Identifier: MPL-2.0
//
// Runs every kernel on one small frame pair, the primitives of the prelude, and the deliberate mistakes.
#include "check.h"
#include "engine.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <set>

// The kernels' argument structures and tile sizes. Their other definitions are not used here.
#undef HV_EXPORT
#define HV_EXPORT(name)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
namespace {
#include "../../kernels/adm.hip"
#include "../../kernels/ansnr.hip"
#include "../../kernels/cambi.hip"
#include "../../kernels/ciede.hip"
#include "../../kernels/cvvdp.hip"
#include "../../kernels/damage.hip"
#include "../../kernels/float_adm.hip"
#include "../../kernels/float_motion.hip"
#include "../../kernels/float_vif.hip"
#include "../../kernels/frame.hip"
#include "../../kernels/moments.hip"
#include "../../kernels/motion.h"
#include "../../kernels/ordered.hip"
#include "../../kernels/psnr.hip"
#include "../../kernels/psnr_hvs.hip"
#include "../../kernels/scale.hip"
#include "../../kernels/speed.hip"
#include "../../kernels/ssim.h"
#include "../../kernels/ssimulacra2.hip"
#include "../../kernels/vif.h"
#include "../../kernels/xpsnr.hip"
}  // namespace
#pragma GCC diagnostic pop

namespace {
// Odd sizes, so that every border is inside a tile; more than one tile in each direction.
constexpr int WIDTH = 251, HEIGHT = 45;

// A flat corner and texture elsewhere, with different noise in each picture. I420 for samples of one byte, P010 for
// two.
template <class T>
class Frame {
 public:
  static constexpr uint32_t bits = sizeof(T) == 1 ? 8 : 10;

  Frame() {
    HvFrame content{};
    for (int i = 0; i < 3; i++) content.reference[i] = plane(i), content.distorted[i] = plane(i);
    for (HvPlane &earlier : content.earlier) earlier = plane(0);
    HvFrame other = content;
    for (int i = 0; i < 3; i++) other.distorted[i] = plane(i);
    frame = std::make_unique<Array<HvFrame>>(std::vector<HvFrame>{content, other});
  }
  // For a group of two distorted pictures.
  const HvFrame *data() const { return frame->data(); }
  HvPlane plane_of(int component) const { return frame->read()[0].distorted[component]; }
  HvPlane luma() const { return frame->read()[0].reference[0]; }
  HvPlane earlier() const { return frame->read()[0].earlier[0]; }
  static int width(int component) { return component ? WIDTH / 2 : WIDTH; }
  static int height(int component) { return component ? HEIGHT / 2 : HEIGHT; }

 private:
  uint32_t level(int x, int y) {
    random = random * 1103515245 + 12345;
    if (x < 40 && y < 30) return 100;
    const uint32_t texture = (uint32_t)(x * y / 8 + (x / 16 + y / 16) % 3 * 60), noise = (random >> 16) % 32;
    return (texture + noise) % (1u << bits);
  }
  HvPlane plane(int component) {
    const int step = component && sizeof(T) == 2 ? 2 : 1, shift = sizeof(T) == 1 ? 0 : 16 - bits;
    const int first = component == 2 ? step - 1 : 0, samples = (width(component) * step + 15) / 16 * 16;
    std::vector<T> values((size_t)(samples * height(component)));
    for (int y = 0; y < height(component); y++)
      for (int x = 0; x < width(component); x++)
        values[(size_t)(y * samples + first + x * step)] = (T)(level(x, y) << shift);
    planes.push_back(std::make_unique<Array<T>>(values));
    const auto stride = (uint32_t)(samples * (int)sizeof(T));
    return {(const uint8_t *)(planes.back()->data() + first), stride, (uint16_t)shift, (uint16_t)step};
  }

  uint32_t random = 1;
  std::vector<std::unique_ptr<Array<T>>> planes;
  std::unique_ptr<Array<HvFrame>> frame;
};

// Threads of a wave of the device in use.
unsigned wave() {
  int wave;
  OK(hipDeviceGetAttribute(&wave, 87, 0));
  return (unsigned)wave;
}

unsigned tiles(int size, int tile) { return (unsigned)((size + tile - 1) / tile); }

class Run {
 public:
  template <class... A>
  void one(const std::string &name, Shape shape, A... arguments) {
    OK(launch(kernels[name], shape, nullptr, arguments...));
    seen.insert(name);
  }
  // Launches a kernel and prints the amounts that it added to `n` sums.
  template <class... A>
  void sums(const std::string &name, Shape shape, size_t n, A... arguments) {
    const Array<uint64_t> sums(std::vector<uint64_t>(n, 0));
    one(name, shape, arguments..., sums.data());
    printf("%s", name.c_str());
    for (const uint64_t sum : sums.read()) printf(" %llu", (unsigned long long)sum);
    printf("\n");
  }
  // Checks that all kernels of the plugin have run.
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

template <class T>
std::string kernel_name(const char *name) {
  return name + std::string(sizeof(T) == 1 ? "_u8" : "_u16");
}

template <class T>
void run_motion(Run &run, const Frame<T> &frame) {
  const Shape shape{tiles(WIDTH, MOTION_TILE_W), tiles(HEIGHT, MOTION_TILE_H), MOTION_THREADS};
  for (const uint32_t lag : {1u, 2u})
    run.sums(kernel_name<T>("motion"), shape, 1, frame.data(), lag, WIDTH, HEIGHT, frame.bits);
}

template <class T>
void run_psnr(Run &run, const Frame<T> &frame) {
  for (const int i : {0, 1, 2}) {
    const int w = frame.width(i), h = frame.height(i);
    const Shape shape{tiles(w, 32 * PSNR_SAMPLES(T)), tiles(h, PSNR_TILE_H), PSNR_THREADS};
    run.sums(kernel_name<T>("psnr"), shape, 1, frame.data(), (uint32_t)i, w, h, frame.bits);
  }
}

// Planes of terms of the size of the picture, one after the other in the scratch of a pair.
class Ordered {
 public:
  static constexpr uint32_t stride = (WIDTH + 3) / 4 * 4, size = stride * HEIGHT + (HEIGHT + 3) / 4 * 4;

  explicit Ordered(uint32_t count) : count(count), planes(table(count)) {}
  uint32_t pitch() const { return count * size; }
  // Adds the terms of some pairs.
  void sums(Run &run, uint32_t pairs, float *scratch) const {
    run.one("ordered_rows", {tiles(HEIGHT, ORDERED_ROWS), count * pairs, ORDERED_THREADS}, planes.data(), count, pitch(), scratch);
    run.sums("ordered_sums", {count, pairs, ORDERED_THREADS}, count * pairs, planes.data(), pitch(), scratch, count);
  }

 private:
  static std::vector<HvTerms> table(uint32_t count) {
    std::vector<HvTerms> planes;
    for (uint32_t i = 0; i < count; i++) planes.push_back({i * size, stride, WIDTH, HEIGHT, i * size + stride * HEIGHT, i});
    return planes;
  }
  uint32_t count;
  Array<HvTerms> planes;
};

template <class T>
void run_ansnr(Run &run, const Frame<T> &frame) {
  constexpr uint32_t PAIRS = 2;
  const Ordered ordered(2);
  const Array<float> scratch(PAIRS * ordered.pitch());
  const AnsnrTerms terms{0, Ordered::size, Ordered::stride, ordered.pitch()};
  const Shape shape{tiles(WIDTH, ANSNR_TILE_W), PAIRS * tiles(HEIGHT, ANSNR_TILE_H), ANSNR_THREADS};
  run.one(kernel_name<T>("ansnr"), shape, frame.data(), WIDTH, HEIGHT, frame.bits, sizeof(T) == 1 ? 1.0f : 0.25f, terms,
          scratch.data());
  ordered.sums(run, PAIRS, scratch.data());
}

template <class T>
void run_float_motion(Run &run, const Frame<T> &frame) {
  const Ordered ordered(1);
  const Array<float> scratch(ordered.pitch());
  const FloatMotionTerms terms{{0.05f, 0.25f, 0.4f, 0.25f, 0.05f}, 0, Ordered::stride};
  const Shape shape{tiles(WIDTH, FLOAT_MOTION_TILE_W), tiles(HEIGHT, FLOAT_MOTION_TILE_H), FLOAT_MOTION_THREADS};
  run.one(kernel_name<T>("float_motion"), shape, frame.data(), WIDTH, HEIGHT, frame.bits, sizeof(T) == 1 ? 1.0f : 0.25f, terms,
          scratch.data());
  ordered.sums(run, 1, scratch.data());
}

template <class T>
void run_moments(Run &run, const Frame<T> &frame) {
  constexpr uint32_t PAIRS = 2, PITCH = MOMENTS_SUMS + MOMENTS_KINDS;
  const Shape shape{tiles(WIDTH, 32 * MOMENTS_SAMPLES(T)), PAIRS * tiles(HEIGHT, MOMENTS_TILE_H), MOMENTS_THREADS};
  run.sums(kernel_name<T>("moments"), shape, PAIRS * PITCH, frame.data(), WIDTH, HEIGHT, frame.bits, PITCH);
  if (sizeof(T) == 1) return;
  // As if the sums of squares had more than 53 bits, but for one of them.
  std::vector<uint64_t> large(PAIRS * PITCH, 1ull << 53);
  large[2] = 0;
  const Array<uint64_t> sums(large);
  run.one("moments_ordered", {MOMENTS_KINDS, PAIRS, MOMENTS_THREADS}, frame.data(), WIDTH, HEIGHT, frame.bits, PITCH, sums.data());
  printf("moments_ordered");
  for (const uint64_t sum : sums.read()) printf(" %llu", (unsigned long long)sum);
  printf("\n");
}

template <class T>
void run_damage(Run &run, const Frame<T> &frame) {
  const unsigned columns = tiles(WIDTH, DAMAGE_CELL), rows = tiles(HEIGHT, DAMAGE_CELL);
  const Shape shape{tiles((int)columns, DAMAGE_CELLS), rows, DAMAGE_THREADS};
  run.sums(kernel_name<T>("damage"), shape, 2 * columns * rows, frame.data(), frame.bits, WIDTH, HEIGHT);
}

template <class T>
void run_xpsnr(Run &run, const Frame<T> &frame) {
  const int width = frame.width(1), height = frame.height(1);
  // Blocks whose chroma begins at the first, and at the third of four samples.
  for (const int block : {16, 20})
    for (const bool large : {false, true})
      for (const uint32_t order : {0u, 1u}) {
        const int columns = (WIDTH + block - 1) / block, rows = (HEIGHT + block - 1) / block;
        const XpsnrLayout layout{{WIDTH, HEIGHT}, block, columns, {width, height}, {width + 1, height + 1},
                                 {block / 2, block / 2}, frame.bits, order};
        const Shape shape{(unsigned)columns, (unsigned)rows, XPSNR_THREADS};
        run.sums(kernel_name<T>(large ? "xpsnr_large" : "xpsnr"), shape, (size_t)(XPSNR_SUMS * columns * rows), frame.data(),
                 layout, 1 - order);
      }
}

// A launch of the window for several picture pairs.
class SsimWindows {
 public:
  SsimWindows() {
    for (SsimPair &pair : pairs.at) pair.first = UINT32_MAX;
  }
  // Adds a pair; one of luma if `planes` is null.
  void add(const SsimPlanes &planes, int width, int height, int rows, SsimMoments *kept, bool all_terms = true) {
    constexpr double BIAS = 4096.0;
    const unsigned columns = tiles(width - SSIM_WINDOW + 1, SSIM_TILE);
    pairs.at[count] = {planes, kept, sums.data() + 4 * count, BIAS, width, height, rows, columns, blocks, all_terms};
    blocks += columns * tiles(height - SSIM_WINDOW + 1, rows);
    count++;
  }
  // Returns the sums of all pairs; `picture` is that of the group.
  template <class T>
  std::vector<uint64_t> launch(Run &run, const Frame<T> &frame, int picture) const {
    const unsigned threads = picture ? SSIM_MAP_THREADS(1) : SSIM_MAP_THREADS(2);
    run.one(name<T>(picture), {blocks, 1, threads}, frame.data() + picture, frame.bits, pairs);
    std::vector<uint64_t> values = sums.read();
    values.resize(4 * count);
    return values;
  }
  // The same, and prints them.
  template <class T>
  std::vector<uint64_t> print(Run &run, const Frame<T> &frame, int picture) const {
    const std::vector<uint64_t> values = launch(run, frame, picture);
    for (size_t i = 0; i < values.size(); i += 4)
      printf("%s %llu %llu %llu %llu\n", name<T>(picture).c_str(), (unsigned long long)values[i],
             (unsigned long long)values[i + 1], (unsigned long long)values[i + 2], (unsigned long long)values[i + 3]);
    return values;
  }

 private:
  template <class T>
  static std::string name(int picture) {
    return kernel_name<T>(picture ? "ssim_map_later" : "ssim_map");
  }

  SsimPairs pairs{};
  size_t count = 0;
  unsigned blocks = 0;
  Array<uint64_t> sums{std::vector<uint64_t>(4 * SSIM_PAIRS, 0)};
};

// Samples of a row of a decimated picture.
constexpr int whole_groups(int width) { return (width + 3) / 4 * 4; }

template <class T>
void run_ssim(Run &run, const Frame<T> &frame) {
  constexpr int ROWS = 20, LOW_PASS_ROWS = 6, FACTOR = 3;
  constexpr int MOST = whole_groups(WIDTH) * HEIGHT;
  const Array<float> memory(6 * MOST);
  std::vector<std::unique_ptr<Array<SsimMoments>>> kept;
  for (int i = 0; i < 4; i++) kept.push_back(std::make_unique<Array<SsimMoments>>(WIDTH * HEIGHT));
  const int w2 = (WIDTH + 1) / 2, h2 = (HEIGHT + 1) / 2, w4 = (w2 + 1) / 2, h4 = (h2 + 1) / 2;
  const int w3 = WIDTH / FACTOR + 1, h3 = HEIGHT / FACTOR + 1;
  const auto planes = [&](int i, int w) {
    float *at = memory.data() + 2 * i * MOST;
    return SsimPlanes{at, at + MOST, (uint32_t)whole_groups(w)};
  };
  const SsimPlanes half = planes(0, w2), quarter = planes(1, w4), third = planes(2, w3);
  const auto add = [&](SsimWindows &windows, bool keep) {
    const auto kept_of = [&](int i) { return keep ? kept[i]->data() : nullptr; };
    windows.add({}, WIDTH, HEIGHT, ROWS, kept_of(0));
    windows.add(half, w2, h2, ROWS, kept_of(1), false);
    windows.add(quarter, w4, h4, ROWS, kept_of(2));
    windows.add(third, w3, h3, ROWS, kept_of(3));
  };
  // The pairs of a group.
  for (const int picture : {0, 1}) {
    const HvFrame *pair = frame.data() + picture;
    const unsigned pictures = picture ? 1 : 2;
    const auto low_pass = [&](int w, int h) {
      return Shape{pictures * tiles(w, SSIM_LOW_PASS_COLUMNS), tiles(h, LOW_PASS_ROWS), SSIM_THREADS};
    };
    run.one(kernel_name<T>("ssim_low_pass"), low_pass(w2, h2), pair, frame.bits, WIDTH, HEIGHT, LOW_PASS_ROWS, half);
    run.one("ssim_low_pass", low_pass(w4, h4), half, w2, h2, LOW_PASS_ROWS, quarter);
    run.one(kernel_name<T>("ssim_box"), {pictures * tiles(w3, 32), tiles(h3, SSIM_BOX_TILE_H), SSIM_THREADS}, pair,
            frame.bits, WIDTH, HEIGHT, FACTOR, w3, h3, third);
    SsimWindows windows;
    add(windows, true);
    const std::vector<uint64_t> sums = windows.print(run, frame, picture);
    if (picture) continue;
    // Data of the reference is not kept if no pair follows, and a launch may be full.
    SsimWindows full;
    for (int i = 0; i < SSIM_PAIRS / 4; i++) add(full, false);
    const std::vector<uint64_t> all = full.launch(run, frame, picture);
    for (size_t i = 0; i < all.size(); i++) EXPECT(all[i] == sums[i % sums.size()]);
  }
}

// The window on pictures that end at the border of a tile, beside it, or before it. Some samples are zero, others
// negative.
template <class T>
void run_ssim_borders(Run &run, const Frame<T> &frame) {
  constexpr int ROWS = 54, MOST = 75, PITCH = whole_groups(MOST), SIZE = PITCH * MOST;
  std::vector<float> values;
  uint32_t random = 1;
  for (int i = 0; i < 2 * SIZE; i++) {
    random = random * 1103515245 + 12345;
    const int x = i % PITCH, y = i / PITCH % MOST;
    const float noise = (float)(random >> 16) / 256;
    values.push_back(x < 20 && y < 20 ? 0 : x > 45 && y < 25 ? noise - 20 : noise);
  }
  const Array<float> memory(values);
  const Array<SsimMoments> kept(2 * MOST * MOST);
  const SsimPlanes planes{memory.data(), memory.data() + SIZE, PITCH};
  for (const int w : {11, 12, 42, 43, 74, MOST})
    for (const int h : {11, 12, 42, 43, 64, 65, MOST})
      for (const int picture : {0, 1}) {
        SsimWindows windows;
        windows.add(planes, w, h, ROWS, kept.data());
        if (h <= HEIGHT) windows.add({}, w, h, ROWS, kept.data() + MOST * MOST, false);
        windows.print(run, frame, picture);
      }
  constexpr int HALF = (MOST + 1) / 2, HALF_SIZE = HALF * whole_groups(HALF);
  const Array<float> half_memory(2 * HALF_SIZE);
  const SsimPlanes half{half_memory.data(), half_memory.data() + HALF_SIZE, whole_groups(HALF)};
  for (const int picture : {0, 1}) {
    const unsigned pictures = picture ? 1 : 2;
    run.one("ssim_low_pass", {pictures, tiles(HALF, ROWS), SSIM_THREADS}, planes, MOST, MOST, ROWS, half);
    SsimWindows windows;
    windows.add(half, HALF, HALF, ROWS, kept.data());
    windows.print(run, frame, picture);
  }
}

// The low pass of decimated pictures by columns and in the order of its taps: a sample that is too small for the former, in
// the picture that is the reference here, changes the results that it reaches and no others. Samples have all bits, from
// the least that is added up by columns to the largest that there can be.
void run_ssim_low_pass(Run &run) {
  constexpr int WIDTH = 2 * SSIM_LOW_PASS_COLUMNS - 3, PITCH = whole_groups(WIDTH), HEIGHT = 60, ROWS = 12;
  constexpr int TO_PITCH = whole_groups((WIDTH + 1) / 2), TO_HEIGHT = HEIGHT / 2;
  constexpr int SIZE = PITCH * HEIGHT, TO_SIZE = TO_PITCH * TO_HEIGHT;
  constexpr float MOST = 1770;
  std::mt19937_64 random(1);
  std::vector<float> values(2 * SIZE);
  for (int i = 0; i < SIZE; i++) {
    const float least = i / PITCH < HEIGHT / 2 ? SSIM_EXACT : SSIM_EXACT * (float)(1 << random() % 16);
    const auto bits = __builtin_bit_cast(uint32_t, least) | (uint32_t)(random() % (1 << 23));
    values[i] = hv_min(i % 7 ? __builtin_bit_cast(float, bits) : i % 2 ? MOST : SSIM_EXACT, MOST);
    values[SIZE + i] = values[i];
  }
  // One for each block.
  for (int y = 0; y < HEIGHT; y += 2 * ROWS) values[SIZE + y * PITCH] = 0.99f * SSIM_EXACT;
  const Array<float> memory(values), half_memory(2 * TO_SIZE);
  const SsimPlanes planes{memory.data(), memory.data() + SIZE, PITCH};
  const SsimPlanes half{half_memory.data(), half_memory.data() + TO_SIZE, TO_PITCH};
  run.one("ssim_low_pass", {2, tiles(TO_HEIGHT, ROWS), SSIM_THREADS}, planes, WIDTH, HEIGHT, ROWS, half);
  const std::vector<float> results = half_memory.read();
  int different = 0;
  for (int i = 0; i < TO_SIZE; i++) {
    const bool same = __builtin_bit_cast(uint32_t, results[i]) == __builtin_bit_cast(uint32_t, results[TO_SIZE + i]);
    EXPECT(same || i % TO_PITCH <= 2);
    different += !same;
  }
  EXPECT(different > 0);
}

// The weights differ from those of crates/engine/src/metrics/psnr_hvs.rs, which does not matter here.
template <class T>
void run_psnr_hvs(Run &run, const Frame<T> &frame) {
  constexpr uint32_t PAIRS = 2, LEAST_WAVE = 32;
  std::vector<HvsWeights> weights;
  for (int i = 0; i < 3 * 64; i++) {
    const float weight = 1.5f / (float)(1 + i % 64 / 8 + i % 8);
    weights.push_back({weight, weight, 1 / weight, 0});
  }
  const Array<HvsWeights> tables(weights);
  HvsLayout layout{};
  uint32_t pitch = 0;
  const auto take = [&](uint32_t count) {
    const uint32_t first = pitch;
    pitch += (count + 1) / 2 * 2;
    return first;
  };
  unsigned grid = 0;
  for (const int i : {0, 1, 2}) {
    const auto blocks = [](int extent) { return (uint32_t)((extent - 8) / HVS_STEP + 1); };
    layout.columns[i] = blocks(frame.width(i)), layout.blocks[i] = layout.columns[i] * blocks(frame.height(i));
    layout.errors[i] = take(64 * layout.blocks[i]), layout.totals[i] = take(layout.blocks[i]);
    layout.waves[i] = take(tiles((int)layout.blocks[i], HVS_THREADS) * HVS_THREADS / LEAST_WAVE);
    layout.additions[i] = take(2 * layout.blocks[i]);
    grid += tiles((int)layout.blocks[i], HVS_THREADS);
  }
  const Array<float> scratch(PAIRS * pitch);
  run.one(kernel_name<T>("psnr_hvs"), {grid, 1, HVS_THREADS}, frame.data(), frame.bits, layout, tables.data(), PAIRS, pitch,
          scratch.data());
  run.one("psnr_hvs_additions", {grid, PAIRS, HVS_THREADS}, layout, pitch, scratch.data());
  run.sums("psnr_hvs_sum", {3, PAIRS, HVS_SUM_THREADS}, 3 * PAIRS, layout, pitch, scratch.data(), 3u);
}

// The table is that of a processor that divides, which does not matter here.
template <class T>
void run_float_adm(Run &run, const Frame<T> &frame) {
  constexpr uint32_t PAIRS = 2, SETS = 3, SUMS = 12;
  std::vector<uint32_t> estimates;
  for (uint32_t i = 0; i < 4096; i++) {
    const float inverse = 1 / (1 + (float)i / 4096);
    estimates.push_back(0);
    memcpy(&estimates.back(), &inverse, sizeof inverse);
  }
  const Array<uint32_t> table(estimates);
  FloatAdmLayout layout{};
  uint32_t blocks = 0;
  int width = WIDTH, height = HEIGHT;
  for (FloatAdmScale &scale : layout.scales) {
    scale.in_width = width, scale.in_height = height;
    scale.width = width = (width + 1) / 2, scale.height = height = (height + 1) / 2;
    const auto margin = [](int extent) { return extent < 5 ? 0 : (extent - 5) / 10; };
    scale.left = margin(width), scale.columns = width - 2 * scale.left;
    scale.top = margin(height), scale.rows = height - 2 * scale.top;
    scale.stride = tiles(width, 32) * 32, scale.terms_stride = tiles(scale.columns, 4) * 4;
    scale.bands = layout.picture, scale.terms = layout.set;
    scale.area = scale.terms_stride * (uint32_t)scale.rows + tiles(scale.rows, 4) * 4;
    scale.tile = blocks, scale.across = tiles(scale.columns, fadm::MASK_W);
    layout.picture += 4 * scale.stride * (uint32_t)height;
    layout.set += 3 * scale.area;
    blocks += scale.across * tiles(scale.rows, fadm::MASK_H);
  }
  layout.pair = SETS * layout.set;
  std::vector<HvTerms> all;
  for (uint32_t i = 0; i < SETS * SUMS; i++) {
    const FloatAdmScale &scale = layout.scales[i % SUMS / 3];
    const uint32_t first = i / SUMS * layout.set + scale.terms + i % 3 * scale.area;
    const auto columns = (uint32_t)scale.columns, rows = (uint32_t)scale.rows;
    all.push_back({first, scale.terms_stride, columns, rows, first + scale.terms_stride * rows, i});
  }
  const Array<HvTerms> planes(all);
  const Array<float> bands((1 + PAIRS) * layout.picture), terms(PAIRS * layout.pair);
  for (int s = 0; s < FADM_SCALES; s++) {
    FloatAdmScale scale = layout.scales[s];
    scale.across = tiles(scale.width, fadm::TRANSFORM_W);
    const Shape shape{scale.across * tiles(scale.height, fadm::TRANSFORM_H), 1 + PAIRS, FADM_THREADS};
    if (s == 0)
      run.one(kernel_name<T>("float_adm"), shape, frame.data(), frame.bits, scale, layout.picture, bands.data());
    else
      run.one("float_adm_transform", shape, layout.scales[s - 1], scale, layout.picture, bands.data());
  }
  for (const bool all_terms : {false, true}) {
    FloatAdmPass pass{};
    pass.gain_limit = all_terms ? 1.2 : 100, pass.masks = pass.aim = all_terms;
    for (auto &weights : pass.weights) weights[0] = 0.02f, weights[1] = 0.01f;
    const uint32_t *const estimated = all_terms ? table.data() : nullptr;
    run.one("float_adm_mask", {blocks, PAIRS, FADM_THREADS}, layout, pass, estimated, (const float *)bands.data(),
            terms.data());
    const uint32_t count = (all_terms ? SETS : SETS - 1) * SUMS;  // the first pair has all sets
    run.one("ordered_rows", {tiles(layout.scales[0].rows, ORDERED_ROWS), count, ORDERED_THREADS}, planes.data(), count,
            layout.pair, terms.data());
    run.sums("ordered_sums", {count, 1, ORDERED_THREADS}, count, planes.data(), layout.pair, (const float *)terms.data(),
             count);
  }
}

template <class T>
void run_ciede(Run &run, const Frame<T> &frame) {
  const double unit = 1 << (frame.bits - 8);
  const CiedeRange range{16 * unit, 1 / (219 * unit), 128 * unit, 1 / (224 * unit)};
  for (const uint32_t pictures : {1u, 2u})
    run.sums(kernel_name<T>("ciede") + (pictures > 1 ? "_group" : ""),
             {tiles(WIDTH, CIEDE_THREADS), tiles(HEIGHT, CIEDE_ROWS), CIEDE_THREADS}, pictures, frame.data(), frame.bits, WIDTH,
             HEIGHT, frame.width(1), frame.height(1), range, 65536.0, pictures, 1u);
}

// Two distorted pictures. Chroma has fewer columns and rows than luma, or is taken for chroma of a larger picture's size.
template <class T>
void run_ssimulacra2(Run &run, const Frame<T> &frame) {
  constexpr uint32_t PAIRS = 2, MARGIN = SS2_MARGIN, SUMS = 9 * 4 * SS2_SCALES;
  Ssimulacra2Layout layout{};
  unsigned grid = 0;
  for (int s = 0, width = WIDTH, height = HEIGHT; s < SS2_SCALES; s++) {
    // The heights of all scales but the last are at least 8 before they are halved.
    Ssimulacra2Scale &scale = layout.at[s];
    scale.first = ~0u;
    if (s > 0 && hv_min(layout.at[s - 1].width, layout.at[s - 1].height) < 8) continue;
    const uint32_t columns = tiles(width, SS2_TILE_W), rows = tiles(height, SS2_TILE_H);
    const uint32_t pitch = MARGIN + columns * SS2_TILE_W + MARGIN, plane = pitch * (rows * SS2_TILE_H + 2 * SS2_REACH);
    scale = {layout.picture + pitch * SS2_REACH + MARGIN, plane, pitch, width, height, columns, grid};
    layout.picture += 3 * plane, grid += columns * rows;
    width = (width + 1) / 2, height = (height + 1) / 2;
  }
  std::vector<uint32_t> steps;
  for (int i = 0; i < 2 * SS2_STEPS; i++) {
    const auto light = [](int at) { return (float)at * (float)at * (1.0f / (SS2_STEPS * SS2_STEPS)); };
    steps.push_back(__builtin_bit_cast(uint32_t, light(i)));
    steps.push_back(__builtin_bit_cast(uint32_t, light(i + 1) - light(i)));
  }
  const Array<uint32_t> table(steps);
  for (const uint32_t whole : {0u, 1u}) {
    const int scale = whole ? 1 : 16 * 128;
    const auto white = (float)(1 << frame.bits), unit = 1 / white / (float)scale;
    const Ssimulacra2Conversion conversion{0, 1 / white, scale << (frame.bits - 1), 1.5f * unit, -0.2f * unit, -0.5f * unit,
                                           1.8f * unit, {{0, 0, 16, 0, 0}, {0, -1, 9, 9, -1}},
                                           {{-3, 29, 111, -9, 0}, {0, -9, 111, 29, -3}}, whole, whole, 1 + whole, whole,
                                           {{1.2f, -0.2f, 0}, {0, 1, 0}, {0, -0.1f, 1.1f}}};
    const Array<float> pictures(std::vector<float>((1 + PAIRS) * (size_t)layout.picture, 0));
    run.one(kernel_name<T>("ssimulacra2_convert"),
            {tiles(WIDTH, SS2_BLOCK) * (1 + PAIRS), tiles(HEIGHT, SS2_BLOCK), SS2_CONVERT_THREADS}, frame.data(), frame.bits,
            frame.width(1), frame.height(1), conversion, (const HvU32x2 *)table.data(), layout, pictures.data());
    run.sums("ssimulacra2_compare", {grid, 3 * PAIRS, SS2_COMPARE_THREADS}, PAIRS * SUMS, (const float *)pictures.data(), layout,
             SUMS);
  }
}

// Rows of two steps, with and without the sums of scale 0, and with quotients by the noise.
template <class T>
void run_float_vif(Run &run, const Frame<T> &frame) {
  const Array<float> planes(std::vector<float>(2 * WIDTH * HEIGHT, 0)), rows(std::vector<float>(4 * HEIGHT, 0));
  for (const unsigned pictures : {2u, 1u}) {
    FloatVifStrips strips{};
    std::vector<HvTerms> sums;
    strips.gain_limit = 100, strips.flat_factor = 4.0f / 65025, strips.noise_limit = 2;
    strips.inverse = pictures == 2 ? 0.5f : 0.0f, strips.noise = 2;
    float *plane = planes.data(), *row = rows.data();
    unsigned blocks = 0;
    for (int scale = 0; scale < FLOAT_VIF_SCALES; scale++) {
      const int width = WIDTH >> scale, height = HEIGHT >> scale, taps = (16 >> scale) + 1;
      for (int k = 0; k < taps; k++) strips.taps[scale][k] = 1.0f / (float)taps;
      FloatVifScale &at = strips.scales[scale];
      if (scale > 0) {
        const FloatVifScale &above = strips.scales[scale - 1];
        at.planes = {plane, plane + width * height, (uint32_t)width};
        FloatVifHalving halving{above.planes, {plane, plane + width * height, (uint32_t)width}, above.width,
                                HEIGHT >> (scale - 1), {}, 0};
        memcpy(halving.taps, strips.taps[scale], sizeof halving.taps);
        plane += 2 * width * height;
        const Shape shape{pictures * tiles(width, FLOAT_VIF_SMALL_COLUMNS), tiles(height, FLOAT_VIF_SMALL_ROWS),
                          FLOAT_VIF_THREADS};
        if (scale == 1) run.one(kernel_name<T>("float_vif_halve"), shape, frame.data(), frame.bits, halving);
        else run.one(scale == 2 ? "float_vif_quarter" : "float_vif_eighth", shape, halving);
      }
      at.rows = row, at.width = width, at.height = scale == 0 && pictures == 1 ? 0 : height;
      strips.first[scale] = blocks;
      for (int part = 0; part < 2; part++) {
        sums.push_back({0, 0, 0, (uint32_t)at.height, (uint32_t)(row - rows.data()), (uint32_t)sums.size()});
        row += at.height;
      }
      blocks += tiles(at.height, FLOAT_VIF_ROWS);
    }
    run.one(kernel_name<T>("float_vif_strips"), {blocks, 1, FLOAT_VIF_THREADS}, frame.data(), frame.bits, strips);
    const auto count = (uint32_t)sums.size();
    const Array<HvTerms> places(sums);
    run.sums("ordered_sums", {count, 1, ORDERED_THREADS}, count, places.data(), 0u, rows.data(), count);
  }
}

// Bands with and without the taps of masking; two pairs that share the reference's planes. The constants are only
// plausible.
template <class T>
void run_cvvdp(Run &run, const Frame<T> &frame) {
  constexpr uint32_t pairs = 2, streams = 2, places = 3, bands = 4;
  std::vector<CvvdpLevel> all;
  uint64_t pair = 0;
  uint32_t contrasts = 1, blocks = 0, sums = (bands + 1) * CVVDP_CHANNELS;
  for (int width = WIDTH, height = HEIGHT; all.size() <= bands; width = (width + 1) / 2, height = (height + 1) / 2) {
    const auto pitch = (uint32_t)(width * height + 3) / 4 * 4;
    all.push_back({0x1p24, pair, pair + 8 * pitch, width, height, pitch, contrasts, blocks, sums});
    const int side = all.size() > 4 ? 1 : CVVDP_CELL >> (all.size() - 1);
    sums += tiles(width, side) * tiles(height, side);
    pair += 16 * pitch;
    if (all.size() > bands) continue;
    contrasts += tiles((int)tiles((width + 1) / 2, CVVDP_COLUMNS) * ((height + 1) / 2), CVVDP_THREADS / 32);
    blocks += tiles(width, CVVDP_TILE_W) * tiles(height, CVVDP_TILE_H);
  }
  const uint32_t pitch = all[0].pitch;
  const Array<CvvdpLevel> levels(all);
  std::vector<float> values;
  for (uint32_t i = 0; i < (bands + 1) * CVVDP_CHANNELS * CVVDP_NODES; i++) values.insert(values.end(), {(float)(i % 7), 0.25f});
  std::vector<float> weights;
  for (int i = 0; i < (int)places * CVVDP_CHANNELS; i++) weights.push_back(0.1f * (float)(i % 5 + 1));
  const Array<float> tables(values), taps(weights);
  const Array<float> ring(places * streams * CVVDP_COLOURS * pitch), memory(pairs * pair);
  CvvdpFront front{};
  const int unit = 1 << (frame.bits - 8);
  front.low[0] = front.low[1] = 16 * unit, front.high[0] = 235 * unit, front.high[1] = 240 * unit;
  front.scale[0] = 1 / (219.0f * (float)unit), front.scale[1] = 1 / (3584.0f * (float)unit);
  front.offset[0] = -16 / 219.0f, front.offset[1] = -128 / 224.0f;
  front.matrix[0] = 1.6f, front.matrix[1] = -0.2f, front.matrix[2] = -0.5f, front.matrix[3] = 1.9f;
  for (int i = 0; i < 9; i++) front.colours[i] = 20.0f + (float)i;
  front.hlg[0] = 8, front.hlg[1] = -4, front.hlg[2] = 0.02f, front.gamma = 0.2f, front.peak = 1000;
  front.cosited[0] = 1;
  front.width = WIDTH, front.height = HEIGHT, front.chroma_width = frame.width(1), front.chroma_height = frame.height(1);
  const CvvdpPicture picture{{frame.plane_of(0), frame.plane_of(1), frame.plane_of(2)}};
  for (uint32_t i = 0; i < places * streams; i++) {
    front.eotf = i % 3, front.is_rgb = i / 3 % 2;
    run.one(kernel_name<T>("cvvdp_front"), {tiles(WIDTH, 2 * CVVDP_THREADS), (unsigned)HEIGHT, CVVDP_THREADS}, picture, frame.bits,
            front, pitch, ring.data() + (size_t)i * CVVDP_COLOURS * pitch);
  }
  CvvdpMasking masking{};
  for (int i = 0; i < CVVDP_BLUR; i++) masking.horizontal[i] = masking.vertical[i] = 1.0f / CVVDP_BLUR;
  for (int i = 0; i < CVVDP_CHANNELS; i++) masking.powers[i] = 2.5f, masking.offsets[i] = 1;
  for (float &weight : masking.cross) weight = 0.5f;
  masking.small_gain = 0.16f, masking.power = 2.2f, masking.top = 0.01f, masking.epsilon = masking.two_epsilons = 1e-5f;
  masking.zero = cvvdp::power(masking.epsilon, masking.power);
  masking.nodes[0] = 1.5f, masking.nodes[1] = 11;
  for (float *weights : {masking.strength, masking.base_strength}) std::fill_n(weights, CVVDP_CHANNELS, 0.8f);
  run.one("cvvdp_filter", {tiles((int)pitch, 4 * CVVDP_THREADS), 2 * pairs, CVVDP_THREADS}, frame.data(), ring.data(),
          taps.data(), places, places, streams, pitch, pair, memory.data());
  const unsigned groups = tiles(all[1].width, CVVDP_COLUMNS) * tiles(all[1].height, CVVDP_ROWS);
  run.one("cvvdp_reduce", {tiles((int)groups, CVVDP_THREADS / 32), 8 * pairs, CVVDP_THREADS}, frame.data(), levels.data(), 1u,
          pair, memory.data());
  run.one("cvvdp_reduce_rest", {1, 8 * pairs, CVVDP_REST_THREADS}, frame.data(), levels.data(), 2u, bands, pair,
          memory.data());
  run.sums("cvvdp_contrast", {contrasts, pairs, CVVDP_THREADS}, pairs * sums, frame.data(), levels.data(), tables.data(), masking,
           bands, pair, memory.data(), sums);
  for (const char *name : {"cvvdp_mask", "cvvdp_mask_heat"})
    run.sums(name, {blocks, pairs, CVVDP_THREADS}, pairs * sums, levels.data(), masking, bands, pair, memory.data(), sums);
}

// As many tiles below each other as blocks, and half as many blocks; one distorted picture, or a group.
template <class T>
void run_vif(Run &run, const Frame<T> &frame, unsigned tiles_of_block, uint32_t pictures) {
  const std::string suffix = pictures > 1 ? "_group" : "";
  std::vector<uint16_t> steps;
  for (int i = 0; i < 4096; i++) steps.push_back((uint16_t)(std::log2(1 + i / 4096.0) * 2048 * 16 + 9));
  const Array<uint16_t> log2_steps(steps);
  const uint32_t stride = (WIDTH + 127) / 128 * 128;
  std::vector<std::unique_ptr<Array<uint16_t>>> memory;
  const auto planes = [&] {
    for (const uint32_t size : {1u, pictures}) memory.push_back(std::make_unique<Array<uint16_t>>(size * stride * HEIGHT));
    return VifPlanes{memory.rbegin()[1]->data(), memory.back()->data(), stride};
  };
  VifPlanes in{};
  for (int scale = 0; scale < 4; scale++) {
    const VifArgs args{WIDTH >> scale, HEIGHT >> scale, frame.bits, 2, {100, 1}, {100, 1}, pictures, 32};
    const int threads = VIF_THREADS(scale), tile = VIF_TILE_W(scale);
    const unsigned blocks = (tiles(args.height, VIF_TILE_H(scale)) + tiles_of_block - 1) / tiles_of_block;
    const Shape shape{tiles(args.width, tile), blocks, (unsigned)threads};
    const VifPlanes next = scale < 3 ? planes() : VifPlanes{};
    const size_t sums = 32 * pictures;
    if (scale == 0)
      run.sums(kernel_name<T>("vif0") + suffix, shape, sums, frame.data(), args, next, log2_steps.data());
    else run.sums("vif" + std::to_string(scale) + suffix, shape, sums, in, args, next, log2_steps.data());
    in = next;
  }
}

// Typical shifts and weights, which need not equal those of crates/engine/src/metrics/adm.rs here.
template <class T>
void run_adm(Run &run, const Frame<T> &frame, uint32_t passes, uint32_t pictures, uint32_t waves) {
  constexpr int TILE_H = 16;
  const int tile_w = (int)wave() / 32 * ADM_STRIP_W;
  const std::string suffix = std::string(passes > 1 ? "_passes" : "") + (pictures > 1 ? "_group" : "");
  const uint32_t kinds = 1 + 2 * passes;
  std::vector<std::unique_ptr<Array<uint32_t>>> kept;
  const Array<uint64_t> reference(std::vector<uint64_t>(12, 7));
  const Array<uint64_t> rows(std::vector<uint64_t>(3 * kinds * 2 * HEIGHT, 0));
  std::vector<std::unique_ptr<Array<int32_t>>> memory;
  for (uint32_t picture = 0; picture < pictures; picture++) {
    AdmPlanes in{};
    AdmRows all{};
    uint32_t first = 0;
    for (int scale = 0, w = WIDTH, h = HEIGHT; scale < 4; scale++) {
      AdmScale shape{w, h, (w + 1) / 2, (h + 1) / 2, 0, 0, 0, 0, 0, 0, TILE_H, {7, 7}, 31, 7, scale % 2 ? 15u : 16u,
                     waves};
      w = shape.width, h = shape.height;
      shape.left = (w - 5) / 10, shape.right = w - shape.left;
      shape.top = std::max(h - 5, 0) / 10, shape.bottom = h - shape.top;
      shape.x0 = shape.left / 2 * 2 - (shape.left > 1) * tile_w;
      shape.y0 = shape.top - (shape.top > 0) * TILE_H;
      AdmPasses these{{}, passes};
      for (uint32_t p = 0; p < passes; p++)
        these.passes[p] = {
            p ? 1.0 : 100.0, {scale ? 137000000u : 36453u, scale ? 66000000u : 49417u}, p ? 1u : 0u};
      const uint32_t stride = ((uint32_t)w + 63) / 64 * 64;
      const Shape grid{tiles(w - shape.x0, tile_w), tiles(h - shape.y0, (int)waves * TILE_H), waves * wave()};
      if (picture == 0) {
        for (int i = 0; i < 2; i++) memory.push_back(std::make_unique<Array<int32_t>>(stride * (uint32_t)h));
        const uint32_t words = grid.grid_x * grid.grid_y * waves * (TILE_H + 2) * ADM_KEEP_WORDS(scale) * wave();
        kept.push_back(std::make_unique<Array<uint32_t>>(words));
      }
      const size_t at = 2 * (size_t)scale;
      const AdmPlanes out{memory[at]->data(), memory[at + 1]->data(), stride}, next = scale < 3 ? out : AdmPlanes{};
      uint64_t *to = rows.data() + first;
      uint32_t *keep = kept[(size_t)scale]->data();
      const std::string name = scale ? "adm" + std::to_string(std::min(scale, 2)) : kernel_name<T>("adm0");
      const HvFrame *pair = frame.data() + picture;
      // The kernels without `_group` lack the last two parameters.
      if (scale == 0) run.one(name + suffix, grid, pair, next, shape, frame.bits, these, to, keep, picture);
      else run.one(name + suffix, grid, in, next, shape, these, to, keep, picture);
      all.first[scale] = first;
      all.height[scale] = h, all.top[scale] = shape.top, all.bottom[scale] = shape.bottom;
      all.shift[scale] = all.reference_shift[scale] = 5;
      first += 3 * kinds * (uint32_t)h;
      in = out;
    }
    const Shape columns{passes > 1 ? 3 * kinds : 6, 4, ADM_ROWS_THREADS};
    run.sums("adm_rows", columns, 12 * kinds, all, rows.data(), picture ? reference.data() : nullptr);
  }
}

std::vector<float> floats(size_t n) {
  std::vector<float> values(n);
  uint32_t random = 1;
  for (float &value : values) value = (float)((random = random * 1103515245 + 12345) >> 16) / 256 - 100;
  return values;
}

// Images with more overlap than usual, with and without resampling.
template <class T>
void run_speed_small(Run &run, const Frame<T> &frame) {
  constexpr int TAPS = 9, SMALL_W = 67, SMALL_H = 3;
  for (const int spread : {1, 2, 9}) {
    const auto sources = [&](int size, int samples) {
      std::vector<SpeedSource> all;
      for (int i = 0; i < size * TAPS * spread; i++) all.push_back({(uint32_t)(i * 5 % samples), 1.0f / (float)(1 + i % 3)});
      return all;
    };
    const Array<SpeedSource> x(sources(SMALL_W, frame.width(1))), y(sources(SMALL_H, frame.height(1)));
    const Array<float> taps(floats(TAPS));
    const SpeedScaling scaling{x.data(), y.data(), taps.data(), SMALL_W, SMALL_H, TAPS, spread, frame.bits,
                               spread == 9, 1.0f / (float)(1 << (frame.bits - 8))};
    for (const unsigned planes : {SPEED_PLANES, SPEED_PLANES / 2}) {
      const Shape shape{tiles(SMALL_W, SPEED_TILE), planes * SMALL_H, SPEED_THREADS};
      run.sums(kernel_name<T>("speed_small"), shape, SPEED_PLANES * SMALL_W * SMALL_H / 2, frame.data(), scaling, planes);
    }
  }
}

// A pair with an earlier picture, and one without. The places are those of the latest pictures and of the ones before.
template <class T>
void run_speed_changes(Run &run, const Frame<T> &frame) {
  constexpr int TAPS = 9, SMALL_W = 67, SMALL_H = 3;
  constexpr uint32_t PLACES = 3, STREAMS = 2, PITCH = (WIDTH * HEIGHT + 15) / 16 * 16;
  const Array<T> ring(std::vector<T>(PLACES * STREAMS * PITCH, 0));
  const SpeedHistory history{(uint64_t)ring.data(), PLACES, STREAMS, PITCH, WIDTH};
  for (uint32_t i = 0; i < 2 * STREAMS; i++)
    run.one(kernel_name<T>("speed_keep"), {tiles(WIDTH, SPEED_THREADS), HEIGHT, SPEED_THREADS},
            (i + i / STREAMS) % 2 ? frame.luma() : frame.earlier(), frame.bits, history, i / STREAMS ? 0u : PLACES - 1, i % STREAMS);
  std::vector<SpeedSource> x, y;
  for (uint32_t i = 0; i < SMALL_W * TAPS; i++) x.push_back({i * 5 % WIDTH, 1});
  for (uint32_t i = 0; i < SMALL_H * TAPS; i++) y.push_back({i * 5 % HEIGHT, 1});
  const Array<SpeedSource> columns(x), rows(y);
  const Array<float> taps(floats(TAPS));
  const SpeedScaling scaling{columns.data(), rows.data(), taps.data(), SMALL_W, SMALL_H, TAPS, 1, frame.bits, 0,
                             1.0f / (float)(1 << (frame.bits - 8))};
  for (const uint32_t age : {2u, 1u})
    for (const uint32_t to_reference : {0u, 1u}) {
      HvFrame pair{};
      pair.age = age;
      const Array<HvFrame> pairs(std::vector<HvFrame>{pair});
      const Array<float> images(SPEED_PLANES * SMALL_W * SMALL_H);
      run.sums(kernel_name<T>("speed_changes"), {tiles(SMALL_W, SPEED_TILE), 2 * SMALL_H, SPEED_THREADS}, 1, pairs.data(), history,
               to_reference, scaling, images.data());
      if (age < 2) continue;
      const std::vector<float> found = images.read();
      for (size_t i = 0; i < found.size(); i++)
        if (i / (SMALL_W * SMALL_H) % 2) printf(" %a", (double)found[i]);
      printf("\n");
    }
}

// Upscales along the rows, across the edge of a block, and downscales along the columns. The weights need not equal
// those of crates/engine/src/scale.rs here.
template <class T>
void run_scale(Run &run, const Frame<T> &frame) {
  constexpr int TAPS = 4, TO_W = 300, TO_H = 29;
  for (const int i : {0, 1, 2}) {
    const auto tables = [&](int size, int samples) {
      std::vector<uint32_t> all;
      for (int k = 0; k < size; k++) all.push_back((uint32_t)(k * (samples - TAPS) / (size - 1)));
      for (const int weight : {-1000, 9000, 9000, -616})
        for (int k = 0; k < size; k++) all.push_back((uint32_t)(weight + k % 2));
      return all;
    };
    const int h = frame.height(i);
    const Array<uint32_t> x(tables(TO_W, frame.width(i))), y(tables(TO_H, h));
    const ScaleAxis along{x.data(), x.data() + TO_W, TO_W, TAPS}, down{y.data(), y.data() + TO_H, TO_H, TAPS};
    const Array<int32_t> rows((size_t)(TO_W * h));
    const Array<T> scaled((size_t)(TO_W * TO_H));
    const uint32_t bits = frame.bits;
    run.one(kernel_name<T>("scale_rows"), {tiles(TO_W, SCALE_THREADS), tiles(h, SCALE_ROWS), SCALE_THREADS},
            frame.plane_of(i), h, bits, along, bits - 2, rows.data(), (uint32_t)TO_W);
    run.one(kernel_name<T>("scale_columns"), {tiles(TO_W, SCALE_THREADS), TO_H, SCALE_THREADS}, rows.data(), TO_W,
            (uint32_t)TO_W, bits, down, 30 - bits, (void *)scaled.data(), (uint32_t)(TO_W * sizeof(T)));
    printf("scale%d", i);
    for (const T sample : scaled.read()) printf(" %u", (unsigned)sample);
    printf("\n");
  }
}

// Fields of some blocks of samples: fewer than are solved at once, as of usual pictures, and more.
void run_speed_fields(Run &run, int width, int height) {
  constexpr uint32_t PLANES = SPEED_PLANES;
  const uint32_t samples = (uint32_t)(width * height), stride = SPEED_PAIRS + 1 + samples / SPEED_OFFSETS;
  const Array<float> fields(floats(PLANES * samples)), sums(floats(PLANES * stride));
  run.one("speed_covariance", {SPEED_PARTS, PLANES, SPEED_COMPARERS}, fields.data(), width, height, stride, PLANES,
          sums.data());
  run.one("speed_variances", {1, PLANES, SPEED_SOLVERS}, fields.data(), width, height, stride, PLANES, sums.data());
  printf("speed_covariance, speed_variances");
  for (const float sum : sums.read()) printf(" %a", (double)sum);
  printf("\n");
}

// More columns than a part of a row has.
void run_speed(Run &run) {
  constexpr int SMALL_W = 77, SMALL_H = 12, USED_W = 75, USED_H = 10, PLANES = SPEED_PLANES;
  const Array<float> images(floats(PLANES * SMALL_W * SMALL_H)), taps(floats(3));
  const SpeedMean mean{taps.data(), SMALL_W, SMALL_H, {USED_W, USED_H}, 3};
  const Shape shape{tiles(USED_W * USED_H, SPEED_THREADS), PLANES, SPEED_THREADS};
  run.sums("speed_mean", shape, PLANES * USED_W * USED_H / 2, images.data(), mean, (uint32_t)PLANES);
  run_speed_fields(run, USED_W, USED_H);
  run_speed_fields(run, 60, 30);
  run_speed_fields(run, 105, 65);
}

// Windows for each of the kernels, and a share that leaves some values out. The picture consists of areas of 7x7 equal
// samples, as it has no flat areas otherwise.
template <class T>
void run_cambi(Run &run, const Frame<T> &frame, bool halved) {
  const std::pair<int, const char *> windows[] = {
      {4, "cambi_contrast5"}, {16, "cambi_contrast9"}, {20, "cambi_contrast17"}};
  const int step = halved ? 2 : 1;
  std::vector<uint32_t> nearest;
  for (uint32_t i = 0; i < WIDTH + HEIGHT; i++) nearest.push_back(i < WIDTH ? 100 + i / 7 : 30 + (i - WIDTH) / 7);
  const Array<uint32_t> picks(nearest);
  for (const auto &[radius, name] : windows) {
    CambiShape shape{};
    const int tile_w = CONTRAST_THREADS - 2 * radius;
    shape.steps = CAMBI_MAX_STEPS, shape.last = 1023, shape.radius = radius, shape.rows = 2 * radius;
    for (int i = 0; i < shape.steps; i++) shape.step[i] = {-1, 1023, i + 1};
    for (int i = 1; i < CAMBI_RECIPROCALS; i++) shape.reciprocal[i] = 1 / (float)i;
    uint32_t samples = 0, values = 0, blocks = 0;
    for (int i = 0, w = tiles(WIDTH, step), h = tiles(HEIGHT, step); i < CAMBI_SCALES; i++) {
      const uint32_t stride = tiles(w, 32) * 32, beside = tiles(w, tile_w);
      shape.scale[i] = {w, h, stride, samples, values, (uint32_t)(w * h) / 500 + 1, blocks, beside};
      samples += stride * (uint32_t)h, values += tiles(w * h, 4) * 4, blocks += beside * tiles(h, shape.rows);
      w = (w + 1) / 2, h = (h + 1) / 2;
    }
    const Array<CambiShape> shapes(std::vector<CambiShape>{shape});
    const Array<uint16_t> base(samples), filtered(samples);
    const Array<uint32_t> found(std::vector<uint32_t>(values, 0));
    const CambiFlat args{WIDTH, HEIGHT, frame.bits, 1, sizeof(T) == 1, halved, 9, shape.scale[0].stride};
    const Shape grid{tiles(WIDTH, FLAT_W), tiles(HEIGHT, FLAT_H), FLAT_THREADS};
    run.one(kernel_name<T>("cambi_flat"), grid, frame.data(), args, picks.data(), base.data());
    for (int i = 0; i < CAMBI_SCALES; i++) {
      const CambiScale &to = shape.scale[i], &from = shape.scale[i ? i - 1 : 0];
      const uint16_t *in = i ? filtered.data() + from.samples : base.data();
      run.one("cambi_mode", {tiles(to.width, MODE_THREADS), (unsigned)to.height, MODE_THREADS}, in, from.stride, i ? 2u : 1u,
              to.width, to.height, filtered.data() + to.samples, to.stride);
    }
    const Array<uint64_t> sums(std::vector<uint64_t>(3 * CAMBI_SCALES, 0));
    run.one(name, {blocks, 1, CONTRAST_THREADS}, shapes.data(), filtered.data(), found.data(), sums.data());
    run.one("cambi_top", {CAMBI_SCALES, 1, TOP_THREADS}, shapes.data(), found.data(), sums.data());
    printf("%s", name);
    for (const uint64_t sum : sums.read()) printf(" %llu", (unsigned long long)sum);
    printf("\n");
  }
}

void run_frame(Run &run) {
  constexpr uint32_t PAIRS = 2, SUMS = 200, PITCH = 224;
  const Array<uint32_t> given(std::vector<uint32_t>(PAIRS * sizeof(HvFrame) / 4, 7)), taken(2 * PAIRS * PITCH);
  const Array<HvFrame> frame(PAIRS);
  run.one("frame_begin", {PAIRS, 1, FRAME_THREADS}, given.data(), frame.data(), (uint64_t *)taken.data(), SUMS, PITCH);
  const Array<uint64_t> sums(std::vector<uint64_t>(PAIRS * PITCH, 1ull << 40));
  run.one("frame_end", {PAIRS, 1, FRAME_THREADS}, sums.data(), taken.data(), SUMS, PITCH);
  EXPECT((frame.read()[1].earlier[1].stride == 7));
  EXPECT((taken.read()[2 * (PITCH + SUMS) - 1] == 256));
}

template <class T>
void run_all(Run &run) {
  const Frame<T> frame;
  run_motion(run, frame);
  run_psnr(run, frame);
  run_ansnr(run, frame);
  run_float_motion(run, frame);
  run_moments(run, frame);
  run_damage(run, frame);
  run_xpsnr(run, frame);
  run_speed_small(run, frame);
  run_speed_changes(run, frame);
  run_ssim(run, frame);
  run_ssim_borders(run, frame);
  run_psnr_hvs(run, frame);
  run_float_adm(run, frame);
  run_ciede(run, frame);
  run_ssimulacra2(run, frame);
  run_float_vif(run, frame);
  run_cvvdp(run, frame);
  run_scale(run, frame);
  for (const unsigned tiles_of_block : {1u, 2u})
    for (const uint32_t pictures : {1u, 2u}) run_vif(run, frame, tiles_of_block, pictures);
  for (const uint32_t pictures : {1u, 2u}) {
    for (const uint32_t waves : {1u, 2u}) run_adm(run, frame, 1, pictures, waves);
    run_adm(run, frame, 2, pictures, 1);
  }
  for (const bool halved : {false, true}) run_cambi(run, frame, halved);
}
}  // namespace

void run_kernels() {
  Run run;
  run_all<uint8_t>(run);
  run_all<uint16_t>(run);
  run_ssim_low_pass(run);
  run_speed(run);
  run_frame(run);
  run.finish();
}

// A pixel has the same results with and without f64.
static void check_gain(uint32_t x, uint32_t y, uint32_t c) {
  const VifPixelF64 exact(x, y, c);
  VifDoubt doubt;
  VifPixelU32 found(x, y, c, doubt);
  if (doubt.any()) found.decide(y);
  for (const uint32_t limit : {100u, 1u, 7u}) {
    const double gain = hv_min(exact.gain, (double)limit);
    // Pictures never explain more.
    const bool possible = gain * gain * exact.x < 0x1p31;
    const uint32_t explained = possible ? found.explained(limit) : 0;
    const uint32_t expected = possible ? exact.explained({(double)limit, limit}) : 0;
    if (found.noise != exact.noise || explained != expected) {
      fprintf(stderr, "VIF: x %u, y %u, c %u, limit %u: %u and %u, not %u and %u\n", x, y, c, limit, found.noise,
              explained, exact.noise, expected);
      exit(1);
    }
  }
}

// Operands of all magnitudes, operands as in pictures that have much in common, and operands that put terms close to
// whole numbers.
static void run_gains() {
  constexpr uint32_t LEAST = VIF_NOISE, MOST = 0x7fffffff;
  std::mt19937_64 random(1);
  const auto below = [&](uint64_t n) { return (uint32_t)(random() % n); };
  const auto any = [&] { return hv_max((uint32_t)(random() % (1ull << 31)) >> below(31), 1u); };
  const auto variance = [&] { return hv_max(any(), LEAST); };
  const auto near = [&](uint64_t v, uint32_t least) {
    return (uint32_t)hv_max(hv_min((int64_t)v + (int64_t)below(9) - 4, (int64_t)MOST), (int64_t)least);
  };
  // The largest covariance of pictures: x y is at least c c.
  const auto most = [](uint32_t x, uint32_t y) { return (uint32_t)hv_min(std::sqrt((double)x * y), (double)MOST); };
  for (int i = 0; i < 200'000; i++) {
    const uint32_t x = variance(), y = any(), c = hv_max(most(x, y), 1u);
    check_gain(x, y, 0);
    check_gain(x, y, 1 + below(c));
    check_gain(x, y, near(c, 1));
    check_gain(x, near(x, 1), near(x, 1));
    check_gain(x, y, near(std::min<uint64_t>((uint64_t)x * (1 + below(101)), MOST), 1));
    // c c is q x or differs from it by little: the squares of m and q m.
    const uint32_t m = 362 + below(45'000), q = 1 + below(46'000);
    const uint32_t square = near((uint64_t)m * m, LEAST);
    check_gain(square, y, near((uint64_t)q * m, 1));
    check_gain(square, near((uint64_t)q * q, 1), near((uint64_t)q * m, 1));
    const uint32_t twice = near((uint64_t)q * m * m, LEAST);
    check_gain(twice, near(q, 1), near((uint64_t)q * m, 1));
  }
  check_gain(1, MOST, 0);
  check_gain(MOST, MOST, MOST);
  check_gain(LEAST, MOST, MOST);
}

static void run_selftest(int device) {
  constexpr uint32_t N = 64;
  int wave;
  OK(hipSetDevice(device));
  OK(hipDeviceGetAttribute(&wave, 87, device));
  const auto W = (uint32_t)wave;
  std::vector<HvU32x4> quads;
  for (uint32_t i = 0; i < 4; i++)
    quads.push_back({{i * 77777777u, i * 99999989u + 1, i * 123456789u, ~(i * 55555u)}});
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
  expect([&](uint32_t t) {
    return (uint32_t)__builtin_clzll(2ull * (value(t) >> (t & 31)) + 1) - 31 + N * 100 + 10000;
  });
  expect([&](uint32_t t) { return (int64_t)((int32_t)value(t) >> 9) * -7919 + t; });
  expect([&](uint32_t t) { return bytes[t] + halves[t % 32]; });
  expect([&](uint32_t t) {
    return words[t % 4 * 4] ^ words[t % 4 * 4 + 3] ^ words[t % 8 * 2 + 1] ^ words[t % 16];
  });
  expect([&](uint32_t t) { return over_wave(t, [&](uint32_t u) { return (uint64_t)value(u); }); });
  expect([&](uint32_t t) { return value(t ^ 31); });

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

void run_selftest() {
  run_gains();
  int devices;
  OK(hipGetDeviceCount(&devices));
  for (int device = 0; device < devices; device++) run_selftest(device);
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
    const bool wrong = bug == "bug_no_barrier"       ? found[i] != 255 - t
                       : bug == "bug_overwrite"      ? found[i] != ((t + 64) & 255) + 7
                       : bug == "bug_no_wave_sync"   ? found[i] != (t ^ 31)
                       : bug == "bug_wave_for_block" ? found[i] != (t ^ 128)
                       : bug == "bug_wave32"         ? found[i] != 32640
                       : bug == "bug_uninitialised" || bug == "bug_uninitialised_factor" ? found[i] != 0
                       : bug == "bug_blocks"         ? t == 0 && found[i] != block + 1
                                                     : false;
    if (wrong) return true;
  }
  return false;
}
