"""`unstall doctor`: what is here, found without importing anything that might break."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.command import Cli

from unstall.cli.doctor import Check, cupti_recorder, source_lines, torch_recorder


@pytest.fixture
def small_torch(tmp_path: Path) -> Path:
    """A folder with a torch without CUDA that is imported at once."""
    (tmp_path / "torch-9.0.dist-info").mkdir()
    (tmp_path / "torch-9.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.0\n")
    (tmp_path / "torch.py").write_text(
        "from types import SimpleNamespace as Space\n"
        "__version__, version, cuda = '9.0+cpu', Space(cuda=None), Space(is_available=lambda: False)\n"
    )
    return tmp_path


def test_it_names_what_is_here_and_what_the_rest_would_enable(
    unstall: Cli, small_torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(small_torch))
    outcome = unstall("doctor")
    assert outcome.code == 0
    assert f"python           {platform.python_version()}" in outcome.out
    for line in outcome.out.splitlines():
        assert line.startswith(("ok  ", "--  ", "    "))


def test_json_has_the_same_checks(unstall: Cli) -> None:
    document = json.loads(unstall("doctor", "--json").out)
    assert document["schema"] == "unstall.doctor/1"
    names = [check["name"] for check in document["checks"]]
    assert names == [
        *(
            "unstall",
            "python",
            "numpy",
            "msgspec",
            "rich",
            "C engine",
            "C in graphed",
            "torch",
            "torch built for",
            "GPU",
        ),
        *("cupti recorder", "torch recorder", "source lines", "virtual GPU"),
    ]
    assert all(set(check) - {"instead", "notes"} == {"name", "found", "enables"} for check in document["checks"])


def test_a_torch_without_cuda_is_said_to_be_for_the_cpu(small_torch: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(small_torch)}
    command = [sys.executable, "-m", "unstall", "doctor"]
    shown = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    assert "ok  torch            9.0+cpu\n" in shown
    assert "--  torch built for  CPU only\n" in shown
    assert "--  torch recorder   this torch was built without Kineto\n" in shown


def _cupti(**otherwise: object) -> Check:
    """CUPTI's check where all is well, but for what is given."""
    here: dict[str, Any] = {
        "is_built": True,
        "library": Path("/usr/local/cuda/lib64/libcupti.so.13"),
        "trouble": None,
        "driver": "580.65.06",
        "parameters": "",
        "environment": {},
    }
    return cupti_recorder(**{**here, **otherwise})


def test_cupti_records_where_nothing_is_missing() -> None:
    check = _cupti()
    assert check["found"] == "/usr/local/cuda/lib64/libcupti.so.13, driver 580.65.06"
    assert check["notes"] == []


def test_all_that_keeps_cupti_from_recording_is_said_at_once() -> None:
    check = _cupti(is_built=False, library=None, driver=None)
    assert check["found"] is None
    assert check["instead"].split("; ") == [
        "its C extension is not built, which takes a C compiler when unstall is installed",
        "no libcupti was found: it comes with torch for CUDA, and the CUDA toolkit",
        "there is no NVIDIA driver",
    ]


def test_a_search_that_fails_is_why_there_is_no_cupti() -> None:
    assert (
        _cupti(library=None, trouble="looking for libcupti failed (no)")["instead"]
        == "looking for libcupti failed (no)"
    )


def test_counters_kept_for_administrators_do_not_keep_cupti_from_recording() -> None:
    check = _cupti(parameters="RmLogonRC: 1\nRmProfilingAdminOnly: 1\n")
    assert check["found"]
    assert "RmProfilingAdminOnly: 1" in check["notes"][0]
    assert _cupti(parameters="RmProfilingAdminOnly: 0\n")["notes"] == []


def test_another_profiler_in_the_program_leaves_cupti_to_neither_recorder() -> None:
    nsys = {"CUDA_INJECTION64_PATH": "/opt/nsys/libToolsInjection64.so"}
    seen = {"version": "2.13.0", "built_for": "CUDA 13.0", "gpu": "NVIDIA H200", "kineto": "yes"}
    for check in (_cupti(environment=nsys), torch_recorder("2.13.0", seen, nsys)):
        assert check["found"] is None
        assert "/opt/nsys/libToolsInjection64.so" in check["instead"]


def test_nvtx_taken_by_another_tool_is_a_note_and_by_cupti_is_none() -> None:
    taken = _cupti(environment={"NVTX_INJECTION64_PATH": "/opt/nsys/libToolsInjection64.so"})
    assert taken["found"]
    assert "/opt/nsys/libToolsInjection64.so" in taken["notes"][0]
    assert _cupti(environment={"NVTX_INJECTION64_PATH": "/usr/lib/libcupti.so"})["notes"] == []


@pytest.mark.parametrize(
    ("torch", "lacking", "why"),
    [
        (None, ("version", "kineto", "built_for", "gpu"), "torch is not installed"),
        ("2.13.0", ("version", "kineto", "built_for", "gpu"), "torch cannot be imported"),
        ("2.13.0", ("kineto",), "this torch was built without Kineto"),
        ("2.13.0", ("built_for", "gpu"), "this torch is for CPUs only"),
        ("2.13.0", ("gpu",), "torch sees no GPU"),
    ],
)
def test_the_first_thing_that_torch_lacks_is_why_it_cannot_record(
    torch: str | None, lacking: tuple[str, ...], why: str
) -> None:
    whole = {"version": "2.13.0", "built_for": "CUDA 13.0", "gpu": "NVIDIA H200", "kineto": "yes"}
    check = torch_recorder(torch, {key: text for key, text in whole.items() if key not in lacking}, {})
    assert (check["found"], check["instead"]) == (None, why)
    assert torch_recorder("2.13.0", whole, {})["found"] == "torch.profiler of 2.13.0"


def test_lines_are_told_in_the_cheapest_way_there_is() -> None:
    best = source_lines((3, 12), stacks=None, is_built=True)
    assert (best["found"], best["notes"]) == (
        "read at each call to CUDA; with the torch recorder by sys.monitoring, in C",
        [],
    )
    usual = source_lines((3, 11), stacks=None, is_built=True)
    assert usual["found"] == "read at each call to CUDA; with the torch recorder by its own stacks"
    worst = source_lines((3, 11), stacks="the C extension is not built", is_built=False)
    assert worst["found"] == "by sys.settrace, in Python"
    assert len(worst["notes"]) == 3
    assert worst["notes"][0].endswith(": the C extension is not built")


def test_a_recorder_that_cannot_be_imported_leaves_the_rest_of_the_checks(tmp_path: Path) -> None:
    """Given a package beside this one in which a recorder is broken."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['unstall.cupti.recorder'] = sys.modules['torch'] = None\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "unstall", "doctor"]
    shown = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    said = " ".join(shown.split())  # however wide the terminal is
    assert "looking for libcupti failed (import of unstall.cupti.recorder halted; None in sys.modules)" in said
    assert "source lines " in shown
