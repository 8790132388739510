// SPDX-License-Identifier: MPL-2.0

//! The limit of page-locked ordinary memory.
//!
//! Locking memory allocates none, but the kernel can neither swap locked pages out nor move them, so a limit is needed.
//! Without `HIPVMAF_REGISTER_MAX` it is a quarter of the memory that the process may have: the buffer pools of hundreds of
//! live channels need less, and three quarters are left for the kernel and all other processes.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use super::super::CAT;

/// The part of the memory that may be locked.
const PART: usize = 4;

/// Bytes that may be locked in the process.
pub fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let limit = std::env::var_os("HIPVMAF_REGISTER_MAX").map_or_else(by_default, |text| given(&text));
        gst::info!(CAT, "at most {limit} bytes of ordinary memory are page-locked");
        limit
    })
}

/// Returns the value of the variable. A user who set it wants a limit, so nothing is locked where it cannot be understood.
fn given(text: &OsStr) -> usize {
    text.to_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        gst::warning!(
            CAT,
            "HIPVMAF_REGISTER_MAX is '{}', which is no number of bytes: nothing is page-locked",
            text.display()
        );
        0
    })
}

fn by_default() -> usize {
    let release = text("/proc/sys/kernel/osrelease");
    let groups = cgroup_limit(&text("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    part_of(&release, groups, physical())
}

/// Returns the default limit on a kernel of this release, from the limit of the control groups and the memory of the machine.
fn part_of(release: &str, groups: Option<usize>, physical: usize) -> usize {
    if !stays_after_fork(release) {
        gst::info!(CAT, "programs that fork may move what is page-locked with kernel '{}'", release.trim());
        return 0;
    }
    groups.unwrap_or(usize::MAX).min(physical) / PART
}

/// Returns true if locked pages stay those of a process that forks. Before Linux 5.9 it may get others when it next writes
/// there, while a GPU goes on to read the old ones. A kernel that does not say how old it is counts as one of these: without
/// locking, frames cost more, but they are the right ones.
fn stays_after_fork(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    version >= Some((5, 9))
}

/// The least limit of the control groups that `/proc/self/cgroup` names, and of those around them, of version 1 or 2. In a container
/// the path may be the host's, of which there is no more than the root.
fn cgroup_limit(groups: &str, root: &Path) -> Option<usize> {
    let of_group = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let group = root.join(path.trim_start_matches('/'));
        let all = group.ancestors().take_while(|group| group.starts_with(&root));
        // A file without limit has the word `max`, which is no number.
        all.filter_map(|group| text(group.join(file)).trim().parse().ok()).min()
    };
    groups.lines().filter_map(of_group).min()
}

/// Bytes of memory of the machine.
fn physical() -> usize {
    // SAFETY: takes a number.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    usize::try_from(pages).unwrap_or(0).saturating_mul(page())
}

/// Bytes of a page of memory.
pub fn page() -> usize {
    // SAFETY: takes a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1)
}

/// A file of the system's, empty where there is none.
fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_before_5_9_do_not_keep_what_is_locked() {
        for new in ["5.9.0", "5.9-rc1\n", "5.10.0-28-amd64", "6.18.44-fc", "10.0.1+", "5.15.153.1-WSL2"] {
            assert!(stays_after_fork(new), "{new}");
        }
        for old in ["5.8.18", "4.18.0-553.el8_10.x86_64", "4.99", "2.6.32", "5", "6", "", "Linux 6.1", "x.9"]
        {
            assert!(!stays_after_fork(old), "{old}");
        }
    }

    #[test]
    fn a_wrong_number_of_bytes_is_none() {
        for (text, bytes) in [("0", 0), ("80000", 80_000), ("", 0), ("1G", 0), ("-1", 0), ("1e9", 0)] {
            assert_eq!(given(OsStr::new(text)), bytes, "{text}");
        }
    }

    #[test]
    fn the_least_limit_of_all_control_groups_holds() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("memory.max", "max\n");
        write("a.slice/memory.max", "5000\n");
        write("a.slice/b.service/memory.max", "7000\n");
        write("c/memory.max", "max\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/d/memory.limit_in_bytes", "3000\n");
        let limit = |groups: &str| cgroup_limit(groups, root);
        assert_eq!(limit("0::/a.slice/b.service\n"), Some(5000));
        assert_eq!(limit("0::/c\n"), None);
        // Version 1, alone and with version 2 beside it.
        assert_eq!(limit("4:cpu,cpuacct:/a.slice\n3:memory:/d\n"), Some(3000));
        assert_eq!(limit("3:hugetlb,memory:/nowhere/of/the/host\n"), Some(9_223_372_036_854_771_712));
        assert_eq!(limit("3:memory:/d\n0::/a.slice\n"), Some(3000));
        assert_eq!(limit(""), None);
        assert_eq!(limit("memory\n0:\n"), None);
        // The root of a container.
        write("memory.max", "4000\n");
        assert_eq!(limit("0::/\n"), Some(4000));
        assert_eq!(limit("0::/docker/of/the/host\n"), Some(4000));
    }

    #[test]
    fn the_default_is_a_quarter_of_the_least_limit() {
        for (release, groups, expected) in [
            ("6.1.0", None, 2000),
            ("6.1.0", Some(4000), 1000),
            ("6.1.0", Some(usize::MAX), 2000),
            ("5.8.18", None, 0),
            ("5.8.18", Some(4000), 0),
        ] {
            assert_eq!(part_of(release, groups, 8000), expected, "{release}, {groups:?}");
        }
        assert!(physical() > page());
    }
}
