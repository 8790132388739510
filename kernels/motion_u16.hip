// SPDX-License-Identifier: MPL-2.0
//
// Motion of pictures with samples of more than 8 bits.
#include "motion.h"

MOTION(motion_u16, uint16_t)
