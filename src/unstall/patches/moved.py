"""Where a line that ran is now: its file may have been changed since, as by the patch for another finding."""

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
    """A line that ran: the digest of its text, and the functions that it ran in, for an inner one may stand on it."""

    digest: int
    functions: frozenset[str]


def line_now(line: int, ran: Mapping[int, RanLine], text: str) -> int | None:
    """Returns the number of a line in a file as it is now; None if the line is there no more, or is not told from
    others of the same text.

    Only the lines that ran are known of the file as it was, and the same text may stand elsewhere. So the line must be
    in a function of the same name, and between those lines that it was between.

    Args:
        line: Its number as it ran.
        ran: All lines of the file that ran, by their numbers then.
        text: The file now.
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
    """Returns the lines as they are now that each line may be: of its text, in a function of its name."""
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
    """Returns (number then, number now) of the nearest lines up to this one and from it on whose place is known: they
    can be but one, and stand in the order in which most do."""
    taken = Counter(now for each in may_be.values() for now in each)
    sure = [(number, may_be[number][0]) for number in sorted(may_be) if len(may_be[number]) == 1]
    known = _in_order([pair for pair in sure if taken[pair[1]] == 1])
    before = [pair for pair in known if pair[0] <= line]
    after = [pair for pair in known if pair[0] >= line]
    return (before[-1] if before else (0, 1)), (after[0] if after else end)


def _in_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the most of these pairs whose second numbers increase."""
    ends: list[int] = []  # by length: the smallest number that as many pairs in order end with
    runs: list[list[tuple[int, int]]] = []
    for pair in pairs:
        length = bisect_left(ends, pair[1])
        run = [*(runs[length - 1] if length else []), pair]
        ends[length : length + 1] = [pair[1]]
        runs[length : length + 1] = [run]
    return runs[-1] if runs else []


def _functions(text: str) -> dict[int, str]:
    """Returns the name of the innermost function around each line. Raises SyntaxError."""
    inside: dict[int, str] = {}
    for node in ast.walk(ast.parse(text)):  # outer ones come first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node.name)
    return inside
