/* Which of torch's operators a thread is in: torch exports a function at::_ops::NAME::call of each, and a redispatch. */

#include "_operators.h"
#include "_functions.h"

#include <string.h>
#include <unwind.h>

enum { MOST_FRAMES = 128 };

typedef struct {
    Operators *operators;
    uintptr_t *frame; /* of the call that was found last, until it is known */
    int left;
} Walk;

static void
add(Walk *walk, const FunctionFound *function)
{
    Operators *operators = walk->operators;
    unsigned length = function->length < OPERATOR_NAME ? function->length : OPERATOR_NAME - 1;
    OperatorCall *last = operators->count ? &operators->calls[operators->count - 1] : NULL;
    if (last && !strncmp(last->name, function->name, length) && !last->name[length]) {
        return; /* it is dispatched more than once */
    }
    /* The outermost ones matter most: of too many, the last place is overwritten. */
    OperatorCall *call = operators->count < MOST_OPERATORS ? &operators->calls[operators->count++] : last;
    memcpy(call->name, function->name, length);
    call->name[length] = 0;
    call->function = function->start;
    walk->frame = &call->frame;
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
    operators->count = operators->is_allocators = 0;
    functions_lock();
    _Unwind_Backtrace(step, &walk);
    functions_unlock();
}

int
operators_within(const Operators *now, const Operators *before)
{
    for (int i = 0; now->count && i < before->count; i++) {
        if (now->calls[0].function == before->calls[i].function && now->calls[0].frame == before->calls[i].frame) {
            return 1;
        }
    }
    return 0;
}
