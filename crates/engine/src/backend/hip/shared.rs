// SPDX-License-Identifier: MPL-2.0

//! Structures that the host fills in for kernels. Each is declared once in the kernels and once here, with the same
//! names and with its layout. The kernels' compiler checks one declaration, and [`shared!`] checks the other and
//! compares it with the kernels' source. A change on one side alone does not compile.

/// Numbers, and types that consist only of numbers.
///
/// # Safety
///
/// Exactly [`Plain::BYTES`] bytes of the type belong to numbers; the others are padding.
pub unsafe trait Plain: Copy {
    const BYTES: usize;
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(
            // SAFETY: all of a number's bytes are its own.
            unsafe impl Plain for $number {
                const BYTES: usize = size_of::<Self>();
            }
        )*
    };
}
numbers!(u16, u32, u64, i32, f32, f64);

// SAFETY: nothing lies between elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    const BYTES: usize = N * T::BYTES;
}

/// Returns the bytes of values as kernels read them. Types with padding do not compile.
pub fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    const { assert!(T::BYTES == size_of::<T>()) };
    // SAFETY: the values are plain numbers, and without padding all bytes belong to them.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Returns true if a source text contains this line.
pub const fn says(text: &str, line: &str) -> bool {
    let (text, line) = (text.as_bytes(), line.as_bytes());
    let mut at = 0;
    while at + line.len() <= text.len() {
        let mut i = 0;
        while i < line.len() && text[at + i] == line[i] {
            i += 1;
        }
        if i == line.len() {
            return true;
        }
        at += 1;
    }
    false
}

/// Declares a structure that a file in `kernels/` also declares, with its size, and the offset of each field in
/// brackets.
macro_rules! shared {
    (
        $file:literal
        $(#[$attribute:meta])*
        $visible:vis struct $name:ident: $size:literal {
            $($(#[$doc:meta])* [$offset:literal] $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        $visible struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        // SAFETY: counts the bytes of all fields.
        unsafe impl $crate::backend::hip::shared::Plain for $name {
            const BYTES: usize = 0 $(+ <$type as $crate::backend::hip::shared::Plain>::BYTES)*;
        }

        const _: () = {
            const KERNELS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/", $file));
            assert!(size_of::<$name>() == $size);
            let line = concat!("HV_SIZE(", stringify!($name), ", ", stringify!($size), ");");
            assert!($crate::backend::hip::shared::says(KERNELS, line), "the kernels declare another size");
            $(
                assert!(std::mem::offset_of!($name, $field) == $offset);
                let line = concat!(
                    "HV_OFFSET(", stringify!($name), ", ", stringify!($field), ", ", stringify!($offset), ");"
                );
                assert!($crate::backend::hip::shared::says(KERNELS, line), "the kernels declare another field");
            )*
        };
    };
}
pub(super) use shared;
