"""Mutants of files: their bytes, or what they say, changed at random."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, TypeAlias

Mutate: TypeAlias = Callable[[bytes, Random], bytes]

_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**400, 1e308, -0.0, 0.1),
    *("", "a:b", "\n", "\x00", "\ud800", "7", "1e9", "x" * 5_000, [], {}, [[]], [None], {"": {}}, {"name": []}),
)
_NESTED = b"[" * 5_000 + b"]" * 5_000


def of_bytes(data: bytes, random: Random) -> bytes:
    """Changes a few stretches of bytes."""
    mutant = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        at = random.randrange(len(mutant) + 1)
        length = random.choice((1, 2, 4, 16, 256))
        match random.randrange(6):
            case 0:
                mutant[at : at + length] = random.randbytes(length)
            case 1:
                del mutant[at : at + length]
            case 2:
                mutant[at:at] = mutant[at : at + length]
            case 3:
                del mutant[at:]
            case 4:
                mutant[at:at] = random.choice((b"\x00" * length, b"\xff" * length, _NESTED, b"9" * length, b'"', b"}"))
            case _:
                if at < len(mutant):
                    mutant[at] ^= 1 << random.randrange(8)
    return bytes(mutant)


def of_json(data: bytes, random: Random) -> bytes:
    """Changes a few values, keys or items of a JSON document."""
    document = [json.loads(data)]
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        _change(document, random)
    return json.dumps(document[0]).replace("Infinity", "1e999").encode()


def _change(document: Any, random: Random) -> None:
    """Changes a place within a list or an object, which a random way from the top leads to."""
    while True:
        keys = list(document) if isinstance(document, dict) else list(range(len(document)))
        if not keys:
            return
        key = random.choice(keys)
        child = document[key]
        if isinstance(child, dict | list) and child and random.random() < 0.9:
            document = child
            continue
        match random.randrange(5):
            case 0:
                del document[key]
            case 1 if isinstance(document, list):
                document.extend(deepcopy(child) for _ in range(random.choice((1, 3, 100))))
            case 2 if isinstance(document, dict):
                document[random.choice((*keys, "pid", "args", "id", "schema", ""))] = deepcopy(child)
            case _:
                document[key] = deepcopy(random.choice(_VALUES))
        if document == []:
            document.append(None)
        return


def of_gzip(mutate: Mutate) -> Mutate:
    """Returns a function that mutates what is within a gzip file."""

    def change(data: bytes, random: Random) -> bytes:
        return gzip.compress(mutate(gzip.decompress(data), random), 1)

    return change


def of_zip(data: bytes, random: Random) -> bytes:
    """Changes a member of a zip file: its bytes, its numbers, or whether it is there. The sums of the zip file hold."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(random.choice((1, 1, 3))):
        name = random.choice(sorted(members))
        content = members[name]
        match random.randrange(4):
            case 0:
                del members[name]
            case 1 if name.endswith(".json"):
                members[name] = of_json(content, random)
            case 2:
                members[name] = of_bytes(content, random)
            case _:
                head = 128 if name.endswith(".npy") else 0
                numbers = bytearray(content)
                for _ in range(random.choice((1, 4, 50))):
                    if len(numbers) > head:
                        numbers[random.randrange(head, len(numbers))] = random.choice((0, 1, 127, 128, 255))
                members[name] = bytes(numbers)
        if not members:
            return b"PK\x05\x06" + bytes(18)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def seed_of(seed: int, name: str, number: int) -> int:
    """Returns the seed of one mutant."""
    return zlib.crc32(f"{seed} {name} {number}".encode())
