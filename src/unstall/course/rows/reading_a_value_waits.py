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
        "it, or to know how long a result is. So do most copies. The eleven lines of the script: `t.item()`, "
        "`float(t)`, `print(t)`, `t.cpu()`, `t.tolist()`, `t.nonzero()` (a mask, as in `t[mask]`, calls it), `if (t > "
        '0).all():`, and the copies `pageable.to("cuda")`, the same with non_blocking=True, `pinned.to("cuda")` and '
        '`torch.tensor([1.0, 2.0], device="cuda")`.\n'
        "With non_blocking=True two kinds of copies do not wait: those from or to pinned memory, and uploads of up to "
        '64 KiB (13). `t.to("cpu", non_blocking=True)` makes its result in pinned memory, so it is one of them: wait '
        "before you read that result. no_sync names each line that waits and forbids them, so that none comes back. "
        "What such a wait costs is another question (16)."
    ),
    change=("`with unstall.no_sync():` around a step, and change the lines that it names."),
    prints=True,
    numerics="real",
    finding="sync-item",
)
