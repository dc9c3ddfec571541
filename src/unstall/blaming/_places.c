/* The tables of a ring that say what its numbers stand for: stacks, lines, code, kernels and texts. */

#include "_ring.h"

#include <stdlib.h>
#include <string.h>

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

uint32_t
places_text(const char *text)
{
    return *text ? text_of(text, LONGEST_NAME) : 0;
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

uint32_t
places_line(int32_t stack)
{
    if (stack < 0 || stack >= STACKS) {
        return 0;
    }
    if (!marks.described[stack]) {
        describe(stack);
    }
    return ((Stack *)part(AT_STACKS))[stack].line;
}

/* Pointers to names are those of loaded modules, until places_unloaded(). */
uint32_t
places_kernel(const char *symbol)
{
    if (!symbol) {
        return 0;
    }
    Header *header = marks.header;
    Kernel *kernels = part(AT_KERNELS);
    RecentKernel *recent = &marks.recent[frames_hash(symbol) & (RECENT_KERNELS - 1)];
    if (recent->symbol == symbol) {
        return recent->row;
    }
    const char *text = part(AT_TEXT);
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

void
places_unloaded(void)
{
    memset(marks.recent, 0, sizeof marks.recent);
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
