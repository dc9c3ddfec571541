/* Records a CUDA program through CUPTI and without Python: device ops, and driver calls with their Python stacks.

   libcupti is loaded at run time, and the functions used are declared here, so that building needs no CUDA.

   Device ops are activity records, which CUPTI writes. Its buffers are chunks of a file mapped into memory, so the
   records of a killed process are kept. A chunk is zeroed, and no record has kind 0, so each chunk ends at its first 0
   and the file needs no index. layouts.py has the layouts of records; here only their sizes are compared with those
   that libcupti uses.

   Kernel names are pointers into libcupti. When one is first seen, it is written to a second file, demangled:
   the pointer (8 bytes), the length (4 bytes), the text.

   Calls are our own records (Call), in chunks of a third file. A callback writes them, which CUPTI calls around each
   selected driver call. Runtime calls make driver calls, so these suffice. They also have the awaited stream or event.
   Measured on an H200: CUPTI's activity records of calls have three times the overhead of these callbacks; those of
   waits and events slow down all launches by a fifth. After use, CUPTI slows down every call by 5 % to 30 % until it is
   finalized. */

#include "_callbacks.h"

#include "../lines/_clock.h"

#if !defined(__linux__) || UINTPTR_MAX != UINT64_MAX
#error "CUPTI is there for Linux on 64-bit machines alone"
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* cupti_activity.h and cupti_callbacks.h, the same from CUDA 11.7 to 13.5. */
enum { SUCCESS = 0, MOST_KINDS = 64, CONCURRENT_KERNEL = 10, KERNEL_NAME = 104, ZEROED_BUFFERS = 5 };

static Callbacks cupti;

