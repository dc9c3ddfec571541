"""Operators that launch something have the shapes of their inputs."""

from __future__ import annotations

from virtual.simulate.runs import begin

from unstall.virtual.log import LogCode


def test_the_operator_that_launched_has_its_input_shapes_as_torchs_profiler_writes_them() -> None:
    log, simulator = begin()
    x, y = ("t", "float32", (30, 64), (64, 1)), ("t", "float32", (), ())
    log.operators.append(("5000", "", (x, ("l", (x, y)), None, 2, y), (x,)))  # its time is its name: see `Fixed`
    with log.op("outer"), log.op("5000"):
        log.write(LogCode.LAUNCH, id=0)
    with log.op("another"):
        log.write(LogCode.LAUNCH, id=0)
    timeline = simulator.timeline()
    told = {
        timeline.text(int(name)): timeline.text(int(shapes))
        for name, shapes in zip(timeline.host.name, timeline.host.shapes, strict=True)
    }
    assert told["5000"] == "[[30,64],[[30,64],[]],[],[],[]]"
    assert told["outer"] == told["another"] == told["cudaLaunchKernel"] == ""
