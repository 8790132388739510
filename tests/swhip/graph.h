// SPDX-License-Identifier: MPL-2.0
//
// What streams and events need of captures.
#pragma once
#include "device.h"

namespace swhip {
// Makes the capture useless: a call was made that it forbids. Returns `error`.
hipError_t spoil(Capture &capture, hipError_t error);
// A stream waits for an event that was recorded in a capture, and takes part in it from then on.
hipError_t join_capture(Stream &stream, const Event &event);
// The stream goes away.
void leave_capture(Stream &stream);
}  // namespace swhip
