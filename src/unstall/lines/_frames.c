/* Where a thread is in Python, read without the GIL by the thread itself.

   A thread that runs C code, called from Python, has a chain of frames that nothing else changes, so it can follow them
   even while it has let go of the GIL. What it finds are addresses of code objects, and how far each frame has got. An
   address counts only if it is known: each code object is made known beforehand, under the GIL, and kept alive.
   Nothing but the chain itself is read through.

   Where things are in a frame is a matter of Python's version (pycore_frame.h, pystate.h), and checked against
   sys._getframe() before it is relied on: frames.py. */

#include "_frames.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* MOST_STEPS: of frames, known or not, that are followed. MOST_PLACES: 128 MiB of stacks that are told apart. */
enum { MOST_FRAMES = 96, MOST_STEPS = 2048, BATCH = 1024, MOST_PLACES = 1 << 24, RECENT = 1024 };

typedef struct {
    size_t frame_of_thread; /* in PyThreadState; of what `indirect` says */
    size_t indirect;        /* 1: that is a pointer to a struct in which the frame's stands at `frame_in_it` */
    size_t frame_in_it;
    size_t code, previous, instruction; /* in _PyInterpreterFrame */
    size_t code_start;                  /* of the instructions in PyCodeObject */
} Layout;

static const struct {
    int minor;
    Layout layout;
} layouts[] = {
    {11, {56, 1, 8, 32, 48, 56, 184}},
    {12, {56, 1, 0, 0, 8, 56, 192}},
    {13, {72, 0, 0, 0, 8, 56, 200}},
};

typedef struct {
    const char *_Atomic code; /* a PyObject; set after `number`, so that who finds it finds that too */
    uint32_t number;
} Known;

typedef struct {
    size_t room; /* a power of 2 */
    Known slots[];
} Table;

typedef struct {
    uint32_t code, offset;
} Place;

typedef struct {
    uint64_t hash;
    uint32_t first, count; /* of `places` */
} Stack;

/* Threads look code up while one that has the GIL adds some: a table that has grown is replaced, and what it replaced
   is kept until all is forgotten. */
static Table *_Atomic known;
static const Layout *layout; /* set before anything is known */
static Table **outgrown;
static size_t outgrown_count;
static PyObject **codes; /* by number */
static uint32_t code_count, code_room;

/* Goes up with each code that becomes known, and when all is forgotten. While it stays, the same chain is the same stack:
   code that is known stays where it is, and what is not known counts for nothing, whatever has its address. */
static _Atomic uint64_t generation = 1;

/* A thread's own: the stacks that it was last at, by a hash of their chains. Most calls are made again and again. */
static __thread struct {
    uint64_t generation;
    struct {
        uint64_t chain;
        int32_t number;
    } slots[RECENT];
} recent;

