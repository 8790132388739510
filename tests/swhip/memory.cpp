// SPDX-License-Identifier: MPL-2.0
//
// Memory: every allocation is filled with garbage and ends at an inaccessible page. After it is freed, all of it is
// inaccessible.
#include "coherence.h"
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace swhip;

Room swhip::make_room(size_t size) {
  constexpr size_t ALIGNMENT = 16;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t padded = (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1), body = (padded + page - 1) & ~(page - 1);
  char *mapping =
      (char *)mmap(nullptr, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return {};
  memset(mapping, 0xCD, body);
  mprotect(mapping + body, page, PROT_NONE);
  return {mapping + body - padded, mapping, body + page};
}

static hipError_t allocate(void **at, size_t size, Kind kind, unsigned flags = 0) {
  if (!at) return hipErrorInvalidValue;
  *at = nullptr;
  if (const hipError_t error = forbidden_by_capture()) return error;
  if (!size) return hipSuccess;
  Device &device = state.devices[(size_t)current_device()];
  if (kind == Kind::Device && size > state.memory - device.used) return hipErrorOutOfMemory;
  const Room room = make_room(size);
  if (!room.first) return hipErrorOutOfMemory;
  Allocation &made = state.allocations[room.first];
  made = {kind, current_device(), size, room.mapping, room.mapped};
  if (kind == Kind::Pinned) made.view = view_of(room.first, size, flags);
  if (kind == Kind::Device) device.used += size;
  *at = room.first;
  return hipSuccess;
}

// Waits for the device, as HIP does.
static hipError_t release(Call &call, void *at, Kind kind) {
  if (!at) return hipSuccess;
  if (const hipError_t error = forbidden_by_capture()) return error;
  const hipError_t lost = drain_all(call);
  const auto found = state.allocations.find((char *)at);
  if (found == state.allocations.end()) return hipErrorInvalidValue;
  Allocation old = found->second;
  if (old.kind != kind && !(old.kind == Kind::External && kind == Kind::Device)) return hipErrorInvalidValue;
  state.allocations.erase(found);
  if (old.kind == Kind::Device) state.devices[(size_t)old.device].used -= old.size;
  if (!old.mapping) return lost;
  // Addresses are reused only after some other allocations, so that stale ones are detected.
  old.view = nullptr;
  static auto &graveyard = *new std::deque<Allocation>;
  madvise(old.mapping, old.mapped, MADV_DONTNEED);
  mprotect(old.mapping, old.mapped, PROT_NONE);
  graveyard.push_back(old);
  if (graveyard.size() > 256) {
    munmap(graveyard.front().mapping, graveyard.front().mapped);
    graveyard.pop_front();
  }
  return lost;
}

hipError_t hipMemGetInfo(size_t *free, size_t *total) {
  ENTER();
  *total = state.memory;
  *free = state.memory - state.devices[(size_t)current_device()].used;
  RETURN(hipSuccess);
}
hipError_t hipMalloc(void **at, size_t size) {
  ENTER();
  RETURN(allocate(at, size, Kind::Device));
}
hipError_t hipFree(void *at) {
  ENTER_RELEASE();
  RETURN_RELEASED(release(call, at, Kind::Device));
}
hipError_t hipHostMalloc(void **at, size_t size, unsigned flags) {
  ENTER();
  constexpr unsigned BOTH = hipHostMallocCoherent | hipHostMallocNonCoherent;
  if ((flags & BOTH) == BOTH) RETURN(hipErrorInvalidValue);
  const hipError_t error = allocate(at, size, Kind::Pinned, flags);
  if (!error && *at) state.allocations[(char *)*at].flags = flags;
  RETURN(error);
}
hipError_t hipHostFree(void *at) {
  ENTER_RELEASE();
  RETURN_RELEASED(release(call, at, Kind::Pinned));
}
// The whole pages that contain some memory.
struct Pages {
  char *first;
  size_t size;
  Pages(const void *at, size_t bytes) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)at % page;
    first = (char *)at - before;
    size = (before + bytes + page - 1) / page * page;
  }
  bool are_mapped() const {
    std::vector<unsigned char> present(size / (size_t)sysconf(_SC_PAGESIZE));
    return mincore(first, size, present.data()) == 0;
  }
};
// Whole pages are locked, as drivers do, and none of them twice.
hipError_t hipHostRegister(void *at, size_t size, unsigned flags) {
  ENTER();
  if (!at || !size) RETURN(hipErrorInvalidValue);
  if (const hipError_t error = forbidden_by_capture()) RETURN(error);
  const Pages pages(at, size);
  if (touched(pages.first, pages.size)) RETURN(hipErrorHostMemoryAlreadyRegistered);
  if (!pages.are_mapped()) RETURN(hipErrorInvalidValue);
  Allocation &made = state.allocations[(char *)at];
  made = {Kind::Registered, current_device(), size};
  made.flags = flags;
  RETURN(hipSuccess);
}
hipError_t hipHostUnregister(void *at) {
  ENTER_RELEASE();
  const auto found = state.allocations.find((char *)at);
  if (found == state.allocations.end() || found->second.kind != Kind::Registered)
    RETURN_RELEASED(hipErrorHostMemoryNotRegistered);
  // Real runtimes do not report this; tests read the counter.
  const size_t size = found->second.size;
  if (is_pending((char *)at, size)) {
    fprintf(stderr, "swhip: memory is unregistered while copies of it are pending\n");
    state.counts["unregistered_early"]++;
  }
  if (!Pages(at, size).are_mapped()) {
    fprintf(stderr, "swhip: memory is unregistered after it was unmapped\n");
    state.counts["unregistered_late"]++;
  }
  const hipError_t lost = drain_all(call);
  state.allocations.erase((char *)at);
  RETURN_RELEASED(lost);
}
hipError_t hipHostGetDevicePointer(void **device, void *host, unsigned) {
  ENTER();
  const Allocation *allocation = owner(host, 1);
  if (!allocation || allocation->kind == Kind::Device) RETURN(hipErrorInvalidValue);
  *device = host;
  RETURN(hipSuccess);
}
hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *at) {
  ENTER();
  const Allocation *allocation = owner(at, 1);
  if (!attributes || !allocation) RETURN(hipErrorInvalidValue);
  const bool on_device = allocation->kind == Kind::Device || allocation->kind == Kind::External;
  void *host = on_device ? nullptr : (void *)at;
  *attributes = {
      on_device ? hipMemoryTypeDevice : hipMemoryTypeHost, allocation->device, (void *)at, host, 0, 0};
  RETURN(hipSuccess);
}

