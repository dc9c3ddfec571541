/* Times the calls that libraries make to CUDA's driver, without CUPTI: by the pointers that they call it through.

   The CUDA runtime, cuBLAS, cuDNN, Triton and torch are not linked against the driver. Each asks for the addresses of its
   functions once, and keeps them in data of its own. start() looks through that data for addresses of the functions that
   are wanted, and puts a function of ours in the place of each, which notes the time, calls the driver, and notes the
   time again; stop() puts the addresses back. A word of a library's data that has the value of a function's address is a
   pointer to that function: nothing else points into the driver's code.

   What keeps this safe:
   - Only words are changed that the program may write itself, by an exchange with what was found there: no thread sees
     half of one, and none loses what it has just written. What a loader makes read-only (RELRO) is left alone.
   - Only pages are read that were written since they were mapped: an address found at run time can be on no other. Of
     600 MB that torch's libraries map so, these are a fifth.
   - Our functions hand on as many words as the driver's longest function takes. One that takes fewer looks at no more; the
     rest is whatever lies on the caller's stack. No function that is asked for may take or return floating point.
   - They stay where they are when all is over, and then only hand on: a library may have copied one meanwhile.

   A library that is loaded later is not seen, nor one that keeps its pointers on the heap or has them read-only.

   Times may be taken by the processor's counter, which stop() turns into the clock's: its code and data are not among
   what a program pushes out of the caches between two calls. ResNet-18 on an H200's host, with 560 calls in a step of
   6.3 ms, took 1.021 +- 0.004 times as long by the clock, and 1.012 +- 0.003 by the counter. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if !defined(__linux__) || UINTPTR_MAX != UINT64_MAX || !(defined(__x86_64__) || defined(__aarch64__))
#error "this knows how functions are called on 64-bit Linux, on x86 and ARM alone"
#endif

#include "../lines/_clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

typedef intptr_t Word;
#define PARAMETERS Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k, Word l
#define ARGUMENTS a, b, c, d, e, f, g, h, i, j, k, l
typedef Word (*Function)(PARAMETERS); /* cuLaunchKernel takes eleven */

typedef struct {
    uint64_t start; /* ticks, in what stop() returns ns; written last: 0 says that there is no call here */
    uint64_t end;
    uint32_t what;   /* the number that start() was given with the function's name */
    uint32_t thread; /* the system's id */
} Call;

enum { MOST_FUNCTIONS = 120, MOST_CALLS = 2 << 20, BATCH = 512 };

static struct {
    Function original;
    uint32_t what;
    int wanted; /* by the last start() */
} functions[MOST_FUNCTIONS]; /* never taken out again: a library may keep a function of ours */
static int function_count;

static _Atomic int timing; /* between start() and stop() */
static int started;        /* the same, under the GIL */
static Call *calls;        /* MOST_CALLS, never given back: a thread may be within a call still when all is over */
static size_t call_room;
static _Atomic size_t call_count; /* more than there is room for, when it was not enough */

static _Atomic int by_counter; /* else a tick is a ns of CLOCK_MONOTONIC */

typedef struct {
    uint64_t ticks, ns;
} Instant;

static Instant started_at;

static __thread struct {
    int depth; /* of calls within calls: only the outermost counts */
    uint32_t thread;
} mine;

static inline uint64_t
ticks_now(void)
{
#ifdef __x86_64__
    if (by_counter) {
        return __rdtsc();
    }
#endif
    return now();
}

static Word
around(int number, PARAMETERS)
{
    Function original = functions[number].original;
    if (!timing || mine.depth || !functions[number].wanted) {
        return original(ARGUMENTS);
    }
    mine.depth++;
    uint64_t start = ticks_now();
    Word result = original(ARGUMENTS);
    uint64_t end = ticks_now();
    mine.depth--;
    size_t at = atomic_fetch_add_explicit(&call_count, 1, memory_order_relaxed);
    if (at < call_room) {
        if (!mine.thread) {
            mine.thread = (uint32_t)syscall(SYS_gettid);
        }
        calls[at].end = end;
        calls[at].what = functions[number].what;
        calls[at].thread = mine.thread;
        __atomic_store_n(&calls[at].start, start, __ATOMIC_RELEASE);
    }
    return result;
}

