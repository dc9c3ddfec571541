"""Converts a `Measurement` to its versioned JSON form, `unstall.bench/1`, and back. Times are in ns."""

from __future__ import annotations

from typing import Any

import msgspec

from unstall.decoding import from_json
from unstall.errors import TraceError
from unstall.measuring.measurement import KINDS, SCHEMA, Cache, Clocks, Measurement, Method, Rate, Verdict
from unstall.measuring.statistics import Spread

_TIMES = ("device", "host", "wall", "throughput", "span")


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """One time of a saved measurement, with its samples in `samples_ns`.

    All other fields are computed from `samples_ns`. They are saved for other programs that read the
    file.
    """

    samples_ns: list[float]
    n: int
    median_ns: float
    low_ns: float
    high_ns: float
    q1_ns: float
    q3_ns: float
    mean_ns: float


class SavedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    text: str
    place: str | None
    serious: bool


class SavedRate(msgspec.Struct, frozen=True, kw_only=True):
    per_second: float
    unit: str
    ceiling: float | None
    percent: float | None
    of: str


class SavedClocks(msgspec.Struct, frozen=True, kw_only=True):
    before_mhz: int
    after_mhz: int
    highest_mhz: int
    held_down_by: list[str]


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement in the form in which it is saved, with schema `unstall.bench/1`."""

    schema: str
    label: str
    method: Method
    cache: Cache
    device: Samples | None
    host: Samples
    wall: Samples
    throughput: Samples | None
    span: Samples | None
    device_ops: float | None
    stopped: str
    first_call_ns: int
    compiled_ns: int | None
    verdicts: list[SavedVerdict]
    bandwidth: SavedRate | None
    rate: SavedRate | None
    device_name: str
    clocks: SavedClocks | None
    versions: dict[str, str]
    notes: list[str]


def saved(measurement: Measurement) -> Saved:
    """Returns a measurement in the form in which it is saved."""
    each: dict[str, Any] = {name: _samples(getattr(measurement, name)) for name in _TIMES}
    clocks = measurement.clocks
    return Saved(
        schema=SCHEMA,
        label=measurement.label,
        method=measurement.method,
        cache=measurement.cache,
        device_ops=measurement.device_ops,
        stopped=measurement.stopped,
        first_call_ns=measurement.first_call_ns,
        compiled_ns=measurement.compiled_ns,
        verdicts=[
            SavedVerdict(kind=each.kind, text=each.text, place=each.place, serious=each.serious)
            for each in measurement.verdicts
        ],
        bandwidth=_rate(measurement.bandwidth),
        rate=_rate(measurement.rate),
        device_name=measurement.device_name,
        clocks=SavedClocks(
            before_mhz=clocks.before,
            after_mhz=clocks.after,
            highest_mhz=clocks.highest,
            held_down_by=list(clocks.held_down_by),
        )
        if clocks
        else None,
        versions=dict(measurement.versions),
        notes=list(measurement.notes),
        **each,
    )


def read(text: str | bytes) -> Measurement:
    """Returns the measurement that `text`, the content of a file, has saved.

    Raises:
        TraceError: The text is not a saved measurement.
    """
    try:
        found = from_json(text, Saved)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"not a measurement of unstall ({SCHEMA}): {error}") from error
    if found.schema != SCHEMA:
        raise TraceError(f"not a measurement of unstall ({SCHEMA}): its schema is {found.schema!r}")
    return of(found)


def of(found: Saved) -> Measurement:
    """Returns the measurement that was saved as `found`.

    Raises:
        TraceError: A time has no samples.
    """
    try:
        each: dict[str, Any] = {
            name: Spread.of(samples.samples_ns) if (samples := getattr(found, name)) is not None else None
            for name in _TIMES
        }
    except ValueError as error:
        raise TraceError(f"not a measurement of unstall: {error}") from error
    kinds: dict[str, Any] = {kind: kind for kind in KINDS}
    clocks = found.clocks
    return Measurement(
        label=found.label,
        method=found.method,
        cache=found.cache,
        device_ops=found.device_ops,
        stopped=found.stopped,
        first_call_ns=found.first_call_ns,
        compiled_ns=found.compiled_ns,
        verdicts=tuple(
            Verdict(kinds[each.kind], each.text, each.place, each.serious)
            for each in found.verdicts
            if each.kind in kinds
        ),
        bandwidth=_read_rate(found.bandwidth),
        rate=_read_rate(found.rate),
        device_name=found.device_name,
        clocks=Clocks(clocks.before_mhz, clocks.after_mhz, clocks.highest_mhz, tuple(clocks.held_down_by))
        if clocks
        else None,
        versions=found.versions,
        notes=tuple(found.notes),
        **each,
    )


def _samples(spread: Spread | None) -> Samples | None:
    if spread is None:
        return None
    return Samples(
        samples_ns=spread.samples.tolist(),
        n=spread.n,
        median_ns=spread.median,
        low_ns=spread.low,
        high_ns=spread.high,
        q1_ns=spread.q1,
        q3_ns=spread.q3,
        mean_ns=spread.mean,
    )


def _rate(rate: Rate | None) -> SavedRate | None:
    if rate is None:
        return None
    return SavedRate(per_second=rate.per_second, unit=rate.unit, ceiling=rate.ceiling, percent=rate.percent, of=rate.of)


def _read_rate(rate: SavedRate | None) -> Rate | None:
    if rate is None:
        return None
    return Rate(rate.per_second, "B/s" if rate.unit == "B/s" else "FLOP/s", rate.ceiling, rate.of)
