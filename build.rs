// SPDX-License-Identifier: MPL-2.0

//! Notes the version for what GStreamer shows of the plugin.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    watch_commits()?;
    gst_plugin_version_helper::info();
    Ok(())
}

/// Makes cargo build again after each commit that the version names.
fn watch_commits() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let git = Command::new("git").current_dir(&root).args(["rev-parse", "--git-path", "logs/HEAD"]).output();
    if let Ok(git) = git {
        let log = root.join(String::from_utf8_lossy(&git.stdout).trim_end());
        if git.status.success() && log.is_file() {
            println!("cargo::rerun-if-changed={}", log.display());
        }
    }
    Ok(())
}
