"""Results to render: a realistic run written out by hand, and whatever hypothesis can invent."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from unstall.result import (
    IDLE_CAUSES,
    Accounts,
    Busy,
    Caller,
    Confidence,
    DeviceAccounts,
    DeviceMemory,
    Finding,
    Idle,
    Integrity,
    LineCost,
    LineMemory,
    Result,
    Source,
    Steps,
    Verdict,
    Where,
)

MS = 1_000_000
HOME = "/home/ada/projects/vision"
TRAIN = f"{HOME}/train.py"
MODEL = f"{HOME}/models/backbone.py"
LIBRARY = "/home/ada/.venv/lib/python3.11/site-packages/transformers/models/gpt2/modeling_gpt2.py"

_MAIN = Caller(file=TRAIN, line=90, function="main")
_ITEM = Where(file=TRAIN, line=41, line_is="exact", function="train_step", op="aten::item", called_from=_MAIN)
_COPY = Where(file=TRAIN, line=28, line_is="def", function="load", op="aten::to", called_from=_MAIN)
_FORWARD = Where(file=MODEL, line=112, line_is="def", function="forward", called_from=_MAIN)
_ATTENTION = Where(file=LIBRARY, line=305, line_is="def", function="forward", called_from=_MAIN)

_ACCOUNTS = Accounts(
    wall_ns=172_913_004,
    busy_ns=Busy(compute=110_730_981, copy=6_430_017, both=1_200_000),
    idle_ns=Idle(
        sync=12_400_002, launch=36_552_004, input=4_300_000, allocator=900_000, python=350_000, latency=50_000
    ),
)

TYPICAL = Result(
    version="0.1.0",
    source=Source(
        path=f"{HOME}/traces/resnet50.json.gz",
        reader="kineto",
        device="NVIDIA H200",
        torch="2.11.0",
        cuda="12.8",
        has_stacks=True,
        host_events=28_430,
        device_ops=2_388,
    ),
    integrity=Integrity(
        ok=True,
        notes=(
            "3 names held control characters, which were dropped.",
            "2 kernels have no launch in the file; their time counts, without a line.",
        ),
    ),
    steps=Steps(
        found_by="annotation",
        name="ProfilerStep",
        count=3,
        start_ns=0,
        wall_ns=172_913_004,
        mean_ns=57_637_668,
    ),
    accounts=_ACCOUNTS,
    by_device=(
        DeviceAccounts(
            device=0,
            name="NVIDIA H200",
            wall_ns=_ACCOUNTS.wall_ns,
            busy_ns=_ACCOUNTS.busy_ns,
            idle_ns=_ACCOUNTS.idle_ns,
        ),
    ),
    verdict=Verdict(
        bound_by="device",
        basis="recorded",
        text="Bound by the device, which is busy for 68.4 % of a step; while it is idle, it mostly waits for launches.",
    ),
    findings=(
        Finding(
            rule="launch-bound",
            title="launch-bound: the device waits for the host to dispatch",
            where=_FORWARD,
            count=2_310,
            wait_ns=0,
            exposed_ns=12_184_001,
            saw="2,310 launches whose work takes 4.1 µs (median); 0.3 ops queued on average when the next was launched",
            fix="capture the step in a CUDA graph (torch.compile(mode='reduce-overhead')), or use a larger batch",
            safe_if="shapes and control flow are the same in every step",
            confidence="high",
            spans=((1_000_000, 9_000_000), (58_000_000, 66_500_000)),
        ),
        Finding(
            rule="sync-item",
            title=".item() makes the host wait for the device",
            where=_ITEM,
            count=3,
            wait_ns=20_640_000,
            exposed_ns=4_133_334,
            saw="aten::item copies one value to the host and waits for all work before it",
            fix="keep the loss on the device and read it every 50 steps",
            safe_if="nothing on the host decides by this value in every step",
            confidence="high",
            spans=((40_000_000, 60_640_000),),
        ),
        Finding(
            rule="pageable-copy",
            title="copies from pageable host memory block the host",
            where=_COPY,
            count=3,
            wait_ns=2_143_339,
            exposed_ns=2_143_339,
            saw="3 copies, 110 MiB in all: the driver stages pageable memory piece by piece and the host waits",
            fix="pin the source: DataLoader(pin_memory=True), then .to(device, non_blocking=True)",
            safe_if="the source is not written before the copy ends",
            confidence="medium",
        ),
        Finding(
            rule="sync-nonzero",
            title="nonzero() makes the host wait for the device",
            where=_ATTENTION,
            count=15,
            wait_ns=358_500_000,
            exposed_ns=1_200,
            saw="the device had work queued all the while",
            fix="nothing to gain here",
            safe_if="always",
            confidence="high",
            harmless=True,
        ),
        Finding(
            rule="queue-full",
            title="the launch queue was full: back-pressure, not a problem",
            where=Where(function="ProfilerStep"),
            count=420,
            wait_ns=18_000_000,
            exposed_ns=0,
            saw="420 launches blocked with 1,022 ops queued (median)",
            fix="nothing: the device is the bottleneck, and the host waits for it",
            safe_if="—",
            confidence="high",
            harmless=True,
        ),
    ),
    lines=(
        LineCost(
            where=_FORWARD,
            launches=2_310,
            device_ops=2_310,
            device_ns=36_910_327,
            wait_ns=0,
            idle_ns=12_184_001,
            idle_cause="launch",
            ),
        LineCost(
            where=_ITEM, launches=3, device_ops=3, device_ns=2_000, wait_ns=20_640_000, idle_ns=4_133_334,
            idle_cause="sync",
        ),
        LineCost(
            where=_COPY, launches=6, device_ops=6, device_ns=2_143_339, wait_ns=2_143_339, idle_ns=1_433_333,
            idle_cause="input",
        ),
        LineCost(
            where=Where(), launches=0, device_ops=69, device_ns=73_011, wait_ns=0, idle_ns=0
        ),
    ),
)  # fmt: skip

_NOTHING = Accounts(wall_ns=5 * MS, busy_ns=Busy(), idle_ns=Idle(latency=5 * MS))

NO_DEVICE = Result(
    version="0.1.0",
    source=Source(path="cpu.json", reader="kineto", host_events=120),
    integrity=Integrity(ok=False, notes=("The file is cut off at byte 10,485,760: 120 whole events were read.",)),
    steps=Steps(found_by="whole", count=1, start_ns=0, wall_ns=5 * MS, mean_ns=5 * MS),
    accounts=_NOTHING,
    by_device=(),
    verdict=Verdict(bound_by="none", basis="recorded", text="No work on a device was recorded."),
    findings=(),
    lines=(),
)

_MIB = 1 << 20
WITH_MEMORY = msgspec.structs.replace(
    TYPICAL,
    memory=(
        DeviceMemory(
            device=0,
            start_ns=0,
            end_ns=6 * MS,
            peak_ns=2_500_000,
            allocated_bytes=60 * _MIB,
            reserved_bytes=80 * _MIB,
            allocated=tuple(each * _MIB for each in (20, 20, 60, 60, 30, 30)),
            reserved=(80 * _MIB,) * 6,
            lines=(
                LineMemory(
                    where=Where(file="train.py", line=20),
                    bytes=40 * _MIB,
                    count=3,
                    over_time=tuple(each * _MIB for each in (0, 0, 40, 40, 10, 10)),
                ),
            ),
        ),
    ),
)

HOSTILE = (
    "</script><script>alert(1)</script>",
    "[bold red]loud[/] [link=http://evil.test]x[/link]",
    "\x1b[31mred\x1b[0m \x9b31m \x07",
    "\x1b]8;;http://evil.test\x07click\x1b]8;;\x07",
    "a\u202egnp.exe\u2066\u200b\ufeff",
    "::error file=a.py,line=1::owned\n::set-output name=x::y",
    "| a | b |\n|---|---|\n| ![x](http://evil.test/y.png) | `` ` ``",
    "[click](javascript:alert(1)) <img src=x onerror=alert(1)> @everyone #1 https://evil.test",
    "=HYPERLINK(\"http://evil.test\")%0A%25",
    "- list\n# heading\n> quote\n1. one\n***",
    "\ud800 \x00 \u2028 \u0085",
)  # fmt: skip

texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=40), st.just(""), st.just("x" * 300))
_figures = st.integers(min_value=0, max_value=2**62)
_counts = st.integers(min_value=0, max_value=10**9)
_optional_texts = st.none() | texts
_callers = st.builds(Caller, file=texts, line=_counts, function=texts)
wheres = st.builds(
    Where,
    file=_optional_texts,
    line=st.none() | st.integers(min_value=-1, max_value=10**6),
    line_is=st.sampled_from([None, "exact", "def"]),
    function=_optional_texts,
    op=_optional_texts,
    called_from=st.none() | _callers,
)
_confidences: st.SearchStrategy[Confidence] = st.sampled_from(["high", "medium", "low"])
findings = st.builds(
    Finding,
    rule=texts,
    title=texts,
    where=wheres,
    count=_counts,
    wait_ns=_figures,
    exposed_ns=_figures,
    gain_ns=st.none() | st.integers(-(10**12), 10**12),
    edit=_optional_texts,
    saw=texts,
    fix=texts,
    safe_if=texts,
    confidence=_confidences,
    harmless=st.booleans(),
    spans=st.just(()),
)
lines = st.builds(
    LineCost,
    where=wheres,
    launches=_counts,
    device_ops=_counts,
    device_ns=_figures,
    wait_ns=_figures,
    idle_ns=_figures,
    idle_cause=st.sampled_from([None, *IDLE_CAUSES]),
)


@st.composite
def accounts(draw: st.DrawFn) -> Accounts:
    """Parts of any size that add up to the whole."""
    part = st.integers(0, 10**12)
    busy = draw(st.builds(Busy, compute=part, copy=part, both=part, comm=part))
    idle = Idle(**{cause: draw(part) for cause in IDLE_CAUSES})
    wall = busy.compute + busy.copy + busy.both + busy.comm + sum(getattr(idle, cause) for cause in IDLE_CAUSES)
    return Accounts(wall_ns=wall, busy_ns=busy, idle_ns=idle)


@st.composite
def results(draw: st.DrawFn) -> Result:
    """Any result that the schema allows, hostile in every text."""
    whole = draw(accounts())
    count = draw(st.integers(1, 10**6))
    return Result(
        version="0.1.0",
        source=draw(
            st.builds(
                Source,
                path=texts,
                reader=texts,
                device=_optional_texts,
                torch=_optional_texts,
                cuda=_optional_texts,
                rank=st.none() | st.integers(0, 10**4),
                world_size=st.none() | st.integers(1, 10**4),
            )
        ),
        integrity=draw(st.builds(Integrity, ok=st.booleans(), notes=st.lists(texts, max_size=2).map(tuple))),
        steps=Steps(
            found_by=draw(st.sampled_from(["annotation", "optimizer", "period", "whole"])),
            name=draw(_optional_texts),
            marks=draw(st.sampled_from([None, "optimizer", "loader", "forward", "explicit"])),
            count=count,
            start_ns=0,
            wall_ns=whole.wall_ns,
            mean_ns=whole.wall_ns // count,
        ),
        accounts=whole,
        by_device=(),
        verdict=Verdict(
            bound_by=draw(st.sampled_from(["device", "none", *IDLE_CAUSES])),
            basis=draw(st.sampled_from(["recorded", "undistorted"])),
            text=draw(texts),
        ),
        findings=tuple(draw(st.lists(findings, max_size=3))),
        lines=tuple(draw(st.lists(lines, max_size=3))),
    )
