// SPDX-License-Identifier: MPL-2.0
//
// The runtime calls: order between streams, graphs, faults, and calls that must fail.
#include "check.h"
#include <atomic>
#include <cstring>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {
constexpr size_t N = 1 << 12;

struct Stream {
  hipStream_t handle;
  explicit Stream(int priority = 0) { OK(hipStreamCreateWithPriority(&handle, 1, priority)); }
  ~Stream() { hipStreamDestroy(handle); }
  operator hipStream_t() const { return handle; }
};
struct Event {
  hipEvent_t handle;
  explicit Event(unsigned flags = 0) { OK(hipEventCreateWithFlags(&handle, hipEventDisableTiming | flags)); }
  ~Event() { hipEventDestroy(handle); }
  operator hipEvent_t() const { return handle; }
};
struct Pinned {
  void *at;
  explicit Pinned(unsigned flags = 0) { OK(hipHostMalloc(&at, N, flags)); }
  ~Pinned() { hipHostFree(at); }
  unsigned char last() const { return ((unsigned char *)at)[N - 1]; }
};

// Makes later commands of the stream wait for `go`.
void hold(hipStream_t stream, std::atomic<bool> &go) {
  OK(hipLaunchHostFunc(
      stream,
      [](void *go) {
        while (!*(std::atomic<bool> *)go) usleep(100);
      },
      &go));
}

// One stream fills, another copies the result. Returns true if the copy always has it.
bool copies_in_order(bool wait) {
  const Array<unsigned char> device(N);
  const Stream fills, copies;
  const Event filled;
  const Pinned host;
  bool right = true;
  for (int i = 1; i < 50; i++) {
    std::atomic<bool> go = false;
    hold(fills, go);
    OK(hipMemsetAsync(device.data(), i, N, fills));
    OK(hipEventRecord(filled, fills));
    if (wait) OK(hipStreamWaitEvent(copies, filled, 0));
    OK(hipMemcpyAsync(host.at, device.data(), N, hipMemcpyDeviceToHost, copies));
    go = true;
    OK(hipStreamSynchronize(copies));
    right = right && host.last() == i;
    OK(hipStreamSynchronize(fills));
  }
  return right;
}

void streams() {
  bool always_right = true;
  for (const unsigned long seed : {0, 1, 2, 3}) {
    swhip_seed(seed);
    EXPECT(copies_in_order(true));
    always_right = copies_in_order(false) && always_right;
  }
  EXPECT(!always_right);  // the missing wait shows
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; i++) threads.emplace_back([&] { wrong += !copies_in_order(true); });
  for (std::thread &thread : threads) thread.join();
  EXPECT(wrong == 0);

  const Stream stream;
  const Event event;
  EXPECT(hipEventQuery(event) == hipSuccess);
  std::atomic<bool> go = false;
  hold(stream, go);
  OK(hipEventRecord(event, stream));
  EXPECT(hipEventQuery(event) == hipErrorNotReady);
  EXPECT(hipStreamQuery(stream) == hipErrorNotReady);
  go = true;
  OK(hipEventSynchronize(event));
  OK(hipStreamSynchronize(stream));
  EXPECT(hipStreamQuery(stream) == hipSuccess);

  hipError_t inside = hipSuccess;
  OK(hipLaunchHostFunc(
      stream,
      [](void *error) {
        int device;
        *(hipError_t *)error = hipGetDevice(&device);
      },
      &inside));
  OK(hipStreamSynchronize(stream));
  EXPECT(inside == hipErrorNotPermitted);
}

// One stream fills, another waits for it, and a third copies the result without waiting. Returns true if the copy has
// it in all orders. The device is blocked until all commands are there to choose from.
bool copies_behind(hipStream_t fills, hipStream_t waits, hipStream_t copies) {
  const Array<unsigned char> device(N);
  const Event filled;
  const Pinned host;
  bool right = true;
  for (unsigned char i = 1; i < 50; i++) {
    swhip_seed(i);
    std::atomic<bool> go = false;
    hold(fills, go);
    OK(hipMemsetAsync(device.data(), i, N, fills));
    OK(hipEventRecord(filled, fills));
    OK(hipStreamWaitEvent(waits, filled, 0));
    OK(hipMemcpyAsync(host.at, device.data(), N, hipMemcpyDeviceToHost, copies));
    go = true;
    OK(hipDeviceSynchronize());
    right = right && host.last() == i;
  }
  return right;
}
void queues() {
  const Stream streams[6];
  EXPECT(copies_behind(streams[0], streams[1], streams[5]));  // these two share a queue
  EXPECT(!copies_behind(streams[0], streams[1], streams[2]));
  EXPECT(!copies_behind(streams[0], streams[1], streams[3]));
  int beside_the_null_stream = 0;
  for (int i = 1; i < 5; i++) {
    const int fills = i == 4 ? 1 : 0;
    beside_the_null_stream += copies_behind(streams[fills], nullptr, streams[i]);
  }
  EXPECT(beside_the_null_stream == 1);
  const Stream urgent{-1};
  for (const Stream &stream : streams) EXPECT(!copies_behind(streams[0], stream, urgent));
}

