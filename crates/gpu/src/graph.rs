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

// SAFETY: handles may be used by any thread that has set the device, which every use does.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `work` puts into the stream, and into others that it forks off and joins again. `None` where the
    /// runtime knows no graphs.
    pub fn record(stream: &Stream, work: impl FnOnce() -> Result<(), Error>) -> Result<Option<Self>, Error> {
        let device = stream.device();
        let api = device.enter()?;
        let (Some(begin), Some(end), Some(instantiate), Some(destroy), true) = (
            api.hipStreamBeginCapture,
            api.hipStreamEndCapture,
            api.hipGraphInstantiate,
            api.hipGraphDestroy,
            api.graphs(),
        ) else {
            return Ok(None);
        };
        let null = std::ptr::null_mut;
        // SAFETY: the stream is live.
        device.check("hipStreamBeginCapture", unsafe {
            begin(stream.handle(), hipStreamCaptureModeThreadLocal)
        })?;
        let recorded = work();
        let mut graph = null();
        // SAFETY: the address is valid for a write.
        let ended = device.check("hipStreamEndCapture", unsafe { end(stream.handle(), &mut graph) });
        let mut handle = null();
        let result = recorded.and(ended).and_then(|()| {
            // SAFETY: the address is valid for a write, the graph was recorded just now.
            let status = unsafe { instantiate(&mut handle, graph, null().cast(), null().cast(), 0) };
            device.check("hipGraphInstantiate", status)
        });
        if !graph.is_null() {
            // SAFETY: the instance does not need the recording.
            let _ = unsafe { destroy(graph) };
        }
        result.map(|()| Some(Self { device: device.clone(), handle }))
    }

    /// Does the work in the order of the stream.
    pub fn launch(&self, stream: &Stream) -> Result<(), Error> {
        let Some(launch) = self.device.enter()?.hipGraphLaunch else { return Ok(()) };
        // SAFETY: both handles are live.
        self.device.check("hipGraphLaunch", unsafe { launch(self.handle, stream.handle()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Some(api) = self.device.release()
            && let Some(destroy) = api.hipGraphExecDestroy
        {
            // SAFETY: the handle is live and not used any more.
            let _ = unsafe { destroy(self.handle) };
        }
    }
}
