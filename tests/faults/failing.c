#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Preloaded into processes: a call that changes what is below the folder FAIL_BELOW fails, or the process is killed in
 * it. The file FAIL_STATE, which all of these processes share, says which call, and is told of it. failing.py has its
 * layout. */
typedef struct {
    int at;    /* the number of the call that fails, from 1; 0: none */
    int error; /* errno; 0: SIGKILL */
    int all;   /* whether each later call fails, too: as of a full disk, the first write is then cut short */
    int calls; /* so many there were */
    int failed;
    char first[500]; /* what failed first */
} State;

static State *state;
static const char *folder;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAIL_STATE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    folder = getenv("FAIL_BELOW");
    if (map != MAP_FAILED && folder) {
        state = map;
    }
}

enum { FINE, FAILS, CUT };

static int fate(const char *call, const char *path)
{
    size_t length = state ? strlen(folder) : 0;
    if (!state || strncmp(path, folder, length) || (path[length] && path[length] != '/')) {
        return FINE;
    }
    int number = __atomic_add_fetch(&state->calls, 1, __ATOMIC_SEQ_CST);
    if (!state->at || number < state->at || (number > state->at && !state->all)) {
        return FINE;
    }
    if (__atomic_fetch_add(&state->failed, 1, __ATOMIC_SEQ_CST) == 0) {
        snprintf(state->first, sizeof state->first, "%s %s", call, path + length);
    }
    errno = state->error;
    return number == state->at && (state->all || !state->error) ? CUT : FAILS;
}

static int fails(const char *call, const char *path)
{
    int saved = errno, found = fate(call, path);
    if (found == FINE) {
        errno = saved;
        return 0;
    }
    if (!state->error) {
        raise(SIGKILL);
    }
    return 1;
}

static int path_of(int file, char *path, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, size - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0;
}

static int fails_at(const char *call, int base, const char *name)
{
    char path[8192];
    if (!state || !name) {
        return 0;
    }
    if (name[0] == '/') {
        return fails(call, name);
    }
    if (base == AT_FDCWD ? !getcwd(path, 4096) : !path_of(base, path, 4096)) {
        return 0;
    }
    size_t length = strlen(path);
    snprintf(path + length, sizeof path - length, "/%s", name);
    return fails(call, path);
}

static int fails_of(const char *call, int file)
{
    char path[4096];
    int saved = errno, found = state && path_of(file, path, sizeof path) && fails(call, path);
    if (!found) {
        errno = saved;
    }
    return found;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) \
    real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* Bytes that may still be written, or -1 if the call fails. */
static ssize_t room(const char *call, int file, size_t size)
{
    char path[4096];
    int saved = errno;
    if (!state || !path_of(file, path, sizeof path)) {
        errno = saved;
        return (ssize_t)size;
    }
    int found = fate(call, path);
    if (found == FINE) {
        errno = saved;
        return (ssize_t)size;
    }
    return found == CUT && (size > 1 || !state->error) ? (ssize_t)(size / 2) : -1;
}

static ssize_t killed_after(ssize_t written, size_t size)
{
    if (written < (ssize_t)size && state && !state->error && state->failed) {
        raise(SIGKILL);
    }
    return written;
}

#define WRITES(name, size, call) \
    REAL(name); \
    ssize_t left = room(#name, file, size); \
    return left < 0 ? -1 : killed_after(call, size)

ssize_t write(int file, const void *data, size_t size) { WRITES(write, size, real(file, data, (size_t)left)); }
ssize_t pwrite(int file, const void *data, size_t size, off_t at) { WRITES(pwrite, size, real(file, data, (size_t)left, at)); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { WRITES(pwrite64, size, real(file, data, (size_t)left, at)); }
ssize_t sendfile(int file, int from, off_t *at, size_t size) { WRITES(sendfile, size, real(file, from, at, (size_t)left)); }
ssize_t sendfile64(int file, int from, off64_t *at, size_t size) { WRITES(sendfile64, size, real(file, from, at, (size_t)left)); }
ssize_t copy_file_range(int from, off64_t *from_at, int file, off64_t *at, size_t size, unsigned flags)
{
    WRITES(copy_file_range, size, real(from, from_at, file, at, (size_t)left, flags));
}

#define FAILS_OF(name, value, ...) \
    REAL(name); \
    return fails_of(#name, file) ? (value) : real(__VA_ARGS__)
#define FAILS_AT(name, base, path, ...) \
    REAL(name); \
    return fails_at(#name, base, path) ? -1 : real(__VA_ARGS__)

ssize_t writev(int file, const struct iovec *parts, int count) { FAILS_OF(writev, -1, file, parts, count); }
ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) { FAILS_OF(pwritev, -1, file, parts, count, at); }
int fsync(int file) { FAILS_OF(fsync, -1, file); }
int fdatasync(int file) { FAILS_OF(fdatasync, -1, file); }
int ftruncate(int file, off_t size) { FAILS_OF(ftruncate, -1, file, size); }
int ftruncate64(int file, off64_t size) { FAILS_OF(ftruncate64, -1, file, size); }
int posix_fallocate(int file, off_t at, off_t size) { FAILS_OF(posix_fallocate, state->error, file, at, size); }
int posix_fallocate64(int file, off64_t at, off64_t size) { FAILS_OF(posix_fallocate64, state->error, file, at, size); }
int fchmod(int file, mode_t mode) { FAILS_OF(fchmod, -1, file, mode); }
int chmod(const char *path, mode_t mode) { FAILS_AT(chmod, AT_FDCWD, path, path, mode); }
int mkdir(const char *path, mode_t mode) { FAILS_AT(mkdir, AT_FDCWD, path, path, mode); }
int rename(const char *from, const char *to) { FAILS_AT(rename, AT_FDCWD, to, from, to); }
int renameat(int base, const char *from, int other, const char *to) { FAILS_AT(renameat, other, to, base, from, other, to); }
int renameat2(int base, const char *from, int other, const char *to, unsigned flags) { FAILS_AT(renameat2, other, to, base, from, other, to, flags); }
int link(const char *from, const char *to) { FAILS_AT(link, AT_FDCWD, to, from, to); }
int linkat(int base, const char *from, int other, const char *to, int flags) { FAILS_AT(linkat, other, to, base, from, other, to, flags); }

/* The file is closed all the same: so does Linux. */
int close(int file)
{
    REAL(close);
    int saved = errno, flags = state ? fcntl(file, F_GETFL) : -1;
    errno = saved;
    int failed = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && fails_of("close", file), error = errno;
    int closed = real(file);
    if (failed) {
        errno = error;
    }
    return failed ? -1 : closed;
}

#define OPENS(name, base, path, ...) \
    va_list rest; \
    va_start(rest, flags); \
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest); \
    REAL(name); \
    return ((flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT) && fails_at(#name, base, path) ? -1 : real(__VA_ARGS__)

int open(const char *path, int flags, ...) { OPENS(open, AT_FDCWD, path, path, flags, mode); }
int open64(const char *path, int flags, ...) { OPENS(open64, AT_FDCWD, path, path, flags, mode); }
int openat(int base, const char *path, int flags, ...) { OPENS(openat, base, path, base, path, flags, mode); }
int openat64(int base, const char *path, int flags, ...) { OPENS(openat64, base, path, base, path, flags, mode); }

#define FOPENS(name) \
    REAL(name); \
    return strpbrk(mode, "wa+") && fails_at(#name, AT_FDCWD, path) ? NULL : real(path, mode)

FILE *fopen(const char *path, const char *mode) { FOPENS(fopen); }
FILE *fopen64(const char *path, const char *mode) { FOPENS(fopen64); }
