// SPDX-License-Identifier: MPL-2.0
//
// A CUDA driver with two devices of compute capability 9.0 that writes down how it is called. The types are those of
// NVIDIA's documentation of the driver API.
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static char calls[4096];

// Returns the names of the functions that were called since the last call of this one.
__attribute__((visibility("default"))) void fake_calls(char *text, size_t size) {
  snprintf(text, size, "%s", calls);
  calls[0] = 0;
}

static int call(const char *format, ...) {
  size_t used = strlen(calls);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(calls + used, sizeof calls - used, format, arguments);
  va_end(arguments);
  strncat(calls, "\n", sizeof calls - strlen(calls) - 1);
  return 0;
}

typedef unsigned long long CUdeviceptr;
typedef void *P;

int cuInit(unsigned flags) { return call("cuInit %u", flags); }
int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
// Handles differ from ordinals, so that mixing them up is seen.
int cuDeviceGet(int *device, int ordinal) { *device = 40 + ordinal; return ordinal < 2 ? 0 : 101; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  call("cuDeviceGetAttribute %d %d", attribute, device);
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 10 ? 32 : -attribute;
  return 0;
}
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Fake %d", device); return 0; }
int cuDeviceGetPCIBusId(char *id, int size, int device) { snprintf(id, size, "0000:%d:00.0", device); return 0; }
int cuDevicePrimaryCtxRetain(P *context, int device) {
  *context = (P)(size_t)(1000 + device);
  return call("cuDevicePrimaryCtxRetain %d", device);
}
static __thread P current;
int cuCtxGetCurrent(P *context) { *context = current; return 0; }
int cuCtxSetCurrent(P context) { current = context; return call("cuCtxSetCurrent %zu", (size_t)context); }
// The second device.
int cuCtxGetDevice(int *device) { *device = 41; return 0; }
int cuCtxSynchronize(void) { return call("cuCtxSynchronize"); }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = 1, *total = 2; return 0; }
int cuMemAlloc_v2(CUdeviceptr *address, size_t size) { *address = 0x7000 + size; return 0; }
int cuMemFree_v2(CUdeviceptr address) { return call("cuMemFree_v2 %llx", address); }
int cuMemHostAlloc(P *address, size_t size, unsigned flags) {
  *address = 0;
  call("cuMemHostAlloc %zu %x", size, flags);
  return 2;
}
int cuMemFreeHost(P address) { return call("cuMemFreeHost %zx", (size_t)address); }
int cuMemHostRegister_v2(P address, size_t size, unsigned flags) {
  return call("cuMemHostRegister_v2 %zx %zu %x", (size_t)address, size, flags);
}
int cuMemHostUnregister(P address) { return call("cuMemHostUnregister %zx", (size_t)address); }
int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, P stream) {
  return call("cuMemcpyAsync %llx %llx %zu %zx", to, from, size, (size_t)stream);
}
int cuMemcpyPeerAsync(CUdeviceptr to, P to_context, CUdeviceptr from, P from_context, size_t size, P stream) {
  return call("cuMemcpyPeerAsync %llx %zu %llx %zu %zu %zx", to, (size_t)to_context, from, (size_t)from_context, size,
              (size_t)stream);
}
int cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size, P stream) {
  return call("cuMemsetD8Async %llx %u %zu %zx", to, value, size, (size_t)stream);
}

typedef struct {
  size_t srcXInBytes, srcY;
  int srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  P srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  int dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  P dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;
int cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, P stream) {
  return call("cuMemcpy2DAsync_v2 %zu,%zu %d %zx %llx %zx %zu to %zu,%zu %d %zx %llx %zx %zu size %zux%zu %zx",
              c->srcXInBytes, c->srcY, c->srcMemoryType, (size_t)c->srcHost, c->srcDevice, (size_t)c->srcArray,
              c->srcPitch, c->dstXInBytes, c->dstY, c->dstMemoryType, (size_t)c->dstHost, c->dstDevice,
              (size_t)c->dstArray, c->dstPitch, c->WidthInBytes, c->Height, (size_t)stream);
}

// The structure of CUDA 12.8.
typedef struct {
  int srcAccessOrder;
  struct { int type, id; } srcLocHint, dstLocHint;
  unsigned flags;
} CUmemcpyAttributes;
int cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
                       size_t *first, size_t attribute_count, size_t *failed, P stream) {
  call("cuMemcpyBatchAsync %zu of %zu: %d %d %d %d %d %u %zx", first[0], attribute_count, attributes->srcAccessOrder,
       attributes->srcLocHint.type, attributes->srcLocHint.id, attributes->dstLocHint.type, attributes->dstLocHint.id,
       attributes->flags, (size_t)stream);
  for (size_t i = 0; i < count; ++i) call("%llx %llx %zu", to[i], from[i], sizes[i]);
  *failed = (size_t)-1;
  return to[0] == 0xbad;
}

int cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address) {
  if (address == 0xbad) return 1;
  if (attribute == 1) *(P *)value = (P)77;
  else *(int *)value = attribute == 2 ? (address == 0xde ? 2 : 1) : attribute == 9 ? 1 : -1;
  return 0;
}

