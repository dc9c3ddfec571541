/* Which of the functions that matter to guards an address is in: torch's operators, the interpreter, torch's allocator for
   CUDA.

   dladdr() would tell, but it goes through all symbols of a library at each call: milliseconds in torch's. So the symbols
   of a library are gone through once, when an address in it is first asked for, and those that matter are kept, sorted. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "_functions.h"

#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uintptr_t start, size;
    const char *name;
    unsigned length;
    FunctionKind kind;
} Known;

typedef struct {
    uintptr_t start, end;
    FunctionKind otherwise; /* what an address is in that is in none of the functions */
    Known *functions;       /* ascending */
    size_t count, room;
} Library;

static struct {
    pthread_mutex_t lock;
    Library *libraries;
    size_t count, room;
    unsigned long long unloaded; /* libraries, so far: others may have their addresses now */
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The symbols that a library exports. */
typedef struct {
    const ElfW(Sym) * symbols;
    size_t first, count;
    const char *names;
    size_t names_size;
} Symbols;

/* Sets the name of an operator out of _ZN2at4_ops<length>NAME4callE… or …10redispatchE…. Returns whether it is one. */
static int
is_operator(const char *symbol, const char **name, unsigned *length)
{
    static const char start[] = "_ZN2at4_ops";
    if (strncmp(symbol, start, sizeof start - 1)) {
        return 0;
    }
    char *end;
    unsigned long count = strtoul(symbol + sizeof start - 1, &end, 10);
    if (!count || count > 255 || strnlen(end, count) < count) {
        return 0;
    }
    *name = end;
    *length = (unsigned)count;
    return !strncmp(end + count, "4callE", 6) || !strncmp(end + count, "10redispatchE", 13);
}

/* Whether a function of c10's library for CUDA is none of the allocator's. It exports little of the allocator: what has no
   other name is taken for that. */
static int
is_none_of_the_allocators(const char *symbol)
{
    static const char *const others[] = {"stream_synchronize", "device_synchronize", "memcpy_and_sync", "CUDAStream"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strstr(symbol, others[i])) {
            return 1;
        }
    }
    return 0;
}

static int
is_of_cuda_in_c10(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL, *file = slash ? slash + 1 : path;
    return file && !strncmp(file, "libc10_cuda.so", 14);
}

static void
keep(Library *library, Known function)
{
    if (library->count == library->room) {
        size_t room = library->room ? 2 * library->room : 64;
        Known *functions = realloc(library->functions, room * sizeof *functions);
        if (!functions) {
            return;
        }
        library->functions = functions;
        library->room = room;
    }
    library->functions[library->count++] = function;
}

static int
by_start(const void *a, const void *b)
{
    uintptr_t left = ((const Known *)a)->start, right = ((const Known *)b)->start;
    return (left > right) - (left < right);
}

/* A library that has the interpreter's loop, and no operators, is the interpreter's, all of it: compilers put parts of the
   loop into functions that are not exported. In a Python 3.14 that is built with tail calls, these are all there is. */
static void
keep_what_matters(Library *library, const Symbols *all, uintptr_t base)
{
    for (size_t i = all->first; i < all->count; i++) {
        const ElfW(Sym) *symbol = &all->symbols[i];
        if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF || symbol->st_name >= all->names_size) {
            continue;
        }
        const char *name = all->names + symbol->st_name;
        Known function = {.start = base + symbol->st_value, .size = symbol->st_size};
        if (library->otherwise == ALLOCATORS) {
            if (is_none_of_the_allocators(name)) {
                keep(library, function);
            }
        }
        else if (name[0] == '_' && is_operator(name, &function.name, &function.length)) {
            function.kind = OPERATOR;
            keep(library, function);
        }
        else if (name[0] == '_' && !strcmp(name, "_PyEval_EvalFrameDefault")) {
            function.kind = PYTHON;
            keep(library, function);
        }
    }
    if (library->count == 1 && library->functions[0].kind == PYTHON) {
        library->otherwise = PYTHON;
    }
    if (library->count) {
        qsort(library->functions, library->count, sizeof *library->functions, by_start);
    }
}

/* How many symbols a library has: its header does not say, but its table of hashes has the last one's place. */
static size_t
count_of(const uint32_t *gnu_hash, size_t *first)
{
    uint32_t buckets = gnu_hash[0], offset = gnu_hash[1], bloom = gnu_hash[2];
    const uint32_t *bucket = gnu_hash + 4 + bloom * (sizeof(ElfW(Addr)) / sizeof *gnu_hash), *chain = bucket + buckets;
    uint32_t last = 0;
    for (uint32_t i = 0; i < buckets; i++) {
        last = bucket[i] > last ? bucket[i] : last;
    }
    *first = offset; /* those before are of other libraries */
    if (!last || last < offset) { /* it exports nothing */
        return offset;
    }
    while (!(chain[last - offset] & 1)) {
        last++;
    }
    return (size_t)last + 1;
}

