"""A command line that runs in this process, and a trace to give it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.command import EXAMPLES, Cli, Outcome
from report.rendered import as_json
from report.sample import TYPICAL

from unstall.cli import main


@pytest.fixture
def unstall(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run `unstall ARGS…`."""

    def run(*args: str | Path) -> Outcome:
        try:
            code = main([str(arg) for arg in args])
        except SystemExit as leaving:  # argparse's own way out
            code = leaving.code if isinstance(leaving.code, int) else 1
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def trace() -> Path:
    """A small real run: two CUDA graph launches of 2,000 kernels each."""
    return EXAMPLES / "course_slow_graph.json.gz"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A saved result."""
    path = tmp_path / "result.json"
    path.write_text(as_json(TYPICAL), "utf-8")
    return path
