// SPDX-License-Identifier: MPL-2.0
//
// NVIDIA's driver API for the same device: contexts, the objects that belong to them, and calls that need one. HIP's
// functions do the rest, under whose names calls are counted and fail.
#include "coherence.h"
#include "module.h"
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <pthread.h>

namespace swhip {
const char *default_arch() { return "sm_75"; }

struct Context {
  int device;
  bool primary;
  long users = 0;  // that retain it; without any it is destroyed
};
struct Library {
  const void *image;
  std::map<Context *, hipModule_t> modules;
};

namespace {
struct Owned {
  Context *context;
  hipError_t (*destroy)(void *);
};
constexpr int FIRST_DEVICE = 40;  // handles differ from ordinals, so that mixing them up is seen

std::atomic<bool> initialised;
std::mutex mutex;  // of what follows; taken after the device's
auto &contexts = *new std::set<Context *>;  // also destroyed ones, to tell them from what never was one
auto &belongings = *new std::map<const void *, Owned>;
auto &libraries = *new std::map<Library *, std::unique_ptr<Library>>;
thread_local std::vector<Context *> stack;  // the last is the current one

Context *context_of(const void *handle) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = belongings.find(handle);
  return found == belongings.end() ? nullptr : found->second.context;
}
// The null stream belongs to the current context.
Context *context_of_stream(hipStream_t stream) { return stream ? context_of(stream) : stack.back(); }

hipError_t usable(const Context *context) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!context || !contexts.count((Context *)context)) return hipErrorInvalidContext;
  return context->users ? hipSuccess : hipErrorContextIsDestroyed;
}
// For functions that only the driver has.
hipError_t enter(const char *name) {
  const Call call(name, Needs::Nothing);
  return call.error ? call.error : initialised ? hipSuccess : hipErrorNotInitialized;
}
// For functions that need a current context. Its device becomes the current one of HIP's functions.
hipError_t enter_context() {
  if (!initialised) return hipErrorNotInitialized;
  const hipError_t error = usable(stack.empty() ? nullptr : stack.back());
  if (!error) set_current_device(stack.back()->device);
  return error;
}

// Makes a new object belong to the current context.
hipError_t own(hipError_t made, const void *handle, hipError_t (*destroy)(void *)) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!made && handle) belongings[handle] = {stack.back(), destroy};
  return made;
}
void disown(const void *handle) {
  const std::lock_guard<std::mutex> lock(mutex);
  belongings.erase(handle);
}
// Destroys the objects of a context that is no longer used.
void clear(Context *context) {
  std::vector<std::pair<void *, Owned>> left;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const auto &[handle, owned] : belongings)
      if (owned.context == context) left.push_back({(void *)handle, owned});
    for (const auto &library : libraries) library.second->modules.erase(context);
  }
  for (const auto &[handle, owned] : left) {
    owned.destroy(handle);
    disown(handle);
  }
}
Context *primary_of(int device) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (Context *context : contexts)
    if (context->primary && context->device == device) return context;
  return *contexts.insert(new Context{device, true}).first;
}

// With SWHIP_CROWDED, the driver is as busy as that of an overloaded GPU. Several threads that copy are in it at the
// same time, and each stays until another comes, or for a while. A thread that allocates, frees or destroys something
// waits until none is in it, and does not stop others from entering, like glibc's lock.
bool crowded() {
  static const bool set = getenv("SWHIP_CROWDED");
  return set;
}
pthread_rwlock_t crowd = PTHREAD_RWLOCK_INITIALIZER;
class Copying {
  static inline std::mutex mutex;
  static inline std::condition_variable came;
  static inline unsigned long last;
  unsigned long mine = 0;

public:
  Copying() {
    if (!crowded()) return;
    pthread_rwlock_rdlock(&crowd);
    const std::lock_guard<std::mutex> lock(mutex);
    mine = ++last;
    came.notify_all();
  }
  ~Copying() {
    if (!crowded()) return;
    {
      std::unique_lock<std::mutex> lock(mutex);
      came.wait_for(lock, std::chrono::milliseconds(20), [&] { return last != mine; });
    }
    pthread_rwlock_unlock(&crowd);
  }
};
struct Alone {
  Alone() {
    if (crowded()) pthread_rwlock_wrlock(&crowd);
  }
  ~Alone() {
    if (crowded()) pthread_rwlock_unlock(&crowd);
  }
};

