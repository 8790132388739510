// SPDX-License-Identifier: MPL-2.0

//! The sink pads of distorted video, with what can be set for each.

use std::sync::{LazyLock, Mutex};

use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::subclass::prelude::*;

use super::{HipVmaf, lock};

/// How to treat an offset between reference and distorted video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[repr(i32)]
#[enum_type(name = "GstHipVmafAlign")]
pub enum Align {
    #[default]
    #[enum_value(name = "Nothing", nick = "off")]
    Off = 0,
    #[enum_value(name = "Look for it and report it", nick = "detect")]
    Detect = 1,
    #[enum_value(name = "Look for it and pair accordingly", nick = "auto")]
    Auto = 2,
}

/// Name of the reference's sink pad.
pub const REFERENCE: &str = "ref_sink";
/// Name of the distorted pad that is always there, and whose frames can be looked at downstream.
pub const DISTORTED: &str = "dist_sink";

/// Largest `align-range`, in frames.
const MAX_RANGE: u32 = 250;

/// Property values.
#[derive(Clone, Debug, PartialEq)]
pub struct PadSettings {
    pub label: Option<String>,
    /// Nanoseconds added to the running time.
    pub ts_offset: i64,
    pub enabled: bool,
    pub align: Align,
    /// Frames.
    pub align_range: u32,
    /// Why the results are not all there is, as the application knows it.
    pub incomplete: Option<String>,
    /// Damage of the videos, as the application knows it.
    pub damaged: Option<String>,
}

impl Default for PadSettings {
    fn default() -> Self {
        Self {
            label: None,
            ts_offset: 0,
            enabled: true,
            align: Align::default(),
            align_range: 25,
            incomplete: None,
            damaged: None,
        }
    }
}

mod imp {
    use super::*;

    #[derive(Default, glib::Properties)]
    #[properties(wrapper_type = super::HipVmafPad)]
    pub struct HipVmafPad {
        #[property(name = "label", get, set, type = Option<String>, member = label,
            mutable_playing, nick = "Label",
            blurb = "What messages and metrics call this stream (default: the name of the pad)")]
        #[property(name = "ts-offset", get, set, type = i64, member = ts_offset,
            mutable_playing, nick = "Timestamp offset",
            blurb = "Nanoseconds to add to the running time before frames are paired")]
        #[property(name = "enabled", get, set, type = bool, member = enabled, default = true,
            mutable_playing, nick = "Enabled",
            blurb = "Score this stream; else its frames are dropped")]
        #[property(name = "align", get, set, type = Align, member = align,
            mutable_playing, nick = "Alignment",
            blurb = "Look for the offset to the reference by comparing pictures",
            builder(Align::default()))]
        #[property(name = "align-range", get, set, type = u32, member = align_range, maximum = MAX_RANGE,
            default = 25, mutable_ready, nick = "Alignment range",
            blurb = "Largest offset to look for, in frames")]
        #[property(name = "incomplete", get, set, type = Option<String>, member = incomplete,
            mutable_playing, nick = "Incomplete",
            blurb = "Why the scores are not all there is, as the application knows it: the results file says so, and keeps .partial behind its name")]
        #[property(name = "damaged", get, set, type = Option<String>, member = damaged,
            mutable_playing, nick = "Damaged",
            blurb = "What is damaged in the videos, as the application knows it by the end of the stream: the results file says so")]
        pub settings: Mutex<PadSettings>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for HipVmafPad {
        const NAME: &'static str = "GstHipVmafPad";
        type Type = super::HipVmafPad;
        type ParentType = gst_base::AggregatorPad;
    }

    impl ObjectImpl for HipVmafPad {
        fn properties() -> &'static [glib::ParamSpec] {
            static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
                // The derive macro knows no structures.
                let stats = glib::ParamSpecBoxed::builder::<gst::Structure>("stats")
                    .nick("Statistics")
                    .blurb("Counters and scores of this stream since the element was started")
                    .read_only()
                    .build();
                HipVmafPad::derived_properties().iter().cloned().chain([stats]).collect()
            });
            &PROPERTIES
        }

        fn property(&self, id: usize, pspec: &glib::ParamSpec) -> glib::Value {
            match pspec.name() {
                "stats" => {
                    let element = self.obj().parent_element().and_downcast::<HipVmaf>();
                    element.and_then(|element| element.imp().pad_stats(&self.obj())).to_value()
                }
                _ => self.derived_property(id, pspec),
            }
        }

        fn set_property(&self, id: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
            self.derived_set_property(id, value, pspec);
            if let Some(element) = self.obj().parent_element().and_downcast::<HipVmaf>() {
                element.imp().settings_changed();
            }
        }
    }

    impl GstObjectImpl for HipVmafPad {}
    impl PadImpl for HipVmafPad {}

    impl AggregatorPadImpl for HipVmafPad {}
}

glib::wrapper! {
    /// A sink pad of distorted video: `dist_sink`, and `dist_%u` on request.
    pub struct HipVmafPad(ObjectSubclass<imp::HipVmafPad>)
        @extends gst_base::AggregatorPad, gst::Pad, gst::Object;
}

impl HipVmafPad {
    /// The settings in force right now.
    pub(super) fn settings(&self) -> PadSettings {
        lock(&self.imp().settings).clone()
    }
}
