// SPDX-License-Identifier: MPL-2.0

//! The header of Y4M: size, rate, and samples of any depth that libvmaf and ffmpeg write.

use std::io::Read;

use super::planes::{Header, Samples, line};

/// First bytes of a file.
pub const MAGIC: &[u8] = b"YUV4MPEG2 ";

/// Reads the header, up to the first frame.
pub fn header(input: &mut dyn Read, image_rate: gst::Fraction) -> Result<Header, String> {
    let line = line(input)?.ok_or("it is a Y4M file without a header")?;
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut header =
        Header { rate: image_rate, is_framed: true, length: line.len() + 1, ..Header::default() };
    let mut colours = "420".to_owned();
    let mut of_x = None;
    for field in line.split(' ').skip(1) {
        let Some(kind) = field.chars().next() else { continue };
        let value = field.get(kind.len_utf8()..).unwrap_or_default();
        match kind {
            'W' => header.width = number(value)?,
            'H' => header.height = number(value)?,
            'F' => header.rate = fraction(value).unwrap_or(image_rate),
            'A' => header.aspect = fraction(value).unwrap_or(gst::Fraction::new(1, 1)),
            'I' => header.set_fields(value),
            'C' => value.clone_into(&mut colours),
            'X' => match value.split_once('=') {
                Some(("COLORRANGE", "FULL")) => header.full_range = Some(true),
                Some(("COLORRANGE", "LIMITED")) => header.full_range = Some(false),
                Some(("YSCSS", value)) => of_x = Some(value.to_ascii_lowercase()),
                _ => {}
            },
            _ => {}
        }
    }
    // Formats that older programs write into a comment.
    let named = samples(&colours).or_else(|| samples(&of_x?));
    header.samples = named.ok_or_else(|| format!("it is Y4M with unsupported samples (C{colours})"))?;
    Ok(header)
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("it is Y4M of an unknown size ({text})"))
}

/// Parses a ratio of two positive numbers.
fn fraction(text: &str) -> Option<gst::Fraction> {
    let (numer, denom) = text.split_once(':')?;
    let [numer, denom] = [numer, denom].map(|number| number.parse().ok().filter(|number: &i32| *number > 0));
    Some(gst::Fraction::new(numer?, denom?))
}

/// Parses the value of the field C.
fn samples(name: &str) -> Option<Samples> {
    let of = |subsampling: &str, bits| Samples::new(subsampling, bits);
    match name {
        "420jpeg" | "420mpeg2" | "420paldv" => return of("420", 8),
        "mono" => return of("mono", 8),
        _ => {}
    }
    let at = name.find('p').unwrap_or(name.len());
    if let Some(bits) = name.strip_prefix("mono").filter(|bits| !bits.is_empty()) {
        return of("mono", bits.parse().ok()?);
    }
    let bits = name.get(at + 1..).filter(|bits| !bits.is_empty());
    of(&name[..at], bits.map_or(Some(8), |bits| bits.parse().ok())?)
}
