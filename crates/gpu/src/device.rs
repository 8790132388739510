// SPDX-License-Identifier: MPL-2.0

//! Open GPUs, shared by all users in the process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use hip_sys::HipError;
use parking_lot::Mutex;

use crate::code::Code;
use crate::context_guard::{ContextGuard, Entered};
use crate::deferred_free::{DeferredFree, FreeThread};
use crate::error::Error;
use crate::module::Module;
use crate::runtime::{self, DeviceInfo, Selection};

/// A GPU with the modules and memory pools that its users share. It is closed when the last user drops it.
pub struct Device {
    info: &'static DeviceInfo,
    code: &'static dyn Code,
    free_thread: FreeThread,
    modules: Mutex<HashMap<&'static str, Arc<Module>>>,
}

impl Device {
    /// Opens the best of the selected GPUs ([`ranked`](crate::ranked)) whose runtime takes the code, or shares it if it
    /// is open for this code already. Sessions use [`Ownership`](crate::Ownership) instead, which chooses the least
    /// loaded GPU.
    pub fn open(selection: &Selection, code: &'static dyn Code) -> Result<Arc<Self>, Error> {
        let all = candidates(selection, code)?.into_iter().map(|info| (info, ()));
        Self::first_of(all, code).map(|(device, ())| device)
    }

    /// Opens, or shares, the first of these GPUs whose runtime takes the code. Returns it with its companion value. The
    /// error is that of the first GPU, which would have been preferred.
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

    /// Opens or shares this GPU.
    fn of(info: &'static DeviceInfo, code: &'static dyn Code) -> Result<Arc<Self>, Error> {
        static OPEN: Mutex<Vec<Weak<Device>>> = Mutex::new(vec![]);
        let mut open = OPEN.lock();
        open.retain(|device| device.strong_count() > 0);
        let same =
            |device: &Arc<Self>| std::ptr::eq(device.info, info) && std::ptr::addr_eq(device.code, code);
        if let Some(device) = open.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(device);
        }
        let device =
            Arc::new(Self { info, code, free_thread: FreeThread::new(info)?, modules: Mutex::default() });
        device.enter()?;
        open.push(Arc::downgrade(&device));
        Ok(device)
    }

    /// Tests with one module whether the runtime takes the code for this GPU.
    fn try_code(&self) -> Result<(), Error> {
        self.code.probe().map_or(Ok(()), |module| self.module(module).map(|_| ()))
    }

    /// Returns the properties of the GPU.
    pub fn info(&self) -> &'static DeviceInfo {
        self.info
    }

    /// Returns the free and the total bytes of device memory.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both addresses are valid for writes.
        let status = unsafe { self.enter()?.hipMemGetInfo(&mut free, &mut total) };
        self.check("hipMemGetInfo", status)?;
        Ok((free, total))
    }

    /// Waits until nothing writes to this memory of the GPU any more, in any context.
    pub fn synchronize_owner(&self, address: u64) -> Result<(), Error> {
        let status = self.enter()?.synchronize_owner(address as *const c_void);
        self.check("waiting for the GPU", status.err().unwrap_or(HipError::SUCCESS))
    }

    /// Returns the runtime's functions and makes this device current for the calling thread until they are dropped. The
    /// thread may be new to the runtime, or belong to the application.
    pub(crate) fn enter(&self) -> Result<Entered, Error> {
        let api = ContextGuard::new().enter(self.info.api()?);
        // SAFETY: takes a number, which the runtime gave.
        self.check("hipSetDevice", unsafe { api.hipSetDevice(self.info.ordinal) })?;
        Ok(api)
    }

    /// Returns the functions with the driver lock taken for submitting work.
    pub(crate) fn enter_shared(&self) -> Result<Entered, Error> {
        Ok(self.enter()?.holding(self.info.driver_lock.shared()))
    }

    /// Returns the functions with the driver lock taken for creating or allocating.
    pub(crate) fn enter_exclusive(&self) -> Result<Entered, Error> {
        Ok(self.enter()?.holding(self.info.driver_lock.exclusive()))
    }

    /// Returns the functions for destroying and freeing ([`DeviceInfo::release`]).
    pub(crate) fn release(&self) -> Option<Entered> {
        self.info.release()
    }

    /// Returns the memory that is idle or to be freed.
    pub(crate) fn deferred_free(&self) -> &DeferredFree {
        &self.free_thread.deferred
    }

    /// Frees idle page-locked memory soon until at most `limit` bytes of it are left. Memory that is idle for some
    /// seconds is freed anyway.
    pub fn limit_idle_locked(&self, limit: usize) {
        self.deferred_free().limit_locked(limit);
    }

    /// Converts a status to an error.
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

    /// Returns a module of the code, which the first call loads.
    pub fn module(&self, name: &'static str) -> Result<Arc<Module>, Error> {
        let loaded = || self.modules.lock();
        if let Some(module) = loaded().get(name) {
            return Ok(module.clone());
        }
        // Loaded without the lock: the driver may compile for a while, and several modules at once.
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
                // Another thread was faster. SAFETY: this module was never shared.
                unsafe { module.unload(&*self.enter()?) };
                Ok(earlier.get().clone())
            }
            Entry::Vacant(place) => Ok(place.insert(module).clone()),
        }
    }
}

fn no_code(info: &DeviceInfo, code: &dyn Code) -> Error {
    Error::NoCode { device: info.name.clone(), arch: info.arch.clone(), remedy: code.remedy(&info.arch) }
}

/// Returns the selected GPUs that there is code for, at least one, the best first.
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
        let modules = self.modules.get_mut();
        // Unloaded before the pool is freed: nothing can run any more.
        for (_, module) in modules.drain() {
            // SAFETY: kernels keep the device open, so there are none any more.
            let _ = self.info.release().map(|api| unsafe { module.unload(&api) });
        }
        self.free_thread.close();
    }
}
