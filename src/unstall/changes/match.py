"""Matches the source lines of two runs, even if lines moved between versions of a file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TypeAlias

from unstall.result import Where


@dataclass(frozen=True, slots=True)
class ComparedPlace:
    """A source line of one run, and what it does.

    Attributes:
        where: The line.
        does: The names of the operators, kernels, copies and waits at the line.
        of_program: Whether the line is in the file that was run as the program.
        digest: A digest of the line's text; -1 if the text is unknown.
    """

    where: Where
    does: frozenset[str]
    of_program: bool = False
    digest: int = -1  # of the line's text, -1 if unknown


Key: TypeAlias = tuple[object, ...] | None
"""A key of a line. Two lines with equal keys are the same line. None if the key is unknown. Keys can be sorted."""
Pairs: TypeAlias = list[tuple[int, int]]
_DEEPEST = 32  # folders of a path that are compared


def pairs_of_places(a: Sequence[ComparedPlace], b: Sequence[ComparedPlace]) -> Pairs:
    """Returns pairs (index in `a`, index in `b`) of lines that are the same in two runs. Each line
    is in at most one pair.

    The lines of a function are matched in four passes. Each pass matches lines that are still
    unmatched:

    1. By text, in order.
    2. By line number and by what the lines do, or only by what they do. The way that matches more
       lines is used.
    3. By order, if both runs have the same number of unmatched lines between two matched lines.
    4. By text within the file, then by what the lines do within the function. Both count only if
       exactly one line fits.

    Files are matched by path. If no path is equal, they are matched by the end of the path. The two
    scripts that were run match even if their names differ, because an edited copy of a script has
    another name. If the two runs are swapped, each pair is swapped.
    """
    files = pairs_of_files(_files(a), _files(b))
    program_a, program_b = _program(a), _program(b)
    if program_a and program_b and program_b not in files and program_a not in files.values():
        files[program_b] = program_a

    def file(place: ComparedPlace) -> str | None:
        name = place.where.file
        return name if name is None else files.get(name, name)

    found: Pairs = []
    functions = [_functions(places, file) for places in (a, b)]
    for name in functions[0].keys() & functions[1].keys():
        rows = functions[0][name], functions[1][name]
        aligned = _aligned([a[i] for i in rows[0]], [b[j] for j in rows[1]])
        found += [(rows[0][i], rows[1][j]) for i, j in aligned]

    def same_text(place: ComparedPlace) -> Hashable:
        return (file(place), place.digest) if place.digest >= 0 else None

    def same_work(place: ComparedPlace) -> Hashable:
        return (file(place), place.where.function, place.does) if place.does else None

    for key in (same_text, same_work):
        taken = [{pair[side] for pair in found} for side in (0, 1)]
        left = [
            {i: key(place) for i, place in enumerate(places) if i not in of}
            for places, of in zip((a, b), taken, strict=True)
        ]
        found += unique_pairs(*left)
    return sorted(found)


def _functions(
    places: Sequence[ComparedPlace], file: Callable[[ComparedPlace], str | None]
) -> dict[Hashable, list[int]]:
    """Returns the indices of the places in each function, in line order."""
    functions: dict[Hashable, list[int]] = defaultdict(list)
    for i, place in enumerate(places):
        functions[file(place), place.where.function].append(i)
    return {name: sorted(rows, key=lambda i: places[i].where.line or 0) for name, rows in functions.items()}


def _aligned(a: Sequence[ComparedPlace], b: Sequence[ComparedPlace]) -> Pairs:
    """Returns pairs (index in a, index in b) of lines that are the same.

    `a` and `b` are the lines of one function in both runs, in order.
    """
    found = _in_order([_text(place) for place in a], [_text(place) for place in b])
    for rows_a, rows_b in _gaps(found, len(a), len(b)):
        ways = (
            _in_order([key(a[i]) for i in rows_a], [key(b[j]) for j in rows_b]) for key in (_number_and_work, _work)
        )
        found += [(rows_a[i], rows_b[j]) for i, j in max(ways, key=len)]  # of equally many, those by number
    for rows_a, rows_b in _gaps(found, len(a), len(b)):
        if len(rows_a) == len(rows_b):
            found += zip(rows_a, rows_b, strict=True)
    return found


def _text(place: ComparedPlace) -> Key:
    return (place.digest,) if place.digest >= 0 else None


def _number_and_work(place: ComparedPlace) -> Key:
    return place.where.line or 0, *sorted(place.does)


def _work(place: ComparedPlace) -> Key:
    return tuple(sorted(place.does)) or None


def _in_order(a: Sequence[Key], b: Sequence[Key]) -> Pairs:
    """Returns pairs (index in a, index in b) of equal keys that are in the same order in `a` and in `b`."""
    rows = [i for i, key in enumerate(a) if key is not None], [j for j, key in enumerate(b) if key is not None]
    known = [a[i] for i in rows[0]], [b[j] for j in rows[1]]
    turned = known[1] < known[0]  # difflib treats its arguments differently
    blocks = SequenceMatcher(None, known[turned], known[not turned]).get_matching_blocks()
    pairs = [(block.a + k, block.b + k) for block in blocks for k in range(block.size)]
    return [(rows[0][j], rows[1][i]) if turned else (rows[0][i], rows[1][j]) for i, j in pairs]


def _gaps(pairs: Pairs, length_a: int, length_b: int) -> Iterator[tuple[range, range]]:
    """Yields the ranges of indices (in A, in B) before, between and after the matched pairs.

    The pairs must be in the same order in both runs.
    """
    begins = (0, 0)
    for i, j in [*sorted(pairs), (length_a, length_b)]:
        yield range(begins[0], i), range(begins[1], j)
        begins = i + 1, j + 1


def unique_pairs(a: Mapping[int, Hashable], b: Mapping[int, Hashable]) -> list[tuple[int, int]]:
    """Returns pairs (i, j) of keys for which `a[i] == b[j]`. Only values that occur once in `a` and
    once in `b` are matched.

    The value None matches nothing.
    """
    single = [_single(keys) for keys in (a, b)]
    return [(i, single[1][key]) for key, i in single[0].items() if key in single[1]]


def pairs_of_files(a: Iterable[str], b: Iterable[str]) -> dict[str, str]:
    """Maps each file of run B to the file of run A that is the same. Files of B for which there is
    none are left out.

    Two files are the same if their paths are equal. Of the remaining files, two are the same if the
    ends of their paths are equal, and if no third file has a path with this end.
    """
    names_a, names_b = set(a), set(b)
    found = {name: name for name in names_a & names_b}
    left = names_a - names_b, names_b - names_a
    deepest = min(max((len(_parts(name)) for name in left[0] | left[1]), default=0), _DEEPEST)
    for depth in range(deepest, 0, -1):
        tails = [
            {number: _parts(name)[-depth:] if len(_parts(name)) >= depth else None for number, name in enumerate(names)}
            for names in (sorted(left[0]), sorted(left[1]))
        ]
        matched = [(sorted(left[0])[i], sorted(left[1])[j]) for i, j in unique_pairs(*tails)]
        found |= {name_b: name_a for name_a, name_b in matched}
        left = left[0] - {name for name, _ in matched}, left[1] - {name for _, name in matched}
    return found


def _single(keys: Mapping[int, Hashable]) -> dict[Hashable, int]:
    seen: dict[Hashable, list[int]] = defaultdict(list)
    for i, key in keys.items():
        seen[key].append(i)
    return {key: having[0] for key, having in seen.items() if key is not None and len(having) == 1}


def _files(places: Sequence[ComparedPlace]) -> set[str]:
    return {place.where.file for place in places if place.where.file}


def _program(places: Sequence[ComparedPlace]) -> str | None:
    """Returns the file that was run as the program; None if there are several such files or the file is unknown."""
    names = {place.where.file for place in places if place.of_program}
    return names.pop() if len(names) == 1 else None


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.replace("\\", "/").split("/") if part)
