// SPDX-License-Identifier: MPL-2.0
//
// Compiles the kernels of one file, KERNEL, for waves of HV_WAVE lanes. The namespace keeps the linker from merging
// functions of the two widths that have the same name.
#include <cstdint>
#define HV_HOST 1
#include "../../kernels/prelude_host.h"

namespace {
#include KERNEL
}
