// SPDX-License-Identifier: MPL-2.0
//
// Compiles the kernels of one file, KERNEL, for waves of HV_WAVE lanes. Without the namespace the linker
// would take functions of the two widths that bear the same name for the same function.
#include <cstdint>
#define HV_HOST 1
#include "../../kernels/prelude_host.h"

namespace {
#include KERNEL
}
