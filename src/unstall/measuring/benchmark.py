"""`bench`: measures the times of one function, and derives verdicts that help to interpret the
times.

A call of `bench` does this, in order:

 1. It times the first call of the function separately. The other figures do not include the loading, tuning and
    compiling of the first call.
 2. It finds the adapter for the framework of the function's arrays (`adapters/`). The adapter knows how to wait for
    results, and whether there is a device.
 3. It warms up: it calls the function until the calls no longer get faster.
 4. It inspects one call (`calls/inspection.py`): the side effects of the call, work that continues after the call
    returns, and the values of the inputs.
 5. It measures `host` and `wall` by single calls on an idle device. It waits for the results of each call.
 6. It measures `device` by single calls, from records of the work on the device. CUPTI or the virtual GPU makes these
    records. If there are no records, `bench` uses events before and after each call. It then puts calls and events
    into the launch queue while the stream is blocked.
 7. It measures `throughput` by calls that directly follow each other. It waits only once, after the last call.
 8. It derives verdicts from the results of steps 1 to 7.

Each of the steps 5 to 7 stops when the confidence interval of the median is narrow enough, when
more samples would add no information, or when the step's share of `max_seconds` has passed. If
cache="cold", the cache is flushed before each sample of steps 5 and 6. A function that never uses a
device is measured as Python code: each sample has several calls, and the cache is hot.

Time limits are measured by the machine's clock. The times in the result are measured by the
program's clock. On a virtual GPU, the program's clock is virtual.

If calls are so long that steps 3 to 7 do not fit into `max_seconds`, one call serves several steps.
The inspected call (step 4) is also the first timed call (step 5), and step 6 needs the device
records of only one call.
"""

from __future__ import annotations

import inspect
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unstall.errors import UsageError
from unstall.measuring import gpu_clock, peak_rates
from unstall.measuring.adapters import Adapter, adapter_for, on_the_host
from unstall.measuring.amounts import bytes_of, flops_of, seconds_of, share_of
from unstall.measuring.cache import Caching
from unstall.measuring.calls.compilations import compilations
from unstall.measuring.calls.function_call import FunctionCall
from unstall.measuring.calls.inspection import Inspection, inspect_call, opened, sampled_inputs
from unstall.measuring.calls.sync_lines import sync_lines
from unstall.measuring.calls.system_memory import page_faults, resident_bytes
from unstall.measuring.device_time.methods import DeviceTime, device_time
from unstall.measuring.host_time import Alone, back_to_back, by_itself, empty_call_ns, synchronised
from unstall.measuring.measurement import Cache, Clocks
from unstall.measuring.progress import begin
from unstall.measuring.sampling import FEWEST, LEAST, Sampled, Until
from unstall.measuring.shown import ShownMeasurement
from unstall.measuring.statistics import Spread
from unstall.measuring.verdicts import verdicts_of
from unstall.measuring.verdicts.evidence import Evidence
from unstall.measuring.virtual_gpu import is_clock_virtual

_WARM_UPS, _LEAST_WARM_UPS = 10, 2  # calls
_CALLS, _CALLS_OF_MODEL = 20, 50  # least number of calls of a full measurement
_UNSTEADY = 2.0  # calls that differ by more than this factor: one of them captures, compiles or loads something
_NO_FLUSH_S = 0.02  # for longer calls on a device the cache's state does not matter
_SHARES = {"warm up": 0.1, "wall": 0.25, "device": 0.45, "throughput": 0.2}  # of max_seconds


@dataclass(slots=True)
class _Taken:
    """The times that `bench` has measured so far. `device` and `throughput` are None if they were not measured."""

    host: Spread
    wall: Sampled
    device: DeviceTime | None = None
    throughput: Spread | None = None
    sync_lines: tuple[str, ...] = ()
    grown_bytes: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def main(self) -> Sampled:
        return self.device.device if self.device and self.device.device else self.wall


