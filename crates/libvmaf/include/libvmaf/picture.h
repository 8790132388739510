/* SPDX-License-Identifier: MPL-2.0 */

/* Pictures. */

#ifndef HIPVMAF_LIBVMAF_PICTURE_H
#define HIPVMAF_LIBVMAF_PICTURE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum VmafPixelFormat {
	VMAF_PIX_FMT_UNKNOWN = 0,
	VMAF_PIX_FMT_YUV420P = 1,
	VMAF_PIX_FMT_YUV422P = 2,
	VMAF_PIX_FMT_YUV444P = 3,
	VMAF_PIX_FMT_YUV400P = 4,
};

typedef struct VmafRef VmafRef;

/* Y, Cb and Cr; samples have one byte, or two in the machine's order where bpc is above 8. */
typedef struct VmafPicture {
	enum VmafPixelFormat pix_fmt;
	unsigned bpc;
	unsigned w[3], h[3];
	ptrdiff_t stride[3]; /* bytes */
	void *data[3];
	VmafRef *ref; /* the library's */
	void *priv;   /* the library's */
} VmafPicture;

/* Makes a picture, all of it zero: 8 to 16 bits, rows aligned to 32 bytes, chroma sizes rounded down. */
int vmaf_picture_alloc(VmafPicture *pic, enum VmafPixelFormat pix_fmt, unsigned bpc, unsigned w, unsigned h);

/* Gives a picture back, and zeroes the structure. */
int vmaf_picture_unref(VmafPicture *pic);

#ifdef __cplusplus
}
#endif

#endif
