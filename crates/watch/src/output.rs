// SPDX-License-Identifier: MPL-2.0

//! Writes outputs without destroying existing files: regular files are replaced atomically, symbolic links are
//! followed, and devices and pipes are written to. A rename would replace any of these by a regular file.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Number of symbolic links that Linux follows.
const LINKS: usize = 40;
/// Folder with the open files of a process.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Destination of an output.
#[derive(Debug)]
pub enum Place {
    /// A regular file or a free name, after following symbolic links.
    File(PathBuf),
    /// A device, a pipe, or an open file of this process.
    Stream(File),
}

impl Place {
    /// Examines a path, and opens it unless it is a regular file.
    pub fn of(path: &Path) -> io::Result<Self> {
        let refuse = |why: &str| Err(io::Error::new(ErrorKind::InvalidInput, why));
        let path = match target(path)? {
            Target::Path(path) => path,
            Target::Descriptor(number) => return own(number).map(Self::Stream),
        };
        let kind = match fs::metadata(&path) {
            Ok(of) => of.file_type(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::File(path)),
            Err(error) => return Err(error),
        };
        if kind.is_file() {
            Ok(Self::File(path))
        } else if kind.is_dir() {
            Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder"))
        } else if kind.is_fifo() {
            pipe(&path).map(Self::Stream)
        } else if kind.is_char_device() {
            File::options().append(true).open(&path).map(Self::Stream)
        } else {
            refuse("it is neither a file nor a pipe nor a device of characters")
        }
    }
}

/// Target of a path.
enum Target {
    Path(PathBuf),
    /// An open file of this process.
    Descriptor(u32),
}

/// Follows symbolic links, also to a missing file. A path without links is unchanged.
fn target(path: &Path) -> io::Result<Target> {
    let descriptors = fs::canonicalize(DESCRIPTORS).ok();
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder"));
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_owned();
        let own = descriptors.as_ref().filter(|own| fs::canonicalize(&folder).is_ok_and(|at| at == **own));
        if let (Some(_), Some(number)) = (own, name.to_str().and_then(|name| name.parse().ok())) {
            return Ok(Target::Descriptor(number));
        }
        match fs::read_link(&path) {
            Ok(to) => path = folder.join(to),
            // Not a link, or nothing there.
            Err(_) => return Ok(Target::Path(path)),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Opens an open file of this process again. Standard output and standard error keep their common position.
fn own(number: u32) -> io::Result<File> {
    match number {
        1 => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        2 => io::stderr().as_fd().try_clone_to_owned().map(File::from),
        _ => {
            let path = Path::new(DESCRIPTORS).join(number.to_string());
            if fs::metadata(&path)?.file_type().is_fifo() {
                return pipe(&path);
            }
            File::options().append(true).open(path)
        }
    }
}

/// Opens a pipe, which must have a reader: opening would wait for one otherwise.
fn pipe(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let without_reader = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENXIO) => {
            io::Error::new(ErrorKind::NotConnected, "nothing reads from the pipe; start its reader before")
        }
        _ => error,
    };
    File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(without_reader)?;
    // While this one is open, the next open does not wait, even if the reader has left.
    let _reader = File::options().read(true).write(true).open(path)?;
    File::options().write(true).open(path)
}

/// Returns true for a device or pipe, which is written to directly.
pub fn is_stream(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|of| !of.is_file())
}

/// Identity of a destination, to recognise different names of one file.
#[derive(Debug, PartialEq, Eq)]
pub enum Identity {
    /// Device and inode of a file or pipe.
    There(u64, u64),
    /// Path of a file that does not exist yet.
    Free(PathBuf),
}

/// Returns the identity of a path. Returns `None` for a device, which may have several writers, and on errors.
pub fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    if let Ok(of) = fs::metadata(path) {
        return (!of.file_type().is_char_device()).then(|| Identity::There(of.dev(), of.ino()));
    }
    let Ok(Target::Path(path)) = target(path) else { return None };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Some(Identity::Free(fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?.join(path.file_name()?)))
}

/// An output that is written in one piece.
#[derive(Debug)]
pub enum Output {
    /// Replaces the file with this name when it is complete.
    File(NamedTempFile, PathBuf),
    /// Written to directly.
    Stream(File),
}

impl Output {
    /// Creates an output, to report errors early.
    pub fn create(path: &Path) -> io::Result<Self> {
        let path = match Place::of(path)? {
            Place::File(path) => path,
            Place::Stream(file) => return Ok(Self::Stream(file)),
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let file = tempfile::Builder::new()
            .prefix(".hipvmaf-")
            // The umask of the process applies, as for any other file.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")))?;
        Ok(Self::File(file, path))
    }

    /// Writes the output. Readers of a file see the old or the new content.
    pub fn write(self, text: &[u8]) -> io::Result<()> {
        match self {
            Self::File(mut file, path) => {
                file.write_all(text)?;
                file.persist(path)?;
                Ok(())
            }
            Self::Stream(mut file) => file.write_all(text),
        }
    }
}

/// Replaces a file that may be read at any time, or writes to a device or pipe.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    Output::create(path)?.write(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hipvmaf.prom");
        for text in ["old, and longer", "new"] {
            replace(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace(&folder.path().join("none/hipvmaf.prom"), "").is_err());
        assert_eq!(replace(folder.path(), "").unwrap_err().kind(), ErrorKind::IsADirectory);
    }

    #[test]
    fn links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second, file] = ["first", "second", "file"].map(|name| folder.path().join(name));
        symlink("second", &first).unwrap();
        symlink(&file, &second).unwrap();
        // The file does not exist at first.
        for text in ["a", "b"] {
            replace(&first, text).unwrap();
            assert!(first.is_symlink() && second.is_symlink() && !file.is_symlink());
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        let itself = folder.path().join("itself");
        symlink("itself", &itself).unwrap();
        assert!(replace(&itself, "").is_err());
    }

    #[test]
    fn names_of_one_file_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let [file, other, hard, soft, free, to_free] =
            ["file", "other", "hard", "soft", "free", "to_free"].map(|name| folder.path().join(name));
        fs::write(&file, "").unwrap();
        fs::write(&other, "").unwrap();
        fs::hard_link(&file, &hard).unwrap();
        symlink("hard", &soft).unwrap();
        symlink("free", &to_free).unwrap();
        let [file, other, hard, soft, free, to_free] =
            [file, other, hard, soft, free, to_free].map(|path| identity(&path).unwrap());
        assert!(file == hard && file == soft && free == to_free);
        assert!(file != other && file != free);
        assert_eq!(identity(Path::new("/dev/null")), None);
    }

    #[test]
    fn devices_are_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("/dev/null", &link).unwrap();
        for path in [Path::new("/dev/null"), &link] {
            replace(path, "text").unwrap();
        }
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert_eq!(replace(Path::new("/dev/full"), "text").unwrap_err().kind(), ErrorKind::StorageFull);
    }

    #[test]
    fn pipes_are_written_to_if_they_have_a_reader() {
        let (mut reader, writer) = io::pipe().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&writer);
        for path in [format!("/dev/fd/{number}"), format!("/proc/self/fd/{number}")] {
            replace(Path::new(&path), "text").unwrap();
            let mut text = [0; 4];
            reader.read_exact(&mut text).unwrap();
            assert_eq!(&text, b"text");
        }
        drop(reader);
        let error = replace(Path::new(&format!("/dev/fd/{number}")), "text").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
