// SPDX-License-Identifier: MPL-2.0
//
// Views, and the commands that use them.
#include "coherence.h"
#include <algorithm>
#include <cstring>
#include <sys/mman.h>

namespace swhip {
// The views of the running command; only the worker uses them.
static auto &visited = *new std::vector<std::shared_ptr<View>>;

View::View(char *host, size_t size) : host(host), size(size), room(make_room(size)), waits(size) {
  if (!room.first) throw std::bad_alloc();
}
View::~View() { munmap(room.mapping, room.mapped); }

void View::refresh() {
  if (!waiting) {
    memcpy(room.first, host, size);
    return;
  }
  for (size_t i = 0; i < size; i++)
    if (!waits[i]) room.first[i] = host[i];
}
void View::keep(const std::vector<char> &before) {
  for (size_t i = 0; i < size; i++) {
    if (room.first[i] == before[i] || waits[i]) continue;
    waits[i] = true;
    waiting++;
  }
}
void View::release() {
  for (size_t i = 0; waiting && i < size; i++) {
    if (!waits[i]) continue;
    host[i] = room.first[i];
    waits[i] = false;
    waiting--;
  }
}

Visit::Visit(const Command &command) {
  if (!state.strict) return;
  for (const char *address : command.addresses) {
    const Allocation *allocation = owner(address, 1);
    if (!allocation || !allocation->view) continue;
    if (std::find(visited.begin(), visited.end(), allocation->view) != visited.end()) continue;
    allocation->view->refresh();
    before.push_back(allocation->view->bytes());
    visited.push_back(allocation->view);
  }
}
Visit::~Visit() {
  for (size_t i = 0; i < before.size(); i++) visited[i]->keep(before[i]);
  visited.clear();
}

std::shared_ptr<View> view_of(char *host, size_t size, unsigned flags) {
  if (!state.strict || !size || (flags & hipHostMallocCoherent)) return nullptr;
  return std::make_shared<View>(host, size);
}
char *on_the_device(char *address) {
  for (const auto &view : visited)
    if (view->holds(address)) return view->translate(address);
  return address;
}
void release_to_system() {
  if (!state.strict) return;
  for (const auto &[at, allocation] : state.allocations)
    if (allocation.view) allocation.view->release();
}
}  // namespace swhip
