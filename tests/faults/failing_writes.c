#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* The n-th write, fsync, rename, link or truncation below a folder fails, and so does each later one if FAIL_ALL is set. */
static int calls, fails = -2, error, all; /* fails: -2 until the environment is read */
static const char *folder;

static int counts(const char *path)
{
    if (fails == -2) {
        const char *at = getenv("FAIL_AT"), *how = getenv("FAIL_HOW");
        folder = getenv("FAIL_BELOW");
        error = how && !strcmp(how, "EIO") ? EIO : ENOSPC;
        all = getenv("FAIL_ALL") != NULL;
        fails = at && folder ? atoi(at) : -1;
    }
    if (fails < 0 || strncmp(path, folder, strlen(folder))) {
        return 0;
    }
    calls++;
    if (calls == fails || (all && calls > fails)) {
        errno = error;
        return 1;
    }
    return 0;
}

static int counts_file(int file)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) {
        return 0;
    }
    path[length] = 0;
    return counts(path);
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

ssize_t write(int file, const void *data, size_t size) { REAL(write); return counts_file(file) ? -1 : real(file, data, size); }
ssize_t pwrite(int file, const void *data, size_t size, off_t at) { REAL(pwrite); return counts_file(file) ? -1 : real(file, data, size, at); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { REAL(pwrite64); return counts_file(file) ? -1 : real(file, data, size, at); }
ssize_t writev(int file, const struct iovec *parts, int count) { REAL(writev); return counts_file(file) ? -1 : real(file, parts, count); }
int fsync(int file) { REAL(fsync); return counts_file(file) ? -1 : real(file); }
int ftruncate(int file, off_t size) { REAL(ftruncate); return counts_file(file) ? -1 : real(file, size); }
int ftruncate64(int file, off64_t size) { REAL(ftruncate64); return counts_file(file) ? -1 : real(file, size); }
int rename(const char *from, const char *to) { REAL(rename); return counts(to) ? -1 : real(from, to); }
int link(const char *from, const char *to) { REAL(link); return counts(to) ? -1 : real(from, to); }
