/* Replaces addresses in a library's table of symbols, by which the dynamic linker and dlsym() answer: whoever asks for a
   function from then on gets ours. That is how libraries are seen that keep what they were given on the heap or read-only,
   or ask at each call, as ctypes does.

   The table is the process's own copy of a page of the library's file. It is made writable for the moment. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "_search.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    ElfW(Sym) *symbols;
    size_t count;
    uintptr_t base; /* of the library's addresses */
} Table;

/* How many symbols a table of hashes (DT_GNU_HASH) knows: the last chain ends with the last symbol. */
static size_t
count_by_hashes(const uint32_t *hashes)
{
    uint32_t buckets = hashes[0], first = hashes[1], words = hashes[2], last = 0;
    const uint32_t *bucket = hashes + 4 + words * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++) {
        last = bucket[i] > last ? bucket[i] : last;
    }
    if (last < first) {
        return first;
    }
    while (!(chain[last - first] & 1)) {
        last++;
    }
    return (size_t)last + 1;
}

/* Returns 0, or an errno. */
static int
find_table(void *library, Table *table)
{
    struct link_map *map;
    const uint32_t *hashes = NULL, *old_hashes = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map)) {
        return EINVAL;
    }
    table->base = map->l_addr;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        uintptr_t at = entry->d_un.d_ptr < map->l_addr ? entry->d_un.d_ptr + map->l_addr : entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB) {
            table->symbols = (ElfW(Sym) *)at;
        }
        else if (entry->d_tag == DT_GNU_HASH) {
            hashes = (const uint32_t *)at;
        }
        else if (entry->d_tag == DT_HASH) {
            old_hashes = (const uint32_t *)at;
        }
    }
    table->count = old_hashes ? old_hashes[1] : hashes ? count_by_hashes(hashes) : 0;
    return table->symbols && table->count ? 0 : ENOEXEC;
}

/* How the memory at an address may be used, as mprotect() has it; -1 if that is not known. */
static int
rights_at(uintptr_t address)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int rights = -1;
    while (maps && rights < 0 && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char letters[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, letters) == 3 && address >= start && address < end) {
            rights = (letters[0] == 'r' ? PROT_READ : 0) | (letters[1] == 'w' ? PROT_WRITE : 0) |
                     (letters[2] == 'x' ? PROT_EXEC : 0);
        }
    }
    if (maps) {
        fclose(maps);
    }
    return rights;
}

static const Exchange *
row_of(const Wanted *wanted, const Table *table, size_t i)
{
    const ElfW(Sym) *symbol = &table->symbols[i];
    int is_function = symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
    return is_function ? search_row(wanted, (Word)(table->base + symbol->st_value)) : NULL;
}

int
search_names(const Wanted *wanted, void *library)
{
    Table table = {0};
    int error = find_table(library, &table);
    if (error) {
        return error;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)table.symbols & ~(uintptr_t)(page - 1);
    uintptr_t end = ((uintptr_t)(table.symbols + table.count) + page - 1) & ~(uintptr_t)(page - 1);
    int rights = rights_at((uintptr_t)table.symbols);
    if (rights < 0 || mprotect((void *)start, end - start, rights | PROT_WRITE)) {
        return rights < 0 ? EINVAL : errno;
    }
    for (size_t i = 0; i < table.count; i++) {
        const Exchange *row = row_of(wanted, &table, i);
        if (row) {
            __atomic_store_n(&table.symbols[i].st_value, (uintptr_t)row->to - table.base, __ATOMIC_RELEASE);
        }
    }
    return mprotect((void *)start, end - start, rights) ? errno : 0;
}
