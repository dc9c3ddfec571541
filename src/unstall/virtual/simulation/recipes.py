"""Recipes: the host instructions and device ops that stand for one kind of record of the shim's
log.

All recipes are in two tables. A recipe is a range of rows of the table of instructions, and an
instruction names a range of rows of the table of ops. So numpy can turn a batch of records into
instructions by repeating rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

from unstall.replay.program import WHOLE, Code
from unstall.timeline.columns import CopyDirection, DeviceKind, HostMemory


class RuntimeCall(IntEnum):
    """The call of the CUDA runtime that a host instruction stands for."""

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
    """The part of a device that an op occupies: an engine for uploads, one for downloads, or the
    multiprocessors. An op with NOTHING occupies none, so it delays no op on other streams.
    """

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
        gap: The least time from the end of the op before it on its stream to its start.
        latency: The time from the end of the launch call to the start of the op if the device is
            idle.
        kind: Whether it is a kernel, a copy or a memset.
        direction: The direction of a copy.
        memory: Whether a copy uses pinned or pageable memory of the host.
        bytes: The size of a copy; -1 if it is unknown or if the op is no copy.
        branch: For an op of a CUDA graph, the branch of the graph on which it runs. Branch 0 runs
            on the stream on which the graph is launched.
        after: The index, in the recipe, of the op on another branch that this op waits for; -1 if
            it waits for none.
        share: How much of the device the op uses, in thousandths (see `Kernel`).
        blocks: How many thread blocks the op has per multiprocessor, in thousandths; 0 if it is
            unknown.
        size: How much of a multiprocessor's room for thread blocks one block takes, in thousandths.
        cached: How much the op reads and writes, in thousandths of the size of the L2 cache.
        data: For an op of a CUDA graph, a number of the memory that it reads and writes (`DataNumbers`); else 0.
        uncached: How much longer the op takes if its data is not in the L2 cache.
        again: How long it runs if it repeats one of the last ops of its stream, and its data is cached; 0: as long.
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
    cached: int = 0
    data: int = 0
    uncached: int = 0
    again: int = 0


@dataclass(frozen=True, slots=True)
class RecipeStep:
    """A host instruction of a recipe. Times are in ns.

    Attributes:
        code: What the instruction does.
        what: The call of the CUDA runtime that it stands for.
        work: How long the host works before the call.
        call: How long the call takes, without waiting.
        latency: If the instruction waits: the time from the end of what it waits for to its own
            end.
        ops: The device ops that it launches.
    """

    code: Code
    what: RuntimeCall = RuntimeCall.NONE
    work: int = 0
    call: int = 0
    latency: int = 0
    ops: tuple[Op, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class RecipeSteps:
    """The host instructions of all recipes, as columns. A row is an instruction. The columns are
    fields of `RecipeStep`; but `first_op` is the row of the instruction's first op in `OpRows`, and
    `ops` is the number of its ops.
    """

    code: np.ndarray
    what: np.ndarray
    call: np.ndarray
    latency: np.ndarray
    work: np.ndarray
    first_op: np.ndarray
    ops: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class OpRows:
    """The device ops of all recipes, as columns. A row is an op. The columns are the fields of
    `Op`; `name` is an index into `Recipes.names`.
    """

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
    cached: np.ndarray
    data: np.ndarray
    uncached: np.ndarray
    again: np.ndarray

    @property
    def used(self) -> np.ndarray:
        """How much of the device each op keeps from other ops, in thousandths: its share, or the part of
        the room for thread blocks that its blocks fill, whichever is larger. An int array.
        """
        filled = np.minimum(self.blocks.astype(np.int64) * self.size // WHOLE, WHOLE)
        used: np.ndarray = np.maximum(self.share, filled)
        return used


class Recipes:
    """All recipes that were made so far. A recipe is the host instructions and device ops that
    stand for one kind of record of the shim's log. It has a number, and a key by which it can be
    found.

    Attributes:
        names: The names of device ops, each once.
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
        """Returns the number of the recipe that was added with `key`, or None if there is none."""
        return self._of.get(key)

    def add(self, key: Hashable, steps: Sequence[RecipeStep]) -> int:
        """Adds a recipe (host instructions with the device ops that they launch), and returns its
        number.

        Args:
            key: What the recipe can be found by.
            steps: The host instructions, in order. At least one.
        """
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
        """For each recipe, the row of its first instruction in `steps`."""
        return self._first.rows

    @property
    def count(self) -> np.ndarray:
        """For each recipe, the number of its instructions."""
        return self._count.rows

    @property
    def steps(self) -> RecipeSteps:
        """The host instructions of all recipes, in one table."""
        return RecipeSteps(**{name: column.rows for name, column in self._steps.items()})

    @property
    def ops(self) -> OpRows:
        """The device ops of all recipes, in one table."""
        return OpRows(**{name: column.rows for name, column in self._ops.items()})

    def ops_of(self, recipe: int) -> list[Op]:
        """Returns the device ops of the recipe with the number `recipe`, in order. Their `branch`
        and `after` are not filled in.
        """
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
                cached=int(ops.cached[row]),
                uncached=int(ops.uncached[row]),
                again=int(ops.again[row]),
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
    "cached": np.int32,
    "data": np.int32,
    "uncached": np.int64,
    "again": np.int64,
}


class Column:
    """A numpy array to which values can be appended at the end."""

    def __init__(self, dtype: type) -> None:
        self._array: np.ndarray = np.zeros(64, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, value: int) -> None:
        """Appends a value."""
        if self._length == len(self._array):
            self._array = np.concatenate((self._array, np.zeros_like(self._array)))
        self._array[self._length] = value
        self._length += 1

    @property
    def rows(self) -> np.ndarray:
        """The values so far."""
        return self._array[: self._length]
