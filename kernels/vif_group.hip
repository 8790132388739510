// SPDX-License-Identifier: MPL-2.0
//
// VIF of any number of distorted pictures at a time. If tensor cores compute scale 0, one after the other is faster.
#include "vif.h"

#if !HV_MMA
VIF_SCALE_0(vif0_u8_group, uint8_t, 8, true)
#endif
VIF_SCALE_0(vif0_u16_group, uint16_t, args.bits, true)
VIF_SCALE(vif1_group, 1, true)
VIF_SCALE(vif2_group, 2, true)
VIF_SCALE(vif3_group, 3, true)
