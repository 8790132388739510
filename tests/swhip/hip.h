// SPDX-License-Identifier: MPL-2.0
//
// The calls of the software device, with the numbers of HIP 6, and its own functions for tests.
#pragma once
#include <cstddef>
#include <cstdint>

enum hipError_t : int {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorNotInitialized = 3,
  hipErrorNoDevice = 100,
  hipErrorInvalidDevice = 101,
  hipErrorInvalidImage = 200,
  hipErrorInvalidContext = 201,
  hipErrorNoBinaryForGpu = 209,
  hipErrorInvalidKernelFile = 218,
  hipErrorInvalidHandle = 400,
  hipErrorNotFound = 500,
  hipErrorNotReady = 600,
  hipErrorIllegalAddress = 700,
  hipErrorContextIsDestroyed = 709,
  hipErrorHostMemoryAlreadyRegistered = 712,
  hipErrorHostMemoryNotRegistered = 713,
  hipErrorLaunchFailure = 719,
  hipErrorNotPermitted = 800,
  hipErrorNotSupported = 801,
  hipErrorStreamCaptureUnsupported = 900,
  hipErrorStreamCaptureInvalidated = 901,
  hipErrorStreamCaptureMerge = 902,
  hipErrorStreamCaptureUnmatched = 903,
  hipErrorStreamCaptureUnjoined = 904,
  hipErrorStreamCaptureIsolation = 905,
  hipErrorCapturedEvent = 907,
  hipErrorUnknown = 999,
};
enum hipMemcpyKind : int {
  hipMemcpyHostToHost,
  hipMemcpyHostToDevice,
  hipMemcpyDeviceToHost,
  hipMemcpyDeviceToDevice,
  hipMemcpyDefault,
};
enum hipMemoryType : int { hipMemoryTypeUnregistered, hipMemoryTypeHost, hipMemoryTypeDevice };
enum hipStreamCaptureMode : int {
  hipStreamCaptureModeGlobal,
  hipStreamCaptureModeThreadLocal,
  hipStreamCaptureModeRelaxed,
};

constexpr unsigned hipHostMallocCoherent = 0x40000000, hipHostMallocNonCoherent = 0x80000000;
constexpr unsigned hipEventDisableTiming = 2, hipEventReleaseToSystem = 0x80000000;

using hipStream_t = void *;
using hipEvent_t = void *;
using hipModule_t = void *;
using hipFunction_t = void *;
using hipGraph_t = void *;
using hipGraphNode_t = void *;
using hipGraphExec_t = void *;
using hipExternalMemory_t = void *;
using hipHostFn_t = void (*)(void *data);
using hipStreamCallback_t = void (*)(hipStream_t, hipError_t, void *data);

struct hipPointerAttribute_t {
  hipMemoryType type;
  int device;
  void *device_pointer, *host_pointer;
  int is_managed;
  unsigned flags;
};
struct hip_Memcpy2D {
  struct Side {
    size_t x, y;  // x in bytes
    hipMemoryType type;
    void *host, *device, *array;
    size_t pitch;
  } from, to;
  size_t width, height;  // width in bytes
};
struct hipExternalMemoryHandleDesc {
  int type;  // 1: a file descriptor
  union {
    int fd;
    void *win32[2];
  } handle;
  unsigned long long size;
  unsigned flags;
};
struct hipExternalMemoryBufferDesc {
  unsigned long long offset, size;
  unsigned flags;
};

