"""Finds lines at which the host waits for the device: `.item()`, `.cpu()`, `if tensor`, synchronize
and similar calls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from unstall.diagnose.copies import other_waits
from unstall.diagnose.run import Group, Run
from unstall.diagnose.timed_waits import reads_after, way_to_time
from unstall.figures import counted, duration, size
from unstall.locate.operations import has_operators
from unstall.locate.tensor_cores import only_float16
from unstall.result import Finding
from unstall.timeline.columns import I32, I64, CopyDirection, HostKind
from unstall.ways_to_wait import (
    EXPLICIT,
    TENSORS_OWN,
    TO_READ_A_CLOCK,
    VALUE_BYTES,
    WAYS,
    Read,
    Wait,
    Way,
    called,
    is_ours,
)
from unstall.what_if.edits.remove_syncs import READ_BACK_BYTES
from unstall.what_if.gains import COSTS_NOTHING

_MOST_PLACES = 3  # in libraries, listed in a finding
_LONGEST, _MOST_FRAMES = 512, 64  # characters and frames between the wait and the user's line
_RECORDER = re.compile(r"torch/(autograd/)?profiler")
_ALLOCATOR = re.compile(r"torch/cuda/memory\.py.*empty_cache")
_TORCHS = re.compile(r"(?:.*/)?torch/(?!autograd/)")
_MOSTLY = 0.5
# Rules whose usual advice is about the line that reads the value.
_READS_VALUES = re.compile(r"sync-(?:item|bool|equal|mask|nonzero|cpu|other)")
_OF_TORCH = (
    "torch's own code reads this value, not yours: give it what it need not read from the device (a number, a tensor "
    "in CPU memory), or call it less often"
)
_OF_TORCH_SAFE = "it takes such a value, or fewer calls are enough"
_READS: tuple[Read, ...] = ("", "value", "data")


def host_wait(run: Run) -> list[Finding]:
    """Returns the findings on waits of the host for the device: one for each combination of line,
    operator and kind of wait.

    Waits for copies to the device are left out, because other rules report them.
    """
    return [_finding(run, way, group) for way, group in waits_by_way(run)]


def waits_by_way(run: Run) -> Iterator[tuple[Way, Group]]:
    """Yields `(way, waits)`: a kind of wait in `WAYS`, and the waits of this kind at one line and
    in one operator.

    Explicit synchronizations for a clock have kinds of their own, `TO_READ_A_CLOCK` and `TO_READ_EVENTS`. Leaves out
    waits that the user's code does not cause: those of the recorder, of `empty_cache` and of
    unstall's helpers.
    """
    rows = other_waits(run)
    rows = rows[run.inside[rows]]
    ways = _ways(run, rows)
    half = only_float16(run.timeline)
    for number, way in enumerate(WAYS):
        mine = rows[ways == number]
        told = way.only_float16 if half and way.only_float16 else way
        # A way that is recognised by its stack may occur in several operators: printing a tensor does.
        for group in run.groups(mine) if way.frame is None else run.lines(mine):
            yield (way.rule == EXPLICIT and way_to_time(run, group.rows)) or told, group


def _finding(run: Run, way: Way, group: Group) -> Finding:
    exposed = int(run.exposed_by_waits[group.rows].sum())
    waited = int(run.host_length[group.rows].sum())
    count = run.instances(group.rows)
    busy = run.busy_during(group.rows)
    harmless = run.negligible(exposed)
    saw = (
        f"{counted(count, 'wait')}{_in_library(run, group)} of {duration(round(waited / count))} (mean)"
        f"{_for_what(run, way, group)}{_to_time(run, way, group)}; "
        f"the device worked for {100 * busy:.0f} % of that time"
    )
    if harmless:
        saw += COSTS_NOTHING
    else:
        saw += f", and idled for {duration(round(exposed / count))} because of each"
    of_torch = _READS_VALUES.fullmatch(way.rule) and way.frame is None and _is_in_torch(run, group)
    return run.finding(
        way.rule,
        group,
        title=way.title,
        saw=saw,
        fix=_OF_TORCH if of_torch else way.fix,
        safe_if=_OF_TORCH_SAFE if of_torch else way.safe_if,
        total_exposed_ns=exposed,
        edit=None if of_torch or way.stays else _edit(run, way, group),
        harmless=harmless,
        confidence="medium" if way.rule == "sync-other" or way.kernel is not None else "high",
    )


def _is_in_torch(run: Run, group: Group) -> bool:
    """Returns whether code of torch, not the user's line, makes most of the group's waits. Methods of tensors, and what
    only calls backward operators, do not count as torch's code.
    """
    found = _library_lines(run, group)
    of_torch = sum(count for place, count in found.items() if _TORCHS.match(place))
    return of_torch > _MOSTLY * found.total()


def _in_library(run: Run, group: Group) -> str:
    """Returns a text with the library lines that have most of the group's waits, or "" if no wait is in a library."""
    found = _library_lines(run, group)
    libraries = [(place, count) for place, count in found.most_common() if place]
    if len(libraries) == 1 and len(found) == 1:
        return f" in {libraries[0][0]}"
    told = [f"{count:,} in {place}" for place, count in libraries[:_MOST_PLACES]]
    more = sum(count for _, count in libraries[_MOST_PLACES:])
    told += [f"{more:,} elsewhere in libraries"] if more else []
    return f" ({', '.join(told)})" if told else ""


