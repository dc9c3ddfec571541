"""`Timer` works like `torch.utils.benchmark.Timer`, but it supports any framework, and it waits for
asynchronous work.

A block is many runs of the statement, one directly after the other, with one wait at the end. On a
device, the time of a block divided by its runs is the time per run while the device always has
work. This time is at least the host's time to launch a run. `bench` reports both times.

On a virtual GPU, equal blocks take equal times. So `blocked_autorange` and `adaptive_autorange`
stop as soon as more runs would give no new information. `timeit` always runs the statement `number`
times. A statement that does not use the virtual GPU is timed by the machine's clock, because the
virtual clock does not advance during host work.
"""

from __future__ import annotations

import ast
import gc
import itertools
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from unstall.errors import UsageError
from unstall.measuring.adapters import adapter_for
from unstall.measuring.calls.function_call import FunctionCall
from unstall.measuring.exact_times import length_of_batch
from unstall.measuring.timing import TaskSpec, Timing
from unstall.measuring.virtual_gpu import is_clock_virtual, ops_so_far

_LARGEST_BLOCK = 2**31 - 1
_NEGLIGIBLE = 1e-4  # an empty block's share of a block's time
_LEAST = 4  # blocks before their spread is looked at

_TEMPLATE = """
def inner(_it, _timer, _waiting):
    {setup}
    _wait = _waiting(locals())
    _result = None
    _began = _timer()
    for _ in _it:
        {statement}
    _wait({results})
    return _timer() - _began
"""


class Timer:
    """Times a statement, with the interface of `torch.utils.benchmark.Timer`, except for C++. Times are in seconds.

        print(unstall.Timer("x @ x", globals={"x": x}).blocked_autorange())

    Several threads may use timers at the same time, but then each measures the others' work, too.

    Args:
        stmt: The statement.
        setup: Code that runs before each block of runs.
        global_setup: Not supported, because it is for C++ only.
        timer: A clock in seconds. The default is `time.perf_counter`.
        globals: The global names of the statement and the setup.
        label, sub_label, description, env: Texts for `torch.utils.benchmark.Compare`.
        num_threads: Number of torch's CPU threads.
        language: Only "python" is supported.

    Raises:
        UsageError: `language` or `global_setup` asks for C++.
        SyntaxError: The statement or the setup is not valid Python.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] | None = None,
        globals: Mapping[str, object] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: str = "python",
    ) -> None:
        if str(language).lower().rpartition(".")[2] not in ("python", "py") or global_setup:
            raise UsageError("unstall.Timer times Python alone: for C++ use torch.utils.benchmark.Timer")
        stmt, setup = _dedented(stmt), _dedented(setup)
        self._globals = dict(globals or {})
        if "torch" in sys.modules:
            self._globals.setdefault("torch", sys.modules["torch"])
        self._names = _names(stmt)
        self._clock = timer
        self._now: Callable[[], float] = timer or time.perf_counter
        self._inner = _compiled(stmt, setup, self._globals)
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    def timeit(self, number: int = 1_000_000) -> Timing:
        """Times one block of `number` runs of the statement. Makes warm-up runs before the block is timed."""
        with _threads(self._task_spec.num_threads):
            self._block(2 if self._is_exact() else max(number // 100, 2))
            return self._timing(number, [self._block(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """Not supported. torch's Timer does not support it either."""
        raise NotImplementedError("see `Timer.blocked_autorange`")

    def autorange(self, callback: Callable[[int, float], object] | None = None) -> None:
        """Not supported. torch's Timer does not support it either."""
        raise NotImplementedError("see `Timer.blocked_autorange`")

    def blocked_autorange(
        self, callback: Callable[[int, float], object] | None = None, min_run_time: float = 0.2
    ) -> Timing:
        """Times blocks of many runs of the statement, for at least `min_run_time` seconds in total.

        Each block is so long that the time for reading the clock and for waiting for the device is
        negligible.

        Args:
            callback: Called after each block, with the number of runs and the time of the block in
                s.
            min_run_time: The minimum total time of all blocks, in seconds.
        """
        with _threads(self._task_spec.num_threads):
            if self._is_exact():
                return self._exactly(callback)
            number = self._block_size(min_run_time)
            times: list[float] = []
            while sum(times) < min_run_time or not times:
                self._one_more(number, times, callback)
        return self._timing(number, times)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], object] | None = None,
    ) -> Timing:
        """Times blocks of many runs of the statement until the interquartile range of the times is
        below `threshold` times their median.

        Args:
            threshold: A fraction of the median.
            min_run_time: The minimum total time of all blocks, in seconds.
            max_run_time: The total time after which to stop in any case, in seconds.
            callback: Called after each block, with the number of runs and the time of the block in
                s.
        """
        with _threads(self._task_spec.num_threads):
            if self._is_exact():
                return self._exactly(callback)
            number = self._block_size(0.05)
            times: list[float] = []
            while True:
                self._one_more(number, times, callback)
                spent = sum(times)
                if spent > max_run_time:
                    break
                enough = spent >= min_run_time and len(times) >= _LEAST
                if enough and self._timing(number, times).meets_confidence(threshold):
                    break
        return self._timing(number, times)

    def _is_exact(self) -> bool:
        """Returns whether times come from a virtual GPU. If a virtual GPU is active, runs the statement once to find
        out.

        If the statement does not use the virtual GPU, the timer reads the machine's clock from now on.
        """
        self._now = self._clock or time.perf_counter
        if self._clock is not None or not is_clock_virtual():
            return False
        before = ops_so_far()
        self._block(1)
        if ops_so_far() == before:
            self._now = time.monotonic
        return self._now is not time.monotonic

    def _exactly(self, callback: Callable[[int, float], object] | None) -> Timing:
        """Times two blocks by the virtual clock. Blocks are so long that the time in which the
        device has no work yet, at the start of a block, does not matter.
        """
        self._block(2)
        number, times = length_of_batch(self._block), list[float]()
        for _ in range(2):
            self._one_more(number, times, callback)
        return self._timing(number, times)

    def _one_more(self, number: int, times: list[float], callback: Callable[[int, float], object] | None) -> None:
        times.append(self._block(number))
        if callback is not None:
            callback(number, times[-1])

    def _block_size(self, min_run_time: float) -> int:
        overhead = float(np.median([self._block(0) for _ in range(5)]))
        number = 1
        while number * 10 <= _LARGEST_BLOCK:
            took = self._block(number)
            if (overhead <= _NEGLIGIBLE * took and took >= min_run_time / 1000) or took > min_run_time:
                break
            number *= 10
        return number

    def _block(self, number: int) -> float:
        """Runs the setup, then the statement `number` times. Returns the time of these runs in s."""
        collects = gc.isenabled()
        gc.disable()
        try:
            return float(self._inner(itertools.repeat(None, number), self._now, self._waiting))
        finally:
            if collects:
                gc.enable()

    def _waiting(self, known: Mapping[str, object]) -> Callable[[object], None]:
        """Waits for all earlier work of the device. Returns a function that waits for the results of the statement.

        `known` has the local variables after the setup. The local variables and the globals show which framework the
        statement uses.
        """
        values = {name: self._globals[name] for name in self._names if name in self._globals}
        values |= {name: value for name, value in known.items() if not name.startswith("_")}
        adapter = adapter_for(value for _, value in FunctionCall(_nothing, (), values).inputs())
        adapter.synchronize()
        return adapter.wait

    def _timing(self, number: int, times: Iterable[float]) -> Timing:
        return Timing(number, list(times), self._task_spec)


