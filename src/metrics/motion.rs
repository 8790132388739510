// SPDX-License-Identifier: MPL-2.0

//! Motion of the reference: options, and the way from blurred frame differences to `motion2` and `motion3`.

/// Frame distances whose blurred difference is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MotionWork {
    /// Against the previous frame.
    pub lag1: bool,
    /// Against the frame before that (`motion_five_frame_window`).
    pub lag2: bool,
}

/// Blurred sums of absolute differences; `None` where there is no earlier frame in the run or the
/// work did not ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MotionSums {
    pub lag1: Option<u64>,
    pub lag2: Option<u64>,
}
