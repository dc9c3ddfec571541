"""Children of a program that `arming_children(optional=True)` arms: all that cannot be armed run as plain Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launching.launched import Done, write_program

from unstall.launching.children import arming_children

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are launched on Linux alone")

TELLS = "import sys; print([name for name in sys.modules if name.startswith('unstall')])"


def _other_pythons() -> list[str]:
    """One of each other version that we find."""
    found = [shutil.which(f"python{version}") for version in ("2.7", "3.6", "3.10", "3.12", "3.13")]
    pyenv = Path.home() / ".pyenv/versions"
    found += [str(path) for version in ("2.7", "3.6", "3.10", "3.13") for path in pyenv.glob(f"{version}.*/bin/python")]
    of_version: dict[str, str] = {}
    for path in filter(None, found):
        told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        version = (told.stdout + told.stderr).removeprefix("Python ").rpartition(".")[0]  # 2.7 tells it on stderr
        if told.returncode == 0 and version != ".".join(map(str, sys.version_info[:2])):
            of_version[version] = path
    return list(of_version.values())


def child(command: list[str], folder: Path, module: str = "json", path: Path | None = None) -> Done:
    """Runs a child that is to be armed by a module, which has no `arm()` if it is json."""
    before = {} if path is None else {"PYTHONPATH": str(path)}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        for name, value in before.items():
            patch.setenv(name, value)
        with arming_children(module, {}, optional=True):
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with a sitecustomize of the user's."""
    return write_program(tmp_path, "import sys; sys.ours = 1", "site/sitecustomize.py").parent


def test_a_child_of_another_version_runs_as_it_is(tmp_path: Path, site: Path) -> None:
    pythons = _other_pythons()
    if not pythons:
        pytest.skip("there is no Python of another version")
    tells = "import sys; print(sys.ours, [name for name in sys.modules if 'unstall' in name])"
    done = {python: child([python, "-c", tells], tmp_path, "unstall.recording.child", site) for python in pythons}
    assert {(each.code, each.err) for each in done.values()} == {(0, "")}
    assert all("unstall" not in each.out for each in done.values()), done


def test_a_child_that_cannot_be_armed_has_a_sitecustomize_and_an_unstall_of_its_own(tmp_path: Path, site: Path) -> None:
    write_program(tmp_path, "theirs = 1", "unstall.py")
    tells = "import sys, unstall; print(sys.ours, unstall.theirs)"
    assert child([sys.executable, "-c", tells], tmp_path, path=site) == Done(0, "1 1\n", "")


def test_a_child_whose_arming_fails_late_runs_as_it_is(tmp_path: Path, site: Path) -> None:
    """As in another environment, where a module that ours needs is missing."""
    write_program(tmp_path, "raise RuntimeError('not this one')", "site/resource.py")
    done = child([sys.executable, "-c", TELLS], tmp_path, "unstall.blaming.hangs.arming", site)
    assert done == Done(0, "[]\n", "")


def test_a_child_in_a_folder_that_was_deleted_says_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    code = f"import os, subprocess, sys; os.rmdir(os.getcwd()); subprocess.run([sys.executable, '-c', {TELLS!r}])"
    done = child([sys.executable, "-c", code], folder, "unstall.blaming.hangs.arming")
    assert done.err == ""
    assert "'unstall.blaming.hangs.arming'" in done.out
