"""Baselines: times in a file, `unstall.bench-baseline/1`, that later ones are held against.

Both have an interval, but a machine differs from run to run by more than its samples tell: a budget is to allow for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from unstall._version import __version__
from unstall.errors import TraceError
from unstall.files import write_atomically
from unstall.measuring.statistics import Interval, Spread, ratio_interval

SCHEMA: Literal["unstall.bench-baseline/1"] = "unstall.bench-baseline/1"
_MOST = 500  # samples kept of one time
_LEAST_NS = 0.01  # shorter cannot be told from nothing


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One time, ns."""

    by: str  # "device", "wall" or "throughput"
    cache: str
    device: str
    version: str
    median_ns: float
    samples_ns: list[float]


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A file of it: entries by label."""

    schema: Literal["unstall.bench-baseline/1"] = SCHEMA
    entries: dict[str, Entry]


@dataclass(frozen=True, slots=True)
class Held:
    """A time held against its entry: `ratio` is of now to then."""

    label: str
    ratio: Interval
    now_ns: float
    then_ns: float

    def is_slower(self, by: float) -> bool:
        """Whether it is slower by more than this share, and that is not chance, as far as the samples tell."""
        return self.ratio.median > 1 + by and self.ratio.low > 1


def entry(spread: Spread, *, by: str, cache: str, device: str) -> Entry:
    """Of these samples, or as many of them, evenly chosen, as a file is to hold."""
    samples = spread.samples[np.linspace(0, spread.n - 1, min(spread.n, _MOST)).round().astype(np.int64)]
    return Entry(
        by=by, cache=cache, device=device, version=__version__, median_ns=spread.median, samples_ns=samples.tolist()
    )


def read(path: str | Path) -> Baseline:
    """Raises TraceError where there is none, or something else."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Baseline)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}. Make a baseline with --save-baseline {path}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: not a baseline of unstall ({SCHEMA}): {error}") from error


def save(path: str | Path, entries: dict[str, Entry]) -> None:
    """Add them to the file, in place of those of the same labels. Raises TraceError for a file of something else."""
    there = read(path).entries if Path(path).exists() else {}
    data = msgspec.json.encode(Baseline(entries={**there, **entries}), order="sorted")
    write_atomically(path, msgspec.json.format(data, indent=1) + b"\n")


def held_against(path: str | Path, entries: dict[str, Entry]) -> list[Held]:
    """Each of these against that of the same label. Raises TraceError where one is missing, or of another kind."""
    there = read(path).entries
    found = []
    for label, now in entries.items():
        then = there.get(label)
        if then is None:
            raise TraceError(f"{path}: there is nothing of {label!r} in it. Add it with --save-baseline {path}")
        for what in ("by", "cache", "device"):
            one, other = getattr(then, what), getattr(now, what)
            if one != other:
                name = {"by": "time", "cache": "cache", "device": "device"}[what]
                raise TraceError(f"{path}: {label!r} cannot be compared: its {name} was {one!r}, and is {other!r} now")
        a, b = (np.maximum(each.samples_ns, _LEAST_NS) for each in (now, then))
        found.append(Held(label, ratio_interval(a, b, pairs=False), now.median_ns, then.median_ns))
    return found
