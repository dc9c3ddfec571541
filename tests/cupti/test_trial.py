"""A libcupti that crashes as it is called does so in a process of its own, never in the program's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_cupti = pytest.importorskip("unstall.cupti._cupti", reason="its C extension is not built", exc_type=ImportError)

_FUNCTIONS = (
    *("GetResultString", "Unsubscribe", "EnableCallback", "ActivitySetAttribute", "ActivityRegisterTimestampCallback"),
    *("ActivityRegisterCallbacks", "ActivityEnable", "ActivityDisable", "ActivityGetNextRecord", "Subscribe"),
    *("ActivityGetNumDroppedRecords", "ActivityFlushAll", "GetStreamIdEx", "Finalize"),
)
_CRASHES = "#include <signal.h>\nint cuptiGetVersion(unsigned *version) { return raise(SIGSEGV); }\n"
_WORKS = "int cuptiGetVersion(unsigned *version) { *version = 130000; return 0; }\n"

_WITH_A_DRIVER = """\
import json, pathlib, sys
from unstall.guest import device
device.has_driver = lambda: True
"""
_DOORS = {
    "recorder": "from unstall.cupti.recorder import Cupti; Cupti(pathlib.Path(sys.argv[1]))",
    "bench": "from unstall.cupti.few_calls import FewCalls; FewCalls('', stacks=False).__enter__()",
    "doctor": (
        "from unstall.cli import doctor; why = doctor._usable_cupti(can_load=True)[1]; "
        "from unstall.errors import UnstallError; raise UnstallError(why or 'nothing speaks against it')"
    ),
}


def _libcupti(folder: Path, version: str) -> Path:
    """A toolkit's folder with a libcupti that has all functions; `version` is the text of the first that is called."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc to build a libcupti with")
    library = folder / "toolkit" / "lib64" / "libcupti.so.13"
    library.parent.mkdir(parents=True)
    text = version + "".join(f"int cupti{name}() {{ return 0; }}\n" for name in _FUNCTIONS)
    command = [compiler, "-x", "c", "-shared", "-fPIC", "-o", str(library), "-"]
    subprocess.run(command, input=text, text=True, check=True, capture_output=True)
    return library


def _does(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Runs Python for which the toolkit in this folder is the one that is found, unless torch brings another."""
    (folder / "recording").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", _WITH_A_DRIVER + text, str(folder / "recording")],
        env={**os.environ, "CUDA_HOME": str(folder / "toolkit")},
        capture_output=True,
        text=True,
    )


_SAYS = """\
from unstall.errors import UnstallError
from unstall.cupti.recorder import find_library
print(find_library())
try:
    {door}
except UnstallError as error:
    print(error)
"""


@pytest.mark.parametrize("door", _DOORS)
def test_a_libcupti_that_crashes_is_an_error_of_one_sentence_at_every_door(tmp_path: Path, door: str) -> None:
    library = _libcupti(tmp_path, _CRASHES)
    done = _does(tmp_path, _SAYS.format(door=_DOORS[door]))
    assert done.returncode == 0, done.stderr
    found, *said = done.stdout.splitlines()
    assert (found, len(said)) == (str(library), 1)
    assert said[0].startswith(f"{library} crashes as it is loaded (SIGSEGV, in a process of its own): ")


def test_the_same_library_crashes_whoever_loads_it_without_a_trial(tmp_path: Path) -> None:
    library = _libcupti(tmp_path, _CRASHES)
    assert _does(tmp_path, f"from unstall.cupti import _cupti; _cupti.load({str(library)!r})").returncode == -11


def test_without_a_driver_no_libcupti_is_loaded_at_all(tmp_path: Path) -> None:
    _libcupti(tmp_path, _CRASHES)
    no_driver = "device.has_driver = lambda: False\nimport subprocess; subprocess.run = None\n"
    done = _does(tmp_path, no_driver + _SAYS.format(door=_DOORS["recorder"]))
    assert done.stdout.splitlines()[1:] == ["there is no NVIDIA driver here"]


_TRIED_AHEAD = """\
from unstall.cupti import recorder
recorder.try_ahead(pathlib.Path(sys.argv[1]))
"""
_STARTS_NONE = """\
import subprocess
subprocess.run = None
from unstall.cupti.recorder import Cupti
from unstall.errors import UnstallError
try:
    Cupti(pathlib.Path(sys.argv[1]))
except UnstallError as error:
    print(error)
else:
    print("it is loaded")
"""


@pytest.mark.parametrize(("version", "said"), [(_WORKS, "it is loaded"), (_CRASHES, "crashes as it is loaded")])
def test_a_program_whose_libcupti_was_tried_ahead_starts_no_process(tmp_path: Path, version: str, said: str) -> None:
    library = _libcupti(tmp_path, version)
    assert _does(tmp_path, _TRIED_AHEAD).returncode == 0
    (tried,) = json.loads((tmp_path / "recording" / "cupti_tried.json").read_text()).items()
    assert (tried[0], tried[1] is None) == (str(library), version == _WORKS)
    done = _does(tmp_path, _STARTS_NONE)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
