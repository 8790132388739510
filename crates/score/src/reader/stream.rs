// SPDX-License-Identifier: MPL-2.0

//! Sources that can be read once: standard input, FIFOs, and the shell's `<(command)`.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::interrupt;

/// Interval of the checks for signals while waiting, in milliseconds.
const LOOK: i32 = 100;

/// A stream, with the bytes read so far to identify its format.
#[derive(Debug)]
pub struct Stream {
    head: Vec<u8>,
    file: File,
}

impl Stream {
    /// Opens a path if it is a stream. `-` and `/dev/stdin` mean standard input.
    pub fn open(path: &Path) -> Result<Option<Self>, String> {
        let text = |error: io::Error| error.to_string();
        let is_input = [Path::new("-"), Path::new("/dev/stdin")].contains(&path);
        let stdin = io::stdin();
        let file = if is_input {
            if stdin.is_terminal() {
                return Err("standard input is a terminal, and not a video".into());
            }
            File::from(stdin.as_fd().try_clone_to_owned().map_err(text)?)
        } else {
            // A missing file is reported when it is opened.
            let Ok(kind) = path.metadata().map(|data| data.file_type()) else { return Ok(None) };
            if kind.is_char_device() || kind.is_block_device() {
                return Err("it is a device, and not a video".into());
            }
            if !kind.is_fifo() {
                return Ok(None);
            }
            // Without this flag, opening would wait for the writer. Reading waits instead.
            File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(text)?
        };
        let kind = file.metadata().map_err(text)?.file_type();
        if kind.is_char_device() {
            return Err("it is a device, and not a video".into());
        }
        Ok(Some(Self { head: vec![], file }))
    }

    /// Returns the first bytes without consuming them; fewer if the stream is shorter.
    pub fn peek(&mut self, count: usize) -> Result<&[u8], String> {
        let mut more = vec![0; count.saturating_sub(self.head.len())];
        let mut filled = 0;
        while filled < more.len() {
            match read(&mut self.file, &mut more[filled..]).map_err(|error| error.to_string())? {
                0 => break,
                count => filled += count,
            }
        }
        self.head.extend_from_slice(&more[..filled]);
        Ok(&self.head[..count.min(self.head.len())])
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.head.is_empty() {
            return read(&mut self.file, buffer);
        }
        let count = self.head.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.head[..count]);
        self.head.drain(..count);
        Ok(count)
    }
}

/// Reads available data, or waits for it until a signal arrives.
fn read(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        wait(file)?;
        match file.read(buffer) {
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
            result => return result,
        }
    }
}

fn wait(file: &File) -> io::Result<()> {
    let mut poll =
        libc::pollfd { fd: std::os::fd::AsRawFd::as_raw_fd(file), events: libc::POLLIN, revents: 0 };
    loop {
        if interrupt::caught().is_some() {
            return Err(io::Error::other("interrupted while waiting for it"));
        }
        // SAFETY: `poll` is one structure that lives as long as the call, and its descriptor is open.
        match unsafe { libc::poll(&mut poll, 1, LOOK) } {
            0 => {}
            -1 if io::Error::last_os_error().kind() == ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()),
            _ => return Ok(()),
        }
    }
}

/// Copies a stream to a temporary file, since demuxers have to seek.
pub fn spool(mut stream: Stream) -> Result<NamedTempFile, String> {
    let mut copy =
        NamedTempFile::with_prefix("hipvmaf-").map_err(|error| format!("cannot be kept: {error}"))?;
    let count = io::copy(&mut stream, &mut copy)
        .and_then(|count| copy.flush().map(|()| count))
        .map_err(|error| format!("cannot be copied to {}: {error}", std::env::temp_dir().display()))?;
    if count == 0 {
        return Err("it delivers no data".into());
    }
    Ok(copy)
}
