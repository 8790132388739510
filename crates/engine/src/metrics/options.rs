// SPDX-License-Identifier: MPL-2.0

//! Options of the extractors as users and model files write them: one table for each extractor, one parser, and one
//! writer of key suffixes. Names, keys, defaults and ranges are those of libvmaf 3.2.0.

use std::ops::RangeInclusive;

/// An invalid value of an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} is `{value}`, but must be {expected}")]
pub struct OptionError {
    /// Full name of the option.
    pub option: &'static str,
    pub value: String,
    /// Type and range in words.
    pub expected: String,
}

/// How an option reads and sets its field, and its valid values.
enum Field<O> {
    Bool(fn(&mut O) -> &mut bool),
    Int(fn(&O) -> u32, fn(&mut O, u32) -> Option<()>, RangeInclusive<u32>),
    Float(fn(&mut O) -> &mut f64, RangeInclusive<f64>),
    Name(fn(&O) -> &'static str, fn(&mut O, &str) -> Option<()>, &'static [&'static str]),
    Text(fn(&O) -> &'static str, fn(&mut O, &str) -> Result<(), String>),
}

/// One option of an extractor.
pub struct Row<O> {
    /// Name in model files and on the command line.
    name: &'static str,
    /// Short name in feature keys; `None` for options that keys do not mention.
    alias: Option<&'static str>,
    field: Field<O>,
}

pub(super) const fn bool<O>(
    name: &'static str,
    alias: Option<&'static str>,
    get: fn(&mut O) -> &mut bool,
) -> Row<O> {
    Row { name, alias, field: Field::Bool(get) }
}

pub(super) const fn int<O>(
    name: &'static str,
    alias: Option<&'static str>,
    get: fn(&O) -> u32,
    set: fn(&mut O, u32) -> Option<()>,
    range: RangeInclusive<u32>,
) -> Row<O> {
    Row { name, alias, field: Field::Int(get, set, range) }
}

pub(super) const fn float<O>(
    name: &'static str,
    alias: Option<&'static str>,
    get: fn(&mut O) -> &mut f64,
    range: RangeInclusive<f64>,
) -> Row<O> {
    Row { name, alias, field: Field::Float(get, range) }
}

pub(super) const fn name<O>(
    name: &'static str,
    alias: &'static str,
    get: fn(&O) -> &'static str,
    set: fn(&mut O, &str) -> Option<()>,
    names: &'static [&'static str],
) -> Row<O> {
    Row { name, alias: Some(alias), field: Field::Name(get, set, names) }
}

/// Describes an option with any text. `set` returns an error as the words that follow "must be".
pub(super) const fn text<O>(
    name: &'static str,
    alias: &'static str,
    get: fn(&O) -> &'static str,
    set: fn(&mut O, &str) -> Result<(), String>,
) -> Row<O> {
    Row { name, alias: Some(alias), field: Field::Text(get, set) }
}

/// Describes an option like [`int`], for a field that takes any number in the range.
macro_rules! number {
    ($name:literal, $alias:expr, $field:ident, $range:expr) => {
        $crate::metrics::options::int(
            $name,
            $alias,
            |o| o.$field,
            |o, number| {
                o.$field = number;
                Some(())
            },
            $range,
        )
    };
}

pub(super) use number;

/// Describes an option like [`name`], for a field with one of the values in a list of pairs of name and value.
macro_rules! choice {
    ($name:literal, $alias:literal, $field:ident, $values:ident) => {
        $crate::metrics::options::name(
            $name,
            $alias,
            |o| $crate::metrics::options::name_of(&$values, &o.$field),
            |o, text| {
                let (_, value) = $values.iter().find(|(name, _)| *name == text)?;
                o.$field = *value;
                Some(())
            },
            const { &$crate::metrics::options::names(&$values) },
        )
    };
}

pub(super) use choice;

/// The values of an option with their names; `None` for what the stream says.
pub(super) type Names<T, const N: usize> = [(&'static str, Option<T>); N];

/// Returns the name of a value in a list.
pub(super) fn name_of<T: PartialEq>(values: &[(&'static str, T)], value: &T) -> &'static str {
    values.iter().find(|(_, named)| named == value).map_or("other", |(name, _)| *name)
}

/// Returns the names of a list of values.
pub(super) const fn names<T, const N: usize>(values: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut i = 0;
    while i < N {
        names[i] = values[i].0;
        i += 1;
    }
    names
}

/// Options that can be set by name. The defaults are those of [`Default`].
pub trait Options: Copy + Default + 'static {
    /// libvmaf's name of the extractor.
    const EXTRACTOR: &'static str;
    /// All options in byte order of their names, which is the order of the suffix. Ranges are declared only here.
    const TABLE: &'static [Row<Self>];

    /// Returns the names of all options.
    fn names(&self) -> Vec<&'static str> {
        Self::TABLE.iter().map(|row| row.name).collect()
    }

    /// Sets an option from text as libvmaf reads it: an integer by its leading digits (`2.7` is 2), a double as a
    /// whole, a boolean as `true` or `false`. Returns false if there is no such option.
    fn set(&mut self, name: &str, text: &str) -> Result<bool, OptionError> {
        let Some(row) = Self::TABLE.iter().find(|row| row.name == name) else { return Ok(false) };
        let (accepted, expected) = match &row.field {
            Field::Bool(get) => {
                (text.parse().map(|value| *get(self) = value).ok(), "true or false".to_string())
            }
            Field::Int(_, set, range) => {
                let digits = text.bytes().take_while(u8::is_ascii_digit).count();
                let value = text[..digits].parse().ok().filter(|value| range.contains(value));
                (
                    value.and_then(|value| set(self, value)),
                    format!("an integer from {} to {}", range.start(), range.end()),
                )
            }
            Field::Float(get, range) => {
                // As in libvmaf, a zero must start with its digit: C reads any text without a number as zero.
                let plain = |value: &f64| *value != 0.0 || text.starts_with('0');
                let value = text.parse().ok().filter(|value| range.contains(value) && plain(value));
                (
                    value.map(|value| *get(self) = value),
                    match range.end() {
                        &f64::MAX => format!("a number not less than {}", range.start()),
                        end => format!("a number from {} to {end}", range.start()),
                    },
                )
            }
            Field::Name(_, set, names) => (set(self, text), format!("one of {}", names.join(", "))),
            Field::Text(_, set) => match set(self, text) {
                Ok(()) => (Some(()), String::new()),
                Err(expected) => (None, expected),
            },
        };
        match accepted {
            Some(()) => Ok(true),
            None => Err(OptionError { option: row.name, value: text.to_string(), expected }),
        }
    }

    /// Returns the suffix that libvmaf appends to the names of this extractor's features: `_alias_value` (booleans:
    /// `_alias`) for each option that differs from its default.
    fn suffix(mut self) -> String {
        let mut default = Self::default();
        let mut suffix = String::new();
        for row in Self::TABLE {
            let Some(alias) = row.alias else { continue };
            let value = match &row.field {
                Field::Bool(get) => (get(&mut self) != get(&mut default)).then(String::new),
                Field::Int(get, ..) => (get(&self) != get(&default)).then(|| format!("_{}", get(&self))),
                Field::Float(get, _) => {
                    let value = *get(&mut self);
                    (value != *get(&mut default)).then(|| format!("_{}", format_g(value)))
                }
                Field::Name(get, ..) | Field::Text(get, _) => {
                    (get(&self) != get(&default)).then(|| format!("_{}", get(&self)))
                }
            };
            if let Some(value) = value {
                suffix += &format!("_{alias}{value}");
            }
        }
        suffix
    }
}

/// Formats a number as libvmaf does in a model file: rounded to single precision, then `%g`.
pub fn number_text(value: f64) -> String {
    format_g(f64::from(value as f32))
}

/// Formats like C's `%g`: six significant digits, no trailing zeros, an exponent below 1e-4 and from 1e6.
pub fn format_g(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    // Rounding may carry into a new digit, so the exponent is taken from the rounded text.
    let text = format!("{value:.5e}");
    let Some((mantissa, Ok(exponent))) = text.split_once('e').map(|(m, e)| (m, e.parse::<i32>())) else {
        return text;
    };
    let trim = |digits: &str| digits.trim_end_matches('0').trim_end_matches('.').to_string();
    match usize::try_from(5 - exponent) {
        Ok(decimals @ 1..=9) => trim(&format!("{value:.decimals$}")),
        Ok(0) => format!("{value:.0}"),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::adm::{AdmOptions, CsfMode};
    use crate::metrics::cambi::CambiOptions;
    use crate::metrics::extractor::Extractor;
    use crate::metrics::psnr::PsnrOptions;

    #[test]
    fn format_g_is_that_of_c() {
        // The expected texts were printed by C.
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (100.0, "100"),
            (0.1, "0.1"),
            (1.23456789, "1.23457"),
            (-2.5, "-2.5"),
            (999999.0, "999999"),
            (999999.5, "1e+06"),
            (1e6, "1e+06"),
            (1234567.0, "1.23457e+06"),
            (123456.5, "123456"),
            (99999.95, "99999.9"),
            (0.0001, "0.0001"),
            (0.00099999996, "0.001"),
            (0.00001, "1e-05"),
            (0.000099999996, "0.0001"),
            (1.5e-310, "1.5e-310"),
            (f64::MAX, "1.79769e+308"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(format_g(value), text);
        }
    }

    #[test]
    fn numbers_of_model_files_keep_six_digits_of_a_single() {
        for (value, text) in
            [(0.7, "0.7"), (1.23456789, "1.23457"), (0.03125, "0.03125"), (1e300, "inf"), (1e-50, "0")]
        {
            assert_eq!(number_text(value), text);
        }
    }

    #[test]
    fn tables_are_in_the_order_of_the_suffix() {
        for extractor in Extractor::all() {
            assert!(extractor.options().is_sorted(), "{}", extractor.name());
        }
    }

    #[test]
    fn text_is_read_as_libvmaf_does() {
        let mut adm = AdmOptions::default();
        assert_eq!(adm.set("adm_csf_mode", "2.7"), Ok(true));
        assert_eq!(adm.set("adm_min_val", "0.5"), Ok(true));
        assert_eq!(adm.set("adm_skip_aim", "true"), Ok(true));
        assert_eq!(adm.set("vif_skip_scale0", "true"), Ok(false));
        assert_eq!(
            adm,
            AdmOptions { csf_mode: CsfMode::Blend, min_val: 0.5, skip_aim: true, ..AdmOptions::default() }
        );
        assert_eq!(adm.suffix(), "_csf_2_min_0.5");
    }

    #[test]
    fn bad_values_are_named_with_their_range() {
        for (option, value, expected) in [
            ("adm_csf_mode", "4", "an integer from 0 to 3"),
            ("adm_csf_mode", "-1", "an integer from 0 to 3"),
            ("adm_csf_mode", "", "an integer from 0 to 3"),
            ("adm_csf_mode", "99999999999", "an integer from 0 to 3"),
            ("adm_min_val", "-0", "a number from 0 to 1"),
            ("adm_min_val", "nan", "a number from 0 to 1"),
            ("adm_min_val", "1.5", "a number from 0 to 1"),
            ("adm_min_val", "0.5x", "a number from 0 to 1"),
            ("adm_norm_view_dist", "inf", "a number from 0.75 to 24"),
            ("adm_skip_aim", "1", "true or false"),
        ] {
            let error = AdmOptions::default().set(option, value).unwrap_err();
            assert_eq!(error.to_string(), format!("{option} is `{value}`, but must be {expected}"));
        }
        let error = CambiOptions::default().set("eotf", "hlg").unwrap_err();
        assert_eq!(error.to_string(), "eotf is `hlg`, but must be one of bt1886, pq");
        let error = PsnrOptions::default().set("min_sse", "-1").unwrap_err();
        assert_eq!(error.to_string(), "min_sse is `-1`, but must be a number not less than 0");
    }
}
