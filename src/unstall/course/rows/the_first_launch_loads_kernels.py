"""Row 7."""

from unstall.course.row import Author, Check, Row

_LOADING = "in the profile of the real one, loading is no call of CUDA"
_SLOWER = "the second run took several times as long on the hosts of real ones; it is not known why"

ROW = Row(
    number=7,
    topic="Clocks and launches",
    related=(2, 6, 19),
    question="The profile says 99.8 % of the time is cudaLaunchKernel: would C++ help?",
    author=Author(
        "Quadro M4000",
        {
            "first run, share in calls of CUDA": "99.8 %",
            "first run, CUDA per launch": "20749 us",
            "first run, device busy, of the time": "0.02 %",
        },
    ),
    checks=(
        Check(
            "The GPU works for only a small part of the first run.",
            "first run, device busy, of the time",
            at_most=20,
        ),
        Check(
            "Launching is not slow: in the second run, CUDA takes less than a fifth of the time for each launch.",
            "second run, CUDA per launch",
            "first run, CUDA per launch",
            at_most=0.2,
        ),
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
    source="https://stackoverflow.com/questions/71328662",
    learn=(
        "Not in a first run: it loads kernels, once, and C++ pays that too; a faster host saves at most {most "
        "that a faster host could save of the first run} of it. So profile a second run. If the device is busy "
        "nearly all of that (here {second run, device busy, of the time}: this net fills the time of a T4, but "
        "not of an H200), a faster host would only wait longer. Only if the device idles in it is launching the "
        "limit: C++ would help, but a CUDA graph helps more (19).\n"
        "The share of cudaLaunchKernel tells none of this. With a full queue, launches wait for the GPU (CUDA takes "
        "{full queue, share in calls of CUDA}, and the device is busy {full queue, device busy, of the time} of the "
        "time), and a faster host gains nothing (6). With tiny kernels, launching is the limit ({tiny kernels, share "
        "in calls of CUDA}, and {tiny kernels, device busy, of the time}). And older CUDA loads kernels within that "
        "call, newer ones elsewhere, and some profiles do not show it as a call of CUDA at all."
    ),
    mine=(
        "Save your profiler's table as text: `unstall explain table.txt` says whether kernels were loaded, and "
        "what C++ would save. From a trace (`unstall explain trace.json`), it also says if the device idles, and "
        "what a CUDA graph would gain."
    ),
    change=(
        "`net(x); torch.cuda.synchronize()` before `with profile(...)`; then, if the device idles, `net = "
        "unstall.graphed(net)`."
    ),
    differs={
        "first run, share in calls of CUDA": _LOADING,
        "first run, CUDA per launch": _LOADING,
        "second run, share in calls of CUDA": _SLOWER,
        "second run, CUDA per launch": _SLOWER,
        "second run, device busy, of the time": _SLOWER,
        "most that a faster host could save of the first run": _SLOWER,
    },
    prints=True,
    searched="rewrite cpp utilization profiler",
    finding="first-use:41",
)
