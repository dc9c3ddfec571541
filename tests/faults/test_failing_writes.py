"""Each write, rename, link, truncation and sync below a folder fails in turn: nothing is lost, and nothing hangs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("failing_writes.c")
_TRACE = Path(__file__).parents[2] / "examples" / "traces" / "decode_item.json.gz"
_LIMIT_S = 60
_PROGRAM = """
import torch
x = torch.randn(64, 64, device="cuda")
for _ in range(5):
    (x @ x).sum().item()
print("the program's last line")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("gcc: not installed")
    made = tmp_path_factory.mktemp("failing") / "failing_writes.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", made, _SOURCE, "-ldl"], check=True)
    return made


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str
    files: list[str]


def ends(library: Path, folder: Path, words: list[str], at: int, how: str, *, all_later: bool = False) -> Ended:
    """Runs unstall in a folder. The write number `at` below it fails as `how` says, and so may all later ones."""
    folder.mkdir()
    (folder / "prog.py").write_text(_PROGRAM)
    failing = {"LD_PRELOAD": str(library), "FAIL_AT": str(at), "FAIL_HOW": how, "FAIL_BELOW": str(folder)}
    ran = subprocess.run(
        [sys.executable, "-m", "unstall", *words],
        cwd=folder,
        env=os.environ | failing | {"TMPDIR": str(folder)} | ({"FAIL_ALL": "1"} if all_later else {}),
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert "Traceback" not in ran.stderr
    return Ended(ran.returncode, ran.stdout, ran.stderr, [path.name for path in folder.rglob("*") if path.is_file()])


@pytest.mark.parametrize("how", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("output", ["out.html", "out.json"])
def test_a_report_is_written_whole_or_not_at_all(library: Path, tmp_path: Path, output: str, how: str) -> None:
    for at in count(1):
        ended = ends(library, tmp_path / str(at), ["explain", str(_TRACE), "-q", "-o", output], at, how)
        if ended.code == 0:
            break
        assert ended.code == 2
        assert f"{output}: cannot be written" in ended.err
        assert ended.files == ["prog.py"]
    assert at > 1
    assert sorted(ended.files) == sorted(["prog.py", output])


_SLOW = [
    pytest.param(at, how, all_later, marks=pytest.mark.slow)
    for at in range(1, 6)
    for how in ("ENOSPC", "EIO")
    for all_later in (False, True)
    if (at, how, all_later) != (3, "ENOSPC", True)
]


@pytest.mark.parametrize(("at", "how", "all_later"), [(3, "ENOSPC", True), *_SLOW])
def test_a_virtual_run_is_explained_whatever_cannot_be_written(
    library: Path, tmp_path: Path, at: int, how: str, all_later: bool
) -> None:
    folder = tmp_path / "run"
    ended = ends(library, folder, ["run", "--gpu", "t4", "prog.py"], at, how, all_later=all_later)
    assert ended.out.startswith("the program's last line\n")
    assert "all of it: unstall explain" in ended.err
    if ended.code == 0:
        assert "prog.trace.json.gz" in ended.files
    else:
        assert ended.code == 3
        assert "unstall: " in ended.err
