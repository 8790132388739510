// SPDX-License-Identifier: MPL-2.0
//
// Runs kernels on the calling thread.
#pragma once
#include <cstddef>
#include <cstdint>
#define HV_HOST 1
#define HV_WAVE 32  // of no meaning here: kernels say their width when they register
#include "../../kernels/prelude_host.h"

namespace hv {
// Runs all blocks of a grid. Returns the error, or null. `seed` 0 runs lanes and blocks in ascending order, 1 in
// descending order, others shuffle them.
const char *run_grid(const Kernel *kernel, Dim grid, Dim block, void **arguments, uint64_t seed);
// Runs `work`, which only accesses memory. Returns the error, or null.
const char *run_guarded(void (*work)(void *), void *data);
}  // namespace hv
