// SPDX-License-Identifier: MPL-2.0
//
// ADM for several passes, and for the additive part.
#include "adm.h"

ADM0(adm0_u8_passes, uint8_t, true)
ADM0(adm0_u16_passes, uint16_t, true)
ADM(adm1_passes, 1, true)
ADM(adm2_passes, 2, true)
