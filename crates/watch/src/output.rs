// SPDX-License-Identifier: MPL-2.0

//! Writes outputs without destroying what has their names: regular files are replaced as a whole, symbolic links are
//! followed, and devices and pipes are written to. A rename would put a regular file in the place of any of these.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// As many symbolic links as Linux follows.
const LINKS: usize = 40;
/// Where a process finds its open files.
const DESCRIPTORS: &str = "/proc/self/fd";

/// What an output is written to.
#[derive(Debug)]
pub enum Place {
    /// A regular file, or a free name. It is where symbolic links have led.
    File(PathBuf),
    /// A device, a pipe, or an open file of this process, to be written to.
    Stream(File),
}

impl Place {
    /// Looks at what has this name, and opens it unless it is a regular file.
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

/// What a path leads to.
enum Target {
    Path(PathBuf),
    /// An open file of this process.
    Descriptor(u32),
}

/// Follows symbolic links, also one to a file that is not there yet. A path without links stays as it is.
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
            // It is no link, or nothing is there.
            Err(_) => return Ok(Target::Path(path)),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Opens an open file of this process once more. Standard output and standard error share their position with what else is
/// printed there.
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

/// Opens a pipe, which has to have a reader: a pipe without one would hold up the program until there is one.
fn pipe(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let without_reader = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENXIO) => {
            io::Error::new(ErrorKind::NotConnected, "nothing reads from the pipe; start its reader before")
        }
        _ => error,
    };
    File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(without_reader)?;
    // As long as this one is open, the next need not wait for a reader, should the one that was there have gone.
    let _reader = File::options().read(true).write(true).open(path)?;
    File::options().write(true).open(path)
}

/// Whether it is a device or a pipe, which is written to as it is.
pub fn is_stream(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|of| !of.is_file())
}

/// What a path leads to, by which names of one file are known to be names of the same.
#[derive(Debug, PartialEq, Eq)]
pub enum Identity {
    /// Device and inode of a file or a pipe.
    There(u64, u64),
    /// The path of a file that is not there yet.
    Free(PathBuf),
}

/// Returns what a path leads to; nothing for a device, which several may write to, and for what cannot be looked at.
pub fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    if let Ok(of) = fs::metadata(path) {
        return (!of.file_type().is_char_device()).then(|| Identity::There(of.dev(), of.ino()));
    }
    let Ok(Target::Path(path)) = target(path) else { return None };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Some(Identity::Free(fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?.join(path.file_name()?)))
}

/// An output that is written at once.
#[derive(Debug)]
pub enum Output {
    /// Takes the place of the file with this name when it is complete.
    File(NamedTempFile, PathBuf),
    /// Is written to.
    Stream(File),
}

impl Output {
    /// Makes sure that an output can be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        let path = match Place::of(path)? {
            Place::File(path) => path,
            Place::Stream(file) => return Ok(Self::Stream(file)),
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let file = tempfile::Builder::new()
            .prefix(".hipvmaf-")
            // As readable as any other file: the mask of the process applies.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")))?;
        Ok(Self::File(file, path))
    }

    /// Writes it: readers of a file see the old one or the new one.
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

/// Puts a text in the place of a file that others read at any time, or writes it to a device or a pipe.
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
        // The file is not there at first.
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
    fn pipes_are_written_to_if_somebody_reads() {
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
