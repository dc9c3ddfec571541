"""The recorder that works wherever torch does: `torch.profiler`, with waits, and with operators and their shapes."""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unstall.errors import TraceError, UnstallError
from unstall.record import device

FILE = "profile.json"
CLOCK_OFF_NS = 3_000
"""How far from ours the profile's clock may be: it is told by Python, which takes some of that, and corrected since."""
_CLOCK, _CLOCKS = "unstall.clock#", 10
_OF_HOST = frozenset({"cpu_op", "cuda_runtime", "cuda_driver"})
CALLS = np.dtype([("start", "<u8"), ("end", "<u8"), ("thread", "<u4")])


class TorchProfiler:
    """Records into `folder`, from `start` to `stop`, both on the program's own thread."""

    name = "torch"
    any_thread = False

    def __init__(self, folder: Path, *, shapes: bool = False, stacks: bool = False, instead: str | None = None) -> None:
        """`instead` says why it stands in for the recorder cupti, if it does.

        Raises UnstallError where the program has not imported torch.
        """
        self.instead, self.stacks = instead, stacks
        if "torch" not in sys.modules:
            raise UnstallError("the recorder torch needs a program that imports torch")
        import torch
        from torch._C._profiler import _ExperimentalConfig
        from torch.profiler import ProfilerActivity, profile

        self._torch, self._path = torch, folder / FILE
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile: Any = profile(
            activities=activities,
            record_shapes=shapes,
            with_stack=stacks,
            experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
        )

    def start(self) -> None:
        """Begin to record. Raises UnstallError where torch's profiler is in use already."""
        if device.profiler_is_on():  # it would not refuse, but end the other's profile
            raise UnstallError("torch.profiler is on already: record what it does not, or without it")
        try:
            self._profile.start()
        except RuntimeError as error:
            raise UnstallError(f"torch.profiler does not record here: {error}") from error
        self._tell_time()

    def stop(self) -> None:
        """Record no more, and write the profile to the folder."""
        self._tell_time()
        self._profile.stop()
        self._profile.export_chrome_trace(str(self._path))

    def flush(self) -> None:
        """Torch's profiler writes nothing before it has stopped."""
        self.stop()

    def forked(self) -> None:
        """In a forked child: the profile is its parent's."""

    def facts(self) -> dict[str, object]:
        """Nothing beyond what the profile says."""
        return {}

    def _tell_time(self) -> None:
        """Annotations named by our clock's time before each: by them the trace's clock and ours are held together."""
        for _ in range(_CLOCKS):
            with self._torch.profiler.record_function(f"{_CLOCK}{time.perf_counter_ns()}"):
                pass


class _Event(msgspec.Struct):
    """What is looked at of an event."""

    name: str = ""
    cat: str = ""
    tid: int | str = 0
    ts: Decimal = Decimal(0)  # µs since months ago: a float would not tell every ns
    dur: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile that torch wrote."""

    head: dict[str, Any]  # what stands around the events, as JSON
    events: list[str]  # as JSON
    zero_ns: int  # what our clock showed at the events' time 0
    calls: np.ndarray  # operators and calls: start and end in ns of our clock, thread


def read_profile(folder: Path) -> Profile:
    """The profile in a recording's folder. Raises TraceError where there is none."""
    try:
        head = msgspec.json.decode((folder / FILE).read_bytes(), type=dict[str, msgspec.Raw])
    except OSError as error:
        raise TraceError(
            "nothing was recorded: torch's profiler writes only once it has stopped, and the program ended before"
        ) from error
    raw = head.pop("traceEvents")
    texts = [bytes(event).decode() for event in msgspec.json.decode(raw, type=list[msgspec.Raw])]
    events = msgspec.json.decode(raw, type=list[_Event])
    clocks = [each for each in events if each.name.startswith(_CLOCK) and each.cat == "user_annotation"]
    zero_ns = _zero_ns([(int(each.name.removeprefix(_CLOCK)), *_times(each, 0)) for each in clocks])
    made = [each for each in events if each.cat in _OF_HOST and isinstance(each.tid, int)]
    calls = np.array([(*_times(each, zero_ns), each.tid) for each in made], CALLS)
    return Profile(dict(head), [text for text in texts if _CLOCK not in text], zero_ns, calls)


def _times(event: _Event, zero_ns: int) -> tuple[int, int]:
    start = zero_ns + round(event.ts * 1000)
    return start, start + round(event.dur * 1000)


def _zero_ns(told: list[tuple[int, int, int]]) -> int:
    """What our clock showed at the profile's time 0, from annotations: our time before it, its start and its end.

    Each begins after the time it names and ends before the one that the next one names: between the closest of both
    there are some 2 us, and the middle is taken.
    """
    told = sorted(told)
    least = max((ours - start for ours, start, _ in told), default=0)
    most = min((after - end for (_, _, end), (after, _, _) in itertools.pairwise(told)), default=least)
    return (least + most) // 2
