// SPDX-License-Identifier: MPL-2.0

//! Renditions: files, and encodes made from the reference.

use std::error::Error;
use std::str::FromStr;

use super::source::Input;

/// A video to score.
#[derive(Clone, Debug)]
pub enum Rendition {
    /// An existing video.
    Input(Input),
    /// An encode made from the reference.
    Encoding(Encoding),
}

impl Rendition {
    /// Returns the user's text for an existing video.
    pub fn given(&self) -> Option<&str> {
        match self {
            Self::Input(input) => Some(input.given()),
            Self::Encoding(_) => None,
        }
    }

    /// Returns the label.
    pub fn label(&self) -> String {
        match self {
            Self::Input(input) => input.name(),
            Self::Encoding(encoding) => encoding.label(),
        }
    }
}

/// An encode with x264.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    size: Option<(u32, u32)>,
    kbits: u32,
}

impl FromStr for Encoding {
    type Err = Box<dyn Error + Send + Sync>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (size, kbits) = match text.split_once(':') {
            Some((size, kbits)) => (Some(size), kbits),
            None => (None, text),
        };
        let kbits = kbits.parse().ok().filter(|kbits| (1..=2_048_000).contains(kbits));
        let kbits = kbits.ok_or("a bit rate is a number from 1 to 2048000, in kbit/s")?;
        let size = size.map(|size| {
            let (width, height) = size.split_once('x')?;
            Some((width.parse().ok()?, height.parse().ok()?))
        });
        match size {
            Some(None) => Err("a size is written as WIDTHxHEIGHT".into()),
            size => Ok(Self { size: size.flatten(), kbits }),
        }
    }
}

impl Encoding {
    /// Returns width and height unless they are the original's.
    pub fn size(&self) -> Option<(u32, u32)> {
        self.size
    }

    fn label(&self) -> String {
        let size = self.size.map_or(String::new(), |(width, height)| format!("{width}x{height} "));
        format!("{size}{} kbit/s", self.kbits)
    }

    /// Returns a launch description from the tee `ref` to the decoded rendition, open at its end. The encoder has this
    /// name.
    pub fn description(&self, encoder: &str) -> String {
        let size = self.size.map_or(String::new(), |(width, height)| {
            format!("! videoscale add-borders=false ! video/x-raw,width={width},height={height},pixel-aspect-ratio=1/1 ")
        });
        format!(
            "ref. ! queue ! videoconvert {size}! x264enc name={encoder} bitrate={} ! avdec_h264 ! ",
            self.kbits
        )
    }
}

/// Returns all existing videos, the original first.
pub fn inputs<'a>(
    reference: &'a Input,
    renditions: &'a [(String, Rendition)],
) -> impl Iterator<Item = &'a Input> + Clone {
    let inputs = renditions.iter().filter_map(|(_, rendition)| match rendition {
        Rendition::Input(input) => Some(input),
        Rendition::Encoding(_) => None,
    });
    std::iter::once(reference).chain(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_sizes_and_rates() {
        let label = |text: &str| text.parse::<Encoding>().map(|encoding| encoding.label()).ok();
        assert_eq!(label("800").as_deref(), Some("800 kbit/s"));
        assert_eq!(label("640x360:600").as_deref(), Some("640x360 600 kbit/s"));
        for wrong in ["", "0", "x", "640:600", "640x:600", "640x360:", "640x360:0"] {
            assert_eq!(label(wrong), None, "{wrong}");
        }
    }
}