static struct {
    pthread_mutex_t lock;
    int32_t *slots; /* by hash: 1 + the number of a stack */
    size_t room;
    Stack *stacks;
    Place *places;
    size_t stack_count, stack_room, place_count, place_room;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* NULL where it is not known, as before a first release candidate. */
static const Layout *
layout_of(unsigned long version)
{
    for (size_t i = 0; version >> 24 == 3 && (version & 0xF0) >= 0xC0 && i < sizeof layouts / sizeof *layouts; i++) {
        if (layouts[i].minor == (int)(version >> 16 & 0xFF)) {
            return &layouts[i].layout;
        }
    }
    return NULL;
}

int
frames_supported(void)
{
    return layout_of(Py_Version) != NULL;
}

/* Where this code is, or else is to be: at a slot whose code is NULL. */
static Known *
slot_of(Table *table, const void *code)
{
    size_t at = frames_hash(code) & (table->room - 1);
    for (;; at = (at + 1) & (table->room - 1)) {
        const char *there = atomic_load_explicit(&table->slots[at].code, memory_order_acquire);
        if (!there || there == code) {
            return &table->slots[at];
        }
    }
}

static void
put(Table *table, const char *code, uint32_t number)
{
    Known *slot = slot_of(table, code);
    slot->number = number;
    atomic_store_explicit(&slot->code, code, memory_order_release);
}

static Table *
widened(Table *old)
{
    size_t room = old ? 2 * old->room : 16384;
    Table *table = calloc(1, sizeof *table + room * sizeof *table->slots);
    if (!table) {
        PyErr_NoMemory();
        return NULL;
    }
    table->room = room;
    for (size_t i = 0; old && i < old->room; i++) {
        if (old->slots[i].code) {
            put(table, old->slots[i].code, old->slots[i].number);
        }
    }
    return table;
}

static int
make_room(void)
{
    Table *old = known;
    if (code_count == code_room) {
        PyObject **more = realloc(codes, (code_room + BATCH) * sizeof *more);
        if (!more) {
            PyErr_NoMemory();
            return -1;
        }
        codes = more;
        code_room += BATCH;
    }
    if (old && 2 * ((size_t)code_count + 1) < old->room) {
        return 0;
    }
    Table **kept = realloc(outgrown, (outgrown_count + 1) * sizeof *kept);
    if (!kept) {
        PyErr_NoMemory();
        return -1;
    }
    outgrown = kept;
    Table *table = widened(old);
    if (!table) {
        return -1;
    }
    if (old) {
        outgrown[outgrown_count++] = old;
    }
    layout = layout_of(Py_Version);
    known = table;
    return 0;
}

int
frames_know(PyObject *code)
{
    if (make_room()) {
        return -1;
    }
    Table *table = known;
    if (slot_of(table, code)->code) {
        return 0;
    }
    codes[code_count] = Py_NewRef(code);
    put(table, (const char *)code, code_count++);
    atomic_fetch_add(&generation, 1); /* only now: who reads the new one finds the code */
    return 1;
}

/* The number of this stack, a new one if it was not seen before; NO_FRAME without room. */
static int32_t
number_of(const Place *places, uint32_t count, uint64_t hash)
{
    pthread_mutex_lock(&seen.lock);
    int32_t number = NO_FRAME;
    if (4 * (seen.stack_count + 1) >= 3 * seen.room) {
        size_t room = seen.room ? 2 * seen.room : 4096;
        int32_t *slots = calloc(room, sizeof *slots);
        if (!slots) {
            goto done;
        }
        for (size_t i = 0; i < seen.stack_count; i++) {
            size_t at = (size_t)seen.stacks[i].hash & (room - 1);
            while (slots[at]) {
                at = (at + 1) & (room - 1);
            }
            slots[at] = (int32_t)i + 1;
        }
        free(seen.slots);
        seen.slots = slots;
        seen.room = room;
    }
    size_t at = (size_t)hash & (seen.room - 1);
    for (; seen.slots[at]; at = (at + 1) & (seen.room - 1)) {
        const Stack *stack = &seen.stacks[seen.slots[at] - 1];
        if (stack->hash == hash && stack->count == count &&
            !memcmp(seen.places + stack->first, places, count * sizeof *places)) {
            number = seen.slots[at] - 1;
            goto done;
        }
    }
    if (seen.place_count + count > MOST_PLACES) {
        goto done;
    }
    if (seen.stack_count == seen.stack_room) {
        Stack *more = realloc(seen.stacks, (seen.stack_room + BATCH) * sizeof *more);
        if (!more) {
            goto done;
        }
        seen.stacks = more;
        seen.stack_room += BATCH;
    }
    if (seen.place_count + count > seen.place_room) {
        size_t room = 2 * seen.place_room + BATCH;
        Place *more = realloc(seen.places, room * sizeof *more);
        if (!more) {
            goto done;
        }
        seen.places = more;
        seen.place_room = room;
    }
    memcpy(seen.places + seen.place_count, places, count * sizeof *places);
    seen.stacks[seen.stack_count] = (Stack){hash, (uint32_t)seen.place_count, count};
    seen.place_count += count;
    number = (int32_t)seen.stack_count++;
    seen.slots[at] = number + 1;
done:
    pthread_mutex_unlock(&seen.lock);
    return number;
}

static const char *
pointer_at(const char *base, size_t offset)
{
    const char *pointer;
    memcpy(&pointer, base + offset, sizeof pointer);
    return pointer;
}

/* A hash of where each frame of a chain is, known or not. */
static uint64_t
chain_of(const char *frame)
{
    const Layout *where = layout;
    uint64_t hash = 0xCBF29CE484222325u;
    for (int left = MOST_STEPS; frame && left; left--, frame = pointer_at(frame, where->previous)) {
        uint64_t code = (uintptr_t)pointer_at(frame, where->code);
        uint64_t instruction = (uintptr_t)pointer_at(frame, where->instruction);
        hash = (hash ^ (code + instruction * 0xBF58476D1CE4E5B9u)) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return hash;
}

/* The number of the stack that the known frames of this chain are. */
static int32_t
stack_of(Table *table, const char *frame)
{
    const Layout *where = layout;
    Place places[MOST_FRAMES];
    uint32_t count = 0;
    uint64_t hash = 0xCBF29CE484222325u;
    for (int left = MOST_STEPS; frame && left && count < MOST_FRAMES; left--, frame = pointer_at(frame, where->previous)) {
        const char *code = pointer_at(frame, where->code);
        const Known *found = slot_of(table, code);
        if (!code || found->code != code) {
            continue;
        }
        const char *instruction = pointer_at(frame, where->instruction);
        uint32_t offset = (uint32_t)(instruction - (code + where->code_start));
        places[count++] = (Place){found->number, offset};
        hash = (hash ^ ((uint64_t)found->number << 32 | offset)) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return count ? number_of(places, count, hash) : NO_FRAME;
}

int32_t
frames_here(void)
{
    Table *table = known;
    /* From when the interpreter ends, states of threads that still run are freed. */
    const char *thread = Py_IsInitialized() ? (const char *)PyGILState_GetThisThreadState() : NULL;
    if (!thread) {
        return NO_PYTHON;
    }
    if (!table || !layout) {
        return NO_FRAME;
    }
    const Layout *where = layout;
    const char *frame = pointer_at(thread, where->frame_of_thread);
    if (where->indirect && frame) {
        frame = pointer_at(frame, where->frame_in_it);
    }
    uint64_t now = atomic_load(&generation);
    if (recent.generation != now) {
        memset(&recent, 0, sizeof recent);
        recent.generation = now;
    }
    uint64_t chain = chain_of(frame);
    size_t at = chain & (RECENT - 1);
    if (recent.slots[at].chain != chain) {
        recent.slots[at].number = stack_of(table, frame);
        recent.slots[at].chain = chain;
    }
    return recent.slots[at].number;
}

/* Whether each frame's code is known; with `know`, and the GIL, what is not becomes so as far as it can. */
static int
chain_known(const char *frame, int know)
{
    const Layout *where = layout;
    for (int left = MOST_STEPS; frame && left; left--, frame = pointer_at(frame, where->previous)) {
        const char *code = pointer_at(frame, where->code);
        Table *table = known;
        /* Frames that stand for C have None for their code in Python 3.13. */
        if (!code || code == (const char *)Py_None || slot_of(table, code)->code) {
            continue;
        }
        if (!know) {
            return 0;
        }
        if (frames_know((PyObject *)(uintptr_t)code) < 0) {
            PyErr_Clear();
            return 0;
        }
    }
    return 1;
}

int32_t
frames_here_all(void)
{
    const char *thread = Py_IsInitialized() ? (const char *)PyGILState_GetThisThreadState() : NULL;
    if (!thread) {
        return NO_PYTHON;
    }
    if (!known) {
        PyGILState_STATE held = PyGILState_Ensure();
        if (!known && frames_supported() && make_room()) {
            PyErr_Clear();
        }
        PyGILState_Release(held);
    }
    if (!known || !layout) {
        return NO_FRAME;
    }
    const Layout *where = layout;
    const char *frame = pointer_at(thread, where->frame_of_thread);
    if (where->indirect && frame) {
        frame = pointer_at(frame, where->frame_in_it);
    }
    if (!frame) {
        return NO_PYTHON;
    }
    uint64_t now = atomic_load(&generation);
    if (recent.generation == now) {
        uint64_t chain = chain_of(frame);
        if (recent.slots[chain & (RECENT - 1)].chain == chain) {
            return recent.slots[chain & (RECENT - 1)].number;
        }
    }
    if (!chain_known(frame, 0)) {
        PyGILState_STATE held = PyGILState_Ensure();
        PyObject *type, *value, *traceback; /* the caller may be about to raise */
        PyErr_Fetch(&type, &value, &traceback);
        chain_known(frame, 1);
        PyErr_Restore(type, value, traceback);
        PyGILState_Release(held);
    }
    return frames_here();
}

PyObject *
frames_stacks(uint32_t first)
{
    /* Copied under the lock, turned into objects without it: making objects may run the collector, and that anything,
       even frames_forget. Hence the references. */
    pthread_mutex_lock(&seen.lock);
    size_t count = seen.stack_count > first ? seen.stack_count - first : 0;
    size_t start = count ? seen.stacks[first].first : 0, place_count = count ? seen.place_count - start : 0;
    Stack *stacks = calloc(count + 1, sizeof *stacks);
    Place *places = calloc(place_count + 1, sizeof *places);
    PyObject **kept = calloc(place_count + 1, sizeof *kept);
    int copied = stacks && places && kept;
    if (copied && count) {
        memcpy(stacks, seen.stacks + first, count * sizeof *stacks);
        memcpy(places, seen.places + start, place_count * sizeof *places);
    }
    pthread_mutex_unlock(&seen.lock);
    for (size_t i = 0; copied && i < place_count; i++) {
        kept[i] = Py_NewRef(codes[places[i].code]);
    }
    PyObject *result = copied ? PyList_New((Py_ssize_t)count) : PyErr_NoMemory();
    for (size_t i = 0; result && i < count; i++) {
        PyObject *frames = PyList_New(stacks[i].count);
        for (uint32_t j = 0; frames && j < stacks[i].count; j++) {
            size_t at = stacks[i].first - start + j;
            PyObject *pair = Py_BuildValue("(OI)", kept[at], places[at].offset);
            if (!pair || PyList_SetItem(frames, j, pair)) {
                Py_CLEAR(frames);
            }
        }
        if (!frames || PyList_SetItem(result, (Py_ssize_t)i, frames)) {
            Py_CLEAR(result);
        }
    }
    for (size_t i = 0; copied && i < place_count; i++) {
        Py_DECREF(kept[i]);
    }
    free(stacks);
    free(places);
    free(kept);
    return result;
}

void
frames_forked(void)
{
    pthread_mutex_init(&seen.lock, NULL);
}

void
frames_forget(void)
{
    Table *last = atomic_exchange(&known, NULL);
    atomic_fetch_add(&generation, 1);
    free(last);
    for (size_t i = 0; i < outgrown_count; i++) {
        free(outgrown[i]);
    }
    free(outgrown);
    outgrown = NULL;
    outgrown_count = 0;
    pthread_mutex_lock(&seen.lock);
    free(seen.slots);
    free(seen.stacks);
    free(seen.places);
    seen.slots = NULL;
    seen.stacks = NULL;
    seen.places = NULL;
    seen.room = seen.stack_count = seen.stack_room = seen.place_count = seen.place_room = 0;
    pthread_mutex_unlock(&seen.lock);
    /* Last: code that goes may run Python's, which finds nothing known. */
    PyObject **gone = codes;
    uint32_t count = code_count;
    codes = NULL;
    code_count = code_room = 0;
    for (uint32_t i = 0; i < count; i++) {
        Py_DECREF(gone[i]);
    }
    free(gone);
}