/* A function of ours for each of the driver's: of itself it knows only its number. */
#define EACH_TEN(use, tens) \
    use(tens##0) use(tens##1) use(tens##2) use(tens##3) use(tens##4) use(tens##5) use(tens##6) use(tens##7) use(tens##8) \
    use(tens##9)
#define EACH(use) \
    use(0) use(1) use(2) use(3) use(4) use(5) use(6) use(7) use(8) use(9) EACH_TEN(use, 1) EACH_TEN(use, 2) \
    EACH_TEN(use, 3) EACH_TEN(use, 4) EACH_TEN(use, 5) EACH_TEN(use, 6) EACH_TEN(use, 7) EACH_TEN(use, 8) \
    EACH_TEN(use, 9) EACH_TEN(use, 10) EACH_TEN(use, 11)
#define DEFINE(number) \
    static Word ours_##number(PARAMETERS) { return around(number, ARGUMENTS); }
#define NAME(number) ours_##number,
EACH(DEFINE)
static const Function ours[] = {EACH(NAME)};

_Static_assert(sizeof ours / sizeof *ours == MOST_FUNCTIONS, "one of ours for each");

/* One moment as both have it: of several tries the one within which the least time passed. */
static Instant
instant(void)
{
    Instant best = {0, 0};
    uint64_t least = UINT64_MAX;
    for (int tries = 0; tries < 8; tries++) {
        uint64_t before = ticks_now(), ns = now(), passed = ticks_now() - before;
        if (passed < least) {
            least = passed;
            best = (Instant){before + passed / 2, ns};
        }
    }
    return best;
}

/* The calls between two instants, in ns: one from before is of a thread that was within it at the last stop(). */
static void
write_rows(Call *rows, size_t count, Instant first, Instant last)
{
    double ns_per_tick = 1;
    if (by_counter && last.ticks > first.ticks) {
        ns_per_tick = (double)(last.ns - first.ns) / (double)(last.ticks - first.ticks);
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t start = __atomic_load_n(&calls[i].start, __ATOMIC_ACQUIRE), end = calls[i].end;
        rows[i] = (Call){0};
        if (start >= first.ticks && start <= end && end <= last.ticks) {
            rows[i] = (Call){first.ns + (uint64_t)((double)(start - first.ticks) * ns_per_tick),
                             first.ns + (uint64_t)((double)(end - first.ticks) * ns_per_tick), calls[i].what,
                             calls[i].thread};
        }
    }
}

typedef struct {
    Word *at;
    int number;
} Pointer;

static struct {
    Pointer *rows;
    size_t count, room;
    int out_of_memory;
} replaced;

typedef struct {
    uintptr_t start, end;
} Range;

/* What a search for pointers knows. */
typedef struct {
    int sorted[MOST_FUNCTIONS]; /* numbers of those that are wanted, by their addresses */
    int count;
    Word lowest, highest;
    Range *writable; /* of /proc/self/maps, ascending */
    size_t writable_count;
    uintptr_t driver; /* an address within it */
    int pagemap;      /* /proc/self/pagemap */
    size_t page;      /* bytes */
} Search;

static Word
address_of(int number)
{
    return (Word)(uintptr_t)functions[number].original;
}

/* The number of the function at this address, or -1. */
static int
number_of(const Search *search, Word address)
{
    if (address < search->lowest || address > search->highest) {
        return -1;
    }
    for (int low = 0, high = search->count - 1; low <= high;) {
        int middle = (low + high) / 2;
        Word there = address_of(search->sorted[middle]);
        if (there == address) {
            return search->sorted[middle];
        }
        if (there < address) {
            low = middle + 1;
        }
        else {
            high = middle - 1;
        }
    }
    return -1;
}

static void
replace(Word *at, int number)
{
    if (replaced.count == replaced.room) {
        size_t room = replaced.room ? 2 * replaced.room : 1024;
        Pointer *rows = realloc(replaced.rows, room * sizeof *rows);
        if (!rows) {
            replaced.out_of_memory = 1;
            return;
        }
        replaced.rows = rows;
        replaced.room = room;
    }
    Word expected = address_of(number);
    if (__atomic_compare_exchange_n(at, &expected, (Word)(uintptr_t)ours[number], 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        replaced.rows[replaced.count++] = (Pointer){at, number};
    }
}

static void
search_page(const Search *search, uintptr_t from, uintptr_t to)
{
    for (Word *at = (Word *)((from + 7) & ~(uintptr_t)7); (uintptr_t)(at + 1) <= to; at++) {
        int number = number_of(search, *at);
        if (number >= 0) {
            replace(at, number);
        }
    }
}

/* Pages that were written are no longer those of their file. Where the kernel does not say, each may have been. */
static void
search_range(const Search *search, uintptr_t from, uintptr_t to)
{
    uint64_t pages[BATCH];
    const size_t size = search->page;
    for (uintptr_t batch = from & ~(uintptr_t)(size - 1); batch < to; batch += BATCH * size) {
        size_t count = (to - batch + size - 1) / size < BATCH ? (to - batch + size - 1) / size : BATCH;
        ssize_t wanted = (ssize_t)(count * sizeof *pages);
        int told = pread(search->pagemap, pages, (size_t)wanted, (off_t)(batch / size * sizeof *pages)) == wanted;
        for (size_t page = 0; page < count; page++) {
            enum { PRESENT = 63, SWAPPED = 62, OF_A_FILE = 61 };
            int is_own = !told || (pages[page] >> SWAPPED & 1) ||
                         ((pages[page] >> PRESENT & 1) && !(pages[page] >> OF_A_FILE & 1));
            uintptr_t start = batch + page * size, end = start + size;
            if (is_own) {
                search_page(search, start > from ? start : from, end < to ? end : to);
            }
        }
    }
}

/* Whether an address lies in a part of this library that may be used so (PF_R, PF_W). */
static int
holds(const struct dl_phdr_info *object, uintptr_t address, ElfW(Word) use)
{
    for (int part = 0; part < object->dlpi_phnum; part++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[part];
        uintptr_t start = object->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && (header->p_flags & use) && address - start < header->p_memsz) {
            return 1;
        }
    }
    return 0;
}

/* What the loader makes read-only once it has filled it in, which may be any moment now: as _dl_protect_relro has it. */
static Range
left_alone(const struct dl_phdr_info *object, size_t page)
{
    for (int part = 0; part < object->dlpi_phnum; part++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[part];
        if (header->p_type == PT_GNU_RELRO) {
            uintptr_t start = object->dlpi_addr + header->p_vaddr, end = start + header->p_memsz;
            return (Range){start & ~(uintptr_t)(page - 1), end & ~(uintptr_t)(page - 1)};
        }
    }
    return (Range){0, 0};
}

static void
search_writable(const Search *search, uintptr_t from, uintptr_t to)
{
    for (size_t i = 0; i < search->writable_count; i++) {
        Range range = search->writable[i];
        if (range.start < to && range.end > from) {
            search_range(search, range.start > from ? range.start : from, range.end < to ? range.end : to);
        }
    }
}

/* The writable data of one library, but for the driver's own and ours. */
static int
search_object(struct dl_phdr_info *object, size_t size, void *argument)
{
    (void)size;
    const Search *search = argument;
    if (holds(object, search->driver, PF_R) || holds(object, (uintptr_t)functions, PF_R)) {
        return 0;
    }
    Range not = left_alone(object, search->page);
    for (int part = 0; part < object->dlpi_phnum; part++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[part];
        uintptr_t start = object->dlpi_addr + header->p_vaddr, end = start + header->p_memsz;
        if (header->p_type == PT_LOAD && (header->p_flags & PF_W)) {
            search_writable(search, start, not.start < end ? not.start : end);
            search_writable(search, not.end > start ? not.end : start, end);
        }
    }
    return 0;
}

static int
by_address(const void *one, const void *other)
{
    Word first = address_of(*(const int *)one), second = address_of(*(const int *)other);
    return (first > second) - (first < second);
}

/* 0, or -1 where the process's memory cannot be looked at. */
static int
read_maps(Search *search)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t length = 0, room = 0;
    int failed = !maps;
    while (!failed && getline(&line, &length, maps) > 0) {
        unsigned long start, end;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, rights) != 3 || rights[0] != 'r' || rights[1] != 'w' ||
            rights[3] != 'p') {
            continue;
        }
        if (search->writable_count == room) {
            room = room ? 2 * room : 256;
            Range *wider = realloc(search->writable, room * sizeof *wider);
            if (!wider) {
                failed = 1;
                break;
            }
            search->writable = wider;
        }
        search->writable[search->writable_count++] = (Range){start, end};
    }
    free(line);
    if (maps) {
        fclose(maps);
    }
    return failed ? -1 : 0;
}