def _library_lines(run: Run, group: Group) -> Counter[str]:
    """Returns how many of the group's waits are in each library line. "" stands for waits in no library."""
    keys = np.stack([run.timeline.host.stack[group.rows], run.places.frame[group.rows]])
    found: Counter[str] = Counter()
    for (stack, user), count in zip(*_distinct(keys), strict=True):
        found[_library_line(run, stack, user)] += count
    return found


def _distinct(keys: NDArray[np.integer]) -> tuple[list[list[int]], list[int]]:
    """Returns the distinct columns of `keys`, and how often each column occurs."""
    distinct, counts = np.unique(keys, axis=1, return_counts=True)
    return distinct.T.tolist(), counts.tolist()


def _library_line(run: Run, stack: int, user: int) -> str:
    """Returns a text that names the innermost library frame between a wait and the user's line.

    Returns "" if there is no such frame. Frames of tensor methods do not count. `stack` is the frame of the wait, and
    `user` is the frame of the user's line. Both are rows of `timeline.stacks`.
    """
    timeline = run.timeline
    while stack >= 0 and stack != user:
        line = int(timeline.stacks.line[stack])
        file, function = (timeline.text(int(of[line])) for of in (timeline.lines.file, timeline.lines.function))
        if file and user >= 0 and not TENSORS_OWN.search(file):
            number = int(timeline.lines.line[line])
            return f"{file}:{number} {function}" if number >= 0 else f"{file} {function}"
        stack = int(timeline.stacks.parent[stack])
    return ""


def _edit(run: Run, way: Way, group: Group) -> str | None:
    """Returns the edit that models the fix. Returns None for a wait before a read of the clock: it has its purpose."""
    if way is TO_READ_A_CLOCK:
        return None
    row = int(group.rows[0])
    if left_out := way.left_out(_frames(run, int(run.timeline.host.stack[row]), int(run.places.frame[row]))):
        return f"leave-out:{left_out}"
    return "read-later" if _reads_data(run, way, group) else "remove-syncs"


def _reads_data(run: Run, way: Way, group: Group) -> bool:
    """Returns whether the host waits for data that is larger than a single value.

    For such data, the advice is to copy it into pinned memory without waiting. A single value needs no copy, because it
    can stay on the device.
    """
    return way.rule == "sync-cpu" and bool((_bytes_read(run, group.rows) > READ_BACK_BYTES).any())


def _for_what(run: Run, way: Way, group: Group) -> str:
    """Returns a text that says how many bytes the host reads, or "" if the kind of wait does not depend on the size."""
    if way.read is None:
        return ""
    sizes = np.unique(_bytes_read(run, group.rows))
    if not sizes[-1]:  # it waited only for kernels
        return ""
    most = size(int(sizes[-1]))
    if len(sizes) > 1:
        return f", to read {size(int(sizes[0]))} to {most} on the host"
    return f", to read a value of {most} on the host" if way.read == "value" else f", to read {most} on the host"


def _to_time(run: Run, way: Way, group: Group) -> str:
    """Returns a text that names a line that reads a clock, and how many waits it follows; "" if there is none."""
    if way.rule not in (EXPLICIT, TO_READ_A_CLOCK.rule):
        return ""
    reads = reads_after(run, group.rows)
    reads = reads[reads >= 0]
    if not len(reads):
        return ", so that torch.utils.benchmark can read a clock" if way is TO_READ_A_CLOCK else ""
    line, of_host = run.timeline.clock_reads.line[reads[0]], run.timeline.clock_reads.of_host[reads[0]]
    what = "a clock" if of_host else "the time between events"
    file, number = run.timeline.text(int(run.timeline.lines.file[line])), int(run.timeline.lines.line[line])
    if len(reads) == len(group.rows):
        return f", and then {file}:{number} reads {what}"
    return f", and {file}:{number} reads {what} after {len(reads):,} of them"