def bench(
    fn: Callable[..., object],
    /,
    *args: object,
    label: str | None = None,
    cache: Cache | None = None,
    rel_ci: float | str = 0.01,
    max_seconds: float = 2.0,
    bytes: float | str | None = None,
    flops: float | str | None = None,
    method: str = "auto",
    num_threads: int | None = None,
    **kwargs: object,
) -> ShownMeasurement:
    """Measures how long `fn(*args, **kwargs)` takes.

    Measures four durations of a call: the time on the device, the time on the host, the time until the results are
    ready, and the time per call if calls follow each other without waits.

        print(unstall.bench(torch.mm, x, y, flops="2GFLOP"))

    Several threads may call it at the same time, but then each measures the others' work, too.

    Args:
        fn: The function. Its arguments, closure and results may contain arrays of torch, CuPy, JAX or NumPy, of any
            shape and dtype.
        *args: Positional arguments of the function.
        label: The name of the measurement in the report. The default is the name of the function.
        cache: The content of the device's L2 cache when a call begins. On the CPU, it is the content of the last-level
            cache. "cold": no data of the call. "hot": data of the previous call. "rotate": data of a call with other
            inputs; for this, the arguments are copied. The default is "cold" on a device and "hot" on the CPU.
        rel_ci: The precision at which the measurement stops, as a fraction of the median: a number such as 0.01, or a
            text such as "1%". With 0.01, the measurement stops when the median is known to ± 1 % with 95 % confidence.
        max_seconds: The time limit in s. The first call does not count.
        bytes: The bytes that one call moves: a number, or a text such as "64MiB". If `bytes` is not None, the bandwidth
            is reported.
        flops: The floating-point operations of one call: a number, or a text such as "2GFLOP". If `flops` is not None,
            the rate of floating-point operations is reported.
        method: How to measure the time on the device: "auto", "cupti", "events", "model" (the model of the virtual
            GPU), or "host" (the time on the device is not measured).
        num_threads: The number of CPU threads that torch or NumPy uses. By default, the number is not changed.
        **kwargs: Keyword arguments of the function.

    Returns:
        The four durations in ns, with confidence intervals and verdicts. `print` shows the result as a report.

    Raises:
        UsageError: An option is invalid, or is not supported for this function or on this machine.
        Exception: Exceptions of `fn` are raised unchanged.
    """
    if not callable(fn):
        raise UsageError(f"bench() takes a function, and {type(fn).__name__} cannot be called: bench(lambda: …)")
    rel_ci, max_seconds = share_of(rel_ci, "rel_ci"), seconds_of(max_seconds, "max_seconds")
    size_bytes = None if bytes is None else bytes_of(bytes)
    operations = None if flops is None else flops_of(flops)
    call = FunctionCall(fn, args, kwargs)
    guess = adapter_for([value for _, value in call.inputs()])
    with guess.threads(num_threads):
        compiled, at_first = compilations(), sampled_inputs(call, guess)
        begin("the first call")
        began, machine_began = time.perf_counter_ns(), time.monotonic_ns()
        result = call()
        returned, machine_ns = time.perf_counter_ns(), time.monotonic_ns() - machine_began
        adapter = adapter_for([value for _, value in (*call.inputs(), *opened(result))])
        resumed = time.perf_counter_ns()
        adapter.wait(result)
        done, machine_done = time.perf_counter_ns(), time.monotonic_ns()
        first = _First(done - resumed + returned - began, machine_ns, (machine_done - machine_began) / 1e9)
        with _unawaited(result):
            del result
            label = label or call.label()
            run = _Run(
                label, call, adapter, cache, method, rel_ci, max_seconds, first, compilations() > compiled, at_first
            )
            return run.measured(size_bytes, operations)


class _First(NamedTuple):
    """The times of the first call of the function.

    Attributes:
        program_ns: The time in ns until the results of the call were ready, by the program's clock.
        machine_ns: The time in ns until the call returned, by the machine's clock.
        done_s: The time in s until the results of the call were ready, by the machine's clock.
    """

    program_ns: int  # by the program's clock, until its results are there
    machine_ns: int  # by the machine's clock, until it returned
    done_s: float  # by the machine's clock, until its results are there


@contextmanager
def _unawaited(result: object) -> Iterator[None]:
    """Returns a context manager. If `result` is a coroutine, it closes the coroutine, and
    suppresses Python's warnings about coroutines that were never awaited within its block: a
    verdict reports such a coroutine.
    """
    if not inspect.iscoroutine(result):
        del result  # a reference here would keep its memory
        yield
        return
    result.close()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        yield