/* What is needed besides, for activity records. */
static struct {
    int (*GetVersion)(uint32_t *);
    int (*ActivitySetAttribute)(int, size_t *, void *);
    int (*ActivityRegisterTimestampCallback)(uint64_t (*)(void));
    int (*ActivityRegisterCallbacks)(void (*)(uint8_t **, size_t *, size_t *),
                                     void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
    int (*ActivityEnable)(int);
    int (*ActivityDisable)(int);
    int (*ActivityGetNextRecord)(uint8_t *, size_t, void **);
    int (*ActivityGetNumDroppedRecords)(void *, uint32_t, size_t *);
    int (*ActivityFlushAll)(uint32_t);
    int (*GetStreamIdEx)(void *, void *, uint8_t, uint32_t *);
} activity;

static const Symbol symbols[] = {
    CALLBACKS_SYMBOLS(cupti),
    {"cuptiGetVersion", &activity.GetVersion},
    {"cuptiActivitySetAttribute", &activity.ActivitySetAttribute},
    {"cuptiActivityRegisterTimestampCallback", &activity.ActivityRegisterTimestampCallback},
    {"cuptiActivityRegisterCallbacks", &activity.ActivityRegisterCallbacks},
    {"cuptiActivityEnable", &activity.ActivityEnable},
    {"cuptiActivityDisable", &activity.ActivityDisable},
    {"cuptiActivityGetNextRecord", &activity.ActivityGetNextRecord},
    {"cuptiActivityGetNumDroppedRecords", &activity.ActivityGetNumDroppedRecords},
    {"cuptiActivityFlushAll", &activity.ActivityFlushAll},
    {"cuptiGetStreamIdEx", &activity.GetStreamIdEx},
};

typedef struct {
    int file;
    uint8_t *map;
    size_t map_bytes, chunk_bytes, most_bytes, reserved_bytes, handed_out;
} Spill; /* a file of chunks, mapped into memory */

typedef struct {
    uint64_t start; /* CLOCK_MONOTONIC, ns; written last: 0 means that there is no call here yet */
    uint64_t end;
    uint32_t what;       /* the driver's callback id, or SPAN + the number of a watched function */
    uint32_t correlation;
    uint32_t thread; /* the system's id */
    int32_t stack;
    uint64_t event;   /* the handle of the event that is recorded or waited for, or 0 */
    uint32_t stream;  /* CUPTI's id of the stream of a record, a wait or a query, or NO_STREAM */
    uint32_t context; /* CUPTI's id */
    uint64_t spare[2];
} Call; /* as long as a cache line */

_Static_assert(sizeof(Call) == 64, "decode.py reads calls of 64 bytes");

enum { NO_STREAM = UINT32_MAX };

/* Which parameters of a call are kept, in their order in cuda.h since CUDA 4.0. */
enum { OF_STREAM = 1, OF_EVENT, OF_EVENT_STREAM, OF_STREAM_EVENT };
enum { LEGACY, PER_THREAD }; /* the meaning of stream 0: PER_THREAD for calls in _ptsz */

static const struct {
    uint32_t id;
    int parameters;
    uint8_t default_stream;
} told_by_parameters[] = {
    {119, OF_EVENT_STREAM, LEGACY}, {441, OF_EVENT_STREAM, PER_THREAD}, /* cuEventRecord */
    {587, OF_EVENT_STREAM, LEGACY}, {588, OF_EVENT_STREAM, PER_THREAD}, /* cuEventRecordWithFlags */
    {295, OF_STREAM_EVENT, LEGACY}, {436, OF_STREAM_EVENT, PER_THREAD}, /* cuStreamWaitEvent */
    {120, OF_EVENT, LEGACY},        {121, OF_EVENT, LEGACY},            /* cuEventQuery, cuEventSynchronize */
    {125, OF_STREAM, LEGACY},       {439, OF_STREAM, PER_THREAD},       /* cuStreamQuery */
    {126, OF_STREAM, LEGACY},       {440, OF_STREAM, PER_THREAD},       /* cuStreamSynchronize */
};

enum { SPAN = 1 << 30, MOST_WATCHED = 32, MOST_OPEN = 16, CALLS_CHUNK = 64 << 10 };

/* Shared by libcupti's threads and the program's. Changed under the lock, or while nothing is recorded. */
static struct {
    pthread_mutex_t lock;
    _Atomic uint64_t recording; /* number of the start(), from 1, which thread-local state belongs to; 0: none */
    Spill records, calls;
    int names_file;
    uint32_t size_of[MOST_KINDS];
    uint64_t record_count, dropped, refused;
    uint32_t strange_kind, strange_size; /* the first record whose size is not the expected one */
    const char **names;
    size_t name_count, name_room;
    char *(*demangle)(const char *, char *, size_t *, int *);
    PyObject *watched[MOST_WATCHED]; /* functions whose calls are spans */
    int watched_count;
    PyObject *disable; /* sys.monitoring.DISABLE */
} spill = {.lock = PTHREAD_MUTEX_INITIALIZER, .records.file = -1, .calls.file = -1, .names_file = -1};

static __thread struct {
    uint64_t epoch;
    Call *next, *end; /* of its chunk */
    uint32_t thread;
    int depth; /* of calls within calls: only the outermost counts */
    Call now;  /* the outermost call under way */
    Call open[MOST_OPEN]; /* spans that have begun */
    int open_count;
} mine;

static void *subscriber;
static int recorded; /* between start() and stop(), which never run concurrently; under the GIL */
static uint64_t epoch;            /* the last start()'s */
static _Atomic int within;        /* threads in a callback: while there are any, maps and known code are kept */
static _Atomic int detach_wanted; /* the thread that sets it to 0 finalizes CUPTI, so it happens once */

/* Allocates disk blocks for the next bytes, so that writing through the map cannot fail: a full disk would otherwise
   raise SIGBUS. Returns 0 or an errno. After a failure it does not try again: that would take longer than recording. */
static int
reserve(Spill *to, size_t bytes)
{
    int error = to->reserved_bytes + bytes > to->most_bytes ? ENOSPC : EINTR;
    while (error == EINTR) {
        error = posix_fallocate(to->file, (off_t)to->reserved_bytes, (off_t)bytes);
    }
    if (error) {
        (void)!ftruncate(to->file, (off_t)to->reserved_bytes); /* some may have been allocated */
        to->most_bytes = to->reserved_bytes;
        return error;
    }
    madvise(to->map + to->reserved_bytes, bytes, MADV_POPULATE_WRITE);
    to->reserved_bytes += bytes;
    return 0;
}

/* Returns NULL if there is no room. */
static uint8_t *
next_chunk(Spill *from)
{
    uint8_t *chunk = NULL;
    pthread_mutex_lock(&spill.lock);
    int is_there = from->handed_out + from->chunk_bytes <= from->reserved_bytes;
    if (spill.recording && (is_there || !reserve(from, from->chunk_bytes))) {
        chunk = from->map + from->handed_out;
        from->handed_out += from->chunk_bytes;
    }
    else {
        spill.refused++;
    }
    pthread_mutex_unlock(&spill.lock);
    return chunk;
}

static void
buffer_requested(uint8_t **buffer, size_t *size, size_t *most_records)
{
    *buffer = next_chunk(&spill.records);
    *size = *buffer ? spill.records.chunk_bytes : 0;
    *most_records = 0;
}

/* Returns whether a recording is active; if so, thread-local state then belongs to it. */
static int
recording_here(void)
{
    uint64_t recording = spill.recording;
    if (recording && mine.epoch != recording) {
        memset(&mine, 0, sizeof mine);
        mine.epoch = recording;
        mine.thread = (uint32_t)syscall(SYS_gettid);
    }
    return recording != 0;
}

static void
write_call(const Call *call)
{
    if (mine.next == mine.end) {
        mine.next = (Call *)next_chunk(&spill.calls);
        mine.end = mine.next ? mine.next + CALLS_CHUNK / sizeof *call : NULL;
        if (!mine.next) {
            return;
        }
    }
    Call *row = mine.next++;
    memcpy(&row->end, &call->end, sizeof *call - offsetof(Call, end));
    __atomic_store_n(&row->start, call->start, __ATOMIC_RELEASE);
}

static void
add_parameters(Call *call, const CallbackData *data)
{
    for (size_t i = 0; i < sizeof told_by_parameters / sizeof *told_by_parameters; i++) {
        if (told_by_parameters[i].id != call->what) {
            continue;
        }
        void *const *parameters = data->parameters;
        int which = told_by_parameters[i].parameters;
        if (which != OF_STREAM) {
            call->event = (uint64_t)(uintptr_t)parameters[which == OF_STREAM_EVENT];
        }
        if (which != OF_EVENT) {
            void *stream = parameters[which == OF_EVENT_STREAM];
            uint8_t default_stream = told_by_parameters[i].default_stream;
            if (activity.GetStreamIdEx(data->context, stream, default_stream, &call->stream) != SUCCESS) {
                call->stream = NO_STREAM;
            }
        }
    }
}

static void
finalize_once(void)
{
    if (atomic_exchange(&detach_wanted, 0)) {
        cupti.Finalize();
    }
}

static void
begin(Call *call, uint32_t what, const CallbackData *data)
{
    uint64_t start = now(); /* before the stack is read, so that the call includes that time */
    *call = (Call){.start = start, .what = what, .thread = mine.thread, .stack = frames_here(), .stream = NO_STREAM,
                   .correlation = data ? data->correlation : 0, .context = data ? data->context_id : 0};
}

static void
follow(uint32_t id, const CallbackData *data)
{
    if (data->site == ENTER) {
        if (mine.depth++ == 0) {
            begin(&mine.now, id, data);
            add_parameters(&mine.now, data);
        }
    }
    else if (mine.depth && --mine.depth == 0) {
        mine.now.end = now();
        write_call(&mine.now);
    }
}

static void
around_call(void *nothing, int domain, uint32_t id, const CallbackData *data)
{
    (void)nothing, (void)domain;
    within++; /* before `recording` is read: stop() first clears that, then reads this */
    if (data->site != ENTER && detach_wanted) {
        finalize_once(); /* at the end of a call, where it is safe for threads inside other calls */
    }
    else if (recording_here()) {
        follow(id, data);
    }
    within--;
}

static size_t
place_of_name(const char *name)
{
    size_t at = frames_hash(name) & (spill.name_room - 1);
    while (spill.names[at] && spill.names[at] != name) {
        at = (at + 1) & (spill.name_room - 1);
    }
    return at;
}

static int
grow_names(void)
{
    size_t room = spill.name_room, wider = room ? 2 * room : 1024;
    const char **old = spill.names, **names = calloc(wider, sizeof *names);
    if (!names) {
        return -1;
    }
    spill.names = names;
    spill.name_room = wider;
    for (size_t i = 0; i < room; i++) {
        if (old[i]) {
            spill.names[place_of_name(old[i])] = old[i];
        }
    }
    free(old);
    return 0;
}

enum { LONGEST_NAME = 1 << 16 };

static void
keep_name(const char *name)
{
    if (!name || spill.names_file < 0 || (4 * spill.name_count >= 3 * spill.name_room && grow_names())) {
        return;
    }
    size_t at = place_of_name(name);
    if (spill.names[at]) {
        return;
    }
    spill.names[at] = name;
    spill.name_count++;
    int status = -1;
    char *readable = spill.demangle ? spill.demangle(name, NULL, NULL, &status) : NULL;
    const char *text = status == 0 && readable ? readable : name;
    uint32_t length = (uint32_t)strnlen(text, LONGEST_NAME);
    static uint8_t entry[12 + LONGEST_NAME]; /* static, because threads may have small stacks; the lock is held */
    uint64_t pointer = (uint64_t)(uintptr_t)name;
    memcpy(entry, &pointer, 8);
    memcpy(entry + 8, &length, 4);
    memcpy(entry + 12, text, length);
    free(readable);
    if (write(spill.names_file, entry, 12 + length) != (ssize_t)(12 + length)) {
        close(spill.names_file); /* the disk is full, and the reader stops at a truncated name */
        spill.names_file = -1;
    }
}

static void
buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)size;
    pthread_mutex_lock(&spill.lock);
    if (!spill.recording || !buffer) {
        pthread_mutex_unlock(&spill.lock);
        return;
    }
    uint8_t *record = NULL, *before = NULL;
    uint32_t kind = 0;
    while (valid && activity.ActivityGetNextRecord(buffer, valid, (void **)&record) == SUCCESS && record) {
        if (before && !spill.strange_kind && kind < MOST_KINDS && (uint32_t)(record - before) != spill.size_of[kind]) {
            spill.strange_kind = kind;
            spill.strange_size = (uint32_t)(record - before);
        }
        memcpy(&kind, record, sizeof kind);
        if (kind == CONCURRENT_KERNEL) {
            const char *name;
            memcpy(&name, record + KERNEL_NAME, sizeof name);
            keep_name(name);
        }
        spill.record_count++;
        before = record;
    }
    size_t dropped = 0;
    if (activity.ActivityGetNumDroppedRecords(context, stream, &dropped) == SUCCESS) {
        spill.dropped += dropped;
    }
    pthread_mutex_unlock(&spill.lock);
}