int cuStreamGetCtx(P stream, P *context) {
  *context = (P)77;
  return call("cuStreamGetCtx %zx", (size_t)stream);
}
int cuStreamCreateWithPriority(P *stream, unsigned flags, int priority) {
  *stream = (P)0x51;
  return call("cuStreamCreateWithPriority %x %d", flags, priority);
}
int cuStreamDestroy_v2(P stream) { return call("cuStreamDestroy_v2 %zx", (size_t)stream); }
int cuStreamSynchronize(P stream) { return call("cuStreamSynchronize %zx", (size_t)stream); }
int cuStreamQuery(P stream) { (void)stream; return 600; }
int cuStreamWaitEvent(P stream, P event, unsigned flags) {
  return call("cuStreamWaitEvent %zx %zx %u", (size_t)stream, (size_t)event, flags);
}
int cuStreamAddCallback(P stream, void (*callback)(P, int, P), P argument, unsigned flags) {
  callback(stream, 0, argument);
  return call("cuStreamAddCallback %zx %u", (size_t)stream, flags);
}
int cuEventCreate(P *event, unsigned flags) { *event = (P)0xe; return call("cuEventCreate %x", flags); }
int cuEventDestroy_v2(P event) { return call("cuEventDestroy_v2 %zx", (size_t)event); }
int cuEventRecord(P event, P stream) { return call("cuEventRecord %zx %zx", (size_t)event, (size_t)stream); }
int cuEventSynchronize(P event) { return call("cuEventSynchronize %zx", (size_t)event); }
int cuEventQuery(P event) { (void)event; return 0; }
int cuEventElapsedTime(float *ms, P from, P to) { (void)from, (void)to, *ms = 1.5f; return 0; }
int cuModuleLoadData(P *module, const void *image) { *module = (P)0x30; return call("cuModuleLoadData %s", (char *)image); }
int cuModuleUnload(P module) { return call("cuModuleUnload %zx", (size_t)module); }
int cuLibraryLoadData(P *library, const void *image, int *options, P *values, unsigned count, int *more, P *others,
                      unsigned rest) {
  (void)options, (void)values, (void)more, (void)others;
  *library = (P)0x1b;
  return call("cuLibraryLoadData %s %u %u", (char *)image, count, rest);
}
int cuLibraryGetModule(P *module, P library) { *module = (P)0x30; return call("cuLibraryGetModule %zx", (size_t)library); }
int cuLibraryUnload(P library) { return call("cuLibraryUnload %zx", (size_t)library); }
int cuModuleGetFunction(P *function, P module, const char *name) {
  *function = (P)0xf;
  return call("cuModuleGetFunction %zx %s", (size_t)module, name);
}
int cuLaunchKernel(P function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, P stream, P *arguments, P *extra) {
  return call("cuLaunchKernel %zx %u,%u,%u %u,%u,%u %u %zx %d %zx", (size_t)function, gx, gy, gz, bx, by, bz, shared,
              (size_t)stream, *(int *)arguments[0], (size_t)extra);
}

int cuStreamBeginCapture_v2(P stream, int mode) { return call("cuStreamBeginCapture_v2 %zx %d", (size_t)stream, mode); }
int cuStreamEndCapture(P stream, P *graph) { *graph = (P)0x60; return call("cuStreamEndCapture %zx", (size_t)stream); }
int cuGraphGetNodes(P graph, P *nodes, size_t *count) {
  *count = 3;
  return call("cuGraphGetNodes %zx %zx", (size_t)graph, (size_t)nodes);
}
int cuGraphInstantiateWithFlags(P *exec, P graph, unsigned long long flags) {
  *exec = (P)0x61;
  return call("cuGraphInstantiateWithFlags %zx %llu", (size_t)graph, flags);
}
int cuGraphLaunch(P exec, P stream) { return call("cuGraphLaunch %zx %zx", (size_t)exec, (size_t)stream); }
int cuGraphExecDestroy(P exec) { return call("cuGraphExecDestroy %zx", (size_t)exec); }
int cuGraphDestroy(P graph) { return call("cuGraphDestroy %zx", (size_t)graph); }

typedef struct {
  int type;
  union {
    int fd;
    struct { void *handle; const void *name; } win32;
    const void *nvSciBufObject;
  } handle;
  unsigned long long size;
  unsigned flags;
  unsigned reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct {
  unsigned long long offset, size;
  unsigned flags;
  unsigned reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
int cuImportExternalMemory(P *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *d) {
  *memory = (P)0x3e;
  return call("cuImportExternalMemory %d %d %llu %u %u", d->type, d->handle.fd, d->size, d->flags, d->reserved[15]);
}
int cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, P memory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *d) {
  *address = 0x9000;
  return call("cuExternalMemoryGetMappedBuffer %zx %llu %llu %u %u", (size_t)memory, d->offset, d->size, d->flags,
              d->reserved[15]);
}
int cuDestroyExternalMemory(P memory) { return call("cuDestroyExternalMemory %zx", (size_t)memory); }
