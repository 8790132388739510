// SPDX-License-Identifier: MPL-2.0

//! Streams, which are queues of work for the GPU; events, which mark points in them; and timing of kernels between
//! events.

use std::ffi::{c_int, c_uint};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hip_sys::{HipError, Vendor, hipEvent_t, hipStream_t};
use parking_lot::Mutex;

use crate::device::Device;
use crate::error::Error;

/// A stream that runs concurrently with all others.
pub struct Stream {
    device: Arc<Device>,
    handle: hipStream_t,
    profile: Option<Profile>,
}

// SAFETY: a handle that any thread may use that has set the device, which every use does.
unsafe impl Send for Stream {}
// SAFETY: nothing is changed through a shared reference, and HIP's functions may be called side by side.
unsafe impl Sync for Stream {}

impl Stream {
    /// Creates a stream.
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        Self::with_priority(device, 0)
    }

    /// Creates a stream. Its kernels start before waiting kernels of streams with a larger number as priority.
    fn with_priority(device: &Arc<Device>, priority: c_int) -> Result<Self, Error> {
        let mut handle = std::ptr::null_mut();
        let flags = hip_sys::hipStreamNonBlocking;
        // SAFETY: the address is valid for a write.
        let status =
            unsafe { device.enter_exclusive()?.hipStreamCreateWithPriority(&mut handle, flags, priority) };
        device.check("hipStreamCreateWithPriority", status)?;
        Ok(Self { device: device.clone(), handle, profile: None })
    }

    /// Creates a stream whose kernels are timed.
    pub fn profiling(device: &Arc<Device>, profile: Profile) -> Result<Self, Error> {
        let mut stream = Self::new(device)?;
        stream.profile = Some(profile);
        Ok(stream)
    }

    /// Returns the stream for copies of video from the host, which all users of the device share.
    ///
    /// A GPU copies one piece after the other from the host. With a stream for each of hundreds of groups in flight, it
    /// switches streams for every piece and takes them in any order. One stream keeps the order of requests. With 440
    /// groups in flight an H100 does 11,332 a second instead of 10,836.
    ///
    /// AMD's runtime maps all streams of a priority to four queues of the GPU, in which a point that waits for a copy
    /// blocks everything after it (clr 6.2; not seen on hardware). So this stream has a priority that others do not
    /// use.
    pub fn uploads(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        static OPEN: Mutex<Vec<Weak<Stream>>> = Mutex::new(vec![]);
        let priority = match device.info().vendor {
            Vendor::Amd => -1,
            Vendor::Nvidia => 0,
        };
        Self::shared(&OPEN, device, priority)
    }

    /// Returns the stream for occasional copies of video back to the host, which all users of the device share.
    /// Creating and destroying a stream each time would block all other calls of the driver.
    pub fn downloads(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        static OPEN: Mutex<Vec<Weak<Stream>>> = Mutex::new(vec![]);
        Self::shared(&OPEN, device, 0)
    }

    /// Returns the open stream of the device, or creates it.
    fn shared(
        open: &Mutex<Vec<Weak<Self>>>,
        device: &Arc<Device>,
        priority: c_int,
    ) -> Result<Arc<Self>, Error> {
        let mut open = open.lock();
        open.retain(|stream| stream.strong_count() > 0);
        let same = |stream: &Arc<Self>| Arc::ptr_eq(&stream.device, device);
        if let Some(stream) = open.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(stream);
        }
        let new = Arc::new(Self::with_priority(device, priority)?);
        open.push(Arc::downgrade(&new));
        Ok(new)
    }

    /// Returns the times of its kernels, if they are timed.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// Returns its device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn handle(&self) -> hipStream_t {
        self.handle
    }

    /// Makes later work in this stream wait for the event.
    pub fn wait_for(&self, event: &Event) -> Result<(), Error> {
        // SAFETY: both handles are live.
        let status = unsafe { self.device.enter_shared()?.hipStreamWaitEvent(self.handle, event.handle, 0) };
        self.device.check("hipStreamWaitEvent", status)
    }

    /// Makes later work in this stream wait for the present work of a stream that other code owns.
    ///
    /// # Safety
    ///
    /// `producer` must be the handle of a live stream of the same device, of HIP on AMD and of CUDA on NVIDIA.
    pub unsafe fn wait_for_stream(&self, producer: usize) -> Result<(), Error> {
        let api = self.device.enter_shared()?;
        // SAFETY: the caller has promised that the producer's stream is live, and so is this one.
        let status = unsafe { api.wait_for_stream(self.handle, producer as hipStream_t) };
        self.device.check("waiting for a stream", status.err().unwrap_or(HipError::SUCCESS))
    }

    /// Waits on the CPU until all work in the stream is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: the handle is live.
        let status = unsafe { self.device.enter()?.hipStreamSynchronize(self.handle) };
        self.device.check("hipStreamSynchronize", status)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(api) = self.device.release() {
            // SAFETY: the handle is live and not used any more. The remaining work of the stream is done.
            let _ = unsafe { api.hipStreamDestroy(self.handle) };
        }
    }
}

/// A point in a stream.
///
/// After an error, all threads that wait for the event or query it get the same error, until it marks something else.
/// The runtime may report an error only once.
pub struct Event {
    device: Arc<Device>,
    handle: hipEvent_t,
    spin_limit: Duration,
    failed: Mutex<Option<Error>>,
}