static int
replace_pointers(uintptr_t driver)
{
    Search search = {.driver = driver,
                     .pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC),
                     .page = (size_t)sysconf(_SC_PAGESIZE)};
    for (int number = 0; number < function_count; number++) {
        if (functions[number].wanted) {
            search.sorted[search.count++] = number;
        }
    }
    qsort(search.sorted, (size_t)search.count, sizeof *search.sorted, by_address);
    search.lowest = address_of(search.sorted[0]);
    search.highest = address_of(search.sorted[search.count - 1]);
    int failed = read_maps(&search);
    if (!failed) {
        dl_iterate_phdr(search_object, &search); /* no library is unloaded meanwhile */
    }
    if (search.pagemap >= 0) {
        close(search.pagemap);
    }
    free(search.writable);
    return failed;
}

static int
is_writable(const Search *search, uintptr_t address)
{
    for (size_t i = 0; i < search->writable_count; i++) {
        if (address >= search->writable[i].start && address < search->writable[i].end) {
            return 1;
        }
    }
    return !search->writable_count; /* not told: it was when it was replaced */
}

/* Only what still is ours: the library may have changed it, or be another one at the same place. What it has made
   read-only meanwhile stays ours, and hands on. */
static int
put_back_in(struct dl_phdr_info *object, size_t size, void *argument)
{
    (void)size;
    const Search *search = argument;
    Range not = left_alone(object, search->page);
    for (size_t i = 0; i < replaced.count; i++) {
        Pointer pointer = replaced.rows[i];
        Word expected = (Word)(uintptr_t)ours[pointer.number];
        uintptr_t at = (uintptr_t)pointer.at;
        if (holds(object, at, PF_W) && !(at >= not.start && at < not.end) && is_writable(search, at)) {
            __atomic_compare_exchange_n(pointer.at, &expected, address_of(pointer.number), 0, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED);
        }
    }
    return 0;
}

