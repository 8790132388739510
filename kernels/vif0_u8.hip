// SPDX-License-Identifier: MPL-2.0
//
// Scale 0 of VIF for 8-bit samples. It is a file of its own because drivers take long to load its code.
#if HV_MMA
#include "vif_mma.h"
VIF_MMA_SCALE(vif0_u8, uint8_t)
#else
#include "vif.h"
VIF_SCALE_0(vif0_u8, uint8_t, 8, false)
#endif
