"""Which recorder and which line clock the settings come to, where CUPTI does not work, as without a driver."""

from __future__ import annotations

import cProfile
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unstall.cupti.recorder import Cupti
from unstall.errors import UnstallError
from unstall.lines.clock import LineClock
from unstall.recording.choose import choose
from unstall.recording.settings import LineClockName, RecorderName, Settings
from unstall.recording.torch_profiler import TorchProfiler

pytest.importorskip("torch", reason="the recorder torch needs torch")

_MONITORED = sys.version_info >= (3, 12)
_NO_CUPTI = (
    r"there is no NVIDIA driver here|CUPTI does not record here: .+|libcupti .+|"
    r"the C extension for CUPTI is not built: .+|CUPTI \d+ writes .+"
)


@pytest.fixture(autouse=True)
def _without_a_driver(tmp_path: Path) -> Iterator[None]:
    try:
        Cupti(tmp_path)
    except UnstallError:
        yield
        return
    importlib.import_module("unstall.cupti._cupti").unsubscribe()
    pytest.skip("CUPTI works here: a machine with a GPU is for the tests of that")


def _chosen(folder: Path, recorder: RecorderName, lines: LineClockName, *, shapes: bool = False) -> tuple[Any, Any]:
    return choose(Settings(str(folder), recorder, lines=lines, shapes=shapes))


@pytest.mark.parametrize("shapes", [False, True])
@pytest.mark.parametrize("recorder", ["auto", "torch"])
@pytest.mark.parametrize(
    ("lines", "clock", "stacks"),
    [
        ("auto", "monitoring" if _MONITORED else None, not _MONITORED),
        ("settrace", "settrace", False),
        ("none", None, False),
    ],
)
def test_torch_records_with_what_follows_lines_cheapest(
    lines: LineClockName, clock: str | None, stacks: bool, recorder: RecorderName, shapes: bool, tmp_path: Path
) -> None:
    chosen, followed = _chosen(tmp_path, recorder, lines, shapes=shapes)
    assert isinstance(chosen, TorchProfiler)
    assert (chosen.name, chosen.stacks, chosen._profile.record_shapes) == ("torch", stacks, shapes)
    assert (followed.name if followed is not None else None) == clock
    assert followed is None or isinstance(followed, LineClock)
    stands_in = recorder == "auto" and not shapes
    assert bool(re.fullmatch(_NO_CUPTI, chosen.instead or "")) == stands_in


@pytest.mark.parametrize("lines", ["auto", "calls", "settrace", "none"])
def test_cupti_that_was_asked_for_and_does_not_work_is_an_error(lines: LineClockName, tmp_path: Path) -> None:
    with pytest.raises(UnstallError) as raised:
        _chosen(tmp_path, "cupti", lines)
    assert re.fullmatch(_NO_CUPTI, str(raised.value))


def test_stacks_at_calls_without_cupti_say_why_that_does_not_work(tmp_path: Path) -> None:
    with pytest.raises(UnstallError, match=_NO_CUPTI):
        _chosen(tmp_path, "auto", "calls")


@pytest.mark.python(least=(3, 12))
@pytest.mark.parametrize("recorder", ["auto", "torch"])
def test_monitoring_goes_with_torch(recorder: RecorderName, tmp_path: Path) -> None:
    chosen, followed = _chosen(tmp_path, recorder, "monitoring")
    assert (chosen.name, chosen.stacks, followed.name) == ("torch", False, "monitoring")


@pytest.mark.python(below=(3, 12))
@pytest.mark.parametrize(("traced", "clock"), [(False, "settrace"), (True, None)])
def test_the_place_of_the_programs_own_profiler_is_not_taken(traced: bool, clock: str | None, tmp_path: Path) -> None:
    with cProfile.Profile():
        if traced:
            sys.settrace(lambda *_: None)
        try:
            chosen, followed = _chosen(tmp_path, "auto", "auto")
        finally:
            if traced:
                sys.settrace(None)
    assert (chosen.stacks, followed.name if followed is not None else None) == (False, clock)


def test_a_program_without_torch_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(UnstallError, match="the recorder torch needs a program that imports torch"):
        _chosen(tmp_path, "torch", "none")


_CHOOSES = """\
import contextlib, sys
before = set(sys.modules)
from unstall.errors import UnstallError
from unstall.recording.choose import choose
from unstall.recording.settings import Settings

for lines in ("auto", "none"):
    with contextlib.suppress(UnstallError):
        choose(Settings(sys.argv[1], lines=lines))
new = set(sys.modules) - before
print(*sorted(name for name in new if name.partition(".")[0] not in sys.stdlib_module_names))
"""


def test_a_program_without_numpy_stays_without(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", _CHOOSES, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    ours = {name.removeprefix("unstall.") for name in told.split()}
    rooms = {
        "": {"_version", "errors", "frameworks", "json_lines"},
        "cupti.": {"call_stacks", "driver_calls", "layouts", "recorder", "trial"},
        "guest.": {
            "active",
            "backward_passes",
            "device",
            "interrupts",
            "monitoring",
            "patching",
            "step_source",
            "steps",
            "threads",
        },
        "lines.": {"clock", "reference"},
        "recording.": {"choose", "recorder", "settings", "torch_profiler"},
    }
    in_c = {"cupti._cupti", "guest._after", "lines._lines"}
    allowed = {"unstall", *(room.rstrip(".") for room in rooms if room)}
    assert ours - in_c == allowed | {f"{room}{name}" for room, names in rooms.items() for name in names}


_LOADS = """\
import pathlib
from unstall.errors import UnstallError
from unstall.cupti.recorder import Cupti, find_library
from unstall.guest import device

device.has_driver = lambda: True
print(find_library())
try:
    Cupti(pathlib.Path())
except UnstallError as error:
    print(error)
"""


def test_a_libcupti_that_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    library = tmp_path / "lib64" / "libcupti.so.13"
    library.parent.mkdir()
    library.write_text("no library")
    environment = {**os.environ, "CUDA_HOME": str(tmp_path)}
    told = subprocess.run(
        [sys.executable, "-c", _LOADS], env=environment, capture_output=True, text=True, check=True
    ).stdout
    found, why = told.splitlines()
    if found != str(library):
        pytest.skip("torch brings a libcupti of its own")
    assert why.startswith(f"libcupti cannot be loaded: {library}: ")


def test_what_is_chosen_touches_neither_the_folder_nor_the_program(tmp_path: Path) -> None:
    _chosen(tmp_path, "auto", "settrace")
    assert list(tmp_path.iterdir()) == []
    assert sys.gettrace() is None
