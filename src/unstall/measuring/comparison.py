"""`Comparison`: the result of comparing several functions. The first of the functions is the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from unstall._version import __version__
from unstall.measuring.comparing.agreement import Agreement
from unstall.measuring.comparing.rounds import Answer
from unstall.measuring.comparing.turns import By
from unstall.measuring.measurement import Cache
from unstall.measuring.statistics import Interval, Spread

SCHEMA = "unstall.compare/1"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of the compared functions. The first function is the reference.

    Attributes:
        name: The function's name.
        time: The function's time per call, in ns.
        ratio: The function's time, divided by the reference's time.
        answer: FAST, SLOW, SAME or UNCLEAR, compared with the reference. None for the reference
            itself.
        best: Whether the function is one of the best. These are the fastest function and each
            function that is not SLOW compared with the fastest. A function does not count if its
            results do not agree with the reference's.
        agreement: How the function's results agree with the reference's results. None for the
            reference itself. Also None if results were not checked.
    """

    name: str
    time: Spread
    ratio: Interval
    answer: Answer | None
    best: bool
    agreement: Agreement | None = None

    @property
    def agrees(self) -> bool:
        """Whether this function's results agree with the first function's results. True if results were not checked."""
        return self.agreement is None or self.agreement.agrees


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of `compare` for one input. `by` is the time that was compared. `because` is the
    reason for this choice if the caller did not make it, and "" if the caller did.
    """

    label: str
    candidates: tuple[Candidate, ...]
    by: By
    cache: Cache
    margin: float
    rounds: int
    stopped: str
    because: str = ""  # why this time was compared, if it was chosen automatically
    notes: tuple[str, ...] = ()
    device_name: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Candidate:
        """Returns the candidate (one of the compared functions) with this name.

        Raises:
            KeyError: There is no candidate with this name.
        """
        for candidate in self.candidates:
            if candidate.name == name:
                return candidate
        raise KeyError(name)

    @property
    def answer(self) -> Answer | None:
        """FAST, SLOW, SAME or UNCLEAR: how the last function compares with the first function. With
        two functions, the last one is the second.
        """
        return self.candidates[-1].answer

    @property
    def agrees(self) -> bool:
        """Whether the results of all functions agree with the first function's results. Results that were not checked
        count as agreeing.
        """
        return all(candidate.agrees for candidate in self.candidates)


def data_of(rows: Sequence[Comparison]) -> dict[str, object]:
    """Returns the comparisons as plain data of schema `unstall.compare/1`. Times are in ns, with all samples."""
    return {"schema": SCHEMA, "version": __version__, "comparisons": [_plain(row) for row in rows]}


def _plain(row: Comparison) -> dict[str, Any]:
    plain = {
        name: getattr(row, name)
        for name in ("label", "by", "because", "cache", "margin", "rounds", "stopped", "notes", "versions")
    }
    return {**plain, "device": row.device_name, "candidates": [_candidate(each) for each in row.candidates]}


def _candidate(each: Candidate) -> dict[str, Any]:
    time = each.time
    return {
        "name": each.name,
        "answer": each.answer,
        "best": each.best,
        "ratio": asdict(each.ratio),
        "agreement": None if each.agreement is None else _finite(asdict(each.agreement)),
        "time_ns": {
            **{name: getattr(time, name) for name in ("n", "median", "low", "high", "q1", "q3", "mean")},
            "samples": time.samples.tolist(),
        },
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Replaces infinite values and NaN by text, because JSON has neither."""
    return {name: str(value) if value in (float("inf"),) or value != value else value for name, value in values.items()}