static int
need_library(void)
{
    if (cupti.library) {
        return 0;
    }
    PyErr_SetString(PyExc_RuntimeError, "libcupti is not loaded: call load() first");
    return -1;
}

PyDoc_STRVAR(load_doc, "load(path) -> int\n\nLoad libcupti, and return the version of its API. Raises OSError.");

static PyObject *
load(PyObject *self, PyObject *argument)
{
    (void)self;
    PyObject *path = NULL;
    if (!cupti.library) {
        if (!PyUnicode_FSConverter(argument, &path)) {
            return NULL;
        }
        cupti.library = load_library(PyBytes_AsString(path), symbols, sizeof symbols / sizeof *symbols);
        Py_DECREF(path);
        if (!cupti.library) {
            return NULL;
        }
    }
    uint32_t version = 0;
    if (check_result(&cupti, activity.GetVersion(&version), "cuptiGetVersion")) {
        return NULL;
    }
    return PyLong_FromUnsignedLong(version);
}

PyDoc_STRVAR(subscribe_doc,
"subscribe() -> None\n\nBecome the one client of CUPTI. Raises RuntimeError where there is another.");

static PyObject *
subscribe(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    if (need_library() ||
        (!subscriber && check_result(&cupti, cupti.Subscribe(&subscriber, around_call, NULL), "cuptiSubscribe"))) {
        subscriber = NULL;
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(unsubscribe_doc,
"unsubscribe() -> None\n\nMake room for another client. Raises RuntimeError while CUPTI records: stop() does the same then.");

static PyObject *
unsubscribe(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    if (spill.recording) {
        PyErr_SetString(PyExc_RuntimeError, "CUPTI is recording");
        return NULL;
    }
    if (subscriber) {
        cupti.Unsubscribe(subscriber);
        subscriber = NULL;
    }
    Py_RETURN_NONE;
}

enum { FILES = 3 };

static int *const files[FILES] = {&spill.records.file, &spill.calls.file, &spill.names_file};

/* The maps are kept until the next recording: a late record must find its chunk. */
static void
close_spill(void)
{
    pthread_mutex_lock(&spill.lock);
    spill.recording = 0;
    for (int i = 0; i < FILES; i++) {
        if (*files[i] >= 0) {
            close(*files[i]);
            *files[i] = -1;
        }
    }
    free(spill.names);
    spill.names = NULL;
    spill.name_count = spill.name_room = 0;
    pthread_mutex_unlock(&spill.lock);
}

/* Threads are in our callbacks for microseconds, or longer if CUPTI is finalized in one. */
static void
wait_for_callbacks(void)
{
    for (int tries = 0; within && tries < 1000; tries++) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

/* Returns a file descriptor, or -1 with an exception. */
static int
create(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) {
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    }
    return file;
}

static int
open_file(Spill *to, const char *path, size_t chunk, size_t first, size_t most)
{
    if (to->map) {
        munmap(to->map, to->map_bytes);
    }
    *to = (Spill){.file = create(path), .chunk_bytes = chunk};
    if (to->file < 0) {
        return -1;
    }
    size_t bytes = most / chunk * chunk;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, to->file, 0);
    int error = map == MAP_FAILED ? errno : 0;
    if (!error) {
        to->map = map;
        to->map_bytes = to->most_bytes = bytes;
        error = reserve(to, first / chunk * chunk);
    }
    if (error) {
        errno = error;
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
        return -1;
    }
    return 0;
}

/* After a failure: removes the files that were created. */
static void
discard_spill(const char *const paths[FILES])
{
    for (int i = 0; i < FILES; i++) {
        if (*files[i] >= 0) {
            unlink(paths[i]);
        }
    }
    close_spill();
}

static int
open_spill(const char *const paths[FILES], size_t chunk, size_t first, size_t most)
{
    spill.record_count = spill.dropped = spill.refused = 0;
    spill.strange_kind = spill.strange_size = 0;
    if (!spill.demangle) {
        void *standard = dlopen("libstdc++.so.6", RTLD_LAZY);
        void *demangle = standard ? dlsym(standard, "__cxa_demangle") : NULL;
        memcpy(&spill.demangle, &demangle, sizeof demangle);
    }
    size_t first_calls = first / 4 > CALLS_CHUNK ? first / 4 : CALLS_CHUNK;
    if (open_file(&spill.records, paths[0], chunk, first, most) ||
        open_file(&spill.calls, paths[1], CALLS_CHUNK, first_calls, most / 4 + first_calls) ||
        (spill.names_file = create(paths[2])) < 0) {
        discard_spill(paths);
        return -1;
    }
    if (grow_names()) {
        PyErr_NoMemory();
        discard_spill(paths);
        return -1;
    }
    spill.recording = ++epoch;
    return 0;
}

/* Passes each number of a sequence to `use`. Returns -1 with an exception if an item is not a valid number. */
static int
each(PyObject *numbers, int (*use)(uint32_t))
{
    Py_ssize_t count = PySequence_Size(numbers);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(numbers, i);
        unsigned long number = item ? PyLong_AsUnsignedLong(item) : 0;
        Py_XDECREF(item);
        if (PyErr_Occurred() || use((uint32_t)number)) {
            return -1;
        }
    }
    return count < 0 ? -1 : 0;
}

