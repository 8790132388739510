// SPDX-License-Identifier: MPL-2.0
//
// Streams, events and host functions. The null stream is a stream like any other.
#include "coherence.h"
#include "graph.h"

using namespace swhip;

static hipError_t create(hipStream_t *stream, int priority = 0) {
  if (!stream) return hipErrorInvalidValue;
  const auto created = create_stream(current_device(), priority);
  *stream = created.get();
  state.streams[*stream] = created;
  return hipSuccess;
}
hipError_t hipStreamCreate(hipStream_t *stream) {
  ENTER();
  RETURN(create(stream));
}
hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned) {
  ENTER();
  RETURN(create(stream));
}
hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned, int priority) {
  ENTER();
  RETURN(create(stream, priority));
}
hipError_t hipStreamDestroy(hipStream_t handle) {
  ENTER_RELEASE();
  const auto found = state.streams.find(handle);
  if (found == state.streams.end()) RETURN_RELEASED(hipErrorInvalidHandle);
  const std::shared_ptr<Stream> stream = found->second;
  const hipError_t lost = drain(call, stream);
  leave_capture(*stream);
  state.streams.erase(handle);
  RETURN_RELEASED(lost);
}
hipError_t hipStreamSynchronize(hipStream_t handle) {
  ENTER();
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (!stream) RETURN(hipErrorInvalidHandle);
  if (stream->capture) RETURN(spoil(*stream->capture, hipErrorStreamCaptureUnsupported));
  RETURN(drain_and_release(call, stream));
}
hipError_t hipStreamQuery(hipStream_t handle) {
  ENTER();
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (!stream) RETURN(hipErrorInvalidHandle);
  if (stream->capture) RETURN(spoil(*stream->capture, hipErrorStreamCaptureUnsupported));
  RETURN(stream->finished == stream->submitted ? hipSuccess : hipErrorNotReady);
}

hipError_t hipLaunchHostFunc(hipStream_t handle, hipHostFn_t function, void *data) {
  ENTER();
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (!stream || !function) RETURN(hipErrorInvalidHandle);
  const auto run = [=](hipError_t) {
    function(data);
    return hipSuccess;
  };
  RETURN(push(stream, {"host_functions", 0, run}));
}
// Unlike a host function, a callback also runs on a lost device.
hipError_t hipStreamAddCallback(hipStream_t handle, hipStreamCallback_t callback, void *data, unsigned) {
  ENTER();
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (!stream || !callback) RETURN(hipErrorInvalidHandle);
  if (stream->capture) RETURN(spoil(*stream->capture, hipErrorStreamCaptureUnsupported));
  const auto run = [=](hipError_t status) {
    callback(handle, status, data);
    return hipSuccess;
  };
  RETURN(push(stream, {"host_functions", 0, run, true}));
}

// ---- events --------------------------------------------------------------------------------------

static std::shared_ptr<Event> find_event(hipEvent_t event) {
  const auto found = state.events.find(event);
  return found == state.events.end() ? nullptr : found->second;
}
hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags) {
  ENTER();
  if (!event) RETURN(hipErrorInvalidValue);
  const auto created = std::make_shared<Event>(
      Event{!(flags & hipEventDisableTiming), (flags & hipEventReleaseToSystem) != 0});
  *event = created.get();
  state.events[*event] = created;
  RETURN(hipSuccess);
}
hipError_t hipEventDestroy(hipEvent_t event) {
  ENTER_RELEASE();
  RETURN_RELEASED(state.events.erase(event) ? hipSuccess : hipErrorInvalidHandle);
}
hipError_t hipEventRecord(hipEvent_t handle, hipStream_t stream_handle) {
  ENTER();
  const std::shared_ptr<Stream> stream = find_stream(stream_handle);
  const std::shared_ptr<Event> event = find_event(handle);
  if (!stream || !event) RETURN(hipErrorInvalidHandle);
  event->capture = stream->capture;
  event->after = stream->after;
  if (event->capture) RETURN(hipSuccess);
  const uint64_t generation = ++event->recorded;
  const auto run = [=](hipError_t) {
    std::lock_guard<std::mutex> lock(state.mutex);
    if (event->releases) release_to_system();
    event->done = std::max(event->done, generation);
    event->time = Clock::now();
    return hipSuccess;
  };
  RETURN(push(stream, {nullptr, 0, run}));
}
hipError_t hipStreamWaitEvent(hipStream_t stream_handle, hipEvent_t handle, unsigned) {
  ENTER();
  const std::shared_ptr<Stream> stream = find_stream(stream_handle);
  const std::shared_ptr<Event> event = find_event(handle);
  if (!stream || !event) RETURN(hipErrorInvalidHandle);
  if (event->capture) RETURN(join_capture(*stream, *event));
  if (stream->capture) RETURN(spoil(*stream->capture, hipErrorStreamCaptureIsolation));
  if (!event->recorded) RETURN(hipSuccess);
  Command command;
  command.event = event;
  command.generation = event->recorded;
  RETURN(push(stream, std::move(command)));
}
hipError_t hipEventSynchronize(hipEvent_t handle) {
  ENTER();
  const std::shared_ptr<Event> event = find_event(handle);
  if (!event) RETURN(hipErrorInvalidHandle);
  if (event->capture) RETURN(hipErrorCapturedEvent);
  const uint64_t generation = event->recorded;
  state.changed.wait(call.lock, [&] { return event->done >= generation || state.lost; });
  RETURN(state.lost);
}
hipError_t hipEventQuery(hipEvent_t handle) {
  ENTER();
  const std::shared_ptr<Event> event = find_event(handle);
  if (!event) RETURN(hipErrorInvalidHandle);
  if (event->capture) RETURN(hipErrorCapturedEvent);
  RETURN(event->done >= event->recorded ? hipSuccess : hipErrorNotReady);
}
hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start_handle, hipEvent_t stop_handle) {
  ENTER();
  const std::shared_ptr<Event> start = find_event(start_handle), stop = find_event(stop_handle);
  if (!start || !stop) RETURN(hipErrorInvalidHandle);
  for (const auto &event : {start, stop}) {
    if (!event->timing || !event->recorded) RETURN(hipErrorInvalidHandle);
    if (event->done < event->recorded) RETURN(hipErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(stop->time - start->time).count();
  RETURN(hipSuccess);
}
