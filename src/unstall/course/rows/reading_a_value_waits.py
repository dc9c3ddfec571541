"""Row 15."""

from unstall.course.row import Check, Row
from unstall.course.sources import SLIDES

ROW = Row(
    number=15,
    topic="Waits",
    related=(13, 16),
    question="Which lines wait for the GPU, though nobody asked them to?",
    checks=(
        Check("All eleven lines wait.", "waits in lines_that_wait", equal=11),
        Check("The other lines do not.", "waits in lines_that_do_not", equal=0),
    ),
    source=SLIDES,
    learn=(
        "A line waits (is a barrier between host and GPU) if the host needs a value: to print it, to decide by "
        "it, or to know how long a result is. So do copies, unless the memory is pinned and non_blocking=True: "
        '`.to("cpu", non_blocking=True)` puts its result into pinned memory, so only who reads that has to wait '
        "(13). no_sync names each line that waits and forbids them, so that none comes back. What such a wait "
        "costs is another question (16)."
    ),
    change=("`with unstall.no_sync():` around a step, and mend the lines that it names."),
    numerics="real",
    finding="sync-item",
)
