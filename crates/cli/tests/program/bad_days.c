// SPDX-License-Identifier: MPL-2.0

// Preloaded into the program by bad_days.rs: the disk is full, and the clock is five minutes behind, as long as the files exist that
// the environment names.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int exists(const char *variable) {
    const char *path = getenv(variable);
    return path && access(path, F_OK) == 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int (*next)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(clock, time);
    if (clock == CLOCK_REALTIME && exists("CLOCK_IS_BACK")) time->tv_sec -= 300;
    return result;
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) {
    ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    if (!exists("DISK_IS_FULL")) return next(file, data, size, offset);
    errno = ENOSPC;
    return -1;
}

int ftruncate64(int file, off64_t size) {
    int (*next)(int, off64_t) = dlsym(RTLD_NEXT, "ftruncate64");
    if (!exists("DISK_IS_FULL")) return next(file, size);
    errno = ENOSPC;
    return -1;
}
