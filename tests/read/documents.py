"""Traces that hypothesis makes: events with any of their keys, clean or as dirty as they occur in the wild."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st


class Spelled(str):
    """JSON, or nearly, that goes into the text as it is."""

    __slots__ = ()


NAMES = st.sampled_from(
    [
        "aten::mm",
        "Memcpy",
        "Memset",
        "void gemm<float, 4>(int)",
        "[memory]",
        'say "so"',
        "}, {",
        "],{[",
        "ひらがな",
        "",
        "\\",
    ]
)
MEMORY_KINDS = st.sampled_from(["pageable", "pinned", "device", "device_static", "martian", 0, 3, 8])
CATEGORIES = st.sampled_from(
    ["cpu_op", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_sync", "python_function", "Trace", "mine"]
)
IDS = st.one_of(st.integers(-1, 9), st.sampled_from([2**31, 2**32 - 1, 2**63 - 1, -(2**63)]))
DIMS = st.lists(st.lists(st.integers(0, 4), max_size=2), max_size=3)
NESTED = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), NAMES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)


def times(most: int, digits: int = 3) -> st.SearchStrategy[Any]:
    """Ints, and decimals of up to so many digits."""
    decimals = st.builds(
        lambda whole, part, places: Decimal(whole) + Decimal(part).scaleb(-places),
        st.integers(0, most),
        st.integers(0, 10**digits - 1),
        st.just(digits),
    )
    return st.one_of(st.integers(0, most), decimals)


GRIDS = st.one_of(
    st.tuples(*[st.integers(1, 300)] * 3).map(list),
    st.lists(st.sampled_from([0, -1, 1, 2**16, 2**31 - 1, 2**31, 2**70, "2", None, True]), max_size=4),
    st.sampled_from([None, 7, "1,1,1", {}]),
)
CLOCKS = st.sampled_from([10, 2**42 - 2, 2**43, 1_719_384_759_837_462])  # µs: how late the file's clock may be

ARGS = {
    "External id": IDS,
    "external id": IDS,
    "correlation": IDS,
    "device": IDS,
    "stream": IDS,
    "bytes": IDS,
    "grid": GRIDS,
    "original_stream": IDS,
    "copy kind": st.sampled_from(["HtoD", "DtoH", "DtoD", "PtoP", "UtoU", 1, 9, 77]),
    "src kind": MEMORY_KINDS,
    "dst kind": MEMORY_KINDS,
    "memory kind": MEMORY_KINDS,
    "Sequence number": IDS,
    "Fwd thread id": IDS,
    "Call stack": NAMES,
    "Input Dims": DIMS,
    "Input dims": DIMS,
    "wait_on_stream": IDS,
    "wait_on_cuda_event_record_corr_id": IDS,
    "wait_on_cuda_event_id": IDS,
    "Bytes": IDS,
    "Device Type": st.integers(0, 1),
    "Device Id": st.integers(-1, 1),
    "Total Allocated": IDS,
    "Addr": IDS,
    "name": NAMES,
    "Concrete Inputs": NESTED,
}

# What stands where something else belongs.
ODD_TEXT = st.sampled_from([None, True, 7, Spelled("1.50"), 2**70])
ODD_NUMBER = st.sampled_from(
    [None, False, "12", "-3", "x", Spelled("7.0"), Spelled("1e3"), 2**64 - 1, Spelled("1.5"), Spelled("NaN")]
)
BROKEN_TEXT = st.sampled_from(
    [
        Spelled('"a\x01\tb\n"'),
        Spelled('"C:\\Users\\x86\\\\"'),
        Spelled('"\\ud83d\\ude00 \\ud83d \\udc00"'),
        Spelled('"\\u12"'),
        Spelled('"\udcff\udce2\udc82"'),
        Spelled('"NaN, Infinity"'),
    ]
)
BROKEN_VALUE = st.sampled_from([Spelled("NaN"), Spelled("-Infinity"), Spelled('[{"inf": Infinity}, {"a": NaN}]')])


def events(*, dirty: bool, clock: int, digits: int = 3) -> st.SearchStrategy[Any]:
    def either(clean: st.SearchStrategy[Any], *odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(clean, clean, clean, *odd) if dirty else clean

    args = st.fixed_dictionaries(
        {},
        optional={
            key: either(value, ODD_TEXT if value is NAMES else BROKEN_VALUE if value is NESTED else ODD_NUMBER)
            if value not in (DIMS, GRIDS)
            else value
            for key, value in ARGS.items()
        },
    )
    names = either(NAMES, ODD_TEXT, BROKEN_TEXT)
    flow = st.sampled_from(["fwdbwd", "forward_backward", "ac2g"])
    kinds = st.one_of(
        st.fixed_dictionaries({"ph": st.just("X")}, optional={"cat": either(CATEGORIES, ODD_TEXT), "name": names}),
        st.fixed_dictionaries({"ph": st.sampled_from("sf")}, optional={"cat": flow, "name": flow}),
        st.fixed_dictionaries({"ph": st.just("i"), "name": st.sampled_from(["[memory]", "Record Window End"])}),
        st.fixed_dictionaries({"ph": st.just("M"), "name": st.sampled_from(["thread_name", "process_name", "?"])}),
        st.fixed_dictionaries({"ph": either(st.sampled_from("BEb("), st.sampled_from(["?", 1]))}),
    )
    rest = st.fixed_dictionaries(
        {"ts": either(times(clock, digits), ODD_NUMBER)},
        optional={
            "pid": either(st.one_of(st.integers(-1, 3), st.sampled_from(["Spans", "3"])), ODD_TEXT),
            "tid": either(st.one_of(st.integers(-1, 3), st.sampled_from(["stream 7", ""])), ODD_TEXT),
            "dur": either(times(99, digits), ODD_NUMBER, st.integers(-9, -1)),
            "id": either(IDS, ODD_NUMBER),
            "s": st.just("t"),
            "args": either(args, st.sampled_from([None, 3, "text", []])),
        },
    )
    return st.builds(lambda kind, rest: kind | rest, kinds, rest).flatmap(
        lambda event: st.permutations(list(event)).map(lambda keys: {key: event[key] for key in keys})
    )


@st.composite
def documents(draw: st.DrawFn, *, dirty: bool = False, digits: int = 3) -> bytes:
    made = draw(st.lists(events(dirty=dirty, clock=draw(CLOCKS), digits=digits), max_size=8))
    space = draw(st.sampled_from(["", " ", "\n  ", "\t\r\n"]))
    listed = "[" + space + ("," + space).join(spell(event, space) for event in made) + space + "]"
    if draw(st.booleans()):
        return listed.encode("utf-8", "surrogateescape")
    before = draw(st.sampled_from(["", '"deviceProperties": [{"id": 0}, {"id": 1}],', '"a": "\\"traceEvents\\": [",']))
    after = draw(st.sampled_from(["", ',"traceName": "}, {"', ',"deviceProperties": [{"id": 0}, {"id": 1}]']))
    text = f'{space}{{{before}{space}"traceEvents":{space}{listed}{after}{space}}}{space}'
    return text.encode("utf-8", "surrogateescape")


def spell(value: Any, space: str) -> str:
    """JSON with so much space between things."""
    match value:
        case Spelled():
            return value
        case Decimal():
            return format(value, "f")
        case dict():
            members = (f"{spell(key, '')}:{space}{spell(inner, space)}" for key, inner in value.items())
            return "{" + space + ("," + space).join(members) + space + "}"
        case list():
            return "[" + ("," + space).join(spell(inner, space) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False)
