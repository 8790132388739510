// SPDX-License-Identifier: MPL-2.0

//! Graphs: recorded work of a whole frame in a single launch.

use std::sync::Arc;

use hip_sys::{Api, Vendor, hipGraph_t, hipGraphExec_t, hipStreamCaptureModeThreadLocal};

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
    /// Records the work that `work` puts into the stream and into others that it forks and joins. Returns `None` if
    /// graphs are not available, so that the work has to be launched piece by piece: the runtime has no graphs or fails
    /// to make one, or `HIPVMAF_GRAPHS` is `off`.
    ///
    /// The work must only launch kernels, and record and wait for events of streams that it forks. AMD's runtime does
    /// not report other calls while it records, and the graph then gives wrong results.
    pub fn record(stream: &Stream, work: impl FnOnce() -> Result<(), Error>) -> Result<Option<Self>, Error> {
        if graphs_are_off() || !stream.device().enter()?.graphs() {
            return Ok(None);
        }
        match Self::try_record(stream, work) {
            Err(err @ Error::Lost { .. }) => Err(err),
            // An error of the work itself occurs again when it is launched.
            result => Ok(result.ok().flatten()),
        }
    }

    /// Returns true if graphs of this device get branches: on NVIDIA, where branches overlap. AMD's runtime launches a chain as
    /// one, but creates a forked graph anew at each launch, over at most four streams, and its executor loses edges (up to
    /// ROCm 7). Groups in flight overlap anyway.
    pub fn has_branches(device: &Device) -> bool {
        device.info().vendor == Vendor::Nvidia
    }

    /// Returns `None` if nothing was recorded. AMD's runtime does not always report calls that it cannot record.
    fn try_record(stream: &Stream, work: impl FnOnce() -> Result<(), Error>) -> Result<Option<Self>, Error> {
        let device = stream.device();
        let api = device.enter()?;
        let null = std::ptr::null_mut;
        // SAFETY: the stream is live.
        device.check("hipStreamBeginCapture", unsafe {
            api.hipStreamBeginCapture(stream.handle(), hipStreamCaptureModeThreadLocal)
        })?;
        let recorded = work();
        let mut recording = null();
        // SAFETY: the address is valid for a write, and the stream is live.
        let ended = device.check("hipStreamEndCapture", unsafe {
            api.hipStreamEndCapture(stream.handle(), &mut recording)
        });
        let result = recorded.and(ended).and_then(|()| {
            // SAFETY: it was recorded just now.
            if unsafe { is_empty(&api, recording) } {
                return Ok(None);
            }
            let mut handle = null();
            let api = device.enter_exclusive()?;
            // SAFETY: the address is valid for a write, the graph was recorded just now.
            let status =
                unsafe { api.hipGraphInstantiate(&mut handle, recording, null().cast(), null().cast(), 0) };
            device.check("hipGraphInstantiate", status)?;
            Ok(Some(Self { device: device.clone(), handle }))
        });
        if !recording.is_null() {
            // SAFETY: the recording is live and owned here; the instance does not need it.
            let _ = unsafe { api.hipGraphDestroy(recording) };
        }
        result
    }

    /// Launches the work in the order of the stream.
    ///
    /// # Safety
    ///
    /// The memory that the recorded work reads and writes must be valid, and reserved for the GPU until the stream has
    /// got there.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), Error> {
        let api = self.device.enter_shared()?;
        // SAFETY: both handles are live, and the caller has promised that the work's memory is the GPU's to use.
        self.device.check("hipGraphLaunch", unsafe { api.hipGraphLaunch(self.handle, stream.handle()) })
    }
}

/// Returns true if the user has turned graphs off.
fn graphs_are_off() -> bool {
    std::env::var_os("HIPVMAF_GRAPHS").is_some_and(|graphs| graphs == "off")
}

/// Returns true if the runtime reports that a recording is empty.
///
/// # Safety
///
/// The recording must be live.
unsafe fn is_empty(api: &Api, recording: hipGraph_t) -> bool {
    let mut nodes = 0;
    // SAFETY: the caller has promised that the recording is live, and the address is valid for a write.
    let status = unsafe { api.hipGraphGetNodes(recording, std::ptr::null_mut(), &mut nodes) };
    status.ok().is_ok() && nodes == 0
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Some(api) = self.device.release() {
            // SAFETY: the handle is live and not used any more.
            let _ = unsafe { api.hipGraphExecDestroy(self.handle) };
        }
    }
}