bool exists(int device) {
  return device >= FIRST_DEVICE && (size_t)(device - FIRST_DEVICE) < state.devices.size();
}
hipError_t retain(Context **context, Context *retained) {
  const std::lock_guard<std::mutex> lock(mutex);
  contexts.insert(retained);
  retained->users++;
  *context = retained;
  return hipSuccess;
}
}  // namespace
}  // namespace swhip

using namespace swhip;
using CUdeviceptr = void *;  // an integer of the same size, passed in the same way

#define ENTER_DRIVER() \
  if (const hipError_t error = swhip::enter(__func__)) return error
#define ENTER_CONTEXT() \
  if (const hipError_t error = swhip::enter_context()) return error

extern "C" {
// ---- devices ---------------------------------------------------------------------------------------

hipError_t cuInit(unsigned flags) {
  int count;
  if (flags) return hipErrorInvalidValue;
  const hipError_t error = hipGetDeviceCount(&count);
  if (!error) initialised = true;
  return error;
}
hipError_t cuDriverGetVersion(int *version) {
  *version = 12080;
  return hipSuccess;
}
hipError_t cuDeviceGetCount(int *count) {
  ENTER_DRIVER();
  *count = (int)state.devices.size();
  return hipSuccess;
}
hipError_t cuDeviceGet(int *device, int ordinal) {
  ENTER_DRIVER();
  *device = FIRST_DEVICE + ordinal;
  return exists(*device) ? hipSuccess : hipErrorInvalidDevice;
}
hipError_t cuDeviceGetName(char *name, int size, int device) {
  ENTER_DRIVER();
  if (!exists(device)) return hipErrorInvalidDevice;
  snprintf(name, (size_t)size, "Software CUDA device");
  return hipSuccess;
}
hipError_t cuDeviceGetPCIBusId(char *id, int size, int device) {
  ENTER_DRIVER();
  return hipDeviceGetPCIBusId(id, size, device - FIRST_DEVICE);
}
hipError_t cuDeviceGetAttribute(int *value, int attribute, int handle) {
  ENTER_DRIVER();
  if (!exists(handle)) return hipErrorInvalidDevice;
  const int ordinal = handle - FIRST_DEVICE;
  const Device &device = state.devices[(size_t)ordinal];
  const int capability = atoi(device.arch.c_str() + strlen("sm_"));
  switch (attribute) {
    case 1: *value = 1024; break;                // MAX_THREADS_PER_BLOCK
    case 8: *value = 49152; break;               // MAX_SHARED_MEMORY_PER_BLOCK
    case 10: *value = 32; break;                 // WARP_SIZE
    case 16: *value = device.units; break;       // MULTIPROCESSOR_COUNT
    case 18: *value = device.integrated; break;  // INTEGRATED
    case 33: *value = ordinal + 3; break;        // PCI_BUS_ID
    case 34: *value = 0; break;                  // PCI_DEVICE_ID
    case 50: *value = 0; break;                  // PCI_DOMAIN_ID
    case 75: *value = capability / 10; break;    // COMPUTE_CAPABILITY_MAJOR
    case 76: *value = capability % 10; break;    // COMPUTE_CAPABILITY_MINOR
    case 115: *value = 0; break;                 // MEMORY_POOLS_SUPPORTED
    default: return hipErrorInvalidValue;
  }
  return hipSuccess;
}

// ---- contexts --------------------------------------------------------------------------------------

hipError_t cuDevicePrimaryCtxRetain(Context **context, int device) {
  ENTER_DRIVER();
  if (!exists(device)) return hipErrorInvalidDevice;
  return retain(context, primary_of(device - FIRST_DEVICE));
}
hipError_t cuDevicePrimaryCtxRelease_v2(int device) {
  ENTER_DRIVER();
  if (!exists(device)) return hipErrorInvalidDevice;
  Context *const context = primary_of(device - FIRST_DEVICE);
  if (usable(context)) return hipErrorInvalidContext;
  if (context->users == 1) clear(context);
  context->users--;
  return hipSuccess;
}
hipError_t cuCtxCreate_v2(Context **context, unsigned, int device) {
  ENTER_DRIVER();
  if (!exists(device)) return hipErrorInvalidDevice;
  const hipError_t error = retain(context, new Context{device - FIRST_DEVICE, false});
  stack.push_back(*context);
  return error;
}
hipError_t cuCtxDestroy_v2(Context *context) {
  ENTER_DRIVER();
  if (const hipError_t error = usable(context)) return error;
  if (context->primary) return hipErrorInvalidContext;
  clear(context);
  context->users = 0;
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return hipSuccess;
}
hipError_t cuCtxPushCurrent_v2(Context *context) {
  ENTER_DRIVER();
  if (const hipError_t error = usable(context)) return error;
  stack.push_back(context);
  return hipSuccess;
}
hipError_t cuCtxPopCurrent_v2(Context **context) {
  ENTER_DRIVER();
  if (stack.empty()) return hipErrorInvalidContext;
  if (context) *context = stack.back();
  stack.pop_back();
  return hipSuccess;
}
hipError_t cuCtxGetCurrent(Context **context) {
  ENTER_DRIVER();
  *context = stack.empty() ? nullptr : stack.back();
  return hipSuccess;
}
// Replaces the topmost one; null removes it.
hipError_t cuCtxSetCurrent(Context *context) {
  ENTER_DRIVER();
  if (const hipError_t error = context ? usable(context) : hipSuccess) return error;
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(context);
  return hipSuccess;
}
hipError_t cuCtxGetDevice(int *device) {
  ENTER_CONTEXT();
  *device = stack.back()->device + FIRST_DEVICE;
  return hipSuccess;
}
// Waits only for the streams of this context.
hipError_t cuCtxSynchronize() {
  ENTER_CONTEXT();
  Call call(__func__);
  if (call.error) return call.error;
  if (const hipError_t error = forbidden_by_capture()) return error;
  for (const auto &stream : all_streams())
    if (stream == find_stream(nullptr) || context_of(stream.get()) == stack.back()) drain(call, stream);
  return state.lost;
}

// ---- memory ----------------------------------------------------------------------------------------

hipError_t cuMemGetInfo_v2(size_t *free, size_t *total) {
  ENTER_CONTEXT();
  return hipMemGetInfo(free, total);
}
hipError_t cuMemAlloc_v2(CUdeviceptr *at, size_t size) {
  ENTER_CONTEXT();
  const Alone alone;
  if (!size) return hipErrorInvalidValue;
  const hipError_t error = hipMalloc(at, size);
  return own(error, *at, hipFree);
}
hipError_t cuMemFree_v2(CUdeviceptr at) {
  ENTER_CONTEXT();
  const Alone alone;
  const hipError_t error = hipFree(at);
  if (error != hipErrorInvalidValue) disown(at);
  return error;
}
// Host memory is coherent on NVIDIA's GPUs.
hipError_t cuMemHostAlloc(void **at, size_t size, unsigned flags) {
  ENTER_CONTEXT();
  if (!size || flags > 7) return hipErrorInvalidValue;
  const hipError_t error = hipHostMalloc(at, size, hipHostMallocCoherent);
  return own(error, *at, hipHostFree);
}
hipError_t cuMemFreeHost(void *at) {
  ENTER_CONTEXT();
  const hipError_t error = hipHostFree(at);
  if (error != hipErrorInvalidValue) disown(at);
  return error;
}
hipError_t cuMemHostRegister_v2(void *at, size_t size, unsigned flags) {
  ENTER_CONTEXT();
  return own(hipHostRegister(at, size, flags), at, hipHostUnregister);
}
hipError_t cuMemHostUnregister(void *at) {
  ENTER_CONTEXT();
  disown(at);
  return hipHostUnregister(at);
}
hipError_t cuPointerGetAttribute(void *value, int attribute, CUdeviceptr at) {
  ENTER_DRIVER();
  const Call call(__func__);
  if (call.error) return call.error;
  const Allocation *allocation = owner(at, 1);
  if (!value || !allocation) return hipErrorInvalidValue;
  const bool on_device = allocation->kind == Kind::Device || allocation->kind == Kind::External;
  switch (attribute) {
    case 1: *(Context **)value = context_of(first_byte(at)); break;  // CONTEXT
    case 2: *(int *)value = on_device ? 2 : 1; break;                // MEMORY_TYPE
    case 9: *(int *)value = allocation->device; break;               // DEVICE_ORDINAL
    default: return hipErrorInvalidValue;
  }
  return hipSuccess;
}
hipError_t cuImportExternalMemory(hipExternalMemory_t *memory, const hipExternalMemoryHandleDesc *desc) {
  ENTER_CONTEXT();
  const hipError_t error = hipImportExternalMemory(memory, desc);
  return own(error, *memory, hipDestroyExternalMemory);
}
hipError_t cuExternalMemoryGetMappedBuffer(CUdeviceptr *at, hipExternalMemory_t memory,
                                           const hipExternalMemoryBufferDesc *desc) {
  ENTER_CONTEXT();
  return hipExternalMemoryGetMappedBuffer(at, memory, desc);
}
hipError_t cuDestroyExternalMemory(hipExternalMemory_t memory) {
  ENTER_CONTEXT();
  disown(memory);
  return hipDestroyExternalMemory(memory);
}

// ---- copies ----------------------------------------------------------------------------------------

hipError_t cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, hipStream_t stream) {
  ENTER_CONTEXT();
  const Copying copying;
  return hipMemcpyAsync(to, from, size, hipMemcpyDefault, stream);
}
hipError_t cuMemcpyPeerAsync(CUdeviceptr to, Context *to_context, CUdeviceptr from, Context *from_context,
                             size_t size, hipStream_t stream) {
  ENTER_CONTEXT();
  for (const Context *context : {to_context, from_context})
    if (const hipError_t error = usable(context)) return error;
  return hipMemcpyPeerAsync(to, to_context->device, from, from_context->device, size, stream);
}
// The structure is HIP's, with one more type of memory.
hipError_t cuMemcpy2DAsync_v2(const hip_Memcpy2D *copy, hipStream_t stream) {
  ENTER_CONTEXT();
  const Copying copying;
  constexpr int UNIFIED = 4;
  if (!copy || copy->from.array || copy->to.array) return hipErrorInvalidValue;
  if (copy->from.type != UNIFIED && copy->to.type != UNIFIED) return hipMemcpyParam2DAsync(copy, stream);
  const auto first = [](const hip_Memcpy2D::Side &side) {
    return (char *)(side.type == hipMemoryTypeHost ? side.host : side.device) + side.y * side.pitch + side.x;
  };
  const auto &[from, to, width, height] = *copy;
  return hipMemcpy2DAsync(first(to), to.pitch, first(from), from.pitch, width, height, hipMemcpyDefault,
                          stream);
}
struct CUmemcpyAttributes {
  int source_order;
  int source_place[2], destination_place[2];
  unsigned flags;
};
// The copies may run in any order, of which this is one.
hipError_t cuMemcpyBatchAsync(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t count,
                              const CUmemcpyAttributes *attributes, const size_t *first, size_t attribute_count,
                              size_t *failed, hipStream_t stream) {
  ENTER_DRIVER();
  ENTER_CONTEXT();
  const Copying copying;
  if (!to || !from || !sizes || !count || !attributes || !first || !failed || !stream) return hipErrorInvalidValue;
  if (attribute_count != 1 || first[0] || attributes->source_order != 1 || attributes->flags)
    return hipErrorInvalidValue;
  for (size_t i = count; i-- > 0;) {
    if (const hipError_t error = hipMemcpyAsync(to[i], from[i], sizes[i], hipMemcpyDefault, stream)) {
      *failed = i;
      return error;
    }
  }
  return hipSuccess;
}
hipError_t cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t size, hipStream_t stream) {
  ENTER_CONTEXT();
  return hipMemsetD8Async(at, value, size, stream);
}

