// SPDX-License-Identifier: MPL-2.0

//! The top-level boxes of an MP4 file, each with a size, a name and a body.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// A box.
pub struct Mp4Box {
    /// Its name.
    pub name: [u8; 4],
    /// Offset and length of its body.
    start: u64,
    length: u64,
}

/// Iterates over the boxes of a file, up to the first that cannot be read.
pub struct Boxes {
    file: File,
    /// Offset of the next box.
    at: u64,
    length: u64,
}

impl Boxes {
    /// Opens a regular file.
    pub fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let about = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(Self { file, at: 0, length: about.len() })
    }

    /// Reads the body of a box, up to a maximum length.
    pub fn body(&mut self, of: &Mp4Box, most: u64) -> Option<Vec<u8>> {
        let mut body = vec![];
        self.file.seek(SeekFrom::Start(of.start)).ok()?;
        (&self.file).take(of.length.min(most)).read_to_end(&mut body).ok()?;
        Some(body)
    }

    /// Returns the length of the file and the length according to its boxes, if they were read to the end.
    pub fn ends(&self) -> Option<(u64, u64)> {
        (self.at >= self.length).then_some((self.length, self.at))
    }

    fn read(&mut self) -> Option<Mp4Box> {
        let mut head = [0; 16];
        self.file.seek(SeekFrom::Start(self.at)).ok()?;
        self.file.read_exact(&mut head[..8]).ok()?;
        let ([a, b, c, d], name) =
            ([head[0], head[1], head[2], head[3]], [head[4], head[5], head[6], head[7]]);
        let (size, taken) = match u32::from_be_bytes([a, b, c, d]) {
            // The last box may extend to the end of the file.
            0 => (self.length - self.at, 8),
            1 => {
                self.file.read_exact(&mut head[8..]).ok()?;
                (u64::from_be_bytes(head[8..].try_into().ok()?), 16)
            }
            size => (u64::from(size), 8),
        };
        let start = self.at + taken;
        self.at = self.at.checked_add(size.max(taken))?;
        Some(Mp4Box { name, start, length: self.at - start })
    }
}

impl Iterator for Boxes {
    type Item = Mp4Box;

    fn next(&mut self) -> Option<Mp4Box> {
        if self.at < self.length { self.read() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_have_short_long_and_open_sizes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("film");
        let short = b"\0\0\0\x0cftypisom".to_vec();
        let long = b"\0\0\0\x01moov\0\0\0\0\0\0\0\x13abc".to_vec();
        let open = b"\0\0\0\0mdatdata".to_vec();
        std::fs::write(&path, [short.clone(), long, open].concat()).unwrap();
        let mut boxes = Boxes::open(&path).unwrap();
        let all: Vec<_> = boxes.by_ref().collect();
        assert_eq!(all.iter().map(|of| &of.name).collect::<Vec<_>>(), [b"ftyp", b"moov", b"mdat"]);
        let bodies = all.iter().map(|of| boxes.body(of, 4).unwrap()).collect::<Vec<_>>();
        assert_eq!(bodies, [&b"isom"[..], b"abc", b"data"]);
        assert_eq!(boxes.ends(), Some((43, 43)));
        // A truncated box, and trailing bytes that are not a box.
        for (bytes, ends) in [(b"\0\0\0\x40mdatx".to_vec(), Some((21, 76))), (b"\0\0".to_vec(), None)] {
            std::fs::write(&path, [short.clone(), bytes].concat()).unwrap();
            let mut boxes = Boxes::open(&path).unwrap();
            boxes.by_ref().for_each(drop);
            assert_eq!(boxes.ends(), ends);
        }
        assert!(Boxes::open(folder.path()).is_none());
    }
}
