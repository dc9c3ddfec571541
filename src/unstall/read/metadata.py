"""Reads a trace's metadata: the JSON members before and after its list of events. In all functions
here, `before` is the text before this list, and `after` is the text after it, or None if it was too
long to keep.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from unstall.decoding import from_json
from unstall.figures import MOST_NS
from unstall.read.clock_reads import DescribedReads, DescribesReads
from unstall.read.dependencies import DescribedDependencies, DescribesDependencies
from unstall.read.faults import DescribesFaults
from unstall.read.races import DescribedRace, DescribesRaces
from unstall.read.repair import repaired
from unstall.read.uploads import DescribedUpload, DescribesUploads
from unstall.timeline.columns import Meta, Recorder, StepMarks, StepsLeftOut
from unstall.timeline.limits import (
    LONGEST_NAME,
    LONGEST_NOTE,
    MOST_GLOBS,
    MOST_GROUPS,
    MOST_NAMED_DEVICES,
    MOST_NOTES,
    MOST_RACES,
    MOST_RANKS,
    MOST_UPLOADS,
)

_Value = TypeVar("_Value")
_TORCH = re.compile(rb'"(?:py)?torch_version"\s*:\s*"(?P<version>[\w.+-]{1,64})"')


class _Device(Struct):
    id: int
    name: str = ""


class _Size(Struct):
    id: int
    multiprocessors: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = msgspec.field(default=0, name="numSms")


_Rank: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**62), lt=2**62)]


class _Distributed(Struct):
    rank: _Rank | None = None
    world_size: _Rank | None = None


class _Group(Struct):
    name: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)] = msgspec.field(name="pg_name")
    ranks: Annotated[list[_Rank], msgspec.Meta(max_length=MOST_RANKS)]


class _Groups(Struct):
    pg_config: Annotated[list[_Group], msgspec.Meta(max_length=MOST_GROUPS)] = []


class _Recorded(Struct):
    """How unstall recorded the run: the recorder, and the methods for finding source lines and steps."""

    recorder: Recorder | None = None
    lines: Literal["exact", "def", "none"] = "def"
    lines_by: str | None = None
    step_marks: StepMarks | None = None


class _Digests(Struct):
    digests: dict[str, dict[int, Annotated[int, msgspec.Meta(ge=0, lt=2**53)]]] = {}


class _Plain(Struct):
    plain_step_ns: Annotated[int, msgspec.Meta(gt=0, lt=MOST_NS)] | None = None


_MeanNs: TypeAlias = Annotated[float, msgspec.Meta(gt=0, lt=MOST_NS)]


class _Stretch(Struct):
    host_ns: _MeanNs
    device_ns: _MeanNs | None = None


class _PlainSteps(Struct):
    before: _Stretch
    after: _Stretch


class _Stretches(Struct):
    """The mean times of steps that ran without recording: before the recorded steps, and after them."""

    plain: _PlainSteps


class _Counters(Struct):
    reserved: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] = msgspec.field(name="reserved_bytes.all.peak")


class _Observed(Struct):
    after: _Counters


class _Memory(Struct):
    """The peak of torch's reserved memory, read when the recording ended."""

    memory: _Observed


class _Predicted(Struct):
    known_error: str | None = None


class _Launching(Struct):
    launches_block: bool = False
    tf32_convolutions: bool = False
    free_work: bool = False


class _FreeWork(Struct):
    free_work_ns: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] | None = None
    free_work_at: str = ""


class _Short(Struct):
    shortfall: str | None = None


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _StepsLeftOut(Struct, kw_only=True):
    warmup: _Count = 0
    proving: _Count = 0
    apart: _Count = 0
    loops: _Count = 0
    mixed: _Count = 0
    empty: _Count = 0
    later: _Count = 0
    outside_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    of: _Count
    mean_ns: Annotated[int, msgspec.Meta(gt=0, lt=MOST_NS)]


class _LeftOut(Struct):
    left_out: _StepsLeftOut | None = None


class _Told(Struct):
    step: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)] | None = None
    user: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]], msgspec.Meta(max_length=MOST_GLOBS)
    ] = []


class _Settings(Struct):
    """The values of the options `--step` and `--user` of `unstall run`."""

    settings: _Told


class _Noted(Struct):
    notes: list[str] = []


