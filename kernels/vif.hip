// SPDX-License-Identifier: MPL-2.0
//
// Scales 1 to 3 of VIF.
#include "vif.h"

// Scales 1 to 3 from the planes that the scale before has written. Scale 3 has no `next`.
#define VIF_SCALE(name, S)                                                                                  \
  HV_KERNEL(VIF_BOUNDS(S), name)(VifPlanes in, VifArgs args, VifPlanes next,                                \
                                  const uint16_t *__restrict__ log2_steps, uint64_t *__restrict__ out) {    \
    __shared__ VifShared<S> shared;                                                                         \
    vif_scale<S, uint16_t>(shared, (const uint8_t *)in.ref, in.stride * 2, 0, (const uint8_t *)in.dis,      \
                           in.stride * 2, 0, 16, args, next, log2_steps, out);                              \
  }                                                                                                         \
  HV_EXPORT(name)
VIF_SCALE(vif1, 1)
VIF_SCALE(vif2, 2)
VIF_SCALE(vif3, 3)