def _nothing(**_: object) -> None:
    pass


def _compiled(stmt: str, setup: str, names: dict[str, object]) -> Callable[..., float]:
    is_value = _is_value(stmt)
    source = _TEMPLATE.format(
        setup=textwrap.indent(setup, "    ").strip(),
        statement=f"_result = ({stmt})" if is_value else textwrap.indent(stmt, "        ").strip(),
        results="_result" if is_value else f"[value for name, value in locals().items() if name in {_assigned(stmt)}]",
    )
    compile(setup, "<setup>", "exec")
    compile(stmt, "<stmt>", "exec")
    made: dict[str, Callable[..., float]] = {}
    exec(compile(source, "<unstall.Timer>", "exec"), names, made)
    return made["inner"]


def _is_value(stmt: str) -> bool:
    """Returns whether the statement is a single expression. If so, the timer can wait for its value."""
    body = ast.parse(stmt).body
    return len(body) == 1 and isinstance(body[0], ast.Expr) and "\n" not in stmt and "#" not in stmt


def _assigned(stmt: str) -> set[str]:
    """Returns the names that a statement assigns. For JAX, the timer must wait for the values of these names."""
    nodes = [node for node in ast.walk(ast.parse(stmt)) if isinstance(node, ast.Name)]
    return {"", *(node.id for node in nodes if isinstance(node.ctx, ast.Store))}


def _names(stmt: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(stmt)) if isinstance(node, ast.Name)}


def _dedented(source: str) -> str:
    source = textwrap.dedent(source)
    return source.removeprefix("\n").rstrip() or "pass"


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Returns a context manager that sets torch's number of CPU threads to `count` within its
    block. It does nothing if torch is not imported.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "set_num_threads"):
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
