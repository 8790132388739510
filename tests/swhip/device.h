// SPDX-License-Identifier: MPL-2.0
//
// Declarations that the calls share: the state of the device, guarded by one mutex, and the entry of every call.
#pragma once
#include "hip.h"
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace swhip {

struct Capture;
struct Replay;
using Clock = std::chrono::steady_clock;

struct Event {
  bool timing, releases = false;  // to the system
  uint64_t recorded = 0, done = 0;  // generations
  Clock::time_point time = {};
  std::shared_ptr<Capture> capture = {};  // recorded last in a stream that captures ...
  std::vector<size_t> after = {};         // ... after these nodes
};

// A command of a stream, or a node of a graph.
struct Command {
  const char *what = nullptr;  // its counter
  size_t bytes = 0;
  std::function<hipError_t(hipError_t)> run = {};  // gets the error of a lost device
  bool even_if_lost = false;
  std::shared_ptr<Event> event = {};  // waits for this generation of the event
  uint64_t generation = 0;
  std::shared_ptr<Replay> replay = {};  // is a launch of a graph
  std::vector<char *> addresses = {};   // that it was given; of a copy the target first
  std::vector<char *> words = {};       // of a kernel's arguments; in structures some may be addresses
  bool constant = false;                // uploads constant data
};

struct Stream;
// The commands of the streams that share a hardware queue: each command waits for all before it.
struct Queue {
  std::deque<std::pair<std::shared_ptr<Stream>, Command>> commands;
};

struct Stream {
  int device;
  std::shared_ptr<Queue> queue;
  uint64_t submitted = 0, finished = 0;
  std::shared_ptr<Capture> capture = {};  // in which it takes part ...
  std::vector<size_t> after = {};         // ... with these nodes as the last of it
};

struct Graph {
  struct Node {
    Command command;
    std::vector<size_t> after;
  };
  std::vector<Node> nodes;
};
struct Capture {
  Stream *origin;
  hipStreamCaptureMode mode;
  bool valid = true;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
};
struct Replay {
  std::shared_ptr<const Graph> graph;
  std::vector<bool> done;
  size_t left;
};

// Memory filled with garbage that ends at an inaccessible page; `first` is null if there is no memory left.
struct Room {
  char *first = nullptr;
  char *mapping = nullptr;  // all that was mapped for it
  size_t mapped = 0;
};
Room make_room(size_t size);

class View;
enum class Kind { Device, Pinned, Registered, External };
struct Allocation {
  Kind kind;
  int device;
  size_t size;
  char *mapping = nullptr;  // all that was mapped for it
  size_t mapped = 0;
  unsigned flags = 0;  // of hipHostMalloc or hipHostRegister
  std::shared_ptr<View> view = {};  // of the device, where it differs from the host's
};
struct Module;
struct Function;

struct Device {
  std::string arch;  // as HIP reports it: gfx90a:sramecc+:xnack-
  // For streams of normal and of high priority.
  std::array<std::vector<std::shared_ptr<Queue>>, 2> queues = {};
  std::array<size_t, 2> streams = {};  // that were ever created
  std::shared_ptr<Stream> null_stream = {};
  int units = 1;           // compute units
  bool integrated = true;  // part of the processor
  size_t used = 0;
  int wave() const;
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Device> devices;
  size_t memory;                 // of each device
  std::atomic<uint64_t> seed;    // order of lanes, blocks, streams and graph nodes
  long delay_us;                 // before each command
  bool strict = false;           // host memory is not coherent unless it was asked to be
  hipError_t lost = hipSuccess;  // the sticky error of a lost device
  std::map<hipStream_t, std::shared_ptr<Stream>> streams;
  std::map<hipEvent_t, std::shared_ptr<Event>> events;
  std::map<char *, Allocation> allocations;  // by their first byte
  std::map<hipModule_t, std::shared_ptr<Module>> modules;
  std::map<hipFunction_t, std::shared_ptr<Function>> functions;
  std::map<hipGraph_t, std::shared_ptr<Graph>> graphs;
  std::map<hipGraphExec_t, std::shared_ptr<const Graph>> execs;
  std::map<hipExternalMemory_t, Allocation> imports;
  std::map<std::string, long> counts;
  std::set<std::shared_ptr<Capture>> captures;  // that go on
};
extern State &state;  // never destroyed: the worker goes on while the process exits

enum class Needs { Nothing, Device };
// The entry of a call: takes the mutex, counts the call, and determines whether it fails at once.
struct Call {
  std::unique_lock<std::mutex> lock;
  hipError_t error;
  explicit Call(const char *name, Needs needs = Needs::Device);
  // The call comes from a callback or from a child process, and must not use the device at all.
  bool out_of_place() const { return error == hipErrorNotPermitted || error == hipErrorNotInitialized; }
  // Sets the thread's last error.
  hipError_t finish(hipError_t result);
  hipError_t finish_release(hipError_t result) { return finish(error ? error : result); }
};
#define ENTER(...) \
  swhip::Call call(__func__ __VA_OPT__(, ) __VA_ARGS__); \
  if (call.error) return call.finish(call.error)
#define RETURN(error) return call.finish(error)
// For calls that release something: they do so even if they report a fault.
#define ENTER_RELEASE() \
  swhip::Call call(__func__); \
  if (call.out_of_place()) return call.finish(call.error)
#define RETURN_RELEASED(result) return call.finish_release(result)

// The architecture of the device unless the environment names some. Of those, a library uses the ones that begin like
// this: AMD's or NVIDIA's.
const char *default_arch();
int current_device();
void set_current_device(int device);
hipError_t last_error(bool clear);

// The items of a list with commas.
std::vector<std::string> split(const std::string &list);

// The allocation that contains all of [at, at + size), or null.
Allocation *owner(const void *at, size_t size);
// The last allocation that contains some of [at, at + size), or null.
Allocation *touched(const void *at, size_t size);
// Returns true if a pending command of a stream got an address in this range.
bool is_pending(const char *at, size_t size);
// The first byte of the allocation that contains an address.
char *first_byte(const void *at);
std::shared_ptr<Stream> create_stream(int device, int priority);
std::shared_ptr<Stream> find_stream(hipStream_t stream);
std::vector<std::shared_ptr<Stream>> all_streams();
// Appends to the stream, or to the graph that it captures.
hipError_t push(const std::shared_ptr<Stream> &stream, Command command);
// Waits for all that was submitted so far.
hipError_t drain(Call &call, const std::shared_ptr<Stream> &stream);
hipError_t drain_all(Call &call);
// The same. Afterwards the host sees the device's writes.
hipError_t drain_and_release(Call &call, const std::shared_ptr<Stream> &stream);
// Returns an error if a capture in progress forbids a call that may wait for the device.
hipError_t forbidden_by_capture();
// For copies and fills: turns an illegal address into an error of the device.
hipError_t guarded(const std::function<void()> &work);

}  // namespace swhip
