"""What holds for the program of any recorded run, however it was recorded."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from profiles import examples
from programs import BODIES, Program, _run, programs
from read.documents import documents
from replay.recorded import A_FEW, program_of
from traces import AUTOGRAD, MAIN, Event

from unstall.errors import TraceError
from unstall.read import load
from unstall.replay.engine import replay
from unstall.replay.program import Program as Made
from unstall.replay.steady import steady_step_ns
from unstall.timeline.columns import Timeline

SOME = examples(60, parent=A_FEW)


def check(timeline: Timeline) -> Made:
    """That it has a program, of all that the device did, with its steps in order; that it can be replayed."""
    made = program_of(timeline)
    replay(made)
    assert steady_step_ns(made) >= 0
    assert sorted(made.ops.device.tolist()) == list(range(len(timeline.device)))
    assert len(made.launcher) == len(made.ops)
    assert (made.step_starts < made.step_ends).all()
    assert (np.diff(made.step_starts) > 0).all()
    assert (made.step_ends[:-1] < made.step_starts[1:]).all()
    return made


@A_FEW
@given(programs())
def test_any_run_has_a_program_with_every_op_once(program: Program) -> None:
    check(program.timeline())


@A_FEW
@given(programs(), st.data())
def test_whatever_is_missing_from_the_file_the_rest_has_a_program(program: Program, data: st.DataObject) -> None:
    kinds = ["cuda_runtime", "cpu_op", "python_function", "kernel", "cuda_sync", "gpu_memcpy", "user_annotation"]
    without = data.draw(st.sets(st.sampled_from(kinds)))
    lost = data.draw(st.sets(st.integers(0, len(program.events)), max_size=5))
    events = [event for i, event in enumerate(program.events) if i not in lost and event["cat"] not in without]
    check(program.timeline(events))


def spoiled(event: Event, chance: random.Random) -> Event:
    """With one thing of it wrong."""
    args = dict(event["args"])
    changes: dict[str, Any] = {
        "ts": max(0, event["ts"] + chance.randint(-200_000, 200_000)),
        "dur": chance.choice([0, 1, 3 * event["dur"], 10**9]),
        "tid": chance.choice([MAIN, AUTOGRAD, 1]),
    }
    of_args = {"correlation": range(20), "stream": (-1, 0, 7, 20), "device": (-1, 0, 1, 5)}
    key = chance.choice([*changes, *of_args])
    if key in changes:
        return event | {key: changes[key]}
    if key in args:
        args[key] = chance.choice(of_args[key])
    return event | {"args": args}


@SOME
@given(programs(), st.randoms(use_true_random=False))
def test_whatever_is_wrong_in_the_file_it_has_a_program(program: Program, chance: random.Random) -> None:
    kept = [event for event in program.events if chance.random() > 0.1]
    check(program.timeline([spoiled(event, chance) if chance.random() < 0.2 else event for event in kept]))


@SOME
@given(documents(dirty=True))
def test_any_file_that_can_be_read_has_a_program(document: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "made.json"
        path.write_bytes(document)
        try:
            timeline = load(path)
        except TraceError:
            return
    check(timeline)


class Taught(Program):
    """It begins with all that a device does, alone and behind something, often enough to be learned."""

    def __init__(self) -> None:
        super().__init__(stacks=False, devices=("first", "second"))
        for _ in range(3):
            shown: list[tuple[str, dict[str, Any]]] = [
                ("launch", {}),
                ("memset", {}),
                ("graph", {"kernels_us": [5, 5]}),
                *(("copy", {"direction": way, "device_us": 5}) for way in ("HtoD", "DtoH", "DtoD")),
                *(("copy", {"direction": way, "device_us": 5, "memory": "Pageable"}) for way in ("HtoD", "DtoH")),
            ]
            for method, rest in shown:
                self.work(40)
                getattr(self, method)(**rest)
            self.launch(device_us=60)
            self.launch()
            self.hold({"stream": 20}, behind={"stream": 7})
            self.launch(stream=20)
            self.launch(device=1)
            self.sync()
            self.sync()
        self._shown = len(self.events)

    @property
    def shown(self) -> list[Event]:
        """What comes after that."""
        return self.events[self._shown :]

    def __repr__(self) -> str:
        rest = Program()
        rest.events = self.shown
        return f"\n{rest!r}"


@st.composite
def taught(draw: st.DrawFn) -> Taught:
    """Steps of one thread, or two that wait for each other: no delay is seen for the first time, no wait guessed at."""
    trace = Taught()
    body = draw(BODIES)
    for _ in range(draw(st.integers(1, 3))):
        with trace.step():
            _run(trace, body)
    threads = {event["tid"] for event in trace.events if event["cat"] in ("cpu_op", "cuda_runtime")}
    assume(threads <= {MAIN, AUTOGRAD})
    # A file does not say of which device these wait, or for which device's stream.
    unsaid = {"cudaStreamWaitEvent", "cudaEventSynchronize", "cudaDeviceSynchronize"}
    assume(not unsaid & {event["name"] for event in trace.shown})
    return trace


@SOME
@given(taught())
def test_a_replay_gives_a_run_back_to_the_nanosecond_where_delays_are_always_the_same(program: Taught) -> None:
    timeline = program.timeline()
    made = check(timeline)
    times = replay(made)
    assert times.op_start.tolist() == timeline.device.start[made.ops.device].tolist()
    assert times.op_end.tolist() == timeline.device.end[made.ops.device].tolist()
    rows = made.instructions.host
    last = np.append(rows[1:] != rows[:-1], True) & (rows >= 0)
    assert times.end[last].tolist() == timeline.host.end[rows[last]].tolist()