static struct {
    uint32_t kinds[MOST_KINDS];
    int count;
} enabled;

static int
enable_kind(uint32_t kind)
{
    if (check_result(&cupti, activity.ActivityEnable((int)kind), "cuptiActivityEnable")) {
        return -1;
    }
    if (enabled.count < MOST_KINDS) {
        enabled.kinds[enabled.count++] = kind;
    }
    return 0;
}

static void
disable_kinds(void)
{
    while (enabled.count) {
        activity.ActivityDisable((int)enabled.kinds[--enabled.count]);
    }
}

static int
enable_call(uint32_t id)
{
    cupti.EnableCallback(1, subscriber, DRIVER_API, id); /* fails for calls that this driver does not have */
    return 0;
}

/* Restores the process to its state before CUPTI, at the end of a call of our own. That call must not wait, because the
   device may never be done, and must be allowed during graph capture. */
static void
detach(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    int (*get_current)(void **) = NULL;
    void *found = driver ? dlsym(driver, "cuCtxGetCurrent") : NULL, *context;
    memcpy(&get_current, &found, sizeof get_current);
    cupti.EnableCallback(1, subscriber, DRIVER_API, CTX_GET_CURRENT);
    detach_wanted = 1;
    if (get_current) {
        get_current(&context);
    }
    finalize_once(); /* if there was no callback, as without CUDA */
    if (driver) {
        dlclose(driver);
    }
    subscriber = NULL;
}

