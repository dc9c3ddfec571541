"""What explains a difference on a GPU, as far as it can be seen without one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from unstall.blaming.result import Line, Race, RaceSide
from unstall.numbers import determinism, precision, times
from unstall.numbers.kernels import short_name
from unstall.numbers.races import about_race, race_at
from unstall.numbers.streams import Streams
from unstall.numbers.ways import as_given, way
from unstall.rounding.judge import Pair
from unstall.rounding.operators import Place
from unstall.rounding.samples import Seen

TESTS = Path(__file__).parents[1]


def race(earlier: int, later: int) -> Race:
    sides = [
        RaceSide(where=Line("a.py", line, "f"), operator="aten::mul", stream="stream 7") for line in (earlier, later)
    ]
    title = "Race: read before the write has finished"
    return Race(kind="read-early", title=title, earlier=sides[0], later=sides[1], bytes=4, count=1, fix="let it wait")


def first_at(line: int) -> Pair:
    seen = Seen("operator", "mul", Place("a.py", line, "f"), (1,), torch.float32, np.zeros(1))
    return Pair(seen, seen, 1.0, 0.0, 1.0)


@pytest.mark.parametrize(("line", "at"), [(3, 0), (5, 1), (6, 1), (9, 0)])
def test_the_race_of_the_line_that_differs_first_is_named_or_else_the_first_race(line: int, at: int) -> None:
    races = [race(2, 3), race(5, 6)]
    assert race_at(races, first_at(line)) is races[at]


def test_without_races_none_is_named() -> None:
    assert race_at([], first_at(3)) is None
    assert "lines are not known" in about_race(None, others=0, shows=True)


def test_a_race_that_does_not_show_is_told_apart() -> None:
    shown, hidden = (about_race(race(2, 3), others=1, shows=shows) for shows in (True, False))
    assert shown.startswith("It goes away if each operator waits for the device: read before the write")
    assert hidden.startswith("The numbers agree here, but nothing orders two lines: read before the write")
    assert hidden.endswith("Let it wait. 1 more pair of lines race.")


def settings() -> dict[str, Any]:
    backends = torch.backends
    keys = [
        ("generic", "all"),
        ("cuda", "all"),
        ("cuda", "matmul"),
        ("cuda", "conv"),
        ("cuda", "rnn"),
        ("mkldnn", "matmul"),
    ]
    found: dict[str, Any] = {str(key): (precision._get(key), precision._own(key)) for key in keys}
    getters: dict[str, Callable[[], Any]] = {
        "matmul": torch.get_float32_matmul_precision,
        "cudnn": lambda: backends.cudnn.allow_tf32,
        "half": lambda: backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    }
    for name, get in getters.items():
        try:
            found[name] = get()
        except RuntimeError:
            found[name] = "contradicts"
    return found


_SETTINGS = {
    "default": "",
    "high": 'torch.set_float32_matmul_precision("high")',
    "medium, no cuDNN": 'torch.set_float32_matmul_precision("medium"); torch.backends.cudnn.allow_tf32 = False',
    "newer, for all": 'torch.backends.fp32_precision = "tf32"',
    "newer, mixed": 'torch.set_float32_matmul_precision("high"); torch.backends.cuda.matmul.fp32_precision = "ieee"',
    "newer, cuDNN": 'torch.backends.cudnn.fp32_precision = "tf32"; torch.backends.cudnn.conv.fp32_precision = "ieee"',
    "newer, one of cuDNN": 'torch.backends.cudnn.conv.fp32_precision = "tf32"',
}


@pytest.mark.slow
@pytest.mark.skipif(not precision._HAS_NEWER, reason="this torch has no fp32_precision")
@pytest.mark.parametrize("case", _SETTINGS)
def test_switches_are_off_within_and_restored_exactly(case: str) -> None:
    """In a process of its own, since some of torch's defaults cannot be restored once they are set."""
    program = f"""
import torch
{_SETTINGS[case]}
from unstall.numbers import precision
from numbers_tests import settings
before = settings()
assert before == settings(), "looking changes nothing"
with precision.off(precision.SWITCHES):
    assert not any(each.is_on() for each in precision.SWITCHES)
assert settings() == before, (before, settings())
""".replace("numbers_tests", Path(__file__).stem)
    paths = f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(TESTS)!r}]\n"
    ran = subprocess.run([sys.executable, "-c", paths + program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]


def test_a_copy_beside_the_host_needs_no_gpu_to_be_left_out() -> None:
    streams = Streams()
    call = streams.noting(lambda func, args, kwargs: func(*args, **kwargs))
    call(torch.ops.aten.copy_.default, (torch.zeros(2), torch.ones(2), True), {})
    assert not streams.any
    assert not streams.several


def test_the_cost_of_a_setting_is_the_ratio_of_two_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([9.0, 9.0, *[2.0, 4.0] * 7])
    monkeypatch.setattr(times, "_ms", lambda _: next(taken))
    told = times.cost_of("Turning it off takes", lambda: as_given(torch.sin, [torch.ones(1)]), nullcontext, nullcontext)
    assert told == " Turning it off takes 2 times as long: 2 → 4 ms (median of 7)."


def test_what_would_take_long_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "_MOST_S", 0.0)
    assert times.cost_of("It takes", lambda: as_given(torch.sin, [torch.ones(1)]), nullcontext, nullcontext) == ""


