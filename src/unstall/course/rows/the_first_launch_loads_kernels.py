"""Row 7."""

from unstall.course.row import Author, Check, Row

ROW = Row(
    number=7,
    topic="Clocks and launches",
    related=(2, 19),
    question="The profile says 99.8 % of the time is cudaLaunchKernel: would C++ help?",
    author=Author(
        "Quadro M4000",
        {
            "first run, calls of CUDA": "933.7 ms",
            "first run, launches": "45",
            "first run, device busy": "0.195 ms",
        },
    ),
    checks=(
        Check(
            "The first run takes the host many times as long as the second.",
            "first run, work of the host",
            "second run, work of the host",
            at_least=3,
        ),
        Check(
            "The GPU works for only a small part of the first run.",
            "first run, device busy",
            "first run, work of the host",
            at_most=0.2,
        ),
        Check(
            "A faster host would save little of the first run.",
            "most that a faster host could save of the first run",
            at_most=34,
        ),
    ),
    learn=(
        "No. The first launch of a kernel loads it. Older versions of CUDA load it within cudaLaunchKernel, newer ones "
        "in calls before it. This happens once, and C++ pays it too. Profile a later run: if the host then works "
        "longer than the GPU, a CUDA graph helps more than C++."
    ),
)
