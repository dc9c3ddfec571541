"""Numbers the memory that work on a device uses, so that it can be told whether two ops use the same."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I64

_APART = 1 << 44
"""How far apart allocations are taken to be whose places are unknown: further than any is long."""
_LARGEST = 1 << 62
"""Their addresses come round here, after 262,144 allocations."""


class DataNumbers:
    """Numbers the memory that records of the shim's log use, by its addresses: memory that was freed and is taken
    again has the numbers that it had before.
    """

    def __init__(self) -> None:
        self._address: dict[int, int] = {}
        self._freed: list[int] = []

    def place(self, allocation: int, address: int) -> None:
        """Notes where an allocation is."""
        self._address[allocation] = address

    def free(self, allocation: int) -> None:
        """Notes that an allocation is freed. Its address is known until the next call of `forget_freed`."""
        self._freed.append(allocation)

    def forget_freed(self) -> None:
        """Forgets the addresses of the allocations that were freed."""
        for allocation in self._freed:
            self._address.pop(allocation, None)
        self._freed.clear()

    def of(self, records: np.ndarray, uses: np.ndarray) -> I64:
        """Returns, for each record, a number of 31 bits that stands for the memory that it uses: the same for the same
        ranges, whichever it writes, and probably others for others. 0 for a record that uses none.

        Args:
            records: The records, an array of RECORD.
            uses: The ranges of memory that they use, in the order of the records, an array of USE. A range of an
                allocation whose place is not known counts as memory of its own.
        """
        numbers = uses["allocation"].tolist()
        address = [self._address.get(number, _APART * number % _LARGEST) for number in numbers]
        begin = np.array(address, np.int64) + uses["offset"]
        mixed = np.zeros(len(uses) + 1, np.uint64)
        for column, factor in ((begin, 0x9E3779B97F4A7C15), (uses["bytes"], 0xC2B2AE3D27D4EB4F)):
            mixed[1:] = (mixed[1:] ^ column.view(np.uint64)) * np.uint64(factor)
        sums = np.cumsum(mixed)
        end = np.cumsum(records["uses"])
        number: I64 = ((sums[end] - sums[end - records["uses"]]) >> np.uint64(33)).astype(np.int64)
        return number
