"""Makes GPU core dumps small enough to be kept: python shrink.py FROM.core TO.core.xz [FOLDER OTHER]

Their layout stays: each section keeps its header and its place. Registers, predicates and other memory become zeros,
and so does the code of modules that no grid was of. FOLDER, where the program was, becomes OTHER, which is as long.
Checks that the dump is read the same.
"""

from __future__ import annotations

import lzma
import sys
import tempfile
from pathlib import Path

import msgspec
import numpy as np

from unstall.blaming.core_dump import tables
from unstall.blaming.core_dump.elf import STRINGS, Elf
from unstall.blaming.core_dump.read import read_core_dump
from unstall.blaming.core_dump.result import CoreDump

KEPT = {
    tables.DEVICES,
    tables.PROCESSORS,
    tables.GRIDS,
    tables.BLOCKS,
    tables.WARPS,
    tables.THREADS,
    tables.META,
    tables.CONTEXTS,
    tables.MODULES,
    STRINGS,
}


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    folder, other = map(str.encode, sys.argv[3:] or ("", ""))
    if len(folder) != len(other):
        raise SystemExit(f"{sys.argv[3]} and {sys.argv[4]} are not of the same length")
    whole = source.read_bytes().replace(folder, other) if folder else source.read_bytes()
    before = _read(whole)
    content = np.frombuffer(bytearray(whole), np.uint8)
    elf = Elf(np.frombuffer(whole, np.uint8), str(source))
    entries = {int(grid["entry"]) for grid in tables.table(elf, tables.GRIDS).rows}
    for number in range(1, len(elf.sections)):
        section = elf.sections[number]
        data = elf.data(number)
        is_code = section["type"] == tables.MODULE_CODE
        needed = is_code and any(entry.to_bytes(8, "little") in bytes(data) for entry in entries)
        if not needed and section["type"] not in KEPT:
            at = int(section["at"])
            content[at : at + len(data)] = 0
    target.write_bytes(lzma.compress(content.tobytes(), preset=9 | lzma.PRESET_EXTREME))
    if _read(lzma.decompress(target.read_bytes())) != before:
        raise SystemExit(f"{source}: not read the same any more")
    print(f"{target}: {target.stat().st_size:,} bytes of {source.stat().st_size:,}")


def _read(content: bytes) -> CoreDump:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return msgspec.structs.replace(read_core_dump(Path(file.name)), file="")


if __name__ == "__main__":
    main()
