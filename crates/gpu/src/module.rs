// SPDX-License-Identifier: MPL-2.0

//! Loaded code objects and their kernels.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use hip_sys::{Api, HipError, hipFunction_t, hipModule_t};

use crate::device::Device;
use crate::error::Error;
use crate::stream::Stream;

/// The driver is older than the text form of the kernels.
const CUDA_UNSUPPORTED_PTX_VERSION: HipError = HipError(222);

/// A code object for AMD, or PTX for NVIDIA, that a runtime may load.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    target: &'static str,
    code: &'static [u8],
}

impl Image {
    /// Code that was compiled for `target`, such as `gfx1100` or `sm_80`.
    ///
    /// # Safety
    ///
    /// The runtime trusts what it loads: `code` must be a whole code object of AMD's format, or PTX with a zero at
    /// its end.
    pub const unsafe fn new(target: &'static str, code: &'static [u8]) -> Self {
        Self { target, code }
    }
}

/// What a program runs on GPUs: modules of kernels, compiled for several processors.
pub trait Code: Sync {
    /// Why there is no code for any processor; `None` if there is some.
    fn missing(&self) -> Option<&'static str>;

    /// Whether there is code for a processor, by its name in [`DeviceInfo::arch`](crate::DeviceInfo::arch).
    fn covers(&self, arch: &str) -> bool;

    /// The images of a module that a processor may take, best first.
    fn images(&self, module: &str, arch: &str) -> Vec<Image>;
}

/// The kernels of one module on one device, which unloads them when it is closed.
pub struct Module {
    handle: hipModule_t,
    target: &'static str,
}

// SAFETY: handles may be used by any thread that has set the device, which every use does.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    pub(crate) fn load(device: &Device, images: &[Image]) -> Result<Self, Error> {
        let info = device.info();
        let api = device.enter()?;
        for &Image { target, code } in images {
            let mut handle = std::ptr::null_mut();
            // SAFETY: whoever made the image vouched for the code, and it lives for ever.
            match unsafe { (api.hipModuleLoadData)(&mut handle, code.as_ptr().cast()) } {
                // Not for this processor, or not for this version of the runtime: the next may be.
                HipError::NO_BINARY_FOR_GPU
                | HipError::INVALID_IMAGE
                | HipError::INVALID_DEVICE_FUNCTION
                | HipError::INVALID_KERNEL_FILE
                | CUDA_UNSUPPORTED_PTX_VERSION => {}
                status => {
                    device.check("hipModuleLoadData", status)?;
                    return Ok(Self { handle, target });
                }
            }
        }
        Err(Error::NoCode { device: info.name.clone(), arch: info.arch.clone() })
    }

    /// What the image that was loaded was compiled for.
    pub fn target(&self) -> &'static str {
        self.target
    }

    pub(crate) fn unload(&self, api: &Api) {
        // SAFETY: the device is being closed, so none of the kernels is used any more.
        let _ = unsafe { (api.hipModuleUnload)(self.handle) };
    }
}

/// A kernel, and how many threads its blocks have.
pub struct Kernel {
    _module: Arc<Module>,
    name: String,
    function: hipFunction_t,
    threads: u32,
}

// SAFETY: handles may be used by any thread that has set the device, which every use does.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// The kernel of this name in a module, for blocks of so many threads.
    pub fn new(device: &Device, module: &'static str, name: &str, threads: u32) -> Result<Self, Error> {
        let module = device.module(module)?;
        let symbol = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: the address is valid for a write, the module is loaded, and the name ends with a zero.
        let status =
            unsafe { (device.enter()?.hipModuleGetFunction)(&mut function, module.handle, symbol.as_ptr()) };
        device.check("hipModuleGetFunction", status)?;
        Ok(Self { _module: module, name: name.to_owned(), function, threads })
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Launches `grid` blocks in the order of the stream.
    ///
    /// # Safety
    ///
    /// `arguments` must be the addresses of values of the kernel's parameter types, in order, and the memory that
    /// these point to must be the GPU's to use until the stream has got there.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        grid: (u32, u32),
        arguments: &mut [*mut c_void],
    ) -> Result<(), Error> {
        let api = stream.device().enter()?;
        let arguments = arguments.as_mut_ptr();
        let launch = || {
            // SAFETY: passed on to the caller.
            let status = unsafe {
                (api.hipModuleLaunchKernel)(
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

/// The addresses of values, as arguments of [`Kernel::launch`].
#[macro_export]
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {
        &mut [$((&raw const $value).cast_mut().cast::<std::ffi::c_void>()),*]
    };
}
