"""What a profiler's table of the times of operators (`key_averages().table()`) says about a run,
and what it cannot say.

The table adds up, for each name, the time of all calls. It does not say when a call was made, what
ran at the same time, or which source line made it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from unstall._version import __version__
from unstall.figures import counted, duration, share
from unstall.read.profiler_table import ProfilerTable, TableRow

SCHEMA = "unstall.table/1"

_LAUNCH = re.compile(r"(?:cuda|cu|hip)(?:Ext)?(?:Module)?Launch(?:Cooperative)?Kernel")
_WAIT = re.compile(r"(?:cuda|hip|cu)(?:Stream|Device|Event|Ctx)Synchronize$")
_LOADING = re.compile(r"(?:Runtime Triggered Module|Lazy Function) Loading")
_FULL = re.compile(r"Command Buffer Full$")  # Kineto's name for waits of launches, since CUDA 12.4
_RUNTIME = re.compile(rf"(?:cuda|hip|cu)[A-Z]\w*$|{_LOADING.pattern}|{_FULL.pattern}")
_PAGEABLE = re.compile(r"Memcpy (?:HtoD|DtoH) .*Pageable")
_LOADER = re.compile(r"enumerate\(DataLoader\)")
_STEP = re.compile(r"ProfilerStep")

_SLOW_LAUNCH_NS = 100_000
"""A launch takes 2 to 20 µs, so a longer mean has another cause. See `virtual/gpus` for measured launches."""
_MUCH = 0.2  # of the host's time
_SOME = 0.05
_IDLE = 0.1  # the device's time over the host's: if it is far less, the device idles, whatever ran at the same time
_MISSING = 0.98  # of the total: the rows shown have less, so some are left out
_SHORT_KERNEL_NS = 10_000  # launching one takes about as long
_MOST = 5  # rows of the device that are named


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a profiler's table says about a run, or cannot say.

    Attributes:
        kind: "cause": what takes the time, and why. "figure": what a figure of the table means.
            "unknown": what the table cannot say.
        title: The cause, the meaning of the figure, or what is unknown, in a sentence.
        saw: The figures of the table that show it.
        fix: What to do; "" if there is nothing to do.
    """

    kind: Literal["cause", "figure", "unknown"]
    title: str
    saw: str
    fix: str = ""


class TableTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the rows of a profiler's table. A time is None if the table has no such times.

    Attributes:
        host_ns: The host's time in all rows, in ns.
        runtime_ns: The host's time in calls of CUDA or HIP, also where these load kernels or wait for room in the
            launch queue, in ns.
        launch_ns: The host's time in calls that launch kernels, in ns.
        wait_ns: The host's time in calls that wait for the device, in ns.
        device_ns: The device's time, in ns.
        launches: Number of launches; None if the table has no rows of launches.
    """

    host_ns: int | None
    runtime_ns: int | None
    launch_ns: int | None
    wait_ns: int | None
    device_ns: int | None
    launches: int | None


class TableResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a profiler's table says about its run, as data. `unstall explain` prints it.

    Attributes:
        schema: The name and version of this schema.
        version: The version of unstall.
        path: The file that contains the table.
        device: The device's name in the column titles; None if the table has no times of a device.
        rows: Number of rows that were read.
        summary: What the table mainly says, in one or two sentences.
        totals: Sums over the rows.
        said: What the table says, and what it cannot say.
        notes: What was not read, one sentence each.
    """

    schema: str = SCHEMA
    version: str
    path: str
    device: str | None
    rows: int
    summary: str
    totals: TableTotals
    said: tuple[Said, ...]
    notes: tuple[str, ...] = ()


def explain_table(table: ProfilerTable) -> TableResult:
    """Returns what a profiler's table of the times of operators says about its run."""
    facts = _Facts(table)
    causes = tuple(_causes(facts))
    return TableResult(
        version=__version__,
        path=table.path,
        device=table.device,
        rows=len(table.rows),
        summary=_summary(facts, causes),
        totals=facts.totals,
        said=(*causes, *_figures(facts), *_unknown(facts)),
        notes=tuple(_notes(table, facts)),
    )


