"""Calls of the driver become entries, marks and errors: with a driver that tests tell what to do."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from blaming.driver_functions import CALL, STORY, TABLES, each_function

from unstall.driver import unavailable

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the driver is followed on Linux alone"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the driver of these tests is built by gcc"),
]

BEGIN = f"""
import ctypes, os, struct, sys
from pathlib import Path
from unstall.blaming import _blame
from unstall.blaming.child import whose_files
from unstall.blaming.ring import read_ring
from unstall.blaming.verdict import verdict
{CALL}
ring, fake = Path(sys.argv[1]), driver
_blame.open(str(ring), sys.argv[2] if len(sys.argv) > 2 else "", whose_files())
_blame.follow()
LAUNCH, GRAPH_LAUNCH, SYNCHRONIZE = "cuLaunchKernel", "cuGraphLaunch", "cuStreamSynchronize"
BEGIN_CAPTURE, END_CAPTURE = "cuStreamBeginCapture", "cuStreamEndCapture"

def follow_again():
    global ring
    ring = ring.with_name(f"{{os.getpid()}}.again")
    _blame.open(str(ring), "", whose_files())
    _blame.follow()

def told():
    return [suspect.where.line for suspect in verdict(read_ring(ring)).suspects]

"""


def ran(fake: Path, lines: str, pinned: str = "", *, before: str = "") -> str:
    """What a program prints whose first line is line 1."""
    program = fake / "program.py"
    program.write_text(lines)
    ring = fake / "ring.bin"
    ring.unlink(missing_ok=True)
    code = BEGIN + before + f"exec(compile(Path({str(program)!r}).read_text(), {str(program)!r}, 'exec'))"
    done = subprocess.run(
        [sys.executable, "-c", code, ring, pinned.replace("PROGRAM", str(program))],
        capture_output=True,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(fake)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_first_line_whose_mark_never_arrived_is_told(fake: Path) -> None:
    assert (
        ran(
            fake,
            """call(LAUNCH)
call(LAUNCH)
call(LAUNCH)
fake.fake_run(7, 1)
call(SYNCHRONIZE, result=710)
print(told())
""",
        )
        == "[2]"
    )


def test_an_error_that_no_followed_call_returned_is_found_at_the_end(fake: Path) -> None:
    assert (
        ran(
            fake,
            """call(LAUNCH)
fake.fake_die(719)
before = told()
_blame.look()
print(before, told())
""",
        )
        == "[] [1]"
    )


def test_looking_for_an_error_finds_none_in_a_run_without_one(fake: Path) -> None:
    assert (
        ran(
            fake,
            """call(LAUNCH)
_blame.look()
print(verdict(read_ring(ring)).error == "")
""",
        )
        == "True"
    )


def test_work_that_was_waited_for_is_no_suspect(fake: Path) -> None:
    assert (
        ran(
            fake,
            """call(LAUNCH)
call(LAUNCH, stream=8)
call(SYNCHRONIZE, result=710)
print(fake.fake_waited(), told())
""",
            "PROGRAM:1:1",
        )
        == "1 [2]"
    )


def test_memory_that_cannot_be_pinned_is_replaced_by_the_drivers(fake: Path) -> None:
    lines = """fake.fake_refuse(801)
call(LAUNCH)
call(LAUNCH)
call(LAUNCH)
fake.fake_run(7, 1)
call(SYNCHRONIZE, result=710)
print(told())
_blame.close()
"""
    assert ran(fake, lines) == "[3]"


GRAPH = """call(BEGIN_CAPTURE)
fake.fake_capture(7)
for number in range(40):
    call(LAUNCH)
    call(LAUNCH)
call(END_CAPTURE)
print(read_ring(ring).header["marks"])
"""


def test_a_graph_gets_a_mark_for_64_pieces_of_work_at_most(fake: Path) -> None:
    assert int(ran(fake, GRAPH)) == 1 + 79 // 64 + 1


def test_of_several_replays_without_a_mark_between_them_the_first_and_the_last_are_told(fake: Path) -> None:
    lines = """call(BEGIN_CAPTURE)
fake.fake_capture(7)
call(LAUNCH)
call(END_CAPTURE)
fake.fake_run(7, 1)
fake.fake_capture(0)
_blame.budget(0.0, 0)
for _ in range(3): call(GRAPH_LAUNCH)
call(LAUNCH)
call(SYNCHRONIZE, result=710)
(suspect,) = verdict(read_ring(ring)).suspects
print(suspect.where.line, suspect.replayed.line, suspect.replay, suspect.replay_to)
"""
    assert ran(fake, lines) == "3 8 1 3"


def test_a_second_run_marks_each_line_of_a_graph(fake: Path) -> None:
    assert int(ran(fake, GRAPH, "PROGRAM:99:1")) == 1 + 79 + 1


def test_nothing_is_followed_or_pinned_after_the_end(fake: Path) -> None:
    assert (
        ran(
            fake,
            """call(LAUNCH)
call(LAUNCH, stream=7); call(LAUNCH)
_blame.close()
print(runtime.runtime_replaced(), fake.fake_registered())
""",
        )
        == "0 0"
    )


BY_CUPTI = json.loads((Path(__file__).parent / "driver_calls.json").read_text())
"""The tables that CUPTI's callbacks led to, of the same programs."""


