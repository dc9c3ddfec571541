"""Row 4."""

from unstall.course.row import Author, Check, Row
from unstall.course.sources import SEMINAR

ROW = Row(
    number=4,
    topic="Clocks and launches",
    related=(1, 6),
    question="How far can the host run ahead of the GPU?",
    author=Author(
        "Tesla T4",
        {
            "no synchronize": "0.196 ms",
            "synchronize after each": "2.77 ms",
            "synchronize once": "2.71 ms",
        },
        within={"no synchronize": 2, "synchronize after each": 1.25, "synchronize once": 1.25},
        used=("synchronize after each",),
    ),
    checks=(
        Check("Without a wait, the clock sees launches only.", "no synchronize", "synchronize after each", at_most=0.5),
        Check(
            "One wait at the end is enough: a call takes nearly as long as with a wait after each call.",
            "synchronize once",
            "synchronize after each",
            0.5,
            1.05,
        ),
        Check(
            "With 5000 calls the queue is full, and the host is held back to the pace of the GPU.",
            "no synchronize, each of 5000 calls",
            "synchronize once",
            at_least=0.5,
        ),
        Check("About a thousand launches fit into the queue.", "launches that fit into the queue", None, 500, 2000),
    ),
    source=SEMINAR,
    learn=(
        "By about a thousand launches ({launches that fit into the queue} here). Launches go into a queue, and the "
        "host runs ahead until it is full: each of 100 calls took {no synchronize}, but each of 5,000 {no "
        "synchronize, each of 5000 calls}. Once it is full, each launch waits for room (back-pressure), which is "
        "no fault: the GPU always has work. A wait in each call gains nothing: to measure a call, wait before and "
        "after many of them."
    ),
    change=("`torch.cuda.synchronize()` before and after the loop, none in it, and divide by its calls."),
    missed={
        "no synchronize": "the author's host is not known, nor "
        "whether the first call, which loads cuBLAS, was among the timed ones."
    },
    finding="full-queue",
)
