// SPDX-License-Identifier: MPL-2.0
//
// Functions for captures that streams and events need.
#pragma once
#include "device.h"

namespace swhip {
// Invalidates the capture, as a call was made that it forbids. Returns `error`.
hipError_t spoil(Capture &capture, hipError_t error);
// A stream waits for an event that was recorded in a capture, and belongs to the capture afterwards.
hipError_t join_capture(Stream &stream, const Event &event);
// The stream is destroyed.
void leave_capture(Stream &stream);
}  // namespace swhip
