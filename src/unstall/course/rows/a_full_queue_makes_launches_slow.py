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
    learn=(
        "If the GPU is slower than the host, the queue of launches fills, and launches wait for room. The author's 17 "
        "ms are the true time of launching; the other 23 of the 40 ms are such waits. How much longer it gets depends "
        "on how far the GPU is behind: 2.4 times for the author, 3 times on an H200, 200 times on a T4, as the net "
        "here is larger than a ResNet-50, to fill the queue of every GPU. Nothing is wrong, and a synchronize in each "
        "step gains nothing."
    ),
    change=("`torch.cuda.synchronize()` before and after the loop, none in it, and divide by its steps."),
    finding="full-queue",
)
