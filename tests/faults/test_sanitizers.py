"""The C extensions, built with the address and undefined-behaviour sanitizers, pass their tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -O1 -g -fno-omit-frame-pointer"
_LIBRARIES = ("libasan.so", "libubsan.so")
_OPTIONS = "detect_leaks=0:handle_segv=0"  # Python keeps memory until it ends; programs of some tests crash on purpose
_ROOMS = (
    "tests/replay",
    "tests/lines",
    "tests/cupti",
    "tests/guest",
    "tests/guarding",
    "tests/blaming",
    "tests/fix/graphed",
)
_PRELOADS = "what_the_system_denies"  # its programs preload a library of their own, and the sanitizer must come first
_LIMIT_S = 900

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
        env=os.environ | {"CFLAGS": _FLAGS, "LDFLAGS": _FLAGS, "CC": "gcc"},
        capture_output=True,
        check=True,
    )
    assert len([*folder.rglob("*.abi3.so")]) >= 8
    return folder / "src"


@pytest.mark.parametrize("room", _ROOMS)
def test_the_extensions_pass_their_tests(package: Path, room: str, tmp_path: Path) -> None:
    paths = [str(package), str(_ROOT / "tests"), str(_ROOT), os.environ.get("PYTHONPATH", "")]
    log = tmp_path / "sanitizer"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "-k", f"not {_PRELOADS}", room],
        cwd=_ROOT,
        env=os.environ
        | {
            "LD_PRELOAD": " ".join(_libraries()),
            "ASAN_OPTIONS": f"{_OPTIONS}:log_path={log}",
            "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={log}",
            "PYTHONPATH": os.pathsep.join(paths),
        },
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    said = "\n".join(path.read_text("utf-8", "replace")[:4000] for path in tmp_path.glob("sanitizer*"))
    assert said == ""
    assert ran.returncode == 0, ran.stdout[-4000:]
