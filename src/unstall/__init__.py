"""See, fix and predict what stalls your GPU.

This package has a plugin for pytest. PYTEST_DONT_REWRITE in this text keeps pytest from warning that the package was
imported before pytest started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unstall import errors
from unstall._version import __version__

if TYPE_CHECKING:
    from unstall.answers.difference import diff
    from unstall.answers.explain import explain
    from unstall.answers.fleet import fleet
    from unstall.answers.report import Report
    from unstall.answers.what_if import whatif
    from unstall.blaming.in_process import blame
    from unstall.errors import SyncError
    from unstall.fix.graphed import graphed
    from unstall.fix.metrics import MetricBuffer
    from unstall.fix.prefetch import prefetch
    from unstall.fix.stream_map import stream_map
    from unstall.fix.to_host import to_host
    from unstall.fix.warm_up import warm_up
    from unstall.guarding.no_sync import allow_sync, no_sync
    from unstall.guarding.wait import SyncWarning
    from unstall.guest.steps import step
    from unstall.kernels.inspect_kernel import inspect_kernel
    from unstall.kernels.report import KernelReport
    from unstall.measuring.benchmark import bench
    from unstall.measuring.compare import compare
    from unstall.measuring.stopwatch import Stopwatch
    from unstall.measuring.timer import Timer
    from unstall.numbers.compare_numbers import compare_numbers
    from unstall.numbers.recording import recording_numbers
    from unstall.read import load
    from unstall.recording.in_process import record
    from unstall.result import Finding
    from unstall.timeline.columns import Timeline
    from unstall.virtual.entry import virtual_gpu

__all__ = [
    "Finding",
    "KernelReport",
    "MetricBuffer",
    "Report",
    "Stopwatch",
    "SyncError",
    "SyncWarning",
    "Timeline",
    "Timer",
    "__version__",
    "allow_sync",
    "bench",
    "blame",
    "compare",
    "compare_numbers",
    "diff",
    "errors",
    "explain",
    "fleet",
    "graphed",
    "inspect_kernel",
    "load",
    "no_sync",
    "prefetch",
    "record",
    "recording_numbers",
    "step",
    "stream_map",
    "to_host",
    "virtual_gpu",
    "warm_up",
    "whatif",
]

_HOMES = {
    "Finding": "unstall.result",
    "KernelReport": "unstall.kernels.report",
    "MetricBuffer": "unstall.fix.metrics",
    "Report": "unstall.answers.report",
    "Stopwatch": "unstall.measuring.stopwatch",
    "SyncError": "unstall.errors",
    "SyncWarning": "unstall.guarding.wait",
    "Timeline": "unstall.timeline.columns",
    "Timer": "unstall.measuring.timer",
    "allow_sync": "unstall.guarding.no_sync",
    "bench": "unstall.measuring.benchmark",
    "blame": "unstall.blaming.in_process",
    "compare": "unstall.measuring.compare",
    "compare_numbers": "unstall.numbers.compare_numbers",
    "diff": "unstall.answers.difference",
    "explain": "unstall.answers.explain",
    "fleet": "unstall.answers.fleet",
    "graphed": "unstall.fix.graphed",
    "inspect_kernel": "unstall.kernels.inspect_kernel",
    "load": "unstall.read",
    "load_ipython_extension": "unstall.notebook.load",  # IPython's name for what `%load_ext unstall` calls
    "no_sync": "unstall.guarding.no_sync",
    "prefetch": "unstall.fix.prefetch",
    "record": "unstall.recording.in_process",
    "recording_numbers": "unstall.numbers.recording",
    "step": "unstall.guest.steps",
    "stream_map": "unstall.fix.stream_map",
    "to_host": "unstall.fix.to_host",
    "virtual_gpu": "unstall.virtual.entry",
    "warm_up": "unstall.fix.warm_up",
    "whatif": "unstall.answers.what_if",
}


def __getattr__(name: str) -> object:
    """Imports a public name when it is first used, so that `import unstall` is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
