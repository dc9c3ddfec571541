"""Row 5."""

from unstall.course.row import Author, Check, Row
from unstall.course.sources import SLIDES

ROW = Row(
    number=5,
    topic="Clocks and launches",
    related=(1, 23),
    question="Is a GPU really five hundred times faster than NumPy?",
    author=Author(
        "GPU not named",
        {
            "NumPy": "375 ms",
            "GPU, until launched": "0.7 ms",
            "GPU, until done": "1.1 ms",
            "NumPy's time, times the GPU's": "341 x",
        },
    ),
    checks=(
        Check("The GPU is much faster than NumPy.", "NumPy", "GPU, until done", at_least=5),
        Check(
            "Large products take about as long to launch as small ones.",
            "GPU, large, until launched",
            "GPU, until launched",
            at_most=3,
        ),
        Check(
            "Large products seem faster than they are if nobody waits.",
            "GPU, large, until launched",
            "GPU, large, until done",
            at_most=0.5,
        ),
        Check("Stopwatch waits, and says how long.", "of it, waited for the GPU", "Stopwatch", at_least=0.001),
    ),
    source=SLIDES,
    learn=(
        "How much faster depends on the CPU, and on how busy that is: {NumPy's time, times the GPU's} here, 341 x by "
        "the author's figures. Wrong is only the author's 0.7 ms: nobody had waited for the GPU. NumPy is done when it "
        "returns, the GPU is not. "
        "Wait for the GPU before you stop the clock. Stopwatch does so, and says what it waited for, or that nothing "
        "was left to wait for."
    ),
    change=('`with unstall.Stopwatch("products"): ...` in place of two reads of the clock.'),
    differs={"of it, waited for the GPU": "what is left to wait for is a small difference of two times"},
    host="mixed",
    finding="early-clock-read",
)
