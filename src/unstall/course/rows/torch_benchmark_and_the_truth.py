"""Row 22."""

from unstall.course.row import Check, Row

ROW = Row(
    number=22,
    topic="Clocks and launches",
    related=(3,),
    question="What do the tables of torch.utils.benchmark and timeit measure?",
    checks=(
        Check("The two timers agree.", "largest difference of the two timers", at_most=20),
        Check("torch's Timer measures calls back to back.", "torch's Timer", "bench, back to back", 0.9, 1.1),
        Check("Here, that is the time of the device.", "torch's Timer", "bench, device", 0.9, 1.1),
        Check("timeit measures the launches.", "timeit", "bench, host", 0.5, 2),
        Check("So it shows less than the work takes.", "timeit", "bench, device", at_most=0.75),
    ),
    learn=(
        "torch's Timer waits once after many calls, and divides the time by the number of calls, so it is right for "
        "calls back to back. timeit does not wait for a GPU, so it shows the launches. Call a function before you time "
        "it: after a slow first call, torch's Timer chooses to time single calls, and waits after each of them. bench "
        "tells all of these times apart, and warms up by itself."
    ),
    change=("`print(unstall.bench(f, x))` in place of `timeit`."),
    differs={"largest difference of the two timers": "it is a small difference of two times"},
    prints=True,
)