def meta_of(before: bytes, after: bytes | None, end: int, path: Path) -> Meta:
    """Returns facts about a trace (`Timeline.meta`), read from the JSON members before and after
    its list of events.

    Args:
        before: The text before the list.
        after: The text after the list, or None if it was too long to keep.
        end: The length of the file's whole text in bytes, for notes.
        path: The file.
    """
    members, notes = _members(before, b"}" if after is None else after, end)
    if after is None:
        notes.append("ignored the text after the events: it is too long for metadata")
    distributed = _value(members, "distributedInfo", _Distributed) or _Distributed()
    groups = _value(members, "distributedInfo", _Groups) or _Groups()
    # Decoded separately, so that an invalid one does not affect the others.
    recorded = _value(members, "unstall", _Recorded) or _Recorded()
    plain = _value(members, "unstall", _Plain) or _Plain()
    stretches = _value(members, "unstall", _Stretches)
    noted = _value(members, "unstall", _Noted) or _Noted()
    launching = _value(members, "unstall", _Launching) or _Launching()
    free = _value(members, "unstall", _FreeWork) or _FreeWork()
    short = _value(members, "unstall", _Short) or _Short()
    left_out = (_value(members, "unstall", _LeftOut) or _LeftOut()).left_out
    predicted = _value(members, "unstall", _Predicted) or _Predicted()
    settings = _value(members, "unstall", _Settings)
    memory = _value(members, "unstall", _Memory)
    named = _value(members, "deviceProperties", list[_Device]) or []
    sized = _value(members, "deviceProperties", list[_Size]) or []
    told = settings.settings if settings else _Told()
    torch = _TORCH.search(before) or _TORCH.search(after or b"")
    return Meta(
        path=str(path),
        reader="kineto",
        devices=_by_device([(each.id, each.name) for each in named], ""),
        multiprocessors=_by_device([(each.id, each.multiprocessors) for each in sized], 0),
        torch=torch["version"].decode() if torch else None,
        cuda=_version(_value(members, "cuda_runtime_version", int)),
        rank=distributed.rank,
        world_size=distributed.world_size,
        groups=tuple((group.name, tuple(group.ranks)) for group in groups.pg_config),
        zero_ns=_value(members, "baseTimeNanoseconds", _Time) or 0,
        has_stacks=bool(_value(members, "with_stack", int)),
        recorder=recorded.recorder,
        step_marks=recorded.step_marks,
        exact_lines=recorded.lines == "exact",
        frames_at_calls=recorded.lines_by == "calls",
        plain_step_ns=plain.plain_step_ns,
        plain_steps_ns=_both(stretches.plain) if stretches else None,
        reserved_peak_bytes=memory.memory.after.reserved if memory else None,
        known_error=predicted.known_error and predicted.known_error[:LONGEST_NOTE],
        step=told.step,
        user=tuple(told.user),
        launches_block=launching.launches_block,
        tf32_convolutions=launching.tf32_convolutions,
        free_work=launching.free_work,
        free_work_ns=free.free_work_ns,
        free_work_at=free.free_work_at[:LONGEST_NOTE],
        shortfall=short.shortfall and short.shortfall[:LONGEST_NOTE],
        left_out=StepsLeftOut(**msgspec.structs.asdict(left_out)) if left_out else None,
        notes=(*notes, *(note[:LONGEST_NOTE] for note in noted.notes[:MOST_NOTES])),
        sound=not notes,
    )


def _both(steps: _PlainSteps) -> tuple[int, int]:
    """Returns `(before, after)`: the mean step times in ns without recording, before and after the
    recorded steps.

    Both are device times if both device times are known. If one of them is unknown, both are host
    times.
    """
    before, after = steps.before, steps.after
    if before.device_ns is None or after.device_ns is None:
        return round(before.host_ns), round(after.host_ns)
    return round(before.device_ns), round(after.device_ns)


def described_races(before: bytes, after: bytes | None) -> list[DescribedRace]:
    """Returns all races that a trace file tells, or an empty list if one of them is malformed.

    Args:
        before: The text of the JSON members before the trace's list of events.
        after: The text after the list, or None if it was too long to keep.
    """
    members, _ = _members(before, b"}" if after is None else after, 0)
    races = _value(members, "unstall", DescribesRaces)
    return races.races[:MOST_RACES] if races else []


