"""Stacks of Python's threads, as faulthandler writes them."""

from __future__ import annotations

from unstall.blaming.hangs.stacks import collective_in, parse, users_line

DUMP = """Thread 0x00007f00aa (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/home/me/load\\xe9r.py", line 7 in fetch
  File "<string>", line 1 in <module>

Current thread 0x00007f00bb (most recent call first):
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 90 in _wait
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 80 in all_reduce
  File "/x/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/home/me/train.py", line 12 in step
  ...
"""


def test_each_thread_has_its_frames_innermost_first() -> None:
    first, second = parse(DUMP)
    assert (first.thread, second.thread) == (0x7F00AA, 0x7F00BB)
    assert [frame.line for frame in second.frames] == [90, 80, 83, 12]


def test_names_of_files_are_as_they_were() -> None:
    assert parse(DUMP)[0].frames[1].file == "/home/me/loadér.py"


def test_the_users_line_is_the_innermost_that_no_package_has() -> None:
    lines = [users_line(stack.frames) for stack in parse(DUMP)]
    assert [line.line for line in lines if line] == [7, 12]


def test_the_collective_is_the_public_function_that_ranks_wait_in() -> None:
    assert [collective_in(stack.frames) for stack in parse(DUMP)] == ["", "all_reduce"]


def test_what_is_no_dump_has_no_stacks() -> None:
    assert parse('\x00\xff garbage\n  File "x", line 1 in f\n') == []


def test_a_thread_without_a_frame_has_no_stack() -> None:
    dump = "Current thread 0x00007f00cc (most recent call first):\n  <no Python frame>\n\n"
    assert [stack.thread for stack in parse(dump + DUMP)] == [0x7F00AA, 0x7F00BB]
