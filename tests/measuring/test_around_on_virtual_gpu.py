"""`compare`, `Timer` and `Stopwatch` where times are known: on the virtual GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parent / "programs" / "around.py"


@pytest.fixture(scope="module")
def found() -> tuple[dict[str, Any], str]:
    """What the program found, and what it printed."""
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1]), done.stdout


def test_compare_returns_the_models_times(found: tuple[dict[str, Any], str]) -> None:
    values, _ = found
    assert (values["by"], values["made_by"]) == ("device", "throughput")
    assert set(values["mm_ns"]) == {values["ran_ns"]}
    assert values["answers"] == [None, "SAME", "FAST", "FAST"]


def test_functions_that_the_host_bounds_are_named_in_one_line(found: tuple[dict[str, Any], str]) -> None:
    values, _ = found
    (note,) = values["notes"]
    assert note.startswith("add and small are launch-bound: the device works for ")
    assert note.endswith(' Compare by="throughput", too')


def test_by_itself_it_compares_what_a_program_pays_where_the_host_bounds_any(found: tuple[dict[str, Any], str]) -> None:
    values, _ = found
    graphs, cold, large, mixed, host, *inputs = zip(values["chosen"], values["because"], strict=True)
    assert graphs[0] == mixed[0] == "throughput"
    assert graphs[1].startswith("by throughput, what a program pays, since eager")
    assert mixed[1].startswith("by throughput, what a program pays, since small is launch-bound: the device works for ")
    assert large == ("device", "by the device's time, since none is launch-bound")
    assert host == ("wall", "by the time of a call, since none works on the device")
    assert {by for by, _ in inputs} == {"throughput"}  # one of two inputs is small, and a table is of one time
    assert cold == ("device", "")
    assert "launch-bound" in values["cold"][0]


def test_a_graph_is_faster_than_what_the_host_launches_one_by_one(found: tuple[dict[str, Any], str]) -> None:
    values, _ = found
    assert values["graphed"] < 0.3


def test_what_the_host_alone_does_is_compared_by_the_machines_clock(found: tuple[dict[str, Any], str]) -> None:
    values, _ = found
    assert values["host_answer"] == "SLOW"
    assert values["host_ns"] > 50


def test_what_the_virtual_clock_does_not_count_is_not_compared(found: tuple[dict[str, Any], str]) -> None:
    values, _ = found
    assert values["refused"].startswith("sum has no work on the virtual GPU, whose clock does not count")


def test_calls_back_to_back_fill_the_pipeline(found: tuple[dict[str, Any], str]) -> None:
    values, _ = found
    assert values["throughput"] == "SAME"
    assert values["throughput_ns"] == pytest.approx(values["ran_ns"], rel=0.1)


def test_a_timer_waits_for_the_device(found: tuple[dict[str, Any], str]) -> None:
    values, _ = found
    assert values["timer_s"] == pytest.approx(values["ran_ns"] / 1e9, rel=0.1)


def test_a_stopwatch_waits_for_the_device_and_says_how_long(found: tuple[dict[str, Any], str]) -> None:
    values, said = found
    assert values["products_s"] >= 20 * values["ran_ns"] / 1e9
    assert 0 < values["waited_s"] < values["products_s"]
    products, nothing = said.splitlines()
    assert products.endswith(" sec waiting for cuda:0")
    assert nothing.endswith("; nothing was left to wait for on cuda:0")


def test_a_slow_host_is_no_wait(tmp_path: Path) -> None:
    """With --host mixed, all that Python does to wait takes its time, which is longer on a busy machine."""
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy\nimport torch\nfrom unstall import Stopwatch\n\n"
        "x = torch.ones(10, device='cuda')\na = numpy.ones((500, 500))\n"
        "with Stopwatch('NumPy'):\n    a @ a\n"
    )
    command = [sys.executable, "-m", "unstall.virtual", "--host", "mixed", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.endswith("; nothing was left to wait for on cuda:0\n")
