/* Scans a JSON list of trace events straight into columns.

   `decode.py` and `columns.py` define the results; this is their fast way for events as recorders write them. The scan
   is stricter than a JSON decoder: whatever is unusual (an escape by number, a key twice, a value of another type, an
   exponent, a time below 0) makes it return None, and the piece is decoded there. So it never repairs anything, and
   never has an opinion of its own.

   Texts are numbered in the order in which the piece first has them. Rows are those of complete events. Events that are
   neither complete nor of no use are returned as spans, for the decoder. */

#define Py_LIMITED_API 0x030B0000 /* from 3.11 on it has the buffer protocol */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_DEPTH = 64,
    MOST_ID_DIGITS = 18,
    MOST_FRACTION_DIGITS = 15,
};
#define MOST_US 3000000000000000 /* as in decode.py */

typedef struct {
    const char *start; /* NULL: absent */
    Py_ssize_t length;
    int plain; /* of a text: no escapes, and ASCII only */
} Span;

/* The fields of `Args` in schema.py. A column is a group of fields; its first fields are ids, the others spans. */
enum {
    DEVICE, STREAM, ORIGINAL_STREAM, BYTES, SHARE, EXTERNAL, OLD_EXTERNAL, CORRELATION, SYNC_ON_STREAM, SYNC_RECORD,
    SYNC_EVENT, SEQUENCE, FORWARD_THREAD,
    IDS,
    STACK = IDS,
    SHAPES, OLD_SHAPES, GRID,
    COLLECTIVE, DTYPE, SENT, RECEIVED, RANKS, GROUP, GROUP_IS, MEMBERS, SEQUENCE_IN_GROUP, SOURCE, TARGET,
    FIELDS,
    UNUSUAL = FIELDS, /* fields of torch's second profiler, which take part in names */
};
enum { SPANS = FIELDS - IDS, DESCRIBED = TARGET - COLLECTIVE + 1 };

static const struct {
    const char *name;
    int field;
} args_keys[] = {
    {"Seq", SEQUENCE_IN_GROUP},
    {"grid", GRID},
    {"bytes", BYTES},
    {"dtype", DTYPE},
    {"device", DEVICE},
    {"stream", STREAM},
    {"Src Rank", SOURCE},
    {"Dst Rank", TARGET},
    {"src kind", UNUSUAL},
    {"dst kind", UNUSUAL},
    {"copy kind", UNUSUAL},
    {"Call stack", STACK},
    {"Input Dims", SHAPES},
    {"Input dims", OLD_SHAPES},
    {"Group size", RANKS},
    {"External id", EXTERNAL},
    {"correlation", CORRELATION},
    {"external id", OLD_EXTERNAL},
    {"memory kind", UNUSUAL},
    {"device share", SHARE},
    {"Fwd thread id", FORWARD_THREAD},
    {"In msg nelems", SENT},
    {"Out msg nelems", RECEIVED},
    {"wait_on_stream", SYNC_ON_STREAM},
    {"original_stream", ORIGINAL_STREAM},
    {"Sequence number", SEQUENCE},
    {"Collective name", COLLECTIVE},
    {"Process Group Name", GROUP},
    {"Process Group Ranks", MEMBERS},
    {"wait_on_cuda_event_id", SYNC_EVENT},
    {"Process Group Description", GROUP_IS},
    {"wait_on_cuda_event_record_corr_id", SYNC_RECORD},
};
enum { ARGS_KEYS = sizeof args_keys / sizeof args_keys[0], LONGEST_KEY = 33 };

enum { PHASE, CATEGORY, NAME, PROCESS, THREAD, TIME, DURATION, ARGS, ID, NO_KEY };

typedef struct {
    Span phase, category, name, process, thread;
    int64_t start, duration;
    uint64_t in_args; /* the fields that it has, by bit: only these are set */
    unsigned in_event;
    int64_t ids[IDS];
    Span spans[SPANS];
} Event;

/* A growing column. */
typedef struct {
    char *data;
    Py_ssize_t used, room;
} Buffer;

/* Distinct texts, and the numbers that they were given. */
typedef struct {
    Span *spans;
    uint64_t *hashes;
    int32_t *slots; /* number + 1, or 0 */
    int32_t count, room, slot_count;
} Table;

