// SPDX-License-Identifier: MPL-2.0
//
// Properties of the device, and calls that it does not support.
#include "coherence.h"
#include <cstdio>
#include <cstring>

using namespace swhip;

static bool exists(int device) { return device >= 0 && device < (int)state.devices.size(); }

hipError_t hipInit(unsigned) {
  ENTER();
  RETURN(hipSuccess);
}
hipError_t hipDriverGetVersion(int *version) {
  ENTER(Needs::Nothing);
  *version = 60200000;
  RETURN(hipSuccess);
}
hipError_t hipRuntimeGetVersion(int *version) {
  ENTER(Needs::Nothing);
  *version = 60200000;
  RETURN(hipSuccess);
}
hipError_t hipGetDeviceCount(int *count) {
  ENTER(Needs::Nothing);
  *count = (int)state.devices.size();
  RETURN(*count ? hipSuccess : hipErrorNoDevice);
}
hipError_t hipSetDevice(int device) {
  ENTER();
  if (!exists(device)) RETURN(hipErrorInvalidDevice);
  set_current_device(device);
  RETURN(hipSuccess);
}
hipError_t hipGetDevice(int *device) {
  ENTER();
  *device = current_device();
  RETURN(hipSuccess);
}
hipError_t hipDeviceGetName(char *name, int size, int device) {
  ENTER();
  if (!exists(device)) RETURN(hipErrorInvalidDevice);
  snprintf(name, (size_t)size, "Software HIP device");
  RETURN(hipSuccess);
}
hipError_t hipDeviceGetPCIBusId(char *id, int size, int device) {
  ENTER();
  if (!exists(device)) RETURN(hipErrorInvalidDevice);
  snprintf(id, (size_t)size, "0000:%02x:00.0", (unsigned)device + 3);
  RETURN(hipSuccess);
}
hipError_t hipDeviceGetAttribute(int *value, int attribute, int device) {
  ENTER();
  if (!exists(device)) RETURN(hipErrorInvalidDevice);
  switch (attribute) {
    case 16: *value = state.devices[(size_t)device].integrated; break;  // Integrated
    case 56: *value = 1024; break;                                  // MaxThreadsPerBlock
    case 63: *value = state.devices[(size_t)device].units; break;       // MultiprocessorCount
    case 67: *value = device + 3; break;                            // PciBusId
    case 74: *value = 65536; break;                                 // MaxSharedMemoryPerBlock
    case 87: *value = state.devices[(size_t)device].wave(); break;  // WarpSize
    default: *value = 0;
  }
  RETURN(hipSuccess);
}

// The layouts of HIP 6 (R0600) and of HIP 5. Callers read the name, memory, wave and architecture.
static void describe(void *properties, int device, size_t size, size_t memory, size_t wave, size_t arch) {
  char *at = (char *)properties;
  const int lanes = state.devices[(size_t)device].wave();
  memset(at, 0, size);
  snprintf(at, 256, "Software HIP device");
  memcpy(at + memory, &state.memory, sizeof state.memory);
  memcpy(at + wave, &lanes, sizeof lanes);
  snprintf(at + arch, 256, "%s", state.devices[(size_t)device].arch.c_str());
}
hipError_t hipGetDevicePropertiesR0600(void *properties, int device) {
  ENTER();
  if (!exists(device)) RETURN(hipErrorInvalidDevice);
  describe(properties, device, 1472, 288, 308, 1160);
  RETURN(hipSuccess);
}
hipError_t hipGetDeviceProperties(void *properties, int device) {
  ENTER();
  if (!exists(device)) RETURN(hipErrorInvalidDevice);
  describe(properties, device, 792, 256, 276, 396);
  RETURN(hipSuccess);
}

hipError_t hipDeviceSynchronize() {
  ENTER();
  if (const hipError_t error = forbidden_by_capture()) RETURN(error);
  const hipError_t lost = drain_all(call);
  if (!lost) release_to_system();
  RETURN(lost);
}
hipError_t hipDeviceReset() {  // does not bring a lost device back, as on hardware
  ENTER();
  RETURN(drain_all(call));
}
hipError_t hipGetLastError() { return last_error(true); }
hipError_t hipPeekAtLastError() { return last_error(false); }

const char *hipGetErrorName(hipError_t error) {
#define NAME(error) \
  case error: return #error
  switch (error) {
    NAME(hipSuccess);
    NAME(hipErrorInvalidValue);
    NAME(hipErrorOutOfMemory);
    NAME(hipErrorNotInitialized);
    NAME(hipErrorNoDevice);
    NAME(hipErrorInvalidDevice);
    NAME(hipErrorInvalidImage);
    NAME(hipErrorInvalidContext);
    NAME(hipErrorNoBinaryForGpu);
    NAME(hipErrorInvalidKernelFile);
    NAME(hipErrorInvalidHandle);
    NAME(hipErrorNotFound);
    NAME(hipErrorNotReady);
    NAME(hipErrorIllegalAddress);
    NAME(hipErrorContextIsDestroyed);
    NAME(hipErrorHostMemoryAlreadyRegistered);
    NAME(hipErrorHostMemoryNotRegistered);
    NAME(hipErrorLaunchFailure);
    NAME(hipErrorNotPermitted);
    NAME(hipErrorNotSupported);
    NAME(hipErrorStreamCaptureUnsupported);
    NAME(hipErrorStreamCaptureInvalidated);
    NAME(hipErrorStreamCaptureMerge);
    NAME(hipErrorStreamCaptureUnmatched);
    NAME(hipErrorStreamCaptureUnjoined);
    NAME(hipErrorStreamCaptureIsolation);
    NAME(hipErrorCapturedEvent);
    NAME(hipErrorUnknown);
  }
  return "hipErrorUnknown";
}
const char *hipGetErrorString(hipError_t error) { return hipGetErrorName(error); }

// Optional functions that GStreamer's HIP library looks up.
#define NOT_SUPPORTED(name) \
  extern "C" hipError_t name(); \
  hipError_t name() { \
    ENTER(); \
    RETURN(hipErrorNotSupported); \
  }
NOT_SUPPORTED(hipTexObjectCreate)
NOT_SUPPORTED(hipTexObjectDestroy)
NOT_SUPPORTED(hipGraphicsMapResources)
NOT_SUPPORTED(hipGraphicsResourceGetMappedPointer)
NOT_SUPPORTED(hipGraphicsUnmapResources)
NOT_SUPPORTED(hipGraphicsUnregisterResource)
NOT_SUPPORTED(hipGLGetDevices)
NOT_SUPPORTED(hipGraphicsGLRegisterBuffer)
