/* What is asked of CUDA's driver itself: marks on streams, memory for them that the device can write to, queries. */

#ifndef UNSTALL_DRIVER_H
#define UNSTALL_DRIVER_H

#include "../driver/_pointers.h"

#include <stdint.h>

/* With the GIL. Returns the driver's library, or NULL with an OSError if there is none, or one without these functions.
   Calls of the driver that are made here are not followed. */
void *driver_load(const Pointers *pointers);

/* Of the Driver of _marks.h. The slots are pinned for the device before the first write. */
int driver_write(uint64_t stream, uint32_t slot, uint32_t value);
int driver_wait(uint64_t stream);
uint32_t driver_written(uint32_t slot);

/* Asks whether a stream of this context is done, from any thread. Returns the CUresult. */
int driver_query(void *context, uint64_t stream);

/* Tries a mark in a capture of our own, once: in one of the program's, a refusal would end that. Notes 1 or
   REFUSED_CAPTURES. */
void driver_try_capture(void);

enum { NO_CAPTURE, CAPTURE_ACTIVE, CAPTURE_INVALIDATED }; /* an invalidated one is under way until it is ended */
int driver_capture_status(uint64_t stream, uint64_t *id);
uint64_t driver_capture(uint64_t stream); /* the id of the capture that is active on it, or 0 */

/* The context that is current in this thread; 0 if there is none. */
uint64_t driver_context(void);

/* The name of a kernel as it is linked, from the CUfunction or the CUkernel that is launched; NULL if this driver does not
   tell. It is valid until its module is unloaded. */
const char *driver_kernel(uint64_t function);
void driver_unloaded(void); /* before and after a module is unloaded: functions may be others from now on */

/* Between agent_hold() and agent_release(), since memory of the driver's may go with its context: */

/* Copies the slots to the map if they are elsewhere. Once a context is dead, the device writes no more. */
void driver_keep_slots(void);

/* Before a call that destroys this context; any if it is 0. */
void driver_context_goes(uint64_t context);

/* Before and after a call that destroys the device's primary context if nobody else retains it. */
void driver_releases(void);
void driver_released(int device);

/* Closes the marks, too. Slots that graphs write to stay pinned. */
void driver_close(void);

/* After marks_open(). */
void driver_open(void);

void driver_forked(void);

#endif
