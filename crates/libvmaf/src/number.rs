// SPDX-License-Identifier: MPL-2.0

//! Numbers as the C library reads them, whatever the locale.

use std::ffi::{CStr, CString, c_char, c_double, c_float};
use std::sync::OnceLock;

use engine::metrics::format_g;

unsafe extern "C" {
    fn strtof_l(text: *const c_char, end: *mut *mut c_char, locale: libc::locale_t) -> c_float;
    fn strtod_l(text: *const c_char, end: *mut *mut c_char, locale: libc::locale_t) -> c_double;
}

/// The locale `C`, which lives as long as the process.
struct Locale(libc::locale_t);

// SAFETY: a locale is not changed after it was made, and any thread may use it.
unsafe impl Send for Locale {}
// SAFETY: as above.
unsafe impl Sync for Locale {}

fn locale() -> libc::locale_t {
    static LOCALE: OnceLock<Locale> = OnceLock::new();
    let make = || {
        // SAFETY: the name is a string, and there is no locale to change.
        Locale(unsafe { libc::newlocale(libc::LC_ALL_MASK, c"C".as_ptr(), std::ptr::null_mut()) })
    };
    LOCALE.get_or_init(make).0
}

/// Reads a number with a function of the C library; returns it with the text after it, or nothing where there is none.
fn read<T>(
    text: &CStr,
    function: unsafe extern "C" fn(*const c_char, *mut *mut c_char, libc::locale_t) -> T,
) -> Option<(T, &CStr)> {
    let locale = locale();
    if locale.is_null() {
        return None;
    }
    let mut end = std::ptr::null_mut();
    // SAFETY: the text is a string, and the locale lives as long as the process.
    let value = unsafe { function(text.as_ptr(), &mut end, locale) };
    // SAFETY: the end lies within the string, or is its end.
    let rest = unsafe { CStr::from_ptr(end) };
    (rest.as_ptr() != text.as_ptr()).then_some((value, rest))
}

/// Returns what `%g` makes of a text that is a number in single precision and nothing else.
pub fn normalised(text: &CStr) -> Option<String> {
    let (value, rest) = read(text, strtof_l)?;
    if !rest.to_bytes().iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0x0b) {
        return None;
    }
    Some(match value {
        value if value.is_nan() => if value.is_sign_negative() { "-nan" } else { "nan" }.into(),
        value => format_g(f64::from(value)),
    })
}

/// Returns the number that a text begins with, in full precision. As in libvmaf, a zero begins with its digit: to C, all
/// text without a number is zero.
pub fn leading(text: &str) -> Option<String> {
    let text = CString::new(text).ok()?;
    let (value, _) = read(&text, strtod_l)?;
    (value.is_finite() && (value != 0.0 || text.to_bytes().starts_with(b"0"))).then(|| format!("{value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_normalised_and_other_texts_left() {
        for (text, expected) in [
            (c"0.5", Some("0.5")),
            (c" 0x10 ", Some("16")),
            (c"1.23456789", Some("1.23457")),
            (c"1e6", Some("1e+06")),
            (c"-0", Some("-0")),
            (c"nan", Some("nan")),
            (c"-inf", Some("-inf")),
            (c"5x", None),
            (c"1e", None),
            (c"", None),
            (c"true", None),
        ] {
            assert_eq!(normalised(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn numbers_at_the_beginning_are_found() {
        for (text, expected) in
            [("5x", Some("5.0")), (" 12", Some("12.0")), ("-0", None), ("00", Some("0.0")), ("x", None)]
        {
            assert_eq!(leading(text).as_deref(), expected, "{text:?}");
        }
    }
}
