"""Says how much of a program's own work a simulated run does not charge."""

from __future__ import annotations

from unstall.diagnose.run import Run
from unstall.figures import duration

_NOTABLE = 0.1  # of a step
_LEAST_NS = 1_000_000  # what a worker's batch takes to fetch; with less, Python is only slower here than in the model


def note_of_free_work(run: Run) -> str | None:
    """Returns a sentence on the work in a step that took no time in a simulated run, such as a dataset's NumPy. Returns
    None if it would not make a step notably longer, or if it is unknown.
    """
    meta = run.timeline.meta
    took = meta.free_work_ns
    if took is None or took < max(_LEAST_NS, _NOTABLE * run.per_step(run.wall)):
        return None
    where = f", mostly {meta.free_work_at}," if meta.free_work_at else ""
    return (
        f"work that is not torch's (NumPy, loops, other libraries) took {duration(took)} a step here{where} and is not "
        "in these times: unstall run --host mixed charges it"
    )