class _Facts:
    """Sums over the rows of a table."""

    def __init__(self, table: ProfilerTable) -> None:
        self.table, self.rows = table, table.rows
        self.launches = self.named(_LAUNCH)
        self.waits = self.named(_WAIT)
        self.runtime = self.named(_RUNTIME)
        shown = _sum(row.self_host_ns for row in self.rows)
        self.shown_host_ns = shown
        host = table.host_total_ns if table.host_total_ns is not None else shown
        self.totals = TableTotals(
            host_ns=_whole(host),
            runtime_ns=_whole(_sum(row.self_host_ns for row in self.runtime)),
            launch_ns=_whole(_sum(row.self_host_ns for row in self.launches)),
            wait_ns=_whole(_sum(row.self_host_ns for row in self.waits)),
            device_ns=_whole(self._device_ns()),
            launches=sum(row.calls or 0 for row in self.launches) or None,
        )

    def named(self, pattern: re.Pattern[str]) -> list[TableRow]:
        return [row for row in self.rows if pattern.match(row.name)]

    @property
    def on_device(self) -> list[TableRow]:
        """The rows of the device's own work, the longest first. If the table has none, the rows of operators."""
        found = [row for row in self.rows if row.self_device_ns and not row.host_ns]
        found = found or [row for row in self.rows if row.self_device_ns]
        return sorted(found, key=lambda row: -(row.self_device_ns or 0))

    def _device_ns(self) -> float | None:
        if self.table.device is None:
            return None
        if self.table.device_total_ns is not None:
            return self.table.device_total_ns
        return _sum(row.self_device_ns for row in self.on_device)


