// SPDX-License-Identifier: MPL-2.0
//
// Scales 1 to 3 of VIF.
#include "vif.h"

VIF_SCALE(vif1, 1, false)
VIF_SCALE(vif2, 2, false)
VIF_SCALE(vif3, 3, false)
