"""A run made ready to ask what if: its program, checked, and without the recorder's cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unstall.errors import UsageError
from unstall.figures import MOST_NS
from unstall.locate.kinds import is_collective, is_recorder_at_work
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


@dataclass(frozen=True, eq=False, slots=True)
class Model:
    """Times are ns a step."""

    subject: Subject  # without the recorder's cost: what edits are made to
    measured_step_ns: float  # the recorded window over its steps
    replayed_step_ns: float  # the same of the replayed program
    undistorted_step_ns: float  # what the program settles to without the recorder
    undistorted_by: UndistortedBy
    plain_step_ns: int | None  # as measured without recording, where that is known
    left_out_ns: int  # pauses that only one of the steps had, in all
    device_stretch: float  # the length of the device's ops against what was recorded, to meet the plain step time

    @property
    def error(self) -> float:
        """How far the replay is from the measurement, as a share of it."""
        return self.replayed_step_ns / max(self.measured_step_ns, 1) - 1


def model(
    timeline: Timeline,
    steps: Steps,
    places: Places,
    *,
    plain_step_ns: int | None = None,
    as_recorded: bool = False,
) -> Model:
    """Build and check a program. `plain_step_ns` defaults to what the file says. Raises UsageError if it is no time."""
    if plain_step_ns is not None and not _is_time(plain_step_ns):
        raise UsageError(f"plain_step_ns: {plain_step_ns!r} is no time: give nanoseconds, such as 28_900_000")
    simulated = timeline.meta.recorder == "virtual"
    if plain_step_ns is not None and simulated:
        raise UsageError(
            "plain_step_ns: this run was simulated, so there is no recorder's cost to take out: leave plain_step_ns out"
        )
    program = build(timeline, steps.start, steps.end)
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
        measured_step_ns=(end - start) / len(steps),
        replayed_step_ns=replayed,
        undistorted_step_ns=steady_step_ns(usual),
        undistorted_by=by,
        plain_step_ns=plain,
        left_out_ns=left_out,
        device_stretch=stretch,
    )


def as_a_rule(recorded: Subject) -> tuple[Program, int]:
    """A program without what the recorder did in between, and without pauses: the second result is how many ns these
    were."""
    host, at_work = recorded.timeline.host, is_recorder_at_work(recorded.timeline, amid=True)
    own = own_work(
        recorded.program, recorded.since, recorded.recorded_span[0], (host.start[at_work], host.end[at_work])
    )
    kept = recorded.loads_data  # whose wait for others is as long without what the recorder did meanwhile
    return without_pauses(recorded.program, np.where(kept, 0, own), kept)


def _is_time(ns: float) -> bool:
    return isinstance(ns, int | float | np.integer) and 1 <= ns < MOST_NS


def _elastic(timeline: Timeline, program: Program) -> Bool:
    """Which ops may be longer or shorter without the recorder. The link's copies and what waits for other devices keep
    their length; the host itself stages pageable ones."""
    device = timeline.device
    kernels = (device.kind == DeviceKind.KERNEL) & ~is_collective(timeline.strings, device.name)
    elastic: Bool = (kernels | (device.host_memory == HostMemory.PAGEABLE))[program.ops.device]
    return elastic