@pytest.mark.parametrize("program", ["each_function", "story"])
def test_calls_are_noted_as_through_cuptis_callbacks(fake: Path, program: str) -> None:
    lines = "\n".join(each_function()) + "\n" if program == "each_function" else STORY
    noted = ran(
        fake, f"{lines}import json; print(json.dumps(tables()))", before=f"{TABLES}\n_blame.budget(0.0, 1 << 30)\n"
    )
    assert json.loads(noted) == BY_CUPTI[program]


def test_who_asks_the_linker_at_each_call_is_followed(fake: Path) -> None:
    lines = """call(LAUNCH, made_by=runtime.runtime_call_by_name)
call(LAUNCH, made_by=runtime.runtime_call_by_name)
call(SYNCHRONIZE, result=710)
print(told())
"""
    assert ran(fake, lines) == "[1]"


def test_a_runtime_that_is_loaded_later_is_given_what_is_followed(fake: Path) -> None:
    lines = """before = runtime.runtime_replaced()
runtime.runtime_load()
call(LAUNCH)
print(before > 0, runtime.runtime_replaced(), len(read_ring(ring).entries))
"""
    replaced, given, entries = ran(fake, lines).split()
    assert (replaced, given, entries) == ("True", "0", "1")  # it is given ours, which it keeps


def test_after_the_end_all_call_the_driver_itself(fake: Path) -> None:
    lines = """address = lambda: ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p).value
followed = address()
_blame.close()
call(LAUNCH)
call(LAUNCH, made_by=runtime.runtime_call_by_name)
itself = address()
print(len(read_ring(ring).entries))
follow_again()
print(followed != itself, address() == followed)
"""
    assert ran(fake, lines) == "0\nTrue True"


def test_a_kernels_name_is_asked_once_also_that_of_a_librarys(fake: Path) -> None:
    lines = """for _ in range(3):
    call(LAUNCH, kernel=b"one"); call(LAUNCH, kernel=b"library's")
found = read_ring(ring)
print([found.kernel(int(each["kernel"])) for each in found.entries][:2], fake.fake_name_asked())
"""
    assert ran(fake, lines) == """['one', "library's"] 2"""


def test_a_kernels_name_is_asked_again_once_a_module_was_unloaded(fake: Path) -> None:
    lines = """call(LAUNCH)
call("cuModuleUnload")
call(LAUNCH)
print(fake.fake_name_asked())
"""
    assert ran(fake, lines) == "2"


GUARD = """
from unstall.guarding import _hooks
asked = []
def before(kind, *others):
    asked.append(kind)
    return -1 if refuse else 0
refuse = False
COPY_AND_WAIT = "cuMemcpyHtoD_v2"
def guard():
    _hooks.install("libcuda.so.1", {COPY_AND_WAIT: (6, 4000)}, before, lambda *_: 0, 100)
    _hooks.switch(True)
"""


@pytest.mark.parametrize("begins", ["follow_again(); guard()", "guard(); follow_again()"])
def test_guards_and_blame_see_the_same_call_whoever_began_first(fake: Path, begins: str) -> None:
    lines = f"""_blame.close()
{begins}
call(COPY_AND_WAIT)
print(asked, len(read_ring(ring).entries))
"""
    assert ran(fake, lines, before=GUARD) == "[6] 1"


def test_what_a_guard_refuses_is_not_noted(fake: Path) -> None:
    lines = """guard()
refuse = True
print(call(COPY_AND_WAIT), len(read_ring(ring).entries))
"""
    assert ran(fake, lines, before=GUARD) == "800 0"


@pytest.mark.parametrize(("ends", "left"), [("_blame.close()", "[6] 0"), ("_hooks.remove()", "[] 1")])
def test_once_one_of_both_has_ended_the_other_goes_on(fake: Path, ends: str, left: str) -> None:
    lines = f"""guard()
{ends}
call(COPY_AND_WAIT)
print(asked, len(read_ring(ring).entries))
"""
    assert ran(fake, lines, before=GUARD) == left


def test_once_both_have_ended_all_pointers_are_put_back(fake: Path) -> None:
    lines = """guard()
_blame.close()
_hooks.remove()
print(runtime.runtime_replaced())
"""
    assert ran(fake, lines, before=GUARD) == "0"


def test_blames_own_calls_are_not_asked_about(fake: Path) -> None:
    lines = """_hooks.install("libcuda.so.1", {"cuStreamSynchronize": (1, 2000)}, before, lambda *_: 0, 100)
_hooks.switch(True)
call(LAUNCH)
print(fake.fake_waited(), asked)
"""
    assert ran(fake, lines, "PROGRAM:3:1", before=GUARD) == "1 []"


def test_a_processor_whose_calls_are_not_known_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert str(unavailable()).endswith("on x86 and ARM, not on Linux on riscv64")


def test_a_forked_child_calls_the_driver_and_notes_nothing(fake: Path) -> None:
    lines = """if not os.fork():
    os._exit(call(LAUNCH, result=3))
print(os.waitstatus_to_exitcode(os.wait()[1]), len(read_ring(ring).entries))
"""
    assert ran(fake, lines) == "3 0"
