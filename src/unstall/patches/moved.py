"""Finds where a source line of a recorded run is in the current version of its file. The file may
have changed since the run, for example by another patch.
"""

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
    """A source line that was executed during a recorded run.

    Attributes:
        digest: The digest of the line's text, as `line_digests.digest_of` returns it.
        functions: The names of the functions in which the line ran. There are several if an inner
            function, such as a lambda, is on the same line.
    """

    digest: int
    functions: frozenset[str]


def line_now(line: int, ran: Mapping[int, RanLine], text: str) -> int | None:
    """Returns the current number of a source line of a recorded run. The file may have changed
    since the run.

    Returns None if the line no longer exists, or cannot be distinguished from other lines with the
    same text.

    Of the old file, only the lines that ran are known. A current line counts as the old line if it
    has the same text, is in a function of the same name, and lies between the same two neighbours
    as the old line. The neighbours are the nearest line before it and the nearest line after it
    that ran and whose current numbers are certain.

    Args:
        line: The line's number during the run.
        ran: All lines of the file that ran, by their numbers during the run.
        text: The current text of the file.
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
    """Returns, for each line that ran, the numbers of the current lines that may be the same line:
    lines that have the same text and are in a function of the same name.

    Args:
        ran: All lines of the file that ran, by their numbers during the run.
        digests: The digest of each current line, in order.
        text: The current text of the file.
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
    """Finds the nearest line before `line`, and the nearest line after it, whose current numbers
    are certain.

    If the current number of `line` itself is certain, both results are `line`. A current number is
    certain if only one current line may be the old line, and if the lines around it are still in
    the same order.

    Args:
        line: The line's number during the run.
        may_be: For each line that ran, the numbers of the current lines that may be the same line.
        end: The `after` to return if no line after `line` is certain.

    Returns:
        `(before, after)`. Each is a pair (number during the run, current number). If no line before
        `line` is certain, `before` is (0, 1).
    """
    taken = Counter(now for each in may_be.values() for now in each)
    sure = [(number, may_be[number][0]) for number in sorted(may_be) if len(may_be[number]) == 1]
    known = _in_order([pair for pair in sure if taken[pair[1]] == 1])
    before = [pair for pair in known if pair[0] <= line]
    after = [pair for pair in known if pair[0] >= line]
    return (before[-1] if before else (0, 1)), (after[0] if after else end)


def _in_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the longest subsequence of the pairs in which the second numbers increase."""
    ends: list[int] = []  # for each length: the smallest number that a selection of that length ends with
    runs: list[list[tuple[int, int]]] = []
    for pair in pairs:
        length = bisect_left(ends, pair[1])
        run = [*(runs[length - 1] if length else []), pair]
        ends[length : length + 1] = [pair[1]]
        runs[length : length + 1] = [run]
    return runs[-1] if runs else []


def _functions(text: str) -> dict[int, str]:
    """Maps the number of each line that is in a function to the name of the innermost function
    around it.

    Raises:
        SyntaxError: The text is not valid Python.
    """
    inside: dict[int, str] = {}
    for node in ast.walk(ast.parse(text)):  # outer ones come first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node.name)
    return inside
