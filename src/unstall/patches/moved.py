"""Finds where a line of a recorded run is in the current file, which another patch may have changed."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from unstall.line_digests import digest_of

_MODULE = "<module>"


@dataclass(frozen=True, slots=True)
class RanLine:
    """A line that ran: the digest of its text, and the functions that it ran in.

    There are several functions if an inner function, such as a lambda, is on the same line.
    """

    digest: int
    functions: frozenset[str]


def line_now(line: int, ran: Mapping[int, RanLine], text: str) -> int | None:
    """Returns the current number of a line of a file that may have changed since the run.

    Returns None if the line no longer exists, or if it cannot be distinguished from other lines with the same text.
    Of the old file, only the lines that ran are known, and several lines may have the same text. So the current line
    must be in a function of the same name, and between the same other lines as during the run.

    Args:
        line: The line's number during the run.
        ran: All lines of the file that ran, by their numbers during the run.
        text: The file's current text.
    """
    digests = [digest_of(each) for each in text.encode().split(b"\n")]
    if line not in ran:
        return None
    if all(number <= len(digests) and digests[number - 1] == each.digest for number, each in ran.items()):
        return line
    may_be = _candidates(ran, digests, text)
    (first, low), (last, high) = _between(line, may_be, (max(ran), len(digests)))
    then = [number for number in sorted(ran) if first <= number <= last and may_be[number] == may_be[line]]
    now = [number for number in may_be[line] if low <= number <= high]
    return now[then.index(line)] if len(now) == len(then) else None


def _candidates(ran: Mapping[int, RanLine], digests: list[int], text: str) -> dict[int, list[int]]:
    """Returns, for the number of each line that ran, the current lines that it may be.

    These have the same text, in a function of the same name.
    """
    inside = _functions(text)
    of: dict[int, list[int]] = defaultdict(list)
    for number, digest in enumerate(digests, 1):
        of[digest].append(number)
    found = {}
    for number, each in ran.items():
        last = {name.rpartition(".")[2] for name in each.functions}  # of "Net.forward"
        names = {name for name in last if name == _MODULE or name.isidentifier()}  # but no "<lambda>"
        found[number] = [now for now in of[each.digest] if not names or inside.get(now, _MODULE) in names]
    return found


def _between(line: int, may_be: Mapping[int, list[int]], end: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Returns (number during the run, current number) of two lines: the nearest known one up to `line`, and the nearest
    known one from `line` on.

    A line is known if it may be only one current line, and if the order of lines has not changed there.
    """
    taken = Counter(now for each in may_be.values() for now in each)
    sure = [(number, may_be[number][0]) for number in sorted(may_be) if len(may_be[number]) == 1]
    known = _in_order([pair for pair in sure if taken[pair[1]] == 1])
    before = [pair for pair in known if pair[0] <= line]
    after = [pair for pair in known if pair[0] >= line]
    return (before[-1] if before else (0, 1)), (after[0] if after else end)


def _in_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the longest selection of the pairs, in the same order, whose second numbers increase."""
    ends: list[int] = []  # for each length: the smallest number that a selection of that length ends with
    runs: list[list[tuple[int, int]]] = []
    for pair in pairs:
        length = bisect_left(ends, pair[1])
        run = [*(runs[length - 1] if length else []), pair]
        ends[length : length + 1] = [pair[1]]
        runs[length : length + 1] = [run]
    return runs[-1] if runs else []


def _functions(text: str) -> dict[int, str]:
    """Returns the name of the innermost function around each line that is in a function.

    Raises SyntaxError if the text is not valid Python.
    """
    inside: dict[int, str] = {}
    for node in ast.walk(ast.parse(text)):  # outer ones come first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node.name)
    return inside
