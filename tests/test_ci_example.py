"""The workflow in `examples/ci/`, as it is written, on this machine without a GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
import yaml

from unstall.virtual.shim.build import build
from unstall.virtual.shim.installed import installed_torch

EXAMPLE = Path(__file__).parents[1] / "examples" / "ci"
_LONGEST_S = 60
slow = pytest.mark.slow


def _steps() -> list[dict[str, Any]]:
    workflow = yaml.safe_load((EXAMPLE / "workflow.yml").read_text())
    (job,) = workflow["jobs"].values()
    steps: list[dict[str, Any]] = job["steps"]
    return steps


def _run(folder: Path) -> tuple[list[int], str]:
    """Runs the workflow's commands, except those that install, as a runner does: after a failure, only steps that
    always run. Returns their exit codes and the output. They must take less than a minute together."""
    build(installed_torch())  # as the workflow's cache has it
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(folder / "step_summary"),
    }
    codes: list[int] = []
    said = ""
    left_s = float(_LONGEST_S)
    for step in _steps():
        if "run" not in step or step["name"] == "install" or (any(codes) and step.get("if") != "always()"):
            continue
        began = os.times().elapsed
        done = subprocess.run(
            ["bash", "-e", "-c", step["run"]],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=left_s,
        )
        left_s -= os.times().elapsed - began
        codes.append(done.returncode)
        said += done.stdout + done.stderr
    return codes, said


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The example as a repository of its own."""
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE, folder)
    (folder / ".git").mkdir()
    return folder


def test_what_it_uploads_is_what_it_writes() -> None:
    command = next(step["run"] for step in _steps() if step.get("name") == "check")
    uploads = [step["with"] for step in _steps() if "upload" in step.get("uses", "")]
    written = {uploads[0]["sarif_file"], uploads[1]["path"].split()[0]}
    assert written == {"unstall.sarif", "unstall.xml"}
    assert all(f"-o {name}" in command for name in written)


@slow
def test_the_workflow_passes_as_it_is_written_in_less_than_a_minute(project: Path) -> None:
    codes, said = _run(project)
    assert codes == [0, 0], said
    assert "All 4 budgets hold." in said
    assert "::error" not in said
    assert (project / "step_summary").read_text().startswith("### unstall check\n\n**All 4 budgets hold.**")
    assert json.loads((project / "unstall.sarif").read_text())["runs"][0]["results"] == []


@slow
def test_an_item_that_comes_back_fails_it_with_its_line(project: Path) -> None:
    script = project / "train.py"
    source = script.read_text()
    kept = "losses.append(loss.detach())"
    line = source[: source.index(kept)].count("\n") + 1
    script.write_text(source.replace(kept, "losses.append(torch.tensor(loss.item()))"))
    codes, said = _run(project)
    assert codes == [1, 0], said
    assert f"::error file=train.py,line={line},title=unstall check%3A waits per step%3A 1%2C the budget is 0::" in said
    (found,) = json.loads((project / "unstall.sarif").read_text())["runs"][0]["results"]
    assert found["locations"][0]["physicalLocation"]["region"] == {"startLine": line}
    assert f"`train.py:{line} in main` · `aten::item`" in (project / "step_summary").read_text()
    assert len(Xml.parse(project / "unstall.xml").findall(".//failure")) == 1
