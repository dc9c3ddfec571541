"""Finds the least amount of bytecode that Python executes to get from one place of a function to another."""

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
    """The branches of a function: the instructions after which the next instruction in the bytecode
    may not be the next that runs. They are jumps, returns and raises.

    Attributes:
        at: The offset of each branch in bytes, in ascending order.
        targets: For each branch, the offsets at which execution may continue.
    """

    at: list[int]
    targets: list[tuple[int, ...]]


def units_between(code: CodeType, start: int, end: int) -> int:
    """Returns how many code units (of two bytes) Python executes at least to get from `start` to
    `end`.

    Code that a jump skips does not count, and a loop is not repeated. If there is no path, as to an
    exception handler, returns the distance between the two offsets.

    Args:
        code: The code of the function.
        start: The offset in bytes at which the path begins; -1 before the first instruction.
        end: The offset in bytes at which the path ends.
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