// ---- external memory: any file descriptor that can be mapped -----------------------------------

hipError_t hipImportExternalMemory(hipExternalMemory_t *memory, const hipExternalMemoryHandleDesc *desc) {
  ENTER();
  if (!memory || !desc || desc->type != 1 || !desc->size) RETURN(hipErrorInvalidValue);
  const int fd = desc->handle.fd;
  char *mapping = (char *)mmap(nullptr, desc->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) RETURN(hipErrorInvalidValue);
  close(fd);  // a successful import owns the descriptor
  state.imports[mapping] = {Kind::External, current_device(), desc->size, mapping, desc->size};
  *memory = mapping;
  RETURN(hipSuccess);
}
hipError_t hipExternalMemoryGetMappedBuffer(void **at, hipExternalMemory_t memory,
                                            const hipExternalMemoryBufferDesc *desc) {
  ENTER();
  const auto found = state.imports.find(memory);
  if (found == state.imports.end()) RETURN(hipErrorInvalidHandle);
  const Allocation &import = found->second;
  if (!at || !desc || desc->offset > import.size || desc->size > import.size - desc->offset)
    RETURN(hipErrorInvalidValue);
  *at = import.mapping + desc->offset;
  state.allocations[(char *)*at] = {Kind::External, import.device, desc->size};
  RETURN(hipSuccess);
}
hipError_t hipDestroyExternalMemory(hipExternalMemory_t memory) {
  ENTER_RELEASE();
  const auto found = state.imports.find(memory);
  if (found == state.imports.end()) RETURN_RELEASED(hipErrorInvalidHandle);
  const hipError_t lost = drain_all(call);
  const Allocation import = state.imports[memory];
  const auto first = state.allocations.lower_bound(import.mapping);
  state.allocations.erase(first, state.allocations.lower_bound(import.mapping + import.mapped));
  state.imports.erase(memory);
  munmap(import.mapping, import.mapped);
  RETURN_RELEASED(lost);
}
