// SPDX-License-Identifier: MPL-2.0

//! Code for GPUs without any kernels, for tests that load none.

use hipvmaf_gpu::{Code, Image};

pub struct Empty {
    /// Covers every GPU if true, else none.
    pub covers: bool,
}

impl Code for Empty {
    fn covers(&self, _: &str) -> bool {
        self.covers
    }

    fn remedy(&self, _: &str) -> String {
        "there is no remedy".into()
    }

    fn images(&self, _: &str, _: &str) -> Vec<Image> {
        vec![]
    }
}