// a = 1; then b = a on one branch and c = a on another; then the host gets both.
void graphs() {
  const Stream first, second, other;
  const Event forked, joined;
  const Array<unsigned char> a(N), b(N), c(N);
  const Pinned from_b, from_c;
  const auto capture = [&](hipGraph_t *graph, bool join) {
    OK(hipStreamBeginCapture(first, hipStreamCaptureModeThreadLocal));
    OK(hipMemsetAsync(a.data(), 1, N, first));
    OK(hipEventRecord(forked, first));
    OK(hipStreamWaitEvent(second, forked, 0));
    OK(hipMemcpyAsync(b.data(), a.data(), N, hipMemcpyDeviceToDevice, first));
    OK(hipMemcpyAsync(c.data(), a.data(), N, hipMemcpyDeviceToDevice, second));
    OK(hipMemcpyAsync(from_c.at, c.data(), N, hipMemcpyDeviceToHost, second));
    OK(hipEventRecord(joined, second));
    EXPECT(hipEventQuery(joined) == hipErrorCapturedEvent);
    EXPECT(hipStreamEndCapture(second, graph) == hipErrorStreamCaptureUnmatched);
    if (join) OK(hipStreamWaitEvent(first, joined, 0));
    OK(hipMemcpyAsync(from_b.at, b.data(), N, hipMemcpyDeviceToHost, first));
    return hipStreamEndCapture(first, graph);
  };
  hipGraph_t graph;
  hipGraphExec_t exec;
  EXPECT(capture(&graph, false) == hipErrorStreamCaptureUnjoined);
  OK(capture(&graph, true));
  OK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  OK(hipGraphDestroy(graph));
  const long nodes = swhip_count("graph_nodes"), launches = swhip_count("graph_launches");
  for (unsigned long seed = 0; seed < 8; seed++) {
    swhip_seed(seed);
    for (const void *at : {(void *)b.data(), (void *)c.data(), from_b.at, from_c.at})
      OK(hipMemsetAsync((void *)at, 0, N, other));
    OK(hipStreamSynchronize(other));
    OK(hipGraphLaunch(exec, first));
    OK(hipStreamSynchronize(first));
    EXPECT(from_b.last() == 1 && from_c.last() == 1);
  }
  EXPECT(swhip_count("graph_nodes") == nodes + 8 * 5);
  EXPECT(swhip_count("graph_launches") == launches + 8);

  // While a stream captures, calls that would wait for the device fail, in this thread or in all.
  void *memory;
  const auto allocate_elsewhere = [&] {
    hipError_t error;
    std::thread([&] {
      void *memory;
      error = hipMalloc(&memory, 16);
      if (!error) OK(hipFree(memory));
    }).join();
    return error;
  };
  OK(hipStreamBeginCapture(first, hipStreamCaptureModeThreadLocal));
  OK(allocate_elsewhere());
  EXPECT(hipMalloc(&memory, 16) == hipErrorStreamCaptureUnsupported);
  EXPECT(hipStreamEndCapture(first, &graph) == hipErrorStreamCaptureInvalidated);
  OK(hipStreamBeginCapture(first, hipStreamCaptureModeGlobal));
  EXPECT(allocate_elsewhere() == hipErrorStreamCaptureUnsupported);
  EXPECT(hipStreamEndCapture(first, &graph) == hipErrorStreamCaptureInvalidated);
  OK(hipStreamBeginCapture(first, hipStreamCaptureModeRelaxed));
  OK(hipMalloc(&memory, 16));
  OK(hipFree(memory));
  OK(hipStreamEndCapture(first, &graph));
  OK(hipGraphDestroy(graph));
  // An event that was recorded outside does not belong in a capture.
  OK(hipEventRecord(forked, second));
  OK(hipStreamBeginCapture(first, hipStreamCaptureModeThreadLocal));
  EXPECT(hipStreamWaitEvent(first, forked, 0) == hipErrorStreamCaptureIsolation);
  EXPECT(hipStreamEndCapture(first, &graph) == hipErrorStreamCaptureInvalidated);
  OK(hipGraphExecDestroy(exec));
}