extern "C" {
// device.cpp
void swhip_fail(const char *faults);  // replaces SWHIP_FAIL, counting from now
void swhip_seed(unsigned long seed);  // replaces SWHIP_SEED
void swhip_revive();                  // brings a lost device back
long swhip_live(const char *what);    // objects that exist: see README.md
long swhip_count(const char *what);   // counts of events so far: see README.md

// info.cpp
hipError_t hipInit(unsigned flags);
hipError_t hipDriverGetVersion(int *version);
hipError_t hipRuntimeGetVersion(int *version);
hipError_t hipGetDeviceCount(int *count);
hipError_t hipSetDevice(int device);
hipError_t hipGetDevice(int *device);
hipError_t hipDeviceGetName(char *name, int size, int device);
hipError_t hipDeviceGetPCIBusId(char *id, int size, int device);
hipError_t hipDeviceGetAttribute(int *value, int attribute, int device);
hipError_t hipGetDevicePropertiesR0600(void *properties, int device);
hipError_t hipGetDeviceProperties(void *properties, int device);
hipError_t hipDeviceSynchronize();
hipError_t hipDeviceReset();
hipError_t hipGetLastError();
hipError_t hipPeekAtLastError();
const char *hipGetErrorName(hipError_t error);
const char *hipGetErrorString(hipError_t error);

// memory.cpp
hipError_t hipMemGetInfo(size_t *free, size_t *total);
hipError_t hipMalloc(void **at, size_t size);
hipError_t hipFree(void *at);
hipError_t hipHostMalloc(void **at, size_t size, unsigned flags);
hipError_t hipHostFree(void *at);
hipError_t hipHostRegister(void *at, size_t size, unsigned flags);
hipError_t hipHostUnregister(void *at);
hipError_t hipHostGetDevicePointer(void **device, void *host, unsigned flags);
hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *at);
hipError_t hipImportExternalMemory(hipExternalMemory_t *memory, const hipExternalMemoryHandleDesc *desc);
hipError_t hipExternalMemoryGetMappedBuffer(void **at, hipExternalMemory_t memory,
                                            const hipExternalMemoryBufferDesc *desc);
hipError_t hipDestroyExternalMemory(hipExternalMemory_t memory);

// copy.cpp
hipError_t hipMemcpy(void *to, const void *from, size_t size, hipMemcpyKind kind);
hipError_t hipMemcpyAsync(void *to, const void *from, size_t size, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size,
                              hipStream_t stream);
hipError_t hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                            size_t height, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemcpyParam2DAsync(const hip_Memcpy2D *copy, hipStream_t stream);
hipError_t hipMemcpyHtoD(void *to, const void *from, size_t size);
hipError_t hipMemcpyDtoH(void *to, void *from, size_t size);
hipError_t hipMemcpyDtoD(void *to, void *from, size_t size);
hipError_t hipMemcpyHtoDAsync(void *to, const void *from, size_t size, hipStream_t stream);
hipError_t hipMemcpyDtoHAsync(void *to, void *from, size_t size, hipStream_t stream);
hipError_t hipMemcpyDtoDAsync(void *to, void *from, size_t size, hipStream_t stream);
hipError_t hipMemsetAsync(void *at, int value, size_t size, hipStream_t stream);
hipError_t hipMemsetD8Async(void *at, unsigned char value, size_t count, hipStream_t stream);
hipError_t hipMemsetD16Async(void *at, unsigned short value, size_t count, hipStream_t stream);
hipError_t hipMemsetD32Async(void *at, int value, size_t count, hipStream_t stream);

// stream.cpp
hipError_t hipStreamCreate(hipStream_t *stream);
hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags);
hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned flags, int priority);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);
hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void *data, unsigned flags);
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void *data);
hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start, hipEvent_t stop);

// graph.cpp
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph);
hipError_t hipStreamIsCapturing(hipStream_t stream, int *status);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode);
hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count);
hipError_t hipGraphInstantiate(hipGraphExec_t *exec, hipGraph_t graph, void **node, char *log, size_t size);
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *exec, hipGraph_t graph, unsigned long long flags);
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream);
hipError_t hipGraphExecDestroy(hipGraphExec_t exec);
hipError_t hipGraphDestroy(hipGraph_t graph);

// module.cpp
hipError_t hipModuleLoadData(hipModule_t *module, const void *image);
hipError_t hipModuleUnload(hipModule_t module);
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name);
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                 hipStream_t stream, void **parameters, void **extra);
}
