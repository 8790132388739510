// SPDX-License-Identifier: MPL-2.0
//
// Scale 0 of VIF for 8-bit samples; a file of its own, as it takes a driver long to load.
#if HV_MMA
#include "vif_mma.h"
VIF_MMA_SCALE(vif0_u8, uint8_t)
#else
#include "vif.h"
VIF_SCALE_0(vif0_u8, uint8_t, 8, false)
#endif
