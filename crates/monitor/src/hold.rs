// SPDX-License-Identifier: MPL-2.0

//! A condition that must last before it counts, and be gone for a while before it no longer does.

/// Sums of seconds are not exact.
const TOLERANCE: f64 = 1e-6;

/// A condition that raises an alarm.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hold {
    raised: bool,
    /// Seconds for which the condition has been another than that which counts.
    contrary: f64,
}

impl Hold {
    /// Takes the condition of the next `seconds`. It counts after `hold` seconds, and no longer after `clear` seconds. Returns
    /// the new state if it has changed.
    pub fn update(&mut self, condition: bool, seconds: f64, [hold, clear]: [f64; 2]) -> Option<bool> {
        if condition == self.raised {
            self.contrary = 0.0;
            return None;
        }
        self.contrary += seconds;
        if self.contrary + TOLERANCE < if condition { hold } else { clear } {
            return None;
        }
        *self = Self { raised: condition, contrary: 0.0 };
        Some(condition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lasts_counts() {
        let mut hold = Hold::default();
        let mut changes = vec![];
        // Seconds, and the condition in them.
        for (seconds, condition) in [(3, true), (1, false), (4, true), (1, false), (9, true), (2, false)] {
            for _ in 0..seconds {
                changes.extend(hold.update(condition, 1.0, [4.0, 2.0]));
            }
        }
        assert_eq!(changes, [true, false]);
    }
}