def strict(value: Tensor) -> Tensor:
    if torch.are_deterministic_algorithms_enabled():
        raise RuntimeError("strict has no such algorithm. Turn it off.")
    return value.sum()


def test_the_deterministic_mode_is_tried_and_its_error_told() -> None:
    told = determinism.about_determinism(lambda: as_given(strict, [torch.ones(4)]), one_at_a_time=False)
    assert told == "torch.use_deterministic_algorithms(True) raises: strict has no such algorithm."
    assert torch.get_deterministic_debug_mode() == 0


def test_the_deterministic_mode_is_tried_and_its_cost_measured() -> None:
    told = determinism.about_determinism(lambda: as_given(torch.sin, [torch.ones(4)]), one_at_a_time=False)
    assert told.startswith("torch.use_deterministic_algorithms(True) makes it the same bits each time. That takes ")
    assert "(median of 7)" in told


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("void at::native::(anonymous namespace)::indexFunc<float, long>(float*)", "at::native::indexFunc"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(float*)", "internal::gemvx::kernel"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("triton_poi_fused_add_0(float*, int)", "triton_poi_fused_add_0"),
    ],
)
def test_a_kernels_name_is_short(kernel: str, name: str) -> None:
    assert short_name(kernel) == name


def test_serial_is_a_way_on_the_cpu_too() -> None:
    taken = way("serial", torch.sin, [torch.ones(2)])
    assert taken.one_at_a_time


_RACES = """
import json, sys
from unstall.virtual.entry import virtual_gpu
gpu = virtual_gpu("h200").start()
import torch, unstall
sys.path.insert(0, sys.argv[1])
from planted_numbers_gpu import overwritten_early, read_early, read_in_time
told = {}
for fn in (read_early, overwritten_early, read_in_time):
    found = unstall.compare_numbers(fn, torch.randn(64, device="cuda"), across=["repeat"])
    told[fn.__name__] = json.loads(found.to_json())["ways"]
gpu.stop()
print("= " + json.dumps(told))
"""


@pytest.mark.slow
def test_on_the_virtual_gpu_a_race_has_a_row_with_both_lines_though_its_numbers_agree() -> None:
    ran = subprocess.run([sys.executable, "-c", _RACES, str(TESTS)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("= "))[2:])
    source = (TESTS / "planted_numbers_gpu.py").read_text().splitlines()
    for name in ("read_early", "overwritten_early"):
        assert [(each["way"], each["is"]) for each in told[name]] == [("repeat", "equal"), ("serial", "race")]
        for side in ("earlier", "later"):
            assert source[told[name][1]["race"][side]["line"] - 1].endswith(f"# planted: {side}")
    assert [each["is"] for each in told["read_in_time"]] == ["equal"]


@contextmanager
def _turned_off(flags: set[str], name: str) -> Iterator[None]:
    flags.remove(name)
    try:
        yield
    finally:
        flags.add(name)


def test_only_the_switch_that_matters_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"coarse", "idle"}

    def product(one: Tensor, other: Tensor) -> Tensor:
        fine = one.dtype == torch.float64 or "coarse" not in flags
        return one @ other if fine else one @ other * 1.001

    def switch(name: str, dtype: torch.dtype) -> precision.Switch:
        how = partial(_turned_off, flags, name)
        return precision.Switch(name, "rounds", frozenset((dtype,)), lambda: name in flags, lambda: f"{name} off", how)

    known = [switch("coarse", torch.float32), switch("idle", torch.float32), switch("of another type", torch.float16)]
    monkeypatch.setattr(precision, "SWITCHES", tuple(known))
    inputs = [torch.randn(32, 32, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    base, double = partial(as_given, product, inputs), partial(way, "float64", product, inputs)
    found = precision.explained(base, double, frozenset((torch.float32,)), one_at_a_time=False)
    assert found is not None
    assert [each.kind for each in found.on] == ["coarse", "idle"]
    assert [each.kind for each in found.matter] == ["coarse"]
    assert flags == {"coarse", "idle"}
    monkeypatch.setattr(precision, "SWITCHES", (known[1],))
    assert precision.explained(base, double, frozenset((torch.float32,)), one_at_a_time=False) is None
