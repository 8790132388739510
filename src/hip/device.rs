// SPDX-License-Identifier: MPL-2.0

//! An open GPU, shared by everything in the process that uses it.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hip_sys::{Api, HipError};

use super::error::Error;
use super::memory::Pool;
use super::module::Module;
use super::runtime::{self, DeviceInfo, Selection};

/// A GPU with the modules and the memory pools that its users share. Closed when the last user drops it.
pub struct Device {
    info: &'static DeviceInfo,
    pub(super) pool: Mutex<Pool>,
    modules: Mutex<HashMap<&'static str, Arc<Module>>>,
}

impl Device {
    /// Opens the GPU that is wanted, or shares it if it is open already.
    pub fn open(selection: &Selection) -> Result<Arc<Self>, Error> {
        static OPEN: Mutex<Vec<Weak<Device>>> = Mutex::new(vec![]);
        let info = runtime::select(selection)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|device| device.strong_count() > 0);
        if let Some(device) =
            open.iter().filter_map(Weak::upgrade).find(|device| std::ptr::eq(device.info, info))
        {
            return Ok(device);
        }
        let device = Arc::new(Self { info, pool: Mutex::default(), modules: Mutex::default() });
        device.enter()?;
        open.push(Arc::downgrade(&device));
        Ok(device)
    }

    pub fn info(&self) -> &'static DeviceInfo {
        self.info
    }

    /// Free and total bytes of device memory.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both addresses are valid for writes.
        let status = unsafe { (self.enter()?.hipMemGetInfo)(&mut free, &mut total) };
        self.check("hipMemGetInfo", status)?;
        Ok((free, total))
    }

    /// Waits on the CPU for whatever may still write to memory of this GPU, in any context.
    pub fn synchronize_owner(&self, address: u64) -> Result<(), Error> {
        let status = hip_sys::synchronize_owner(self.enter()?, address as *const c_void);
        self.check("waiting for the GPU", status.err().unwrap_or(HipError::SUCCESS))
    }

    /// The functions, with this device set for the calling thread: a thread may be new to the runtime.
    pub(super) fn enter(&self) -> Result<&'static Api, Error> {
        runtime::check_process()?;
        let api = self.info.api;
        // SAFETY: a number below the device count.
        self.check("hipSetDevice", unsafe { (api.hipSetDevice)(self.info.ordinal) })?;
        Ok(api)
    }

    /// The functions to give things back with: a lost device takes them too. None in a child process, which has
    /// nothing to give back.
    pub(super) fn release(&self) -> Option<&'static Api> {
        runtime::check_process().ok()?;
        let api = self.info.api;
        // SAFETY: a number below the device count. On a lost device there is nothing to do about the error.
        let _ = unsafe { (api.hipSetDevice)(self.info.ordinal) };
        Some(api)
    }

    /// A status as an error of ours.
    pub(super) fn check(&self, call: &'static str, status: HipError) -> Result<(), Error> {
        let Err(error) = status.ok() else { return Ok(()) };
        let device = self.info.name.clone();
        Err(if error.is_device_lost() {
            Error::Lost { device, call, error }
        } else {
            Error::Call { device, call, error }
        })
    }

    /// The kernels of a metric, loaded at the first call.
    pub(super) fn module(self: &Arc<Self>, metric: &'static str) -> Result<Arc<Module>, Error> {
        let loaded = || self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = loaded().get(metric) {
            return Ok(module.clone());
        }
        // Not under the lock: the driver may compile for a while, for several metrics at once.
        let module = Arc::new(Module::load(self, metric)?);
        Ok(loaded().entry(metric).or_insert(module).clone())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let Some(api) = self.release() else { return };
        let modules = self.modules.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Before the pool: nothing can run any more.
        for (_, module) in modules.drain() {
            module.unload(api);
        }
        self.pool.get_mut().unwrap_or_else(PoisonError::into_inner).clear(api);
    }
}
