"""`Wait`: one wait of the CPU for the GPU, and the sentence that says so."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.guarding.kinds import WORDS, Kind

_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1))


class SyncWarning(UserWarning):
    """Warns that the CPU waits for the GPU in a block under `unstall.no_sync("warn")`."""

    def __init__(self, text: str, wait: Wait | None = None) -> None:
        super().__init__(text)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of the CPU for the GPU.

    Attributes:
        kind: What the CPU waits for: one of `unstall.guarding.kinds.KINDS`.
        operator: The operator or function that waits: "aten::item", "torch.cuda.synchronize".
        file: The file of the innermost frame that is not a framework's, as reports print it; "" if that is not known.
        line: The line in `file`; 0 if that is not known.
        function: The name of the function that contains the line.
        called_from: "FILE:LINE" of the innermost frame in the program's own code, if `file` belongs to an installed
            package; else "".
        code: The source of the call that waits: "loss.item()"; "" if that is not known.
        rule: The name of the rule by which `unstall explain` finds such waits.
        advice: What to do instead in most cases.
        duration_ns: How long the wait was; None if that is not known, or the wait was refused or has not ended.
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
        """The line as "FILE:LINE"."""
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
    """Formats a duration, rounded to 1 or 3 times a power of ten. With exact durations, the warnings of a line would
    all have different texts, and Python would show each of them."""
    power = int(10 ** (len(str(ns)) - 1))
    times = ns / power
    rounded = power if times < 2 else 3 * power if times < 6.5 else 10 * power
    unit, size = next((each for each in _UNITS if rounded >= each[1]), _UNITS[-1])
    return f"{rounded / size:g} {unit}"
