// SPDX-License-Identifier: MPL-2.0

//! Kernels and their launches.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use hip_sys::hipFunction_t;

use crate::device::Device;
use crate::error::Error;
use crate::stream::Stream;

/// A kernel with the number of threads in its blocks.
pub struct Kernel {
    /// Keeps the module loaded.
    _device: Arc<Device>,
    name: String,
    function: hipFunction_t,
    threads: u32,
}

// SAFETY: a handle that any thread may use that has set the device, which every use does.
unsafe impl Send for Kernel {}
// SAFETY: nothing is changed through a shared reference, and HIP's functions may be called side by side.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Finds the kernel with this name in a module, for blocks of `threads` threads.
    pub fn new(device: &Arc<Device>, module: &'static str, name: &str, threads: u32) -> Result<Self, Error> {
        let module = device.module(module)?;
        let symbol = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: the address is valid for a write, the module is loaded, and the name ends with a zero.
        let status =
            unsafe { device.enter()?.hipModuleGetFunction(&mut function, module.handle, symbol.as_ptr()) };
        device.check("hipModuleGetFunction", status)?;
        Ok(Self { _device: device.clone(), name: name.to_owned(), function, threads })
    }

    /// Returns the threads per block.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Launches `grid` blocks in the order of the stream.
    ///
    /// # Safety
    ///
    /// The stream must be of the kernel's device. `arguments` must be the addresses of values of the kernel's parameter
    /// types, in order, and the memory that these point to must be valid, and the GPU's to use until the stream has got
    /// there, also each time that a graph which records the launch is launched.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        grid: (u32, u32),
        arguments: &mut [*mut c_void],
    ) -> Result<(), Error> {
        let arguments = arguments.as_mut_ptr();
        let launch = || {
            let api = stream.device().enter_shared()?;
            // SAFETY: the caller has promised that the arguments are the kernel's and that their memory is the GPU's to
            // use; the kernel and the stream are live.
            let status = unsafe {
                api.hipModuleLaunchKernel(
                    self.function,
                    grid.0,
                    grid.1,
                    1,
                    self.threads,
                    1,
                    1,
                    0,
                    stream.handle(),
                    arguments,
                    std::ptr::null_mut(),
                )
            };
            stream.device().check("hipModuleLaunchKernel", status)
        };
        match stream.profile() {
            None => launch(),
            Some(profile) => profile.launch(stream, &self.name, launch),
        }
    }
}

/// Makes an array of the addresses of values, as arguments of [`Kernel::launch`].
#[macro_export]
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {
        &mut [$((&raw const $value).cast_mut().cast::<std::ffi::c_void>()),*]
    };
}
