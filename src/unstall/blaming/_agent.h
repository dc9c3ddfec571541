/* A thread that says how far the process is when another process asks: which streams are done, and where its Python
   threads are. It needs neither the GIL nor the program's threads, which may all be stuck; the GIL is taken if it comes.
   answers.py asks it. */

#ifndef UNSTALL_AGENT_H
#define UNSTALL_AGENT_H

#include <stdint.h>

enum { NOT_ASKED = -1 }; /* in place of a CUresult */

/* Makes the file at `path`, which must not exist, and starts the thread. Returns 0 or an errno. `stacks`: the file to which
   the handler of `signal`, which is installed already, writes stacks; a thread that starts here raises it in itself. `query` asks
   a stream of a context, and `idle` is called each second. */
int agent_start(const char *path, int stacks, int signal, int (*query)(uint64_t context, uint64_t stream),
                void (*idle)(void));

/* Ends the thread, without the GIL; the file stays. If the driver does not answer it, it is left after a second. */
void agent_end(void);

/* No answer is under way between these two: for what `query` and `idle` must not meet. */
void agent_hold(void);
void agent_release(void);

/* In a forked child, which has no such thread. */
void agent_forked(void);

#endif
