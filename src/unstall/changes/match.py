"""Matches the places of two runs, even if lines moved between versions of a file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from unstall.result import Where


@dataclass(frozen=True, slots=True)
class ComparedPlace:
    """A place, the operators that are called there, and whether its file is the one that was run."""

    where: Where
    operators: frozenset[str]
    of_program: bool = False


_DEEPEST = 32  # folders of a path that are compared


def pairs_of_places(a: Sequence[ComparedPlace], b: Sequence[ComparedPlace]) -> list[tuple[int, int]]:
    """Returns pairs (index in A, index in B) of the same place. Each place is in at most one pair.

    Places match if they are the same line of the same function. Other places of a function are matched by their
    operators, or by line order if both runs have equally many. Files match by path, else by the end of the path. The
    files that were run as the program match under any name, because an edited copy has another name. Swapping the runs
    swaps each pair.
    """
    files = pairs_of_files(_files(a), _files(b))
    program_a, program_b = _program(a), _program(b)
    if program_a and program_b and program_b not in files and program_a not in files.values():
        files[program_b] = program_a

    def file(place: ComparedPlace) -> str | None:
        name = place.where.file
        return name if name is None else files.get(name, name)

    def exact(place: ComparedPlace) -> Hashable:
        return file(place), place.where.line, place.where.function

    def by_operators(place: ComparedPlace) -> Hashable:
        return None if place.where.file is None else (file(place), place.where.function, place.operators)

    found: list[tuple[int, int]] = []
    for key in (exact, by_operators):
        found += unique_pairs(_left(a, found, 0, key), _left(b, found, 1, key))
    left = [_by_function(places, found, side, file) for side, places in enumerate((a, b))]
    for name in left[0].keys() & left[1].keys():
        if len(left[0][name]) == len(left[1][name]):
            found += zip(left[0][name], left[1][name], strict=True)
    return sorted(found)


def unique_pairs(a: Mapping[int, Hashable], b: Mapping[int, Hashable]) -> list[tuple[int, int]]:
    """Returns pairs (i, j) with equal keys that are unique in both mappings. The key None matches nothing."""
    single = [_single(keys) for keys in (a, b)]
    return [(i, single[1][key]) for key, i in single[0].items() if key in single[1]]


def pairs_of_files(a: Iterable[str], b: Iterable[str]) -> dict[str, str]:
    """Returns the name in A of each file in B: the same path, else the only path with the same end."""
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
    """Returns the file that was run, or None if there are several or none is known."""
    names = {place.where.file for place in places if place.of_program}
    return names.pop() if len(names) == 1 else None


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.replace("\\", "/").split("/") if part)


def _left(
    places: Sequence[ComparedPlace],
    found: Sequence[tuple[int, int]],
    side: int,
    key: Callable[[ComparedPlace], Hashable],
) -> dict[int, Hashable]:
    taken = {pair[side] for pair in found}
    return {i: key(place) for i, place in enumerate(places) if i not in taken}


def _by_function(
    places: Sequence[ComparedPlace],
    found: Sequence[tuple[int, int]],
    side: int,
    file: Callable[[ComparedPlace], str | None],
) -> dict[Hashable, list[int]]:
    """Returns the unmatched places of each function that has a file, in line order."""
    functions: dict[Hashable, list[int]] = defaultdict(list)
    for i in _left(places, found, side, file):
        if places[i].where.file is not None:
            functions[file(places[i]), places[i].where.function].append(i)
    return {name: sorted(rows, key=lambda i: places[i].where.line or 0) for name, rows in functions.items()}