/* The C library has made addresses of most offsets by now. */
static const void *
absolute(uintptr_t base, uintptr_t address)
{
    return (const void *)(address < base ? base + address : address);
}

static Symbols
symbols_of(const struct dl_phdr_info *object, const ElfW(Phdr) * dynamic)
{
    Symbols found = {0};
    uintptr_t base = object->dlpi_addr;
    for (const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(base + dynamic->p_vaddr); entry->d_tag != DT_NULL; entry++) {
        const void *at = absolute(base, entry->d_un.d_ptr);
        switch (entry->d_tag) {
        case DT_SYMTAB:
            found.symbols = at;
            break;
        case DT_STRTAB:
            found.names = at;
            break;
        case DT_STRSZ:
            found.names_size = entry->d_un.d_val;
            break;
        case DT_GNU_HASH:
            found.count = count_of(at, &found.first);
            break;
        case DT_HASH:
            found.count = found.count ? found.count : ((const uint32_t *)at)[1];
            break;
        default:
            break;
        }
    }
    if (!found.symbols || !found.names) {
        found.count = 0;
    }
    return found;
}

typedef struct {
    uintptr_t address;
    struct dl_phdr_info object; /* that it is in */
} Wanted;

static int
find_object(struct dl_phdr_info *object, size_t size, void *wanted_)
{
    (void)size;
    Wanted *wanted = wanted_;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && wanted->address - (object->dlpi_addr + part->p_vaddr) < part->p_memsz) {
            wanted->object = *object;
            return 1;
        }
    }
    return 0;
}

/* Not while the loader is locked, as it is in find_object(): it takes long, and gets memory. The library stays where it is
   meanwhile, as this thread is in a function of it. */
static void
read_library(Library *library, const struct dl_phdr_info *object)
{
    const ElfW(Phdr) *dynamic = NULL;
    library->start = UINTPTR_MAX;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t from = object->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
        if (part->p_type == PT_DYNAMIC) {
            dynamic = part;
        }
        if (part->p_type == PT_LOAD) {
            library->start = from < library->start ? from : library->start;
            library->end = to > library->end ? to : library->end;
        }
    }
    library->otherwise = is_of_cuda_in_c10(object->dlpi_name) ? ALLOCATORS : OTHER_FUNCTION;
    if (dynamic) {
        Symbols symbols = symbols_of(object, dynamic);
        keep_what_matters(library, &symbols, object->dlpi_addr);
    }
}

/* The library that an address is in, NULL if it is in none. */
static const Library *
library_of(uintptr_t address)
{
    for (size_t i = 0; i < known.count; i++) {
        if (address >= known.libraries[i].start && address < known.libraries[i].end) {
            return &known.libraries[i];
        }
    }
    if (known.count == known.room) {
        size_t room = known.room ? 2 * known.room : 64;
        Library *libraries = realloc(known.libraries, room * sizeof *libraries);
        if (!libraries) {
            return NULL;
        }
        known.libraries = libraries;
        known.room = room;
    }
    Wanted wanted = {.address = address};
    if (!dl_iterate_phdr(find_object, &wanted)) {
        return NULL;
    }
    Library *library = &known.libraries[known.count++];
    *library = (Library){0};
    read_library(library, &wanted.object);
    return library;
}

FunctionFound
functions_at(uintptr_t address)
{
    const Library *library = library_of(address);
    if (!library) {
        return (FunctionFound){0};
    }
    size_t low = 0, high = library->count; /* the first function that starts behind the address */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (library->functions[middle].start <= address) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    const Known *found = low ? &library->functions[low - 1] : NULL;
    if (!found || address - found->start >= found->size) {
        return (FunctionFound){.kind = library->otherwise};
    }
    return (FunctionFound){found->kind, found->start, found->size, found->name, found->length};
}

static int
read_unloaded(struct dl_phdr_info *object, size_t size, void *unloaded)
{
    (void)size;
    *(unsigned long long *)unloaded = object->dlpi_subs;
    return 1;
}

void
functions_lock(void)
{
    unsigned long long unloaded = 0;
    dl_iterate_phdr(read_unloaded, &unloaded);
    pthread_mutex_lock(&known.lock);
    if (unloaded != known.unloaded) {
        for (size_t i = 0; i < known.count; i++) {
            free(known.libraries[i].functions);
        }
        known.count = 0;
        known.unloaded = unloaded;
    }
}

void
functions_unlock(void)
{
    pthread_mutex_unlock(&known.lock);
}

void
functions_forked(void)
{
    memset(&known, 0, sizeof known); /* another thread of the parent may have been in the middle of a change */
    pthread_mutex_init(&known.lock, NULL);
}
