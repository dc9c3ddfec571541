/* Which calls of the driver are followed, what each does, and where its parameters have what is noted. */

#ifndef UNSTALL_CALLS_H
#define UNSTALL_CALLS_H

#include "../cupti/_callbacks.h"

#include <stdint.h>

enum { BATCH = 255 }; /* several values to wait for and to write, each of which gets an entry */

/* Calls that return 0 when work is done. */
enum { STREAM_DONE = 1, CONTEXT_DONE, EVENT_DONE };

enum { BEGIN_CAPTURE = 1, END_CAPTURE };

/* Calls that destroy the stream or the context that is their parameter, or a device's primary context; that one only if
   nobody else retains it. */
enum { STREAM_GONE = 1, CONTEXT_GONE, PRIMARY_GONE, PRIMARY_RELEASED };

enum { MOST_CALLS = 1024, LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 };

typedef struct {
    uint8_t work, per_thread, capture, done, gone, unload; /* work: 1 + the row in a table of _calls.c */
} Call;

/* By callback id; all zeros before calls_enable(). */
extern Call calls[MOST_CALLS];

/* Lets CUPTI call the subscriber back for each of them that this driver has. */
void calls_enable(const Callbacks *cupti, void *subscriber);

/* Of a call that puts work on a stream. */
uint32_t calls_kind(uint32_t id);                              /* one of _marks.h, or BATCH */
uint64_t calls_stream(uint32_t id, const CallbackData *data);  /* or PER_THREAD_STREAM */
uint64_t calls_event(uint32_t id, const CallbackData *data);   /* the event or the address; 0 if it has none */

uint64_t pointer_in(const void *parameters, size_t offset);

#endif
