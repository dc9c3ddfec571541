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
    assert (values["by"], values["made_by"]) == ("device", "device")
    assert set(values["mm_ns"]) == {values["ran_ns"]}
    assert values["answers"] == [None, "SAME", "FAST", "FAST"]


def test_a_function_that_the_host_bounds_is_named(found: tuple[dict[str, Any], str]) -> None:
    values, _ = found
    assert [note.partition(":")[0] for note in values["notes"]] == ["add is launch-bound", "small is launch-bound"]


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
