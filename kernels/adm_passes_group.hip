// SPDX-License-Identifier: MPL-2.0
//
// ADM of several distorted pictures for several passes, and for the additive part.
#include "adm.h"

ADM0_GROUP(adm0_u8_passes_group, uint8_t, true)
ADM0_GROUP(adm0_u16_passes_group, uint16_t, true)
ADM_GROUP(adm1_passes_group, 1, true)
ADM_GROUP(adm2_passes_group, 2, true)
