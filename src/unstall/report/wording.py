"""The words that every renderer shares: safe text, places, the run in a line, the accounts in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import msgspec

from unstall.figures import duration, share
from unstall.result import IDLE_CAUSES, Accounts, Caller, Finding, Result, Source, Steps, WhatIf, Where

Struct = TypeVar("Struct", bound=msgspec.Struct)

BUSY_PARTS = ("compute", "both", "copy", "comm")
HARMLESS = "Not worth changing"
WRONG = "Bugs: what is computed may be wrong, from run to run differently"
INTEGRITY = "Integrity"
UNSOUND = "something is missing or damaged, so figures may be wrong"
_MARKS = {
    "optimizer": "optimizer steps",
    "loader": "batches handed on",
    "forward": "calls of the model",
    "explicit": "unstall.step()",
}
_BUSY_LABELS = {"both": "compute + copy"}
_MUCH = 0.05  # of the step: a plan that ends as far above the floor says of which findings no edit tells the gain
_NOTHING = 0.0005  # of the step, as where findings are not worth changing; smaller than what plans have in them
_LONGEST_NAME = 160  # templated kernel names run to thousands of characters


def plain(text: str) -> str:
    """`text` in one line, without control characters, bidi overrides and other invisible ones."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)


def short(text: str, longest: int = _LONGEST_NAME) -> str:
    """`plain(text)`, its middle left out where it is long."""
    text = plain(text)
    if len(text) <= longest:
        return text
    head = (longest - 1) // 2
    return f"{text[:head]}…{text[-(longest - 1 - head) :]}"


def map_texts(result: Struct, change: Callable[[str], str]) -> Struct:
    """The same result with `change` applied to every text in it."""

    def walk(raw: object) -> object:
        match raw:
            case str():
                return change(raw)
            case dict():
                return {key: walk(item) for key, item in raw.items()}
            case list() | tuple():
                return [walk(item) for item in raw]
            case _:
                return raw

    return msgspec.convert(walk(msgspec.to_builtins(result)), type(result))


def place(where: Where | Caller) -> str:
    """`train.py:41 in step`; `train.py:41 def step` where only the function's first line is known."""
    function = short(where.function or "")
    if not where.file:
        return function
    text = plain(where.file) if where.line is None else f"{plain(where.file)}:{where.line}"
    if not function:
        return text
    is_def = isinstance(where, Where) and where.line_is == "def"
    return f"{text} {'def' if is_def else 'in'} {function}"


def operator(where: Where) -> str:
    """The operator, where the place does not name it already."""
    op = short(where.op or "")
    return "" if op == place(where) else op


def origin(where: Where) -> str:
    """The place with all that is known about it: operator and caller."""
    parts = [place(where), operator(where)]
    if where.called_from:
        parts.append(f"called from {place(where.called_from)}")
    return " · ".join(part for part in parts if part) or "no source line known"


@dataclass(frozen=True, slots=True)
class Part:
    """One account: `key` is `compute`, … or an idle cause."""

    key: str
    label: str
    kind: Literal["busy", "idle"]
    ns: int


def parts(accounts: Accounts) -> list[Part]:
    """The accounts that are not zero: busy ones, then idle ones by size."""
    busy = [Part(key, _BUSY_LABELS.get(key, key), "busy", getattr(accounts.busy_ns, key)) for key in BUSY_PARTS]
    idle = [Part(key, f"idle: {key}", "idle", getattr(accounts.idle_ns, key)) for key in IDLE_CAUSES]
    idle.sort(key=lambda part: -part.ns)
    return [part for part in busy + idle if part.ns > 0]


def device_rows(result: Result) -> list[tuple[str, str, str]]:
    """(name, busy, idle with its largest cause) of each device, where there are several."""
    rows = []
    for device in result.by_device if len(result.by_device) > 1 else ():
        idle = idle_ns(device)
        cause = max(IDLE_CAUSES, key=lambda key: getattr(device.idle_ns, key))
        mostly = f", mostly {cause}" if idle else ""
        name = short(f"{device.device} {device.name or ''}".strip())
        rows.append((name, share(device.wall_ns - idle, device.wall_ns), share(idle, device.wall_ns) + mostly))
    return rows


