"""`unstall audit`: what it refuses, and whole audits on the virtual GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli.command import Cli, Outcome

ROOT = Path(__file__).parents[2]
SCHEDULERS = ROOT / "examples" / "audit" / "diffusers_schedulers.py"
PIPELINES = ROOT / "examples" / "audit" / "diffusers_pipelines.py"
slow = pytest.mark.slow

_STEPS = """
import torch

x = torch.ones(100, device="cuda")


def quiet():
    return x + 1


def reads():
    return (x + 1).sum().item()


def fails():
    raise ValueError("no such thing")


def hangs():
    import time

    time.sleep(1000)


def entries():
    def prepare():
        y = x * 2
        return lambda: y.tolist()

    return {"listed": prepare}
"""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "say what to audit"),
        (["missing.py"], "missing.py: there is no such script"),
        (["--timeout", "0", "train.py"], "--timeout: nothing runs in 0 s"),
        (["--gpu", "h200:99", "train.py"], "from 1 to 16"),
        (["--entries", "missing.txt"], "missing.txt: cannot be read"),
    ],
)
def test_what_cannot_be_audited_is_an_error_of_usage(
    unstall: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    outcome = unstall("audit", *args)
    assert (outcome.code, said in outcome.err) == (2, True)


def _audit(folder: Path, *args: str | Path) -> Outcome:
    command = [sys.executable, "-m", "unstall", "audit", *map(str, args)]
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return Outcome(done.returncode, done.stdout, done.stderr)


def _rows(outcome: Outcome) -> dict[str, dict[str, Any]]:
    return {row["entry"]: row for row in json.loads(outcome.out)["rows"]}


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """Entries of all kinds, and the folder of their log files."""
    folder = tmp_path_factory.mktemp("audited")
    (folder / "steps.py").write_text(_STEPS)
    (folder / "train.py").write_text(
        "import sys, torch, unstall\n"
        "for _ in range(int(sys.argv[1])):\n"
        "    print(torch.ones(9, device='cuda').sum().item())\n"
        "    unstall.step()\n"
    )
    (folder / "list.txt").write_text("train.py 6\nsteps.py:quiet\nsteps.py:reads\n")
    (folder / "host.py").write_text("def call():\n    return 1\n")
    entries = ("steps.py:fails", "host.py:call", "steps.py:*")
    return folder, _audit(folder, "--json", "--timeout", "50", "--entries", "list.txt", *entries)


@slow
def test_the_exit_code_is_1_if_an_entry_failed(audited: tuple[Path, Outcome]) -> None:
    assert audited[1].code == 1


@slow
def test_a_script_a_function_and_what_a_file_offers_are_entries(audited: tuple[Path, Outcome]) -> None:
    rows = _rows(audited[1])
    waits = {
        name: [(each["where"]["line"], each["per_step"]) for each in row["figures"]["findings"] if each["is_wait"]]
        for name, row in rows.items()
        if row["figures"]
    }
    assert waits == {
        "steps.py:quiet": [],
        "steps.py:reads": [(12, 1.0)],
        "steps.py:listed": [(28, 1.0)],
        "train.py 6": [(3, 1.0)],
    }


@slow
def test_those_that_fail_name_their_reason_and_keep_their_log(audited: tuple[Path, Outcome]) -> None:
    folder, outcome = audited
    failures = {name: row["failure"] for name, row in _rows(outcome).items() if row["failure"]}
    assert {name: failure["reason"] for name, failure in failures.items()} == {
        "steps.py:fails": "ValueError: no such thing",
        "host.py:call": "nothing ran on the virtual GPU: the program did not import torch, or replaced itself by exec",
    }
    assert "Traceback" in Path(failures["steps.py:fails"]["log"]).read_text()
    assert sorted(path.name for path in folder.glob("unstall-audit-*/*")) == ["host.py-call", "steps.py-fails"]


@slow
def test_progress_is_told_entry_by_entry(audited: tuple[Path, Outcome]) -> None:
    lines = audited[1].err.splitlines()
    assert [line.partition(":")[2].split(":")[0].strip() for line in lines] == [f"{i} of 6" for i in range(1, 7)]


@slow
def test_an_entry_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(_STEPS)
    began = time.monotonic()
    outcome = _audit(tmp_path, "--json", "--timeout", "3", "steps.py:hangs")
    assert time.monotonic() - began < 40
    assert _rows(outcome)["steps.py:hangs"]["failure"]["reason"] == "it took longer than 3 s, the limit"


@slow
def test_ctrl_c_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        _STEPS.replace("time.sleep(1000)", "print('sleeps', flush=True); time.sleep(1000)")
    )
    command = [sys.executable, "-m", "unstall", "audit", "steps.py:hangs"]
    audit = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE, text=True
    )
    log = f"{tmp_path}/unstall-audit-*/*/log.txt"
    while not any("sleeps" in path.read_text() for path in tmp_path.glob(log.removeprefix(f"{tmp_path}/"))):
        assert audit.poll() is None
        time.sleep(0.1)
    audit.send_signal(signal.SIGINT)
    assert "interrupted" in audit.communicate(timeout=30)[1]
    assert audit.returncode == 128 + signal.SIGINT
    assert [path.name for path in tmp_path.iterdir()] == ["steps.py"]
    assert "steps.py:hangs" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


@slow
def test_what_is_kept_can_be_explained(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(_STEPS)
    assert _audit(tmp_path, "-q", "--steps", "2", "--keep", "kept", "steps.py:reads").code == 0
    kept = tmp_path / "kept" / "steps.py-reads"
    assert sorted(path.name for path in kept.iterdir()) == ["log.txt", "report.json", "run.trace.json.gz"]
    assert json.loads((kept / "report.json").read_text())["steps"]["count"] == 2


@slow
def test_a_scheduler_and_a_pipeline_of_diffusers_wait_at_these_lines(tmp_path: Path) -> None:
    """DDIM compares a timestep on the device with 0 in each of its 10 steps. A pipeline ends by a download."""
    outcome = _audit(tmp_path, "--json", f"{SCHEDULERS}:DDIMScheduler", f"{PIPELINES}:DDIMPipeline")
    assert outcome.code == 0, outcome.err
    scheduler, pipeline = (
        {(each["where"]["function"], each["per_step"]) for each in row["figures"]["findings"] if each["is_wait"]}
        for row in (
            _rows(outcome)[f"{path}:{name}"]
            for path, name in ((SCHEDULERS, "DDIMScheduler"), (PIPELINES, "DDIMPipeline"))
        )
    )
    assert ("DDIMScheduler.step", 10.0) in scheduler
    assert ("DDIMPipeline.__call__", 1.0) in pipeline
