"""Finds which operators of two runs belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher

from unstall.rounding.samples import Seen

Agree = Callable[[int, int], bool]
_LARGEST = 1 << 22  # of a search: operators of one run times those of the other


def matched(before: Sequence[Seen], after: Sequence[Seen], agree: Agree) -> Iterator[tuple[int, int]]:
    """Yields `(index in before, index in after)` for each pair of operators that belong together,
    in order.

    Operators belong together if they have the same name, shape and source line; the line may have
    moved. Where the runs call different operators, two of them belong together only if their
    results agree. For example, attention is another operator on the CPU than on a GPU.

    Args:
        before: The results of the operators of the first run.
        after: The results of the operators of the second run.
        agree: A function that takes an index in `before` and one in `after`, and returns whether
            the two results agree.
    """
    keys = [(_with_lines(before), _with_lines(after)), ([one.key for one in before], [one.key for one in after])]
    yield from _aligned(before, after, range(len(before)), range(len(after)), keys, agree)


def _with_lines(operators: Sequence[Seen]) -> list[tuple[object, ...]]:
    """Returns, for each operator, a tuple that is the same for the same operator of another run:
    its key, the text of its source line, and a counter.

    The counter numbers the operators with the same key and text. The number of the line is not
    used, because the line may have moved.
    """
    counts: Counter[tuple[object, ...]] = Counter()
    found = []
    for seen in operators:
        key = (*seen.key, seen.place.source)
        counts[key] += 1
        found.append((*key, counts[key]))
    return found


def _aligned(
    before: Sequence[Seen],
    after: Sequence[Seen],
    ones: range,
    others: range,
    keys: Sequence[tuple[Sequence[object], Sequence[object]]],
    agree: Agree,
) -> Iterator[tuple[int, int]]:
    if not keys:
        yield from _loosely(before, after, ones, others, agree)
        return
    (of_one, of_other), *coarser = keys
    mine, its = [of_one[at] for at in ones], [of_other[at] for at in others]
    # Runs are mostly alike up to a place: that needs no search.
    same = next((at for at, (one, other) in enumerate(zip(mine, its, strict=False)) if one != other), None)
    same = min(len(mine), len(its)) if same is None else same
    yield from zip(ones[:same], others[:same], strict=True)
    if not coarser and (len(mine) - same) * (len(its) - same) > _LARGEST:
        return
    matcher = SequenceMatcher(None, mine[same:], its[same:], autojunk=False)
    for tag, start, end, other, other_end in matcher.get_opcodes():
        pieces = ones[same + start : same + end], others[same + other : same + other_end]
        if tag == "equal":
            yield from zip(*pieces, strict=True)
        elif tag == "replace":
            yield from _aligned(before, after, *pieces, coarser, agree)


def _loosely(
    before: Sequence[Seen], after: Sequence[Seen], ones: range, others: range, agree: Agree
) -> Iterator[tuple[int, int]]:
    start = 0
    for at in ones:
        for place in range(start, len(others)):
            if before[at].loose_key == after[others[place]].loose_key and agree(at, others[place]):
                start = place + 1
                yield at, others[place]
                break
