"""`unstall draw`: a program on the virtual GPU, drawn as a graph of what needs what."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from cli.command import EXAMPLES, Cli

_PROGRAM = """
import torch
a, b = (torch.randn(512, 512, device="cuda") for _ in range(2))
for _ in range(5):
    left = a @ a
    right = b @ b
    both = left + right
    both.sum().item()
"""


def test_branches_that_need_nothing_of_each_other_are_beside_each_other(
    unstall: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(_PROGRAM)
    assert unstall("run", "--gpu", "h200", "--after", "0", "train.py").code == 0
    data = msgspec.json.decode(unstall("draw", "--json", "-o", "graph.html", "-o", "graph.svg").out)

    assert data["knows_data"]
    lines = {number: node["where"].partition(" ")[0] for number, node in enumerate(data["nodes"])}
    edges = {(lines[e["earlier"]], lines[e["later"]], e["kind"], e["bytes"]) for e in data["edges"]}
    assert ("train.py:5", "train.py:7", "data", 512 * 512 * 4) in edges
    assert ("train.py:6", "train.py:7", "data", 512 * 512 * 4) in edges
    assert not any({one, two} == {"train.py:5", "train.py:6"} for one, two, _, _ in edges)
    assert data["span_ns"] < data["work_ns"]
    assert 'class="hot"' in (tmp_path / "graph.html").read_text()
    assert (tmp_path / "graph.svg").read_text().startswith("<svg xmlns=")


def test_a_trace_without_accesses_says_that_data_is_not_known(unstall: Cli) -> None:
    said = unstall("draw", EXAMPLES / "two_streams.json.gz", "--step", "2")

    assert said.code == 0
    assert "on 2 streams" in said.out
    assert "is not known which operator needs" in said.out


def test_a_step_that_is_not_there_is_refused(unstall: Cli) -> None:
    assert "the run has the steps 1 to 3" in unstall("draw", EXAMPLES / "two_streams.json.gz", "--step", "9").err