def _sum(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _whole(ns: float | None) -> int | None:
    return None if ns is None else round(ns)


def _causes(facts: _Facts) -> Iterator[Said]:
    host = facts.totals.host_ns or 0
    full = list(_full_queue(facts, host))
    yield from full
    yield from _slow_launches(facts, host, queue_known=bool(full))
    loading = facts.named(_LOADING)
    loads = round(_sum(row.self_host_ns for row in loading) or 0)
    if loads >= _SOME * host > 0:
        yield Said(
            kind="cause",
            title="Modules of kernels were loaded at their first use",
            saw=f"{', '.join(row.name for row in loading)}: {duration(loads)}, {share(loads, host)} of the host's time",
            fix=_WARM_UP,
        )
    waits = facts.totals.wait_ns or 0
    if waits >= _SOME * host > 0:
        yield Said(
            kind="cause",
            title="The host waits for the device",
            saw=f"{_host_times(facts.waits)}: {share(waits, host)} of the host's time. "
            "A wait costs nothing while the device has work; a table does not say whether it had",
            fix="a timeline shows which line waits, and how long the device idles because of the wait",
        )
    device = facts.totals.device_ns or 0
    pageable = facts.named(_PAGEABLE)
    copies = round(_sum(row.self_device_ns for row in pageable) or 0)
    if copies >= _SOME * device > 0:
        yield Said(
            kind="cause",
            title="Copies from or to pageable memory",
            saw=f"{', '.join(row.name for row in pageable)}: {duration(copies)}, {share(copies, device)} of the "
            "device's time. The host waits while they are staged",
            fix="pin the memory (DataLoader(pin_memory=True)), and copy with non_blocking=True",
        )
    loader = facts.named(_LOADER)
    input_ns = round(_sum(row.self_host_ns for row in loader) or 0)
    if input_ns >= _SOME * host > 0:
        yield Said(
            kind="cause",
            title="The program loads data",
            saw=f"{loader[0].name}: {duration(input_ns)}, {share(input_ns, host)} of the host's time",
            fix="DataLoader(num_workers=…), so that batches are ready when they are asked for",
        )


_WARM_UP = "leave the first calls out: run the code a few times before the profiler, or schedule(wait=1, warmup=3)"


def _host_times(rows: Sequence[TableRow]) -> str:
    return ", ".join(f"{row.name} ({duration(round(row.self_host_ns or 0))}{_calls(row)})" for row in rows)


def _full_queue(facts: _Facts, host: int) -> Iterator[Said]:
    rows = facts.named(_FULL)
    waited = round(_sum(row.self_host_ns for row in rows) or 0)
    if waited >= _SOME * host > 0:
        yield Said(
            kind="cause",
            title="The launch queue is full, so launches wait for the device: back-pressure, not a problem",
            saw=f"{_host_times(rows)}: {share(waited, host)} of the host's time. The "
            "device always has work then. Its time in this row is that of kernels, which have rows of their own",
            fix="nothing on the host: to be faster, shorten the device's own work",
        )


def _slow_launches(facts: _Facts, host: int, *, queue_known: bool) -> Iterator[Said]:
    launch, calls = facts.totals.launch_ns or 0, facts.totals.launches or 0
    if not calls or launch / calls < _SLOW_LAUNCH_NS or launch < _MUCH * host:
        return
    saw = (
        f"{' and '.join(row.name for row in facts.launches)}: {duration(launch)} in {counted(calls, 'call')}, "
        f"{duration(round(launch / calls))} each, {share(launch, host)} of the host's time. A launch takes 2 to 20 µs"
    )
    device = facts.totals.device_ns
    if device is not None and launch > 2 * device:
        yield Said(
            kind="cause",
            title="Kernels are used for the first time: the time goes to loading their modules, not to launching",
            saw=f"{saw}. The device was busy for {duration(device)} in all, so the launches did not wait for it",
            fix=_WARM_UP,
        )
    elif not queue_known:
        yield Said(
            kind="cause",
            title="Launch calls take far longer than a launch needs: first use, or a full launch queue",
            saw=f"{saw}. Either modules of kernels are loaded at their first use, or the host is so far ahead that it "
            "waits for the device, which is no problem. This table does not say which of the two it is",
            fix=f"{_WARM_UP}; what remains is the queue",
        )


def _figures(facts: _Facts) -> Iterator[Said]:
    totals, host = facts.totals, facts.totals.host_ns or 0
    yield _would_cpp_help(facts)
    steps = facts.named(_STEP)
    python = round(_sum(row.self_host_ns for row in steps) or 0)
    if python >= _SOME * host > 0:
        yield Said(
            kind="figure",
            title="Python, and everything else outside of operators, works within the steps",
            saw=f"{steps[0].name} itself: {duration(python)}, {share(python, host)} of the host's time",
        )
    device = totals.device_ns
    if device:
        longest = facts.on_device[:_MOST]
        named = "; ".join(
            f"{row.name} {duration(round(row.self_device_ns or 0))} ({share(round(row.self_device_ns or 0), device)})"
            for row in longest
        )
        yield Said(kind="figure", title="Where the device's time went", saw=named)
        if totals.launches and device / totals.launches < _SHORT_KERNEL_NS:
            yield Said(
                kind="figure",
                title="Launching a kernel takes about as long as the kernel runs",
                saw=f"{counted(totals.launches, 'launch')} for {duration(device)} of the device's time: "
                f"{duration(round(device / totals.launches))} each",
                fix="if a timeline shows that the device waits for launches: a larger batch, torch.compile, or a CUDA "
                "graph",
            )


def _would_cpp_help(facts: _Facts) -> Said:
    host, runtime = facts.totals.host_ns, facts.totals.runtime_ns
    title = "Would C++ help?"
    if not host or runtime is None or not facts.runtime:
        return Said(
            kind="unknown",
            title=f"{title} Not known",
            saw="the table has no rows for calls of CUDA. Their time, which is the same from C++, is part of the "
            "operators' time",
        )
    rest = max(host - runtime, 0)
    answer = "No" if rest < _SOME * host else "Perhaps"
    return Said(
        kind="figure",
        title=f"{title} {answer}: it could save {share(rest, host)} of the host's time in the table, at most",
        saw=f"{duration(runtime)} ({share(runtime, host)}) are in calls of CUDA, which take as long from C++, and "
        f"{duration(rest)} in operators and annotations. Python between them is not in a table",
    )


def _unknown(facts: _Facts) -> Iterator[Said]:
    host, device = facts.totals.host_ns, facts.totals.device_ns
    if device is None:
        yield Said(
            kind="unknown",
            title="What the device did",
            saw="the table has no times of a device: profile with ProfilerActivity.CUDA among the activities",
        )
    elif host and device < _IDLE * host:
        yield Said(
            kind="figure",
            title=f"The device was busy for {share(device, host)} of the host's time, at most",
            saw=f"{duration(device)} of the device beside {duration(host)} of the host. If the host's time is that of "
            "one thread, the device idled for the rest",
        )
    else:
        yield Said(
            kind="unknown",
            title="Whether the host or the device sets the pace",
            saw=f"the host's {duration(host or 0)} and the device's {duration(device)} are sums: what ran at the same "
            "time, and whether the host or the device waited, is not in a table",
        )
    yield Said(
        kind="unknown",
        title="Which source lines, which steps, and what a change gains",
        saw="a timeline shows them",
        fix="unstall run your.py; or prof.export_chrome_trace('trace.json'), then unstall explain trace.json",
    )


def _summary(facts: _Facts, causes: tuple[Said, ...]) -> str:
    host, device = facts.totals.host_ns, facts.totals.device_ns
    sums = f"The host worked for {duration(host or 0)}"
    sums += f", the device for {duration(device)}." if device is not None else "; the device was not recorded."
    return f"{causes[0].title}. {sums}" if causes else f"{sums} A table alone does not say what limits the run."


def _notes(table: ProfilerTable, facts: _Facts) -> Iterator[str]:
    if table.unread:
        yield f"{counted(table.unread, 'line')} among the rows could not be read"
    if table.more:
        yield f"only the first table was read: {table.more} more in the file"
    if table.host_total_ns is None:
        yield "the totals below the table are missing, so the sums of its rows are used"
    elif facts.shown_host_ns is not None and facts.shown_host_ns < _MISSING * table.host_total_ns:
        left = round(table.host_total_ns - facts.shown_host_ns)
        yield f"rows with {duration(left)} of the host's time are not in the table (row_limit)"
    if table.device is not None and not any(row.self_device_ns for row in table.rows):
        yield (
            "older versions of torch count the device's time of a nested call twice, so the sum is more "
            "than the time that the device worked"
        )


def _calls(row: TableRow) -> str:
    return "" if row.calls is None else f" in {counted(row.calls, 'call')}"
