// SPDX-License-Identifier: MPL-2.0

//! The functions of `libvmaf_cuda.h`: a GPU whose CUDA context the caller has, and pictures in its memory.
//!
//! The GPU computes in a context of this library, which copies the pictures. The caller's context is current for a thread
//! only during a call. It is waited for before a pair is read, as callers copy into pictures on its default stream.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use gpu::ForeignContext;

use crate::Errno;
use crate::ffi::{VmafContext, context, guarded, not_null};
use crate::log::{Level, log};
use crate::picture::{self, Format, Pool, VmafPicture};

/// A `CUcontext`. There is no function that ends a state, so it is the context itself, and nothing has to be freed.
#[repr(C)]
pub struct VmafCudaState {
    _private: [u8; 0],
}

/// Settings of a state.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VmafCudaConfiguration {
    /// A `CUcontext`; null for the primary context of the first GPU.
    pub cu_ctx: *mut c_void,
}

/// The pictures that [`vmaf_cuda_fetch_preallocated_picture`] makes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct VmafCudaPictureConfiguration {
    /// Samples of a row.
    pub w: u32,
    /// Rows.
    pub h: u32,
    /// Bits of a sample.
    pub bpc: u32,
    /// As in [`VmafPicture`].
    pub pix_fmt: u32,
    /// 0 for none, 1 for pictures in the memory of the GPU, 2 and 3 for ordinary and page-locked memory of the host.
    pub pic_prealloc_method: u32,
}

/// Where pictures come from.
enum Pictures {
    None,
    Device(Arc<Pool>),
    /// Their memory is page-locked as soon as the GPU computes.
    Host(Format),
}

/// The caller's CUDA context, and the pictures in it.
pub struct Cuda {
    context: Arc<ForeignContext>,
    pictures: Pictures,
}

/// Names a GPU by a CUDA context, which has to live as long as the state or a context that has imported it.
///
/// Returns `-EINVAL` without NVIDIA's driver.
///
/// # Safety
///
/// `cu_state` is null or can be written to. `cfg.cu_ctx` is null or a `CUcontext`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_cuda_state_init(
    cu_state: *mut *mut VmafCudaState,
    cfg: VmafCudaConfiguration,
) -> c_int {
    guarded(|| {
        not_null(cu_state)?;
        // SAFETY: promised by the caller.
        let context = unsafe { open(cfg.cu_ctx) }?;
        // SAFETY: checked, and promised by the caller.
        unsafe { cu_state.write(context.as_ptr().cast()) };
        Ok(())
    })
}

/// Finds the GPU of a context; the log says why there is none.
///
/// # Safety
///
/// As of [`ForeignContext::new`].
unsafe fn open(cu_ctx: *mut c_void) -> Result<ForeignContext, Errno> {
    // SAFETY: promised by the caller.
    unsafe { ForeignContext::new(cu_ctx) }.map_err(|error| {
        log(Level::Error, format_args!("CUDA cannot be used: {error}"));
        Errno::INVALID
    })
}

/// Computes the pairs of a context on the GPU of a state, unless `gpumask` or `HIPVMAF_BACKEND` has chosen the CPU.
///
/// # Safety
///
/// `vmaf` is null or a context, `cu_state` null or what [`vmaf_cuda_state_init`] has given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_cuda_import_state(
    vmaf: *mut VmafContext,
    cu_state: *mut VmafCudaState,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let vmaf = unsafe { context(vmaf) }?;
        not_null(cu_state)?;
        // SAFETY: as above.
        let context = unsafe { open(cu_state.cast()) }?;
        vmaf.state().reader.use_gpu(context.info().selection());
        *vmaf.cuda() = Some(Cuda { context: Arc::new(context), pictures: Pictures::None });
        Ok(())
    })
}

/// Chooses the pictures that [`vmaf_cuda_fetch_preallocated_picture`] makes. Needs an imported state.
///
/// # Safety
///
/// `vmaf` is null or a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_cuda_preallocate_pictures(
    vmaf: *mut VmafContext,
    cfg: VmafCudaPictureConfiguration,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let vmaf = unsafe { context(vmaf) }?;
        let mut cuda = vmaf.cuda();
        let VmafCudaPictureConfiguration { w, h, bpc, pix_fmt, pic_prealloc_method } = cfg;
        let format = || Format::new(pix_fmt, bpc, w, h).ok().filter(|_| w > 0 && h > 0).ok_or(Errno::INVALID);
        let chosen = match (pic_prealloc_method, cuda.as_ref()) {
            (0, _) => Ok(Pictures::None),
            (1, Some(cuda)) => format()
                .and_then(|format| Pool::on_device(format, cuda.context.clone()))
                .map(Pictures::Device),
            (2 | 3, Some(_)) => format().map(Pictures::Host),
            (1..=3, None) => Err(Errno::INVALID),
            _ => {
                log(Level::Error, format_args!("unknown cuda picture preallocation method"));
                return Err(Errno::INVALID);
            }
        };
        let chosen = chosen.inspect_err(|_| {
            log(Level::Error, format_args!("problem during cuda picture preallocation"));
        })?;
        if let Some(cuda) = &mut *cuda {
            cuda.pictures = chosen;
        }
        Ok(())
    })
}

/// Makes a picture as chosen with [`vmaf_cuda_preallocate_pictures`].
///
/// # Safety
///
/// `vmaf` is null or a context, `pic` null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmaf_cuda_fetch_preallocated_picture(
    vmaf: *mut VmafContext,
    pic: *mut VmafPicture,
) -> c_int {
    guarded(|| {
        // SAFETY: promised by the caller.
        let vmaf = unsafe { context(vmaf) }?;
        not_null(pic)?;
        let picture = match vmaf.cuda().as_ref().map(|cuda| &cuda.pictures) {
            Some(Pictures::Device(pool)) => pool.fetch()?,
            Some(Pictures::Host(format)) => picture::allocate(*format)?,
            Some(Pictures::None) | None => return Err(Errno::INVALID),
        };
        // SAFETY: checked, and promised by the caller.
        unsafe { pic.write(picture) };
        Ok(())
    })
}
