// SPDX-License-Identifier: MPL-2.0

//! Launches `kernels/adm.hip`.
use std::sync::Arc;

use super::backend::{Addresses, Metric};
use super::device::Device;
use super::error::Error;
use super::stream::Stream;
use crate::frame::Geometry;
use crate::metrics::FrameSums;
use crate::metrics::adm::AdmWork;

pub struct Adm;

impl Adm {
    pub fn new(_device: &Arc<Device>, _work: &AdmWork, _geometry: Geometry) -> Result<Self, Error> {
        Ok(Self)
    }
}

impl Metric for Adm {
    fn sums(&self) -> usize {
        0
    }
    fn launch(&self, _stream: &Stream, _at: Addresses) -> Result<(), Error> {
        Ok(())
    }
    fn read(&self, _sums: &[u64], _run: usize, _out: &mut FrameSums) {}
}
