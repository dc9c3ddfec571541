/* Opens and closes the file of a ring, which is mapped into memory so that it outlives the process. */

#include "_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct {
    uint32_t rows, row_bytes;
} parts[PARTS] = {
    {SLOTS, 4}, {STREAMS, sizeof(Stream)}, {SLOTS - STREAMS, sizeof(Slot)}, {LINES, sizeof(Line)},
    {STACKS, sizeof(Stack)}, {CODES, sizeof(Code)}, {KERNELS, sizeof(Kernel)}, {TEXT, 1},
    {CAPTURED, sizeof(Entry)}, {RING, sizeof(Entry)},
};

struct Marks marks = {.lock = PTHREAD_MUTEX_INITIALIZER};

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
    budget_start(MARK_SHARE, FIRST_MARKS, 0);
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