// SAFETY: a handle that any thread may use that has set the device, which every use does.
unsafe impl Send for Event {}
// SAFETY: a lock guards the state that shared references change, and HIP's functions may be called side by side.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event for streams to wait for. It causes no interrupt, which would cost the GPU two microseconds each
    /// time. A thread that waits for it polls.
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        Self::with_flags(device, hip_sys::hipEventDisableTiming)
    }

    /// Creates an event after which the CPU sees the data that earlier kernels have written to
    /// [coherent](crate::Pinned::coherent) memory.
    ///
    /// A thread that waits for it polls for up to `spin_limit` before it sleeps. Polling keeps a CPU busy but saves the
    /// time of waking up, which may be a third of the work's time.
    pub fn for_host(device: &Arc<Device>, spin_limit: Duration) -> Result<Self, Error> {
        let flags =
            hip_sys::hipEventBlockingSync | hip_sys::hipEventDisableTiming | hip_sys::hipEventReleaseToSystem;
        let mut event = Self::with_flags(device, flags)?;
        event.spin_limit = spin_limit;
        Ok(event)
    }

    /// Creates an event that records its time.
    pub fn timed(device: &Arc<Device>) -> Result<Self, Error> {
        Self::with_flags(device, hip_sys::hipEventBlockingSync)
    }

    fn with_flags(device: &Arc<Device>, flags: c_uint) -> Result<Self, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the address is valid for a write.
        let status = unsafe { device.enter_exclusive()?.hipEventCreateWithFlags(&mut handle, flags) };
        device.check("hipEventCreateWithFlags", status)?;
        Ok(Self { device: device.clone(), handle, spin_limit: Duration::ZERO, failed: Mutex::default() })
    }

    /// Marks the present end of the stream.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        *self.failed.lock() = None;
        // SAFETY: both handles are live.
        let status = unsafe { self.device.enter_shared()?.hipEventRecord(self.handle, stream.handle) };
        self.device.check("hipEventRecord", status)
    }

    /// Returns true if the marked work is done.
    pub fn is_done(&self) -> Result<bool, Error> {
        // SAFETY: the handle is live.
        let done = match unsafe { self.device.enter()?.hipEventQuery(self.handle) } {
            HipError::NOT_READY => Ok(false),
            status => self.device.check("hipEventQuery", status).map(|()| true),
        };
        self.or_failed(done)
    }

    /// Returns the first error since the event was recorded, else this result.
    fn or_failed<T>(&self, heard: Result<T, Error>) -> Result<T, Error> {
        let mut failed = self.failed.lock();
        if failed.is_none() {
            *failed = heard.as_ref().err().cloned();
        }
        failed.clone().map_or(heard, Err)
    }

    /// Returns the milliseconds since an earlier event. Both must be timed and done.
    pub fn since(&self, earlier: &Event) -> Result<f32, Error> {
        let mut time = 0.0;
        // SAFETY: the address is valid for a write, both handles are live.
        let status =
            unsafe { self.device.enter()?.hipEventElapsedTime(&mut time, earlier.handle, self.handle) };
        self.device.check("hipEventElapsedTime", status).map(|()| time)
    }

    /// Waits on the CPU until the marked work is done: polls until the [spin limit](Self::for_host), then sleeps.
    pub fn synchronize(&self) -> Result<(), Error> {
        let begin = Instant::now();
        while begin.elapsed() < self.spin_limit {
            match self.is_done() {
                Ok(true) => return Ok(()),
                Ok(false) => std::hint::spin_loop(),
                // The work may still use memory, so an error must not shorten the wait.
                Err(_) => break,
            }
        }
        // SAFETY: the handle is live.
        let status = unsafe { self.device.enter()?.hipEventSynchronize(self.handle) };
        self.or_failed(self.device.check("hipEventSynchronize", status))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(api) = self.device.release() {
            // SAFETY: the handle is live and not used any more.
            let _ = unsafe { api.hipEventDestroy(self.handle) };
        }
    }
}

/// The kernels launched into a stream. Each runs several times in a row between two events.
pub struct Profile {
    runs: u32,
    launches: Mutex<Vec<(String, [Event; 2])>>,
}

impl Profile {
    /// Runs every kernel `runs` times (at least once).
    pub fn new(runs: u32) -> Self {
        Self { runs: runs.max(1), launches: Mutex::default() }
    }

    /// Repeats the launch of a kernel.
    pub(crate) fn launch(
        &self,
        stream: &Stream,
        kernel: &str,
        launch: impl Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let [from, to] = [Event::timed(stream.device())?, Event::timed(stream.device())?];
        from.record(stream)?;
        (0..self.runs).try_for_each(|_| launch())?;
        to.record(stream)?;
        self.launches.lock().push((kernel.to_owned(), [from, to]));
        Ok(())
    }

    /// Returns the mean milliseconds of each launch, in order. The stream must be done.
    pub fn times(&self) -> Result<Vec<(String, f32)>, Error> {
        let launches = self.launches.lock();
        let mean = |(kernel, [from, to]): &(String, [Event; 2])| {
            Ok((kernel.clone(), to.since(from)? / self.runs as f32))
        };
        launches.iter().map(mean).collect()
    }
}
