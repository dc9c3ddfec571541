"""A program that is armed, in a process of its own: how it ends, forks and imports, and what is then in the journal."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from unstall.recording.journal import read

_TESTS = Path(__file__).parents[1]
_ARM = f"""
import os, sys
sys.path[:0] = [{str(_TESTS)!r}, {str(_TESTS.parent / "src")!r}]
from unstall.recording.child import begin
from unstall.guest.steps import step
from unstall.recording.settings import Settings
from recording.recorders import Logging

class Filed(Logging):
    def _called(self, method):
        with open(os.path.join(folder, "calls"), "a") as file:
            print("parent" if os.getpid() == process else "child", method, file=file)

def steps(count):
    for _ in range(count):
        step()

folder, process = sys.argv[1], os.getpid()
begin(Settings(folder, warmup=1, steps=1000, keep_arguments=bool(sys.argv[2:])), lambda: Filed([]), lambda: None)
"""
_IN_THE_WINDOW = "steps(1 + 200 + 3)\n"  # 1 to warm up, 200 that are timed, 1 to settle, 2 recorded


def _run(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", _ARM + program, str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def _calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_a_program_that_ends_in_the_window_has_recorded_what_was_there(tmp_path: Path) -> None:
    ended = _run(tmp_path, _IN_THE_WINDOW)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert _calls(tmp_path) == ["parent start", "parent stop"]
    assert [event["steps"] for event in read(tmp_path) if event["event"] == "recorded"] == [2]
    assert read(tmp_path)[-1]["event"] == "over"


def test_an_uncaught_exception_shows_as_without_a_recording(tmp_path: Path) -> None:
    ended = _run(tmp_path, _IN_THE_WINDOW + "raise KeyError('lost')")
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, "KeyError: 'lost'")
    assert "unstall" not in ended.stderr
    assert _calls(tmp_path) == ["parent start", "parent stop"]


def test_os_exit_leaves_at_once_with_what_there_is(tmp_path: Path) -> None:
    ended = _run(tmp_path, _IN_THE_WINDOW + "os._exit(7)")
    assert (ended.returncode, ended.stderr) == (7, "")
    assert _calls(tmp_path) == ["parent start", "parent flush"]
    assert [event["step"] for event in read(tmp_path) if event["event"] == "mark"] == [0, 1, 2, 3]
    assert read(tmp_path)[-1]["event"] == "cut"


def test_os_exit_is_pythons_own_outside_of_the_window(tmp_path: Path) -> None:
    program = "steps(1)\nprint(os._exit)\nsteps(203)\nprint(os._exit)\nsteps(1000)\nprint(os._exit)"
    before, within, after = _run(tmp_path, program).stdout.splitlines()
    assert before == after == "<built-in function _exit>"
    assert within != before


def test_a_killed_program_leaves_its_marks(tmp_path: Path) -> None:
    ended = _run(tmp_path, _IN_THE_WINDOW + "os.kill(process, 9)")
    assert ended.returncode == -signal.SIGKILL
    assert [event["step"] for event in read(tmp_path) if event["event"] == "mark"] == [0, 1, 2, 3]


@pytest.mark.parametrize("leave", ["os._exit(5)", "sys.exit(5)"])
def test_a_forked_child_is_not_recorded(tmp_path: Path, leave: str) -> None:
    program = f"""
child = os.fork()
if child == 0:
    steps(2000)
    {leave}
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
steps(1)
"""
    ended = _run(tmp_path, _IN_THE_WINDOW + program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "5\n", "")
    assert sorted(_calls(tmp_path)) == ["child forked", "parent start", "parent stop"]
    assert [event["steps"] for event in read(tmp_path) if event["event"] == "recorded"] == [3]


def test_marks_of_many_threads_are_taken_one_at_a_time(tmp_path: Path) -> None:
    program = """
import threading
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=steps, args=(1000,)) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    ended = _run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert _calls(tmp_path) == ["parent start", "parent stop"]
    borders = [event["step"] for event in read(tmp_path) if event["event"] == "mark"]
    assert borders == list(range(len(borders)))