/* CUPTI delivers records at its own discretion, or on request. This thread requests them regularly, so that a killed
   process leaves its records. */
static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t end;
    int running;
    unsigned period_ms;
} flusher = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *
keep_flushing(void *nothing)
{
    pthread_mutex_lock(&flusher.lock);
    while (flusher.running) {
        uint64_t wake = now() + 1000000ull * flusher.period_ms;
        struct timespec until = {(time_t)(wake / 1000000000u), (long)(wake % 1000000000u)};
        if (pthread_cond_timedwait(&flusher.end, &flusher.lock, &until) == ETIMEDOUT && flusher.running) {
            pthread_mutex_unlock(&flusher.lock);
            activity.ActivityFlushAll(0);
            pthread_mutex_lock(&flusher.lock);
        }
    }
    pthread_mutex_unlock(&flusher.lock);
    return nothing;
}

static void
start_flusher(unsigned period_ms)
{
    /* Signals must go to the program's threads: handled here, they would not interrupt a thread that waits. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&flusher.end, &monotonic);
    pthread_condattr_destroy(&monotonic);
    flusher.period_ms = period_ms;
    flusher.running = 1;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&flusher.thread, NULL, keep_flushing, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        flusher.running = 0; /* without the thread, records are delivered when recording stops */
        pthread_cond_destroy(&flusher.end);
    }
}

