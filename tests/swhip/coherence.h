// SPDX-License-Identifier: MPL-2.0
//
// Host memory that is not coherent, if the environment requests it: the device has its own view, and the host sees the
// device's writes only after a release to the system.
#pragma once
#include "device.h"

namespace swhip {
// The device's view of one allocation.
class View {
 public:
  View(char *host, size_t size);
  View(const View &) = delete;
  ~View();
  // Copies the host's writes into the view, except for bytes that wait for a release.
  void refresh();
  // Marks the bytes that changed since `before` as waiting for a release.
  void keep(const std::vector<char> &before);
  // Copies these bytes to the host.
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

// Gives one command the views of the memory at its addresses. The mutex is held at construction and destruction.
class Visit {
 public:
  explicit Visit(const Command &command);
  Visit(const Visit &) = delete;
  ~Visit();

 private:
  std::vector<std::vector<char>> before;
};

// Creates a view if host memory with these flags of hipHostMalloc needs one.
std::shared_ptr<View> view_of(char *host, size_t size, unsigned flags);
// The device's address of the memory at this address, for the running command.
char *on_the_device(char *address);
// Makes all writes of the device so far visible to the host.
void release_to_system();
}  // namespace swhip
