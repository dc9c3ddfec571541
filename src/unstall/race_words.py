"""The names of the kinds of races on a GPU, and advice on how to remove a race. Both are used for
races on a virtual GPU and for races on a real GPU.
"""

from __future__ import annotations

from unstall.timeline.columns import RaceKind

TITLES = {
    RaceKind.READ_EARLY: "Race: read before the write has finished",
    RaceKind.WRITTEN_TWICE: "Race: written twice, in no order",
    RaceKind.OVERWRITTEN_EARLY: "Race: overwritten before the read has finished",
    RaceKind.REUSED: "Race: freed memory is reused while another stream still uses it",
    RaceKind.TAKEN_EARLY: "Race: memory is used on a stream that does not wait for the stream that allocated it",
}
_ACCESSES = {
    RaceKind.READ_EARLY: ("reads", "writes"),
    RaceKind.WRITTEN_TWICE: ("writes", "writes"),
    RaceKind.OVERWRITTEN_EARLY: ("writes", "reads"),
    RaceKind.REUSED: ("uses", "uses"),
    RaceKind.TAKEN_EARLY: ("uses", "uses"),
}


def name_of(kind: RaceKind) -> str:
    """Returns the name that reports give a kind of race, such as "read-early"."""
    return kind.name.lower().replace("_", "-")


def kind_named(name: str) -> RaceKind:
    """Returns the kind of race to which reports give the name `name`, such as "read-early"."""
    return RaceKind[name.upper().replace("-", "_")]


def saw(kind: RaceKind, earlier: str, later: str, amount: str) -> str:
    """Returns a clause, such as "B writes 4 KiB that A may not have read yet: nothing orders the
    two". The clause tells what the two accesses of a race do.

    Args:
        kind: The kind of race.
        earlier: Description of the access that was issued first.
        later: Description of the access that was issued second.
        amount: The amount of memory that both accesses use, as text.
    """
    does, did = _ACCESSES[kind]
    still = f"{earlier} may not have {'read' if did == 'reads' else 'written'} yet"
    if did == "uses":
        still = f"{earlier} may still be using for the tensor that was there before"
    return f"{later} {does} {amount} that {still}: nothing orders the two"


def fix_of(kind: RaceKind, earlier: str | None, later: str | None) -> str:
    """Returns advice, as text, on how to change the program so that it no longer has the race.

    Args:
        kind: The kind of race.
        earlier: Name of the stream of the access that was issued first; None if the host made this
            access.
        later: Name of the stream of the access that was issued second; None if the host made this
            access.
    """
    if later is None or earlier is None:
        before = "reading" if kind == RaceKind.READ_EARLY else "writing to the buffer again"
        return (
            f"wait for the copy before {before}: event.record() after it and event.synchronize(), or "
            "stream.synchronize(); or copy without non_blocking=True"
        )
    if kind == RaceKind.REUSED:
        return (
            f"tensor.record_stream(stream) for {earlier}, before the tensor is freed; or let {later} wait for it "
            "before that: stream.wait_stream(other)"
        )
    return f"let {later} wait for {earlier} in between: stream.wait_stream(other), or an event's record() and wait()"
