// SPDX-License-Identifier: MPL-2.0

//! Passes the version to the programs.

fn main() {
    gst_plugin_version_helper::info();
}
