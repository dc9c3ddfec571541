"""Whole reports of recorded runs, as a reader at 80 columns sees them: read and believed before they were frozen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unstall.diagnose.explain import explain
from unstall.report.formats import render

ROOT = Path(__file__).parents[1]
TRACES = (
    *("all_reduce_after", "bert_amp", "bert_amp.no_stacks", "compiled", "course_slow_graph", "decode_graph"),
    *("decode_item", "downloads", "empty_cache", "first_steps", "gpt2_decode_item", "growing", "loader_in_process"),
    *("model_parallel", "offload_ahead", "offload_hand_in_hand", "offload_sequential", "pin_each_step"),
    *("python_bound", "queue_full", "resnet50_pageable_item_nan", "tiny_kernels", "train_item.no_device"),
    *("train_three_waits", "unmarked_inference", "unmarked_training", "uploads", "wait_behind", "waits"),
)


@pytest.mark.parametrize("name", TRACES)
def test_the_report_of_a_recorded_run(
    name: str, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    report = explain(Path("examples", "traces", f"{name}.json.gz"))
    golden(f"reports/{name}.txt", render(report, "text"))
