// SPDX-License-Identifier: MPL-2.0

//! Properties of the element, set to what users write on command lines and in files. GLib takes what does not suit for a mistake
//! of the program and ends it, so all of it is checked before.

use gst::prelude::*;

/// Sets a property to a value that the user wrote, as launch lines have it.
///
/// # Errors
///
/// What is wrong, in a sentence: there is no such property, it cannot be set, or it does not take this value.
pub fn set(object: &impl IsA<glib::Object>, name: &str, value: &str) -> Result<(), String> {
    let object = object.as_ref();
    let property = object.find_property(name).filter(|property| {
        let flags = property.flags();
        flags.contains(glib::ParamFlags::WRITABLE) && !flags.contains(glib::ParamFlags::CONSTRUCT_ONLY)
    });
    let property = property.ok_or(format!(
        "hipvmaf has no property {name} that can be set; gst-inspect-1.0 hipvmaf lists them"
    ))?;
    let refused = || format!("{value} is no value for {name}: {}", property.blurb().unwrap_or(""));
    let value = glib::Value::deserialize_with_pspec(value, &property).map_err(|_| refused())?;
    if !in_range(&property, &value) {
        return Err(refused());
    }
    object.set_property_from_value(name, &value);
    Ok(())
}

/// Whether a property of numbers takes this one.
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
