// SPDX-License-Identifier: MPL-2.0
//
// Scale 0 of VIF for samples of more than 8 bits: up to 12 bits on tensor cores if there are any, and up to 16 bits.
#if HV_MMA
#include "vif_mma.h"
VIF_MMA_SCALE(vif0_u12, uint16_t)
#else
#include "vif.h"
#endif
VIF_SCALE_0(vif0_u16, uint16_t, args.bits, false)
