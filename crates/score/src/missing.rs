// SPDX-License-Identifier: MPL-2.0

//! Missing GStreamer plugins, and the packages that contain them.

use gst::MessageView;

/// Debian packages by the beginning of a media type or protocol. The first match counts.
const PACKAGES: [(&str, &str); 20] = [
    ("video/quicktime", "gstreamer1.0-plugins-good"),
    ("video/x-matroska", "gstreamer1.0-plugins-good"),
    ("video/webm", "gstreamer1.0-plugins-good"),
    ("video/x-flv", "gstreamer1.0-plugins-good"),
    ("video/x-msvideo", "gstreamer1.0-plugins-good"),
    ("video/x-dv", "gstreamer1.0-plugins-good"),
    ("video/x-vp8", "gstreamer1.0-plugins-good"),
    ("video/x-vp9", "gstreamer1.0-plugins-good"),
    ("http", "gstreamer1.0-plugins-good"),
    ("rtsp", "gstreamer1.0-plugins-good"),
    ("video/mpegts", "gstreamer1.0-plugins-bad"),
    ("video/x-av1", "gstreamer1.0-plugins-bad"),
    ("application/x-hls", "gstreamer1.0-plugins-bad"),
    ("application/dash", "gstreamer1.0-plugins-bad"),
    ("application/mxf", "gstreamer1.0-plugins-bad"),
    ("srt", "gstreamer1.0-plugins-bad"),
    ("rtmp", "gstreamer1.0-plugins-bad"),
    ("video/x-ms-asf", "gstreamer1.0-plugins-ugly"),
    ("application/vnd.rn-realmedia", "gstreamer1.0-plugins-ugly"),
    ("video/x-theora", "gstreamer1.0-plugins-base"),
];
/// Package with the most decoders.
const OTHERWISE: &str = "gstreamer1.0-libav";

/// Describes a missing plugin for the pictures of a video, with advice.
pub fn of(message: &gst::Message) -> Option<String> {
    let MessageView::Element(element) = message.view() else { return None };
    let structure = element.structure().filter(|structure| structure.name() == "missing-plugin")?;
    let name = structure.get::<String>("name").ok()?;
    let caps = structure.get::<gst::Caps>("detail").ok();
    let detail = match caps.as_ref().and_then(|caps| caps.structure(0)) {
        Some(caps) => caps.name().to_string(),
        None => structure.get::<String>("detail").ok()?,
    };
    if ["audio/", "text/", "subpicture/"].iter().any(|kind| detail.starts_with(kind)) {
        return None;
    }
    let package = PACKAGES.iter().find(|(of, _)| detail.starts_with(of)).map_or(OTHERWISE, |(_, name)| name);
    Some(format!(
        "GStreamer lacks what it takes to read it: {name}. On Debian and Ubuntu it is in the package {package} \
         (apt install {package})"
    ))
}

#[cfg(test)]
mod tests {
    use gst::prelude::*;

    use super::*;

    #[test]
    fn packages_are_named() {
        gst::init().unwrap();
        let missing = |kind: &str, detail: glib::SendValue| {
            let structure =
                gst::Structure::builder("missing-plugin").field("type", kind).field("name", "a decoder");
            of(&gst::message::Element::new(structure.field("detail", detail).build()))
        };
        let caps = |name: &str| gst::Caps::builder(name).build().to_send_value();
        let h264 = missing("decoder", caps("video/x-h264")).unwrap();
        assert!(h264.contains("a decoder") && h264.contains("gstreamer1.0-libav"), "{h264}");
        assert!(missing("decoder", caps("video/mpegts")).unwrap().contains("gstreamer1.0-plugins-bad"));
        assert!(missing("urisource", "https".to_send_value()).unwrap().contains("gstreamer1.0-plugins-good"));
        assert_eq!(missing("decoder", caps("audio/x-ac3")), None);
        assert_eq!(of(&gst::message::Eos::new()), None);
    }
}