enum {
    LANE, NAMES, START, DURATIONS, EXTERNALS, CORRELATIONS, LANES, OF_DEVICE, OF_SYNC, OF_AUTOGRAD, STACKS, SHAPED,
    OF_COLLECTIVE, OTHERS, BUFFERS
};

typedef struct {
    const char *begin, *at, *end;
    Py_ssize_t first_key[LONGEST_KEY + 2]; /* by length: where its keys begin in `args_keys` */
    Table texts, jsons, lanes;
    Span lane[3]; /* of the last event: category, process and thread */
    int32_t lane_number;
    Buffer buffers[BUFFERS];
    int32_t rows;
    int64_t events; /* all but the others */
    int out_of_memory;
} Scan;

/* ---- columns and tables ---- */

static int
append(Scan *scan, int which, const void *data, Py_ssize_t size)
{
    Buffer *buffer = &scan->buffers[which];
    if (buffer->room - buffer->used < size) {
        Py_ssize_t room = buffer->room ? 2 * buffer->room : 1024;
        while (room - buffer->used < size) {
            room *= 2;
        }
        char *moved = realloc(buffer->data, (size_t)room);
        if (moved == NULL) {
            scan->out_of_memory = 1;
            return 0;
        }
        buffer->data = moved;
        buffer->room = room;
    }
    memcpy(buffer->data + buffer->used, data, (size_t)size);
    buffer->used += size;
    return 1;
}

static uint64_t
hash_of(const char *data, Py_ssize_t length)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ (uint64_t)length, word;
    for (; length >= 8; data += 8, length -= 8) {
        memcpy(&word, data, 8);
        hash = (hash ^ word) * 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, data, (size_t)length);
    hash = (hash ^ word) * 0xC4CEB9FE1A85EC53u;
    return hash ^ hash >> 29;
}

static int
grow(Table *table)
{
    int32_t room = table->room ? 2 * table->room : 256, slots = 4 * room;
    Span *spans = realloc(table->spans, (size_t)room * sizeof *spans);
    table->spans = spans ? spans : table->spans;
    uint64_t *hashes = realloc(table->hashes, (size_t)room * sizeof *hashes);
    table->hashes = hashes ? hashes : table->hashes;
    int32_t *slot = calloc((size_t)slots, sizeof *slot);
    if (!spans || !hashes || !slot) {
        free(slot);
        return 0;
    }
    for (int32_t i = 0; i < table->count; i++) {
        uint64_t at = hashes[i] & (uint64_t)(slots - 1);
        while (slot[at]) {
            at = (at + 1) & (uint64_t)(slots - 1);
        }
        slot[at] = i + 1;
    }
    free(table->slots);
    table->slots = slot;
    table->slot_count = slots;
    table->room = room;
    return 1;
}

/* Returns the number of a text, or -1 if there is no memory. */
static int32_t
number_of(Scan *scan, Table *table, Span span)
{
    if (table->count == table->room && !grow(table)) {
        scan->out_of_memory = 1;
        return -1;
    }
    uint64_t hash = hash_of(span.start, span.length), at = hash & (uint64_t)(table->slot_count - 1);
    for (; table->slots[at]; at = (at + 1) & (uint64_t)(table->slot_count - 1)) {
        int32_t number = table->slots[at] - 1;
        const Span *other = &table->spans[number];
        if (table->hashes[number] == hash && other->length == span.length
            && memcmp(other->start, span.start, (size_t)span.length) == 0) {
            return number;
        }
    }
    table->slots[at] = table->count + 1;
    table->spans[table->count] = span;
    table->hashes[table->count] = hash;
    return table->count++;
}

/* ---- JSON; each function returns 0 if the text is not as usual ---- */

