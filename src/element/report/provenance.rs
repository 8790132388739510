// SPDX-License-Identifier: MPL-2.0

//! Origin of a score: the program, the backend and its device, the models by the hash of their files, and the settings that
//! change scores. It is in every results file and pooled message, so that a score can be made again.

use std::borrow::Cow;

use engine::plan::Plan;
use gst::Structure;
use gst::prelude::*;
use serde::{Deserialize, Serialize};

use super::super::settings::{Settings, Tunables, nick};

/// The version with the commit that the program was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID"));

/// The settings that change scores, by the names of their properties.
fn settings(settings: &Settings, tunables: &Tunables) -> Vec<(Cow<'static, str>, String)> {
    let settings = [
        ("disable-clip", settings.disable_clip.to_string()),
        ("enable-transform", settings.enable_transform.to_string()),
        ("phone-model", settings.phone_model.to_string()),
        ("features", settings.features.clone().unwrap_or_default()),
        ("psnr", settings.psnr.to_string()),
        ("ssim", settings.ssim.to_string()),
        ("ms-ssim", settings.ms_ssim.to_string()),
        ("enc-width", settings.enc_width.to_string()),
        ("enc-height", settings.enc_height.to_string()),
        ("enc-bitdepth", settings.enc_bitdepth.to_string()),
        ("subsample", settings.subsample.to_string()),
        ("scale-method", nick(settings.scale_method)),
        ("colorimetry", nick(settings.colorimetry)),
        ("pairing", nick(settings.pairing)),
        ("missing-frame", nick(tunables.missing_frame)),
    ];
    settings.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

/// Names that may have been read from a file.
pub fn named<T: Clone>(values: &[(&'static str, T)]) -> Vec<(Cow<'static, str>, T)> {
    values.iter().map(|(name, value)| (Cow::Borrowed(*name), value.clone())).collect()
}

/// Origin of a score. Each field has a name and a text.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Provenance {
    /// The backend, its device, driver and code.
    pub backend: Vec<(Cow<'static, str>, String)>,
    /// Names of the models, and SHA-256 of their files.
    pub models: Vec<(String, String)>,
    /// Values of properties.
    pub settings: Vec<(Cow<'static, str>, String)>,
    /// Lines that the application adds, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<(String, Vec<String>)>,
}

/// The fields of a structure that are strings or arrays of strings, as lines.
fn extra(structure: &gst::StructureRef) -> Vec<(String, Vec<String>)> {
    let lines = |value: &glib::SendValue| match value.get::<gst::Array>() {
        Ok(lines) => lines.iter().filter_map(|line| line.get().ok()).collect(),
        Err(_) => value.get::<String>().into_iter().collect(),
    };
    structure.iter().map(|(name, value)| (name.to_string(), lines(value))).collect()
}

impl Provenance {
    /// Returns the origin as far as it is known before anything runs.
    pub fn new(settings: &Settings, tunables: &Tunables, plan: &Plan) -> Self {
        let models = plan.models.iter();
        Self {
            backend: vec![],
            models: models.map(|m| (m.model.name().to_owned(), m.model.sha256().to_owned())).collect(),
            settings: self::settings(settings, tunables),
            extra: settings.extra_provenance.as_deref().map(extra).unwrap_or_default(),
        }
    }

    /// With what computes.
    pub fn on(&self, backend: &[(&'static str, String)]) -> Self {
        Self { backend: named(backend), ..self.clone() }
    }

    /// The program and the backend.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let backend = self.backend.iter().map(|(name, text)| (name.as_ref(), text.as_str()));
        std::iter::once(("version", VERSION)).chain(backend)
    }

    /// Returns the provenance as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let object = |pairs: &mut dyn Iterator<Item = (&str, &str)>| serde_json::Value::from_iter(pairs);
        let mut json = object(&mut self.fields());
        json["models"] = object(&mut self.models.iter().map(|(name, hash)| (name.as_str(), hash.as_str())));
        json["settings"] =
            object(&mut self.settings.iter().map(|(name, value)| (name.as_ref(), value.as_str())));
        if !self.extra.is_empty() {
            let extra = self.extra.iter().map(|(name, lines)| (name.as_str(), lines.clone()));
            json["extra"] = serde_json::Value::from_iter(extra);
        }
        json
    }

    /// Returns the provenance as a field of a message. Names of models may be invalid as field names, so they are in
    /// a list.
    pub fn to_structure(&self) -> Structure {
        let mut s = Structure::from_iter("provenance", self.fields().map(|(k, v)| (k, v.to_send_value())));
        let models = self.models.iter().map(|(name, hash)| format!("{name} {hash}").to_send_value());
        s.set("models", gst::Array::new(models));
        let settings = self.settings.iter().map(|(name, value)| (name.as_ref(), value.to_send_value()));
        s.set("settings", Structure::from_iter("settings", settings));
        if !self.extra.is_empty() {
            let extra = self.extra.iter().map(|(name, lines)| (name, gst::Array::new(lines).to_send_value()));
            s.set("extra", Structure::from_iter("extra", extra));
        }
        s
    }
}

/// In one line.
impl std::fmt::Display for Provenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hipvmaf")?;
        for (name, value) in self.fields() {
            write!(f, " {name}={value};")?;
        }
        for (name, hash) in &self.models {
            write!(f, " {name} sha256={hash};")?;
        }
        for (name, value) in &self.settings {
            write!(f, " {name}={value};")?;
        }
        for (name, lines) in &self.extra {
            write!(f, " {name}={};", lines.join(" | "))?;
        }
        Ok(())
    }
}
