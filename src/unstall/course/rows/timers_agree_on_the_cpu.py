"""Row 3."""

from unstall.course.row import Author, Check, Row
from unstall.course.sources import SEMINAR

_CPU = {
    "mul_sum on the CPU, timeit": "491.0 us",
    "mul_sum on the CPU, %timeit": "457 us",
    "mul_sum on the CPU, Timer": "444.65 us",
    "mul_sum on the CPU, Timer with 2 threads": "457.31 us",
    "bmm on the CPU, timeit": "940.7 us",
    "bmm on the CPU, %timeit": "1040 us",
    "bmm on the CPU, Timer": "900.82 us",
    "bmm on the CPU, Timer with 2 threads": "576.61 us",
}
_GPU = {
    "mul_sum on the GPU, timeit": "28.4 us",
    "mul_sum on the GPU, Timer": "502.46 us",
    "bmm on the GPU, timeit": "27.9 us",
    "bmm on the GPU, Timer": "243.98 us",
}

ROW = Row(
    number=3,
    topic="Clocks and launches",
    related=(1, 22),
    question="Which timer is right: timeit, %timeit or torch's Timer?",
    author=Author(
        "Tesla T4",
        _CPU | _GPU,
        within=dict.fromkeys(_CPU | _GPU, 1.25),
        used=("mul_sum on the GPU, timeit", "mul_sum on the GPU, Timer"),
    ),
    checks=(
        Check(
            "On the CPU, timeit and Timer agree on mul_sum.",
            "mul_sum on the CPU, timeit",
            "mul_sum on the CPU, Timer",
            0.5,
            2,
        ),
        Check("On the CPU, timeit and Timer agree on bmm.", "bmm on the CPU, timeit", "bmm on the CPU, Timer", 0.5, 2),
        Check(
            "On the GPU, timeit sees only a part of mul_sum.",
            "mul_sum on the GPU, timeit",
            "mul_sum on the GPU, Timer",
            at_most=0.9,
        ),
        Check(
            "On the GPU, Timer on bmm shows the slower of host and GPU, so never much less than timeit.",
            "bmm on the GPU, Timer",
            "bmm on the GPU, timeit",
            at_least=0.8,
        ),
    ),
    source=SEMINAR,
    learn=(
        "On the CPU a call returns when it is done, so all timers measure the same, apart from what else the machine "
        "does meanwhile. On a GPU, timeit measures launches; torch's Timer waits once at the end, and so measures the "
        "slower of the two, host or GPU. Compare a time only with others that answer the same question: what a launch "
        "takes, or what a call takes in a loop (1). Two threads help bmm, which computes. mul_sum reads and writes "
        "memory: on the author's machine one thread already reads nearly as fast as the memory allows, so a second one "
        "gains nothing; with the faster memory of the H200's machine it does."
    ),
    change=('`torch.utils.benchmark.Timer("f(x)", globals=globals()).timeit(100)` in place of timeit.'),
    finding="early-clock-read",
)