// ---- streams and events ----------------------------------------------------------------------------

hipError_t cuStreamCreateWithPriority(hipStream_t *stream, unsigned flags, int priority) {
  ENTER_CONTEXT();
  if (flags > 1) return hipErrorInvalidValue;
  const hipError_t error = hipStreamCreateWithPriority(stream, flags, priority);
  return own(error, *stream, hipStreamDestroy);
}
hipError_t cuStreamDestroy_v2(hipStream_t stream) {
  ENTER_CONTEXT();
  const Alone alone;
  const hipError_t error = hipStreamDestroy(stream);
  disown(stream);
  return error;
}
hipError_t cuStreamGetCtx(hipStream_t stream, Context **context) {
  ENTER_CONTEXT();
  *context = context_of_stream(stream);
  return *context ? hipSuccess : hipErrorInvalidHandle;
}
hipError_t cuStreamSynchronize(hipStream_t stream) {
  ENTER_CONTEXT();
  return hipStreamSynchronize(stream);
}
hipError_t cuStreamQuery(hipStream_t stream) {
  ENTER_CONTEXT();
  return hipStreamQuery(stream);
}
hipError_t cuStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
  ENTER_CONTEXT();
  return hipStreamWaitEvent(stream, event, flags);
}
hipError_t cuStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void *data, unsigned flags) {
  ENTER_CONTEXT();
  return hipStreamAddCallback(stream, callback, data, flags);
}
hipError_t cuEventCreate(hipEvent_t *event, unsigned flags) {
  ENTER_CONTEXT();
  if (flags > 7) return hipErrorInvalidValue;
  const hipError_t error = hipEventCreateWithFlags(event, flags);
  return own(error, *event, hipEventDestroy);
}
hipError_t cuEventDestroy_v2(hipEvent_t event) {
  ENTER_CONTEXT();
  disown(event);
  return hipEventDestroy(event);
}
hipError_t cuEventRecord(hipEvent_t event, hipStream_t stream) {
  ENTER_CONTEXT();
  if (context_of(event) != context_of_stream(stream)) return hipErrorInvalidHandle;
  return hipEventRecord(event, stream);
}
hipError_t cuEventSynchronize(hipEvent_t event) {
  ENTER_CONTEXT();
  return hipEventSynchronize(event);
}
hipError_t cuEventQuery(hipEvent_t event) {
  ENTER_CONTEXT();
  return hipEventQuery(event);
}
hipError_t cuEventElapsedTime(float *milliseconds, hipEvent_t from, hipEvent_t to) {
  ENTER_CONTEXT();
  if (context_of(from) != context_of(to)) return hipErrorInvalidHandle;
  return hipEventElapsedTime(milliseconds, from, to);
}

