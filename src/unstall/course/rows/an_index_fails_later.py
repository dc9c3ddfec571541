"""Row 17."""

from unstall.course.row import Check, Row
from unstall.course.sources import SEMINAR

ROW = Row(
    number=17,
    topic="Errors and numbers",
    question="A device-side assert: which line had the wrong index?",
    checks=(
        Check("The traceback has a later line.", "lines from the failure to the traceback", at_least=1),
        Check("unstall names the line that fails.", "lines from the failure to the line that unstall names", equal=0),
    ),
    source=SEMINAR,
    learn=(
        "A GPU works on an operator later than Python, so an error comes at some later call of CUDA: how many "
        "lines later depends on how far the host is ahead. CUDA_LAUNCH_BLOCKING=1 makes each launch wait, but the "
        "program has to run again. If the loop runs within `with blame():`, the error names the line in the run "
        "that failed; on an H100, training takes no longer within it, and programs of tiny kernels up to 5 % "
        "longer. Ids that count from 1 are a usual reason: subtract 1. After an assert the process cannot use the "
        "GPU any more: start it again."
    ),
    change=("`with unstall.blame(): train()`; or `unstall run --blame train.py`, without a change to the file."),
    prints=True,
    numerics="real",
)
