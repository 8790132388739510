// SPDX-License-Identifier: MPL-2.0
//
// Scale 0 of VIF for samples of more than 8 bits: of up to 12 by tensor cores where there are any, and of up to 16.
#if HV_MMA
#include "vif_mma.h"
VIF_MMA_SCALE(vif0_u12, uint16_t)
#else
#include "vif.h"
#endif
VIF_SCALE_0(vif0_u16, uint16_t, args.bits, false)