// ---- modules ---------------------------------------------------------------------------------------

hipError_t cuModuleLoadData(hipModule_t *module, const void *image) {
  ENTER_CONTEXT();
  const hipError_t error = load_ptx(module, (const char *)image);
  return own(error, *module, hipModuleUnload);
}
hipError_t cuModuleUnload(hipModule_t module) {
  ENTER_CONTEXT();
  disown(module);
  return hipModuleUnload(module);
}
hipError_t cuModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
  ENTER_CONTEXT();
  const hipError_t error = hipModuleGetFunction(function, module, name);
  // Destroyed with its module.
  return own(error, *function, [](void *) { return hipSuccess; });
}
hipError_t cuLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                          hipStream_t stream, void **parameters, void **extra) {
  ENTER_CONTEXT();
  if (context_of(function) != context_of_stream(stream)) return hipErrorInvalidHandle;
  return hipModuleLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                               stream, parameters, extra);
}
// A library belongs to no context. Each context gets a module of it at the first request.
hipError_t cuLibraryLoadData(Library **library, const void *image, int *, void **, unsigned, int *, void **,
                             unsigned) {
  ENTER_DRIVER();
  auto loaded = std::make_unique<Library>(Library{image, {}});
  const std::lock_guard<std::mutex> lock(mutex);
  *library = loaded.get();
  libraries[*library] = std::move(loaded);
  return hipSuccess;
}
hipError_t cuLibraryGetModule(hipModule_t *module, Library *library) {
  ENTER_CONTEXT();
  const void *image;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!libraries.count(library)) return hipErrorInvalidHandle;
    image = library->image;
    const auto found = library->modules.find(stack.back());
    if (found != library->modules.end()) {
      *module = found->second;
      return hipSuccess;
    }
  }
  if (const hipError_t error = cuModuleLoadData(module, image)) return error;
  const std::lock_guard<std::mutex> lock(mutex);
  library->modules[stack.back()] = *module;
  return hipSuccess;
}
hipError_t cuLibraryUnload(Library *library) {
  ENTER_DRIVER();
  std::unique_ptr<Library> unloaded;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = libraries.find(library);
    if (found == libraries.end()) return hipErrorInvalidHandle;
    unloaded = std::move(found->second);
    libraries.erase(found);
  }
  hipError_t error = hipSuccess;
  for (const auto &[context, module] : unloaded->modules) {
    disown(module);
    error = hipModuleUnload(module);
  }
  return error;
}

// ---- graphs ----------------------------------------------------------------------------------------

hipError_t cuStreamBeginCapture_v2(hipStream_t stream, hipStreamCaptureMode mode) {
  ENTER_CONTEXT();
  return hipStreamBeginCapture(stream, mode);
}
hipError_t cuStreamEndCapture(hipStream_t stream, hipGraph_t *graph) {
  ENTER_CONTEXT();
  return hipStreamEndCapture(stream, graph);
}
hipError_t cuGraphInstantiateWithFlags(hipGraphExec_t *exec, hipGraph_t graph, unsigned long long flags) {
  ENTER_CONTEXT();
  return hipGraphInstantiateWithFlags(exec, graph, flags);
}
hipError_t cuGraphLaunch(hipGraphExec_t exec, hipStream_t stream) {
  ENTER_CONTEXT();
  return hipGraphLaunch(exec, stream);
}
hipError_t cuGraphExecDestroy(hipGraphExec_t exec) {
  ENTER_CONTEXT();
  return hipGraphExecDestroy(exec);
}
hipError_t cuGraphDestroy(hipGraph_t graph) {
  ENTER_CONTEXT();
  return hipGraphDestroy(graph);
}
}
