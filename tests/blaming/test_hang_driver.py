"""The agent of a process, and calls of the driver that only hangs need: with a driver that tests are told by."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the driver is followed on Linux alone"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the driver of these tests is built by gcc"),
]

from blaming.test_driver_calls import ran  # noqa: E402

from unstall.blaming.hangs.answers import ask  # noqa: E402

AGENT = """import os, threading
from unstall.blaming.hangs.answers import ask
from unstall.blaming.hangs.child import attend
from unstall.blaming.hangs.verdict import standing
folder = ring.parent / str(os.getpid())
folder.mkdir(mode=0o700)
undo = attend(folder)
WAIT_VALUE, WRITE_VALUE = "cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2"
BATCH, DESTROY = "cuStreamBatchMemOp_v2", "cuStreamDestroy_v2"

def where():
    (answer,) = ask([folder])
    return [(each.waits, each.work.where.line, each.is_sure) for each in standing(read_ring(ring), answer)]

"""
LINES = AGENT.count("\n")


def told(fake: Path, lines: str) -> str:
    return ran(fake, AGENT + lines)


def test_the_agent_asks_the_driver_which_streams_are_done(fake: Path) -> None:
    lines = """call(LAUNCH)
call(LAUNCH, stream=8)
fake.fake_hang(8)
print(where())
"""
    assert told(fake, lines) == f"[('kernel', {LINES + 2}, True)]"


def test_a_value_that_is_waited_for_and_written_is_noted_with_its_address(fake: Path) -> None:
    lines = """call(WAIT_VALUE, event=64, value=3)
call(WRITE_VALUE, event=128, value=4)
print([(int(e["kind"]), int(e["event"]), int(e["value"])) for e in read_ring(ring).entries])
"""
    assert told(fake, lines) == "[(7, 64, 3), (8, 128, 4)]"


def test_each_value_of_a_batch_is_noted(fake: Path) -> None:
    lines = """call(BATCH, operations=[(4, 64, 3), (6, 0, 0), (2, 128, 4)])
print([(int(e["kind"]), int(e["event"]), int(e["value"])) for e in read_ring(ring).entries])
"""
    assert told(fake, lines) == "[(7, 64, 3), (8, 128, 4)]"


def test_a_stream_that_is_destroyed_is_not_asked_until_it_gets_work(fake: Path) -> None:
    lines = """call(LAUNCH)
fake.fake_hang(7)
before = where()[0][2]
call(DESTROY)
destroyed = where()[0][2]
call(LAUNCH)
print(before, destroyed, where()[0][2])
"""
    assert told(fake, lines) == "True False True"


def test_no_stream_is_asked_during_a_capture(fake: Path) -> None:
    lines = """call(LAUNCH)
fake.fake_hang(7)
call(BEGIN_CAPTURE)
during = where()[0][2]
call(END_CAPTURE)
print(during, where()[0][2])
"""
    assert told(fake, lines) == "False True"


def test_a_capture_that_did_not_begin_keeps_nothing_from_being_asked(fake: Path) -> None:
    lines = """call(LAUNCH)
fake.fake_hang(7)
call(BEGIN_CAPTURE, result=900)
print(where()[0][2])
"""
    assert told(fake, lines) == "True"


@pytest.mark.parametrize(("result", "ends"), [(0, True), (901, True), (903, False)])
def test_a_capture_is_over_if_the_driver_ended_it_with_or_without_an_error(fake: Path, result: int, ends: bool) -> None:
    lines = f"""call(LAUNCH)
fake.fake_hang(7)
call(BEGIN_CAPTURE, stream=9)
if {result == 901}: fake.fake_invalidate()
call(END_CAPTURE, stream=9, result={result})
print(where()[0][2])
"""
    assert told(fake, lines) == str(ends)


def test_notes_that_are_opened_again_know_of_no_capture_before(fake: Path) -> None:
    lines = """call(BEGIN_CAPTURE, stream=9)
_blame.close()
ring = ring.with_name(f"{os.getpid()}.again")
_blame.open(str(ring), "", whose_files())
_blame.follow()
call(LAUNCH)
fake.fake_hang(7)
print(where()[0][2])
"""
    assert told(fake, lines) == "True"


def test_nothing_is_asked_after_an_error(fake: Path) -> None:
    lines = """call(LAUNCH)
call(SYNCHRONIZE, result=710)
before = fake.fake_asked()
ask([folder])
print(fake.fake_asked() - before)
"""
    assert told(fake, lines) == "0"


def test_a_stream_that_is_destroyed_while_another_context_is_current_is_not_asked(fake: Path) -> None:
    lines = """call(LAUNCH)
fake.fake_current(2)
call(DESTROY)
ask([folder])
print(fake.fake_asked())
"""
    assert told(fake, lines) == "0"


CONTEXT_DESTROY = "cuCtxDestroy_v2"
PRIMARY_RELEASE, PRIMARY_RESET = "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("goes_by", "handle", "error"),
    [(CONTEXT_DESTROY, 1, 0), (CONTEXT_DESTROY, 1, 710), (PRIMARY_RESET, 0, 0), (PRIMARY_RELEASE, 0, 0)],
)
def test_memory_that_the_driver_freed_with_its_context_is_read_no_more(
    fake: Path, goes_by: int, handle: int, error: int
) -> None:
    lines = f"""fake.fake_refuse(801)