def test_arming_imports_nothing_heavy_and_leaves_no_thread(tmp_path: Path) -> None:
    program = """
import threading
print([name for name in ("numpy", "torch", "msgspec", "rich") if name in sys.modules], threading.active_count())
"""
    assert _run(tmp_path, program).stdout == "[] 1\n"


def test_arguments_are_kept_only_where_that_was_asked(tmp_path: Path) -> None:
    _run(tmp_path, "")
    assert not any(event["event"] == "arguments" for event in read(tmp_path))
    _run(tmp_path, "", "keep")
    (kept,) = [event for event in read(tmp_path) if event["event"] == "arguments"]
    assert kept["argv"][-1] == "keep"
    assert "PATH" in kept["environment"]


_WHAT_IS_LEFT = """
def left():
    import torch
    spec = torch.__spec__
    return [repr(finder) for finder in sys.meta_path], type(spec.loader).__name__, sorted(vars(spec.loader))
"""


@pytest.mark.slow
def test_importing_torch_arms_its_optimizers_and_leaves_the_import_system_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = (
        _WHAT_IS_LEFT
        + """
import warnings
warnings.simplefilter("default")
print([finder.split(" at ")[0] for finder in left()[0]], left()[1:])
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(1 + 200 + 3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""
    )
    ended = _run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [event["by"] for event in read(tmp_path) if event["event"] == "recorded"] == ["optimizer"]
    assert "unstall" not in ended.stdout
    assert "SourceFileLoader', ['name', 'path']" in ended.stdout


def test_what_is_imported_under_a_finder_is_what_would_have_been(tmp_path: Path) -> None:
    (tmp_path / "wanted.py").write_text("here = __spec__.loader.__dict__.keys() - {'name', 'path'}\n")
    (tmp_path / "broken.py").write_text("raise ImportError('no such library')\n")
    program = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {str(_TESTS.parent / "src")!r}]
from unstall.guest.imports import when_imported
before = list(sys.meta_path)
told = []
when_imported("wanted", lambda: told.append("wanted"))
when_imported("broken", lambda: told.append("broken"))
cancel = when_imported("cancelled", lambda: told.append("cancelled"))
cancel()
try:
    import broken
except ImportError as error:
    print(error)
import wanted
print(told, set(wanted.here), sys.meta_path == before)
when_imported("wanted", lambda: told.append("again"))
print(told)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stderr == ""
    assert ended.stdout == "no such library\n['wanted'] set() True\n['wanted', 'again']\n"


@pytest.mark.skipif(find_spec("unstall.guest._after") is None, reason="the extension is not built here")
def test_an_import_that_fails_has_the_traceback_that_it_has_without_us(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    program = """
import sys, traceback
if sys.argv[1] != "plain":
    from unstall.guest.imports import when_imported
    from unstall.guest.imports import around_import
    when_imported("broken", print)
if sys.argv[1] == "both":
    around_import("broken", lambda: None, print)
try:
    import broken
except ZeroDivisionError:
    traceback.print_exc(file=sys.stdout)
"""
    told = [
        subprocess.run([sys.executable, "-c", program, how], cwd=tmp_path, capture_output=True, text=True, check=True)
        for how in ("plain", "waiting", "both")
    ]
    assert told[0].stdout.endswith("ZeroDivisionError: division by zero\n")
    assert [each.stdout for each in told] == [told[0].stdout] * 3


def test_a_finder_that_keeps_what_it_found_may_be_asked_before_the_import(tmp_path: Path) -> None:
    (tmp_path / "kept.py").write_text("x = 1\n")
    script = """
import sys
from importlib.util import find_spec, spec_from_file_location
from unstall.guest.imports import when_imported

SPEC = spec_from_file_location("kept", sys.argv[1])

class Keeps:
    def find_spec(self, name, path=None, target=None):
        return SPEC if name == "kept" else None

sys.meta_path.insert(0, Keeps())
told = []
when_imported("kept", lambda: told.append("kept"))
find_spec("kept"), find_spec("kept")
import kept
print(kept.x, told, vars(kept.__loader__).get("exec_module"))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "kept.py")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 ['kept'] None\n"
