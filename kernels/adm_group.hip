// SPDX-License-Identifier: MPL-2.0
//
// ADM of several distorted pictures for one pass without the additive part.
#include "adm.h"

ADM0_GROUP(adm0_u8_group, uint8_t, false)
ADM0_GROUP(adm0_u16_group, uint16_t, false)
ADM_GROUP(adm1_group, 1, false)
ADM_GROUP(adm2_group, 2, false)
