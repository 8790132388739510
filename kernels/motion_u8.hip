// SPDX-License-Identifier: MPL-2.0
//
// Motion of pictures with samples of 8 bits.
#include "motion.h"

MOTION(motion_u8, uint8_t)
