"""What replaying adds to a result, an answer to "what if", and a comparison: written out by hand."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from report.sample import TYPICAL
from report.timelines import Recording, drawn

from unstall.changes.result import (
    Account,
    Caveat,
    CopyChange,
    Count,
    DiffResult,
    KernelChange,
    Launches,
    LineChange,
    Side,
    Size,
    Summary,
    Time,
    Unchanged,
    WaitChange,
)
from unstall.report.picture import Picture
from unstall.result import Accounts, Busy, EditStep, Idle, PlanStep, Replay, WhatIf, Where
from unstall.timeline.columns import HostKind

_UNRECORDED = Accounts(
    wall_ns=129_000_000,
    busy_ns=Busy(compute=110_730_981, copy=6_430_017, both=1_200_000),
    idle_ns=Idle(sync=7_000_000, launch=3_289_002, python=350_000),
)
_AFTER = Accounts(
    wall_ns=121_000_000, busy_ns=Busy(compute=112_000_000, both=7_630_998), idle_ns=Idle(latency=1_369_002)
)
_EDITS = ("graph:models/backbone.py:forward", "remove-syncs:train.py:41:aten::item", "pin-copies:train.py:28:aten::to")
_GAINS = (2_000_000, 400_000, 0)
_NOTE = "graph: 2 graphs a step, for the host waits once a step between them, which cannot be captured"

PLANNED = replace(
    TYPICAL,
    findings=(
        *(
            replace(finding, edit=edit, gain_ns=gain)
            for finding, edit, gain in zip(TYPICAL.findings, _EDITS, _GAINS, strict=False)
        ),
        *TYPICAL.findings[3:],
    ),
    replay=Replay(
        mean_step_ns=57_522_392,
        error=-0.002,
        undistorted_mean_step_ns=43_000_000,
        undistorted_by="usual cost",
        usual_error=0.25,
        host_free_step_ns=39_900_000,
        accounts=_UNRECORDED,
    ),
    plan=(
        PlanStep(edit=_EDITS[0], step_ns=41_000_000, gain_ns=2_000_000, notes=(_NOTE,)),
        PlanStep(edit=_EDITS[1], step_ns=40_500_000, gain_ns=500_000),
    ),
    floor_ns=39_453_666,
)

ANSWER = WhatIf(
    version="0.1.0",
    source=TYPICAL.source,
    integrity=TYPICAL.integrity,
    steps=TYPICAL.steps,
    measured_step_ns=57_637_668,
    replayed_step_ns=57_522_392,
    plain_step_ns=43_100_000,
    undistorted_step_ns=43_000_000,
    undistorted_by="plain step time",
    predicted_step_ns=40_500_000,
    floor_ns=39_453_666,
    edits=(
        EditStep(edit="graph", about="Launches become graphs.", step_ns=40_000_000, gain_ns=3_000_000, notes=(_NOTE,)),
        EditStep(edit="host-speed:0.5", about="The host is slower.", step_ns=40_500_000, gain_ns=-500_000),
        EditStep(edit="keep-cache", about="Nothing is freed.", step_ns=40_500_100, gain_ns=-100),
    ),
    before=_UNRECORDED,
    after=_AFTER,
    bound_by=("launch", "device"),
)

_MOVED = (
    Where(file="train.py", line=41, line_is="exact", function="step", op="aten::item"),
    Where(file="train.py", line=44, line_is="exact", function="step", op="aten::item"),
)
_KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"


def _side(name: str, bound_by: str) -> Side:
    return Side(
        source=replace(TYPICAL.source, path=f"/home/ada/{name}.json.gz"),
        integrity=TYPICAL.integrity,
        steps=TYPICAL.steps,
        shortest_step_ns=57_000_000,
        longest_step_ns=58_000_000,
        bound_by=bound_by,
    )


COMPARED = DiffResult(
    version="0.1.0",
    a=_side("before", "launch"),
    b=_side("after", "device"),
    matched_by="line",
    caveats=(Caveat(code="software", text="Versions differ: torch 2.10 in A, 2.11 in B."),),
    summary=Summary(faster="b", ratio=1.341, text="B is 1.34x faster: 43.0 ms a step instead of 57.6 ms. All of it."),
    step_ns=Time(a=57_637_668, b=43_000_000, noise=1_000_000),
    accounts=(
        Account(key="compute", kind="busy", time_ns=Time(a=37_000_000, b=37_500_000)),
        Account(key="launch", kind="idle", time_ns=Time(a=20_637_668, b=5_500_000)),
    ),
    waits=(
        WaitChange(
            status="gone",
            where_a=_MOVED[0],
            where_b=None,
            count=Count(a=1, b=0),
            wait_ns=Time(a=20_640_000, b=0),
            exposed_ns=Time(a=4_133_334, b=0),
        ),
    ),
    copies=(
        CopyChange(
            status="changed",
            where_a=_MOVED[0],
            where_b=_MOVED[1],
            direction="host to device",
            became=("pinned", "non-blocking"),
            count=Count(a=1, b=1),
            pageable=Count(a=1, b=0),
            pinned=Count(a=0, b=1),
            blocking=Count(a=1, b=0),
            bytes=Size(a=38_535_168, b=38_535_168),
            device_ns=Time(a=2_143_339, b=714_446),
        ),
    ),
    launches=Launches(
        calls=Count(a=770, b=2),
        graph_launches=Count(a=0, b=2),
        kernels=Count(a=770, b=770),
        kernels_in_graphs=Count(a=0, b=768),
    ),
    kernels=(
        KernelChange(
            status="new",
            name=_KERNEL,
            where_a=None,
            where_b=_MOVED[1],
            count=Count(a=0, b=2.5),
            device_ns=Time(a=0, b=500_000),
        ),
    ),
    lines=(
        LineChange(
            status="within noise",
            where_a=_MOVED[0],
            where_b=_MOVED[1],
            launches=Count(a=770, b=2),
            cost_ns=Time(a=20_000_000, b=19_900_000, noise=1_000_000),
            device_ns=Time(a=15_000_000, b=15_000_000),
            idle_ns=Time(a=5_000_000, b=4_900_000),
            wait_ns=Time(a=0, b=0),
        ),
    ),
    unchanged=Unchanged(copies=1, kernels=41),
)


def run(*steps: int, begin: int = 0, name: str = "gemm") -> Picture:
    """Steps of these lengths (ns) one after the other, the first at `begin`, each a call that launches one kernel."""
    made = Recording()
    bounds = []
    for length in steps:
        call = made.call("cudaLaunchKernel", begin, begin + length // 4, kind=HostKind.LAUNCH)
        made.op(name, begin + length // 2, begin + length, launch=call)
        bounds.append((begin, begin + length))
        begin += length
    return drawn(made.timeline(), steps=bounds)


PAIR: Sequence[Picture] = (
    run(1_000_000, 1_000_000, begin=50_000),
    run(400_000, 400_000, 400_000, begin=20_000, name="fused"),
)
