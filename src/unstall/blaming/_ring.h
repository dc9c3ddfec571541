/* What the file of a ring looks like, and the one that is open. ring.py has the same. Private to _marks.c, _places.c and
   _ring.c. */

#ifndef UNSTALL_RING_H
#define UNSTALL_RING_H

#include "_marks.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    SLOTS = 16384, STREAMS = 1024, /* of the slots, the first STREAMS are those of streams */
    LINES = 65536, STACKS = 65536, CODES = 32768, KERNELS = 16384, TEXT = 8 << 20,
    CAPTURED = 65536, OUTER = 6, PAGE = 4096, MOST_FRAMES = 96, MOST_PINNED = 64, MOST_PATH = 4096,
    LONGEST_NAME = 1024,
    RING = 16384, /* a stream's queue holds about 1,000 launches; more entries would not stay in the cache */
    GRAPH_GAP = 64, /* a mark in a graph takes as long as two short kernels */
};

typedef struct {
    uint64_t number, time, event;
    uint32_t stream, line; /* line 0: not known */
    int32_t stack;
    uint32_t kernel; /* 0: none */
    uint32_t thread, visit, marked, slot;
    uint16_t kind, backward;
    uint32_t value; /* of WAIT_VALUE and WRITE_VALUE */
} Entry;

typedef struct {
    uint64_t context, handle;
    uint32_t thread, line; /* of the last work */
    uint32_t last, marked; /* the numbers of the last work and of the last mark */
    uint32_t settled;      /* the number of the last work that the host knows to be done */
    uint32_t gone;         /* destroyed, and got no work since */
} Stream;

typedef struct {
    uint64_t capture;
    uint32_t stream, last, marked, line;
    uint32_t first, is_origin;
} Slot; /* of a capture's stream; slot STREAMS + its row */

typedef struct {
    uint32_t code, number, whose, pinned; /* pinned: 1 + the visit from which its work is waited for */
} Line;

typedef struct {
    uint32_t line, inner, outer[OUTER]; /* the user's line, the innermost one, those around the user's */
} Stack;

typedef struct {
    uint32_t file, function, first, whose; /* file, function: texts */
} Code;

typedef struct {
    uint64_t hash;
    uint32_t text, spare;
} Kernel;

enum { AT_SLOTS, AT_STREAMS, AT_CAPTURES, AT_LINES, AT_STACKS, AT_CODES, AT_KERNELS, AT_TEXT, AT_CAPTURED, AT_RING, PARTS };

typedef struct {
    char magic[8];
    uint64_t next;         /* the number of the next entry; numbers begin at 1 */
    uint32_t used[PARTS];  /* rows of each part */
    struct {
        uint64_t at, rows, row_bytes;
    } part[PARTS];
    struct {
        uint64_t time, number; /* number: of the next entry at that time */
        uint32_t code, call, thread, line; /* call: a text */
        int32_t stack;
        uint32_t spare;
    } error;
    uint32_t fields[8];
    uint32_t marks, refused, refusal, lost_streams, lost_captured, closed, process, spare;
} Header;

_Static_assert(sizeof(Header) == 400 && sizeof(Entry) == 64, "ring.py says what the file looks like");

typedef struct {
    uint64_t event;
    uint32_t stream, number; /* of the last work before its record */
} Event;

typedef struct {
    const char *symbol;
    uint32_t row;
} RecentKernel;

enum { EVENTS = 4096, RECENT_KERNELS = 4096 };

typedef struct {
    const char *file, *function;
    const uint8_t *lines;
    Py_ssize_t lines_bytes;
    uint32_t first, whose, row; /* row: 1 + that in the file, once it is there */
} KnownCode; /* its texts live as long as the code, which _frames.c keeps */

extern struct Marks {
    pthread_mutex_t lock;
    Header *_Atomic header; /* NULL: none is open */
    _Atomic int on;
    uint8_t *map;
    size_t map_bytes;
    Driver driver;
    KnownCode *codes;
    uint32_t code_room;
    FileRule *rules;
    int rule_count;
    uint32_t *visits; /* by stack */
    uint64_t epoch;   /* the number of the marks_open() */
    uint32_t *line_slots, *kernel_slots; /* 1 + row, by hash */
    Event events[EVENTS]; /* by hash; a later one replaces an earlier one */
    RecentKernel recent[RECENT_KERNELS]; /* by a hash of the pointer */
    uint8_t *described; /* by stack */
    struct {
        char file[MOST_PATH];
        uint32_t number, from;
    } pinned[MOST_PINNED];
    int pinned_count;
} marks;

static inline void *
part(int which)
{
    return marks.map + marks.header->part[which].at;
}

/* These need the lock. */
uint32_t places_line(int32_t stack);        /* the row of a stack's user's line; 0 if there is none */
uint32_t places_kernel(const char *symbol); /* the row of a kernel; 0 if there is none */
uint32_t places_text(const char *text);      /* where a copy of it is */
void places_unloaded(void);                 /* pointers to names may stand for other names from now on */

/* Marks get `share` millionths of the time from now on, besides the `first`. `cost`: of a mark in ns, 0 if it is to be
   measured. */
void budget_start(uint32_t share, uint32_t first, uint32_t cost);
int budget_allows(uint64_t time, int is_behind); /* asked only if a mark is to be put then */
void budget_took(uint64_t ns);                   /* how long a mark took while the device was not behind */

#endif
