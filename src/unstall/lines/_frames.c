/* Reads a thread's Python stack, in that thread and without the GIL.

   It follows the chain of frames (_chain.h), and finds the address of each frame's code object and the frame's current
   instruction. An address counts only if it is registered: code objects are registered beforehand, under the GIL, and kept
   alive.

   The layout of frames is checked against sys._getframe() before use, in call_stacks.py. */

#include "_frames.h"

#include "_chain.h"
#include "_gil.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* MOST_PLACES limits the distinct stacks to 128 MiB. */
enum { MOST_FRAMES = 96, BATCH = 1024, MOST_PLACES = 1 << 24, RECENT = 1024 };

typedef struct {
    const char *_Atomic code; /* a PyObject; set after `number`, so that readers find both */
    uint32_t number;
} Known;

typedef struct {
    size_t room; /* a power of 2 */
    Known slots[];
} Table;

typedef FramePlace Place;

typedef struct {
    uint64_t hash;
    uint32_t first, count; /* of `places` */
} Stack;

/* Threads look up code while the thread with the GIL adds some. So a table that grows is replaced, and the old one is
   kept until frames_forget(). */
static Table *_Atomic known;
static const Layout *layout; /* set before anything is known */
static Table **outgrown;
static size_t outgrown_count;
static PyObject **codes; /* by number */
void (*frames_on_new)(uint32_t number, PyObject *code);
static uint32_t code_count, code_room;

/* Incremented when code is registered, and when all code is forgotten. While it is constant, equal chains are equal
   stacks: registered code stays at its address, and unregistered code is ignored. */
static _Atomic uint64_t generation = 1;

/* Per thread: its recent stacks, by a hash of their chains. Most calls are repeated. */
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

int
frames_supported(void)
{
    return layout_of(Py_Version) != NULL;
}

/* Returns the slot of this code, or the empty slot where it belongs. */
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
    if (frames_on_new) {
        frames_on_new(code_count, code);
    }
    put(table, (const char *)code, code_count++);
    atomic_fetch_add(&generation, 1); /* last: a thread that reads the new value finds the code */
    return 1;
}

/* Returns the number of this stack, a new one if it is new; NO_FRAME if there is no room. */
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

/* Returns a hash of the position of each frame of a chain, known or not. */
static uint64_t
chain_of(const char *frame)
{
    const Layout *where = layout;
    uint64_t hash = 0xCBF29CE484222325u;
    for (int left = MOST_STEPS; frame && left; left--, frame = pointer_at(frame, where->previous)) {
        uint64_t code = (uintptr_t)pointer_at(frame, where->code);
        uint64_t instruction = (uintptr_t)pointer_at(frame, where->instruction);
        hash = chain_mixed(hash, code + instruction * 0xBF58476D1CE4E5B9u);
    }
    return hash;
}

/* Returns the number of the stack of the known frames of this chain. */
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
    /* When the interpreter ends, it frees the states of threads that still run. */
    const char *thread = Py_IsInitialized() ? (const char *)PyGILState_GetThisThreadState() : NULL;
    if (!thread) {
        return NO_PYTHON;
    }
    if (!table || !layout) {
        return NO_FRAME;
    }
    const char *frame = innermost_frame(layout, thread);
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

/* Returns whether each frame's code is registered. With `know` and the GIL, registers missing code if possible. */
static int
chain_known(const char *frame, int know)
{
    const Layout *where = layout;
    for (int left = MOST_STEPS; frame && left; left--, frame = pointer_at(frame, where->previous)) {
        const char *code = pointer_at(frame, where->code);
        Table *table = known;
        /* In Python 3.13, frames of C code have None as their code. */
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
        Gil held = gil_take();
        if (!known && frames_supported() && make_room()) {
            PyErr_Clear();
        }
        gil_leave(held);
    }
    if (!known || !layout) {
        return NO_FRAME;
    }
    const char *frame = innermost_frame(layout, thread);
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
        Gil held = gil_take();
        PyObject *type, *value, *traceback; /* the caller may be about to raise */
        PyErr_Fetch(&type, &value, &traceback);
        chain_known(frame, 1);
        PyErr_Restore(type, value, traceback);
        gil_leave(held);
    }
    return frames_here();
}

uint32_t
frames_stack(int32_t number, FramePlace *places, uint32_t most)
{
    uint32_t count = 0;
    pthread_mutex_lock(&seen.lock);
    if (number >= 0 && (size_t)number < seen.stack_count) {
        count = seen.stacks[number].count < most ? seen.stacks[number].count : most;
        memcpy(places, seen.places + seen.stacks[number].first, count * sizeof *places);
    }
    pthread_mutex_unlock(&seen.lock);
    return count;
}

PyObject *
frames_stacks(uint32_t first)
{
    /* Copied under the lock, converted to objects without it: creating objects may run the garbage collector, and that
       any code, even frames_forget. So references are held. */
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
    /* Last: freeing code may run Python code, which must find nothing registered. */
    PyObject **gone = codes;
    uint32_t count = code_count;
    codes = NULL;
    code_count = code_room = 0;
    for (uint32_t i = 0; i < count; i++) {
        Py_DECREF(gone[i]);
    }
    free(gone);
}
