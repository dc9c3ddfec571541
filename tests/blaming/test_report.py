"""What a person reads of a fault, in the program's stderr and in the report."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from unstall.blaming.assertions import Assertions
from unstall.blaming.document import Blame, is_certain
from unstall.blaming.result import BlameResult, Line, Noticed, Suspect, Tensor

ASSERTION = "/a/Loss.cu:245: nll_loss: block: [0,0,0], thread: [0,0,0] Assertion `t >= 0 && t < n_classes` failed."


def fault(*others: Line, blocked: Line | None = None, **more: object) -> BlameResult:
    """A fault at train.py:15, and other lines that may have failed."""
    first = Suspect(
        where=Line("train.py", 15, "step", "loss = cross_entropy(logits, labels)"),
        iteration=31,
        work=("nll_loss",),
        stream="the default stream",
        others=others,
    )
    held = (Suspect(where=blocked, stream="stream 0x7", blocked=True),) if blocked else ()
    facts = {
        "error": "device-side assert",
        "code": 710,
        "cause": "a class label is outside 0 … C-1",
        "noticed": Noticed(where=Line("train.py", 40, "<module>"), call="cuStreamSynchronize", later_ns=17_300_000),
        "assertion": ASSERTION,
        **more,
    }
    return BlameResult(suspects=(first, *held), **facts)  # type: ignore[arg-type]


def text(result: BlameResult, again: str = "") -> str:
    return str(Blame(result, again))


def test_the_first_sentence_names_error_line_and_cause() -> None:
    assert "Device-side assert in the work of train.py:15: a class label is outside 0 … C-1." in text(fault())


def test_the_iteration_is_told() -> None:
    assert "the 31st time that it ran" in text(fault())


def test_the_line_that_noticed_is_told_with_how_late_it_was() -> None:
    assert "noticed at: train.py:40 in <module>, by cuStreamSynchronize, 17.3 ms after" in " ".join(
        text(fault()).split()
    )


def test_an_error_that_no_followed_call_returned_was_noticed_where_the_traceback_ends() -> None:
    noticed = Noticed(where=None, call="a call that is not followed")
    told = text(fault(noticed=noticed, traceback=Line("train.py", 41, "<module>")))
    assert "noticed at: train.py:41 in <module>, by a call that is not followed" in " ".join(told.split())


def test_tensors_are_told() -> None:
    told = text(fault(tensors=(Tensor("labels", (64,), "int64", "cuda:0"),)))
    assert "labels: int64[64] on cuda:0" in told


def test_one_line_is_certain() -> None:
    assert is_certain(fault())


def test_of_two_lines_without_a_mark_between_them_both_may_have_failed() -> None:
    told = " ".join(text(fault(Line("train.py", 16, "step"))).split())
    assert "in the work of train.py:15 or of 1 other line:" in told


def test_of_two_streams_the_first_is_only_likely() -> None:
    one = fault()
    told = msgspec.structs.replace(one, suspects=(*one.suspects, Suspect(where=Line("train.py", 20, "step"))))
    assert "most likely train.py:15" in " ".join(text(told).split())


def test_of_several_iterations_the_first_and_the_last_are_told() -> None:
    one = fault()
    first = msgspec.structs.replace(one.suspects[0], iteration_to=33)
    assert "the 31st to 33rd time that it ran" in text(msgspec.structs.replace(one, suspects=(first,)))


def test_two_lines_come_with_the_command_that_finds_the_one() -> None:
    told = text(fault(Line("train.py", 16, "step")), "unstall run --blame --pin-down train.py")
    assert "unstall run --blame --pin-down train.py" in told


def test_a_stream_that_may_only_have_waited_makes_nothing_uncertain() -> None:
    assert is_certain(fault(blocked=Line("train.py", 20, "step")))


def test_no_fault_is_told_as_that() -> None:
    assert "No fault was seen." in text(BlameResult())


def test_control_characters_of_a_file_name_do_not_reach_the_terminal() -> None:
    result = BlameResult(error="launch failed", suspects=(Suspect(where=Line("a\x1b[2J.py", 1, "f")),))
    assert "\x1b" not in text(result)


def test_an_assertion_is_found_among_other_lines_in_any_pieces() -> None:
    content = f"epoch 1\n{ASSERTION}\n{ASSERTION.replace('[0,', '[1,')}\nTraceback\n".encode()
    seen = Assertions()
    for at in range(0, len(content), 7):
        seen.see(content[at : at + 7])
    assert seen.first == ASSERTION


def test_a_line_that_only_speaks_of_assertions_is_none() -> None:
    seen = Assertions()
    seen.see(b"Assertion `x` failed.\n")
    assert seen.first == ""


PASSES_ON = """
import os
from unstall.launching.passing_on import passed_on
seen = []
with passed_on(seen.append) as writes:
    os.write(writes, b"one\\r\\n\\xfftwo")
print(b"".join(seen))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="programs are launched on Linux alone")
def test_what_a_program_writes_to_stderr_arrives_unchanged_and_is_read() -> None:
    done = subprocess.run([sys.executable, "-c", PASSES_ON], capture_output=True, check=True)
    assert (done.stderr, done.stdout.strip()) == (b"one\r\n\xfftwo", rb"b'one\r\n\xfftwo'")