def idle_ns(accounts: Accounts) -> int:
    """Device idle time over the window."""
    return sum(getattr(accounts.idle_ns, key) for key in IDLE_CAUSES)


def wrong(result: Result) -> list[Finding]:
    """The findings that are bugs rather than costs, in their order."""
    return [finding for finding in result.findings if finding.wrong]


def costly(result: Result) -> list[Finding]:
    """The findings worth acting on for what they cost, in their order."""
    return [finding for finding in result.findings if not finding.harmless and not finding.wrong]


def harmless(result: Result) -> list[Finding]:
    """The findings listed because people look for them."""
    return [finding for finding in result.findings if finding.harmless and not finding.wrong]


def often(result: Result, finding: Finding) -> str:
    """How often it was seen: "16x a step", "48x in 1 of 3 steps", "once in 5 steps"; nothing for once in all."""
    count, steps, seen = finding.count, result.steps.count, finding.steps_seen
    if finding.wrong:
        return f"{count:,}x in the whole run" if count > 1 else ""
    if steps == 1 or count == 0:
        return f"{count:,}x" if count > 1 else ""
    if count > 1 and seen is not None and seen < steps:
        return f"{count:,}x in {seen:,} of {steps:,} steps"
    if count % steps == 0:
        return f"{count // steps:,}x a step"
    return f"{f'{count:,}x' if count > 1 else 'once'} in {steps:,} steps"


def rate(result: Result, count: int) -> str:
    """A count over the window as a mean per step, in as many digits as tell small ones apart."""
    steps = max(result.steps.count, 1)
    if count % steps == 0 or count >= 10 * steps:
        return f"{round(count / steps):,}"
    return f"{count / steps:.1f}" if 20 * count >= steps else "<0.1"


def aside(result: Result, finding: Finding) -> str:
    """What stands beside a finding's title: how often it was seen, and how sure it is where that is not high."""
    sure = "" if finding.confidence == "high" else f"{finding.confidence} confidence"
    return ", ".join(part for part in (often(result, finding), sure) if part)


def over(result: Result) -> str:
    """What the figures of findings and lines are for."""
    return "in all" if result.steps.found_by == "whole" else "per step"


def footnote(result: Result) -> str:
    """What the words of findings stand for."""
    steps = result.steps.count
    gains = [finding.gain_ns for finding in costly(result)]
    unknown = ", - where no edit tells" if None in gains else ""
    words = (
        f"gain: what a step saves when it is mended{unknown}" if any(gain is not None for gain in gains) else "",
        "exposed: what the device lost because of it",
        f"saw: in all {steps:,} steps together" if steps > 1 else "",
    )
    return "; ".join(word for word in words if word)


def saved(gain_ns: int, step_ns: int) -> str:
    """What a step saves by a change: "2.00 ms", and "-2.00 ms" where it takes longer."""
    return "nothing" if _is_nothing(gain_ns, step_ns) else duration(gain_ns)


def gain_of(result: Result, finding: Finding) -> str:
    """What a step saves when the finding is mended; empty where that is not known."""
    if finding.gain_ns is None:
        return ""
    step_ns = result.replay.undistorted_mean_step_ns if result.replay else result.steps.mean_ns
    return duration(0 if _is_nothing(finding.gain_ns, step_ns) else finding.gain_ns)


def _is_nothing(gain_ns: int, step_ns: int) -> bool:
    """Whether a gain, or a loss, is too small to measure."""
    return abs(gain_ns) < _NOTHING * step_ns


class PlanRow(NamedTuple):
    """A line of the plan: what is changed where, what stopped a part of it, and the step time after it."""

    what: str
    where: str
    notes: tuple[str, ...]
    step: str
    gain: str


