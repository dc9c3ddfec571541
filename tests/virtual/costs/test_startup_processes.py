"""The processes in which first uses are measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from processes import succeeded

from unstall.virtual.costs import startup
from unstall.virtual.costs.kernel_modules import KernelModules
from unstall.virtual.costs.suite import cases


def answering(monkeypatch: pytest.MonkeyPatch, answer: str) -> list[dict[str, object]]:
    """Lets `measure_startup` start processes that run `answer`. Returns what it asks them."""
    asked: list[dict[str, object]] = []

    def run(name: str, what: dict[str, object], environment: dict[str, str], seconds: float) -> str:
        asked.append({**what, **environment})
        return answer

    monkeypatch.setattr(startup, "run_module", run)
    return asked


def test_each_process_has_another_order_and_some_have_no_cache_of_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, 'a library prints\n{"init": 5, "context": 7, "calls": []}')
    measured = startup.measure_startup(KernelModules(), [3, 4], cases(0), 8, 60)
    assert (measured.startup.init, measured.startup.context) == (5, 7)
    assert [each["order"] for each in asked] == list(range(8))
    assert [each["order"] for each in asked if "CUDA_CACHE_DISABLE" in each] == [1, 3]


def test_at_least_six_processes_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, '{"init": 5, "context": 7, "calls": []}')
    startup.measure_startup(KernelModules(), [0], cases(0), 24, 0)
    assert len(asked) == 6


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_the_calls_of_the_whole_suite_can_be_handed_to_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, '{"init": 5, "context": 7, "calls": []}')
    suite = cases(3)
    startup.measure_startup(KernelModules(), startup.small_calls(suite), suite, 1, 60)
    assert len(asked) == 1


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(RuntimeError, match=r"CUDA|NVIDIA"):
        startup.measure_startup(KernelModules(), [0], cases(0), 1, 60)


ONE_PROCESS = """
import msgspec, sys
from unstall.virtual.costs import startup
from unstall.virtual.costs.suite import cases
found = startup._in_a_process(3, startup._calls_of_suite(cases(0), startup.small_calls(cases(0))))
sys.stdout.buffer.write(msgspec.json.encode(found))
"""


@pytest.mark.slow
def test_a_process_measures_every_operator_that_has_small_calls(tmp_path: Path) -> None:
    script = tmp_path / "one_process.py"
    script.write_text(ONE_PROCESS)
    printed = succeeded(
        [sys.executable, "-m", "unstall", "run", "--gpu", "h100", str(script)], timeout=300, cwd=tmp_path
    )
    found = json.loads(printed.stdout.splitlines()[0])
    names = {cases(0)[number].operator.partition(".")[0] for number in startup.small_calls(cases(0))}
    assert len({calls["name"] for calls in found["calls"]}) > 0.9 * len(names)
    assert found["init"] + found["context"] > 100_000_000
