// SPDX-License-Identifier: MPL-2.0
//
// The device: its description in the environment, the thread that runs its commands, and counters.
#include "coherence.h"
#include "engine.h"
#include "fault.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <unistd.h>

namespace swhip {
State &state = *new State;

namespace {
pid_t process;  // that started the device
thread_local bool is_worker;
thread_local int device_of_thread;
thread_local hipError_t error_of_thread;

const char *const COUNTERS[] = {
    "launches", "graph_launches", "graph_nodes", "h2d",       "h2d_bytes", "d2h",           "d2h_bytes",
    "d2d",      "d2d_bytes",      "h2h",         "h2h_bytes", "memsets",   "memsets_bytes", "host_functions",
    "calls",    "faults",         "fault_at",  "registered_bytes", "unregistered_early", "unregistered_late"};
const char *const LIVE[] = {"allocs",  "bytes",  "pinned",  "registered", "external",
                            "streams", "events", "modules", "graphs",     "coherent", "released"};

long live(const std::string &what) {
  if (what == "bytes") {
    long bytes = 0;
    for (const Device &device : state.devices) bytes += (long)device.used;
    return bytes;
  }
  if (what == "streams") return (long)state.streams.size();
  if (what == "events") return (long)state.events.size();
  if (what == "modules") return (long)state.modules.size();
  if (what == "graphs") return (long)(state.graphs.size() + state.execs.size());
  if (what == "external") return (long)state.imports.size();
  long n = 0;
  if (what == "coherent") {
    constexpr unsigned PORTABLE = 1, MAPPED = 2, COHERENT = 0x40000000, ALL = PORTABLE | MAPPED | COHERENT;
    for (const auto &[at, allocation] : state.allocations)
      n += allocation.kind == Kind::Pinned && (allocation.flags & ALL) == ALL;
    return n;
  }
  if (what == "released") {
    for (const auto &[handle, event] : state.events) n += event->releases;
    return n;
  }
  const Kind kind = what == "allocs" ? Kind::Device : what == "pinned" ? Kind::Pinned : Kind::Registered;
  if (kind == Kind::Registered && what != "registered") return -1;
  for (const auto &[at, allocation] : state.allocations) n += allocation.kind == kind;
  return n;
}

void report() {
  if (getpid() != process) return;
  FILE *file = fopen(getenv("SWHIP_REPORT"), "w");
  if (!file) return perror("SWHIP_REPORT");
  std::lock_guard<std::mutex> lock(state.mutex);
  for (const char *what : LIVE) fprintf(file, "live %s %ld\n", what, live(what));
  for (const auto &[what, n] : state.counts) fprintf(file, "count %s %ld\n", what.c_str(), n);
  fclose(file);
}

std::vector<std::string> ours(const std::vector<std::string> &archs) {
  std::vector<std::string> taken;
  for (const std::string &arch : archs)
    if (arch[0] == *default_arch()) taken.push_back(arch);
  return taken;
}
bool strict(const std::string &coherence) {
  if (!coherence.empty() && coherence != "strict") {
    fprintf(stderr, "swhip: SWHIP_COHERENCE is '%s', not 'strict' or nothing\n", coherence.c_str());
    abort();
  }
  return !coherence.empty();
}

void start() {
  if (process) return;
  process = getpid();
  const auto get = [](const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
  };
  const std::vector<std::string> archs = ours(split(get("SWHIP_ARCH", default_arch())));
  const std::vector<std::string> units = split(get("SWHIP_UNITS", ""));
  const std::string all = std::to_string(archs.size());
  const int devices = archs.empty() ? 0 : atoi(get("SWHIP_DEVICES", all.c_str()));
  for (int i = 0; i < devices; i++) {
    const std::string &arch = archs[std::min((size_t)i, archs.size() - 1)];
    state.devices.push_back({arch});
    state.devices.back().null_stream = create_stream(i, 0);
    if ((size_t)i < units.size()) {
      state.devices.back().units = atoi(units[(size_t)i].c_str());
      state.devices.back().integrated = units[(size_t)i].back() == 'i';
    }
  }
  state.memory = strtoull(get("SWHIP_MEM", "4294967296"), nullptr, 0);
  state.seed = strtoull(get("SWHIP_SEED", "0"), nullptr, 0);
  state.delay_us = atol(get("SWHIP_DELAY_US", "0"));
  state.strict = strict(get("SWHIP_COHERENCE", ""));
  set_faults(get("SWHIP_FAIL", ""));
  for (const char *what : COUNTERS) state.counts[what] = 0;
  if (getenv("SWHIP_REPORT")) atexit(report);
}

// ---- the worker ------------------------------------------------------------------------------

std::vector<size_t> ready_nodes(const Replay &replay) {
  std::vector<size_t> ready;
  for (size_t i = 0; i < replay.done.size(); i++) {
    bool free = !replay.done[i];
    for (const size_t before : replay.graph->nodes[i].after) free = free && replay.done[before];
    if (free) ready.push_back(i);
  }
  return ready;
}

void execute(std::unique_lock<std::mutex> &lock, const Command &command) {
  hipError_t error = state.lost ? state.lost : injected("async");
  const Visit visit(command);
  std::optional<Harm> harm;
  if (!error) harm.emplace(command);
  if (command.run && (!error || command.even_if_lost)) {
    lock.unlock();
    if (state.delay_us) usleep((useconds_t)state.delay_us);
    const hipError_t result = harm && harm->skips() ? hipSuccess : command.run(error);
    lock.lock();
    if (!error) error = result;
  }
  if (error && !state.lost) state.lost = error;
  if (error || !command.what) return;
  state.counts[command.what]++;
  if (command.bytes) state.counts[std::string(command.what) + "_bytes"] += (long)command.bytes;
  harm->strike();
}

// Runs one step of a queue: its next command, or a node of the graph that this command launches.
void advance(std::unique_lock<std::mutex> &lock, Queue &queue, uint64_t random) {
  const std::shared_ptr<Replay> replay = queue.commands.front().second.replay;
  if (replay && replay->left && !state.lost) {
    const std::vector<size_t> ready = ready_nodes(*replay);
    const size_t node = ready[random % ready.size()];
    execute(lock, replay->graph->nodes[node].command);
    if (!state.lost) state.counts["graph_nodes"]++;
    replay->done[node] = true;
    replay->left--;
    return;
  }
  // It stays in the queue until it is done, so that it counts as pending.
  const auto &[stream, command] = queue.commands.front();
  execute(lock, command);
  stream->finished++;
  queue.commands.pop_front();
}

bool may_run(const Command &command) {
  return state.lost || !command.event || command.event->done >= command.generation;
}

std::vector<std::shared_ptr<Queue>> ready_queues() {
  std::vector<std::shared_ptr<Queue>> ready;
  for (const Device &device : state.devices)
    for (const auto &queues : device.queues)
      for (const auto &queue : queues)
        if (!queue->commands.empty() && may_run(queue->commands.front().second)) ready.push_back(queue);
  return ready;
}

void work() {
  is_worker = true;
  std::unique_lock<std::mutex> lock(state.mutex);
  uint64_t random = 1;
  for (;;) {
    const std::vector<std::shared_ptr<Queue>> ready = ready_queues();
    if (ready.empty()) {
      state.changed.wait(lock);
      continue;
    }
    random = (random + state.seed) * 6364136223846793005u + 1442695040888963407u;
    const uint64_t choice = state.seed ? random >> 33 : 0;
    advance(lock, *ready[choice % ready.size()], choice / ready.size());
    state.changed.notify_all();
  }
}
}  // namespace

std::vector<std::string> split(const std::string &list) {
  std::vector<std::string> parts;
  for (size_t from = 0; from < list.size();) {
    const size_t to = std::min(list.find(',', from), list.size());
    if (to > from) parts.push_back(list.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

// NVIDIA's library defines another one.
__attribute__((weak)) const char *default_arch() { return "gfx1100"; }
int Device::wave() const { return arch.compare(0, 4, "gfx9") == 0 ? 64 : 32; }

Call::Call(const char *name, Needs needs) : lock(state.mutex) {
  start();
  state.counts["calls"]++;
  state.counts[name]++;
  error = is_worker ? hipErrorNotPermitted : getpid() != process ? hipErrorNotInitialized : injected(name);
  if (error || needs == Needs::Nothing) return;
  error = state.devices.empty() ? hipErrorInvalidDevice : state.lost;
  static bool working;
  if (error || working) return;
  working = true;
  std::thread(work).detach();
}
hipError_t Call::finish(hipError_t result) {
  if (result) error_of_thread = result;
  return result;
}

int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }
hipError_t last_error(bool clear) {
  const hipError_t error = error_of_thread;
  if (clear) error_of_thread = hipSuccess;
  return error;
}

Allocation *owner(const void *at, size_t size) {
  auto next = state.allocations.upper_bound((char *)at);
  if (next == state.allocations.begin()) return nullptr;
  auto &[first, allocation] = *--next;
  return (char *)at + size <= first + allocation.size ? &allocation : nullptr;
}
Allocation *touched(const void *at, size_t size) {
  auto next = state.allocations.lower_bound((char *)at + size);
  if (next == state.allocations.begin()) return nullptr;
  auto &[first, allocation] = *--next;
  return first + allocation.size > (char *)at ? &allocation : nullptr;
}
bool is_pending(const char *at, size_t size) {
  for (const Device &device : state.devices)
    for (const auto &queues : device.queues)
      for (const auto &queue : queues)
        for (const auto &[stream, command] : queue->commands)
          for (const char *address : command.addresses)
            if (at <= address && address < at + size) return true;
  return false;
}
char *first_byte(const void *at) { return std::prev(state.allocations.upper_bound((char *)at))->first; }
std::shared_ptr<Stream> create_stream(int ordinal, int priority) {
  constexpr size_t QUEUES = 4;  // GPU_MAX_HW_QUEUES of ROCm, for each priority
  Device &device = state.devices[(size_t)ordinal];
  auto &queues = device.queues[priority < 0];
  size_t &streams = device.streams[priority < 0];
  if (queues.size() < QUEUES) queues.push_back(std::make_shared<Queue>());
  return std::make_shared<Stream>(Stream{ordinal, queues[streams++ % QUEUES]});
}
std::shared_ptr<Stream> find_stream(hipStream_t stream) {
  if (!stream) return state.devices[(size_t)current_device()].null_stream;
  const auto found = state.streams.find(stream);
  return found == state.streams.end() ? nullptr : found->second;
}
std::vector<std::shared_ptr<Stream>> all_streams() {
  std::vector<std::shared_ptr<Stream>> all;
  for (const Device &device : state.devices) all.push_back(device.null_stream);
  for (const auto &[handle, stream] : state.streams) all.push_back(stream);
  return all;
}

hipError_t push(const std::shared_ptr<Stream> &stream, Command command) {
  if (stream->capture) {
    std::vector<Graph::Node> &nodes = stream->capture->graph->nodes;
    nodes.push_back({std::move(command), stream->after});
    stream->after = {nodes.size() - 1};
    return hipSuccess;
  }
  stream->queue->commands.push_back({stream, std::move(command)});
  stream->submitted++;
  state.changed.notify_all();
  return hipSuccess;
}
hipError_t drain(Call &call, const std::shared_ptr<Stream> &stream) {
  const uint64_t goal = stream->submitted;
  state.changed.wait(call.lock, [&] { return stream->finished >= goal; });
  return state.lost;
}
hipError_t drain_and_release(Call &call, const std::shared_ptr<Stream> &stream) {
  const hipError_t lost = drain(call, stream);
  if (!lost) release_to_system();
  return lost;
}
hipError_t drain_all(Call &call) {
  for (const auto &stream : all_streams()) drain(call, stream);
  return state.lost;
}

hipError_t guarded(const std::function<void()> &work) {
  const auto call = [](void *data) { (*(const std::function<void()> *)data)(); };
  const char *problem = hv::run_guarded(call, (void *)&work);
  if (!problem) return hipSuccess;
  fprintf(stderr, "swhip: copy or fill: %s\n", problem);
  return hipErrorIllegalAddress;
}
}  // namespace swhip

using namespace swhip;

void swhip_fail(const char *list) {
  std::lock_guard<std::mutex> lock(state.mutex);
  start();
  set_faults(list);
}
void swhip_seed(unsigned long seed) {
  std::lock_guard<std::mutex> lock(state.mutex);
  start();
  state.seed = seed;
}
void swhip_revive() {
  std::lock_guard<std::mutex> lock(state.mutex);
  state.lost = hipSuccess;
}
long swhip_live(const char *what) {
  std::lock_guard<std::mutex> lock(state.mutex);
  return live(what);
}
long swhip_count(const char *what) {
  std::lock_guard<std::mutex> lock(state.mutex);
  start();
  const auto found = state.counts.find(what);
  const bool call = strncmp(what, "hip", 3) == 0 || strncmp(what, "cu", 2) == 0;
  return found != state.counts.end() ? found->second : call ? 0 : -1;
}
