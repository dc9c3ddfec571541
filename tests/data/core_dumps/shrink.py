"""Makes GPU core dumps small enough to be kept: python shrink.py FROM.core TO.core.xz

Their layout stays: each section keeps its header and its place. Registers, predicates and other memory become zeros, and
so does the code of modules that no grid was of. Checks that the dump is read the same.
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
    source, target = map(Path, sys.argv[1:])
    before = read_core_dump(source)
    content = np.fromfile(source, np.uint8)
    elf = Elf(content.copy(), str(source))
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
    with tempfile.NamedTemporaryFile() as file:
        file.write(lzma.decompress(target.read_bytes()))
        file.flush()
        after = read_core_dump(Path(file.name))
    if msgspec.structs.replace(after, file=before.file) != before:
        raise SystemExit(f"{source}: not read the same any more")
    print(f"{target}: {target.stat().st_size:,} bytes of {source.stat().st_size:,}")


if __name__ == "__main__":
    main()