static inline void
skip_space(Scan *scan)
{
    while (scan->at < scan->end
           && (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' || *scan->at == '\r')) {
        scan->at++;
    }
}

static inline int
take(Scan *scan, char wanted)
{
    skip_space(scan);
    if (scan->at < scan->end && *scan->at == wanted) {
        scan->at++;
        return 1;
    }
    return 0;
}

#define EACH(byte) (0x0101010101010101u * (uint64_t)(byte))
#define HAS_ZERO(word) (((word)-EACH(1)) & ~(word)&EACH(0x80))

/* Reads a string. The span has what stands between its quotes. */
static int
read_string(Scan *scan, Span *span)
{
    if (!take(scan, '"')) {
        return 0;
    }
    const char *at = scan->at, *end = scan->end;
    span->start = at;
    span->plain = 1;
    for (;;) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        while (end - at >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            /* a quote, a backslash, a control character, or a byte that is not ASCII: the lowest bit tells the first */
            uint64_t found = HAS_ZERO(word ^ EACH('"')) | HAS_ZERO(word ^ EACH('\\'))
                             | ((word - EACH(0x20)) & ~word & EACH(0x80)) | (word & EACH(0x80));
            if (found) {
                at += __builtin_ctzll(found) >> 3;
                break;
            }
            at += 8;
        }
#endif
        if (at >= end) {
            return 0;
        }
        unsigned char byte = (unsigned char)*at;
        if (byte == '"') {
            span->length = at - span->start;
            scan->at = at + 1;
            return 1;
        }
        if (byte < 0x20) {
            return 0;
        }
        if (byte == '\\') {
            if (end - at < 2 || at[1] == 0 || strchr("\"\\/bfnrt", at[1]) == NULL) {
                return 0; /* \u too: it may be half of a pair */
            }
            span->plain = 0;
            at++;
        }
        else if (byte >= 0x80) {
            span->plain = 0;
        }
        at++;
    }
}

static inline int
is_digit(const Scan *scan, const char *at)
{
    return at < scan->end && *at >= '0' && *at <= '9';
}

/* Reads a number that JSON allows. */
static int
skip_number(Scan *scan)
{
    const char *at = scan->at;
    at += *at == '-';
    if (!is_digit(scan, at)) {
        return 0;
    }
    if (*at == '0') {
        at++;
    }
    else {
        while (is_digit(scan, at)) {
            at++;
        }
    }
    if (at < scan->end && *at == '.') {
        at++;
        if (!is_digit(scan, at)) {
            return 0;
        }
        while (is_digit(scan, at)) {
            at++;
        }
    }
    if (at < scan->end && (*at == 'e' || *at == 'E')) {
        return 0;
    }
    scan->at = at;
    return 1;
}

static int
skip_word(Scan *scan, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, word, length) != 0) {
        return 0;
    }
    scan->at += length;
    return 1;
}

/* Reads any value. Its strings must be ASCII. */
static int
skip_value(Scan *scan, int depth)
{
    Span text;
    skip_space(scan);
    if (scan->at >= scan->end || depth > MOST_DEPTH) {
        return 0;
    }
    switch (*scan->at) {
    case '"':
        if (!read_string(scan, &text)) {
            return 0;
        }
        if (!text.plain) {
            for (Py_ssize_t i = 0; i < text.length; i++) {
                if ((unsigned char)text.start[i] >= 0x80) {
                    return 0;
                }
            }
        }
        return 1;
    case '[':
        scan->at++;
        if (take(scan, ']')) {
            return 1;
        }
        do {
            if (!skip_value(scan, depth + 1)) {
                return 0;
            }
        } while (take(scan, ','));
        return take(scan, ']');
    case '{':
        scan->at++;
        if (take(scan, '}')) {
            return 1;
        }
        do {
            if (!read_string(scan, &text) || !text.plain || !take(scan, ':') || !skip_value(scan, depth + 1)) {
                return 0;
            }
        } while (take(scan, ','));
        return take(scan, '}');
    case 't':
        return skip_word(scan, "true");
    case 'f':
        return skip_word(scan, "false");
    case 'n':
        return skip_word(scan, "null");
    default:
        return skip_number(scan);
    }
}

/* Reads a whole number of at most 18 digits. */
static int
read_id(Scan *scan, int64_t *value, Span *span)
{
    skip_space(scan);
    const char *begin = scan->at, *at = begin;
    int negative = at < scan->end && *at == '-';
    at += negative;
    const char *digits = at;
    int64_t found = 0;
    while (is_digit(scan, at) && at - digits < MOST_ID_DIGITS) {
        found = 10 * found + (*at++ - '0');
    }
    if (at == digits || is_digit(scan, at) || (*digits == '0' && (at - digits > 1 || negative))) {
        return 0;
    }
    if (at < scan->end && (*at == '.' || *at == 'e' || *at == 'E')) {
        return 0;
    }
    scan->at = at;
    *value = negative ? -found : found;
    if (span != NULL) {
        *span = (Span){begin, at - begin, 1};
    }
    return 1;
}

