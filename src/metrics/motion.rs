// SPDX-License-Identifier: MPL-2.0

//! Motion of the reference: options, and the way from blurred frame differences to `motion2` and `motion3`.

/// Options of the integer motion extractor; names, ranges and keys as in libvmaf 3.2.0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MotionOptions {
    pub blend_factor: f64,
    pub blend_offset: f64,
    pub five_frame_window: bool,
    pub force_zero: bool,
    pub fps_weight: f64,
    pub max_val: f64,
    pub moving_average: bool,
}

impl Default for MotionOptions {
    fn default() -> Self {
        Self {
            blend_factor: 1.0,
            blend_offset: 40.0,
            five_frame_window: false,
            force_zero: false,
            fps_weight: 1.0,
            max_val: 10000.0,
            moving_average: false,
        }
    }
}

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
