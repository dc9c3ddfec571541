"""Makes `torch.profiler` profile the virtual GPU.

Only the functions that start and stop Kineto are replaced, because Kineto knows neither the virtual
device nor its time. The schedules, handlers, FunctionEvents and tables are torch's own.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from unstall.timeline.columns import I64, HostKind, Timeline
from unstall.virtual.profiler.profile_result import Asked, ProfileResult
from unstall.virtual.timeline.window import cut, with_ops, without_host

if TYPE_CHECKING:
    from torch._C._profiler import ProfilerActivity, ProfilerState

_HOLDERS = (
    "torch._C._autograd",
    "torch.autograd",
    "torch.autograd.profiler",
    "torch.profiler",
    "torch.profiler.profiler",
)
_OF_CPU = (HostKind.OP, HostKind.ANNOTATION, HostKind.PYTHON)
_OBSERVERS = frozenset({"NVTX", "ITT"})  # states in which torch emits ranges for other tools and keeps no events


class ProfiledMachine(Protocol):
    """The methods of the virtual machine that a profile calls."""

    def now_ns(self) -> int: ...

    def timeline(self) -> Timeline: ...

    def own_work(self) -> AbstractContextManager[None]: ...


class _Config(Protocol):
    """torch's ProfilerConfig, with the arguments that it was given as attributes."""

    state: ProfilerState
    options: Sequence[object]


def install(source: ProfiledMachine) -> Callable[[], None]:
    """Makes `torch.profiler` profile the virtual GPU. torch must be imported. Returns a function that undoes this."""
    profiler = _Profiler(source)
    undo = ExitStack()
    for name in _HOLDERS:
        module = import_module(name)
        for function, instead in profiler.functions().items():
            if function in vars(module):
                undo.callback(setattr, module, function, getattr(module, function))
                setattr(module, function, instead)
    return undo.close


@dataclass(slots=True)
class _Running:
    """A profile that is running.

    Attributes:
        asked: What the profile was asked to record.
        since: When it began, in ns of the virtual clock.
        metadata: What the program added to the trace.
        off: Each span in which an activity was switched off, as `(activity, start in ns, end in
            ns)`.
        switched: For each activity that is switched off now, since when, in ns.
    """

    asked: Asked
    since: int
    metadata: dict[str, object] = field(default_factory=dict)
    off: list[tuple[str, int, int]] = field(default_factory=list)
    switched: dict[str, int] = field(default_factory=dict)


class _Profiler:
    def __init__(self, source: ProfiledMachine) -> None:
        self._source = source
        self._running: _Running | None = None
        self._activities = import_module("torch._C._profiler").ProfilerActivity
        self._config = _recalling(import_module("torch._C._profiler").ProfilerConfig)
        self._enable_observer = import_module("torch._C._autograd")._enable_profiler
        self._disable_observer = import_module("torch._C._autograd")._disable_profiler

    def functions(self) -> dict[str, object]:
        """Returns the functions that replace functions of torch, as `{name of torch's function: replacement}`."""
        return {
            "ProfilerConfig": self._config,
            "_supported_activities": self._supported,
            "_prepare_profiler": self._prepare,
            "_enable_profiler": self._enable,
            "_disable_profiler": self._disable,
            "_profiler_enabled": lambda: self._running is not None,
            "_toggle_collection_dynamic": self._toggle,
            "_add_metadata_json": self._add_metadata,
        }

    def _supported(self) -> set[ProfilerActivity]:
        return {self._activities.CPU, self._activities.CUDA}

    def _prepare(self, *args: object, **kwargs: object) -> None:
        """Does nothing. Kineto would warm up here, and the virtual GPU needs no warm-up."""

    def _enable(self, config: _Config, activities: Iterable[ProfilerActivity], *args: object, **kwargs: object) -> None:
        state, rest = config.state, config.options
        if state.name in _OBSERVERS:
            return
        if self._running is not None:
            raise RuntimeError("Profiler is already enabled on this thread")
        shapes, memory, stacks = (bool(rest[at]) if len(rest) > at else False for at in range(3))
        if shapes:
            warnings.warn(
                "the virtual GPU's profile has input shapes of operators that launch, and no FLOPs", stacklevel=4
            )
        cuda = self._activities.CUDA in activities or state.name.endswith("GPU_FALLBACK")
        asked = Asked(
            cpu=self._activities.CPU in activities,
            cuda=cuda,
            shapes=shapes,
            memory=memory,
            stacks=stacks,
            fallback=state.name.endswith("GPU_FALLBACK"),
        )
        self._running = _Running(asked, self._source.now_ns())

    def _disable(self) -> ProfileResult | None:
        running, self._running = self._running, None
        if running is None:
            return None  # the profile of an observer
        now = self._source.now_ns()
        with self._source.own_work():
            return self._result(running, now)

    def _result(self, running: _Running, now: int) -> ProfileResult:
        """Returns the result of a profile that ends now, at `now` ns of the virtual clock."""
        off = [*running.off, *((name, since, now) for name, since in running.switched.items())]
        whole = self._source.timeline()
        window = cut(with_ops(whole, _launched_ns(whole) >= running.since), running.since, now)
        left = _without(window, [(name, since - running.since, until - running.since) for name, since, until in off])
        shown = left if running.asked.cuda else _without(left, [("CUDA", 0, now)])
        return ProfileResult(shown, running.asked, running.metadata)

    def _toggle(self, enabled: bool, activities: Iterable[ProfilerActivity]) -> None:
        running = self._running
        if running is None:
            return
        for name in (activity.name for activity in activities):
            if not enabled:
                running.switched.setdefault(name, self._source.now_ns())
            elif name in running.switched:
                running.off.append((name, running.switched.pop(name), self._source.now_ns()))

    def _add_metadata(self, key: str, value: str) -> None:
        if self._running is not None:
            try:
                self._running.metadata[key] = json.loads(value)
            except ValueError:
                self._running.metadata[key] = value


def _recalling(config: type[Any]) -> type[_Config]:
    """Returns a subclass of torch's ProfilerConfig that keeps its arguments as attributes.
    ProfilerConfig itself does not show them.
    """

    class ProfilerConfig(config):  # type: ignore[misc]
        def __init__(self, *args: object) -> None:
            super().__init__(*args)
            self.state, *self.options = args

    return ProfilerConfig


def _without(timeline: Timeline, off: list[tuple[str, int, int]]) -> Timeline:
    """Returns the timeline without what the profile did not record, because its activity was
    switched off.

    While "CPU" is off, operators, annotations and Python frames that begin are not recorded. While
    "CUDA" is off, ops that are launched are not.

    Args:
        timeline: The timeline.
        off: Each span in which an activity was off, as `(activity, start in ns, end in ns)`.
    """
    launched, host = _launched_ns(timeline), timeline.host
    kept = np.ones(len(timeline.device), np.bool_)
    dropped = np.zeros(len(host), np.bool_)
    for name, since, until in off:
        if name == "CUDA":
            kept &= (launched < since) | (launched >= until)
        elif name == "CPU":
            dropped |= np.isin(host.kind, _OF_CPU) & (host.start >= since) & (host.start < until)
    return without_host(with_ops(timeline, kept), dropped)


def _launched_ns(timeline: Timeline) -> I64:
    """Returns when each op of the device was launched, in ns. An op without a launch counts from its start."""
    host, device = timeline.host, timeline.device
    if not len(host):
        return device.start
    return np.where(device.launch >= 0, host.start[np.maximum(device.launch, 0)], device.start)