/* Reads a time in us, which is not negative; returns it in ns, to the nearest, and half to the even one. */
static int
read_time(Scan *scan, int64_t *ns)
{
    int64_t us = 0, nano = 0, rest = 0, half = 5;
    const char *at;
    skip_space(scan);
    at = scan->at;
    const char *digits = at;
    while (is_digit(scan, at) && at - digits < MOST_ID_DIGITS) {
        us = 10 * us + (*at++ - '0');
    }
    if (at == digits || is_digit(scan, at) || (*digits == '0' && at - digits > 1) || us >= MOST_US) {
        return 0;
    }
    if (at < scan->end && *at == '.') {
        const char *fraction = ++at;
        for (int i = 0; i < 3; i++) {
            nano *= 10;
            if (is_digit(scan, at)) {
                nano += *at++ - '0';
            }
        }
        if (at - fraction == 3 && is_digit(scan, at)) {
            rest = *at++ - '0';
            while (is_digit(scan, at) && at - fraction < MOST_FRACTION_DIGITS) {
                rest = 10 * rest + (*at++ - '0');
                half *= 10;
            }
        }
        if (at == fraction || is_digit(scan, at)) {
            return 0;
        }
    }
    if (at < scan->end && (*at == 'e' || *at == 'E')) {
        return 0;
    }
    scan->at = at;
    nano += us * 1000;
    *ns = nano + (rest > half || (rest == half && nano % 2));
    return 1;
}

/* ---- events ---- */

static int
read_text_or_id(Scan *scan, Span *span)
{
    int64_t value;
    skip_space(scan);
    if (scan->at < scan->end && *scan->at == '"') {
        return read_string(scan, span);
    }
    return read_id(scan, &value, span);
}

static int
field_of(const Scan *scan, Span key)
{
    if (key.length <= LONGEST_KEY) {
        for (Py_ssize_t i = scan->first_key[key.length]; i < scan->first_key[key.length + 1]; i++) {
            if (args_keys[i].name[0] == key.start[0]
                && memcmp(args_keys[i].name, key.start, (size_t)key.length) == 0) {
                return args_keys[i].field;
            }
        }
    }
    return -1;
}

static int
read_args(Scan *scan, Event *event)
{
    if (!take(scan, '{')) {
        return 0;
    }
    if (take(scan, '}')) {
        return 1;
    }
    do {
        Span key, *span;
        if (!read_string(scan, &key) || !key.plain || !take(scan, ':')) {
            return 0;
        }
        int field = field_of(scan, key);
        if (field < 0) {
            if (!skip_value(scan, 0)) {
                return 0;
            }
            continue;
        }
        if (field == UNUSUAL || event->in_args >> field & 1) {
            return 0;
        }
        event->in_args |= (uint64_t)1 << field;
        if (field < IDS) {
            if (!read_id(scan, &event->ids[field], NULL)) {
                return 0;
            }
            continue;
        }
        span = &event->spans[field - IDS];
        if (field == STACK) {
            if (!read_string(scan, span)) {
                return 0;
            }
            continue;
        }
        skip_space(scan);
        span->start = scan->at;
        if (!skip_value(scan, 0)) {
            return 0;
        }
        span->length = scan->at - span->start;
        span->plain = 1;
    } while (take(scan, ','));
    return take(scan, '}');
}

/* Is a span this text, which is written out? */
#define IS(span, text) ((span).length == sizeof(text) - 1 && memcmp((span).start, text, sizeof(text) - 1) == 0)

static int
key_of(Span key)
{
    switch (key.length) {
    case 2: return IS(key, "ph") ? PHASE : IS(key, "ts") ? TIME : IS(key, "id") ? ID : NO_KEY;
    case 3:
        return IS(key, "cat")   ? CATEGORY
               : IS(key, "pid") ? PROCESS
               : IS(key, "tid") ? THREAD
               : IS(key, "dur") ? DURATION
                                : NO_KEY;
    case 4: return IS(key, "name") ? NAME : IS(key, "args") ? ARGS : NO_KEY;
    default: return NO_KEY;
    }
}

