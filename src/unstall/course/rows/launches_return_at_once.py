"""Row 1."""

from unstall.course.row import Author, Check, Row
from unstall.course.sources import SEMINAR

ROW = Row(
    number=1,
    topic="Clocks and launches",
    related=(3, 4),
    question="Why does a clock around a call show only a part of the time that the GPU works?",
    author=Author(
        "Tesla T4",
        {"empty loop": "0.19 us", "without synchronize": "45.6 us", "with synchronize": "534 us"},
        within={"empty loop": 2, "without synchronize": 2, "with synchronize": 1.25},
        used=("with synchronize",),
    ),
    checks=(
        Check("A launch takes less time than the work.", "without synchronize", "bench, device", at_most=0.95),
        Check(
            "With a wait after each call, the clock sees the device's work.",
            "with synchronize",
            "bench, device",
            1,
            2,
        ),
        Check("Without a wait, the clock sees the launch.", "without synchronize", "bench, host", 0.3, 3),
        Check("The device works longer than the launch takes.", "bench, device", "bench, host", at_least=1.0),
        Check(
            "Without a wait before the loop, the clock also sees earlier work.",
            "a wait only after the loop",
            "a wait before and after the loop",
            at_least=1.15,
        ),
    ),
    source=SEMINAR,
    learn=(
        "Both times are right. A call on a GPU puts work into a queue and returns (it runs asynchronously): "
        "without a wait, the clock (or timeit) sees the launching ({without synchronize}); with a wait after each "
        "call, it sees launching, the GPU's work ({bench, device}) and the wait, which overlap in part: {with "
        "synchronize}. In a training loop your line costs the longer of launching and work, here {a wait before "
        "and after the loop} a call, because the host launches the next call while the GPU still works; of a step "
        "with many lines, the longer of the two sums counts. So for timing and benchmarks take a whole loop: run "
        "its work a few times with each shape (warm-up), wait, run the loop, and wait again; without the first "
        "wait, the clock also sees earlier work."
    ),
    change=(
        '`print(unstall.bench(work, cache="hot"))`: its throughput ("bench, back to back" in the table) is what the '
        "line costs in a loop. The cache is hot if it is left as the last call left it; without `cache=`, it is "
        "emptied before each call. By hand:\n"
        "for _ in range(5):\n"
        "    work()\n"
        "torch.cuda.synchronize()\n"
        "begin = time.perf_counter()\n"
        "for _ in range(100):\n"
        "    work()\n"
        "torch.cuda.synchronize()\n"
        "print((time.perf_counter() - begin) / 100)"
    ),
    finding="early-clock-read",
)
