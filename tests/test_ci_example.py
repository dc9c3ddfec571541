"""The workflow in `examples/ci/`, as it is written, on this machine without a GPU."""

from __future__ import annotations

import json
import os
import re
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
_HAS_FILE = re.compile(r"hashFiles\('([^']+)'\) != ''")
slow = pytest.mark.slow


def _steps() -> list[dict[str, Any]]:
    workflow = yaml.safe_load((EXAMPLE / "workflow.yml").read_text())
    (job,) = workflow["jobs"].values()
    steps: list[dict[str, Any]] = job["steps"]
    return steps


def _is_due(step: dict[str, Any], folder: Path, *, failed: bool) -> bool:
    """Whether a runner would take this step: its condition is "always()", maybe with files that must be there."""
    always, *files = step.get("if", "").split(" && ")
    assert always in ("", "always()")
    names = [_HAS_FILE.fullmatch(each) for each in files]
    return (always != "" or not failed) and all(name and (folder / name[1]).exists() for name in names)


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
        if "run" not in step or step["name"] == "install" or not _is_due(step, folder, failed=any(codes)):
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


def test_after_wrong_usage_only_what_was_written_is_taken_further(tmp_path: Path) -> None:
    due = [step.get("name") or step["uses"] for step in _steps() if _is_due(step, tmp_path, failed=True)]
    assert due == ["actions/upload-artifact@v4"]
    (tmp_path / "unstall.sarif").touch()
    (tmp_path / "summary.md").touch()
    assert len([step for step in _steps() if _is_due(step, tmp_path, failed=True)]) == 3


def test_what_is_compiled_is_kept_by_the_versions_that_it_is_for() -> None:
    steps = _steps()
    (key,) = (step["with"]["key"] for step in steps if "cache" in step.get("uses", ""))
    install = next(step for step in steps if step.get("name") == "install")
    assert "${{ steps.install.outputs.unstall }}" in key
    assert (install["id"], "unstall --version" in install["run"]) == ("install", True)
    (python,) = (step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", ""))
    assert f"python-{python}" in key


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
