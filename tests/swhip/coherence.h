// SPDX-License-Identifier: MPL-2.0
//
// Host memory that is not coherent, where the environment asks for it: the device has a view of its own, and
// the host finds what the device wrote only after a release to the system.
#pragma once
#include "device.h"

namespace swhip {
// What the device sees of one allocation.
class View {
 public:
  View(char *host, size_t size);
  View(const View &) = delete;
  ~View();
  // Takes over what the host wrote, but where bytes of the device wait for a release.
  void refresh();
  // Has the bytes that changed since `before` wait for a release.
  void keep(const std::vector<char> &before);
  // Hands them to the host.
  void release();
  std::vector<char> bytes() const { return {room.first, room.first + size}; }
  bool holds(const char *address) const { return address >= host && address < host + size; }
  char *translate(const char *address) const { return room.first + (address - host); }

 private:
  char *host;
  size_t size;
  Room room;
  std::vector<bool> waits;
  size_t waiting = 0;  // of them
};

// One command works on the views of the memory that its addresses lie in. The mutex is held at both ends of its
// life.
class Visit {
 public:
  explicit Visit(const Command &command);
  Visit(const Visit &) = delete;
  ~Visit();

 private:
  std::vector<std::vector<char>> before;
};

// A view, if host memory with these flags of hipHostMalloc is to have one.
std::shared_ptr<View> view_of(char *host, size_t size, unsigned flags);
// Where the device finds what is at this address, for the command that runs.
char *on_the_device(char *address);
// All that the device wrote so far becomes visible to the host.
void release_to_system();
}  // namespace swhip
