// SPDX-License-Identifier: MPL-2.0
//! Stub until the kernel build lands.
pub const KERNELS: bool = false;
pub fn target(_arch: &str) -> Option<&'static str> {
    None
}
pub fn targets() -> impl Iterator<Item = &'static str> {
    std::iter::empty()
}
pub fn images(_metric: &str, _arch: &str) -> impl Iterator<Item = &'static [u8]> {
    std::iter::empty()
}
