"""A process that summarises ranks: reads tasks from stdin and writes their outcomes to stdout.

A message consists of its length in 8 bytes, little-endian, and of msgpack data.
"""

from __future__ import annotations

import os
import sys
from typing import IO

import msgspec

from unstall.decoding import from_msgpack
from unstall.fleets.mapping import Task, map_file

_LENGTH = 8


def send(file: IO[bytes], message: msgspec.Struct) -> None:
    """Writes a message. Raises OSError if nobody reads."""
    data = msgspec.msgpack.encode(message)
    file.write(len(data).to_bytes(_LENGTH, "little") + data)
    file.flush()


def receive(file: IO[bytes]) -> bytes | None:
    """Returns the next message, or None if there is none."""
    head = file.read(_LENGTH)
    if len(head) < _LENGTH:
        return None
    size = int.from_bytes(head, "little")
    data = file.read(size)
    return data if len(data) == size else None


def main() -> None:
    # Output of libraries must not get between the messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (message := receive(sys.stdin.buffer)) is not None:
        send(out, map_file(from_msgpack(message, Task)))


if __name__ == "__main__":
    main()
