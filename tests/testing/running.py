"""pytest with the plugin, in a process of its own."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType

PROGRAMS = Path(__file__).parent / "programs"
_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@dataclass(frozen=True)
class Ran:
    """A test run: its exit code, what it printed, and the outcome of each test by its id."""

    code: int
    text: str
    outcomes: dict[str, str]

    def told(self, test: str) -> str:
        """Returns what pytest shows of a test that failed."""
        start = self.text.index(f"_ {test} _")
        rest = self.text[start:].partition("\n")[2]
        return re.split(r"^(?:_{3,} .* _{3,}|={3,} .* ={3,})$", rest, maxsplit=1, flags=re.MULTILINE)[0]

    @property
    def section(self) -> list[str]:
        """The plugin's lines of the summary, its title first; none if it says nothing."""
        match = re.search(r"^=+ (unstall.*?) =+\n(.*?)(?=^=+ )", self.text, re.MULTILINE | re.DOTALL)
        return [match[1], *match[2].splitlines()] if match else []


def run_tests(
    folder: Path,
    *options: str,
    python: tuple[str, ...] = (),
    strict: bool = True,
    plain: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Ran:
    """Runs pytest in a folder, at 80 columns and without a network. `strict`: warnings are errors. `plain`: with these
    options alone.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    variables |= {"COLUMNS": "80", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment}
    if "unstall" not in entry_points(group="pytest11").names:  # a checkout that is only on sys.path
        paths = (str(_installed()), variables.get("PYTHONPATH", ""))
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    usual = ["-rA", "-v", "-W", "error" if strict else "default", "--strict-markers", "-p", "no:cacheprovider"]
    command = [
        *(sys.executable, *python, "-m", "pytest"),
        *([] if plain else usual),
        *options,
    ]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600, check=False)
    found = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+::.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return Ran(done.returncode, done.stdout + done.stderr, {test: outcome for outcome, test in found})


@functools.cache
def _installed() -> Path:
    """Returns a folder that has what an installation of unstall tells pytest: where its plugin is."""
    folder = tempfile.TemporaryDirectory(prefix="unstall-entry-points-")
    atexit.register(folder.cleanup)
    points = tomllib.loads(_PYPROJECT.read_text("utf-8"))["project"]["entry-points"]["pytest11"]
    told = Path(folder.name, "unstall-0.dist-info")
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: unstall\nVersion: 0\n")
    (told / "entry_points.txt").write_text(
        "[pytest11]\n" + "".join(f"{name} = {module}\n" for name, module in points.items())
    )
    return Path(folder.name)


def copied(program: str, folder: Path) -> Path:
    """Copies a program to a folder as test_PROGRAM.py, which pytest collects."""
    return Path(shutil.copy(PROGRAMS / f"{program}.py", folder / f"test_{Path(program).name}.py"))


def line_of(program: str, comment: str) -> int:
    """Returns the number of the line with a comment."""
    lines = (PROGRAMS / f"{program}.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {comment}")]
    return number
