"""What several threads may do with the public functions: each says so, and what it says is true, on the CPU and on a
virtual GPU."""

from __future__ import annotations

import inspect
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fleets.jobs import job, train_ddp
from processes import succeeded

import unstall
from unstall.errors import UsageError
from unstall.numbers import files

_SAID = re.compile(r"Several threads may \w+|Only one thread at a time may|One iterator is for one thread")
_ROUNDS = 3
THREADS = 4
SMALL_TRACE = Path(__file__).parents[1] / "examples" / "traces" / "decode_item.json.gz"
X = torch.randn(32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """Threads take turns far more often than usual."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Calls each function in a thread of its own, at the same time. Returns their results, or the errors raised."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(place: int) -> None:
        barrier.wait()
        try:
            results[place] = calls[place]()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return results


def public() -> dict[str, Any]:
    """The public functions and classes, without exceptions and warnings."""
    found = {name: getattr(unstall, name) for name in unstall.__all__}
    return {
        name: each
        for name, each in found.items()
        if callable(each) and not (inspect.isclass(each) and issubclass(each, BaseException))
    }


@pytest.mark.parametrize("name", sorted(public()))
def test_each_public_name_says_what_threads_may_do(name: str) -> None:
    assert _SAID.search(inspect.getdoc(public()[name]) or "")


def test_nothing_is_said_to_be_safe_that_is_not_tested() -> None:
    said_safe = {name for name, each in public().items() if "Several threads may" in (inspect.getdoc(each) or "")}
    results = {"Finding", "KernelReport", "Report", "Timeline"}  # that nothing changes
    assert said_safe - set(SAFE) - results == {"fleet", "inspect_kernel"}  # they have tests of their own


def _metrics() -> list[float]:
    rows: list[Any] = []
    with unstall.MetricBuffer(rows.append) as metrics:
        for value in range(20):
            metrics.add(loss=torch.tensor(float(value)))
    return [row.values["loss"] for row in rows]


def _stopwatch() -> tuple[str, bool]:
    with unstall.Stopwatch("product", show=False) as watch:
        X @ X
    return watch.description, watch.seconds is not None and 0 < watch.seconds < 60


def _allowed() -> int:
    with unstall.no_sync("count") as guard:
        X.sum().item()
        with unstall.allow_sync("it is tested"):
            X.sum().item()
    return guard.count


def _steps() -> None:
    for _ in range(50):
        unstall.step()


def _timer() -> tuple[int, int, bool]:
    """The statement runs in this thread only: a list that another thread also fills would be longer."""
    ran: list[int] = []
    timing = unstall.Timer("ran.append(threading.get_ident())", "import threading", globals={"ran": ran}).timeit(30)
    return timing.number_per_run, len(ran), set(ran) == {threading.get_ident()}


def _bench() -> tuple[str, bool, bool]:
    callers: set[int] = set()

    def product() -> torch.Tensor:
        callers.add(threading.get_ident())
        return X @ X

    result = unstall.bench(product, max_seconds=0.05)
    assert result.wall is not None
    return result.label, 0 < result.wall.median < 60e9, callers == {threading.get_ident()}


def _compare() -> list[tuple[str, bool]]:
    compared = unstall.compare({"a": torch.matmul, "b": torch.mm}, X, X, max_seconds=0.05)
    return [(each.name, each.agreement is None or each.agreement.agrees) for each in compared.candidates]


def _warmed() -> tuple[int, int]:
    warmed = unstall.warm_up(torch.relu, X)
    return warmed.calls, warmed.largest_bytes


_numbers = count()
ON_DEVICE = X.to("cuda" if torch.cuda.is_available() else "cpu")
GRAPHED: Callable[[torch.Tensor], torch.Tensor] = unstall.graphed(lambda x: x @ x)
SAFE: dict[str, Callable[[Path], Any]] = {
    "MetricBuffer": lambda path: _metrics(),
    "Stopwatch": lambda path: _stopwatch(),
    "Timer": lambda path: _timer(),
    "allow_sync": lambda path: _allowed(),
    "bench": lambda path: _bench(),
    "compare": lambda path: _compare(),
    "compare_numbers": lambda path: str(unstall.compare_numbers(lambda x: (x @ x).sum(), X, across=["float64"])),
    "diff": lambda path: str(unstall.diff(SMALL_TRACE, SMALL_TRACE)),
    "explain": lambda path: str(unstall.explain(SMALL_TRACE)),
    "graphed": lambda path: GRAPHED(ON_DEVICE).sum().item(),
    "load": lambda path: len(unstall.load(SMALL_TRACE).host),
    "no_sync": lambda path: _allowed(),
    "recording_numbers": lambda path: _recorded(path / f"{next(_numbers)}.numbers"),
    "step": lambda path: _steps(),
    "to_host": lambda path: [copy.sum().item() for copy in unstall.to_host([X, X]).result()],
    "virtual_gpu": lambda path: None,  # in a process of its own, below
    "warm_up": lambda path: _warmed(),
    "whatif": lambda path: str(unstall.whatif(SMALL_TRACE, ["host-speed:2"])),
}


def _recorded(path: Path) -> list[tuple[str, list[float]]]:
    """The operators of this thread only, with a sample of their values."""
    with unstall.recording_numbers(path):
        (X @ X).relu().sum().item()
    return [(seen.name, seen.values.tolist()) for seen in files.read(path).ran.operators]


@pytest.mark.parametrize("name", sorted(SAFE))
def test_threads_get_what_one_thread_gets(name: str, tmp_path: Path) -> None:
    alone = SAFE[name](tmp_path)
    for _ in range(_ROUNDS):
        assert together(*[lambda: SAFE[name](tmp_path)] * THREADS) == [alone] * THREADS


@pytest.mark.parametrize("block", [unstall.record, unstall.blame])
def test_a_second_block_is_refused_and_the_first_goes_on(block: Callable[[], Any]) -> None:
    """Nothing is left behind: a block after these is entered as ever."""
    entered, ended = threading.Event(), threading.Event()

    def first() -> str:
        with block():
            entered.set()
            ended.wait(60)
            X @ X
        return "done"

    def second() -> Any:
        entered.wait(60)
        try:
            with block():
                return "entered"
        finally:
            ended.set()

    one, other = together(first, second)
    assert one == "done"
    assert isinstance(other, UsageError)
    assert re.search(r"under way|is active", str(other))
    with block():
        X @ X


def _add(metrics: unstall.MetricBuffer) -> None:
    for value in range(200):
        metrics.add(loss=torch.tensor(float(value)))


def test_one_buffer_gets_the_metrics_of_all_threads() -> None:
    rows: list[Any] = []
    with unstall.MetricBuffer(rows.append) as metrics:
        together(*[partial(_add, metrics)] * THREADS)
    assert sorted(row.values["loss"] for row in rows) == sorted([float(value) for value in range(200)] * THREADS)
    assert [row.step for row in rows] == list(range(200 * THREADS))


def test_helpers_on_one_virtual_gpu_give_each_thread_what_one_thread_gets() -> None:
    """Four threads begin the virtual GPU and import torch, too."""
    program = Path(__file__).parent / "virtual" / "entry" / "programs" / "threads.py"
    done = json.loads(succeeded([sys.executable, str(program)], timeout=240).stdout)
    assert done["errors"] == []
    for name, (together_got, alone) in done["results"].items():
        assert all(got == alone for got in together_got), name


def test_threads_may_take_public_names_and_guard_while_another_imports_torch() -> None:
    program = """
import sys, threading
import unstall

def take(names):
    barrier.wait()
    taken.append([getattr(unstall, name) for name in names])

def guard():
    barrier.wait()
    while "torch" not in sys.modules:
        pass
    with unstall.no_sync("count") as guard, unstall.allow_sync("it is tested"):
        import torch
        torch.ones(3).sum().item()
    counts.append(guard.count)

def load():
    barrier.wait()
    import torch

names, taken, counts = sorted(unstall.__all__), [], []
calls = [load, guard, guard, *[lambda: take(names)] * 2, *[lambda: take(names[::-1])] * 2]
barrier = threading.Barrier(len(calls))
threads = [threading.Thread(target=call) for call in calls]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(counts, len(taken), all(sorted(map(id, each)) == sorted(map(id, taken[0])) for each in taken))
"""
    assert succeeded([sys.executable, "-c", program], timeout=120).stdout == "[0, 0] 4 True\n"


def test_an_iterator_of_stream_map_that_threads_share_loses_nothing() -> None:
    items = [torch.tensor(float(number)) for number in range(200)]
    results = unstall.stream_map(lambda item: item * 2, items)
    refused: list[str] = []

    def take() -> list[float]:
        taken = []
        while True:
            try:
                taken.append(next(results).item())
            except StopIteration:
                return taken
            except UsageError as error:
                refused.append(str(error))

    taken = [value for each in together(*[take] * 4) for value in each]
    assert sorted(taken) == [2.0 * number for number in range(200)]
    assert all("two threads ask the same stream_map" in each for each in refused)


def test_kernels_are_inspected_one_after_the_other() -> None:
    pytest.importorskip("numba", reason="numba: not installed")
    from unstall.course.experiments.puzzles import axis_sum

    given = np.arange(24, dtype=np.float32).reshape(4, 6)

    def inspected() -> list[float]:
        out = np.zeros(4, np.float32)
        unstall.inspect_kernel(axis_sum.kernel, 4, 8, given, out)
        return out.tolist()

    assert together(*[inspected] * 2) == [given.sum(1).tolist()] * 2


def test_a_job_is_explained_to_each_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both write the same summaries to the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    traces = tmp_path / "traces"
    traces.mkdir()
    job(partial(train_ddp, slow=1, cause="kernel", steps=4, layers=2), traces, ranks=4, kernel_jitter=0.01)
    one, other = together(*[lambda: str(unstall.fleet(traces))] * 2)
    assert one == other == str(unstall.fleet(traces))
    assert "Rank 1 makes the others wait" in " ".join(one.split())
