"""A program waits on the virtual clock for the threads that it joins."""

from __future__ import annotations

from virtual.entry.running import facts


def test_the_program_goes_on_when_the_thread_has_ended_and_always_at_the_same_time() -> None:
    told = facts("joined", "-m", "unstall.virtual", "--gpu", "h200")
    (taken,) = {*told["in a thread"]}
    assert told["here"] > 500_000
    assert told["beside"] < 10_000
    assert told["here"] < taken < 1.3 * told["here"]
