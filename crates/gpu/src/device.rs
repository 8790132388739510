// SPDX-License-Identifier: MPL-2.0

//! An open GPU, shared by everything in the process that uses it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hip_sys::{HipError, Vendor};

use crate::code::Code;
use crate::context_guard::{ContextGuard, Entered};
use crate::deferred_free::{DeferredFree, FreeThread};
use crate::error::Error;
use crate::module::Module;
use crate::runtime::{self, DeviceInfo, Selection};
use crate::stream::Stream;

/// A GPU with the modules and the memory pools that its users share. Closed when the last user drops it.
pub struct Device {
    info: &'static DeviceInfo,
    code: &'static dyn Code,
    free_thread: FreeThread,
    modules: Mutex<HashMap<&'static str, Arc<Module>>>,
    uploads: Mutex<Weak<Stream>>,
    downloads: Mutex<Weak<Stream>>,
}

impl Device {
    /// Opens the best GPU ([`ranked`](crate::ranked)) of those wanted that takes the code, or shares it if it is open for
    /// this code already. Whoever has work for it takes the one that has least to do instead ([`Ownership`](crate::Ownership)).
    pub fn open(selection: &Selection, code: &'static dyn Code) -> Result<Arc<Self>, Error> {
        let all = candidates(selection, code)?.into_iter().map(|info| (info, ()));
        Self::first_of(all, code).map(|(device, ())| device)
    }

    /// Opens, or shares, the first of these GPUs whose runtime takes the code, and has what came with it; else why the first of
    /// them cannot be opened, as that is the one that was to be had.
    pub(crate) fn first_of<T>(
        gpus: impl Iterator<Item = (&'static DeviceInfo, T)>,
        code: &'static dyn Code,
    ) -> Result<(Arc<Self>, T), Error> {
        let mut refused = None;
        for (info, with) in gpus {
            match Self::of(info, code).and_then(|device| device.try_code().map(|()| device)) {
                Ok(device) => return Ok((device, with)),
                Err(err) => refused = refused.or(Some(err)),
            }
        }
        Err(refused.unwrap_or_else(|| Error::NoDevice("none is left".into())))
    }

    /// This GPU, opened or shared.
    fn of(info: &'static DeviceInfo, code: &'static dyn Code) -> Result<Arc<Self>, Error> {
        static OPEN: Mutex<Vec<Weak<Device>>> = Mutex::new(vec![]);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|device| device.strong_count() > 0);
        let same =
            |device: &Arc<Self>| std::ptr::eq(device.info, info) && std::ptr::addr_eq(device.code, code);
        if let Some(device) = open.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(device);
        }
        let device = Arc::new(Self {
            info,
            code,
            free_thread: FreeThread::new(info)?,
            modules: Mutex::default(),
            uploads: Mutex::default(),
            downloads: Mutex::default(),
        });
        device.enter()?;
        open.push(Arc::downgrade(&device));
        Ok(device)
    }

    /// Whether the runtime takes the code for this GPU, as far as one module tells.
    fn try_code(&self) -> Result<(), Error> {
        self.code.probe().map_or(Ok(()), |module| self.module(module).map(|_| ()))
    }

    /// The stream through which video comes from the host, for all who share the device.
    ///
    /// A GPU copies from the host one piece after the other. With a stream for each of hundreds of groups in flight it changes
    /// streams for every piece, and takes them in some order; here it goes through one list, and who comes first is served
    /// first. Of 440 groups in flight an H100 does 11,332 a second instead of 10,836.
    ///
    /// AMD's runtime has streams of a priority share four queues of the GPU, in which a point that waits for a copy holds up
    /// whatever comes behind it (clr 6.2; not seen on hardware). So this one has a priority that others have not.
    pub fn uploads(self: &Arc<Self>) -> Result<Arc<Stream>, Error> {
        let create = || match self.info.vendor {
            Vendor::Amd => Stream::urgent(self),
            Vendor::Nvidia => Stream::new(self),
        };
        shared(&self.uploads, create)
    }

    /// The stream through which video comes back to the host now and then, for all who share the device: making one, and
    /// giving it back, would keep everybody else out of the driver each time.
    pub fn downloads(self: &Arc<Self>) -> Result<Arc<Stream>, Error> {
        shared(&self.downloads, || Stream::new(self))
    }

    /// What is known of it.
    pub fn info(&self) -> &'static DeviceInfo {
        self.info
    }

    /// Free and total bytes of device memory.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both addresses are valid for writes.
        let status = unsafe { self.enter()?.hipMemGetInfo(&mut free, &mut total) };
        self.check("hipMemGetInfo", status)?;
        Ok((free, total))
    }

    /// Waits on the CPU for whatever may still write to memory of this GPU, in any context.
    pub fn synchronize_owner(&self, address: u64) -> Result<(), Error> {
        let status = self.enter()?.synchronize_owner(address as *const c_void);
        self.check("waiting for the GPU", status.err().unwrap_or(HipError::SUCCESS))
    }

    /// The functions, with this device set for the calling thread until they are dropped: a thread may be new to the
    /// runtime, or somebody else's.
    pub(crate) fn enter(&self) -> Result<Entered, Error> {
        let api = ContextGuard::new().enter(self.info.api()?);
        // SAFETY: takes a number, which the runtime gave.
        self.check("hipSetDevice", unsafe { api.hipSetDevice(self.info.ordinal) })?;
        Ok(api)
    }

    /// The same to put work into a stream.
    pub(crate) fn enter_shared(&self) -> Result<Entered, Error> {
        Ok(self.enter()?.holding(self.info.driver_lock.shared()))
    }

    /// The same to create or allocate something.
    pub(crate) fn enter_exclusive(&self) -> Result<Entered, Error> {
        Ok(self.enter()?.holding(self.info.driver_lock.exclusive()))
    }

    /// The functions to give things back with ([`DeviceInfo::release`]).
    pub(crate) fn release(&self) -> Option<Entered> {
        self.info.release()
    }

    /// Its memory that nobody uses.
    pub(crate) fn deferred_free(&self) -> &DeferredFree {
        &self.free_thread.deferred
    }

    /// Has idle page-locked memory freed soon, until no more than `limit` bytes of it are left. What is idle for some
    /// seconds is freed anyway.
    pub fn limit_idle_locked(&self, limit: usize) {
        self.deferred_free().limit_locked(limit);
    }

    /// A status as an error of ours.
    pub(crate) fn check(&self, call: &'static str, status: HipError) -> Result<(), Error> {
        let Err(error) = status.ok() else { return Ok(()) };
        let device = self.info.name.clone();
        Err(if error.is_device_lost() {
            self.info.lost.store(true, Relaxed);
            Error::Lost { device, call, error }
        } else {
            Error::Call { device, call, error }
        })
    }

    /// A module of the code, loaded at the first call.
    pub fn module(&self, name: &'static str) -> Result<Arc<Module>, Error> {
        let loaded = || self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = loaded().get(name) {
            return Ok(module.clone());
        }
        // Not under the lock: the driver may compile for a while, for several modules at once.
        let images = self.code.images(name, &self.info.arch);
        let module = Module::load(&*self.enter()?, &images);
        let module = module.or_else(|status| self.check("hipModuleLoadData", status).map(|()| None))?;
        let refused = || match images.is_empty() {
            true => no_code(self.info, self.code),
            false => Error::CodeRefused { device: self.info.name.clone(), arch: self.info.arch.clone() },
        };
        let module = Arc::new(module.ok_or_else(refused)?);
        match loaded().entry(name) {
            Entry::Occupied(earlier) => {
                // Another thread was faster. SAFETY: nobody else has seen this one.
                unsafe { module.unload(&*self.enter()?) };
                Ok(earlier.get().clone())
            }
            Entry::Vacant(place) => Ok(place.insert(module).clone()),
        }
    }
}