@dataclass(slots=True)
class _Run:
    """One call of `bench` in progress: the options, and the findings so far."""

    label: str
    call: FunctionCall
    adapter: Adapter
    cache: Cache | None
    method: str
    rel_ci: float
    max_seconds: float
    first: _First
    compiled_first: bool
    at_first: dict[int, NDArray[np.generic]]
    each_s: float = 0.0  # time of a call, by the machine's clock
    deadline: float = 0.0  # by the machine's clock
    brief: bool = False  # whether calls are so long that there is time for few
    alone: Alone | None = None  # the inspected call, if its time counts as a sample

    def measured(self, size_bytes: int | None, flops: int | None) -> ShownMeasurement:
        self.deadline = time.monotonic() + self.max_seconds
        seen = self._inspect()
        caching = Caching(self.call, self._cache(), self.adapter) if self.adapter.asynchronous else None
        if caching is not None:
            self.adapter.mark()
            caching.flushed()
            self.adapter.synchronize()
        compiled = compilations()
        before = gpu_clock.read(self.adapter.bus_id())
        taken = self._on_device(caching) if caching is not None else None
        if taken is None:
            if caching is not None:
                self.adapter = on_the_host(self.adapter.framework == "torch")
            taken = self._on_host(single=seen.later is not None)
        after = gpu_clock.read(self.adapter.bus_id())
        evidence = self._evidence(taken, seen, before, after, compilations() > compiled)
        best = taken.main.spread.median
        bandwidth = peak_rates.bandwidth(self.adapter, size_bytes, best) if size_bytes is not None else None
        rate = peak_rates.rate(self.adapter, flops, best, seen) if flops is not None else None
        taken.notes += peak_rates.beyond(self.adapter, size_bytes, bandwidth, rate)
        device = taken.device
        return ShownMeasurement(
            label=self.label,
            method=device.method if device else "host",
            cache=self._cache(),
            host=taken.host,
            wall=taken.wall.spread,
            device=device.device.spread if device and device.device else None,
            span=device.span if device else None,
            throughput=taken.throughput,
            device_ops=device.anatomy.ops_per_call() if device and device.anatomy else None,
            stopped=taken.main.stopped,
            first_call_ns=self._first_ns(),
            compiled_ns=max(0, self._first_ns() - round(taken.wall.spread.median)) if self.compiled_first else None,
            verdicts=verdicts_of(evidence),
            bandwidth=bandwidth,
            rate=rate,
            device_name=self.adapter.device_name,
            clocks=Clocks(before.mhz, after.mhz, after.highest_mhz, after.reasons) if before and after else None,
            versions={"python": sys.version.split()[0], **self.adapter.versions()},
            notes=(*(device.notes if device else ()), *taken.notes),
        )

    def _inspect(self) -> Inspection:
        """Warms up, and then inspects one call. If calls are long, inspects the second call without a warm-up."""
        if self._is_long(self.first.done_s):
            begin("the second call")
            alone = Alone(self.call, self.adapter)
            seen = inspect_call(self.call, self.adapter, self.at_first, alone)
            if self._is_long(alone.machine_s) and self._is_steady(alone.machine_s):
                self.each_s, self.brief = alone.machine_s, True
                if self._is_as_any(alone):
                    self.alone = alone
                return seen
        begin("the first calls")
        self.each_s = self._warm_up()
        self.brief = self._is_long(self.each_s)  # also if the first two calls did not agree
        return inspect_call(self.call, self.adapter, self.at_first)

    def _is_as_any(self, alone: Alone) -> bool:
        """Returns whether the time of the inspected call may be used as a sample.

        The time may be used if the inspected call began with the same cache state as timed calls. On a virtual GPU, the
        time is never used, because the inspection makes the host slower.
        """
        if self.adapter.virtual:
            return False
        cold = self.adapter.asynchronous and self._cache() == "cold" and alone.machine_s > _NO_FLUSH_S
        return cold or self._cache() == "hot"

    def _is_steady(self, second_s: float) -> bool:
        """Returns whether the second call took about as long as the first call or a third call.

        If one of the first two calls took at least twice as long as the other, makes a third call. In this case,
        returns whether the second call took less than twice as long as the third call.
        """
        if max(second_s, self.first.done_s) < _UNSTEADY * min(second_s, self.first.done_s):
            return True
        began = time.monotonic()
        self.adapter.wait(self.call())
        return second_s < _UNSTEADY * (time.monotonic() - began)

    def _is_long(self, seconds: float) -> bool:
        return (_CALLS_OF_MODEL if self.adapter.virtual else _CALLS) * seconds > self.max_seconds

    def _warm_up(self) -> float:
        """Calls the function until the calls no longer get faster. Returns the time in s of the fastest call, by the
        machine's clock.
        """
        until = time.monotonic() + _SHARES["warm up"] * self.max_seconds
        fastest = float("inf")
        for number in range(_WARM_UPS):
            began = time.monotonic()
            self.adapter.wait(self.call())
            took = time.monotonic() - began
            steady = number >= _LEAST_WARM_UPS and took > 0.9 * fastest
            fastest = min(fastest, took)
            if steady or (time.monotonic() > until and number + 1 >= _LEAST_WARM_UPS):
                break
        return fastest

    def _cache(self) -> Cache:
        return self.cache or ("cold" if self.adapter.asynchronous else "hot")

    def _on_device(self, caching: Caching) -> _Taken | None:
        """Measures host, wall, device and throughput times. Returns None if the function does not put work on the
        device."""
        adapter = self.adapter
        begin("calls one by one")
        host, wall = synchronised(caching, adapter, self._until("wall"), self.alone)
        taken = _Taken(host, wall)
        if adapter.virtual:
            taken.notes.append("the virtual GPU has no caches: cold and hot are the same")
            if not is_clock_virtual():
                taken.notes.append(
                    "the virtual GPU's block has ended, and its clock with it: host, wall and throughput are what "
                    "simulating takes here"
                )
        if self.method != "host":
            begin("time on the device")
            taken.device = device_time(
                caching,
                adapter,
                self.method,
                wall.spread.median,
                self._until("device"),
            )
            if taken.device.anatomy is not None and not len(taken.device.anatomy.call):
                return None
            if taken.device.anatomy is None:
                taken.sync_lines = sync_lines(self.call, adapter)
        if self.brief and self._has_no_time_for_several():
            taken.notes.append("there was no time for calls back to back: throughput is not known")
            return taken
        begin("calls back to back")
        taken.throughput = back_to_back(caching, adapter, wall.spread.median, self._until("throughput")).spread
        return taken

    def _has_no_time_for_several(self) -> bool:
        """Returns whether there is too little time left to measure throughput. On a virtual GPU, the result depends
        only on the time of one call, not on the time that has passed.
        """
        if self.adapter.virtual:
            return self.each_s > self.max_seconds
        return time.monotonic() + 2 * self.each_s > self.deadline

    def _on_host(self, *, single: bool) -> _Taken:
        if self.method not in ("auto", "host"):
            raise UsageError(f'method="{self.method}" is of a device, and {self.label} has no work on one')
        caching = Caching(self.call, self._cache(), self.adapter)
        before = resident_bytes()
        begin("calls one by one")
        there = self.alone.wall if self.alone is not None else ()
        wall = by_itself(caching, self.adapter, self._until(), single=single, there=there)
        taken = _Taken(wall.spread, wall, grown_bytes=max(0, resident_bytes() - before))
        if is_clock_virtual():
            taken.notes.append("nothing of it runs on the virtual GPU: the times are this machine's")
        return taken

    def _first_ns(self) -> int:
        return self.first.machine_ns if self.adapter.clock is time.monotonic_ns else self.first.program_ns

    def _until(self, what: str | None = None) -> Until:
        """Returns the condition at which sampling stops.

        If `what` is given, sampling may take the share of `max_seconds` that is reserved for this kind of time. If
        `what` is None, sampling may take all of `max_seconds` except the share of the warm-up.
        """
        share = _SHARES[what] if what else 1 - _SHARES["warm up"]
        left = max(0.0, self.deadline - time.monotonic())
        seconds = min(share * self.max_seconds, left) if self.brief else share * self.max_seconds
        return Until(self.rel_ci, seconds, self.each_s, alike=self._alike(), brief=self.brief)

    def _alike(self) -> int:
        """Returns the number of equal samples that are enough on a virtual GPU. Returns 0 on other devices.

        If there is enough time, the number is greater than two, to find out whether calls differ.
        """
        if not self.adapter.virtual:
            return 0
        return FEWEST if self.brief else LEAST

    def _page_faults(self) -> float:
        if self.adapter.asynchronous:
            return 0.0
        if self.brief:
            return self.alone.page_faults if self.alone is not None else 0.0
        return page_faults(self.call)

    def _evidence(
        self,
        taken: _Taken,
        seen: Inspection,
        before: gpu_clock.ClockReading | None,
        after: gpu_clock.ClockReading | None,
        compiled_later: bool,
    ) -> Evidence:
        torch = sys.modules.get("torch")
        return Evidence(
            asynchronous=self.adapter.asynchronous,
            virtual=self.adapter.virtual,
            framework=self.adapter.framework,
            has_current_stream=self.adapter.has_current_stream,
            cache=self._cache(),
            cache_bytes=self.adapter.cache_bytes,
            host=taken.host,
            wall=taken.wall.spread,
            throughput=taken.throughput,
            device=taken.device,
            inspection=seen,
            converged=taken.main.converged,
            stopped=taken.main.stopped,
            first_call_ns=self._first_ns(),
            compiled_first=self.compiled_first,
            compiled_later=compiled_later,
            empty_call_ns=empty_call_ns(self.adapter),
            page_faults=self._page_faults(),
            grown_bytes=taken.grown_bytes,
            before=before,
            after=after,
            sync_lines=taken.sync_lines,
            gpu_is_there=bool(torch is not None and hasattr(torch, "cuda") and torch.cuda.is_available()),
        )
