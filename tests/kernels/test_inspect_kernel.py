"""`inspect_kernel`: its arguments and errors, barriers that not all threads reach, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba: not installed")

from numba import cuda, float32
from numba.cuda.simulator.cudadrv.devicearray import to_device

from unstall.errors import KernelError, UsageError
from unstall.kernels.inspect_kernel import inspect_kernel

# mypy: disable-error-code="no-untyped-def"


@cuda.jit
def ten_more(a, out):
    i = cuda.grid(1)
    if i < a.size:
        out[i] = a[i] + 10


@cuda.jit
def barrier_in_a_branch(out):
    if cuda.threadIdx.x < 3:
        cuda.syncthreads()
    out[cuda.threadIdx.x] = 1


@cuda.jit
def two_barriers(out):
    if cuda.threadIdx.x < 1:
        cuda.syncthreads()  # of one thread
    else:
        cuda.syncthreads()  # of the others
    out[cuda.threadIdx.x] = 1


@cuda.jit
def rounds_of_a_thread(out):
    for _ in range(cuda.threadIdx.x + 1):
        cuda.syncthreads()
    out[cuda.threadIdx.x] = 1


@cuda.jit
def beyond(a, out):
    i = cuda.threadIdx.x
    out[i] = a[i + 1]


@pytest.mark.parametrize(
    ("kernel", "reached", "line", "which"),
    [
        (barrier_in_a_branch, "only 3 of 4 threads of block (0, 0, 0)", "cuda.syncthreads()", "(3, 0, 0) has returned"),
        (two_barriers, "only 1 of 4 threads", "cuda.syncthreads()  # of one thread", "(1, 0, 0) waits at line"),
        (rounds_of_a_thread, "only 3 of 4 threads", "cuda.syncthreads()", "(0, 0, 0) has returned"),
    ],
)
def test_a_barrier_that_not_all_threads_reach_is_an_error_with_its_line(
    kernel: Any, reached: str, line: str, which: str
) -> None:
    before = threading.active_count()
    with pytest.raises(KernelError) as caught:
        inspect_kernel(kernel, 2, 4, np.zeros(4))
    message = str(caught.value)
    assert reached in message
    assert f"reach {line!r}" in message
    assert which in message
    place = re.match(r"(\S+):(\d+): ", message)
    assert place is not None
    assert Path(__file__).read_text().splitlines()[int(place[2]) - 1].strip() == line
    for thread in threading.enumerate():
        if type(thread).__name__ == "_Thread":
            thread.join(10)
    assert threading.active_count() == before


def test_an_index_out_of_bounds_is_an_error_with_line_thread_and_shape() -> None:
    with pytest.raises(
        KernelError, match=r"'out\[i\] = a\[i \+ 1\]' reads a\[4\], whose shape is \(4,\), in thread \(3, "
    ):
        inspect_kernel(beyond, 1, 4, np.zeros(4), np.zeros(4))


def test_what_the_simulator_lacks_is_an_error_with_its_name() -> None:
    @cuda.jit
    def shuffled(out):
        out[0] = cuda.shfl_sync(0xFFFFFFFF, 1, 0)

    with pytest.raises(KernelError, match=r"Numba's simulator has no cuda\.shfl_sync"):
        inspect_kernel(shuffled, 1, 1, np.zeros(1))


def test_an_error_of_the_kernel_itself_is_raised_with_its_thread() -> None:
    @cuda.jit
    def fails(out):
        if cuda.threadIdx.x == 1:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        inspect_kernel(fails, 1, 2, np.zeros(1))
    assert caught.value.__notes__ == ["in thread (1, 0, 0) of block (0, 0, 0)"]


def test_a_kernel_can_be_inspected_again_after_an_error() -> None:
    with pytest.raises(KernelError):
        inspect_kernel(beyond, 1, 4, np.zeros(4), np.zeros(4))
    out = np.zeros(3)
    inspect_kernel(beyond, 1, 3, np.arange(4.0), out)
    assert list(out) == [1, 2, 3]


def test_nothing_stays_patched() -> None:
    decorated = type(ten_more)
    call = decorated.__call__
    inspect_kernel(ten_more, 1, 4, np.zeros(4), np.zeros(4))
    assert decorated.__call__ is call
    assert ten_more.py_func.__globals__["cuda"] is cuda


def test_functions_that_a_kernel_calls_are_followed_by_line() -> None:
    @cuda.jit(device=True)
    def store(tile, value):
        tile[0] = value
        cuda.syncthreads()

    @cuda.jit
    def calls(out):
        tile = cuda.shared.array(1, float32)
        store(tile, cuda.threadIdx.x)
        out[cuda.threadIdx.x] = tile[0]

    report = inspect_kernel(calls, 1, 2, np.zeros(2, np.float32))
    (race,) = report.races
    assert (race.first.place.function, race.first.place.source) == ("store", "tile[0] = value")
    assert report.barriers == 1


def test_a_function_of_another_module_may_wait_for_the_block() -> None:
    other: dict[str, Any] = {"cuda": cuda}
    exec("def store(out):\n    cuda.syncthreads()\n    out[cuda.threadIdx.x] = 1\n", other)
    store = cuda.jit(device=True)(other["store"])

    @cuda.jit
    def calls(out):
        store(out)

    out = np.zeros(4)
    assert inspect_kernel(calls, 1, 4, out).barriers == 1
    assert list(out) == [1, 1, 1, 1]
    assert other["cuda"] is cuda


def test_arrays_on_the_device_are_written_and_in_arguments_are_not() -> None:
    a, out = to_device(np.arange(4.0)), to_device(np.zeros(4))
    inspect_kernel(ten_more, 1, 4, a, out)
    assert list(out.copy_to_host()) == [10, 11, 12, 13]
    kept, given = np.zeros(4), np.zeros(4)
    inspect_kernel(ten_more, 1, 4, cuda.In(np.arange(4.0)), cuda.Out(given))
    inspect_kernel(ten_more, 1, 4, np.arange(4.0), cuda.In(kept))
    assert list(given) == [10, 11, 12, 13]
    assert not kept.any()


@pytest.mark.parametrize(
    ("grid", "block", "arguments", "message"),
    [
        (0, 4, (np.zeros(4), np.zeros(4)), "grid: 0 is neither"),
        ((1, 1, 1, 1), 4, (np.zeros(4), np.zeros(4)), "grid: .* is neither"),
        (1, (64, 32), (np.zeros(4), np.zeros(4)), "more than 1,024 threads"),
        (1, 4, (np.zeros(4),), r"ten_more takes 2 arguments \(a, out\), and got 1"),
        (1, 4, ([1, 2], np.zeros(4)), "argument a: a value of type list is neither a NumPy array nor a number"),
        (1, 4, (np.zeros(8)[::2], np.zeros(4)), "argument a: the array is not contiguous"),
        (1, 4, (np.zeros(4), np.zeros(4, "f4,f4")), "argument out: inspect_kernel follows arrays of numbers"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(grid: Any, block: Any, arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        inspect_kernel(ten_more, grid, block, *arguments)


def test_a_plain_function_is_refused() -> None:
    with pytest.raises(UsageError, match=r"takes a function that cuda\.jit decorates"):
        inspect_kernel(ten_more.py_func, 1, 1)


def test_an_unknown_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean h200"):
        inspect_kernel(ten_more, 1, 4, np.zeros(4), np.zeros(4), gpu="h20")


@pytest.mark.parametrize(("stride", "sectors"), [(0, 1), (1, 4), (2, 8), (8, 32)])
def test_neighbours_in_a_warp_that_read_neighbours_in_memory_ask_for_the_least(stride: int, sectors: int) -> None:
    @cuda.jit
    def strided(a, out, stride):
        i = cuda.threadIdx.x
        out[i] = a[i * stride]

    arguments = np.zeros(512, np.float32), np.zeros(64, np.float32), stride
    traffic = inspect_kernel(strided, 1, 64, *arguments).traffic
    (line,) = traffic.lines
    assert line.requests == 4  # two warps, a read and a write each
    reads = 2 * sectors if stride else 2
    assert (line.sectors, line.least_sectors) == (reads + 8, (8 if stride else 2) + 8)
    assert traffic.distinct_bytes == 32 * ((reads if stride else 1) + 8)


def test_the_model_moves_the_sectors_at_the_rate_of_the_multiprocessors_that_work() -> None:
    size = 4096
    arguments = np.zeros(size, np.float32), np.zeros(size, np.float32)
    few = inspect_kernel(ten_more, size // 1024, 1024, *arguments, gpu="h200").time
    assert (few.blocks, few.multiprocessors) == (4, 132)
    assert few.used == pytest.approx(4 / 132)
    assert few.memory_ns == pytest.approx(2 * size * 4 / 6205 / (4 / 132), abs=1)  # L2's rate, in bytes per ns
    assert few.kernel_ns == few.empty_ns + few.memory_ns
    more = inspect_kernel(ten_more, 133, 31, *arguments, gpu="h200").time
    assert more.used == pytest.approx(133 / 264)


def test_the_report_can_be_saved(tmp_path: Path) -> None:
    report = inspect_kernel(ten_more, 1, 4, np.zeros(4), np.zeros(4))
    for name in ("report.html", "report.json", "report.md"):
        report.save(tmp_path / name, scrub_paths=True)
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["schema"] == "unstall.kernel/1"
    assert data["traffic"]["global"]["reads"] == {"total": 4, "most": 1}
    assert data["file"] == "test_inspect_kernel.py"


def test_it_works_with_numbas_simulator_turned_on(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\nimport unstall\nfrom numba import cuda\n\n"
        "@cuda.jit(device=True)\ndef more(x):\n    return x + 10\n\n"
        "@cuda.jit\ndef kernel(a, out):\n    out[0] = more(a[cuda.threadIdx.x])\n\n"
        "a, out = cuda.to_device(np.arange(4.0)), cuda.to_device(np.zeros(1))\n"
        "report = unstall.inspect_kernel(kernel, 1, 4, a, out)\n"
        "print(len(report.races), report.races[0].first.place.line, out.copy_to_host()[0])\n"
        "kernel[1, 4](a, out)\nprint(type(kernel).__name__)\n"
    )
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1 11 13.0", "FakeCUDAKernel"]
