/* What each stream was given to do, by line, and the marks that tell how far the device came.

   Each call that puts work on a stream gets an entry with a number in a ring. If the work is another line's than the
   work before it on that stream, the stream first gets a mark: the device writes the number of that earlier work into
   the stream's slot once it has done it. After a fault, the first entry above the slot's number is of the line that
   never finished. Work that is captured has entries in a table that is not overwritten, and a slot for each capture
   and stream.

   All lies in one file that is mapped into memory, so that it outlives the process. ring.py reads it. Nothing here knows
   CUDA: what a mark is made by is in `Driver`. No lock is held while that or Python is called. */

#include "_marks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    SLOTS = 16384, STREAMS = 1024, /* of the slots, the first STREAMS are those of streams */
    LINES = 65536, STACKS = 65536, CODES = 32768, KERNELS = 16384, TEXT = 8 << 20,
    CAPTURED = 65536, RING = 65536, OUTER = 6, PAGE = 4096, MOST_FRAMES = 96, MOST_PINNED = 64, MOST_PATH = 4096, LONGEST_NAME = 1024,
    GRAPH_GAP = 16, /* a mark in a graph takes as long as two short kernels */
};

typedef struct {
    uint64_t number, time, event, sequence;
    uint32_t stream, line; /* line 0: not known */
    int32_t stack;
    uint32_t kernel; /* 0: none */
    uint32_t thread, visit, marked, slot;
    uint16_t kind, backward;
    uint32_t spare;
} Entry;

