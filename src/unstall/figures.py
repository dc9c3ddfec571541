"""Formats durations, shares, counts and sizes as text for people, with about three digits. Also
parses such texts that people write.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from unstall.errors import UsageError

MOST_NS = 2**62
"""All times in files and options must be below this limit, so that the sum of two times fits into 64 bits."""
_MOST_DIGITS = 15  # of a count: a float holds it exactly
_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")
_BYTES: dict[str, int] = {
    "KB": 1000,
    **{unit: 1000**power for power, unit in enumerate(_DECIMAL_SIZES)},
    **{unit: 1024**power for power, unit in enumerate(_SIZES)},
}


def duration(ns: int) -> str:
    """Returns a duration as text with three digits and a unit: "640 ns", "5.54 ms", "38.4 ms", "1 min 12 s"."""
    if ns < 0:
        return "-" + duration(-ns)
    if ns == 0:
        return "0"
    if ns < 1_000:
        return f"{ns} ns"
    for unit, scale in (("µs", 1e3), ("ms", 1e6), ("s", 1e9)):
        text = _three_digits(ns / scale)
        if float(text) < (60 if unit == "s" else 1_000):
            return f"{text} {unit}"
    minutes, seconds = divmod(round(ns / 1e9), 60)
    return f"{minutes:,} min {seconds} s"


def in_one_unit(*times_ns: int) -> list[str]:
    """Returns durations as texts that can be compared at a glance, all in ms: ["0.653 ms", "12.4
    ms"].

    If one duration is below 1 µs or at least 1 s, or if all durations are below 100 µs, each text
    has the unit that fits its duration instead of ms.
    """
    if all(1_000 <= ns < 1_000_000_000 for ns in times_ns) and max(times_ns) >= 100_000:
        return [f"{_three_digits(ns / 1e6)} ms" if ns >= 1_000_000 else f"{ns / 1e6:.3f} ms" for ns in times_ns]
    return [duration(ns) for ns in times_ns]


def share(part: int, whole: int) -> str:
    """Returns `part` / `whole` as a percentage, such as "38.4 %".

    Returns "0 %" or "100 %" only if this is the exact share. A smaller share than 0.1 % is "<0.1
    %", and a larger share than 99.9 % is ">99.9 %".
    """
    if whole <= 0 or part == 0:
        return "0 %"
    if part == whole:
        return "100 %"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.1f} %"


def good_to(error: float | None) -> str:
    """Returns a phrase on how good an estimate is, such as "± 5 % or so".

    Args:
        error: The usual error of the estimate, as a fraction; None if the error is unknown.
    """
    return "how good cannot be told" if error is None else f"± {100 * error:.0f} % or so"


def rate(often: float, *, whole_from: float = 10) -> str:
    """Returns how often something happens on average, as text: "7", "0.3" or "<0.1".

    Args:
        often: How often it happens.
        whole_from: Numbers of this size or more are rounded to whole numbers: "12".
    """
    if often == round(often) or often >= whole_from:
        return f"{round(often):,}"
    return f"{often:.1f}" if often >= 0.05 else "<0.1"


def counted(number: int, noun: str) -> str:
    """Returns a number and its noun as text: "1 wait", "2,388 launches". `noun` is the singular."""
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Joins `parts` to a list as in a sentence: "2", "2 and 4", "2, 4 and 6". The word `last`
    stands before the last part.
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def numbered_findings(numbers: Sequence[str]) -> str:
    """Joins the numbers of findings to a phrase: "finding 2", "findings 2 and 4"."""
    return f"finding{'s' * (len(numbers) > 1)} {listed(numbers)}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("ch", "sh", "s")) else "s")


def size(count: int) -> str:
    """Returns a number of bytes as text in binary units: "512 B", "1.50 GiB"."""
    return _size(count, _SIZES, 1024)


def decimal_size(count: int) -> str:
    """Returns a number of bytes as text in decimal units: "512 B", "1.50 GB"."""
    return _size(count, _DECIMAL_SIZES, 1000)


def _size(count: int, units: Sequence[str], base: int) -> str:
    if count < 0:
        return "-" + _size(-count, units, base)
    if count < base:
        return f"{count} B"
    value = float(count)
    for unit in units[1:]:
        value /= base
        text = _three_digits(value)
        if float(text) < base or unit == units[-1]:
            break
    return f"{text} {unit}"


def parse_size(text: str) -> int:
    """Converts a size such as "2GB" or "1.5 GiB" to bytes. Raises UsageError if the unit is missing or unknown."""
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{0,9})?)\s*([kKMGT]?i?B)\s*", text)
    factor = _BYTES.get(match[2]) if match else None
    if not match or factor is None:
        raise UsageError(f"{text!r} is not a size: write a number and its unit, such as 2GB or 512MiB")
    return round(float(match[1]) * factor)


def parse_duration(text: str) -> int:
    """Converts a time such as "1.5ms" or "200 us" to ns. Raises UsageError if the unit is missing or unknown."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs|ms|s)\s*", text)
    if not match:
        raise UsageError(f"{text!r} is not a time: write a number and its unit, such as 500us, 1.5ms or 2s")
    return round(float(match[1]) * _NS[match[2]])


def parse_ms(text: str) -> int:
    """Converts a number of milliseconds, such as "1.5", to ns. Raises UsageError if it is no
    number, not above 0, or too large.
    """
    try:
        ns = round(float(text) * 1e6)
    except (ValueError, OverflowError):
        ns = 0
    if not 0 < ns < MOST_NS:
        raise UsageError(f"{text!r} is no time: give milliseconds, such as 28.9")
    return ns


def parse_whole(text: str) -> int:
    """Converts text to a whole number of 0 or more. Raises UsageError for any other text."""
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise UsageError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def parse_share(text: str) -> float:
    """Converts a percentage such as "20%" or "20" to a fraction. Raises UsageError if it is not
    from 0 to 100.

    "0.2" raises UsageError too, because it may mean 20 % or 0.2 %.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text)
    if not match or float(match[1]) > 100:
        raise UsageError(f"{text!r} is not a percentage: write a number from 0 to 100, such as 20%")
    if not match[2] and 0 < float(match[1]) <= 1:
        raise UsageError(f"{text!r} may be a fraction or a percentage: write a percentage and its sign, such as 20%")
    return float(match[1]) / 100


def capital(text: str) -> str:
    """Returns `text` with its first letter as a capital."""
    return text[:1].upper() + text[1:]


def signal_name(number: int) -> str:
    """Returns the name of a signal, such as "SIGTERM" for 15. If the number has no name, returns a
    text such as "signal 35".
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _three_digits(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}"
