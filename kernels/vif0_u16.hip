// SPDX-License-Identifier: MPL-2.0
//
// Scale 0 of VIF for samples of more than 8 bits.
#include "vif.h"

VIF_SCALE_0(vif0_u16, uint16_t, args.bits, false)
