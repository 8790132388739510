// SPDX-License-Identifier: MPL-2.0

//! Notes the version for the programs that say it.

fn main() {
    gst_plugin_version_helper::info();
}
