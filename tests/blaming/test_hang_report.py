"""What a person reads of a hang."""

from __future__ import annotations

from unstall.blaming.hangs.document import HangReport
from unstall.blaming.result import BlameResult, Hang, Line, Process, Standing, Suspect


def at(line: int, file: str = "train.py") -> Line:
    return Line(file, line, "step", "y = f(x)")


def kernel(line: int, name: str = "spin", **more: object) -> Standing:
    work = Suspect(where=at(line), work=(name,), **more)  # type: ignore[arg-type]
    return Standing(stream="the default stream", waits="kernel", work=work)


def value(stream: str, line: int, caller: int) -> Standing:
    work = Suspect(where=at(line), called_from=(at(caller),), work=("wait for a value in memory",))
    return Standing(stream=stream, waits="value", work=work, on=at(line), on_stream="another", circular=True)


def rank(number: int, line: int, collective: str = "", size: int = 2, **more: object) -> Process:
    facts = {"state": "waits", "quiet_ns": 60_000_000_000, "at": at(line), **more}
    return Process(pid=100 + number, rank=number, world_size=size, collective=collective, **facts)  # type: ignore[arg-type]


def program(*streams: Standing, **more: object) -> Process:
    facts = {"state": "waits", "quiet_ns": 62_000_000_000, "worked": True, "at": at(40), **more}
    return Process(pid=100, streams=streams, **facts)  # type: ignore[arg-type]


def text(*processes: Process, after_ns: int | None = 60_000_000_000) -> str:
    return " ".join(str(HangReport(BlameResult(hang=Hang(after_ns=after_ns, processes=processes)))).split())


def test_a_kernel_is_told_with_its_line_and_for_how_long_nothing_has_moved() -> None:
    told = text(program(kernel(9)))
    assert "nothing has moved for 1 min 2 s. The default stream is at kernel spin of train.py:9." in told


def test_a_program_whose_work_is_all_done_is_not_said_to_hang() -> None:
    told = text(program())
    assert "has put no work on the device for 1 min 2 s, and all of its work is done. The host is at" in told
    assert "hangs" not in told


def test_other_lines_that_the_stream_may_be_at_are_listed() -> None:
    told = text(program(kernel(9, others=(at(10), at(11)))))
    assert "of train.py:9 most likely, or of 2 other lines." in told
    assert "Other lines at whose work the default stream may be - train.py:10 in step - train.py:11 in step" in told


def test_a_replay_is_told_with_the_line_that_replayed() -> None:
    assert "of train.py:9, in a graph replayed at train.py:20." in text(program(kernel(9, replayed=at(20))))


def test_streams_that_wait_for_each_other_are_told_together() -> None:
    told = text(program(value("stream 0x1", 8, 13), value("stream 0x2", 9, 16)))
    assert "Streams wait for each other: stream 0x1 at train.py:8 and stream 0x2 at train.py:9." in told


def test_streams_that_wait_in_one_function_are_told_with_its_callers() -> None:
    told = text(program(value("stream 0x1", 8, 13), value("stream 0x2", 8, 16)))
    assert "stream 0x1 at train.py:8 (called from train.py:13) and stream 0x2 at train.py:8 (called from" in told


def test_the_rank_that_never_joined_is_told_with_its_line() -> None:
    told = text(rank(0, 17, "all_reduce"), rank(1, 19))
    assert "Rank 0 waits in all_reduce at train.py:17. Rank 1 never joined: it is at train.py:19." in told


def test_a_rank_that_has_ended_never_joined() -> None:
    assert "Rank 1 never joined: it has ended." in text(rank(0, 17, "all_reduce"), rank(1, 19, state="ended"))


def test_ranks_in_different_collectives_are_told_apart() -> None:
    told = text(rank(0, 17, "all_reduce"), rank(1, 30, "barrier"))
    assert "Rank 0 waits in all_reduce at train.py:17. Rank 1 waits in barrier at train.py:30." in told


def test_ranks_that_all_have_joined_are_told_to() -> None:
    told = text(rank(0, 17, "all_reduce"), rank(1, 17, "all_reduce"))
    assert "Ranks 0, 1 wait in all_reduce at train.py:17. Every rank has joined." in told


def test_ranks_that_are_not_seen_may_be_elsewhere() -> None:
    told = text(rank(0, 17, "all_reduce", 4), rank(1, 17, "all_reduce", 4))
    assert "Ranks 2, 3: not on this machine, or ended." in told
    assert "Every rank has joined" not in told


def test_a_program_that_is_asked_from_outside_is_not_said_to_hang() -> None:
    told = text(program(quiet_ns=None, state="moves"), after_ns=None)
    assert "hangs" not in told
    assert "All work that was put on the device is done. The host is at train.py:40." in told


def test_a_process_that_is_stopped_is_told_to_be() -> None:
    assert "Process 100 is stopped, by a signal or a debugger." in text(program(state="stopped"), after_ns=None)


def test_control_characters_of_names_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in text(program(kernel(9, name="a\x1b[2J")), rank(0, 1, "b\x1b[2J"))
