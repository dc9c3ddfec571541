"""Notes of a virtual run's timeline: how the times of the host were worked out, and what the values
are that the program computes.
"""

from __future__ import annotations

from collections.abc import Sequence

from unstall.figures import counted, duration, listed
from unstall.virtual.log import Stack
from unstall.virtual.options import HostClock, Numerics
from unstall.virtual.own_place import own_place
from unstall.virtual.simulation.free_work import longest
from unstall.virtual.simulation.simulate import Simulation

_VALUES: dict[Numerics, str] = {
    "real": "values are the CPU's; --numerics device rounds and adds up as a GPU does",
    "skip": "large tensors have no values",
    "device": "values are rounded and added up as on a GPU, though not in the order of the real one",
}
"""For each setting of `--numerics`, the note on the values that the program computes."""

_MOST_NAMED = 4  # lines

_MODELLED = (
    "the host's work is modelled: Python calls, torch's operators, also those on the CPU, and pinning. All else that "
    "the program computes (NumPy, loops, decoding, DataLoader workers) takes no time"
)
_NOT_CHARGED_NS = 10_000_000
"""How much work of the host, in ns, must have taken no virtual time for a note to mention it."""


def values_notes(
    numerics: Numerics, unknown_reads: Sequence[Stack], assumed_finds: Sequence[Stack], folder: str
) -> list[str]:
    """Returns notes on the values that the program computes, and on its uses of values that were not
    computed.

    Args:
        numerics: The setting of `--numerics`.
        unknown_reads: The stacks at which the program read values that were not computed.
        assumed_finds: The stacks at which the program searched such values, as by `nonzero()` or a
            mask.
        folder: The folder in which the program was started.
    """
    read, searched = _lines(unknown_reads, folder), _lines(assumed_finds, folder)
    note = _VALUES[numerics]
    if read:
        note += (
            f", and the program reads some as 0: at {read}. A branch there may go another way than on a GPU; "
            "--numerics real computes all values"
        )
    if not searched:
        return [note]
    return [
        note,
        "half of the elements are assumed to be found where the program searches values that were not computed, as by "
        f"nonzero() or a mask: at {searched}. What follows has the kernels and the memory of so many; --numerics real "
        "finds those that a GPU would",
    ]


def division_notes(divisions: Sequence[Stack], folder: str) -> list[str]:
    """Returns a note on the program's divisions of integers by zero, if there are any.

    Args:
        divisions: The stacks at which the program divided integers by zero.
        folder: The folder in which the program was started.
    """
    lines = _lines(divisions, folder)
    if not lines:
        return []
    return [
        f"integers are divided by zero, at {lines}: CUDA raises no error, and leaves the result undefined. Here it is "
        "an H200's"
    ]


def _lines(stacks: Sequence[Stack], folder: str) -> str:
    """Returns the program's lines in these stacks, as a list in words; "" if there is none."""
    places = (own_place(stack, folder) for stack in stacks)
    lines = list(dict.fromkeys(place[0] for place in places if place is not None))
    more = [counted(len(lines) - _MOST_NAMED, "more line")] if len(lines) > _MOST_NAMED else []
    return listed([*lines[:_MOST_NAMED], *more]) if lines else ""


def host_note(simulation: Simulation, stacks: Sequence[Stack], host: HostClock, folder: str) -> str:
    """Returns the note on how the times of the host were worked out, and on work of the host that
    took no virtual time.

    Args:
        simulation: The simulated run.
        stacks: The call stacks of the log, by number.
        host: The setting of `--host`.
        folder: The folder in which the program was started.
    """
    if host == "measured":
        return "the host's work takes as long as it took here, without what torch computed in place of the GPU"
    if host == "mixed":
        return (
            "the host's work is modelled if it involves the GPU; all else (NumPy, operators on the CPU, loops, other "
            f"libraries) takes as long as it took here, times {simulation.clock.scale:g}: the host's scale, by how "
            "long the modelled host and this one take for products and sums on the CPU"
        )
    free = simulation.clock.free
    if free.total_ns < _NOT_CHARGED_NS:
        return f"{_MODELLED}; --host mixed charges it"
    before, after, _, ns = free.whole()
    pair, took = longest(before, after, ns)
    where = place_of(pair, stacks, folder)
    most = f", {duration(took)} of it {where}" if where else ""
    return f"{_MODELLED}: here it took {duration(free.total_ns)}{most}. --host mixed charges it"


def place_of(pair: tuple[int, int], stacks: Sequence[Stack], folder: str) -> str:
    """Returns words for where work lies: "at train.py:4", or between which two lines; "" if this is unknown.

    Args:
        pair: The numbers of the call stacks before and after the work; -1 if unknown.
        stacks: The call stacks of the log, by number.
        folder: The folder in which the program was started.
    """
    places = [own_place(stacks[number] if number >= 0 else (), folder) for number in pair]
    before, after = (place[0] if place is not None else "" for place in places)
    return f"at {after}" if before in ("", after) and after else f"between {before} and {after}" if after else ""
