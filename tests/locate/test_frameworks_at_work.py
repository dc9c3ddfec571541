"""Small programs of real frameworks on the virtual GPU: their frames are those that the table names."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from unstall.result import Result

_PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "needs", "advice"),
    [
        (
            "trainer",
            ("transformers", "accelerate"),
            {
                "launch-bound": "model.forward = unstall.graphed(model.forward)",
                "sync-bool": "logging_nan_inf_filter=False",
                "sync-item": "logging_steps",
                "pageable-copy": "dataloader_pin_memory=True",
            },
        ),
        ("accelerate_loop", ("accelerate",), {"pageable-copy": "non_blocking=True"}),
        (
            "lightning_fit",
            ("lightning",),
            {"sync-item": "enable_progress_bar=False", "sync-other": "detect_anomaly=False"},
        ),
        ("denoise", ("diffusers",), {"launch-bound": "unstall.graphed"}),
        ("generate", ("transformers",), {"launch-bound": "transformers.StaticCache"}),
        ("lbfgs", ("torch",), {"launch-bound": "put what the closure computes", "sync-item": "waits are torch's own"}),
    ],
)
def test_its_findings_have_the_frameworks_own_advice(
    program: str, needs: tuple[str, ...], advice: dict[str, str], tmp_path: Path
) -> None:
    for package in needs:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    report = tmp_path / "report.json"
    run = (sys.executable, "-m", "unstall", "run", "--gpu", "h200", "-o", str(report), str(_PROGRAMS / f"{program}.py"))
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"COLUMNS": "80"})
    assert report.exists(), done.stderr[-2000:]
    result = msgspec.json.decode(report.read_bytes(), type=Result)
    assert result.steps.count > 1  # a step is one of the framework's, though no optimizer told it
    findings = result.findings
    for rule, text in advice.items():
        told = [finding.fix for finding in findings if finding.rule == rule]
        assert any(text in fix for fix in told), (rule, told)
