"""Row 25."""

from unstall.course.row import Check, Row

_MIB = 2**20
_KEPT = 9 * 40 * _MIB  # of each step, the input and four results: 2048 x 1024 floats each

ROW = Row(
    number=25,
    topic="Memory",
    related=(8, 9),
    question="Reserved memory grows in each step: is it a leak?",
    checks=(
        Check("With growing inputs, no tensor is kept.", "growing inputs, allocated grows by", equal=0),
        Check("The cache grows.", "growing inputs, reserved grows by", at_least=_KEPT),
        Check(
            "A list of losses keeps what each loss was made of.", "a list of losses, allocated grows by", equal=_KEPT
        ),
        Check(
            "A list of detached losses keeps nothing of it.", "a list of losses, detached, allocated grows by", equal=0
        ),
        Check(
            "A list of errors keeps as much, by their tracebacks.", "a list of errors, allocated grows by", equal=_KEPT
        ),
        Check("A list of their texts keeps nothing of it.", "a list of errors, as text, allocated grows by", equal=0),
    ),
    learn=(
        "Compare memory_allocated at the same point of each step. If it stays as it is, nothing leaks: the "
        "allocator keeps segments (8, 9; a loop that keeps nothing still reserves memory for its first step). If "
        "it grows, the program keeps tensors, until it is out of memory (OOM). Usual reasons are a list of losses "
        "with their graphs, and an exception that is kept: its traceback keeps the variables of all functions "
        "that it left. The report of unstall shows memory over time, and which lines hold it at the peak."
    ),
    change="`losses.append(loss.detach())`, and `errors.append(str(error))`.",
    then=(("unstall open", "memory over time, by line"),),
    finding="memory",
)
