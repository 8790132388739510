// SPDX-License-Identifier: MPL-2.0
//
// Copies and fills. Pinned and device memory is read and written when the stream comes to it, pageable memory
// at the call.
#include "coherence.h"
#include <cstring>

using namespace swhip;

namespace {
struct Rows {
  char *at;
  size_t pitch;
  size_t extent(size_t width, size_t height) const { return pitch * (height - 1) + width; }
};
bool on_device(const Allocation *allocation) {
  return allocation && (allocation->kind == Kind::Device || allocation->kind == Kind::External);
}

hipError_t copy(Call &call, Rows to, Rows from, size_t width, size_t height, hipMemcpyKind kind,
                hipStream_t handle) {
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (!stream) return hipErrorInvalidHandle;
  if (!width || !height) return hipSuccess;
  if (width > to.pitch || width > from.pitch) return hipErrorInvalidValue;
  const Allocation *target = owner(to.at, to.extent(width, height));
  const Allocation *source = owner(from.at, from.extent(width, height));
  // Memory that is locked only for another device counts as ordinary memory.
  constexpr unsigned PORTABLE = 1;
  const bool registered = source && source->kind == Kind::Registered;
  if (registered && !(source->flags & PORTABLE) && source->device != stream->device) source = nullptr;
  else if (registered) state.counts["registered_bytes"] += (long)(width * height);
  // Memory of which only a part is locked is invalid.
  else if (!source && touched(from.at, from.extent(width, height))) return hipErrorInvalidValue;
  const bool to_device = on_device(target), from_device = on_device(source);
  if (kind == hipMemcpyDefault)
    kind = to_device     ? (from_device ? hipMemcpyDeviceToDevice : hipMemcpyHostToDevice)
           : from_device ? hipMemcpyDeviceToHost
                         : hipMemcpyHostToHost;
  const bool writes_device = kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice;
  const bool reads_device = kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice;
  if ((writes_device && !to_device) || (reads_device && !from_device)) return hipErrorInvalidValue;

  const char *const counters[] = {"h2h", "h2d", "d2h", "d2d"};
  const auto rows = [=](const char *start) {
    char *const target = on_the_device(to.at);
    return guarded([=] {
      for (size_t y = 0; y < height; y++) memcpy(target + y * to.pitch, start + y * from.pitch, width);
    });
  };
  Command command{counters[kind], width * height};
  command.run = [=](hipError_t) { return rows(on_the_device(from.at)); };
  if (!source && !stream->capture) {
    const auto staged = std::make_shared<std::vector<char>>(from.at, from.at + from.extent(width, height));
    command.run = [=](hipError_t) { return rows(staged->data()); };
  }
  command.addresses = {to.at, from.at};
  // Tables are uploaded in one piece, each in a stream that is created for it; streams of frames begin differently.
  const bool first = handle && !stream->capture && !stream->submitted;
  command.constant = first && kind == hipMemcpyHostToDevice && height == 1;
  push(stream, std::move(command));
  return target || stream->capture ? hipSuccess : drain(call, stream);
}
hipError_t copy_and_wait(Call &call, void *to, const void *from, size_t size, hipMemcpyKind kind) {
  if (const hipError_t error = forbidden_by_capture()) return error;
  const hipError_t error = copy(call, {(char *)to, size}, {(char *)from, size}, size, 1, kind, nullptr);
  return error ? error : drain_and_release(call, find_stream(nullptr));
}
hipError_t copy_later(Call &call, void *to, const void *from, size_t size, hipMemcpyKind kind,
                      hipStream_t stream) {
  return copy(call, {(char *)to, size}, {(char *)from, size}, size, 1, kind, stream);
}

template <class T>
hipError_t fill(void *at, T value, size_t count, hipStream_t handle) {
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (!stream) return hipErrorInvalidHandle;
  if (!count) return hipSuccess;
  if (!owner(at, count * sizeof(T)) || (uintptr_t)at % sizeof(T)) return hipErrorInvalidValue;
  const auto run = [=](hipError_t) {
    T *const target = (T *)on_the_device((char *)at);
    return guarded([=] { std::fill_n(target, count, value); });
  };
  Command command{"memsets", count * sizeof(T), run};
  command.addresses = {(char *)at};
  return push(stream, std::move(command));
}
}  // namespace

