// SPDX-License-Identifier: MPL-2.0

//! The approximate inverse of the host's processor, as a table for GPUs.
//!
//! libvmaf's float ADM divides by the instruction `rcpss` of x86, whose estimate differs between processors. Those that were
//! examined look at the 12 highest bits of the fraction alone.

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]

use std::sync::OnceLock;

/// Bits of 1.0.
const ONE: u32 = 0x3f80_0000;
/// Bits of the fraction of a single.
const FRACTION: u32 = 23;
/// Bits of the fraction that an estimate does not depend on.
const IGNORED: u32 = 11;
/// Coefficients, which are divided by, have smaller exponents.
const EXPONENTS: u32 = 200;

/// Returns the estimates for the numbers from 1 to 2, by the 12 highest bits of the fraction, as bits of singles. They are
/// read from the processor once in a process. Returns `None` if its estimates depend on more than that.
#[cfg(target_arch = "x86_64")]
pub fn inverses() -> Option<&'static [u32]> {
    static TABLE: OnceLock<Option<Vec<u32>>> = OnceLock::new();
    TABLE.get_or_init(|| table(estimate)).as_deref()
}

/// Returns an empty table: other processors divide, and so do the kernels.
#[cfg(not(target_arch = "x86_64"))]
pub fn inverses() -> Option<&'static [u32]> {
    Some(&[])
}

#[cfg(target_arch = "x86_64")]
fn estimate(bits: u32) -> u32 {
    crate::backend::cpu::simd::estimate_inverse(f32::from_bits(bits)).to_bits()
}

/// Makes a table of estimates; `None` if there are numbers for which the kernels would compute others.
#[cfg(target_arch = "x86_64")]
fn table(estimate: impl Fn(u32) -> u32) -> Option<Vec<u32>> {
    let table: Vec<_> = (0..1 << (FRACTION - IGNORED)).map(|i| estimate(ONE | i << IGNORED)).collect();
    let of = |bits: u32| {
        let index = bits >> IGNORED & ((1 << (FRACTION - IGNORED)) - 1);
        let magnitude = match bits >> FRACTION & 0xff {
            0 => f32::INFINITY.to_bits(),
            exponent => table[index as usize].wrapping_sub(exponent.wrapping_sub(127) << FRACTION),
        };
        magnitude | bits & 1 << 31
    };
    let fractions = (0..1 << FRACTION).all(|fraction| estimate(ONE | fraction) == of(ONE | fraction));
    let exponents = (0..EXPONENTS).flat_map(|exponent| [exponent, exponent | 0x100]).all(|exponent| {
        let number = |i: u32| exponent << FRACTION | i << IGNORED;
        (0..1 << (FRACTION - IGNORED)).all(|i| estimate(number(i)) == of(number(i)))
    });
    (fractions && exponents).then_some(table)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Estimates with 12 bits, exactly.
    fn twelve_bits(bits: u32) -> u32 {
        if bits >> FRACTION & 0xff == 0 {
            return f32::INFINITY.to_bits() | bits & 1 << 31;
        }
        (1.0 / f32::from_bits(bits & !((1 << IGNORED) - 1))).to_bits() & !((1 << IGNORED) - 1)
    }

    #[test]
    fn a_table_stands_for_estimates_by_twelve_bits_only() {
        assert!(table(twelve_bits).is_some());
        let one_more =
            |bits: u32| twelve_bits(bits) ^ if bits & 0x7f_ffff == 0x12_3456 { 1 << 12 } else { 0 };
        assert!(table(one_more).is_none());
        let other_exponent = |bits: u32| twelve_bits(bits) ^ u32::from(bits >> FRACTION == 100) << 12;
        assert!(table(other_exponent).is_none());
        let unsigned = |bits: u32| twelve_bits(bits & !(1 << 31));
        assert!(table(unsigned).is_none());
    }
}