static void
stop_flusher(void)
{
    pthread_mutex_lock(&flusher.lock);
    int was_running = flusher.running;
    flusher.running = 0;
    if (was_running) {
        pthread_cond_signal(&flusher.end);
    }
    pthread_mutex_unlock(&flusher.lock);
    if (was_running) {
        pthread_join(flusher.thread, NULL);
        pthread_cond_destroy(&flusher.end);
    }
}

/* In a forked child CUDA does not work, but callbacks may still come, and the files are the parent's. Threads that no
   longer exist may have held locks. */
static void
forked(void)
{
    spill.recording = 0;
    within = detach_wanted = recorded = 0;
    flusher.running = 0;
    subscriber = NULL;
    pthread_mutex_init(&spill.lock, NULL);
    pthread_mutex_init(&flusher.lock, NULL);
    frames_forked();
}

/* Not done when loading, because reading a recording loads this too. libcupti and the driver registered their exit
   handlers earlier, so these run after the flusher's end. */
static int
watch_process(void)
{
    static int watched;
    if (!watched && (pthread_atfork(NULL, NULL, forked) || atexit(stop_flusher))) {
        PyErr_SetString(PyExc_RuntimeError, "the process's fork and exit cannot be watched");
        return -1;
    }
    watched = 1;
    return 0;
}

PyDoc_STRVAR(start_doc,
"start(records, names, calls, kinds, driver_calls, sizes, chunk_bytes, first_bytes, most_bytes, flush_ms)\n\n"
"Record activities of these kinds, and calls of the driver with these callback ids, into three new files. `sizes` has the\n"
"size of a record in bytes by kind, MOST_KINDS of them. Of the file of records `first_bytes` are reserved now, in chunks;\n"
"when `most_bytes` are full the rest is dropped and counted. What is done is flushed every `flush_ms` milliseconds, if not\n"
"0. Raises OSError, or RuntimeError with CUPTI's reason. subscribe() comes first.");

/* CUPTI's part of start(). After a failure nothing is enabled, and CUPTI holds no chunk. */
static int
enable(PyObject *kinds, PyObject *wanted)
{
    uint8_t yes = 1;
    size_t yes_bytes = sizeof yes;
    activity.ActivitySetAttribute(ZEROED_BUFFERS, &yes_bytes, &yes);
    if (check_result(&cupti, activity.ActivityRegisterTimestampCallback(now),
                     "cuptiActivityRegisterTimestampCallback") ||
        check_result(&cupti, activity.ActivityRegisterCallbacks(buffer_requested, buffer_completed),
                     "cuptiActivityRegisterCallbacks") ||
        each(kinds, enable_kind) || each(wanted, enable_call)) {
        disable_kinds();
        activity.ActivityFlushAll(1);
        return -1;
    }
    return 0;
}

