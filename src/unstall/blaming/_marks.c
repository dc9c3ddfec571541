/* What each stream was given to do, by line, and the marks that tell how far the device came.

   Each call that puts work on a stream gets an entry with a number in a ring. If the work is another line's than the
   work before it on that stream, the stream first gets a mark, as far as the budget allows: the device writes the number
   of that earlier work into the stream's slot once it has done it. After a fault, the work that never finished is among
   the entries above the slot's number, up to the next mark. Work that is captured has entries in a table that is not overwritten, and a slot for each capture
   and stream.

   All lies in one file that is mapped into memory, so that it outlives the process. ring.py reads it. Nothing here knows
   CUDA: what a mark is made by is in `Driver`. No lock is held while that or Python is called. */

#include "_ring.h"

#include "../lines/_clock.h"

#include <string.h>

/* The thread's latest pieces of work of one line. */
static __thread struct {
    uint64_t epoch;
    uint32_t line, kernel, visit; /* kernel: of the first */
    int32_t stack;                /* of the first */
} run;

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
            streams[i].gone = 0;
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
    int is_behind; /* whether the device had not come to the mark before it */
} Mark;

static Entry *
fill(Entry *entry, const Work *work, uint64_t number, uint32_t stream, uint32_t line)
{
    uint32_t kernel = places_kernel(work->symbol);
    *entry = (Entry){
        .number = number, .time = work->time, .event = work->event, .stream = stream, .line = line, .stack = work->stack, .kernel = kernel, .thread = work->thread,
        .visit = work->kind < RECORD ? visit_of(work, line, kernel ? kernel : KERNELS + work->kind) : 0,
        .kind = (uint16_t)work->kind, .backward = (uint16_t)work->backward, .value = work->value,
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
    uint32_t line = places_line(work->stack), stream = stream_of(work);
    if (stream == STREAMS) {
        return 0;
    }
    Stream *on = (Stream *)part(AT_STREAMS) + stream;
    uint64_t number = header->next;
    Entry *entry = fill((Entry *)part(AT_RING) + number % RING, work, number, stream, line);
    if (changes(work, line, on->last, on->line, on->marked)) {
        int is_behind = on->marked && marks.driver.written(stream) != on->marked;
        if (marks.pinned_count || budget_allows(work->time, is_behind)) {
            *mark = (Mark){stream, on->last, entry, is_behind};
            on->marked = on->last;
        }
    }
    if (work->kind < RECORD) {
        on->last = (uint32_t)number;
        on->line = line;
    }
    else if (work->kind == WAIT_VALUE) {
        on->last = (uint32_t)number;
        on->line = 0; /* what comes next is marked: the wait may never end */
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
    uint32_t line = places_line(work->stack), stream = stream_of(work), number = header->used[AT_CAPTURED];
    Slot *slot = stream == STREAMS || number == CAPTURED || work->kind >= RECORD ? NULL : slot_of(work->capture, stream);
    if (!slot) {
        header->lost_captured += work->kind < RECORD;
        return;
    }
    Entry *entry = fill((Entry *)part(AT_CAPTURED) + number, work, number, stream, line);
    entry->slot = slot_number(slot);
    if (!slot->last) {
        *mark = (Mark){slot_number(slot), BEGUN, entry, 1};
        slot->first = number;
        slot->marked = number - 1;
    }
    else if (slot->last - slot->marked >= (marks.pinned_count ? 1 : GRAPH_GAP) &&
             changes(work, line, slot->last, slot->line, slot->marked)) {
        *mark = (Mark){slot_number(slot), slot->last, entry, 1};
        slot->marked = slot->last;
    }
    slot->last = number;
    slot->line = line;
    header->used[AT_CAPTURED]++;
}

static void
put(uint64_t stream, const Mark *mark)
{
    uint64_t began = mark->is_behind ? 0 : now();
    int result = marks.driver.write(stream, mark->slot, mark->value);
    uint64_t took = mark->is_behind ? 0 : now() - began;
    pthread_mutex_lock(&marks.lock);
    if (took) {
        budget_took(took);
    }
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

void
marks_budget(uint32_t share, uint32_t first, uint32_t cost)
{
    pthread_mutex_lock(&marks.lock);
    budget_start(share, first, cost);
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
marks_gone(uint64_t context, uint64_t stream, int all)
{
    pthread_mutex_lock(&marks.lock);
    if (marks.header) {
        Stream *streams = part(AT_STREAMS);
        for (uint32_t i = 0; i < marks.header->used[AT_STREAMS]; i++) {
            int is_there = !context || streams[i].context == context;
            streams[i].gone |= is_there && (all || streams[i].handle == stream);
        }
    }
    pthread_mutex_unlock(&marks.lock);
}

uint32_t
marks_streams(KnownStream *streams, uint32_t most)
{
    uint32_t count = 0;
    pthread_mutex_lock(&marks.lock);
    if (marks.header) {
        const Stream *known = part(AT_STREAMS);
        count = marks.header->used[AT_STREAMS] < most ? marks.header->used[AT_STREAMS] : most;
        for (uint32_t i = 0; i < count; i++) {
            streams[i] = (KnownStream){known[i].context, known[i].handle, known[i].thread, known[i].gone, known[i].last};
        }
    }
    pthread_mutex_unlock(&marks.lock);
    return count;
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
            mark = (Mark){slot_number(slot), FINISHED, NULL, 1};
        }
    }
    pthread_mutex_unlock(&marks.lock);
    if (mark.value) {
        put(stream, &mark);
    }
}

void
marks_unloaded(void)
{
    pthread_mutex_lock(&marks.lock);
    places_unloaded();
    pthread_mutex_unlock(&marks.lock);
}

int
marks_error(int code, const char *call, int32_t stack, uint32_t thread, uint64_t time)
{
    pthread_mutex_lock(&marks.lock);
    Header *header = marks.header;
    int is_first = marks.on && header && !header->error.code;
    if (is_first) {
        header->error.time = time;
        header->error.number = header->next;
        header->error.call = places_text(call);
        header->error.thread = thread;
        header->error.stack = stack;
        header->error.line = places_line(stack);
        header->error.code = (uint32_t)code;
        marks.on = 0;
    }
    pthread_mutex_unlock(&marks.lock);
    return is_first;
}
