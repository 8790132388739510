// SPDX-License-Identifier: MPL-2.0

//! Codec padding that was not cropped, such as 1088 lines for 1080.

use super::check::Finding;
use super::crop::Cut;
use super::format::Seen;
use super::preprocessing::Margins;

/// Codecs pad pictures to multiples of this.
const BLOCK: u32 = 16;

/// Returns the crop of the original and of each rendition, and the findings.
pub fn find(reference: Seen, renditions: &[Option<Seen>]) -> (Vec<Cut>, Vec<Finding>) {
    let mut findings = vec![];
    let own = renditions.iter().flatten().find_map(|seen| lines(reference, *seen, &mut findings));
    let height = reference.0.height - own.unwrap_or_default();
    let mut cuts = vec![cut(own)];
    for seen in renditions {
        let lines = seen.and_then(|seen| match own {
            // The original's crop is known at this point.
            Some(own) if seen.0.height == reference.0.height => Some(own),
            Some(_) if seen.0.height == height => None,
            _ => lines(seen, reference, &mut findings),
        });
        cuts.push(cut(lines));
    }
    (cuts, findings)
}

fn cut(bottom: Option<u32>) -> Cut {
    Cut { margins: Margins { bottom: bottom.unwrap_or_default(), ..Margins::default() }, ..Cut::default() }
}

/// Returns the number of padding lines of a video.
fn lines((video, frame_info): Seen, (other, others): Seen, findings: &mut Vec<Finding>) -> Option<u32> {
    let lines = video.height.checked_sub(other.height).filter(|lines| (1..BLOCK).contains(lines))?;
    let is_block = video.height == other.height.next_multiple_of(BLOCK) && video.width == other.width;
    let is_upright = frame_info.orientation.is_none() && others.orientation.is_none();
    (is_block && is_upright && frame_info.is_padded(others)).then(|| {
        let text = format!("it has {} lines, of which the last {lines} are codec padding", video.height);
        findings.push(Finding { video: video.input.clone(), kind: "padding", text });
        lines
    })
}
