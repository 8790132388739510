// SPDX-License-Identifier: MPL-2.0

//! The GPU that neighbours in the pipeline have agreed on. What they share is read by name, so that none of their
//! libraries is needed.

use engine::backend::hip;
use gpu::{Selection, Vendor};

const HIP: &str = "gst.hip.device";
const CUDA: &str = "gst.cuda.context";
const TYPES: [&str; 2] = [HIP, CUDA];

/// Contexts that were shared with the element, the newest last; one of each type.
#[derive(Default)]
pub struct Contexts(Vec<gst::Context>);

impl Contexts {
    /// Keeps a context if it is about a GPU.
    pub fn store(&mut self, context: &gst::Context) {
        if TYPES.contains(&context.context_type()) {
            self.0.retain(|old| old.context_type() != context.context_type());
            self.0.push(context.clone());
        }
    }

    /// The types to ask others for: none, once anything was shared.
    pub fn wanted(&self) -> &'static [&'static str] {
        if self.0.is_empty() { &TYPES } else { &[] }
    }

    /// Answers a query for a context that was stored.
    pub fn answer(&self, query: &mut gst::QueryRef) -> bool {
        let gst::QueryViewMut::Context(query) = query.view_mut() else { return false };
        let stored = self.0.iter().find(|context| context.context_type() == query.context_type());
        if let Some(context) = stored {
            query.set_context(context);
        }
        stored.is_some()
    }

    /// Settles on the GPU of a context, where the user has not settled on one, as far as it can be used.
    pub fn complete(&self, selection: Selection) -> Selection {
        let candidates = self.0.iter().rev().filter(|_| selection.ordinal.is_none()).filter_map(gpu);
        let usable = |candidate: &Selection| {
            gpu::selected(candidate).into_iter().any(|info| hip::supports(info) && selection.takes(info))
        };
        candidates.into_iter().find(usable).unwrap_or(selection)
    }
}

/// The GPU that a context is about.
fn gpu(context: &gst::Context) -> Option<Selection> {
    let structure = context.structure();
    let number = |field| structure.get::<u32>(field).ok().and_then(|number| i32::try_from(number).ok());
    let (vendor, ordinal) = match context.context_type() {
        CUDA => (Vendor::Nvidia, number("cuda-device-id")?),
        _ => {
            let (_, vendor) = glib::EnumValue::from_value(structure.value("vendor").ok()?)?;
            let vendor = match vendor.nick() {
                "amd" => Vendor::Amd,
                "nvidia" => Vendor::Nvidia,
                _ => return None,
            };
            (vendor, number("device-id")?)
        }
    };
    Some(Selection { vendor: Some(vendor), ordinal: Some(ordinal) })
}