static void
put_back(void)
{
    Search search = {.page = (size_t)sysconf(_SC_PAGESIZE)};
    if (read_maps(&search)) {
        search.writable_count = 0;
    }
    dl_iterate_phdr(put_back_in, &search);
    free(search.writable);
    free(replaced.rows);
    memset(&replaced, 0, sizeof replaced);
}

/* In a forked child calls are handed on, as CUDA is not usable there; nothing of the parent's is given back. */
static void
forked(void)
{
    timing = started = 0;
}

static int
add_function(uint32_t what, void *address)
{
    for (int number = 0; number < function_count; number++) {
        if (address_of(number) == (Word)(uintptr_t)address) {
            if (!functions[number].wanted) { /* known since an earlier start; else one function by two names */
                functions[number].wanted = 1;
                functions[number].what = what;
            }
            return 0;
        }
    }
    if (function_count == MOST_FUNCTIONS) {
        PyErr_Format(PyExc_ValueError, "there are more than %d functions", MOST_FUNCTIONS);
        return -1;
    }
    memcpy(&functions[function_count].original, &address, sizeof address);
    functions[function_count].what = what;
    functions[function_count++].wanted = 1;
    return 0;
}

/* Those of the driver's functions that it has; an address of one, or NULL, with an exception where asking failed. */
static const void *
find_functions(void *driver, PyObject *wanted)
{
    const void *found = NULL;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    for (int number = 0; number < function_count; number++) {
        functions[number].wanted = 0;
    }
    while (PyDict_Next(wanted, &at, &key, &value)) {
        unsigned long what = PyLong_AsUnsignedLong(key);
        const char *name = PyErr_Occurred() ? NULL : PyUnicode_AsUTF8AndSize(value, NULL);
        void *address = name ? dlsym(driver, name) : NULL;
        if (!name || (address && add_function((uint32_t)what, address))) {
            return NULL;
        }
        found = address ? address : found;
    }
    return found;
}

