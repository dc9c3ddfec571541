/* Which calls of the driver are followed, what each does, and which of its arguments are noted. */

#ifndef UNSTALL_CALLS_H
#define UNSTALL_CALLS_H

#include "../driver/_pointers.h"

#include <stdint.h>

enum { BATCH = 255 }; /* several values to wait for and to write, each of which gets an entry */

/* Calls that return 0 when work is done. */
enum { STREAM_DONE = 1, CONTEXT_DONE, EVENT_DONE };

enum { BEGIN_CAPTURE = 1, END_CAPTURE };

/* Calls that destroy the stream or the context that is their argument, or a device's primary context; that one only if
   nobody else retains it. */
enum { STREAM_GONE = 1, CONTEXT_GONE, PRIMARY_GONE, PRIMARY_RELEASED };

enum { LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 };

typedef struct {
    NamedFunction function;
    uint8_t kind;                 /* of the work that it puts on a stream: one of _marks.h, BATCH, or 0 */
    int8_t stream, event, kernel; /* which argument; the event or the address */
    uint8_t done, capture, gone, unload;
} Call;

/* A call that is being made. */
typedef struct {
    const Call *call;
    int per_thread; /* whether stream 0 is the thread's own default stream */
    const Word *arguments;
} Made;

/* Adds the functions of this driver. */
void calls_add(const Pointers *pointers, void *driver);

/* Of the function with this number, without arguments. */
const Made *calls_made(int number);

/* Of a call that puts work on a stream. */
uint64_t calls_stream(const Made *made); /* or PER_THREAD_STREAM */
uint64_t calls_event(const Made *made);  /* the event or the address; 0 if it has none */

uint64_t pointer_in(const void *at, size_t offset);

#endif
