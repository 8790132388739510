// SPDX-License-Identifier: MPL-2.0

//! Sets properties of the element from user input. GLib aborts the program on invalid values, so all input is checked
//! first.

use gst::prelude::*;

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