PyDoc_STRVAR(start_doc,
"start(library, functions, most_calls, by_counter) -> int\n\nTime calls of these functions of a library, a dict of names by\n"
"number, until stop(): the first `most_calls` of them, by the processor's counter, which on x86 alone can be, or by the\n"
"clock. How many pointers to them were found; where there are none, nothing is timed.\n"
"Raises OSError where the library is not loaded, or the process's memory cannot be looked at; RuntimeError where calls\n"
"are timed already; ValueError for more functions than there may be.");

static PyObject *
start(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *library;
    PyObject *wanted;
    unsigned long long most;
    int counter;
    if (!PyArg_ParseTuple(arguments, "sO!Kp", &library, &PyDict_Type, &wanted, &most, &counter)) {
        return NULL;
    }
    if (started) {
        PyErr_SetString(PyExc_RuntimeError, "calls are timed already");
        return NULL;
    }
    static int watched;
    if (!watched && pthread_atfork(NULL, NULL, forked)) {
        PyErr_SetString(PyExc_RuntimeError, "the process's fork cannot be watched");
        return NULL;
    }
    watched = 1;
    void *driver = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!driver) {
        PyErr_Format(PyExc_OSError, "%s is not loaded", library);
        return NULL;
    }
    const void *within = find_functions(driver, wanted);
    dlclose(driver); /* who loaded it keeps it */
    if (!within) {
        return PyErr_Occurred() ? NULL : PyLong_FromLong(0);
    }
    if (!calls) {
        void *memory = mmap(NULL, MOST_CALLS * sizeof *calls, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            return PyErr_SetFromErrno(PyExc_OSError);
        }
        calls = memory;
    }
    call_room = most < MOST_CALLS ? (size_t)most : MOST_CALLS;
    call_count = 0;
    started = 1;
    by_counter = counter;
    started_at = instant();
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = replace_pointers((uintptr_t)within) || replaced.out_of_memory;
    if (failed) {
        put_back();
    }
    Py_END_ALLOW_THREADS
    if (failed) {
        started = 0;
        PyErr_SetString(PyExc_OSError, "the process's memory cannot be looked at");
        return NULL;
    }
    timing = started = replaced.count > 0;
    return PyLong_FromSize_t(replaced.count);
}

PyDoc_STRVAR(stop_doc,
"stop() -> (bytes, int)\n\nPut all pointers back. The calls that were timed, 24 bytes each, in no order: start and end in ns of\n"
"CLOCK_MONOTONIC (uint64), the function's number and the thread's id (uint32). A row that starts at 0 is none: its call\n"
"was just being written, or had begun before start(). And how many there was no room for. Raises RuntimeError where none are timed.");

static PyObject *
stop(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    if (!started) {
        PyErr_SetString(PyExc_RuntimeError, "no calls are timed");
        return NULL;
    }
    timing = 0;
    put_back();
    started = 0;
    size_t made = call_count, kept = made < call_room ? made : call_room;
    PyObject *result = NULL, *rows = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(kept * sizeof *calls));
    if (rows) {
        write_rows((Call *)PyBytes_AsString(rows), kept, started_at, instant());
        result = Py_BuildValue("Nn", rows, (Py_ssize_t)(made - kept));
    }
    madvise(calls, MOST_CALLS * sizeof *calls, MADV_DONTNEED); /* zero again, and no memory held */
    return result;
}

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, start_doc},
    {"stop", stop, METH_NOARGS, stop_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_interpose", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC
PyInit__interpose(void)
{
    return PyModuleDef_Init(&module);
}
