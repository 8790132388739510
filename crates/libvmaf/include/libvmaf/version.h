/* SPDX-License-Identifier: MPL-2.0 */

/* The version of the interface. */

#ifndef HIPVMAF_LIBVMAF_VERSION_H
#define HIPVMAF_LIBVMAF_VERSION_H

#define VMAF_API_VERSION_MAJOR 3
#define VMAF_API_VERSION_MINOR 2
#define VMAF_API_VERSION_PATCH 0

#endif
