"""Reads what the recorder `torch` wrote. Events are kept as text. The times of calls are converted
to unstall's clock.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unstall.decoding import from_json
from unstall.errors import TraceError
from unstall.recording.torch_profiler import CLOCK, FILE
from unstall.recording.trace.on_device import DeviceWork, on_device

CLOCK_OFF_NS = 3_000
"""The largest offset between unstall's clock and the clock of the profile, in ns.

Part of the offset is the time that Python needs to read unstall's clock.
"""
_OF_HOST = frozenset({"cpu_op", "cuda_runtime", "cuda_driver"})
_OF_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
CALL = np.dtype([("start", "<u8"), ("end", "<u8"), ("thread", "<u4")])
"""The columns of a table of calls: start and end in ns of unstall's clock, and the thread."""


class _Arguments(msgspec.Struct):
    correlation: int = -1  # links a call to its device op


class _Event(msgspec.Struct):
    """The fields of an event in a profile of torch that unstall uses."""

    name: str = ""
    cat: str = ""
    tid: int | str = 0
    ts: Decimal = Decimal(0)  # µs since months ago, with more digits than a float holds
    dur: Decimal = Decimal(0)
    args: _Arguments = msgspec.field(default_factory=_Arguments)


@dataclass(frozen=True, slots=True)
class TorchProfile:
    """A profile that torch's profiler wrote."""

    head: dict[str, Any]  # the JSON fields around the events
    events: list[str]  # each as JSON
    zero_ns: int  # our clock's time at the profile's time 0
    calls: np.ndarray  # operators and calls, with the columns of CALL
    on_device: DeviceWork


def read_profile(folder: Path) -> TorchProfile:
    """Reads the profile that torch's profiler wrote to a recording's folder.

    Raises:
        TraceError: The profile is missing or incomplete.
    """
    try:
        head = from_json((folder / FILE).read_bytes(), dict[str, msgspec.Raw])
        raw = head.pop("traceEvents")
        texts = [bytes(event).decode() for event in from_json(raw, list[msgspec.Raw])]
        events = from_json(raw, list[_Event])
    except (msgspec.MsgspecError, KeyError) as error:
        raise TraceError(
            f"nothing was recorded: the profile that torch's profiler left is not whole ({error})"
        ) from error
    except OSError as error:
        raise TraceError(
            "nothing was recorded: torch's profiler left no profile. It writes only once it has stopped: the program "
            f"ended before that, or the disk of {folder.parent} is full"
        ) from error
    clocks = [each for each in events if each.name.startswith(CLOCK) and each.cat == "user_annotation"]
    zero_ns = _zero_ns([(int(each.name.removeprefix(CLOCK)), *_times(each, 0)) for each in clocks])
    made = [each for each in events if each.cat in _OF_HOST and isinstance(each.tid, int)]
    calls = np.array([(*_times(each, zero_ns), each.tid) for each in made], CALL)
    shown = [text for text in texts if CLOCK not in text]
    put = [each for each in events if each.cat in _OF_DEVICE]
    ops = np.array([(*_times(each, zero_ns), each.args.correlation) for each in put], np.int64).reshape(-1, 3)
    of_call = np.array([each.args.correlation for each in made], np.int64)
    done = on_device((ops[:, 0], ops[:, 1], ops[:, 2]), (of_call, calls["end"].astype(np.int64)))
    return TorchProfile(dict(head), shown, zero_ns, calls, done)


def _times(event: _Event, zero_ns: int) -> tuple[int, int]:
    start = zero_ns + round(event.ts * 1000)
    return start, start + round(event.dur * 1000)


def _zero_ns(clocks: list[tuple[int, int, int]]) -> int:
    """Returns the time of unstall's clock at time 0 of the profile's clock.

    Annotations in the profile have times of unstall's clock in their names. Each annotation begins
    after the time in its name, and ends before the time in the next annotation's name. So each
    gives a lower and an upper bound of the result. The highest lower bound and the lowest upper
    bound are about 2 µs apart. The result is the middle between the two.

    Args:
        clocks: For each annotation, (the time in its name, its start, its end), in ns. Start and
            end are in the profile's clock.
    """
    clocks = sorted(clocks)
    least = max((ours - start for ours, start, _ in clocks), default=0)
    most = min((after - end for (_, _, end), (after, _, _) in itertools.pairwise(clocks)), default=least)
    return (least + most) // 2
