"""Recipes. A recipe has the host instructions and device operations (ops) of one kind of log record.

A recipe is a range of rows in the table of steps. A step is one host instruction. It refers to a range of rows in the
table of ops. So numpy can convert a batch of log records into instructions by repeating rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

from unstall.replay.program import WHOLE, Code
from unstall.timeline.columns import CopyDirection, DeviceKind, HostMemory


class RuntimeCall(IntEnum):
    """The CUDA runtime call that an instruction simulates."""

    NONE = 0
    REST = 1  # continues the previous call
    LAUNCH = 2
    COPY = 3
    MEMSET = 4
    SYNC_STREAM = 5
    SYNC_DEVICE = 6
    SYNC_EVENT = 7
    EVENT_RECORD = 8
    EVENT_WAIT = 9
    EVENT_QUERY = 10
    MALLOC = 11
    FREE = 12
    HOST_ALLOC = 13
    GRAPH_LAUNCH = 14
    CAPTURE = 15
    LAST_ERROR = 16
    INIT = 17
    CONTEXT = 18
    LOAD = 19


class EnginePart(IntEnum):
    """The part of the device that a device op occupies. An op with NOTHING runs concurrently with all other ops."""

    NOTHING = -1
    UPLOADS = 0
    DOWNLOADS = 1
    PROCESSORS = 2


PARTS = 3


@dataclass(frozen=True, slots=True)
class Op:
    """A device op of a recipe. Times are in ns.

    Attributes:
        name: The name of the kernel, copy or memset.
        duration: How long the op runs.
        part: The part of the device that the op occupies.
        gap: The time from the end of the previous op to the start of this op.
        latency: The time from the end of the launch call to the start of the op on an idle device.
        kind: The kind of op.
        direction: The direction of a copy.
        memory: The kind of host memory of a copy.
        bytes: The size of a copy, or -1 if it is unknown.
        branch: The branch of the graph on which the op runs. Branch 0 is the launching stream.
        after: The index, within the recipe, of the op on another branch that this op waits for. It is -1 if this op
            does not wait for another branch.
        share: The fraction of the device's rate that the op uses, in thousandths.
        blocks: The number of thread blocks for each multiprocessor, in thousandths, or 0 if it is unknown.
        size: The part of a multiprocessor's room that a block fills, in thousandths.
        tail: How long before its end the op leaves the device to others.
        cached: What the op reads and writes, in thousandths of what the L2 cache holds.
        uncached: How much longer the op takes if its data is not in the L2 cache.
    """

    name: str
    duration: int
    part: EnginePart
    gap: int
    latency: int
    kind: DeviceKind = DeviceKind.KERNEL
    direction: CopyDirection = CopyDirection.NONE
    memory: HostMemory = HostMemory.UNKNOWN
    bytes: int = -1
    branch: int = 0
    after: int = -1
    share: int = 0
    blocks: int = 0
    size: int = 1
    tail: int = 0
    cached: int = 0
    uncached: int = 0


@dataclass(frozen=True, slots=True)
class RecipeStep:
    """One host instruction of a recipe, with the device ops that it launches."""

    code: Code
    what: RuntimeCall = RuntimeCall.NONE
    work: int = 0
    call: int = 0
    latency: int = 0
    ops: tuple[Op, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class RecipeSteps:
    """The instructions of all recipes, as columns with one row for each instruction."""

    code: np.ndarray
    what: np.ndarray
    call: np.ndarray
    latency: np.ndarray
    work: np.ndarray
    first_op: np.ndarray
    ops: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class OpRows:
    """The device ops of all recipes, as columns with one row for each op; see `Op`."""

    name: np.ndarray
    duration: np.ndarray
    part: np.ndarray
    gap: np.ndarray
    latency: np.ndarray
    kind: np.ndarray
    direction: np.ndarray
    memory: np.ndarray
    bytes: np.ndarray
    branch: np.ndarray
    after: np.ndarray
    share: np.ndarray
    blocks: np.ndarray
    size: np.ndarray
    tail: np.ndarray
    cached: np.ndarray
    uncached: np.ndarray

    @property
    def used(self) -> np.ndarray:
        """The fraction of the device that each op keeps from others, in thousandths: of its rate, or of the room for
        thread blocks, whichever is larger.
        """
        filled = np.minimum(self.blocks.astype(np.int64) * self.size // WHOLE, WHOLE)
        used: np.ndarray = np.maximum(self.share, filled)
        return used


class Recipes:
    """A growing table of recipes. Each recipe has a unique key. A recipe has the host instructions and device ops of
    one kind of log record.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._name_of: dict[str, int] = {}
        self._of: dict[Hashable, int] = {}
        self._first = Column(np.int64)
        self._count = Column(np.int64)
        self._steps = {each.name: Column(_STEP_TYPES[each.name]) for each in fields(RecipeSteps)}
        self._ops = {each.name: Column(_OP_TYPES[each.name]) for each in fields(OpRows)}

    def find(self, key: Hashable) -> int | None:
        """Returns the number of the recipe with this key, or None if there is no such recipe."""
        return self._of.get(key)

    def add(self, key: Hashable, steps: Sequence[RecipeStep]) -> int:
        """Adds a recipe of at least one instruction. Returns the recipe's number."""
        number = self._of[key] = len(self._first)
        self._first.append(len(self._steps["code"]))
        self._count.append(len(steps))
        for step in steps:
            self._steps["first_op"].append(len(self._ops["name"]))
            self._steps["ops"].append(len(step.ops))
            for name in ("code", "what", "call", "latency", "work"):
                self._steps[name].append(getattr(step, name))
            for op in step.ops:
                self._ops["name"].append(self._name(op.name))
                for name in _OP_TYPES:
                    if name != "name":
                        self._ops[name].append(getattr(op, name))
        return number

    @property
    def first(self) -> np.ndarray:
        """The row in `steps` of the first instruction of each recipe."""
        return self._first.rows

    @property
    def count(self) -> np.ndarray:
        """The number of instructions of each recipe."""
        return self._count.rows

    @property
    def steps(self) -> RecipeSteps:
        return RecipeSteps(**{name: column.rows for name, column in self._steps.items()})

    @property
    def ops(self) -> OpRows:
        return OpRows(**{name: column.rows for name, column in self._ops.items()})

    def ops_of(self, recipe: int) -> list[Op]:
        """Returns all device ops of a recipe, in order."""
        first = int(self.first[recipe])
        steps, ops = self.steps, self.ops
        rows = [
            row
            for step in range(first, first + int(self.count[recipe]))
            for row in range(int(steps.first_op[step]), int(steps.first_op[step] + steps.ops[step]))
        ]
        return [
            Op(
                self.names[int(ops.name[row])],
                int(ops.duration[row]),
                EnginePart(int(ops.part[row])),
                int(ops.gap[row]),
                int(ops.latency[row]),
                DeviceKind(int(ops.kind[row])),
                CopyDirection(int(ops.direction[row])),
                HostMemory(int(ops.memory[row])),
                int(ops.bytes[row]),
                share=int(ops.share[row]),
                blocks=int(ops.blocks[row]),
                size=int(ops.size[row]),
                tail=int(ops.tail[row]),
                cached=int(ops.cached[row]),
                uncached=int(ops.uncached[row]),
            )
            for row in rows
        ]

    def _name(self, text: str) -> int:
        number = self._name_of.setdefault(text, len(self.names))
        if number == len(self.names):
            self.names.append(text)
        return number


_STEP_TYPES: dict[str, type] = {
    "code": np.int8,
    "what": np.int8,
    "call": np.int64,
    "latency": np.int64,
    "work": np.int64,
    "first_op": np.int64,
    "ops": np.int64,
}
_OP_TYPES: dict[str, type] = {
    "name": np.int32,
    "duration": np.int64,
    "part": np.int32,
    "gap": np.int64,
    "latency": np.int64,
    "kind": np.int8,
    "direction": np.int8,
    "memory": np.int8,
    "bytes": np.int64,
    "branch": np.int32,
    "after": np.int64,
    "share": np.int32,
    "blocks": np.int32,
    "size": np.int32,
    "tail": np.int64,
    "cached": np.int32,
    "uncached": np.int64,
}


class Column:
    """A numpy column that grows."""

    def __init__(self, dtype: type) -> None:
        self._array: np.ndarray = np.zeros(64, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, value: int) -> None:
        if self._length == len(self._array):
            self._array = np.concatenate((self._array, np.zeros_like(self._array)))
        self._array[self._length] = value
        self._length += 1

    @property
    def rows(self) -> np.ndarray:
        return self._array[: self._length]
