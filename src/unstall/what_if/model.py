"""Prepares a run for what-if questions: makes its `Program`, takes the recorder's overhead out, and
measures the replay's error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from msgspec.structs import replace

from unstall.errors import UsageError
from unstall.figures import MOST_NS
from unstall.locate.kinds import is_communication, is_recorder_at_work
from unstall.locate.places import Places
from unstall.locate.steps import Steps
from unstall.replay.build import build
from unstall.replay.engine import replay
from unstall.replay.program import Program
from unstall.replay.steady import steady_step_ns
from unstall.timeline.columns import Bool, DeviceKind, HostMemory, Timeline
from unstall.what_if.calibrate import by_overhead, by_speed
from unstall.what_if.subject import Subject
from unstall.what_if.undistort import USUAL_OF, own_work, undistort, without_pauses

UndistortedBy = Literal["plain step time", "usual cost", "nothing"]
"""How the recorder's overhead was found out: from steps that were timed without recording, or from
what recording usually costs. "nothing": it was not taken out.
"""


@dataclass(frozen=True, eq=False, slots=True)
class Model:
    """A run's program, and its step times in ns.

    Attributes:
        subject: The run and its program without the recorder's overhead. Edits change this one.
        recorded: The run and its program with the overhead.
        measured_step_ns: The step time as recorded.
        replayed_step_ns: The step time of a replay of `recorded`.
        undistorted_step_ns: The step time in a long run of `subject`.
        undistorted_by: How the overhead was found out.
        plain_step_ns: The plain step time; None if it is unknown.
        left_out_ns: Total length of the pauses that only one of the steps had, and that `subject`
            leaves out.
        device_stretch: The factor by which the times of kernels were multiplied to match the plain
            step time.
    """

    subject: Subject
    recorded: Subject
    measured_step_ns: float
    replayed_step_ns: float
    undistorted_step_ns: float
    undistorted_by: UndistortedBy
    plain_step_ns: int | None
    left_out_ns: int
    device_stretch: float

    @property
    def error(self) -> float:
        """By how much the replayed step time is off, as a share of the recorded step time. Negative
        if the replay is too fast.
        """
        return self.replayed_step_ns / max(self.measured_step_ns, 1) - 1

    @property
    def error_ns(self) -> float:
        """The size of the replay's error, in ns of a step without the recorder's overhead. A gain
        that is smaller may be no gain at all.
        """
        return abs(self.error) * self.undistorted_step_ns


def model(
    timeline: Timeline,
    steps: Steps,
    places: Places,
    *,
    plain_step_ns: int | None = None,
    as_recorded: bool = False,
) -> Model:
    """Makes a run's program, takes the recorder's overhead out, and replays the program as recorded
    to measure the replay's error.

    Args:
        timeline: The run.
        steps: The steps of the run.
        places: The user's source line of each host event.
        plain_step_ns: The step time without the recorder, in ns. If None, the one in the trace is
            used, if there is one.
        as_recorded: Whether the overhead stays in the program.

    Raises:
        UsageError: `plain_step_ns` is no time, or is given for a simulated run.
    """
    if plain_step_ns is not None and not _is_time(plain_step_ns):
        raise UsageError(f"plain_step_ns: {plain_step_ns!r} is no time: give nanoseconds, such as 28_900_000")
    simulated = timeline.meta.recorder == "virtual"
    if plain_step_ns is not None and simulated:
        raise UsageError(
            "plain_step_ns: this run was simulated, so there is no recorder's cost to take out: leave plain_step_ns out"
        )
    program = replace(build(timeline, steps.start, steps.end), repeats=steps.found_by != "whole")
    start, end = steps.window
    replayed = replay(program).mean_step_ns(program)
    plain = timeline.meta.plain_step_ns if plain_step_ns is None else round(plain_step_ns)
    recorded = Subject(timeline, places, steps, program)
    as_recorded = as_recorded or simulated
    usual, left_out = (program, 0) if as_recorded else as_a_rule(recorded)
    stretch, cost = 1.0, USUAL_OF[timeline.meta.recorder]
    by: UndistortedBy = "nothing"
    if not as_recorded and plain and timeline.meta.recorder == "cupti":
        by = "plain step time"
        usual = undistort(usual, 1.0, cost)
        usual, stretch = by_speed(usual, plain, _elastic(timeline, usual), recorded.loads_data)
    elif not as_recorded and plain:
        by = "plain step time"
        usual, stretch = by_overhead(usual, plain, _elastic(timeline, usual), cost)
    elif not as_recorded:
        by = "usual cost"
        usual = undistort(usual, 1.0, cost)
    return Model(
        subject=recorded.with_program(usual),
        recorded=recorded,
        measured_step_ns=(end - start) / len(steps),
        replayed_step_ns=replayed,
        undistorted_step_ns=steady_step_ns(usual),
        undistorted_by=by,
        plain_step_ns=plain,
        left_out_ns=left_out,
        device_stretch=stretch,
    )


def as_a_rule(recorded: Subject) -> tuple[Program, int]:
    """Takes out of a run's program what a step does not usually have: pauses, and the recorder's
    own work between calls.

    A pause is work that took far longer in one step than in all others. Returns `(program,
    pauses_ns)`: the changed program, and the total length of the pauses.
    """
    host, at_work = recorded.timeline.host, is_recorder_at_work(recorded.timeline, amid=True)
    own = own_work(
        recorded.program, recorded.since, recorded.recorded_span[0], (host.start[at_work], host.end[at_work])
    )
    kept = recorded.loads_data  # waits for other threads or processes stay as long as recorded
    return without_pauses(recorded.program, np.where(kept, 0, own), kept)


def _is_time(ns: float) -> bool:
    return isinstance(ns, int | float | np.integer) and 1 <= ns < MOST_NS


def _elastic(timeline: Timeline, program: Program) -> Bool:
    """Returns a mask of the ops that may take another time without the recorder: kernels that do
    not wait for other devices, and copies from or to pageable memory, which the host stages.
    """
    device = timeline.device
    kernels = (device.kind == DeviceKind.KERNEL) & ~is_communication(timeline)
    elastic: Bool = (kernels | (device.host_memory == HostMemory.PAGEABLE))[program.ops.device]
    return elastic
