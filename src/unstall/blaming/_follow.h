/* Follows the driver's calls for _marks.c: work before it is put on a stream, errors when they are
   returned. */

#ifndef UNSTALL_FOLLOW_H
#define UNSTALL_FOLLOW_H

#include "../lines/_frames.h"

#include <stdint.h>

/* With the GIL. Each returns -1 with an exception. */
int follow_import(void);
int follow_begin(void);

/* Without the GIL. */
void follow_end(void);

/* After marks_open(): knows of no captures. */
void follow_open(void);

/* `act`, which may be NULL, is called once, at the call that returned the first error. */
void follow_when_failed(PyObject *act);

/* The stack for work of threads without Python frames: autograd's own. Returns the one before. */
int32_t follow_backward(int32_t stack);

/* What the agent asks. A query of a stream that is captured would end the capture. After an error nothing is known of
   captures any more, and the driver knows no more than the error. */
int follow_query(uint64_t context, uint64_t stream);

/* Notes an error that ended a context if the driver has one that no followed call returned. Without the GIL. */
void follow_look(void);

/* This thread's, as Linux has it. */
uint32_t follow_thread(void);

void follow_forked(void);

#endif
