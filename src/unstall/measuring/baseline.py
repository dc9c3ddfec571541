"""Reads and writes baselines. A baseline is a file of times that were measured earlier
(`unstall.bench-baseline/1`), with which new times are compared.

Both the old and the new time have a confidence interval. But even on one machine, the times of two
runs differ by more than these intervals show. So a limit for the new time must allow for this
difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from unstall._version import __version__
from unstall.decoding import from_json
from unstall.errors import TraceError
from unstall.files import write_atomically
from unstall.measuring.statistics import Interval, Spread, ratio_interval

SCHEMA: Literal["unstall.bench-baseline/1"] = "unstall.bench-baseline/1"
_MOST = 500  # most samples kept for one time
_LEAST_NS = 0.01  # shorter times count as this, so that ratios exist


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One measured time in a baseline file, with its samples.

    Attributes:
        by: Which time was measured: "device", "wall" or "throughput".
        cache: The state of the cache before each call: "cold", "hot" or "rotate".
        device: The name of the device.
        version: The version of unstall that measured the time.
        median_ns: The median of the samples in ns.
        samples_ns: The samples in ns: at most 500 of those that were taken.
    """

    by: str  # "device", "wall" or "throughput"
    cache: str
    device: str
    version: str
    median_ns: float
    samples_ns: list[float]


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a baseline file. `entries` maps the label of a measurement to its time."""

    schema: Literal["unstall.bench-baseline/1"] = SCHEMA
    entries: dict[str, Entry]


@dataclass(frozen=True, slots=True)
class Held:
    """A new time, compared with the old time of the same label in a baseline file. `ratio` is the
    new time divided by the old time, `now_ns` the median of the new time, and `then_ns` the median
    of the old time.
    """

    label: str
    ratio: Interval
    now_ns: float
    then_ns: float

    def is_slower(self, by: float) -> bool:
        """Returns whether the new time is slower than the old one by more than the fraction `by`.
        This is so if the ratio of their medians is above `1 + by`, and the lower end of the ratio's
        confidence interval is above 1.
        """
        return self.ratio.median > 1 + by and self.ratio.low > 1


def entry(spread: Spread, *, by: str, cache: str, device: str) -> Entry:
    """Returns an entry for a baseline file. The entry has at most 500 of the samples, evenly spaced
    in sorted order.

    Args:
        spread: The measured time, with its samples.
        by: Which time was measured: "device", "wall" or "throughput".
        cache: The state of the cache before each call: "cold", "hot" or "rotate".
        device: The name of the device.
    """
    samples = spread.samples[np.linspace(0, spread.n - 1, min(spread.n, _MOST)).round().astype(np.int64)]
    return Entry(
        by=by, cache=cache, device=device, version=__version__, median_ns=spread.median, samples_ns=samples.tolist()
    )


def read(path: str | Path) -> Baseline:
    """Reads a baseline file.

    Raises:
        TraceError: The file is missing, or is not a baseline.
    """
    try:
        return from_json(Path(path).read_bytes(), Baseline)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}. Make a baseline with --save-baseline {path}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: not a baseline of unstall ({SCHEMA}): {error}") from error


def save(path: str | Path, entries: dict[str, Entry]) -> None:
    """Adds entries to a baseline file, by their labels. An entry of the file that has the label of
    a new entry is replaced. Creates the file if it is missing.

    Raises:
        TraceError: The file exists and is not a baseline.
    """
    there = read(path).entries if Path(path).exists() else {}
    data = msgspec.json.encode(Baseline(entries={**there, **entries}), order="sorted")
    write_atomically(path, msgspec.json.format(data, indent=1) + b"\n")


def held_against(path: str | Path, entries: dict[str, Entry]) -> list[Held]:
    """Compares each of `entries`, which are given by their labels, with the entry of the same label
    in a baseline file.

    Raises:
        TraceError: The file has no entry with such a label. Or the old and the new entry differ in
            `by`, in `cache` or in `device`.
    """
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