def described_dependencies(before: bytes, after: bytes | None) -> DescribedDependencies:
    """Returns the dependencies that a trace file tells, or no dependencies if they are malformed.
    In a dependency, a later call or operator needs bytes that an earlier one used.

    Args:
        before: The text of the JSON members before the trace's list of events.
        after: The text after the list, or None if it was too long to keep.
    """
    members, _ = _members(before, b"}" if after is None else after, 0)
    found = _value(members, "unstall", DescribesDependencies)
    return found.dependencies if found else DescribedDependencies()


def described_uploads(before: bytes, after: bytes | None) -> list[DescribedUpload]:
    """Returns the uploads (copies to the device) that a trace file tells, or an empty list if one
    of them is malformed.

    Args:
        before: The text of the JSON members before the trace's list of events.
        after: The text after the list, or None if it was too long to keep.
    """
    members, _ = _members(before, b"}" if after is None else after, 0)
    uploads = _value(members, "unstall", DescribesUploads)
    return uploads.uploads[:MOST_UPLOADS] if uploads else []


def described_clock_reads(before: bytes, after: bytes | None) -> DescribedReads:
    """Returns when and where the program read the clock, as a trace file tells it. Returns no reads
    if one is malformed.

    Args:
        before: The text of the JSON members before the trace's list of events.
        after: The text after the list, or None if it was too long to keep.
    """
    members, _ = _members(before, b"}" if after is None else after, 0)
    return (_value(members, "unstall", DescribesReads) or DescribesReads()).clock_reads


def described_faults(before: bytes, after: bytes | None) -> DescribesFaults:
    """Returns the faults (work that failed on the device) that a trace file tells, or no faults if
    one is malformed.

    Args:
        before: The text of the JSON members before the trace's list of events.
        after: The text after the list, or None if it was too long to keep.
    """
    members, _ = _members(before, b"}" if after is None else after, 0)
    return _value(members, "unstall", DescribesFaults) or DescribesFaults()


def line_digests(before: bytes, after: bytes | None) -> dict[str, dict[int, int]]:
    """Returns the digests of source lines that a trace file has, as {file: {line number: digest}}.

    Args:
        before: The text of the JSON members before the trace's list of events.
        after: The text after the list, or None if it was too long to keep.
    """
    members, _ = _members(before, b"}" if after is None else after, 0)
    found = _value(members, "unstall", _Digests)
    return found.digests if found else {}


def _members(before: bytes, after: bytes, end: int) -> tuple[dict[str, Raw], list[str]]:
    """Returns `(members, notes)`: the JSON members of the metadata that can be read, by their keys,
    and a note for each part of the text that cannot be read.
    """
    key = b'"traceEvents":0'
    whole = _decoded(b"{" + before + key + after)
    if whole is not None:
        return whole, []
    first, second = _decoded(b"{" + before + key + b"}"), _decoded(b"{" + key + after)
    notes = []
    if first is None:
        notes.append("the text before the events is broken")
    if second is None:
        notes.append(f"the text after the events is cut off or broken, up to byte {end:,} of the text")
    return {**(first or {}), **(second or {})}, notes


def _decoded(text: bytes) -> dict[str, Raw] | None:
    for prepared in (bytes, repaired):
        try:
            return from_json(prepared(text), dict[str, Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None


def _value(members: dict[str, Raw], key: str, type_: type[_Value]) -> _Value | None:
    try:
        return from_json(members[key], type_)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _by_device(facts: list[tuple[int, _Value]], unknown: _Value) -> tuple[_Value, ...]:
    """Returns one value per device, indexed by device id.

    Args:
        facts: Pairs (device id, value).
        unknown: The value of a device that is not in `facts`.
    """
    known = {device: fact for device, fact in facts if 0 <= device < MOST_NAMED_DEVICES}
    return tuple(known.get(i, unknown) for i in range(max(known, default=-1) + 1))


def _version(number: int | None) -> str | None:
    """Returns a CUDA version such as "12.4", which CUDA writes as the number 12040. Returns None
    for an impossible number.
    """
    return f"{number // 1000}.{number % 1000 // 10}" if number and 1000 <= number < 10**6 else None
