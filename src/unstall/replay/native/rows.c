/* The memory of a replay, which grows with its parts. */

#include "engine.h"

static int
by_index(const void *a, const void *b)
{
    const int32_t left = ((const Device *)a)->index, right = ((const Device *)b)->index;
    return (left > right) - (left < right);
}

/* Updates when a device is done: when all its streams are. */
static void
number_devices(const Program *p, State *s)
{
    for (Py_ssize_t i = 0; i < p->streams; i++) {
        s->streams[i].index = p->device_of_stream[i];
        s->devices[i] = (Device){p->device_of_stream[i], 0};
    }
    if (p->streams) {
        qsort(s->devices, (size_t)p->streams, sizeof(Device), by_index);
    }
    for (Py_ssize_t i = 0; i < p->streams; i++) {
        s->streams[i].device = find_device(s, p->streams, p->device_of_stream[i]) - s->devices;
        keep_done(s, &s->streams[i]);
    }
}

/* Resizes rows. Keeps the first `kept` and zeroes the others. */
int
grow(void *place, Py_ssize_t kept, Py_ssize_t count, size_t size)
{
    void **rows = place;
    if (*rows && count <= kept) {
        return 0;
    }
    /* At least one row: the address of an empty allocation is unspecified. */
    const size_t wanted = count ? (size_t)count : 1;
    void *more = !*rows ? PyMem_Calloc(wanted, size)
                 : wanted <= PY_SSIZE_T_MAX / size ? PyMem_Realloc(*rows, wanted * size)
                                                   : NULL;
    if (!more) {
        PyErr_NoMemory();
        return -1;
    }
    if (*rows) {
        memset((char *)more + (size_t)kept * size, 0, (wanted - (size_t)kept) * size);
    }
    *rows = more;
    return 0;
}

/* Returns the capacity for `needed` rows, with an eighth extra for later parts: what a long run keeps is little more than
   its rows, and large blocks grow without being copied. */
static Py_ssize_t
room_for(Py_ssize_t room, Py_ssize_t needed)
{
    return needed <= room ? room : room && room <= PY_SSIZE_T_MAX / 4 ? later(needed, room + room / 8) : needed;
}

/* Makes room for what later parts need of this one. */
static int
keep_room(State *s, Py_ssize_t length, Py_ssize_t ops)
{
    if (s->is_whole) {
        s->ends = s->end;
        s->op_ends = s->op_end;
        return 0;
    }
    return grow(&s->ends, s->length_room, length, sizeof(int64_t)) < 0 ||
                   grow(&s->code, s->length_room, length, sizeof(int8_t)) < 0 ||
                   grow(&s->thread, s->length_room, length, sizeof(int32_t)) < 0 ||
                   grow(&s->op_ends, s->ops_room, ops, sizeof(int64_t)) < 0
               ? -1
               : 0;
}

int
make_room(const Program *p, State *s)
{
    const Py_ssize_t length = room_for(s->length_room, s->length + p->length);
    const Py_ssize_t ops = room_for(s->ops_room, s->ops + p->ops);
    if (grow(&s->clock, (Py_ssize_t)s->threads, (Py_ssize_t)p->threads, sizeof(int64_t)) < 0 ||
        grow(&s->free, (Py_ssize_t)s->engines, (Py_ssize_t)p->engines, sizeof(int64_t)) < 0 ||
        (s->fills_gaps && grow(&s->load, (Py_ssize_t)s->engines, (Py_ssize_t)p->engines, sizeof(Load)) < 0) ||
        grow(&s->streams, s->streams_known, p->streams, sizeof(Stream)) < 0 ||
        grow(&s->devices, s->streams_known, p->streams, sizeof(Device)) < 0 ||
        grow(&s->marked, s->length_room, length, sizeof(int64_t)) < 0 || keep_room(s, length, ops) < 0 ||
        (s->fills_gaps && grow(&s->next_op, s->part_room, p->ops, sizeof(Py_ssize_t)) < 0) ||
        (s->fills_gaps && grow(&s->heads, s->part_room, p->ops, sizeof(Py_ssize_t)) < 0)) {
        return -1;
    }
    s->part_room = later(s->part_room, p->ops);
    s->threads = p->threads;
    s->engines = p->engines;
    s->length_room = length;
    s->ops_room = ops;
    if (p->streams > s->streams_known) {
        s->streams_known = p->streams;
        number_devices(p, s);
    }
    for (Py_ssize_t i = 0; i < p->streams; i++) {
        s->streams[i].launches = 0;
        if (s->fills_gaps && grow(&s->streams[i].recent, RECENT, RECENT, sizeof(Served)) < 0) {
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < p->length; i++) {
        if (p->code[i] == LAUNCH && s->streams[p->stream[i]].launches < s->capacity) {
            s->streams[p->stream[i]].launches++;
        }
    }
    for (Py_ssize_t i = 0; i < p->streams; i++) {
        Stream *stream = &s->streams[i];
        long long room = stream->room + stream->launches;
        room = room < s->capacity ? room : s->capacity;
        if (room > stream->room) {
            room = later(room, later(stream->room * 2, 16));
            room = room < s->capacity ? room : s->capacity;
            if (grow(&stream->outstanding, (Py_ssize_t)stream->room, (Py_ssize_t)room, sizeof(int64_t)) < 0) {
                return -1;
            }
            stream->room = room;
        }
    }
    return 0;
}

void
release(State *s)
{
    for (Py_ssize_t i = 0; s->streams && i < s->streams_known; i++) {
        PyMem_Free(s->streams[i].outstanding);
        PyMem_Free(s->streams[i].recent);
    }
    PyMem_Free(s->clock);
    PyMem_Free(s->free);
    PyMem_Free(s->load);
    PyMem_Free(s->marked);
    if (!s->is_whole) {
        PyMem_Free(s->ends);
        PyMem_Free(s->op_ends);
    }
    PyMem_Free(s->code);
    PyMem_Free(s->thread);
    PyMem_Free(s->next_op);
    PyMem_Free(s->heads);
    PyMem_Free(s->streams);
    PyMem_Free(s->devices);
}
