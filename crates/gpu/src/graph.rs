// SPDX-License-Identifier: MPL-2.0

//! Recorded work: one launch for a whole frame.

use std::sync::Arc;

use hip_sys::{hipGraphExec_t, hipStreamCaptureModeThreadLocal};

use crate::device::Device;
use crate::error::Error;
use crate::stream::Stream;

/// Work that was recorded from streams.
pub struct Graph {
    device: Arc<Device>,
    handle: hipGraphExec_t,
}

// SAFETY: a handle that any thread may use that has set the device, which every use does.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `work` puts into the stream, and into others that it forks off and joins again. `None` where that is not
    /// to be had, and the work has to be launched piece by piece: the runtime knows no graphs or fails to make one, or
    /// `HIPVMAF_GRAPHS` is `off`.
    pub fn record(stream: &Stream, work: impl FnOnce() -> Result<(), Error>) -> Result<Option<Self>, Error> {
        let off = std::env::var_os("HIPVMAF_GRAPHS").is_some_and(|graphs| graphs == "off");
        if off || !stream.device().enter()?.graphs() {
            return Ok(None);
        }
        match Self::try_record(stream, work) {
            Ok(graph) => Ok(Some(graph)),
            Err(err @ Error::Lost { .. }) => Err(err),
            // What is wrong with the work itself shows when it is launched.
            Err(_) => Ok(None),
        }
    }

    fn try_record(stream: &Stream, work: impl FnOnce() -> Result<(), Error>) -> Result<Self, Error> {
        let device = stream.device();
        let api = device.enter()?;
        let null = std::ptr::null_mut;
        // SAFETY: the stream is live.
        device.check("hipStreamBeginCapture", unsafe {
            api.hipStreamBeginCapture(stream.handle(), hipStreamCaptureModeThreadLocal)
        })?;
        let recorded = work();
        let mut graph = null();
        // SAFETY: the address is valid for a write, and the stream is live.
        let ended = device
            .check("hipStreamEndCapture", unsafe { api.hipStreamEndCapture(stream.handle(), &mut graph) });
        let mut handle = null();
        let result = recorded.and(ended).and_then(|()| {
            // SAFETY: the address is valid for a write, the graph was recorded just now.
            let status =
                unsafe { api.hipGraphInstantiate(&mut handle, graph, null().cast(), null().cast(), 0) };
            device.check("hipGraphInstantiate", status)
        });
        if !graph.is_null() {
            // SAFETY: the recording is live and nobody's else; the instance does not need it.
            let _ = unsafe { api.hipGraphDestroy(graph) };
        }
        result.map(|()| Self { device: device.clone(), handle })
    }

    /// Does the work in the order of the stream.
    ///
    /// # Safety
    ///
    /// What the recorded work reads and writes must be valid, and the GPU's to use until the stream has got there.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), Error> {
        let api = self.device.enter()?;
        // SAFETY: both handles are live, and the caller has promised that the work's memory is the GPU's to use.
        self.device.check("hipGraphLaunch", unsafe { api.hipGraphLaunch(self.handle, stream.handle()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Some(api) = self.device.release() {
            // SAFETY: the handle is live and not used any more.
            let _ = unsafe { api.hipGraphExecDestroy(self.handle) };
        }
    }
}
