// SPDX-License-Identifier: MPL-2.0
//
// ADM of scale 0 for one pass without the additive part. It is a file of its own because drivers take long to load its
// code.
#include "adm.h"

ADM0(adm0_u8, uint8_t, false)
