// SPDX-License-Identifier: MPL-2.0

//! Notes the version, and whether the engine was built with GPU code, for what GStreamer shows of the plugin.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    watch_commits()?;
    gst_plugin_version_helper::info();
    let description = env::var("CARGO_PKG_DESCRIPTION")?;
    // The engine's build script says it, see there.
    let kernels = env::var("DEP_HIPVMAF_KERNELS_BUILT")? == "true";
    let suffix = if kernels { "" } else { "; built without GPU code" };
    println!("cargo::rustc-env=PLUGIN_DESCRIPTION={description}{suffix}");
    Ok(())
}

/// Tells cargo of the commits that the version names.
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
