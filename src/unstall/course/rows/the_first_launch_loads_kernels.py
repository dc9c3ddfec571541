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
            "A faster host would save little of the first run.",
            "most that a faster host could save of the first run",
            at_most=10,
        ),
    ),
    learn=(
        "No: the first launch of a kernel loads it, once, and C++ pays that too. Older versions of CUDA load it "
        "within cudaLaunchKernel. On the H100, with a newer one, calls of CUDA are only 8 % of the host's work in the "
        "first run: the rest is in torch's operators, outside of any recorded call, while the virtual GPUs put nearly "
        "all of it into calls of CUDA. If the host works longer than the GPU in a later run, too, as on the H100, a "
        "CUDA graph helps more than C++. Change: `net(x); torch.cuda.synchronize()` before `with profile(...)`."
    ),
    finding="first-use",
)
