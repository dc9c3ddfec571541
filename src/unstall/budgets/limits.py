"""The kinds of budgets: their options, and how a limit is read and written."""

# Each verb with budgets imports this for its --help, so it imports little.
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unstall.figures import decimal_size, duration, parse_duration, parse_ms, parse_share, parse_size, parse_whole, size


@dataclass(frozen=True, slots=True)
class Limit:
    """One kind of limit that a budget can set.

    Attributes:
        option: The name of the command-line option, without its dashes. It is also the key in
            pyproject.toml.
        field: The name of the field of `Budget` for this limit.
        name: What is limited, in words: "waits per step".
        metavar: The placeholder for the option's value in the help text.
        help: The help text of the option.
        parse: A function that converts the user's text to a limit, and raises UsageError if the
            text is invalid. None if the option takes no value. In this case the limit is 0.
        shown: A function that converts a limit to text for reports.
    """

    option: str
    field: str
    name: str
    metavar: str
    help: str
    parse: Callable[[str], float] | None
    shown: Callable[[float], str]


def count_shown(count: float) -> str:
    return f"{count:,.0f}"


def races_shown(count: float) -> str:
    return count_shown(count) if count else "none"


def size_like(limit: float, count: float) -> str:
    """Returns `count` bytes as text. The unit is decimal (such as GB) if `limit` is a multiple of
    1000 bytes, and binary (such as GiB) if it is not.
    """
    return (size if limit % 1000 else decimal_size)(int(count))


def _time(ns: float) -> str:
    return duration(round(ns))


SYNCS_PER_STEP = Limit(
    option="max-syncs-per-step",
    field="syncs_per_step",
    name="waits per step",
    metavar="N",
    help="how often the host may wait for the GPU in any step: .item(), synchronize(), blocking copies",
    parse=parse_whole,
    shown=count_shown,
)
LAUNCHES_PER_STEP = Limit(
    option="max-launches-per-step",
    field="launches_per_step",
    name="launches per step",
    metavar="N",
    help="how many kernels, graphs, copies and memsets the host may launch in any step",
    parse=parse_whole,
    shown=count_shown,
)
IDLE = Limit(
    option="max-idle",
    field="idle",
    name="device idle",
    metavar="PERCENT",
    help="the share of a step that the GPU may idle, such as 10%%",
    parse=parse_share,
    shown=lambda fraction: f"{100 * fraction:g} %",
)
EXPOSED = Limit(
    option="max-exposed",
    field="exposed_ns",
    name="exposed by one finding",
    metavar="TIME",
    help="how much GPU time per step a single finding may waste, such as 500us",
    parse=parse_duration,
    shown=_time,
)
STEP = Limit(
    option="max-step-ms",
    field="step_ns",
    name="step time",
    metavar="MS",
    help="how many milliseconds a step may take on average",
    parse=parse_ms,
    shown=_time,
)
RESERVED = Limit(
    option="max-reserved",
    field="reserved_bytes",
    name="reserved memory",
    metavar="BYTES",
    help="how much memory torch may reserve on any one GPU, such as 2GB or 512MiB",
    parse=parse_size,
    shown=lambda count: size_like(count, count),
)
RACES = Limit(
    option="no-races",
    field="races",
    name="races",
    metavar="",
    help="forbid races between streams, and between GPU and host",
    parse=None,
    shown=races_shown,
)

LIMITS = (SYNCS_PER_STEP, LAUNCHES_PER_STEP, IDLE, EXPOSED, STEP, RESERVED, RACES)
"""All kinds of limits, in the order in which reports show them."""
