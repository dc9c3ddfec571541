/* Which of torch's operators a thread is in: torch exports a function at::_ops::NAME::call of each, and a redispatch. */

#include "_operators.h"
#include "_functions.h"

#include <stddef.h>
#include <string.h>
#include <unwind.h>

enum { MOST_FRAMES = 128, RECENT = 16, MOST_RETURNS = 48, MOST_SEARCHED = 1 << 16 };

/* A stack of this thread that was read, from one frame outward. While the same return addresses are at the same places, it
   is the same one. */
typedef struct {
    uintptr_t frame; /* 0: none */
    int count;
    struct {
        uintptr_t at, address;
    } returns[MOST_RETURNS];
    OperatorCalls calls;
} Stack;

/* The oldest is the next to be replaced. */
static __thread struct {
    Stack stacks[RECENT];
    unsigned next;
} recent;

typedef struct {
    Operators *operators;
    uintptr_t *frame; /* of the call that was found last, until it is known */
    int left;
    Stack *stack;    /* NULL: return addresses are not noted */
    uintptr_t inner; /* where the last frame ended */
} Walk;

static uintptr_t
word_at(uintptr_t address)
{
    uintptr_t word;
    memcpy(&word, (const void *)address, sizeof word);
    return word;
}

/* Notes where the return address into a function is: in the frame of what that called, which ends here. On x86-64, it is
   the last word of it. If it is not found, the stack is not remembered. */
static void
note_return(Walk *walk, uintptr_t address, uintptr_t end, int is_interrupted)
{
    Stack *stack = walk->stack;
    uintptr_t start = walk->inner > stack->frame ? walk->inner : stack->frame, at = end;
    walk->inner = end;
    if (end <= stack->frame) {
        return; /* our own */
    }
    int can_be_there = !is_interrupted && end > start && end - start <= MOST_SEARCHED && stack->count < MOST_RETURNS;
    while (can_be_there && at - start >= sizeof at && word_at(at - sizeof at) != address) {
        at -= sizeof at;
    }
    if (!can_be_there || at - start < sizeof at) {
        stack->frame = 0;
        walk->stack = NULL;
        return;
    }
    stack->returns[stack->count].at = at - sizeof at;
    stack->returns[stack->count++].address = address;
}

static int
is_this(const Stack *stack, uintptr_t frame)
{
    int same = 0;
    if (stack->frame == frame) {
        while (same < stack->count && word_at(stack->returns[same].at) == stack->returns[same].address) {
            same++;
        }
    }
    return same > 0 && same == stack->count;
}

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
    calls->rows[at].frame = 0;
    walk->frame = &calls->rows[at].frame;
}

static _Unwind_Reason_Code
step(struct _Unwind_Context *context, void *walk_)
{
    Walk *walk = walk_;
    uintptr_t inner = (uintptr_t)_Unwind_GetCFA(context); /* where the frame ends that it called */
    if (walk->frame) {
        *walk->frame = inner;
        walk->frame = NULL;
    }
    int is_interrupted = 0;
    uintptr_t address = (uintptr_t)_Unwind_GetIPInfo(context, &is_interrupted);
    if (!address || !walk->left--) {
        return _URC_END_OF_STACK;
    }
    if (walk->stack) {
        note_return(walk, address, inner, is_interrupted);
    }
    FunctionFound function = functions_at(address - !is_interrupted); /* it returns behind its call */
    if (function.kind == OPERATOR) {
        add(walk, &function);
    }
    walk->operators->is_allocators |= function.kind == ALLOCATORS;
    return function.kind == PYTHON ? _URC_END_OF_STACK : _URC_NO_REASON;
}

static void
read_stack(Operators *operators, Stack *stack)
{
    Walk walk = {.operators = operators, .left = MOST_FRAMES, .stack = stack};
    operators->calls.count = operators->is_allocators = 0;
    functions_lock();
    _Unwind_Backtrace(step, &walk);
    functions_unlock();
}

void
operators_here(Operators *operators)
{
    read_stack(operators, NULL);
}

void
operators_called_from(uintptr_t frame, OperatorCalls *calls)
{
    for (int i = 0; i < RECENT; i++) {
        if (is_this(&recent.stacks[i], frame)) {
            *calls = recent.stacks[i].calls;
            return;
        }
    }
    Operators operators;
    Stack *stack = &recent.stacks[recent.next++ % RECENT];
    stack->frame = frame;
    stack->count = 0;
    read_stack(&operators, stack);
    stack->calls = *calls = operators.calls;
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
