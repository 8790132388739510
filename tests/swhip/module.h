// SPDX-License-Identifier: MPL-2.0
//
// Functions for modules that NVIDIA's driver API needs.
#pragma once
#include "device.h"

namespace swhip {
// Loads PTX with a zero at its end for the device of the thread.
hipError_t load_ptx(hipModule_t *module, const char *text);
}  // namespace swhip
