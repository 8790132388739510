// SPDX-License-Identifier: MPL-2.0

//! Sets the version for programs that print it.

fn main() {
    gst_plugin_version_helper::info();
}
