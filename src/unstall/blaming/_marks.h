/* What each stream was given to do, by line, and the marks that tell how far the device came. See _marks.c. */

#ifndef UNSTALL_MARKS_H
#define UNSTALL_MARKS_H

#include "../lines/_frames.h"

#include <stdint.h>

/* Numbers are parts of the file's format: ring.py has the same. */
enum { KERNEL = 1, GRAPH, COPY, MEMSET, RECORD, WAIT, WAIT_VALUE, WRITE_VALUE };
#define BEGUN UINT32_MAX          /* what a graph's slot holds, besides numbers */
#define FINISHED (UINT32_MAX - 1)
enum { UNMARKED = 0, MARKED = 1, REFUSED = 1000 };  /* Entry.marked; REFUSED + the CUresult */

/* The device, or what a test puts in its place. Each returns a CUresult. */
typedef struct {
    /* Puts a write of `value` into the slot on the stream, behind all work that is on it. */
    int (*write)(uint64_t stream, uint32_t slot, uint32_t value);
    /* Waits for all work on the stream. */
    int (*wait)(uint64_t stream);
    /* Returns what the device has written into the slot. */
    uint32_t (*written)(uint32_t slot);
} Driver;

typedef struct {
    uint32_t kind;
    uint64_t context, stream;
    uint32_t per_thread; /* the thread if the stream is that thread's default stream, else 0 */
    uint64_t event;      /* of RECORD and WAIT; the address of WAIT_VALUE and WRITE_VALUE */
    uint32_t value;      /* its low half, of WAIT_VALUE and WRITE_VALUE */
    uint64_t capture;    /* the id of the capture that the stream is in, or 0 */
    const char *symbol;  /* the kernel's name as it is linked, or NULL */
    int32_t stack;       /* frames_here_all() */
    uint32_t backward;   /* whether the stack is that of the call that waits for the backward pass */
    uint32_t thread;
    uint64_t time;
} Work;

/* Makes the file, which must not exist, and maps it. Returns 0 or an errno. `pinned`, which may be NULL, has lines of
   "FILE:LINE:FROM": after work of these lines, from that visit on, the stream is waited for. With such lines each line of
   a graph is marked, else one in GRAPH_GAP pieces of work at most. */
int marks_open(const char *path, const Driver *driver, const char *pinned);

/* Ends it; the file stays. The map stays too if a graph writes to it, or if `keep`. Returns whether it stays. */
int marks_close(int keep);

/* How often marks are put from now on: `first` of them at once, then so many that they take this share of the time. Without
   it MARK_SHARE and FIRST_MARKS count. `cost`: of a mark in ns, 0 to measure it. */
enum { MARK_SHARE = 10000, FIRST_MARKS = 1000 }; /* share: in millionths */
void marks_budget(uint32_t share, uint32_t first, uint32_t cost);

/* Whether work is noted: after marks_open, until the first error or marks_close. */
int marks_on(void);

/* Before a call that puts work on a stream. Returns whether marks_wait() is to be called after it. */
int marks_work(const Work *work);

/* After a call of which marks_work returned 1. Returns the CUresult. */
int marks_wait(const Work *work);

/* The number that the next entry will have; 0 if none is open. */
uint64_t marks_next(void);

/* The host has waited for this stream, or for `all` of the context: work with numbers below `before` is done. */
void marks_stream_done(uint64_t context, uint64_t stream, uint32_t per_thread, int all, uint64_t before);

/* The host has seen that this event is done. */
void marks_event_done(uint64_t event);

/* Before the call that destroys this stream, or `all` of the context; of any context if that is 0. */
void marks_gone(uint64_t context, uint64_t stream, int all);

typedef struct {
    uint64_t context, handle;
    uint32_t thread, gone, last; /* last: the number of its last work */
} KnownStream;
/* Fills in the streams that got work, by their row. Returns how many there are. */
uint32_t marks_streams(KnownStream *streams, uint32_t most);

/* Before the call that ends the capture on this stream. */
void marks_end_capture(uint64_t context, uint64_t stream, uint64_t capture);

/* A module was unloaded, with the names of its kernels. */
void marks_unloaded(void);

/* The context of the first stream that got work; 0 if none did. */
uint64_t marks_context(void);

/* The first error that ends a context: the call that returned it, "" if it is not known, and where Python noticed it. Returns 0 for later ones, which are
   ignored. */
int marks_error(int code, const char *call, int32_t stack, uint32_t thread, uint64_t time);

/* With the GIL: keeps the texts of new code, for frames_describe. */
void marks_describe(uint32_t number, PyObject *code);

/* Whose a file is, by the first part that is in its path, or at its start if the part begins with ^. All others are the
   user's. */
enum { FRAMEWORK, LIBRARY, USER, NOBODY }; /* NOBODY: frames that the interpreter puts between those of Python code */
typedef struct {
    const char *part;
    uint32_t whose;
} FileRule;

/* Copies the rules. */
int marks_set_files(const FileRule *rules, int count);

/* The part of the map that the device writes to, page by page. */
void *marks_slots(uint64_t *bytes);

/* A field of the header, for what the caller finds out. */
enum { PINNED_BY, CAPTURES, FOLLOWED };
enum { REFUSED_CAPTURES = 2 }; /* CAPTURES: captured work cannot be marked */
void marks_note(int field, uint32_t value);

/* In a forked child: ends it without a touch of the parent's file. */
void marks_forked(void);

#endif