hipError_t hipMemcpy(void *to, const void *from, size_t size, hipMemcpyKind kind) {
  ENTER();
  RETURN(copy_and_wait(call, to, from, size, kind));
}
hipError_t hipMemcpyHtoD(void *to, const void *from, size_t size) {
  ENTER();
  RETURN(copy_and_wait(call, to, from, size, hipMemcpyHostToDevice));
}
hipError_t hipMemcpyDtoH(void *to, void *from, size_t size) {
  ENTER();
  RETURN(copy_and_wait(call, to, from, size, hipMemcpyDeviceToHost));
}
hipError_t hipMemcpyDtoD(void *to, void *from, size_t size) {
  ENTER();
  RETURN(copy_and_wait(call, to, from, size, hipMemcpyDeviceToDevice));
}
hipError_t hipMemcpyAsync(void *to, const void *from, size_t size, hipMemcpyKind kind, hipStream_t stream) {
  ENTER();
  RETURN(copy_later(call, to, from, size, kind, stream));
}
hipError_t hipMemcpyHtoDAsync(void *to, const void *from, size_t size, hipStream_t stream) {
  ENTER();
  RETURN(copy_later(call, to, from, size, hipMemcpyHostToDevice, stream));
}
hipError_t hipMemcpyDtoHAsync(void *to, void *from, size_t size, hipStream_t stream) {
  ENTER();
  RETURN(copy_later(call, to, from, size, hipMemcpyDeviceToHost, stream));
}
hipError_t hipMemcpyDtoDAsync(void *to, void *from, size_t size, hipStream_t stream) {
  ENTER();
  RETURN(copy_later(call, to, from, size, hipMemcpyDeviceToDevice, stream));
}
hipError_t hipMemcpyPeerAsync(void *to, int, const void *from, int, size_t size, hipStream_t stream) {
  ENTER();
  RETURN(copy_later(call, to, from, size, hipMemcpyDeviceToDevice, stream));
}
hipError_t hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                            size_t height, hipMemcpyKind kind, hipStream_t stream) {
  ENTER();
  RETURN(copy(call, {(char *)to, to_pitch}, {(char *)from, from_pitch}, width, height, kind, stream));
}
hipError_t hipMemcpyParam2DAsync(const hip_Memcpy2D *desc, hipStream_t stream) {
  ENTER();
  if (!desc || desc->from.array || desc->to.array) RETURN(hipErrorInvalidValue);
  const auto rows = [](const hip_Memcpy2D::Side &side) {
    return Rows{
        (char *)(side.type == hipMemoryTypeDevice ? side.device : side.host) + side.y * side.pitch + side.x,
        side.pitch};
  };
  const bool to_device = desc->to.type == hipMemoryTypeDevice,
             from_device = desc->from.type == hipMemoryTypeDevice;
  const auto kind = (hipMemcpyKind)(2 * from_device + to_device);
  RETURN(copy(call, rows(desc->to), rows(desc->from), desc->width, desc->height, kind, stream));
}
hipError_t hipMemsetAsync(void *at, int value, size_t size, hipStream_t stream) {
  ENTER();
  RETURN(fill(at, (uint8_t)value, size, stream));
}
hipError_t hipMemsetD8Async(void *at, unsigned char value, size_t count, hipStream_t stream) {
  ENTER();
  RETURN(fill(at, (uint8_t)value, count, stream));
}
hipError_t hipMemsetD16Async(void *at, unsigned short value, size_t count, hipStream_t stream) {
  ENTER();
  RETURN(fill(at, (uint16_t)value, count, stream));
}
hipError_t hipMemsetD32Async(void *at, int value, size_t count, hipStream_t stream) {
  ENTER();
  RETURN(fill(at, (uint32_t)value, count, stream));
}