/// The stream that others have already, or a new one.
fn shared(
    stream: &Mutex<Weak<Stream>>,
    create: impl FnOnce() -> Result<Stream, Error>,
) -> Result<Arc<Stream>, Error> {
    let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stream) = stream.upgrade() {
        return Ok(stream);
    }
    let new = Arc::new(create()?);
    *stream = Arc::downgrade(&new);
    Ok(new)
}

fn no_code(info: &DeviceInfo, code: &dyn Code) -> Error {
    Error::NoCode { device: info.name.clone(), arch: info.arch.clone(), remedy: code.remedy(&info.arch) }
}

/// The GPUs of those wanted that there is code for, at least one, the best first.
pub(crate) fn candidates(selection: &Selection, code: &dyn Code) -> Result<Vec<&'static DeviceInfo>, Error> {
    let (devices, problems) = runtime::scan(selection)?;
    let wanted = || devices.iter().copied().filter(|info| selection.takes(info));
    let usable: Vec<_> = wanted().filter(|info| code.covers(&info.arch)).collect();
    if !usable.is_empty() {
        return Ok(runtime::ranked(usable));
    }
    Err(match wanted().next() {
        Some(info) => no_code(info, code),
        None if devices.is_empty() => Error::NoDevice(problems.join("; ")),
        None => {
            let present: Vec<_> =
                devices.iter().map(|i| format!("{} {}: {i}", i.vendor, i.ordinal)).collect();
            Error::NoSuchDevice(selection.to_string(), format!("there is {}", present.join(", ")))
        }
    })
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.info.api().is_err() {
            return self.free_thread.forget();
        }
        let modules = self.modules.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Before the pool: nothing can run any more.
        for (_, module) in modules.drain() {
            // SAFETY: kernels keep the device open, so there are none any more.
            let _ = self.info.release().map(|api| unsafe { module.unload(&api) });
        }
        self.free_thread.close();
    }
}