static PyObject *
start(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *path_of[FILES] = {NULL}, *kinds, *wanted;
    const char *sizes, *paths[FILES];
    Py_ssize_t sizes_bytes;
    unsigned long long chunk, first, most;
    unsigned flush_ms;
    if (!PyArg_ParseTuple(arguments, "O&O&O&OOy#KKKI", PyUnicode_FSConverter, &path_of[0], PyUnicode_FSConverter, &path_of[2],
                          PyUnicode_FSConverter, &path_of[1], &kinds, &wanted, &sizes, &sizes_bytes, &chunk, &first, &most,
                          &flush_ms)) {
        return NULL;
    }
    for (int i = 0; i < FILES; i++) {
        paths[i] = PyBytes_AsString(path_of[i]);
    }
    const char *why = spill.recording ? "CUPTI is recording already"
                      : !subscriber   ? "subscribe() comes first"
                      : within        ? "a thread is still within the last recording"
                                      : NULL;
    int failed = -1;
    if (why) {
        PyErr_SetString(PyExc_RuntimeError, why);
    }
    else if (sizes_bytes != (Py_ssize_t)sizeof spill.size_of || chunk < 4096 || chunk % 4096 || first < chunk ||
             most < first) {
        PyErr_SetString(PyExc_ValueError, "sizes, chunk_bytes, first_bytes or most_bytes are not what they should be");
    }
    else {
        memcpy(spill.size_of, sizes, sizeof spill.size_of);
        failed = watch_process() || open_spill(paths, chunk, first, most);
        if (!failed && (failed = enable(kinds, wanted))) {
            discard_spill(paths);
        }
    }
    for (int i = 0; i < FILES; i++) {
        Py_DECREF(path_of[i]);
    }
    if (failed) {
        return NULL;
    }
    recorded = 1;
    if (flush_ms) {
        start_flusher(flush_ms);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(flush_doc,
"flush() -> None\n\nHave CUPTI complete its buffers, as far as the device is done with what they tell of.\n"
"Nothing where it does not record.");

static PyObject *
flush(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    if (!recorded) { /* any call to CUPTI would reactivate it */
        Py_RETURN_NONE;
    }
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = activity.ActivityFlushAll(0);
    Py_END_ALLOW_THREADS
    if (check_result(&cupti, result, "cuptiActivityFlushAll")) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(stop_doc,
"stop() -> dict\n\nRecord no more, close the files, and detach CUPTI from the process. The counts of records, of those\n"
"dropped, and of buffers refused for want of room; \"strange\" is the (kind, size) of the first record that is not as long\n"
"as it should be, or None.");

static PyObject *
stop(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    if (!recorded) {
        PyErr_SetString(PyExc_RuntimeError, "CUPTI is not recording");
        return NULL;
    }
    recorded = 0;
    Py_BEGIN_ALLOW_THREADS
    stop_flusher();
    disable_kinds();
    activity.ActivityFlushAll(1); /* forced: chunks must not be written to after they are unmapped */
    detach();
    close_spill();
    wait_for_callbacks();
    Py_END_ALLOW_THREADS
    PyObject *strange = spill.strange_kind ? Py_BuildValue("(II)", spill.strange_kind, spill.strange_size)
                                           : Py_NewRef(Py_None);
    return strange ? Py_BuildValue("{s:K,s:K,s:K,s:N}", "records", (unsigned long long)spill.record_count, "dropped",
                                   (unsigned long long)spill.dropped, "refused", (unsigned long long)spill.refused,
                                   "strange", strange)
                   : NULL;
}

PyDoc_STRVAR(know_doc,
"know(codes, watched, disable) -> None\n\nForget all code known before; know the stacks of calls by these code objects, a\n"
"list, and by those that `py_start` is told of. Calls of the watched functions, by their code, are spans. `disable`\n"
"is sys.monitoring.DISABLE, or None.");

static PyObject *
know(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *known, *watched, *disable;
    if (!PyArg_ParseTuple(arguments, "O!O!O", &PyList_Type, &known, &PyList_Type, &watched, &disable)) {
        return NULL;
    }
    if (spill.recording || within) {
        PyErr_SetString(PyExc_RuntimeError, "CUPTI is recording");
        return NULL;
    }
    frames_forget();
    while (spill.watched_count) {
        spill.watched_count--; /* not within the macro, which reads its argument twice */
        Py_CLEAR(spill.watched[spill.watched_count]);
    }
    Py_XDECREF(spill.disable);
    spill.disable = Py_NewRef(disable);
    Py_ssize_t count = PyList_Size(watched);
    for (Py_ssize_t i = 0; i < count && i < MOST_WATCHED; i++) {
        spill.watched[spill.watched_count++] = Py_NewRef(PyList_GetItem(watched, i));
        if (frames_know(PyList_GetItem(watched, i)) < 0) {
            return NULL;
        }
    }
    count = PyList_Size(known);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (frames_know(PyList_GetItem(known, i)) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(here_doc, "here() -> int\n\nThe number of the calling thread's stack; negative where it has none of known code.");

static PyObject *
here(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    return PyLong_FromLong(frames_here());
}

PyDoc_STRVAR(stacks_doc,
"stacks(first) -> list\n\nThe stacks from number `first` on: lists of (code, offset in bytes), innermost frame first.");

static PyObject *
stacks(PyObject *self, PyObject *first)
{
    (void)self;
    unsigned long number = PyLong_AsUnsignedLong(first);
    return PyErr_Occurred() ? NULL : frames_stacks((uint32_t)number);
}

PyDoc_STRVAR(supported_doc, "frames_supported() -> bool\n\nWhether stacks can be read in this version of Python.");

static PyObject *
supported(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    return PyBool_FromLong(frames_supported());
}

static int
number_of_watched(const PyObject *code)
{
    int number = spill.watched_count;
    while (number-- && spill.watched[number] != code) {
    }
    return number;
}

static int
told(Py_ssize_t count)
{
    if (count >= 1) {
        return 0;
    }
    PyErr_SetString(PyExc_TypeError, "a code object is missing");
    return -1;
}

static void
know_or_tell(PyObject *code)
{
    if (frames_know(code) < 0) {
        PyErr_WriteUnraisable(code);
    }
}

/* PY_START and PY_RESUME of all code: once each, except for watched functions. */
static PyObject *
py_start(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (told(count)) {
        return NULL;
    }
    int number = number_of_watched(args[0]);
    if (number < 0) {
        know_or_tell(args[0]);
        return Py_NewRef(spill.disable ? spill.disable : Py_None);
    }
    if (recording_here()) {
        if (mine.open_count < MOST_OPEN) {
            begin(&mine.open[mine.open_count], SPAN + (uint32_t)number, NULL);
        }
        mine.open_count++;
    }
    Py_RETURN_NONE;
}

/* PY_THROW of all code, which cannot be disabled: it may be the first event of a generator that is closed. */
static PyObject *
py_throw(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (told(count)) {
        return NULL;
    }
    know_or_tell(args[0]);
    Py_RETURN_NONE;
}

/* PY_RETURN of watched functions, and PY_UNWIND of all code. */
static PyObject *
py_end(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (told(count)) {
        return NULL;
    }
    if (recording_here() && mine.open_count && number_of_watched(args[0]) >= 0 &&
        --mine.open_count < MOST_OPEN) {
        mine.open[mine.open_count].end = now();
        write_call(&mine.open[mine.open_count]);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(walk_doc,
"walk(records, sizes) -> bytes\n\nThe offsets of the records in one chunk, as int64: up to the first kind 0, or one whose\n"
"size in `sizes` (uint32 by kind) is 0 or reaches beyond the end.");

static PyObject *
walk(PyObject *self, PyObject *arguments)
{
    (void)self;
    Py_buffer records, sizes;
    if (!PyArg_ParseTuple(arguments, "y*y*", &records, &sizes)) {
        return NULL;
    }
    const uint8_t *base = records.buf;
    const uint32_t kinds = (uint32_t)(sizes.len / 4);
    uint32_t kind, size;
    int64_t count = 0, at = 0, *offsets = NULL;
    /* Two passes: count, then write. */
    for (int pass = 0; pass < 2; pass++) {
        count = 0;
        for (at = 0; at + 4 <= records.len; at += size, count++) {
            memcpy(&kind, base + at, 4);
            size = 0;
            if (kind && kind < kinds) {
                memcpy(&size, (const uint8_t *)sizes.buf + 4 * (size_t)kind, 4);
            }
            if (!size || size > (uint64_t)(records.len - at)) {
                break;
            }
            if (offsets) {
                offsets[count] = at;
            }
        }
        if (!offsets && !(offsets = malloc((size_t)(count ? count : 1) * sizeof *offsets))) {
            PyBuffer_Release(&records);
            PyBuffer_Release(&sizes);
            return PyErr_NoMemory();
        }
    }
    PyObject *result = PyBytes_FromStringAndSize((const char *)offsets, (Py_ssize_t)(count * (int64_t)sizeof *offsets));
    free(offsets);
    PyBuffer_Release(&records);
    PyBuffer_Release(&sizes);
    return result;
}

static PyMethodDef methods[] = {
    {"load", load, METH_O, load_doc},
    {"subscribe", subscribe, METH_NOARGS, subscribe_doc},
    {"unsubscribe", unsubscribe, METH_NOARGS, unsubscribe_doc},
    {"start", start, METH_VARARGS, start_doc},
    {"flush", flush, METH_NOARGS, flush_doc},
    {"stop", stop, METH_NOARGS, stop_doc},
    {"know", know, METH_VARARGS, know_doc},
    {"here", here, METH_NOARGS, here_doc},
    {"stacks", stacks, METH_O, stacks_doc},
    {"frames_supported", supported, METH_NOARGS, supported_doc},
    {"py_start", (PyCFunction)(void (*)(void))py_start, METH_FASTCALL, "py_start(code, offset)\n\nFor sys.monitoring."},
    {"py_throw", (PyCFunction)(void (*)(void))py_throw, METH_FASTCALL, "py_throw(code, …)\n\nFor sys.monitoring."},
    {"py_end", (PyCFunction)(void (*)(void))py_end, METH_FASTCALL, "py_end(code, …)\n\nFor sys.monitoring."},
    {"walk", walk, METH_VARARGS, walk_doc},
    {NULL, NULL, 0, NULL},
};

static int
prepare(PyObject *self)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError, "a process is recorded by its main interpreter alone");
        return -1;
    }
    return PyModule_AddIntConstant(self, "MOST_KINDS", MOST_KINDS) || PyModule_AddIntConstant(self, "SPAN", SPAN) ||
                   PyModule_AddIntConstant(self, "CALLS_CHUNK", CALLS_CHUNK)
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_cupti", .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__cupti(void)
{
    return PyModuleDef_Init(&module);
}
