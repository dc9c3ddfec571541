/* Which of torch's operators a thread is in: torch exports a function at::_ops::NAME::call of each, and a redispatch. */

#include "_operators.h"
#include "_functions.h"

#include <stddef.h>
#include <string.h>
#include <unwind.h>

enum { MOST_FRAMES = 128, RECENT = 32 };

/* Places at which this thread's stack was read; the oldest is the next to be replaced. */
static __thread struct {
    uint64_t places[RECENT]; /* 0: none */
    OperatorCalls calls[RECENT];
    unsigned next;
} recent;

typedef struct {
    Operators *operators;
    uintptr_t *frame; /* of the call that was found last, until it is known */
    int left;
} Walk;

static void
add(Walk *walk, const FunctionFound *function)
{
    OperatorCalls *calls = &walk->operators->calls;
    unsigned length = function->length < OPERATOR_NAME ? function->length : OPERATOR_NAME - 1;
    const char *last = calls->count ? walk->operators->names[calls->count - 1] : NULL;
    if (last && !strncmp(last, function->name, length) && !last[length]) {
        return; /* it is dispatched more than once */
    }
    /* The outermost ones matter most: of too many, the last place is overwritten. */
    int at = calls->count < MOST_OPERATORS ? calls->count++ : MOST_OPERATORS - 1;
    memcpy(walk->operators->names[at], function->name, length);
    walk->operators->names[at][length] = 0;
    calls->rows[at].function = function->start;
    walk->frame = &calls->rows[at].frame;
}

static _Unwind_Reason_Code
step(struct _Unwind_Context *context, void *walk_)
{
    Walk *walk = walk_;
    if (walk->frame) {
        *walk->frame = (uintptr_t)_Unwind_GetCFA(context); /* where the frame ends that it called */
        walk->frame = NULL;
    }
    int is_interrupted = 0;
    uintptr_t address = (uintptr_t)_Unwind_GetIPInfo(context, &is_interrupted);
    if (!address || !walk->left--) {
        return _URC_END_OF_STACK;
    }
    FunctionFound function = functions_at(address - !is_interrupted); /* it returns behind its call */
    if (function.kind == OPERATOR) {
        add(walk, &function);
    }
    walk->operators->is_allocators |= function.kind == ALLOCATORS;
    return function.kind == PYTHON ? _URC_END_OF_STACK : _URC_NO_REASON;
}

void
operators_here(Operators *operators)
{
    Walk walk = {.operators = operators, .left = MOST_FRAMES};
    operators->calls.count = operators->is_allocators = 0;
    functions_lock();
    _Unwind_Backtrace(step, &walk);
    functions_unlock();
}

void
operators_called_here(OperatorCalls *calls, uint64_t place)
{
    Operators operators;
    for (int i = 0; place && i < RECENT; i++) {
        if (recent.places[i] == place) {
            *calls = recent.calls[i];
            return;
        }
    }
    operators_here(&operators);
    unsigned at = recent.next++ % RECENT;
    recent.places[at] = place;
    recent.calls[at] = *calls = operators.calls;
}

int
operators_within(const OperatorCalls *now, const OperatorCalls *before)
{
    for (int i = 0; now->count && i < before->count; i++) {
        if (now->rows[0].function == before->rows[i].function && now->rows[0].frame == before->rows[i].frame) {
            return 1;
        }
    }
    return 0;
}
