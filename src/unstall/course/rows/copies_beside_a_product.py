"""Row 12."""

from unstall.course.row import Author, Check, Row
from unstall.course.sources import SEMINAR

ROW = Row(
    number=12,
    topic="Copies",
    related=(10, 13),
    question="How much time do copies take if they run beside the computation?",
    author=Author(
        "Tesla T4",
        {"one stream": "1.03 s", "two streams": "0.551 s"},
        within={"one stream": 1.25, "two streams": 1.25},
        used=("one stream",),
    ),
    checks=(
        Check("Two streams are faster than one.", "two streams", "one stream", at_most=0.95),
        Check("Two streams come close to the longer of the two works.", "two streams", "longer of the two", 0.9, 1.1),
    ),
    source=SEMINAR,
    learn=(
        "A GPU copies and computes at once, but only what is on different streams. The host waits for a copy from "
        "pageable memory, so what is launched after it cannot run beside it: pin the memory (13). The longer of the "
        "two is the limit: no number of streams goes below it. If copies take longer, send fewer bytes."
    ),
    change=(
        "`for batch in unstall.prefetch(loader): ...`. By hand, with a stream for copies:\n"
        "side, main = torch.cuda.Stream(), torch.cuda.current_stream()\n"
        "with torch.cuda.stream(side):\n"
        '    x = pinned.to("cuda", non_blocking=True)\n'
        "main.wait_stream(side)\n"
        "x.record_stream(main)\n"
        "y = model(x)"
    ),
    finding="serial-copy",
)
