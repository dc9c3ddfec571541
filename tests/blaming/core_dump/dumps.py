"""Core dumps that an H200 wrote, and modules as they are in dumps."""

from __future__ import annotations

import functools
import lzma
import tempfile
from pathlib import Path

import numpy as np

from unstall.blaming.core_dump.code import Code
from unstall.blaming.core_dump.elf import Elf
from unstall.blaming.core_dump.read import read_core_dump
from unstall.blaming.core_dump.result import CoreDump

FOLDER = Path(__file__).parents[2] / "data" / "core_dumps"
NAMES = ("illegal", "assert", "spin", "graph", "value", "triton", "cupy")
_SYMBOL_BYTES, _RELOCATION_BYTES, _FUNCTION = 24, 24, 2


@functools.cache
def content(name: str) -> bytes:
    """A dump as the driver wrote it, but for the memory that `shrink.py` made zero."""
    return lzma.decompress((FOLDER / f"{name}.core.xz").read_bytes())


@functools.cache
def dump(name: str) -> CoreDump:
    """What is read of it."""
    return read(content(name))


def read(changed: bytes) -> CoreDump:
    """What is read of a file with this content."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(changed)
        file.flush()
        return read_core_dump(Path(file.name))


def loaded(addresses: dict[str, int]) -> Code:
    """The module of `lines.cu`, with functions at these addresses of the device: as a driver loads it."""
    elf = Elf(np.fromfile(FOLDER / "lines.cubin", np.uint8), "lines.cubin")
    (symbols,) = elf.of_type(2)
    names = elf.data(int(elf.sections[symbols]["link"]))
    table, of_symbol = elf.data(int(symbols)), {}
    for at in range(0, len(table), _SYMBOL_BYTES):
        start = int.from_bytes(table[at : at + 4].tobytes(), "little")
        name = names[start:].tobytes().partition(b"\0")[0].decode()
        if name in addresses and table[at + 4] % 16 == _FUNCTION:
            table[at + 8 : at + 16] = np.frombuffer(addresses[name].to_bytes(8, "little"), np.uint8)
            of_symbol[at // _SYMBOL_BYTES] = addresses[name]
    lines, relocations = elf.named(".debug_line"), elf.named(".rela.debug_line")
    for at in range(0, len(relocations), _RELOCATION_BYTES):
        where, symbol = (
            int.from_bytes(relocations[at + o : at + o + n].tobytes(), "little") for o, n in ((0, 8), (12, 4))
        )
        if symbol in of_symbol:
            lines[where : where + 8] = np.frombuffer(of_symbol[symbol].to_bytes(8, "little"), np.uint8)
    return Code([(elf.content, "lines.cubin")])
