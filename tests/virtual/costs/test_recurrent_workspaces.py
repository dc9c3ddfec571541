"""The workspaces of recurrent layers, beside those that cuDNN asked for on an H100."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from unstall.virtual.costs.recurrent import Layers, workspace_bytes

MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "recurrent_workspaces_h100.json"
CALLS = json.loads(MEASURED.read_text())["calls"]
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def ratios(calls: list[dict[str, Any]]) -> list[float]:
    found = []
    for call in calls:
        steps, batch, inputs, hidden, layers = call["sizes"]
        positions = steps * batch
        if call["packed"]:
            positions = sum(max(1, steps - at * steps // (2 * batch)) for at in range(batch))
        gates, directions = GATES[call["kind"]], 2 if call["both"] else 1
        of = Layers(steps, batch, inputs, hidden, hidden, gates, layers, directions, positions, call["packed"])
        item_bytes = 4 if call["dtype"] == "float32" else 2
        for backward, measured in zip((False, True), call["bytes"], strict=True):
            found.append(workspace_bytes(of, call["dtype"], item_bytes, backward=backward) / measured)
    return found


@pytest.mark.parametrize("kind", GATES)
def test_workspaces_are_what_cudnn_asked_for(kind: str) -> None:
    found = ratios([call for call in CALLS if call["kind"] == kind])
    assert len(found) > 100
    assert statistics.median(abs(ratio - 1) for ratio in found) < 0.01
    assert all(0.87 < ratio < 1.13 for ratio in found)


def test_a_usual_lstm_has_it_to_the_kilobyte() -> None:
    usual = [
        call
        for call in CALLS
        if call["kind"] == "LSTM" and call["sizes"][3] >= 256 and not call["packed"] and not call["dropout"]
    ]
    assert len(usual) > 10
    assert all(abs(ratio - 1) < 1e-4 for ratio in ratios(usual))


def test_projections_are_not_run_by_the_algorithm_for_small_layers() -> None:
    def bytes_of(hidden: int, results: int) -> int:
        of = Layers(40, 16, 96, hidden, results, 4, 2, 1, 640, False)
        return workspace_bytes(of, "float32", 4, backward=False)

    assert bytes_of(512, 128) == pytest.approx(28_918_144, rel=0.01)  # of an H100, as the next
    assert bytes_of(64, 32) == pytest.approx(18_227_584, rel=0.03)
