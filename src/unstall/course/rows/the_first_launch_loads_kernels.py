"""Row 7."""

from unstall.course.row import Author, Check, Row

ROW = Row(
    number=7,
    topic="Clocks and launches",
    related=(2, 6, 19),
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
            "The GPU works for only a small part of the first run.",
            "first run, device busy, of the time",
            at_most=20,
        ),
        Check(
            "Launching is not slow: the second run's calls of CUDA take less than a fifth of the first run's.",
            "second run, calls of CUDA",
            "first run, calls of CUDA",
            at_most=0.2,
        ),
        Check("Both runs launch the same kernels.", "second run, launches", "first run, launches", equal=1),
        Check(
            "A faster host would save little of the first run.",
            "most that a faster host could save of the first run",
            at_most=10,
        ),
        Check(
            "With a full queue, the device is busy nearly all the time.",
            "full queue, device busy, of the time",
            at_least=80,
        ),
        Check(
            "A launch takes longer with a full queue than with tiny kernels.",
            "full queue, CUDA per launch",
            "tiny kernels, CUDA per launch",
            at_least=1.5,
        ),
        Check(
            "With tiny kernels, the device idles most of the time.",
            "tiny kernels, device busy, of the time",
            at_most=50,
        ),
    ),
    learn=(
        "The share of cudaLaunchKernel cannot tell; these can, and unstall explain names each. The second run is much "
        "shorter: no, the first launch of a kernel loads it, once, and C++ pays that too (older CUDA loads within "
        "cudaLaunchKernel, the H100's mostly outside of CUDA's calls). The device is busy nearly all the time: no, the "
        'queue is full and launches wait for room (6), in newer profilers as "Command Buffer Full". The device idles '
        "in every run: perhaps, kernels are tiny, but a CUDA graph helps more (19)."
    ),
    change=(
        "`net(x); torch.cuda.synchronize()` before `with profile(...)`; then, if the device idles, `net = "
        "unstall.graphed(net)`."
    ),
    finding="first-use:44",
)
