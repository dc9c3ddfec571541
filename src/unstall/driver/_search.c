/* Finds the addresses of the driver's functions in the data of libraries, and replaces them.

   The CUDA runtime, cuBLAS, cuDNN, NCCL, Triton and torch are not linked against the driver. Each asks for the addresses
   of its functions once, and keeps them in its own data. So that data is searched for the addresses of the functions that
   are wanted. A word of a library's data that has the value of a function's address is a pointer to that function: nothing
   else points into the driver's code.

   What keeps this safe:
   - Only words are changed that the program may write itself, by an exchange with what was found there: no thread sees
     half of one, and none loses what it has just written. What a loader makes read-only (RELRO) is left alone.
   - Only pages are read that were written since they were mapped: an address found at run time can be on no other. Of
     600 MB that torch's libraries map so, these are a fifth.

   A library that keeps its pointers on the heap or has them read-only is not seen. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "_search.h"

#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BATCH = 512 };

typedef struct {
    uintptr_t start, end;
} Range;

/* What a search knows. */
typedef struct {
    const Wanted *wanted;
    Range *writable; /* of /proc/self/maps, ascending */
    size_t writable_count;
    int pagemap; /* /proc/self/pagemap */
    size_t page; /* bytes */
} Search;

const Exchange *
search_row(const Wanted *wanted, Word value)
{
    if (!wanted->count || value < wanted->rows[0].from || value > wanted->rows[wanted->count - 1].from) {
        return NULL;
    }
    for (int low = 0, high = wanted->count - 1; low <= high;) {
        int middle = (low + high) / 2;
        const Exchange *row = &wanted->rows[middle];
        if (row->from == value) {
            return row;
        }
        if (row->from < value) {
            low = middle + 1;
        }
        else {
            high = middle - 1;
        }
    }
    return NULL;
}

/* It reads whatever lies in the page, also what lies between variables: the address sanitizer must not look. */
__attribute__((no_sanitize("address"))) static void
search_page(const Search *search, uintptr_t from, uintptr_t to)
{
    for (Word *at = (Word *)((from + 7) & ~(uintptr_t)7); (uintptr_t)(at + 1) <= to; at++) {
        const Exchange *row = search_row(search->wanted, *at);
        Word expected = row ? row->from : 0;
        if (row && __atomic_compare_exchange_n(at, &expected, row->to, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
            search->wanted->found[row->number] = 1;
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

static int
is_skipped(const Wanted *wanted, const struct dl_phdr_info *object)
{
    for (int i = 0; i < wanted->skipped_count; i++) {
        if (holds(object, (uintptr_t)wanted->skipped[i], PF_R)) {
            return 1;
        }
    }
    return 0;
}

/* The writable data of one library. */
static int
search_object(struct dl_phdr_info *object, size_t size, void *argument)
{
    (void)size;
    const Search *search = argument;
    if (is_skipped(search->wanted, object)) {
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
search_data(const Wanted *wanted)
{
    Search search = {.wanted = wanted, .pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC),
                     .page = (size_t)sysconf(_SC_PAGESIZE)};
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
