"""Row 6."""

from unstall.course.row import Author, Check, Row

ROW = Row(
    number=6,
    topic="Clocks and launches",
    related=(4, 7),
    question="Why does launching a forward pass take longer without a synchronize after it?",
    author=Author(
        "ResNet-50, GPU not named",
        {"forward, no synchronize": "40 ms", "forward, synchronize after each step": "17 ms"},
    ),
    checks=(
        Check(
            "Without a wait, launching the forward pass takes longer.",
            "forward, no synchronize",
            "forward, synchronize after each step",
            at_least=1.5,
        ),
        Check(
            "So does launching the backward pass.",
            "backward, no synchronize",
            "backward, synchronize after each step",
            at_least=1.5,
        ),
        Check(
            "A whole step takes as long with a wait as without.",
            "a step, synchronize after each step",
            "a step, no synchronize",
            0.95,
            1.25,
        ),
    ),
    source="https://discuss.pytorch.org/t/156008",
    learn=(
        "If the GPU is slower than the host, the queue of launches fills (about a thousand, 4), and launches wait "
        "for room. Launching takes {forward, synchronize after each step} here (24 blocks of convolutions), and 17 "
        "ms for the author's ResNet-50; the rest of the {forward, no synchronize}, and of the author's 40 ms, are "
        "such waits. They get longer the slower the GPU is. Nothing is wrong, and a whole step takes about the "
        "same either way ({a step, synchronize after each step} and {a step, no synchronize}): the wait only shows "
        "how long launching takes."
    ),
    mine=(
        '`unstall run train.py` says "The launch queue was full: back-pressure, not a problem" at the line, and '
        '"Device-bound". If it says "Launch-bound", launching itself is slow, and a CUDA graph helps (19).'
    ),
    change=(
        "to time launching, `torch.cuda.synchronize()` before each forward pass, and read the clock before and after "
        "it; to time a step, wait before and after the loop, not in it, and divide by its steps."
    ),
    finding="full-queue",
)