static int
read_event(Scan *scan, Event *event)
{
    memset(event, 0, offsetof(Event, ids));
    if (!take(scan, '{') || take(scan, '}')) {
        return 0;
    }
    do {
        Span key;
        int64_t id;
        if (!read_string(scan, &key) || !key.plain || !take(scan, ':')) {
            return 0;
        }
        int which = key_of(key), read;
        if (event->in_event & 1u << which) {
            return 0;
        }
        event->in_event |= which == NO_KEY ? 0 : 1u << which;
        switch (which) {
        case PHASE: read = read_string(scan, &event->phase) && event->phase.plain; break;
        case CATEGORY: read = read_string(scan, &event->category); break;
        case NAME: read = read_string(scan, &event->name); break;
        case PROCESS: read = read_text_or_id(scan, &event->process); break;
        case THREAD: read = read_text_or_id(scan, &event->thread); break;
        case TIME: read = read_time(scan, &event->start); break;
        case DURATION: read = read_time(scan, &event->duration); break;
        case ARGS: read = read_args(scan, event); break;
        case ID: read = read_id(scan, &id, NULL); break;
        default: read = skip_value(scan, 0);
        }
        if (!read) {
            return 0;
        }
    } while (take(scan, ','));
    return take(scan, '}');
}

static int32_t
text_number(Scan *scan, Span span)
{
    if (span.start == NULL) {
        span = (Span){"", 0, 1};
    }
    return number_of(scan, &scan->texts, span);
}

static int64_t
json_number(Scan *scan, Span span)
{
    return span.start == NULL ? -1 : number_of(scan, &scan->jsons, span);
}

static int64_t
id_of(const Event *event, int field)
{
    return event->in_args >> field & 1 ? event->ids[field] : -1;
}

static Span
span_of(const Event *event, int field)
{
    return event->in_args >> field & 1 ? event->spans[field - IDS] : (Span){NULL, 0, 1};
}

/* Has the event any of the fields from `first` to `last`? */
static int
has(const Event *event, int first, int last)
{
    return (event->in_args >> first & (((uint64_t)2 << (last - first)) - 1)) != 0;
}

static inline int
is_same(Span a, Span b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.start, b.start, (size_t)a.length) == 0);
}

/* Returns the number of the event's lane, or -1 if there is no memory. Most events have the lane of the one before. */
static int32_t
lane_of(Scan *scan, const Event *event)
{
    const Span parts[3] = {event->category, event->process, event->thread};
    if (scan->rows && is_same(parts[0], scan->lane[0]) && is_same(parts[1], scan->lane[1])
        && is_same(parts[2], scan->lane[2])) {
        return scan->lane_number;
    }
    int32_t lane[3];
    for (int i = 0; i < 3; i++) {
        lane[i] = text_number(scan, scan->lane[i] = parts[i]);
    }
    if (scan->lanes.count == scan->lanes.room && !grow(&scan->lanes)) {
        scan->out_of_memory = 1;
    }
    if (scan->out_of_memory) {
        return -1;
    }
    /* The numbers of a lane's texts are kept where the table can point to them. */
    const Buffer *lanes = &scan->buffers[LANES];
    uint64_t hash = hash_of((const char *)lane, sizeof lane), at = hash & (uint64_t)(scan->lanes.slot_count - 1);
    for (; scan->lanes.slots[at]; at = (at + 1) & (uint64_t)(scan->lanes.slot_count - 1)) {
        int32_t other = scan->lanes.slots[at] - 1;
        if (memcmp(lanes->data + (size_t)other * sizeof lane, lane, sizeof lane) == 0) {
            return scan->lane_number = other;
        }
    }
    scan->lanes.slots[at] = scan->lanes.count + 1;
    scan->lanes.hashes[scan->lanes.count] = hash;
    scan->lane_number = scan->lanes.count++;
    return append(scan, LANES, lane, sizeof lane) ? scan->lane_number : -1;
}

