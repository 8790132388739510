// SPDX-License-Identifier: MPL-2.0

//! Numbers of frames by result.

use std::ops::AddAssign;

/// Declares the counts, each in one row: the field, and its name in messages, in statistics and in results files.
macro_rules! counts {
    ($($(#[$about:meta])* $count:ident: $message:literal, $statistic:literal, $file:literal;)*) => {
        /// Numbers of frames by result, of a window, of a section, or since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$about])* pub $count: u64,)*
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Self) {
                $(self.$count += other.$count;)*
            }
        }

        impl Counts {
            /// Returns the counts with their names in messages.
            pub fn in_messages(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($message, self.$count)),*].into_iter()
            }

            /// Reads the counts of a message: `field` returns the number with this name.
            pub fn of_message<E>(field: impl Fn(&'static str) -> Result<u64, E>) -> Result<Self, E> {
                Ok(Self { $($count: field($message)?),* })
            }

            /// Returns the counts with their names in statistics.
            pub fn in_statistics(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($statistic, self.$count)),*].into_iter()
            }

            /// Returns the counts with their names in results files.
            pub fn in_files(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($file, self.$count)),*].into_iter()
            }
        }
    };
}

counts! {
    /// Scored reference frames.
    scored: "frames", "frames-scored", "scored";
    /// Reference frames without a distorted frame.
    unpaired: "unpaired", "frames-unpaired", "unpaired";
    /// Reference frames omitted on purpose (`subsample`, overload).
    skipped: "skipped", "frames-skipped", "skipped";
    /// Reference frames whose score does not count because the offset was unknown.
    aligning: "aligning", "frames-aligning", "aligning";
    /// Reference frames whose score does not count because neighbouring reference frames are missing.
    discont: "discont-frames", "frames-discont", "discont";
    /// Reference frames that were compared with a distorted frame used before.
    repeated: "repeated", "frames-repeated", "repeated";
    /// Distorted frames without a reference frame.
    dist_unmatched: "dist-unmatched", "dist-unmatched", "dist_unmatched";
    /// Frames scored on a GPU that the CPU has computed again.
    verified: "verified", "verified", "verified";
    /// Verified frames with a different result.
    wrong: "wrong", "wrong", "wrong";
}

impl Counts {
    /// Returns the share of the reference frames that were scored, 0.0..=1.0; 0 if there were none.
    pub fn coverage(&self) -> f64 {
        let all = self.scored + self.unpaired + self.skipped + self.aligning + self.discont;
        self.scored as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_survive_a_message() {
        let mut counts = Counts { scored: 6, unpaired: 1, repeated: 2, ..Counts::default() };
        counts += Counts { skipped: 2, aligning: 2, discont: 1, wrong: 1, ..Counts::default() };
        assert_eq!(counts.coverage(), 0.5);
        assert_eq!(Counts::default().coverage(), 0.0);
        let message: Vec<_> = counts.in_messages().collect();
        let field = |name| message.iter().find(|(of, _)| *of == name).map(|(_, count)| *count).ok_or(name);
        assert_eq!(Counts::of_message(field), Ok(counts));
        assert_eq!(Counts::of_message(Err), Err("frames"));
    }
}