def plan_rows(result: Result) -> list[PlanRow]:
    """The plan, from the step without the recorder to the floor; nothing without a plan."""
    if not result.plan or result.replay is None:
        return []
    how = {
        "plain step time": "as measured",
        "host-only steps": "its host timed alone",
        "usual cost": "estimated",
        "nothing": "with the recorder",
    }
    replay = result.replay
    start = f"as it is, {'simulated' if result.source.simulated else how[replay.undistorted_by]}"
    rows = [PlanRow(start, "", (), duration(replay.undistorted_mean_step_ns), "")]
    for number, step in enumerate(result.plan, 1):
        name, _, where = step.edit.partition(":")
        where = where.removeprefix("-:-:")  # without stacks the operator alone is the place
        gain = saved(step.gain_ns, replay.undistorted_mean_step_ns)
        rows.append(PlanRow(f"{number}. {name}", plain(where), step.notes, duration(step.step_ns), gain))
    if result.floor_ns is not None:
        rows.append(PlanRow("the floor: the device's own busy time then", "", (), duration(result.floor_ns), ""))
        of = costly(result)
        left = [f"finding {number} (exposed {duration(of[number - 1].exposed_ns)})" for number in unplanned(result)]
        if left:
            rows.append(PlanRow(f"what lies between is not modelled: {', '.join(left)}", "", (), "", ""))
    return rows


def unplanned(result: Result) -> list[int]:
    """The numbers, from 1 on, of the costly findings that cost much and of which no edit tells the gain, where the plan
    ends far above the floor."""
    if not result.plan or result.replay is None or result.floor_ns is None:
        return []
    much_ns = _MUCH * result.replay.undistorted_mean_step_ns
    if result.plan[-1].step_ns - result.floor_ns < much_ns:
        return []
    numbered = enumerate(costly(result), 1)
    return [number for number, each in numbered if each.gain_ns is None and each.exposed_ns >= much_ns]


def same_advice(findings: Sequence[Finding]) -> list[int | None]:
    """For each finding the number, from 1 on, of the first before it with the same advice."""
    first: dict[tuple[str, str], int] = {}
    numbers = [first.setdefault((finding.fix, finding.safe_if), i) for i, finding in enumerate(findings, 1)]
    return [number if number < i else None for i, number in enumerate(numbers, 1)]


def has_device_work(result: Result) -> bool:
    """Whether there was anything for findings to be about."""
    return result.verdict.bound_by != "none"


def said(text: str) -> bool:
    """Whether a rule had anything to say: a dash stands for nothing."""
    return plain(text).strip(" -—") != ""


def device_of(source: Source) -> str | None:
    """The device's name, and that it was a virtual one where it was."""
    if not source.simulated:
        return source.device
    return f"simulated for {source.device}" if source.device else "simulated"


def run_lines(result: Result | WhatIf) -> list[str]:
    """The steps, and of a simulated run how far off such times were on known programs."""
    known = result.source.known_error
    return [steps_line(result), *([f"known error: {plain(known)}"] if known else [])]


def source_line(result: Result | WhatIf) -> str:
    """What was recorded or simulated, and with what."""
    source = result.source
    rank = None
    if source.rank is not None:
        rank = f"rank {source.rank}" + (f" of {source.world_size}" if source.world_size else "")
    known = (
        device_of(source),
        f"torch {source.torch}" if source.torch else None,
        f"CUDA {source.cuda}" if source.cuda else None,
        rank,
        f"{source.host_events:,} host events",
        f"{source.device_ops:,} device ops",
    )
    return " · ".join(short(part) for part in known if part)


def steps_name(steps: Steps) -> str:
    """What marks a step, as people call it: AdamW.step rather than torch's Optimizer.step#AdamW.step."""
    name = steps.name or ""
    return name.removeprefix("Optimizer.step#") if steps.found_by == "optimizer" else name


def steps_line(result: Result | WhatIf) -> str:
    """How many steps, how long, and how they were told apart."""
    steps = result.steps
    name = f" {short(steps_name(steps))}" if steps.name else ""
    if not steps.wall_ns:
        return "nothing ran" if result.source.simulated else "nothing was recorded"
    if steps.found_by == "whole":
        return f"the whole run of {duration(steps.wall_ns)}, in which no steps were found"
    found = {
        "annotation": f"annotation{name}",
        "optimizer": f"optimizer step{name}",
        "period": f"the period of the launches{name and ' of' + name}",
    }[steps.found_by]
    count = "1 step" if steps.count == 1 else f"{steps.count:,} steps"
    return f"{count} of {duration(steps.mean_ns)}, told apart by {_MARKS[steps.marks] if steps.marks else found}"


def per_step(result: Result, window_ns: int) -> int:
    """A sum over the window as a mean per step."""
    return round(window_ns / max(result.steps.count, 1))