/* Adds a row. Returns 0 if the event is unusual, or there is no memory. */
static int
add_complete(Scan *scan, const Event *event)
{
    const unsigned timed = 1u << TIME | 1u << DURATION;
    if ((event->in_event & timed) != timed || IS(event->name, "Memcpy") || IS(event->name, "Memset")) {
        return 0; /* without times it is not placed; of such names, the args tell more */
    }
    if (IS(event->category, "Trace") || IS(event->category, "Spans")) {
        return event->name.start == NULL || event->name.plain;
    }
    int32_t number = lane_of(scan, event), name = text_number(scan, event->name);
    if (scan->out_of_memory || scan->rows == INT32_MAX) {
        return 0;
    }
    int64_t external = id_of(event, EXTERNAL) >= 0 ? id_of(event, EXTERNAL) : id_of(event, OLD_EXTERNAL);
    int64_t correlation = id_of(event, CORRELATION);
    int64_t row = scan->rows++;
    append(scan, LANE, &number, sizeof number);
    append(scan, NAMES, &name, sizeof name);
    append(scan, START, &event->start, sizeof event->start);
    append(scan, DURATIONS, &event->duration, sizeof event->duration);
    append(scan, EXTERNALS, &external, sizeof external);
    append(scan, CORRELATIONS, &correlation, sizeof correlation);
    if (!event->in_args) {
        return !scan->out_of_memory;
    }
    if (has(event, DEVICE, SHARE) || has(event, GRID, GRID)) {
        int64_t stream = id_of(event, ORIGINAL_STREAM) < 0 ? id_of(event, STREAM) : id_of(event, ORIGINAL_STREAM);
        int64_t grid = json_number(scan, span_of(event, GRID));
        int64_t values[] = {row, id_of(event, DEVICE), stream, id_of(event, BYTES), grid, id_of(event, SHARE)};
        append(scan, OF_DEVICE, values, sizeof values);
    }
    if (has(event, SYNC_ON_STREAM, SYNC_EVENT)) {
        int64_t values[] = {row, id_of(event, SYNC_RECORD), id_of(event, SYNC_EVENT), id_of(event, SYNC_ON_STREAM)};
        append(scan, OF_SYNC, values, sizeof values);
    }
    if (id_of(event, SEQUENCE) >= 0 || id_of(event, FORWARD_THREAD) >= 0) {
        int64_t values[] = {row, id_of(event, SEQUENCE), id_of(event, FORWARD_THREAD)};
        append(scan, OF_AUTOGRAD, values, sizeof values);
    }
    if (span_of(event, STACK).length) {
        int64_t values[] = {row, text_number(scan, span_of(event, STACK))};
        append(scan, STACKS, values, sizeof values);
    }
    if (has(event, SHAPES, OLD_SHAPES)) {
        int64_t values[] = {row, json_number(scan, span_of(event, has(event, SHAPES, SHAPES) ? SHAPES : OLD_SHAPES))};
        append(scan, SHAPED, values, sizeof values);
    }
    if (has(event, COLLECTIVE, COLLECTIVE)) {
        int64_t values[1 + DESCRIBED] = {row};
        for (int i = 0; i < DESCRIBED; i++) {
            values[1 + i] = json_number(scan, span_of(event, COLLECTIVE + i));
        }
        append(scan, OF_COLLECTIVE, values, sizeof values);
    }
    return !scan->out_of_memory;
}

/* Is it an arrow of a kind that nobody reads, such as from a launch to its kernel? */
static int
is_idle_arrow(const Event *event)
{
    return (IS(event->phase, "s") || IS(event->phase, "f")) && event->category.start != NULL && event->category.plain
           && !IS(event->category, "fwdbwd") && !IS(event->category, "forward_backward")
           && (event->thread.start == NULL || event->thread.plain);
}

static int
scan_list(Scan *scan)
{
    Event event;
    if (!take(scan, '[')) {
        return 0;
    }
    if (!take(scan, ']')) {
        do {
            skip_space(scan);
            int64_t span[2] = {scan->at - scan->begin, 0};
            if (!read_event(scan, &event)) {
                return 0;
            }
            span[1] = scan->at - scan->begin;
            if (IS(event.phase, "X")) {
                scan->events++;
                if (!add_complete(scan, &event)) {
                    return 0;
                }
            }
            else if (is_idle_arrow(&event)) {
                scan->events++;
            }
            else if (!append(scan, OTHERS, span, sizeof span)) {
                return 0;
            }
        } while (take(scan, ','));
        if (!take(scan, ']')) {
            return 0;
        }
    }
    skip_space(scan);
    return scan->at == scan->end;
}

