"""`examples/transformers`: what was said of a program is held against what its own process measured, in turns."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_FOLDER = Path(__file__).parents[1] / "examples" / "transformers"

REPORT: dict[str, Any] = {
    "findings": [
        {"title": "No edit models this", "where": {}, "edit": None, "gain_ns": None},
        {
            "title": "The device waits",
            "where": {"file": "p.py", "line": 4, "function": "step"},
            "edit": "graph:p.py:step",
            "gain_ns": 6_000_000,
        },
    ],
    "replay": {"undistorted_mean_step_ns": 8_000_000, "undistorted_by": "plain step time"},
    "steps": {"mean_ns": 9_000_000, "count": 5},
    "accounts": {"busy_ns": {"compute": 9_000_000, "copy": 1_000_000}},
    "verdict": {"bound_by": "launch"},
    "source": {"device": "NVIDIA H200", "torch": "2.11.0"},
}
PLAIN = {which: {"steps": 5, "host_ns": 8.1e6, "device_ns": ns} for which, ns in (("before", 7e6), ("after", 9e6))}


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", _FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


measure = _module("measure")
AGAIN = {"again": {"error": {"gain_ms": 0.25}}}


def test_what_was_said_is_held_against_turns_of_the_same_process() -> None:
    run = measure.compared(REPORT, PLAIN, {"before_ms": [12.0, 16.0, 14.0], "after_ms": {"graph": [2.5, 2.5, 2.0]}})
    assert run["said"] == {"before_ms": 8.0, "after_ms": 2.0, "gain_ms": 6.0, "ratio": 4.0}
    assert run["got"]["gain_ms"]["median"] == 12.0
    assert run["error"] == {
        "before_ms": pytest.approx(8 / 14 - 1),
        "after_ms": pytest.approx(2 / 2.5 - 1),
        "gain_ms": -0.5,
        "ratio": pytest.approx(4 / 6.4 - 1),
    }
    assert (run["recorded_busy_ms"], run["plain_ms"]) == (2.0, {"before": 7.0, "after": 9.0})


def test_a_ratio_is_of_neighbouring_turns_so_that_a_host_that_slows_down_leaves_it() -> None:
    run = measure.compared(REPORT, PLAIN, {"before_ms": [10.0, 20.0, 20.0], "after_ms": {"graph": [2.5, 5.0, 5.0]}})
    assert {run["got"]["ratio"][which] for which in ("least", "median", "most")} == {4.0}


@pytest.mark.parametrize(("before_ms", "kept"), [(7.7, True), (8.3, False), (6.3, False)])
def test_a_host_keeps_its_speed_if_three_times_of_a_step_agree(before_ms: float, kept: bool) -> None:
    plain = {which: {"steps": 5, "host_ns": 7e6, "device_ns": ns} for which, ns in (("before", 7e6), ("after", 7.5e6))}
    run = measure.compared(REPORT, plain, {"before_ms": [before_ms], "after_ms": {"graph": [2.0]}})
    assert run["kept_speed"] is kept
    said = measure.line(run | AGAIN)
    assert ("changed its speed" in said) is not kept
    assert said.endswith("of a step as in the turns: gain +25.0%")


def test_what_is_said_of_a_step_as_in_the_turns_is_held_against_them() -> None:
    """The pair of this trace was measured: a step took 28.9 ms, with CUDA graphs 5.7."""
    trace = _FOLDER.parent / "traces" / "gpt2_decode_item.json.gz"
    got = {"before_ms": 28.9, "after_ms": 5.7, "gain_ms": 23.2}
    run = {"edit": "graph:pairs.py:forward", "got": {what: {"median": ms} for what, ms in got.items()}}
    told = measure.again(trace, run)
    assert told["after_ms"] == pytest.approx(28.9 - told["gain_ms"], rel=0.005)
    assert told["error"]["gain_ms"] == pytest.approx(told["gain_ms"] / 23.2 - 1)
    assert abs(told["error"]["gain_ms"]) < 0.05
    gone = measure.again(trace, run | {"edit": "graph:other.py:forward"})
    assert (gone["gain_ms"], gone["error"]["gain_ms"]) == (0.0, -1.0)


def test_turns_that_began_within_the_recording_do_not_count() -> None:
    with pytest.raises(ValueError, match="still under way"):
        measure.compared(REPORT, {"before": PLAIN["before"]}, {"before_ms": [1.0], "after_ms": {"graph": [1.0]}})


def test_a_report_that_promises_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no finding"):
        measure.compared(
            REPORT | {"findings": REPORT["findings"][:1]}, PLAIN, {"before_ms": [1.0], "after_ms": {"graph": [1.0]}}
        )


def test_a_finding_is_held_against_its_own_mending() -> None:
    findings = [REPORT["findings"][1] | {"edit": "remove-syncs:p.py:4"}]
    ways = {"graph": [1.0], "remove-syncs": [3.0]}
    run = measure.compared(REPORT | {"findings": findings}, PLAIN, {"before_ms": [9.0], "after_ms": ways})
    assert run["got"]["gain_ms"]["median"] == 6.0
    with pytest.raises(ValueError, match="mended by remove-syncs, which was not timed"):
        measure.compared(REPORT | {"findings": findings}, PLAIN, {"before_ms": [9.0], "after_ms": {"graph": [1.0]}})


def test_recorded_programs_gain_what_is_said_of_steps_as_long_as_they_were() -> None:
    """Of an H200, one process each, with its turns told by their quartiles; vit_infer gains a tenth of its step."""
    runs = measure.remade(_FOLDER / "recorded")
    assert sorted(runs) == sorted(measure.NAMES)
    for (run,) in runs.values():
        assert run["edit"].startswith("graph:")
        assert abs(run["again"]["error"]["gain_ms"]) < 0.15


def test_work_is_told_by_where_it_differs_most() -> None:
    told = measure.compared_work(
        {"written": {"gemm": [4.0, 1.0], "copy": [1.0, 0.5]}, "graph": {"gemm": [4.0, 1.25], "memset": [8.0, 2.0]}}
    )
    assert told["written"] == {"ops": 5.0, "ms": 1.5}
    assert told["graph"] == {"ops": 12.0, "ms": 3.25}
    assert [(each["name"], each["ops"], each["ms"]) for each in told["more"]] == [
        ("memset", 8.0, 2.0),
        ("copy", -1.0, -0.5),
        ("gemm", 0.0, 0.25),
    ]


def test_processes_are_summed_up_by_their_medians() -> None:
    runs = [
        measure.compared(REPORT, PLAIN, {"before_ms": [before] * 3, "after_ms": {"graph": [2.0] * 3}}) | AGAIN
        for before in (6.0, 8.0, 14.0)
    ]
    told = measure.results({"bert_train": runs, "never_ran": []})
    assert list(told) == ["bert_train"]
    assert told["bert_train"]["summary"]["got_ratio"] == {"median": 4.0, "least": 3.0, "most": 7.0}
    assert told["bert_train"]["summary"]["error_gain_ms"]["median"] == 0.0
    assert told["bert_train"]["summary"]["again_error_gain_ms"]["median"] == 0.25
    assert len(told["bert_train"]["runs"]) == 3


def test_written_and_mended_take_turns_and_a_call_is_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    turns = _module("turns")
    monkeypatch.setattr(turns, "_WARM_S", 0.0)
    monkeypatch.setattr(turns, "_TURN_S", 0.06)
    order: list[str] = []

    def step(name: str, for_s: float) -> None:
        order.append(name)
        time.sleep(for_s)

    ways = {"graph": lambda: step("graph", 0.04), "remove-syncs": lambda: step("later", 0.07)}
    told = turns.in_turns(lambda: step("written", 0.08), ways, 4, 0.0, lambda: None)
    assert order == ["written"] * 2 + ["graph"] * 2 + ["later"] * 2 + ["written", "graph", "graph", "later"] * 3
    assert [len(each) for each in (told["before_ms"], *told["after_ms"].values())] == [3, 3, 3]
    assert min(told["before_ms"]) >= 20
    assert min(told["after_ms"]["graph"]) >= 10


def test_enough_short_steps_are_taken_to_end_a_recording() -> None:
    pytest.importorskip("torch")
    turns = _module("turns")
    calls: list[None] = []
    turns.take(lambda: calls.append(None), 32)
    assert 32 * (len(calls) - 1) < turns.MOST_STEPS <= 32 * len(calls)


_SAME = f"""
import sys
sys.path.insert(0, {str(_FOLDER)!r})
import torch
import programs

def made(name):
    torch.manual_seed(0)
    return programs.PROGRAMS[name][0]()

written, mended = made("bert_train")[0], made("bert_train")[1]["graph"]
losses = [written() for _ in range(6)]
assert len(set(losses)) == 6, losses
assert [mended() for _ in range(3)] == losses[3:], "three steps come before the capture"
written, mends = made("vit_infer")
assert mends["graph"]() == written()
print("the same")
"""


@pytest.mark.slow
def test_a_captured_step_computes_what_the_written_one_does(tmp_path: Path) -> None:
    """On the virtual GPU: without masks, a captured training step has the losses of the step as written."""
    script = tmp_path / "same.py"
    script.write_text(_SAME)
    command = [sys.executable, "-m", "unstall.virtual", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == "the same\n", done.stderr
