/* Puts functions of ours in the place of the driver's, in the pointers that libraries call it through.

   The CUDA runtime, cuBLAS, cuDNN, NCCL, Triton and torch are not linked against the driver. Each asks for the addresses
   of its functions once, and keeps them in its own data. So that data is searched for the addresses of the functions that
   are wanted, and each is replaced by a function of ours. A word of a library's data that has the value of a function's
   address is a pointer to that function: nothing else points into the driver's code.

   What keeps this safe:
   - Only words are changed that the program may write itself, by an exchange with what was found there: no thread sees
     half of one, and none loses what it has just written. What a loader makes read-only (RELRO) is left alone.
   - Only pages are read that were written since they were mapped: an address found at run time can be on no other. Of
     600 MB that torch's libraries map so, these are a fifth.
   - Our functions hand on as many words as the driver's longest function takes. One that takes fewer looks at no more; the
     rest is whatever lies on the caller's stack. No function that is added may take or return floating point.
   - They stay where they are afterwards, and then only hand on: a library may have copied one meanwhile.

   A library that is loaded later is not seen until the next search, nor is one that keeps its pointers on the heap or has
   them read-only. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "_pointers.h"

#if !defined(__linux__) || UINTPTR_MAX != UINT64_MAX || !(defined(__x86_64__) || defined(__aarch64__))
#error "this knows how functions are called on 64-bit Linux, on x86 and ARM alone"
#endif

#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 512 };

static Function originals[MOST_FUNCTIONS]; /* never taken out again: a library may keep a function of ours */
static int function_count;

/* A function of ours for each of the driver's: of itself it knows only its number. */
#define EACH_TEN(use, tens) \
    use(tens##0) use(tens##1) use(tens##2) use(tens##3) use(tens##4) use(tens##5) use(tens##6) use(tens##7) use(tens##8) \
    use(tens##9)
#define EACH(use) \
    use(0) use(1) use(2) use(3) use(4) use(5) use(6) use(7) use(8) use(9) EACH_TEN(use, 1) EACH_TEN(use, 2) \
    EACH_TEN(use, 3) EACH_TEN(use, 4) EACH_TEN(use, 5) EACH_TEN(use, 6) EACH_TEN(use, 7)
#define DEFINE(number) \
    static Word ours_##number(PARAMETERS) { return pointers_called(number, ARGUMENTS); }
#define NAME(number) ours_##number,
EACH(DEFINE)
static const Function ours[] = {EACH(NAME)};

_Static_assert(sizeof ours / sizeof *ours == MOST_FUNCTIONS, "one of ours for each");

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
    int sorted[MOST_FUNCTIONS]; /* numbers of functions, by their addresses */
    Word lowest, highest;
    Range *writable; /* of /proc/self/maps, ascending */
    size_t writable_count;
    int pagemap; /* /proc/self/pagemap */
    size_t page; /* bytes */
} Search;

static Word
address_of(int number)
{
    return (Word)(uintptr_t)originals[number];
}

Function
pointers_function(int number)
{
    return originals[number];
}

size_t
pointers_count(void)
{
    return replaced.count;
}

int
pointers_number(size_t i)
{
    return replaced.rows[i].number;
}

int
pointers_add(void *address)
{
    for (int number = 0; number < function_count; number++) {
        if (address_of(number) == (Word)(uintptr_t)address) {
            return number;
        }
    }
    if (function_count == MOST_FUNCTIONS) {
        return -1;
    }
    memcpy(&originals[function_count], &address, sizeof address);
    return function_count++;
}

/* The number of the function at this address, or -1. */
static int
number_of(const Search *search, Word address)
{
    if (address < search->lowest || address > search->highest) {
        return -1;
    }
    for (int low = 0, high = function_count - 1; low <= high;) {
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
        size_t room = replaced.room ? 2 * replaced.room : 256;
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

/* Pages that were written are no longer those of their file. If the kernel does not say, each may have been. */
static void
search_range(const Search *search, uintptr_t from, uintptr_t to)
{
    uint64_t pages[BATCH];
    const size_t size = search->page;
    for (uintptr_t batch = from & ~(uintptr_t)(size - 1); batch < to; batch += BATCH * size) {
        size_t count = (to - batch + size - 1) / size < BATCH ? (to - batch + size - 1) / size : BATCH;
        ssize_t wanted = (ssize_t)(count * sizeof *pages);
        int known = pread(search->pagemap, pages, (size_t)wanted, (off_t)(batch / size * sizeof *pages)) == wanted;
        for (size_t page = 0; page < count; page++) {
            enum { PRESENT = 63, SWAPPED = 62, OF_A_FILE = 61 };
            int is_own = !known || (pages[page] >> SWAPPED & 1) ||
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

/* What the loader makes read-only once it has filled it in, which may be any moment now: as in _dl_protect_relro. */
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

/* The writable data of one library, except the driver's own and ours. */
static int
search_object(struct dl_phdr_info *object, size_t size, void *argument)
{
    (void)size;
    const Search *search = argument;
    if (holds(object, (uintptr_t)search->lowest, PF_R) || holds(object, (uintptr_t)originals, PF_R)) {
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

/* Reads which memory may be written. Returns 0, or -1 if the process's memory cannot be looked at. */
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

int
pointers_replace(void)
{
    Search search = {.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC),
                     .page = (size_t)sysconf(_SC_PAGESIZE)};
    for (int number = 0; number < function_count; number++) {
        search.sorted[number] = number;
    }
    qsort(search.sorted, (size_t)function_count, sizeof *search.sorted, by_address);
    search.lowest = address_of(search.sorted[0]);
    search.highest = address_of(search.sorted[function_count - 1]);
    int failed = read_maps(&search);
    if (!failed) {
        dl_iterate_phdr(search_object, &search); /* no library is unloaded meanwhile */
    }
    if (search.pagemap >= 0) {
        close(search.pagemap);
    }
    free(search.writable);
    return failed || replaced.out_of_memory ? -1 : 0;
}

static int
is_writable(const Search *search, uintptr_t address)
{
    for (size_t i = 0; i < search->writable_count; i++) {
        if (address >= search->writable[i].start && address < search->writable[i].end) {
            return 1;
        }
    }
    return !search->writable_count; /* unknown: it was when it was replaced */
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

void
pointers_put_back(void)
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

static int
read_adds(struct dl_phdr_info *object, size_t size, void *argument)
{
    if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof object->dlpi_adds) {
        *(unsigned long long *)argument = object->dlpi_adds;
    }
    return 1;
}

unsigned long long
pointers_libraries(void)
{
    unsigned long long adds = 0;
    dl_iterate_phdr(read_adds, &adds);
    return adds;
}