/* ---- results ---- */

/* Returns a text as Python has it, or NULL, with an error set if there is no memory. */
static PyObject *
text_of(Span span)
{
    if (span.plain || memchr(span.start, '\\', (size_t)span.length) == NULL) {
        return PyUnicode_DecodeUTF8(span.start, span.length, NULL);
    }
    char *text = malloc((size_t)span.length);
    if (text == NULL) {
        return PyErr_NoMemory();
    }
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    Py_ssize_t length = 0;
    for (Py_ssize_t i = 0; i < span.length; i++) {
        text[length++] = span.start[i] == '\\' ? meant[strchr(escapes, span.start[++i]) - escapes] : span.start[i];
    }
    PyObject *found = PyUnicode_DecodeUTF8(text, length, NULL);
    free(text);
    return found;
}

static PyObject *
list_of(const Table *table, int as_text)
{
    PyObject *list = PyList_New(table->count);
    for (int32_t i = 0; list != NULL && i < table->count; i++) {
        Span span = table->spans[i];
        PyObject *each = as_text ? text_of(span) : PyBytes_FromStringAndSize(span.start, span.length);
        if (each == NULL || PyList_SetItem(list, i, each) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* Returns (texts, jsons, number of events, columns), or None if a text is not UTF-8. */
static PyObject *
result_of(Scan *scan)
{
    PyObject *result = NULL, *columns = NULL, *jsons = NULL, *count = NULL, *texts = list_of(&scan->texts, 1);
    if (texts && (jsons = list_of(&scan->jsons, 0)) && (count = PyLong_FromLongLong(scan->events))
        && (columns = PyList_New(BUFFERS))) {
        int added = 1;
        for (int i = 0; added && i < BUFFERS; i++) {
            PyObject *column = PyBytes_FromStringAndSize(scan->buffers[i].data, scan->buffers[i].used);
            added = column != NULL && PyList_SetItem(columns, i, column) == 0;
        }
        result = added ? PyTuple_Pack(4, texts, jsons, count, columns) : NULL;
    }
    Py_XDECREF(texts);
    Py_XDECREF(jsons);
    Py_XDECREF(count);
    Py_XDECREF(columns);
    if (result == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        result = Py_NewRef(Py_None);
    }
    return result;
}

PyDoc_STRVAR(scan_doc, "scan(piece, /)\n--\n\nScans a JSON list of events; see __init__.py.");

static PyObject *
scan(PyObject *module, PyObject *object)
{
    (void)module;
    Py_buffer view;
    Scan scan = {0};
    PyObject *result = NULL;
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    scan.begin = scan.at = view.buf;
    scan.end = scan.begin + view.len;
    for (int length = 0, key = 0; length <= LONGEST_KEY + 1; length++) {
        while (key < ARGS_KEYS && strlen(args_keys[key].name) < (size_t)length) {
            key++;
        }
        scan.first_key[length] = key;
    }
    int usual;
    Py_BEGIN_ALLOW_THREADS
    usual = scan_list(&scan);
    Py_END_ALLOW_THREADS
    if (scan.out_of_memory) {
        PyErr_NoMemory();
    }
    else {
        result = usual ? result_of(&scan) : Py_NewRef(Py_None);
    }
    for (int i = 0; i < BUFFERS; i++) {
        free(scan.buffers[i].data);
    }
    Table *tables[] = {&scan.texts, &scan.jsons, &scan.lanes};
    for (int i = 0; i < 3; i++) {
        free(tables[i]->spans);
        free(tables[i]->hashes);
        free(tables[i]->slots);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyMethodDef methods[] = {{"scan", scan, METH_O, scan_doc}, {NULL, NULL, 0, NULL}};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_scan", .m_methods = methods, .m_slots = NULL};

PyMODINIT_FUNC
PyInit__scan(void)
{
    return PyModuleDef_Init(&module);
}