typedef struct {
    uint64_t context, handle;
    uint32_t thread, line; /* of the last work */
    uint32_t last, marked; /* the numbers of the last work and of the last mark */
    uint32_t settled;      /* the number of the last work that the host knows to be done */
    uint32_t spare;
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

static const struct {
    uint32_t rows, row_bytes;
} parts[PARTS] = {
    {SLOTS, 4}, {STREAMS, sizeof(Stream)}, {SLOTS - STREAMS, sizeof(Slot)}, {LINES, sizeof(Line)},
    {STACKS, sizeof(Stack)}, {CODES, sizeof(Code)}, {KERNELS, sizeof(Kernel)}, {TEXT, 1},
    {CAPTURED, sizeof(Entry)}, {RING, sizeof(Entry)},
};

typedef struct {
    char magic[8];
    uint64_t next;         /* the number of the next entry; numbers begin at 1 */
    uint32_t used[PARTS];  /* rows of each part */
    struct {
        uint64_t at, rows, row_bytes;
    } part[PARTS];
    struct {
        uint64_t time, number; /* number: of the next entry at that time */
        uint32_t code, call, thread, line;
        int32_t stack;
        uint32_t spare;
    } error;
    uint32_t fields[8];
    uint32_t marks, refused, refusal, lost_streams, lost_captured, closed, process, spare;
} Header;

_Static_assert(sizeof(Header) == 400 && sizeof(Entry) == 72, "ring.py says what the file looks like");

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

static struct {
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
} marks = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The thread's latest pieces of work of one line. */
static __thread struct {
    uint64_t epoch;
    uint32_t line, kernel, visit; /* kernel: of the first */
    int32_t stack;                /* of the first */
} run;

static void *
part(int which)
{
    return marks.map + marks.header->part[which].at;
}

/* Returns the offset of a copy of the text; 0, which is the empty text, if there is no room. */
static uint32_t
text_of(const char *text, size_t most)
{
    Header *header = marks.header;
    size_t length = strnlen(text, most);
    uint32_t at = header->used[AT_TEXT];
    if (at + length + 1 > TEXT) {
        return 0;
    }
    memcpy((char *)part(AT_TEXT) + at, text, length);
    header->used[AT_TEXT] = at + (uint32_t)length + 1; /* the file is of zeros */
    return at;
}

static uint32_t
whose(const char *file)
{
    for (int i = 0; i < marks.rule_count; i++) {
        const char *part = marks.rules[i].part;
        if (*part == '^' ? !strncmp(file, part + 1, strlen(part + 1)) : strstr(file, part) != NULL) {
            return marks.rules[i].whose;
        }
    }
    return USER;
}

/* Returns the value of a variable-length number of the line table, and moves on. */
static uint32_t
varint(const uint8_t **at, const uint8_t *end)
{
    uint32_t value = 0;
    for (int shift = 0; *at < end && shift < 30; shift += 6) {
        uint8_t byte = *(*at)++;
        value |= (uint32_t)(byte & 63) << shift;
        if (!(byte & 64)) {
            break;
        }
    }
    return value;
}

/* Returns the line of the instruction at `offset` bytes. The table: Objects/locations.md of CPython 3.11. */
static uint32_t
line_at(const KnownCode *code, uint32_t offset)
{
    const uint8_t *at = code->lines, *end = at + code->lines_bytes;
    uint32_t address = 0, line = code->first;
    while (at < end) {
        uint8_t byte = *at++;
        int form = byte >> 3 & 15;
        uint32_t bytes = 2 * ((byte & 7) + 1u);
        if (form == 13 || form == 14) {
            uint32_t value = varint(&at, end);
            line += value & 1 ? -(value >> 1) : value >> 1;
        }
        else if (form >= 10 && form <= 12) {
            line += (uint32_t)form - 10;
        }
        if (offset >= address && offset < address + bytes && form != 15) {
            return line;
        }
        address += bytes;
        while (at < end && !(*at & 128)) {
            at++;
        }
    }
    return code->first;
}

static uint32_t
row_of_code(uint32_t number)
{
    KnownCode *code = &marks.codes[number];
    Header *header = marks.header;
    if (!code->row && header->used[AT_CODES] < CODES) {
        uint32_t row = header->used[AT_CODES];
        ((Code *)part(AT_CODES))[row] =
            (Code){text_of(code->file, 4096), text_of(code->function, 512), code->first, code->whose};
        header->used[AT_CODES]++;
        code->row = 1 + row;
    }
    return code->row;
}

/* Returns the row of a line; 0 if there is no room. */
static uint32_t
line_of(uint32_t code, uint32_t offset)
{
    uint32_t number = line_at(&marks.codes[code], offset), row = row_of_code(code);
    if (!row) {
        return 0;
    }
    Header *header = marks.header;
    Line *lines = part(AT_LINES);
    uint32_t at = (row * 0x9E3779B1u ^ number * 0x85EBCA77u) & (2 * LINES - 1);
    for (; marks.line_slots[at]; at = (at + 1) & (2 * LINES - 1)) {
        const Line *line = &lines[marks.line_slots[at] - 1];
        if (line->code == row - 1 && line->number == number) {
            return marks.line_slots[at] - 1;
        }
    }
    if (header->used[AT_LINES] == LINES) {
        return 0;
    }
    uint32_t new = header->used[AT_LINES];
    lines[new] = (Line){.code = row - 1, .number = number, .whose = marks.codes[code].whose};
    for (int i = 0; i < marks.pinned_count; i++) {
        if (marks.pinned[i].number == number && !strcmp(marks.pinned[i].file, marks.codes[code].file)) {
            lines[new].pinned = 1 + marks.pinned[i].from;
        }
    }
    header->used[AT_LINES]++;
    marks.line_slots[at] = new + 1;
    return new;
}

/* Describes a stack that is new. The user's line is the innermost of those that are most the user's. */
static void
describe(int32_t number)
{
    FramePlace places[MOST_FRAMES];
    uint32_t all = frames_stack(number, places, MOST_FRAMES), count = 0, best = 0, most = 0;
    for (uint32_t i = 0; i < all; i++) {
        uint32_t of_frame = marks.codes[places[i].code].whose;
        if (of_frame == NOBODY) {
            continue;
        }
        if (!count || of_frame > most) {
            best = count;
            most = of_frame;
        }
        places[count++] = places[i];
    }
    Stack stack = {0};
    if (count) {
        stack.inner = line_of(places[0].code, places[0].offset);
        stack.line = line_of(places[best].code, places[best].offset);
        int outer = 0;
        for (uint32_t i = best + 1; i < count && outer < OUTER; i++) {
            if (marks.codes[places[i].code].whose == most) {
                stack.outer[outer++] = line_of(places[i].code, places[i].offset);
            }
        }
    }
    ((Stack *)part(AT_STACKS))[number] = stack;
    marks.described[number] = 1;
    if (marks.header->used[AT_STACKS] <= (uint32_t)number) {
        marks.header->used[AT_STACKS] = (uint32_t)number + 1;
    }
}

static uint32_t
line_of_stack(int32_t stack)
{
    if (stack < 0 || stack >= STACKS) {
        return 0;
    }
    if (!marks.described[stack]) {
        describe(stack);
    }
    return ((Stack *)part(AT_STACKS))[stack].line;
}

/* Pointers to names may be used again for others, so they only say where to look first. */
static uint32_t
kernel_of(const char *symbol)
{
    if (!symbol) {
        return 0;
    }
    Header *header = marks.header;
    Kernel *kernels = part(AT_KERNELS);
    const char *text = part(AT_TEXT);
    RecentKernel *recent = &marks.recent[frames_hash(symbol) & (RECENT_KERNELS - 1)];
    if (recent->symbol == symbol && !strncmp(text + kernels[recent->row].text, symbol, LONGEST_NAME)) {
        return recent->row;
    }
    uint64_t hash = 0xCBF29CE484222325u;
    for (const char *at = symbol; *at && at < symbol + LONGEST_NAME; at++) {
        hash = (hash ^ (uint8_t)*at) * 0x100000001B3u;
    }
    size_t at = (size_t)(hash ^ hash >> 32) & (2 * KERNELS - 1);
    uint32_t row = 0;
    for (; marks.kernel_slots[at] && !row; at = (at + 1) & (2 * KERNELS - 1)) {
        const Kernel *kernel = &kernels[marks.kernel_slots[at] - 1];
        if (kernel->hash == hash && !strncmp(text + kernel->text, symbol, LONGEST_NAME)) {
            row = marks.kernel_slots[at] - 1;
        }
    }
    if (!row) {
        if (header->used[AT_KERNELS] == KERNELS) {
            return 0;
        }
        row = header->used[AT_KERNELS]++;
        kernels[row] = (Kernel){.hash = hash, .text = text_of(symbol, LONGEST_NAME)};
        marks.kernel_slots[at] = row + 1;
    }
    *recent = (RecentKernel){symbol, row};
    return row;
}

/* Returns how often the program has come to this line as it did now, from another line's work to work with this stack;
   for graphs how often they were launched there. 0 if that is not known: a line that is alone in its loop looks like one
   that calls a library which loops. */
static uint32_t
visit_of(const Work *work, uint32_t line, uint32_t kernel)
{
    if (work->stack < 0 || work->stack >= STACKS) {
        return 0;
    }
    if (run.epoch != marks.epoch || run.line != line) {
        run.epoch = marks.epoch;
        run.line = line;
        run.stack = work->stack;
        run.kernel = kernel;
        run.visit = ++marks.visits[work->stack];
    }
    else if (work->kind == GRAPH) {
        run.visit = ++marks.visits[work->stack];
    }
    else if (run.stack == work->stack && run.kernel == kernel && run.visit == 1) {
        run.visit = 0;
    }
    return run.visit;
}

static uint32_t
stream_of(const Work *work)
{
    Header *header = marks.header;
    Stream *streams = part(AT_STREAMS);
    for (uint32_t i = 0; i < header->used[AT_STREAMS]; i++) {
        if (streams[i].handle == work->stream && streams[i].context == work->context &&
            streams[i].thread == work->per_thread) {
            return i;
        }
    }
    if (header->used[AT_STREAMS] == STREAMS) {
        header->lost_streams++;
        return STREAMS;
    }
    streams[header->used[AT_STREAMS]] =
        (Stream){.context = work->context, .handle = work->stream, .thread = work->per_thread};
    return header->used[AT_STREAMS]++;
}

static Slot *
slot_of(uint64_t capture, uint32_t stream)
{
    Header *header = marks.header;
    Slot *slots = part(AT_CAPTURES);
    for (uint32_t i = header->used[AT_CAPTURES]; i--;) {
        if (slots[i].capture == capture && slots[i].stream == stream) {
            return &slots[i];
        }
    }
    if (header->used[AT_CAPTURES] == SLOTS - STREAMS) {
        return NULL;
    }
    Slot *slot = &slots[header->used[AT_CAPTURES]++];
    *slot = (Slot){.capture = capture, .stream = stream};
    return slot;
}

static uint32_t
slot_number(const Slot *slot)
{
    return STREAMS + (uint32_t)(slot - (const Slot *)part(AT_CAPTURES));
}

typedef struct {
    uint32_t slot, value;
    Entry *entry; /* before which it is put, or NULL */
} Mark;

static Entry *
fill(Entry *entry, const Work *work, uint64_t number, uint32_t stream, uint32_t line)
{
    uint32_t kernel = kernel_of(work->symbol);
    *entry = (Entry){
        .number = number, .time = work->time, .event = work->event, .sequence = work->sequence, .stream = stream,
        .line = line, .stack = work->stack, .kernel = kernel, .thread = work->thread,
        .visit = work->kind < RECORD ? visit_of(work, line, kernel ? kernel : KERNELS + work->kind) : 0,
        .kind = (uint16_t)work->kind, .backward = (uint16_t)work->backward,
    };
    return entry;
}

/* Returns whether the work before is to be marked: whether this is another line's, a graph, or an event, which another
   stream may wait for or which may hold this one up. */
static int
changes(const Work *work, uint32_t line, uint32_t last, uint32_t last_line, uint32_t marked)
{
    return last != marked && (last_line != line || work->kind >= RECORD || work->kind == GRAPH);
}

static Event *
event_at(uint64_t event)
{
    return &marks.events[frames_hash((const void *)(uintptr_t)event) & (EVENTS - 1)];
}

static int
note(const Work *work, Mark *mark)
{
    Header *header = marks.header;
    uint32_t line = line_of_stack(work->stack), stream = stream_of(work);
    if (stream == STREAMS) {
        return 0;
    }
    Stream *on = (Stream *)part(AT_STREAMS) + stream;
    uint64_t number = header->next;
    Entry *entry = fill((Entry *)part(AT_RING) + number % RING, work, number, stream, line);
    if (changes(work, line, on->last, on->line, on->marked)) {
        *mark = (Mark){stream, on->last, entry};
        on->marked = on->last;
    }
    if (work->kind < RECORD) {
        on->last = (uint32_t)number;
        on->line = line;
    }
    else if (work->kind == RECORD) {
        *event_at(work->event) = (Event){work->event, stream, on->last};
    }
    __atomic_store_n(&header->next, number + 1, __ATOMIC_RELEASE);
    const Line *at = (Line *)part(AT_LINES) + line;
    return work->kind < RECORD && at->pinned && (!entry->visit || entry->visit + 1 >= at->pinned);
}

static void
note_captured(const Work *work, Mark *mark)
{
    Header *header = marks.header;
    uint32_t line = line_of_stack(work->stack), stream = stream_of(work), number = header->used[AT_CAPTURED];
    Slot *slot = stream == STREAMS || number == CAPTURED || work->kind >= RECORD ? NULL : slot_of(work->capture, stream);
    if (!slot) {
        header->lost_captured += work->kind < RECORD;
        return;
    }
    Entry *entry = fill((Entry *)part(AT_CAPTURED) + number, work, number, stream, line);
    entry->slot = slot_number(slot);
    if (!slot->last) {
        *mark = (Mark){slot_number(slot), BEGUN, entry};
        slot->first = number;
        slot->marked = number - 1;
    }
    else if (slot->last - slot->marked >= (marks.pinned_count ? 1 : GRAPH_GAP) &&
             changes(work, line, slot->last, slot->line, slot->marked)) {
        *mark = (Mark){slot_number(slot), slot->last, entry};
        slot->marked = slot->last;
    }
    slot->last = number;
    slot->line = line;
    header->used[AT_CAPTURED]++;
}

static void
put(uint64_t stream, const Mark *mark)
{
    int result = marks.driver.write(stream, mark->slot, mark->value);
    pthread_mutex_lock(&marks.lock);
    Header *header = marks.header;
    if (header) {
        header->marks++;
        if (result) {
            header->refused++;
            header->refusal = (uint32_t)result;
        }
        if (mark->entry) {
            mark->entry->marked = result ? REFUSED + (uint32_t)result : MARKED;
        }
    }
    pthread_mutex_unlock(&marks.lock);
}

int
marks_on(void)
{
    return marks.on;
}

int
marks_work(const Work *work)
{
    Mark mark = {0};
    int waits = 0;
    pthread_mutex_lock(&marks.lock);
    if (marks.on) {
        if (work->capture) {
            note_captured(work, &mark);
            mark.value = marks.header->fields[CAPTURES] == REFUSED_CAPTURES ? 0 : mark.value;
        }
        else {
            waits = note(work, &mark);
        }
    }
    pthread_mutex_unlock(&marks.lock);
    if (mark.value) {
        put(work->stream, &mark);
    }
    return waits;
}

uint64_t
marks_next(void)
{
    Header *header = marks.header;
    return header ? header->next : 0;
}

void
marks_stream_done(uint64_t context, uint64_t stream, uint32_t per_thread, int all, uint64_t before)
{
    pthread_mutex_lock(&marks.lock);
    if (marks.on) {
        Stream *streams = part(AT_STREAMS);
        for (uint32_t i = 0; i < marks.header->used[AT_STREAMS]; i++) {
            int is_it = all || (streams[i].handle == stream && streams[i].thread == per_thread);
            if (is_it && streams[i].context == context && streams[i].last < (uint32_t)before) {
                streams[i].settled = streams[i].last;
            }
        }
    }
    pthread_mutex_unlock(&marks.lock);
}

void
marks_event_done(uint64_t event)
{
    pthread_mutex_lock(&marks.lock);
    const Event *recorded = event_at(event);
    if (marks.on && recorded->event == event) {
        Stream *on = (Stream *)part(AT_STREAMS) + recorded->stream;
        if (recorded->number - on->settled < 1u << 31) {
            on->settled = recorded->number;
        }
    }
    pthread_mutex_unlock(&marks.lock);
}

int
marks_wait(const Work *work)
{
    uint64_t before = marks_next();
    int result = marks.driver.wait(work->stream);
    if (!result) {
        marks_stream_done(work->context, work->stream, work->per_thread, 0, before);
    }
    return result;
}

uint64_t
marks_context(void)
{
    pthread_mutex_lock(&marks.lock);
    int is_known = marks.on && marks.header->used[AT_STREAMS];
    uint64_t context = is_known ? ((Stream *)part(AT_STREAMS))->context : 0;
    pthread_mutex_unlock(&marks.lock);
    return context;
}

void
marks_end_capture(uint64_t context, uint64_t stream, uint64_t capture)
{
    Mark mark = {0};
    Work work = {.context = context, .stream = stream};
    pthread_mutex_lock(&marks.lock);
    if (marks.on) {
        Slot *slot = slot_of(capture, stream_of(&work));
        if (slot && marks.header->fields[CAPTURES] != REFUSED_CAPTURES) {
            slot->is_origin = 1;
            mark = (Mark){slot_number(slot), FINISHED, NULL};
        }
    }
    pthread_mutex_unlock(&marks.lock);
    if (mark.value) {
        put(stream, &mark);
    }
}

int
marks_error(int code, uint32_t call, int32_t stack, uint32_t thread, uint64_t time)
{
    pthread_mutex_lock(&marks.lock);
    Header *header = marks.header;
    int is_first = marks.on && header && !header->error.code;
    if (is_first) {
        header->error.time = time;
        header->error.number = header->next;
        header->error.call = call;
        header->error.thread = thread;
        header->error.stack = stack;
        header->error.line = line_of_stack(stack);
        header->error.code = (uint32_t)code;
        marks.on = 0;
    }
    pthread_mutex_unlock(&marks.lock);
    return is_first;
}

void
marks_describe(uint32_t number, PyObject *code)
{
    KnownCode known = {.file = "", .function = ""};
    PyObject *file = PyObject_GetAttrString(code, "co_filename"), *name = PyObject_GetAttrString(code, "co_qualname"),
             *first = PyObject_GetAttrString(code, "co_firstlineno"), *lines = PyObject_GetAttrString(code, "co_linetable");
    char *bytes = NULL;
    if (file && name && first && lines && PyBytes_AsStringAndSize(lines, &bytes, &known.lines_bytes) == 0) {
        const char *text = PyUnicode_AsUTF8AndSize(file, NULL), *function = PyUnicode_AsUTF8AndSize(name, NULL);
        known.lines = (const uint8_t *)bytes;
        known.file = text ? text : "";
        known.function = function ? function : "";
        known.first = (uint32_t)PyLong_AsLong(first);
        known.whose = whose(known.file);
    }
    PyErr_Clear();
    Py_XDECREF(file), Py_XDECREF(name), Py_XDECREF(first), Py_XDECREF(lines); /* the code keeps them */
    pthread_mutex_lock(&marks.lock);
    if (number >= marks.code_room) {
        uint32_t room = 2 * number + 1024;
        KnownCode *more = realloc(marks.codes, room * sizeof *more);
        if (more) {
            memset(more + marks.code_room, 0, (room - marks.code_room) * sizeof *more);
            marks.codes = more;
            marks.code_room = room;
        }
    }
    if (number < marks.code_room) {
        marks.codes[number] = known;
    }
    pthread_mutex_unlock(&marks.lock);
}

int
marks_set_files(const FileRule *rules, int count)
{
    FileRule *copies = calloc((size_t)count + 1, sizeof *copies);
    for (int i = 0; copies && i < count; i++) {
        copies[i] = (FileRule){strdup(rules[i].part), rules[i].whose};
    }
    for (int i = 0; i < marks.rule_count; i++) {
        free((char *)marks.rules[i].part);
    }
    free(marks.rules);
    marks.rules = copies;
    marks.rule_count = copies ? count : 0;
    return copies ? 0 : -1;
}

static void
read_pinned(const char *pinned)
{
    marks.pinned_count = 0;
    while (pinned && *pinned && marks.pinned_count < MOST_PINNED) {
        const char *end = strchrnul(pinned, '\n');
        char line[MOST_PATH] = "";
        size_t length = (size_t)(end - pinned);
        memcpy(line, pinned, length < sizeof line - 1 ? length : sizeof line - 1);
        char *from = strrchr(line, ':');
        if (from) {
            *from++ = 0;
            char *number = strrchr(line, ':');
            if (number) {
                *number++ = 0;
                memcpy(marks.pinned[marks.pinned_count].file, line, sizeof marks.pinned->file - 1);
                marks.pinned[marks.pinned_count].number = (uint32_t)strtoul(number, NULL, 10);
                marks.pinned[marks.pinned_count++].from = (uint32_t)strtoul(from, NULL, 10);
            }
        }
        pinned = *end ? end + 1 : end;
    }
}

static int
make_file(const char *path, size_t bytes)
{
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) {
        return errno;
    }
    int error = EINTR;
    while (error == EINTR) {
        error = posix_fallocate(file, 0, (off_t)bytes); /* a full disk would raise SIGBUS later */
    }
    void *map = error ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    error = error ? error : map == MAP_FAILED ? errno : 0;
    close(file);
    if (error) {
        unlink(path);
        return error;
    }
    marks.map = map;
    marks.map_bytes = bytes;
    return 0;
}

