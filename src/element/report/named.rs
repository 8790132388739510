// SPDX-License-Identifier: MPL-2.0

//! Enums whose values have names in messages, metadata and files.

/// Declares an enum with the name of each value beside it.
macro_rules! named {
    ($(#[$meta:meta])* pub enum $enum:ident { $($(#[$about:meta])* $value:ident = $name:literal,)* }) => {
        $(#[$meta])*
        pub enum $enum {
            $($(#[$about])* $value,)*
        }

        impl $enum {
            /// All values, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// Returns the name in messages, metadata and files.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)*
                }
            }

            /// Returns the value with this name.
            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$value),)*
                    _ => None,
                }
            }
        }
    };
}

pub(super) use named;
