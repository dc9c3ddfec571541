"""`bench` of functions of the host: NumPy, torch on the CPU, and plain Python."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import unstall
from unstall.errors import TraceError, UsageError
from unstall.measuring import saved
from unstall.measuring.adapters import Adapter, copied
from unstall.measuring.document import document_of
from unstall.measuring.measurement import Rate
from unstall.measuring.peak_rates import beyond

QUICK: dict[str, Any] = {"max_seconds": 0.15}


def test_a_sleep_takes_as_long_as_it_says() -> None:
    took = []

    def sleep() -> None:
        began = time.perf_counter_ns()
        time.sleep(0.002)
        took.append(time.perf_counter_ns() - began)

    measured = unstall.bench(sleep, **QUICK)
    assert measured.method == "host"
    assert measured.device is None
    assert 2.0e6 <= measured.wall.median <= 1.1 * max(took)  # a busy machine wakes it late
    assert measured.cache == "hot"
    assert measured.best is measured.wall


def test_short_functions_are_resolved_by_many_calls_a_sample() -> None:
    numbers = list(range(300))
    short, long = (unstall.bench(sum, part, **QUICK).wall.median for part in (numbers[:30], numbers))
    assert 50 < short < long < 100_000


def test_one_that_does_nothing_is_too_short_to_resolve() -> None:
    assert unstall.bench(lambda: None, **QUICK).has("too short to resolve")


def test_what_it_raises_is_passed_on() -> None:
    with pytest.raises(ZeroDivisionError):
        unstall.bench(lambda: 1 / 0)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rel_ci": 0.0}, "rel_ci"),
        ({"max_seconds": 0}, "no time"),
        ({"max_seconds": "soon"}, "max_seconds='soon' is no number of seconds"),
        ({"rel_ci": "a little"}, "rel_ci='a little': write a percentage"),
        ({"rel_ci": None}, "rel_ci=None is not between"),
        ({"bytes": "64M"}, "'64M' is no number of bytes"),
        ({"bytes": [64]}, r"bytes=\[64\] is no number of them"),
        ({"flops": float("nan")}, "flops=nan is no number"),
        ({"flops": "2GiB"}, "'2GiB' is no number of operations"),
        ({"cache": "warm"}, "cache='warm'"),
        ({"cache": "rotate"}, "takes copies of the inputs"),
        ({"method": "cupti"}, "no work on one"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        unstall.bench(lambda: 1, **{**QUICK, **options})


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be called"):
        unstall.bench(3)  # type: ignore[arg-type]


def test_a_numpy_array_sorted_in_place_is_an_input_that_changes() -> None:
    values = np.random.default_rng(0).random(5000)
    measured = unstall.bench(values.sort, **QUICK)
    assert measured.has("input changes")


def test_a_tensor_written_to_is_an_input_that_changes() -> None:
    x = torch.ones(100)
    assert unstall.bench(x.mul_, 1.0, **QUICK).has("input changes")
    assert not unstall.bench(x.mul, 1.0, **QUICK).has("input changes")


def test_zeros_and_subnormal_numbers_are_named() -> None:
    zeros, tiny = torch.zeros(1000), torch.full((1000,), 1e-40)
    assert unstall.bench(torch.exp, zeros, **QUICK).has("zeros")
    measured = unstall.bench(torch.mul, tiny, 2.0, **QUICK)
    assert measured.has("denormals")
    assert not measured.has("zeros")


def test_a_result_that_is_never_used_is_said() -> None:
    x = torch.randn(100)

    def unused() -> None:
        torch.exp(x)

    assert unstall.bench(unused, **QUICK).has("result unused")


def test_a_step_that_leaves_gradients_is_used() -> None:
    x = torch.ones(10, requires_grad=True)

    def step() -> None:
        (x * 2).sum().backward()

    assert not unstall.bench(step, **QUICK).has("result unused")


def test_zeros_that_are_few_beside_other_inputs_are_no_verdict() -> None:
    x, bias = torch.randn(100, 100), torch.zeros(100)
    assert not unstall.bench(torch.add, x, bias, **QUICK).has("zeros")


def test_a_first_call_that_differs_is_kept_out() -> None:
    calls: list[int] = []

    def lazy() -> None:
        time.sleep(0.02 if not calls else 0.0005)
        calls.append(1)

    measured = unstall.bench(lazy, **QUICK)
    assert measured.has("first call differs")
    assert measured.first_call_ns > 2e7
    assert measured.wall.samples.max() < 2e7


def test_work_that_goes_on_after_the_return_is_said() -> None:
    def hand_over() -> None:
        threading.Thread(target=time.sleep, args=(0.01,)).start()

    assert unstall.bench(hand_over, **QUICK).has("works later")


def test_work_for_a_pool_is_said() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()

        def submit() -> Future[None]:
            return pool.submit(time.sleep, 0.001)

        assert unstall.bench(submit, max_seconds=0.02).has("works later")


@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_coroutine_has_not_run() -> None:
    async def work() -> None: ...

    assert unstall.bench(work, max_seconds=0.02).has("works later")


def test_threads_are_those_asked_for_and_put_back() -> None:
    before, seen = torch.get_num_threads(), []
    x = torch.randn(10)

    def note() -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return x + 1

    unstall.bench(note, num_threads=1, max_seconds=0.02)
    assert set(seen) == {1}
    assert torch.get_num_threads() == before


def test_rates_are_of_the_measured_time() -> None:
    x = np.ones(1 << 20)
    measured = unstall.bench(lambda: x + 1, bytes=2 * x.nbytes, **QUICK)
    assert measured.bandwidth is not None
    assert measured.bandwidth.per_second == pytest.approx(2 * x.nbytes / (measured.wall.median * 1e-9))
    assert measured.bandwidth.percent is not None
    assert measured.bandwidth.percent > 0


def test_amounts_and_shares_are_numbers_or_as_on_the_command_line() -> None:
    by_text = unstall.bench(sum, [1, 2], bytes="64MiB", flops="2e3", rel_ci="5%", **QUICK)
    assert by_text.bandwidth is not None
    assert by_text.rate is not None
    assert by_text.bandwidth.per_second == pytest.approx((64 << 20) / (by_text.wall.median * 1e-9))
    assert by_text.rate.per_second == pytest.approx(2e3 / (by_text.wall.median * 1e-9))
    in_numpys = unstall.bench(sum, [1, 2], bytes=np.int64(64), **QUICK)  # type: ignore[arg-type]
    assert in_numpys.bandwidth is not None


def test_a_rate_beyond_the_memorys_says_that_the_data_are_in_the_cache() -> None:
    adapter = Adapter()
    far, near = Rate(9e9, "B/s", ceiling=3e9), Rate(3e9, "B/s", ceiling=3e9)
    (note,) = beyond(adapter, 4096, far, None)
    assert "4.00 KiB fit the cache" in note
    (note,) = beyond(adapter, 1 << 50, far, None)
    assert "may move less than `bytes` says" in note
    (note,) = beyond(adapter, None, None, Rate(9e9, "FLOP/s", ceiling=3e9))
    assert "may do less than `flops` says" in note
    assert beyond(adapter, 4096, near, Rate(3e9, "FLOP/s", ceiling=3e9)) == []


def test_rotating_calls_with_copies_by_turns() -> None:
    seen: set[int] = set()

    def note(x: torch.Tensor) -> torch.Tensor:
        seen.add(x.data_ptr())
        assert x.tolist() == [1.0, 2.0]
        return x

    unstall.bench(note, torch.tensor([1.0, 2.0]), cache="rotate", max_seconds=0.05)
    assert len(seen) >= 3


def test_a_measurement_is_read_back_as_it_was_saved() -> None:
    measured = unstall.bench(sum, [1, 2, 3], label="three", flops=2, **QUICK)
    again = saved.read(measured.to_json())
    assert saved.saved(again) == saved.saved(measured)
    assert document_of(again) == measured.document()
    assert (again.label, again.wall.median) == ("three", measured.wall.median)


def test_other_files_are_refused() -> None:
    with pytest.raises(TraceError, match=r"unstall\.bench/1"):
        saved.read('{"schema": "unstall.diff/1"}')


def test_the_table_fits_a_terminal() -> None:
    measured = unstall.bench(sum, [1, 2, 3], label="x\x1b[31m" * 30, **QUICK)
    assert max(map(len, str(measured).splitlines())) <= 80
    assert "\x1b" not in str(measured)
    assert "wall" in str(measured)
    assert "<pre" in measured._repr_html_()


def test_what_a_measurement_shows_of_itself_is_its_table() -> None:
    measured = unstall.bench(sum, range(100), **QUICK)
    assert repr(measured) == str(measured)


@pytest.mark.parametrize(
    "given", [torch.ones(4, 1).expand(4, 100), torch.ones(10, 64)[:, ::2], torch.ones(4, 6).t(), torch.ones(0, 3).t()]
)
def test_copies_of_inputs_lie_in_memory_as_these_do(given: torch.Tensor) -> None:
    copy = copied(given)
    assert copy.stride() == given.stride()
    assert torch.equal(copy, given)
    assert copy.untyped_storage().data_ptr() != given.untyped_storage().data_ptr() or not given.numel()


def test_copies_of_parameters_are_parameters() -> None:
    copy = copied(torch.nn.Parameter(torch.ones(3), requires_grad=False))
    assert isinstance(copy, torch.nn.Parameter)
    assert not copy.requires_grad
