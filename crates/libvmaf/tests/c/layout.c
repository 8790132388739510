/* SPDX-License-Identifier: MPL-2.0 */

/* Sizes and offsets of the structures, on x86-64. Compiled against libvmaf's headers and against ours. */

#include <libvmaf.h>
#include <libvmaf_cuda.h>

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#define AT(type, field, bytes) _Static_assert(offsetof(type, field) == (bytes), #type "." #field)

SIZE(VmafPicture, 96);
AT(VmafPicture, pix_fmt, 0);
AT(VmafPicture, bpc, 4);
AT(VmafPicture, w, 8);
AT(VmafPicture, h, 20);
AT(VmafPicture, stride, 32);
AT(VmafPicture, data, 56);
AT(VmafPicture, ref, 80);
AT(VmafPicture, priv, 88);

SIZE(VmafConfiguration, 32);
AT(VmafConfiguration, log_level, 0);
AT(VmafConfiguration, n_threads, 4);
AT(VmafConfiguration, n_subsample, 8);
AT(VmafConfiguration, cpumask, 16);
AT(VmafConfiguration, gpumask, 24);

SIZE(VmafPictureConfiguration, 20);
AT(VmafPictureConfiguration, pic_params.w, 0);
AT(VmafPictureConfiguration, pic_params.h, 4);
AT(VmafPictureConfiguration, pic_params.bpc, 8);
AT(VmafPictureConfiguration, pic_params.pix_fmt, 12);
AT(VmafPictureConfiguration, pic_cnt, 16);

SIZE(VmafModelConfig, 16);
AT(VmafModelConfig, name, 0);
AT(VmafModelConfig, flags, 8);

SIZE(VmafModelCollectionScore, 40);
AT(VmafModelCollectionScore, type, 0);
AT(VmafModelCollectionScore, bootstrap.bagging_score, 8);
AT(VmafModelCollectionScore, bootstrap.stddev, 16);
AT(VmafModelCollectionScore, bootstrap.ci.p95.lo, 24);
AT(VmafModelCollectionScore, bootstrap.ci.p95.hi, 32);

SIZE(VmafCudaConfiguration, 8);
AT(VmafCudaConfiguration, cu_ctx, 0);

SIZE(VmafCudaPictureConfiguration, 20);
AT(VmafCudaPictureConfiguration, pic_params.w, 0);
AT(VmafCudaPictureConfiguration, pic_params.h, 4);
AT(VmafCudaPictureConfiguration, pic_params.bpc, 8);
AT(VmafCudaPictureConfiguration, pic_params.pix_fmt, 12);
AT(VmafCudaPictureConfiguration, pic_prealloc_method, 16);

SIZE(enum VmafPixelFormat, 4);
SIZE(enum VmafLogLevel, 4);
SIZE(enum VmafPoolingMethod, 4);
SIZE(enum VmafOutputFormat, 4);
SIZE(enum VmafModelFlags, 4);
SIZE(enum VmafModelCollectionScoreType, 4);
SIZE(enum VmafCudaPicturePreallocationMethod, 4);

_Static_assert(VMAF_PIX_FMT_YUV420P == 1 && VMAF_PIX_FMT_YUV422P == 2 && VMAF_PIX_FMT_YUV444P == 3 &&
		       VMAF_PIX_FMT_YUV400P == 4,
	       "pixel formats");
_Static_assert(VMAF_LOG_LEVEL_ERROR == 1 && VMAF_LOG_LEVEL_WARNING == 2 && VMAF_LOG_LEVEL_INFO == 3 &&
		       VMAF_LOG_LEVEL_DEBUG == 4,
	       "levels");
_Static_assert(VMAF_POOL_METHOD_MIN == 1 && VMAF_POOL_METHOD_MAX == 2 && VMAF_POOL_METHOD_MEAN == 3 &&
		       VMAF_POOL_METHOD_HARMONIC_MEAN == 4,
	       "ways to pool");
_Static_assert(VMAF_OUTPUT_FORMAT_XML == 1 && VMAF_OUTPUT_FORMAT_JSON == 2 && VMAF_OUTPUT_FORMAT_CSV == 3 &&
		       VMAF_OUTPUT_FORMAT_SUB == 4,
	       "formats");
_Static_assert(VMAF_CUDA_PICTURE_PREALLOCATION_METHOD_NONE == 0 && VMAF_CUDA_PICTURE_PREALLOCATION_METHOD_DEVICE == 1 &&
		       VMAF_CUDA_PICTURE_PREALLOCATION_METHOD_HOST == 2 &&
		       VMAF_CUDA_PICTURE_PREALLOCATION_METHOD_HOST_PINNED == 3,
	       "pictures of CUDA");
_Static_assert(VMAF_MODEL_FLAG_DISABLE_CLIP == 1 && VMAF_MODEL_FLAG_ENABLE_TRANSFORM == 2 &&
		       VMAF_MODEL_FLAG_DISABLE_TRANSFORM == 4,
	       "flags");