def _ways(run: Run, rows: I64) -> I64:
    """Returns the kind of each wait, as an index into WAYS.

    Returns -1 for waits of the recorder, of `empty_cache` and of unstall's helpers.
    """
    host, timeline = run.timeline.host, run.timeline
    top = run.places.top_op[rows]
    op = np.where(top >= 0, host.name[np.maximum(top, 0)], -1)
    bare = not has_operators(timeline)
    # 0: nothing, 1: a value, 2: more.
    read = np.digitize(_bytes_read(run, rows), [1, VALUE_BYTES + 1]) if bare else np.zeros_like(rows)
    kernel = np.where(read > 0, _last_kernel(run, rows), -1)
    keys = np.stack([op, host.name[rows], host.stack[rows], run.places.frame[rows], read, kernel]).astype(np.int64)
    distinct, which = np.unique(keys, axis=1, return_inverse=True)
    ways = np.array([_way(run, *key, bare=bare) for key in distinct.T.tolist()], dtype=np.int64)
    return ways[which.reshape(-1)] if len(rows) else ways


def _way(run: Run, op: int, call: int, stack: int, user: int, read: int, kernel: int, *, bare: bool) -> int:
    """Returns the kind of a wait as an index into WAYS, or -1 if the recorder, `empty_cache` or unstall's helpers wait.

    Args:
        run: The run.
        op: The name of the operator around the wait, as an index into `timeline.strings`, or -1.
        call: The name of the call that waits, as an index into `timeline.strings`.
        stack: The innermost frame of the wait, as a row of `timeline.stacks`, or -1.
        user: The user's innermost frame, as a row of `timeline.stacks`, or -1.
        read: What the host reads: 0 for nothing, 1 for a value, 2 for more data.
        kernel: The name of the last op before the copy, as an index into `timeline.strings`, or -1.
        bare: Whether the recording has no operators. If so, the operator is found from the frames and not from `op`.
    """
    text = run.timeline.text
    frames = _frames(run, stack, user)
    if _RECORDER.search(frames) or _ALLOCATOR.search(frames) or is_ours(frames):
        return -1
    operator = called(frames) if bare else text(op)
    wait = Wait(op=operator, frames=frames, call=text(call), read=_READS[read], kernel=text(kernel))
    return next(i for i, way in enumerate(WAYS) if way.matches(wait))


def _bytes_read(run: Run, rows: I64) -> I64:
    """Returns, for each wait, how many bytes are copied to the host, or 0 for a wait without a copy to the host."""
    host, device = run.timeline.host, run.timeline.device
    down = np.flatnonzero((device.direction == CopyDirection.DEVICE_TO_HOST) & (device.launch >= 0))
    total = np.zeros(len(host) + 1, dtype=np.int64)
    np.add.at(total, device.launch[down], np.maximum(device.bytes[down], 0))
    return total[_copy_call(run, rows)]


def _copy_call(run: Run, rows: I64) -> I64:
    return np.where(run.timeline.host.kind[rows] == HostKind.COPY, rows, run.places.operation[rows]).astype(np.int64)


def _last_kernel(run: Run, rows: I64) -> I32:
    """Returns, for each wait for a copy, the name of the last op that was launched before the copy, or -1.

    The name is an index into `timeline.strings`. Only a launch by the same thread with the same stack counts.
    """
    host, device = run.timeline.host, run.timeline.device
    launched = np.flatnonzero(device.launch >= 0)
    name = np.full(len(host), -1, dtype=np.int32)
    name[device.launch[launched]] = device.name[launched]
    calls = np.flatnonzero((name >= 0) & (host.kind != HostKind.COPY))
    copy = _copy_call(run, rows)
    if not len(calls):
        return np.full(len(rows), -1, dtype=np.int32)
    before = calls[np.maximum(np.searchsorted(calls, copy) - 1, 0)]
    same = (before < copy) & (host.thread[before] == host.thread[copy]) & (host.stack[before] == host.stack[copy])
    return np.where(same, name[before], -1).astype(np.int32)


def _frames(run: Run, stack: int, user: int) -> str:
    """Returns the frames from `stack` outward, up to the user's frame `user`, as text with one frame per line.

    `user` itself is not included.
    """
    timeline = run.timeline
    parent: I32 = timeline.stacks.parent
    frames = []
    while stack >= 0 and stack != user:
        line = int(timeline.stacks.line[stack])
        file, function = (timeline.text(int(of[line])) for of in (timeline.lines.file, timeline.lines.function))
        frames.append(f"{file}: {function}" if file else function)
        stack = int(parent[stack])
    return "\n".join(frame[:_LONGEST] for frame in frames[:_MOST_FRAMES])
