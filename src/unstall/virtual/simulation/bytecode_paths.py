"""Computes the least amount of bytecode that Python can execute between two places in a function."""

from __future__ import annotations

import dis
import heapq
from bisect import bisect_left
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

_UNIT = 2  # bytes of a code unit: an instruction has one or more
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_ALWAYS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")


class _Branches(NamedTuple):
    """Jumps, returns and raises: the instructions after which the next instruction may be skipped.

    Attributes:
        at: The offsets of these instructions, in bytes, in ascending order.
        targets: For each of these instructions, the offsets at which execution may continue.
    """

    at: list[int]
    targets: list[tuple[int, ...]]


def units_between(code: CodeType, start: int, end: int) -> int:
    """Returns the number of code units on the shortest path from the offset `start` to the offset `end`.

    Code that a jump skips does not count. The path has no unneeded iterations of a loop. If no path is found, for
    example to an exception handler, returns the distance between the two offsets.

    Args:
        code: The function's code.
        start: The offset at which the path begins, in bytes. It is -1 before the function's first instruction.
        end: The offset at which the path ends, in bytes.
    """
    start, end = max(start, 0), max(end, 0)
    branches = _branches(code)
    queue, best = [(0, start)], {start: 0}
    while queue:
        passed, at = heapq.heappop(queue)
        if at == end:
            return passed // _UNIT
        number = bisect_left(branches.at, at)
        is_last = number == len(branches.at)
        branch = len(code.co_code) if is_last else branches.at[number]
        targets = [(target, branch - at + _UNIT) for target in (() if is_last else branches.targets[number])]
        if at < end <= branch:
            targets.append((end, end - at))
        for target, far in targets:
            if passed + far < best.get(target, passed + far + 1):
                best[target] = passed + far
                heapq.heappush(queue, (passed + far, target))
    return abs(end - start) // _UNIT


@lru_cache(maxsize=4096)
def _branches(code: CodeType) -> _Branches:
    found = _Branches([], [])
    instructions = list(dis.get_instructions(code))
    for each, following in zip(instructions, [*instructions[1:], None], strict=True):
        after = () if following is None else (following.offset,)
        if each.opcode in _JUMPS:
            found.at.append(each.offset)
            found.targets.append((int(each.argval), *(() if each.opname in _ALWAYS else after)))
        elif each.opname in _ENDS:
            found.at.append(each.offset)
            found.targets.append(())
    return found
