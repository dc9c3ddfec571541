"""Decoding in several threads."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from processes import succeeded

_SOURCES = Path(__file__).parents[1] / "src" / "unstall"

_DECODES_IN_FOUR_THREADS = """
import sys, threading
import msgspec
from unstall.decoding import converted, from_json, from_msgpack

sys.setswitchinterval(1e-6)
plain = {f"outer{i}": [{f"inner{i}": [] for i in range(30)}] for i in range(30)}
json, msgpack = msgspec.json.encode(plain), msgspec.msgpack.encode(plain)
equal = []
for round in range(60):
    inner = msgspec.defstruct("Inner", [(f"inner{i}", list[dict[str, int]]) for i in range(30)])
    outer = msgspec.defstruct("Outer", [(f"outer{i}", list[inner]) for i in range(30)])
    barrier, got = threading.Barrier(4), []

    def decode(call, data):
        barrier.wait()
        got.append(call(data, outer))

    calls = [(from_json, json), (from_msgpack, msgpack), (converted, plain), (from_json, json)]
    threads = [threading.Thread(target=decode, args=each) for each in calls]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    equal.append(len(got) == 4 and all(each == got[0] for each in got))
print(all(equal))
"""


def test_threads_may_decode_one_new_type_at_the_same_time() -> None:
    """By msgspec alone, this program ends by a segmentation fault."""
    assert succeeded([sys.executable, "-c", _DECODES_IN_FOUR_THREADS], timeout=60).stdout == "True\n"


def test_types_are_decoded_by_this_module_only() -> None:
    direct = re.compile(r"msgspec\.(json|msgpack)\.(decode\(.*type=|Decoder\()|msgspec\.convert\(")
    found = [
        f"{path.name}: {line.strip()}"
        for path in _SOURCES.rglob("*.py")
        for line in path.read_text().splitlines()
        if path.name != "decoding.py" and direct.search(line)
    ]
    assert found == []
