"""Which Python stacks torch's memory history keeps: its option `context`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Context(IntEnum):
    """The values of the option `context`. Each keeps all that the one before it keeps."""

    NEVER = 0
    STATE = 1  # of blocks and segments: where each was allocated
    ALLOC = 2  # of the history's entries, too; those that free a block have the stack that allocated it
    ALL = 3  # each entry has its own


@dataclass
class KeptStacks:
    """The stack of what the program does now, as far as the memory history keeps it. Stacks are
    numbers; -1 stands for a stack that is unknown or not kept.

    Attributes:
        now: The stack at which the program calls the allocator.
        context: What the history keeps.
    """

    now: int = -1
    context: Context = Context.NEVER

    def of_block(self) -> int:
        """Returns the stack to keep with a block or segment that is allocated now."""
        return self.now if self.context >= Context.STATE else -1

    def of_entry(self, allocated: int | None = None) -> int:
        """Returns the stack of an entry of the history.

        Args:
            allocated: If the entry frees something, the stack that was kept when that was allocated.
        """
        if self.context < Context.ALLOC:
            return -1
        return self.now if allocated is None or self.context == Context.ALL else allocated