// Whole pages are locked, once, and copies of them happen later.
void registered(const Array<unsigned char> &device) {
  constexpr size_t PAGE = 4096;
  char *const pages =
      (char *)mmap(nullptr, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(pages != MAP_FAILED);
  const auto counted = [](const char *what) { return swhip_count(what); };
  EXPECT(hipHostUnregister(pages) == hipErrorHostMemoryNotRegistered);
  OK(hipHostRegister(pages + PAGE, PAGE, 1));
  EXPECT(swhip_live("registered") == 1);
  for (const size_t at : {PAGE / 2, PAGE, PAGE + 100, 2 * PAGE - 1})
    EXPECT(hipHostRegister(pages + at, PAGE, 1) == hipErrorHostMemoryAlreadyRegistered);
  OK(hipHostRegister(pages + 2 * PAGE, PAGE, 1));
  OK(hipHostUnregister(pages + 2 * PAGE));
  // Half of the copied memory is locked.
  const auto copy = [&](size_t at) {
    return hipMemcpyAsync(device.data(), pages + at, 100, hipMemcpyHostToDevice, nullptr);
  };
  EXPECT(copy(PAGE - 50) == hipErrorInvalidValue && copy(2 * PAGE - 50) == hipErrorInvalidValue);
  // Memory that is not locked is read at the call, locked memory when the stream gets there.
  std::atomic<bool> go = false;
  const auto found = [&](size_t at) {
    go = false;
    hold(nullptr, go);
    pages[at] = 1;
    OK(copy(at));
    pages[at] = 2;
    go = true;
    OK(hipStreamSynchronize(nullptr));
    return device.read()[0];
  };
  const long before = counted("registered_bytes");
  EXPECT(found(0) == 1 && counted("registered_bytes") == before);
  EXPECT(found(PAGE) == 2 && counted("registered_bytes") == before + 100);
  // Mistakes that real runtimes do not report.
  EXPECT(counted("unregistered_early") == 0 && counted("unregistered_late") == 0);
  go = false;
  std::thread opens([&] {
    while (!counted("unregistered_early")) usleep(100);
    go = true;
  });
  hold(nullptr, go);
  OK(copy(PAGE));
  OK(hipHostUnregister(pages + PAGE));
  opens.join();
  OK(hipHostRegister(pages + PAGE, PAGE, 1));
  munmap(pages + PAGE, PAGE);
  OK(hipHostUnregister(pages + PAGE));
  EXPECT(counted("unregistered_early") == 1 && counted("unregistered_late") == 1);
  EXPECT(hipHostRegister(pages + PAGE, PAGE, 1) == hipErrorInvalidValue);
  munmap(pages, PAGE);
  munmap(pages + 2 * PAGE, 2 * PAGE);
}

void memory() {
  const Array<unsigned char> device(100);
  const Pinned pinned;
  unsigned char bytes[200] = {};
  EXPECT(hipMemcpy(device.data(), bytes, 101, hipMemcpyHostToDevice) == hipErrorInvalidValue);
  EXPECT(hipMemcpy(bytes, pinned.at, 100, hipMemcpyDeviceToHost) == hipErrorInvalidValue);
  OK(hipMemcpy(bytes, device.data(), 100, hipMemcpyDefault));
  EXPECT(bytes[50] == 0xCD);  // garbage

  hipPointerAttribute_t attributes;
  OK(hipPointerGetAttributes(&attributes, device.data() + 50));
  EXPECT(attributes.type == hipMemoryTypeDevice && attributes.device == 0 &&
         attributes.device_pointer == device.data() + 50);
  OK(hipPointerGetAttributes(&attributes, pinned.at));
  EXPECT(attributes.type == hipMemoryTypeHost);
  EXPECT(hipPointerGetAttributes(&attributes, bytes) == hipErrorInvalidValue);

  const long h2d = swhip_count("h2d_bytes"), sets = swhip_count("memsets_bytes");
  OK(hipMemsetD16Async(device.data(), 0x1234, 50, nullptr));
  for (int i = 0; i < 200; i++) bytes[i] = (unsigned char)i;
  hip_Memcpy2D rows{};
  rows.from = {3, 2, hipMemoryTypeHost, bytes, nullptr, nullptr, 20};
  rows.to = {1, 1, hipMemoryTypeDevice, nullptr, device.data(), nullptr, 10};
  rows.width = 4, rows.height = 3;
  OK(hipMemcpyParam2DAsync(&rows, nullptr));
  OK(hipDeviceSynchronize());
  const std::vector<unsigned char> found = device.read();
  EXPECT(found[10] == 0x34 && found[11] == 43 && found[14] == 46 && found[15] == 0x12 && found[31] == 83);
  EXPECT(swhip_count("h2d_bytes") == h2d + 12 && swhip_count("memsets_bytes") == sets + 100);

  void *freed;
  OK(hipMalloc(&freed, N));
  OK(hipFree(freed));
  EXPECT(hipFree(freed) == hipErrorInvalidValue);
  EXPECT(hipMemsetAsync(freed, 0, N, nullptr) == hipErrorInvalidValue);

  registered(device);

  const int fd = memfd_create("frame", 0);
  EXPECT(ftruncate(fd, 8192) == 0 && pwrite(fd, "here", 4, 4096 + 16) == 4);
  hipExternalMemory_t external;
  void *mapped;
  const hipExternalMemoryHandleDesc desc{1, {fd}, 8192, 0};
  const hipExternalMemoryBufferDesc part{4096, 4096, 0}, too_long{4096, 4097, 0};
  OK(hipImportExternalMemory(&external, &desc));
  EXPECT(hipExternalMemoryGetMappedBuffer(&mapped, external, &too_long) == hipErrorInvalidValue);
  OK(hipExternalMemoryGetMappedBuffer(&mapped, external, &part));
  OK(hipMemcpy(bytes, (char *)mapped + 16, 4, hipMemcpyDeviceToHost));
  EXPECT(memcmp(bytes, "here", 4) == 0);
  OK(hipDestroyExternalMemory(external));
  EXPECT(hipMemcpy(bytes, mapped, 4, hipMemcpyDeviceToHost) == hipErrorInvalidValue);
}

void modules() {
  hipModule_t module;
  hipFunction_t function;
  int wave;
  OK(hipDeviceGetAttribute(&wave, 87, 0));
  std::vector<unsigned char> wrong = code_object(wave == 64 ? "gfx1100" : "gfx90a", {"selftest"});
  std::vector<unsigned char> right = code_object(wave == 64 ? "gfx90a" : "gfx1100", {"selftest", "unknown"});
  EXPECT(hipModuleLoadData(&module, "no code object") == hipErrorInvalidImage);
  EXPECT(hipModuleLoadData(&module, wrong.data()) == hipErrorNoBinaryForGpu);
  OK(hipModuleLoadData(&module, right.data()));
  EXPECT(hipModuleGetFunction(&function, module, "bug_blocks") == hipErrorNotFound);  // not in this image
  EXPECT(hipModuleGetFunction(&function, module, "unknown") == hipErrorNotFound);     // only there
  OK(hipModuleGetFunction(&function, module, "selftest"));
  void *none = nullptr;
  EXPECT(launch(function, {1, 1, 65}, nullptr, none, none, none, none) == hipErrorInvalidValue);
  right.back() ^= 1;
  EXPECT(hipModuleUnload(module) == hipErrorInvalidImage);
  EXPECT(launch(function, {1, 1, 64}, nullptr, none, none, none, none) == hipErrorInvalidHandle);
}

// The second device is independent, except for copies.
void devices() {
  const Kernels kernels;
  const Array<unsigned char> here(std::vector<unsigned char>(N, 7));
  int first_wave, second_wave;
  OK(hipDeviceGetAttribute(&first_wave, 87, 0));
  OK(hipDeviceGetAttribute(&second_wave, 87, 1));
  EXPECT(first_wave != second_wave);
  OK(hipSetDevice(1));
  void *none = nullptr;
  const Stream stream;
  EXPECT(launch(kernels["selftest"], {1, 1, 64}, stream, none, none, none, none) == hipErrorInvalidHandle);
  const Array<unsigned char> there(N);
  hipPointerAttribute_t attributes;
  OK(hipPointerGetAttributes(&attributes, there.data()));
  EXPECT(attributes.device == 1);
  OK(hipMemcpyPeerAsync(there.data(), 1, here.data(), 0, N, stream));
  OK(hipStreamSynchronize(stream));
  EXPECT(there.read()[N - 1] == 7);
  EXPECT(hipSetDevice(2) == hipErrorInvalidDevice);
  OK(hipSetDevice(0));
}

void faults() {
  void *first, *second;
  swhip_fail("hipMalloc:2@2");
  OK(hipMalloc(&first, N));
  EXPECT(hipMalloc(&second, N) == hipErrorOutOfMemory);
  EXPECT(hipGetLastError() == hipErrorOutOfMemory && hipGetLastError() == hipSuccess);
  OK(hipMalloc(&second, N));
  swhip_fail("hipMemcpyAsync:999@1+,*:1@4");
  EXPECT(hipMemcpyAsync(first, second, N, hipMemcpyDeviceToDevice, nullptr) == hipErrorUnknown);
  EXPECT(hipMemcpyAsync(first, second, N, hipMemcpyDeviceToDevice, nullptr) == hipErrorUnknown);
  OK(hipMemsetAsync(first, 0, N, nullptr));
  EXPECT(hipMemsetAsync(first, 0, N, nullptr) == hipErrorInvalidValue);

  // A lost device stays lost, but its objects can still be destroyed.
  hipStream_t stream;
  hipError_t status = hipSuccess;
  OK(hipStreamCreate(&stream));
  // Pending commands would be counted.
  OK(hipStreamSynchronize(nullptr));
  swhip_fail("async:700@2");
  OK(hipMemsetAsync(first, 0, N, stream));
  OK(hipMemsetAsync(first, 0, N, stream));
  hipStreamAddCallback(
      stream, [](hipStream_t, hipError_t error, void *data) { *(hipError_t *)data = error; }, &status, 0);
  EXPECT(hipStreamSynchronize(stream) == hipErrorIllegalAddress);
  EXPECT(hipMalloc(&first, N) == hipErrorIllegalAddress);
  EXPECT(hipFree(second) == hipErrorIllegalAddress && hipStreamDestroy(stream) == hipErrorIllegalAddress);
  EXPECT(swhip_live("streams") == 0 && swhip_live("allocs") == 1);
  EXPECT(hipDeviceReset() == hipErrorIllegalAddress);
  swhip_revive();
  swhip_fail("");
  OK(hipFree(first));
}
// Copies numbers from one array to another with a kernel.
class Copying {
 public:
  static constexpr uint32_t COUNT = 100;
  Copying() : from(numbers()), to(COUNT) {}
  static std::vector<uint64_t> numbers() {
    std::vector<uint64_t> values;
    for (uint64_t i = 0; i < COUNT; i++) values.push_back(i * 0x0123456789abcdef + 1);
    return values;
  }
  void start(hipStream_t stream, uint64_t *target) const {
    OK(launch(kernels["frame_end"], {1, 1, 128}, stream, from.data(), target, COUNT, COUNT));
  }
  void clear() const { OK(hipMemsetAsync(to.data(), 0, COUNT * sizeof(uint64_t), nullptr)); }
  std::vector<uint64_t> result() const { return to.read(); }
  // Returns the result of the kernel on zeroes.
  std::vector<uint64_t> run() const {
    clear();
    start(nullptr, to.data());
    return result();
  }
  bool works() const { return run() == numbers(); }
  uint64_t *target() const { return to.data(); }

 private:
  Kernels kernels;
  Array<uint64_t> from, to;
};
int bits_between(const std::vector<uint64_t> &a, const std::vector<uint64_t> &b) {
  int bits = 0;
  for (size_t i = 0; i < a.size(); i++) bits += __builtin_popcountll(a[i] ^ b[i]);
  return bits;
}

// Runs a kernel six times with `faults`. Returns one letter for each result.
std::string struck_runs(const Copying &copying, const char *faults) {
  std::string struck;
  swhip_fail(faults);
  for (int i = 0; i < 6; i++) struck += copying.works() ? '.' : 'x';
  swhip_fail("");
  return struck;
}

void dropped_and_flipped_kernels() {
  const Copying copying;
  const std::vector<uint64_t> right = Copying::numbers(), nothing(Copying::COUNT);
  const long faults = swhip_count("faults");
  EXPECT(struck_runs(copying, "drop:2") == ".x....");
  EXPECT(struck_runs(copying, "drop:2+") == ".xxxxx");
  EXPECT(struck_runs(copying, "drop:2+3,drop:6") == ".x..xx");
  EXPECT(swhip_count("faults") == faults + 1 + 5 + 3);
  swhip_fail("drop:1,flip:1");
  const long launches = swhip_count("launches");
  EXPECT(copying.run() == nothing && swhip_count("fault_at") == launches + 1);
  // If a kernel wrote nothing, the flip applies to the next one that does.
  EXPECT(bits_between(copying.run(), right) == 1 && swhip_count("fault_at") == launches + 2);
  EXPECT(copying.works());
  swhip_fail("flip:1");
  copying.start(nullptr, copying.target());
  EXPECT(copying.result() == right);
  const std::vector<uint64_t> flipped = copying.run();
  EXPECT(bits_between(flipped, right) == 1);
  swhip_fail("flip:1");
  EXPECT(copying.run() == flipped);
  swhip_fail("flip:1");
  const Pinned pinned;
  copying.start(nullptr, (uint64_t *)pinned.at);
  OK(hipStreamSynchronize(nullptr));
  const auto *found = (const uint64_t *)pinned.at;
  EXPECT(bits_between({found, found + Copying::COUNT}, right) == 1);
  EXPECT(struck_runs(copying, "flip:3+3") == "..x..x");
}

// Returns true if the host sees the data that a kernel wrote to host memory after waiting for the event.
bool visible(const Copying &copying, unsigned memory_flags, unsigned event_flags) {
  const Stream stream;
  const Event event(event_flags);
  const Pinned host(memory_flags);
  const auto arrived = [&] { return memcmp(host.at, Copying::numbers().data(), Copying::COUNT * 8) == 0; };
  copying.start(stream, (uint64_t *)host.at);
  OK(hipEventRecord(event, stream));
  OK(hipEventSynchronize(event));
  OK(hipEventQuery(event));
  const bool before = arrived();
  EXPECT(before || ((const unsigned char *)host.at)[0] == 0xCD);
  OK(hipStreamSynchronize(stream));
  EXPECT(arrived());
  return before;
}
void coherence() {
  constexpr unsigned NO_FENCE = 0x20000000, TO_DEVICE = 0x40000000, PORTABLE = 1;
  const std::string mode = getenv("SWHIP_COHERENCE") ? getenv("SWHIP_COHERENCE") : "";
  const bool strict = mode == "strict";
  const Copying copying;
  for (const unsigned not_coherent : {0u, PORTABLE, hipHostMallocNonCoherent}) {
    for (const unsigned events : {0u, NO_FENCE, TO_DEVICE})
      EXPECT(visible(copying, not_coherent, events) == !strict);
    EXPECT(visible(copying, not_coherent, hipEventReleaseToSystem));
  }
  for (const unsigned events : {0u, hipEventReleaseToSystem})
    EXPECT(visible(copying, hipHostMallocCoherent, events));
  void *none;
  EXPECT(hipHostMalloc(&none, N, hipHostMallocCoherent | hipHostMallocNonCoherent) == hipErrorInvalidValue);

  // Each side sees its own writes, and keeps them if the other side writes beside them.
  const Stream stream;
  const Event event;
  const Pinned host;
  auto *bytes = (unsigned char *)host.at;
  const Array<unsigned char> device(N);
  memset(bytes, 1, N);
  OK(hipMemsetAsync(bytes, 2, N / 2, stream));
  OK(hipMemcpyAsync(device.data(), bytes, N, hipMemcpyHostToDevice, stream));
  OK(hipEventRecord(event, stream));
  OK(hipEventSynchronize(event));
  EXPECT(bytes[0] == (strict ? 1 : 2) && bytes[N - 1] == 1);
  bytes[N - 1] = 3;
  OK(hipMemcpyAsync(bytes + 1, device.data() + N / 2, 1, hipMemcpyDeviceToHost, stream));
  OK(hipDeviceSynchronize());
  EXPECT(bytes[0] == 2 && bytes[1] == 1 && bytes[2] == 2 && bytes[N / 2] == 1 && bytes[N - 1] == 3);
  const std::vector<unsigned char> found = device.read();
  EXPECT(found[0] == 2 && found[N / 2] == 1);
  // Memory that was copied back belongs to the host again.
  bytes[0] = 4;
  OK(hipMemcpyAsync(device.data(), bytes, N, hipMemcpyHostToDevice, stream));
  OK(hipStreamSynchronize(stream));
  EXPECT(bytes[0] == 4 && device.read()[0] == 4);
  // A call that waits for a copy makes it visible.
  OK(hipMemcpy(bytes, device.data(), 1, hipMemcpyDeviceToHost));
  EXPECT(bytes[0] == 4);
}

// Captures the kernel and replays it. Returns the result.
std::vector<uint64_t> replayed(const Copying &copying, const char *faults) {
  const Stream stream;
  hipGraph_t graph;
  hipGraphExec_t exec;
  copying.clear();
  OK(hipDeviceSynchronize());
  swhip_fail(faults);
  OK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  copying.start(stream, copying.target());
  OK(hipStreamEndCapture(stream, &graph));
  OK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  OK(hipGraphDestroy(graph));
  OK(hipGraphLaunch(exec, stream));
  OK(hipStreamSynchronize(stream));
  OK(hipGraphExecDestroy(exec));
  swhip_fail("");
  return copying.result();
}
void replayed_faults() {
  const Copying copying;
  const std::vector<uint64_t> right = Copying::numbers(), nothing(Copying::COUNT);
  EXPECT(replayed(copying, "drop:2") == right);
  EXPECT(replayed(copying, "drop:1") == nothing);
  EXPECT(bits_between(replayed(copying, "flip:1"), right) == 1);
  const long faults = swhip_count("faults");
  EXPECT(replayed(copying, "empty:2") == right && swhip_count("faults") == faults);
  EXPECT(replayed(copying, "empty:1") == nothing && swhip_count("faults") == faults + 1);
}

// Uploads in a separate stream, as for tables, and again in the same stream, as for frames.
std::vector<uint64_t> upload(const Array<uint64_t> &device, const std::vector<uint64_t> &values) {
  const Stream stream;
  const size_t size = values.size() * sizeof(uint64_t);
  OK(hipMemcpyAsync(device.data(), values.data(), size, hipMemcpyHostToDevice, stream));
  OK(hipStreamSynchronize(stream));
  const std::vector<uint64_t> uploaded = device.read();
  OK(hipMemcpyAsync(device.data(), values.data(), size, hipMemcpyHostToDevice, stream));
  OK(hipStreamSynchronize(stream));
  return uploaded;
}
void spoiled_copies() {
  const std::vector<uint64_t> right = Copying::numbers(), old(Copying::COUNT, 7);
  const Array<uint64_t> device(old);
  const long faults = swhip_count("faults");
  swhip_fail("stale:1+2");
  EXPECT(upload(device, right) == old);  // the second copy is the one that reads
  swhip_fail("table:2");
  EXPECT(upload(device, right) == right && device.read() == right);
  EXPECT(bits_between(upload(device, right), right) == 1 && device.read() == right);
  EXPECT(upload(device, right) == right);
  swhip_fail("");
  EXPECT(swhip_count("faults") == faults + 3);
}

// An invalid fault ends the process.
bool refused(const char *faults) {
  const pid_t child = fork();
  if (child == 0) {
    (void)!freopen("/dev/null", "w", stderr);
    swhip_fail(faults);
    _exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status);
}
void refused_faults() {
  OK(hipDeviceSynchronize());
  for (const char *fault : {"hipMalloc:2", "hipMalloc@3", "drop:2@3", "drop:0", "drop:1+0", "drop:1x", "drop"})
    EXPECT(refused(fault));
  for (const char *fault : {"hipMalloc:2@3+", "async:700@5", "*:1@2+4", "flip:3+,table:2+7"})
    EXPECT(!refused(fault));
}
}  // namespace

void run_runtime() {
  streams();
  queues();
  graphs();
  memory();
  modules();
  int count;
  OK(hipGetDeviceCount(&count));
  if (count > 1) devices();
  faults();
  coherence();
  dropped_and_flipped_kernels();
  replayed_faults();
  spoiled_copies();
  refused_faults();
}