int
marks_open(const char *path, const Driver *driver, const char *pinned)
{
    if (marks.header) {
        return EBUSY;
    }
    Header start = {.magic = "UNSTBLM1", .next = 1, .process = (uint32_t)getpid()};
    size_t bytes = PAGE;
    for (int i = 0; i < PARTS; i++) {
        start.part[i].at = bytes;
        start.part[i].rows = parts[i].rows;
        start.part[i].row_bytes = parts[i].row_bytes;
        bytes += ((size_t)parts[i].rows * parts[i].row_bytes + PAGE - 1) / PAGE * PAGE;
    }
    /* Row 0 of these stands for none. */
    start.used[AT_SLOTS] = SLOTS;
    start.used[AT_LINES] = start.used[AT_CODES] = start.used[AT_KERNELS] = start.used[AT_TEXT] = 1;
    start.used[AT_CAPTURED] = 1;
    int error = make_file(path, bytes);
    if (error) {
        return error;
    }
    marks.visits = calloc(STACKS, sizeof *marks.visits);
    marks.line_slots = calloc(2 * LINES, sizeof *marks.line_slots);
    marks.kernel_slots = calloc(2 * KERNELS, sizeof *marks.kernel_slots);
    marks.described = calloc(STACKS, 1);
    if (!marks.visits || !marks.line_slots || !marks.kernel_slots || !marks.described) {
        return ENOMEM;
    }
    for (uint32_t i = 0; i < marks.code_room; i++) {
        marks.codes[i].row = 0;
    }
    read_pinned(pinned);
    memcpy(marks.map, &start, sizeof start);
    memset(marks.events, 0, sizeof marks.events);
    memset(marks.recent, 0, sizeof marks.recent);
    marks.driver = *driver;
    marks.epoch++;
    marks.header = (Header *)marks.map;
    marks.on = 1;
    return 0;
}

int
marks_close(int keep)
{
    pthread_mutex_lock(&marks.lock);
    Header *header = marks.header;
    marks.on = 0;
    if (header) {
        header->closed = 1;
        keep |= header->used[AT_CAPTURES] > 0;
        marks.header = NULL;
        if (!keep) {
            munmap(marks.map, marks.map_bytes);
        }
        marks.map = NULL;
        free(marks.visits), free(marks.line_slots), free(marks.kernel_slots);
        free(marks.described);
        marks.visits = marks.line_slots = marks.kernel_slots = NULL;
        marks.described = NULL;
    }
    pthread_mutex_unlock(&marks.lock);
    return keep;
}

void *
marks_slots(uint64_t *bytes)
{
    *bytes = SLOTS * 4;
    return marks.header ? part(AT_SLOTS) : NULL;
}

void
marks_note(int field, uint32_t value)
{
    if (marks.header) {
        marks.header->fields[field] = value;
    }
}

void
marks_forked(void)
{
    pthread_mutex_init(&marks.lock, NULL);
    marks.on = 0;
    marks.header = NULL;
    marks.map = NULL;
}
