"""The C extensions and the virtual GPU's shim pass their tests with the address and undefined-behaviour sanitizers.

The sanitizers see what our code does, and torch's only where it allocates, frees and copies. Memory of the virtual
device is mapped by the shim, and has no borders that they know of.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from processes import succeeded

_ROOT = Path(__file__).parents[2]
_FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1"
_LIBRARIES = ("libasan.so", "libubsan.so")
_OPTIONS = "detect_leaks=0:handle_segv=0"  # Python keeps memory until it ends; programs of some tests crash on purpose
_ROOMS = (
    "tests/test_rows.py",
    "tests/test_ancestry.py",
    "tests/test_grouping.py",
    "tests/read",
    "tests/replay",
    "tests/lines",
    "tests/cupti",
    "tests/guest",
    "tests/guarding",
    "tests/blaming",
    "tests/fix/graphed",
)
_LEFT_OUT = " and ".join(
    [
        "not what_the_system_denies",  # its programs preload a library of their own, and the sanitizer must come first
        "not test_bombs",  # these two measure memory, of which the sanitizer itself takes more
        "not test_one_event_of_a_gibibyte",
    ]
)
_LIMIT_S = 900
_BUILD = """
from unstall.virtual.shim.build import compiled
from unstall.virtual.shim.installed import installed_torch
compiled(installed_torch())
"""
_WRONG = """
#include <stdlib.h>
static void *free_of(int size) { void *made = malloc(size); free(made); return made; }
"""

pytestmark = pytest.mark.slow


def _libraries() -> list[str]:
    if shutil.which("gcc") is None:
        pytest.skip("gcc: not installed")
    found = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in _LIBRARIES
    ]
    if not all(map(os.path.isabs, found)):
        pytest.skip("gcc: has no sanitizers")
    return found


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's source, and its extensions with sanitizers."""
    _libraries()
    folder = tmp_path_factory.mktemp("sanitized")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, folder)
    shutil.copytree(_ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    subprocess.run(
        [sys.executable, "-c", "from setuptools import setup; setup()", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env=os.environ | {"CFLAGS": f"{_FLAGS} -O1", "LDFLAGS": _FLAGS, "CC": "gcc"},
        capture_output=True,
        check=True,
    )
    assert len([*folder.rglob("*.abi3.so")]) >= 8
    return folder / "src"


@pytest.fixture(scope="module")
def shims() -> Path:
    """The cache of a virtual GPU with sanitizers. It is kept, as it takes minutes to compile."""
    _libraries()
    building = pytest.importorskip("unstall.virtual.shim.build")
    if (why := building.why_not()) is not None:
        pytest.skip(why)
    cache = building.cache_folder() / f"sanitized-{zlib.crc32(_FLAGS.encode())}"
    succeeded(
        [sys.executable, "-c", _BUILD],
        env=os.environ | {"CXX": f"g++ {_FLAGS}", "XDG_CACHE_HOME": str(cache)},
        timeout=3600,
    )
    return Path(cache)


def _said(log: Path) -> str:
    """What the sanitizers said."""
    return "\n".join(path.read_text("utf-8", "replace")[:4000] for path in log.parent.glob(f"{log.name}*"))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that makes libubsan write its reports to files."""
    _libraries()
    made = tmp_path_factory.mktemp("reports") / "ubsan_reports.so"
    succeeded(["gcc", "-shared", "-fPIC", "-o", str(made), str(Path(__file__).with_name("ubsan_reports.c")), "-ldl"])
    return made


def _environment(reports: Path, log: Path) -> dict[str, str]:
    return {
        **os.environ,
        "LD_PRELOAD": " ".join([*_libraries(), str(reports)]),
        "ASAN_OPTIONS": f"{_OPTIONS}:log_path={log}",
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
        "SANITIZER_LOG": str(log),
    }


def _pass(room: str, environment: dict[str, str], log: Path, *, but: str = "", which: str = "not slow") -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "-m", which, "-k", but, room],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert _said(log) == ""
    assert ran.returncode == 0, ran.stdout[-4000:]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("volatile int most = 0x7fffffff; return most + 1", "signed integer overflow"),
        ("return *(int *)free_of(4)", "use-after-free"),
    ],
)
def test_what_is_wrong_is_seen(reports: Path, tmp_path: Path, wrong: str, named: str) -> None:
    source, library, log = (tmp_path / name for name in ("wrong.c", "wrong.so", "sanitizer"))
    source.write_text(f"{_WRONG}int wrong(void) {{ {wrong}; }}\n")
    succeeded(["gcc", *_FLAGS.split(), "-shared", "-fPIC", "-o", str(library), str(source)])
    program = f"import ctypes; ctypes.CDLL({str(library)!r}).wrong()"
    assert subprocess.run(
        [sys.executable, "-c", program], env=_environment(reports, log), capture_output=True
    ).returncode
    assert named in _said(log)


@pytest.mark.parametrize("room", _ROOMS)
def test_the_extensions_pass_their_tests(package: Path, reports: Path, room: str, tmp_path: Path) -> None:
    log = tmp_path / "sanitizer"
    paths = [str(package), str(_ROOT / "tests"), str(_ROOT), os.environ.get("PYTHONPATH", "")]
    _pass(room, _environment(reports, log) | {"PYTHONPATH": os.pathsep.join(paths)}, log, but=_LEFT_OUT)


@pytest.mark.parametrize(("room", "which"), [("tests/virtual", "not slow"), ("tests/virtual/shim", "slow")])
def test_the_virtual_gpu_passes_its_tests(shims: Path, reports: Path, room: str, which: str, tmp_path: Path) -> None:
    log = tmp_path / "sanitizer"
    _pass(room, _environment(reports, log) | {"XDG_CACHE_HOME": str(shims)}, log, which=which)
