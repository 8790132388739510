// SPDX-License-Identifier: MPL-2.0
//
// VIF of several distorted pictures at a time: any number, or `VIF_MMA_GROUP` where scale 0 is computed by tensor cores.
#if HV_MMA
#include "vif_mma.h"
#define VIF_MMA_GROUP 2
VIF_MMA_SCALE(vif0_u8_group, uint8_t, VIF_MMA_GROUP)
VIF_MMA_SCALE(vif0_u12_group, uint16_t, VIF_MMA_GROUP)
#else
#include "vif.h"
VIF_SCALE_0(vif0_u8_group, uint8_t, 8, true)
#endif
VIF_SCALE_0(vif0_u16_group, uint16_t, args.bits, true)
VIF_SCALE(vif1_group, 1, true)
VIF_SCALE(vif2_group, 2, true)
VIF_SCALE(vif3_group, 3, true)
