// SPDX-License-Identifier: MPL-2.0
//
// Graphs: captured from one or more streams, and run node by node in any order that their edges allow.
#include "graph.h"
#include "fault.h"
#include <algorithm>

namespace swhip {
static thread_local hipStreamCaptureMode mode_of_thread = hipStreamCaptureModeGlobal;
static thread_local std::set<std::shared_ptr<Capture>> captures_of_thread;

hipError_t spoil(Capture &capture, hipError_t error) {
  capture.valid = false;
  return error;
}
hipError_t forbidden_by_capture() {
  if (mode_of_thread == hipStreamCaptureModeRelaxed) return hipSuccess;
  hipError_t error = hipSuccess;
  for (const auto &capture : state.captures) {
    const bool everywhere =
        capture->mode == hipStreamCaptureModeGlobal && mode_of_thread == hipStreamCaptureModeGlobal;
    const bool here = capture->mode != hipStreamCaptureModeRelaxed && captures_of_thread.count(capture);
    if (everywhere || here) error = spoil(*capture, hipErrorStreamCaptureUnsupported);
  }
  return error;
}
hipError_t join_capture(Stream &stream, const Event &event) {
  if (!state.captures.count(event.capture)) return hipErrorCapturedEvent;
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.after = event.after;
    return hipSuccess;
  }
  if (stream.capture != event.capture) return spoil(*stream.capture, hipErrorStreamCaptureMerge);
  for (const size_t node : event.after)
    if (std::find(stream.after.begin(), stream.after.end(), node) == stream.after.end())
      stream.after.push_back(node);
  return hipSuccess;
}
void leave_capture(Stream &stream) {
  if (!stream.capture) return;
  spoil(*stream.capture, hipSuccess);
  if (stream.capture->origin == &stream) state.captures.erase(stream.capture);
}

// Returns true if every node leads to one of the last nodes of the stream.
static bool joined(const Graph &graph, const Stream &stream) {
  std::vector<bool> reached(graph.nodes.size());
  for (const size_t node : stream.after) reached[node] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;)  // edges lead to later nodes
    if (reached[i])
      for (const size_t before : graph.nodes[i].after) reached[before] = true;
  return std::find(reached.begin(), reached.end(), false) == reached.end();
}
static hipError_t instantiate(hipGraphExec_t *exec, hipGraph_t graph) {
  const auto found = state.graphs.find(graph);
  if (!exec || found == state.graphs.end()) return hipErrorInvalidValue;
  const auto copy = std::make_shared<const Graph>(*found->second);
  *exec = (hipGraphExec_t)copy.get();
  state.execs[*exec] = copy;
  return hipSuccess;
}
}  // namespace swhip

using namespace swhip;

hipError_t hipStreamBeginCapture(hipStream_t handle, hipStreamCaptureMode mode) {
  ENTER();
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (!stream) RETURN(hipErrorInvalidHandle);
  if (!handle) RETURN(hipErrorStreamCaptureUnsupported);
  if (stream->capture) RETURN(spoil(*stream->capture, hipErrorStreamCaptureUnsupported));
  stream->capture = std::make_shared<Capture>(Capture{stream.get(), mode});
  stream->after.clear();
  state.captures.insert(stream->capture);
  captures_of_thread.insert(stream->capture);
  RETURN(hipSuccess);
}
hipError_t hipStreamEndCapture(hipStream_t handle, hipGraph_t *graph) {
  ENTER();
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (!graph || !stream) RETURN(hipErrorInvalidHandle);
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture || capture->origin != stream.get()) RETURN(hipErrorStreamCaptureUnmatched);
  const bool complete = joined(*capture->graph, *stream);
  for (const auto &other : all_streams()) {
    if (other->capture != capture) continue;
    other->capture = nullptr;
    other->after.clear();
  }
  state.captures.erase(capture);
  captures_of_thread.erase(capture);
  if (!capture->valid) RETURN(hipErrorStreamCaptureInvalidated);
  if (!complete) RETURN(hipErrorStreamCaptureUnjoined);
  if (strikes("empty")) {
    capture->graph->nodes.clear();
    count_silent_fault();
  }
  *graph = capture->graph.get();
  state.graphs[*graph] = capture->graph;
  RETURN(hipSuccess);
}
hipError_t hipStreamIsCapturing(hipStream_t handle, int *status) {
  ENTER();
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (!status || !stream) RETURN(hipErrorInvalidHandle);
  *status = !stream->capture ? 0 : stream->capture->valid ? 1 : 2;
  RETURN(hipSuccess);
}
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode) {
  ENTER();
  std::swap(*mode, mode_of_thread);
  RETURN(hipSuccess);
}

hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count) {
  ENTER();
  const auto found = state.graphs.find(graph);
  if (nodes || !count || found == state.graphs.end()) RETURN(hipErrorInvalidValue);
  *count = found->second->nodes.size();
  RETURN(hipSuccess);
}
hipError_t hipGraphInstantiate(hipGraphExec_t *exec, hipGraph_t graph, void **, char *, size_t) {
  ENTER();
  RETURN(instantiate(exec, graph));
}
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *exec, hipGraph_t graph, unsigned long long) {
  ENTER();
  RETURN(instantiate(exec, graph));
}
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t handle) {
  ENTER();
  const std::shared_ptr<Stream> stream = find_stream(handle);
  const auto found = state.execs.find(exec);
  if (!stream || found == state.execs.end()) RETURN(hipErrorInvalidHandle);
  if (stream->capture) RETURN(spoil(*stream->capture, hipErrorStreamCaptureUnsupported));
  const size_t nodes = found->second->nodes.size();
  Command command;
  command.what = "graph_launches";
  command.replay = std::make_shared<Replay>(Replay{found->second, std::vector<bool>(nodes), nodes});
  RETURN(push(stream, std::move(command)));
}
hipError_t hipGraphExecDestroy(hipGraphExec_t exec) {
  ENTER_RELEASE();
  RETURN_RELEASED(state.execs.erase(exec) ? hipSuccess : hipErrorInvalidHandle);
}
hipError_t hipGraphDestroy(hipGraph_t graph) {
  ENTER_RELEASE();
  RETURN_RELEASED(state.graphs.erase(graph) ? hipSuccess : hipErrorInvalidHandle);
}
