"""`Wait`: one wait of the CPU for the GPU, and the sentence that describes the wait."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.guarding.kinds import WORDS, Kind

_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1))


class SyncWarning(UserWarning):
    """A warning that the CPU waited for the GPU in a block under `unstall.no_sync("warn")`.

    Attributes:
        wait: The wait. None if nothing more is known about it.
    """

    def __init__(self, text: str, wait: Wait | None = None) -> None:
        super().__init__(text)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of the CPU for the GPU.

    Attributes:
        kind: What the CPU waits for: one of `unstall.guarding.kinds.KINDS`.
        operator: The name of the operator or function that waits, for example "aten::item" or "torch.cuda.synchronize".
        file: The path of the source file of the innermost Python frame that does not belong to a framework, shortened
            as in reports. "" if the file is not known.
        line: The number of the line in `file` that waits. 0 if the line is not known.
        function: The name of the function that contains `line`.
        called_from: The text "FILE:LINE" for the innermost frame in the user's code, if `file` belongs to an installed
            package. Otherwise "".
        code: The source text of the call that waits, such as "loss.item()". "" if the text is not known.
        rule: The name of the rule by which `unstall explain` finds waits of this sort.
        advice: What the user can usually do instead of the wait.
        duration_ns: The length of the wait in ns. None if the length is not known, if the wait was refused, or if the
            wait has not ended.
    """

    kind: Kind
    operator: str
    file: str
    line: int
    function: str
    called_from: str
    code: str
    rule: str
    advice: str
    duration_ns: int | None = None

    @property
    def where(self) -> str:
        """The line that waits, as "FILE:LINE". If the file is not known, the text "a thread without Python code"."""
        return f"{self.file}:{self.line}" if self.file else "a thread without Python code"

    def __str__(self) -> str:
        words = WORDS[self.kind]
        verb = "waits" if self.duration_ns is None else f"waited about {_about(self.duration_ns)}"
        caller = f", called from {self.called_from}" if self.called_from else ""
        return (
            f"{self.where}: {self.code or self.operator} {verb} for {words.waits_for} "
            f"({self.operator} → {words.does}{caller}). {self.advice[:1].upper()}{self.advice[1:]}."
        )


def _about(ns: int) -> str:
    """Formats a duration, rounded to a power of ten or to three times a power of ten. If durations were exact, all
    warnings of a line would have different texts, and Python would show each of these warnings. With rounded durations,
    Python shows only the first of several equal warnings."""
    power = int(10 ** (len(str(ns)) - 1))
    times = ns / power
    rounded = power if times < 2 else 3 * power if times < 6.5 else 10 * power
    unit, size = next((each for each in _UNITS if rounded >= each[1]), _UNITS[-1])
    return f"{rounded / size:g} {unit}"