call(LAUNCH); call(LAUNCH, stream=8)
call(LAUNCH)
fake.fake_run(7, 1)
if {error}: call(SYNCHRONIZE, result={error})
fake.fake_last_release()
call({goes_by!r}, stream={handle})
before = fake.fake_queued()
threading.Event().wait(1.3)  # each second the agent copies it
call(LAUNCH)
print(fake.fake_queued() - before)
"""
    assert told(fake, lines) == "0"


def test_a_primary_context_that_others_retain_keeps_its_marks(fake: Path) -> None:
    lines = f"""fake.fake_refuse(801)
call(LAUNCH)
call(LAUNCH)
call({PRIMARY_RELEASE!r}, stream=0)
before = fake.fake_queued()
call(LAUNCH)
print(fake.fake_queued() - before)
"""
    assert told(fake, lines) == "1"


@pytest.mark.slow
def test_an_agent_whose_question_the_driver_does_not_answer_is_left_at_the_end(fake: Path) -> None:
    lines = """call(LAUNCH)
fake.fake_stick()
ask([folder], 0.3)
undo()
print("ended")
"""
    assert told(fake, lines) == "ended"


def test_the_agent_outlives_the_notes_and_asks_nothing_then(fake: Path) -> None:
    lines = """call(LAUNCH)
_blame.close()
(answer,) = ask([folder])
print(answer.results, "most recent call first" in answer.stacks)
"""
    assert told(fake, lines) == "() True"


ASKS = """
import sys
from pathlib import Path
from unstall.blaming.hangs.answers import ask
from unstall.blaming.hangs.stacks import parse
print("ready", flush=True)
sys.stdin.readline()
(answer,) = ask([Path(sys.argv[1])], 1.5)
print([frame.line for frame in parse(answer.stacks)[0].frames] if answer else None)
"""


def test_stacks_come_while_a_thread_keeps_the_gil(fake: Path) -> None:
    lines = f"""import subprocess
command = [sys.executable, "-c", {ASKS!r}, str(folder)]
asks = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
asks.stdout.readline()
asks.stdin.write("\\n"); asks.stdin.flush(); ctypes.PyDLL(None).usleep(2_000_000)
print(asks.stdout.readline().strip())
"""
    assert told(fake, lines).startswith(f"[{LINES + 5},")


def test_stacks_are_written_with_the_gil_held_if_it_is_free(fake: Path) -> None:
    lines = """(answer,) = ask([folder])
print("Current thread" in answer.stacks)
"""
    assert told(fake, lines) == "True"  # of the thread that has it


COMPUTES = """import sys, time
from pathlib import Path
from unstall.blaming.hangs.child import attend

attend(Path(sys.argv[1]))
print("ready", flush=True)

def each(n):
    for i in range(n): yield i

def deep(n):
    return deep(n - 1) if n else [x for x in each(5)]

until = time.monotonic() + 6
while time.monotonic() < until:
    deep(50)
"""


@pytest.mark.slow
def test_a_program_that_computes_can_be_asked_again_and_again(tmp_path: Path) -> None:
    stacks = []
    with subprocess.Popen([sys.executable, "-c", COMPUTES, tmp_path], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        running.stdout.readline()
        while running.poll() is None:
            stacks += [answer.stacks for answer in ask([tmp_path], 0.5) if answer]
    assert (running.returncode, any("in deep" in each for each in stacks)) == (0, True)


def test_stacks_are_of_all_threads(fake: Path) -> None:
    lines = """from unstall.blaming.hangs.stacks import parse
threading.Thread(target=threading.Event().wait, daemon=True).start()
(answer,) = ask([folder])
print(len(parse(answer.stacks)))
"""
    assert told(fake, lines) == "2"


def test_a_signal_that_the_program_took_since_is_left_to_it(fake: Path) -> None:
    lines = """import signal
came = []
signal.signal(signal.SIGRTMAX - 1, lambda *_: came.append(1))
(answer,) = ask([folder])
print(came, repr(answer.stacks))
"""
    assert told(fake, lines) == "[] ''"


def test_a_file_that_took_the_descriptor_of_the_stacks_stays_as_it_is(fake: Path) -> None:
    lines = """links = {int(n): os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")}
stacks = next(number for number, path in links.items() if path.endswith("stacks.txt"))
theirs = ring.parent / "theirs.txt"
theirs.write_text("kept")
handle = os.open(theirs, os.O_RDWR)
os.dup2(handle, stacks)
ask([folder])
print(theirs.read_text())
"""
    assert told(fake, lines) == "kept"


def test_a_process_that_has_ended_its_agent_does_not_answer(fake: Path) -> None:
    lines = """before = len(os.listdir("/proc/self/task"))
undo()
after = len(os.listdir("/proc/self/task"))
print(ask([folder], 0.3), [thread.name for thread in threading.enumerate()], after - before)
"""
    assert told(fake, lines) == "[None] ['MainThread'] -1"


def test_a_forked_child_has_no_agent_and_leaves_that_of_its_parent(fake: Path) -> None:
    lines = """call(LAUNCH)
fake.fake_hang(7)
if not os.fork():
    os._exit(0)
os.wait()
print(where()[0][2])
"""
    assert told(fake, lines) == "True"
