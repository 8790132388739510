// SPDX-License-Identifier: MPL-2.0

//! Sets properties of the element from user input. GLib aborts the program on invalid values, so all input is checked
//! first.

use std::fmt;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser, ValueParserFactory};
use glib::HasParamSpec;
use glib::value::FromValue;
use gst::prelude::*;
use serde::{Deserialize, Deserializer, de};

/// An enum of the element.
pub trait Enum:
    HasParamSpec<ParamSpec = glib::ParamSpecEnum>
    + StaticType
    + ToValue
    + for<'a> FromValue<'a>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<
    E: HasParamSpec<ParamSpec = glib::ParamSpecEnum>
        + StaticType
        + ToValue
        + for<'a> FromValue<'a>
        + Clone
        + Send
        + Sync
        + 'static,
> Enum for E
{
}

/// A value of an enum of the element. On command lines and in files it has the name that launch lines use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nick<E>(pub E);

impl<E: Enum> FromStr for Nick<E> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let class = glib::EnumClass::new::<E>();
        let value = class.to_value_by_nick(text).and_then(|value| value.get().ok());
        let nicks = || class.values().iter().map(|value| value.nick()).collect::<Vec<_>>().join(", ");
        value.map(Self).ok_or_else(|| format!("{text} is not one of {}", nicks()))
    }
}

impl<E: Enum> fmt::Display for Nick<E> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let value = self.0.to_value();
        f.write_str(glib::EnumValue::from_value(&value).map_or("", |(_, value)| value.nick()))
    }
}

impl<'de, E: Enum> Deserialize<'de> for Nick<E> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl<E: Enum> ValueParserFactory for Nick<E> {
    type Parser = ValueParser;

    fn value_parser() -> ValueParser {
        let class = glib::EnumClass::new::<E>();
        let possible = |value: &glib::EnumValue| {
            PossibleValue::new(value.nick().to_owned()).help(value.name().to_owned())
        };
        let possible = PossibleValuesParser::new(class.values().iter().map(possible));
        ValueParser::new(possible.try_map(|text| text.parse::<Self>()))
    }
}

/// Sets a property to a value in the syntax of launch lines.
///
/// # Errors
///
/// Returns a sentence if the property does not exist, cannot be set, or does not accept the value.
pub fn set(object: &impl IsA<glib::Object>, name: &str, value: &str) -> Result<(), String> {
    let object = object.as_ref();
    let property = object.find_property(name).filter(|property| {
        let flags = property.flags();
        flags.contains(glib::ParamFlags::WRITABLE) && !flags.contains(glib::ParamFlags::CONSTRUCT_ONLY)
    });
    let property = property.ok_or(format!(
        "hipvmaf has no property {name} that can be set; gst-inspect-1.0 hipvmaf lists them"
    ))?;
    let refused = || format!("{value} is not a value for {name}: {}", property.blurb().unwrap_or(""));
    let value = glib::Value::deserialize_with_pspec(value, &property).map_err(|_| refused())?;
    if !in_range(&property, &value) {
        return Err(refused());
    }
    object.set_property_from_value(name, &value);
    Ok(())
}

/// Returns true if a number is within the range of its property.
fn in_range(property: &glib::ParamSpec, value: &glib::Value) -> bool {
    macro_rules! within {
        ($($spec:ident: $of:ty),*) => { $(
            if let Some(spec) = property.downcast_ref::<glib::$spec>() {
                return value.get::<$of>().is_ok_and(|value| (spec.minimum()..=spec.maximum()).contains(&value));
            }
        )* };
    }
    within!(
        ParamSpecInt: i32, ParamSpecUInt: u32, ParamSpecInt64: i64, ParamSpecUInt64: u64, ParamSpecFloat: f32,
        ParamSpecDouble: f64
    );
    true
}
