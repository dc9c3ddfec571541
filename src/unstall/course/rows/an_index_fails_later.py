"""Row 17."""

from unstall.course.row import Check, Row

ROW = Row(
    number=17,
    question="A device-side assert: which line had the wrong index?",
    checks=(
        Check("The traceback has a later line.", "line of the traceback", "line that fails", at_least=1.01),
        Check("unstall names the line that fails.", "line that unstall names", "line that fails", equal=1),
    ),
    learn=(
        "A GPU works on an operator later than Python, so an error comes at the next line that waits. "
        "CUDA_LAUNCH_BLOCKING=1 makes each launch wait, but the program has to run again. blame names the line in the "
        "run that failed."
    ),
    numerics="real",
)
