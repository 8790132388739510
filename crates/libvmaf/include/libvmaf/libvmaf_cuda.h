/* SPDX-License-Identifier: MPL-2.0 */

/*
 * Pictures in a CUDA context of the caller. Without NVIDIA's driver the functions that need it return -EINVAL.
 *
 * A context is current for a thread only during a call. Work of the context that is in flight when a pair is read is waited for.
 */

#ifndef HIPVMAF_LIBVMAF_LIBVMAF_CUDA_H
#define HIPVMAF_LIBVMAF_LIBVMAF_CUDA_H

#include "libvmaf/libvmaf.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A CUDA context; needs no end. */
typedef struct VmafCudaState VmafCudaState;

typedef struct VmafCudaConfiguration {
	void *cu_ctx; /* a CUcontext, which outlives all that uses it; null for the primary context of the first GPU */
} VmafCudaConfiguration;

int vmaf_cuda_state_init(VmafCudaState **cu_state, VmafCudaConfiguration cfg);

/* Computes the pairs that follow on the GPU of that context, unless gpumask forbids it. */
int vmaf_cuda_import_state(VmafContext *vmaf, VmafCudaState *cu_state);

enum VmafCudaPicturePreallocationMethod {
	VMAF_CUDA_PICTURE_PREALLOCATION_METHOD_NONE = 0,
	VMAF_CUDA_PICTURE_PREALLOCATION_METHOD_DEVICE,
	VMAF_CUDA_PICTURE_PREALLOCATION_METHOD_HOST,
	VMAF_CUDA_PICTURE_PREALLOCATION_METHOD_HOST_PINNED,
};

typedef struct VmafCudaPictureConfiguration {
	struct {
		unsigned w, h;
		unsigned bpc;
		enum VmafPixelFormat pix_fmt;
	} pic_params;
	enum VmafCudaPicturePreallocationMethod pic_prealloc_method;
} VmafCudaPictureConfiguration;

/* Chooses the pictures that are fetched; needs an imported state. */
int vmaf_cuda_preallocate_pictures(VmafContext *vmaf, VmafCudaPictureConfiguration cfg);

/* Makes a picture. That of DEVICE has its planes at addresses of the GPU, all zero at first. */
int vmaf_cuda_fetch_preallocated_picture(VmafContext *vmaf, VmafPicture *pic);

#ifdef __cplusplus
}
#endif

#endif
