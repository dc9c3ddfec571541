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
            "The GPU works for only a small part of the first run.",
            "first run, device busy",
            "first run, work of the host",
            at_most=0.2,
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
    ),
    learn=(
        "No: the first launch of a kernel loads it, once, and C++ pays that too. Where a profile shows it depends "
        "on the versions: older CUDA loads kernels within cudaLaunchKernel; on the H100, most of the first run is "
        "in torch's operators, outside of any call of CUDA. Profile a later run. If the host works longer than "
        "the GPU in it, too, as on the H100, a CUDA graph helps more than C++."
    ),
    change=(
        "`net(x); torch.cuda.synchronize()` before `with profile(...)`; then, if the host is the limit, `net = "
        "unstall.graphed(net)`."
    ),
    finding="first-use:19",
)
