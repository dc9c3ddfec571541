"""The HTML page as a text: what it may do, and that nothing in a trace can change that."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import zlib
from importlib import resources
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from report.rendered import as_html
from report.sample import HOSTILE, TYPICAL, results
from report.timelines import Recording, drawn, training_step

from unstall.document import html
from unstall.report.explain import unplanned
from unstall.report.payload import pack_column, pack_picture
from unstall.result import Result

EMPTY = resources.files("unstall.document").joinpath("page.html").read_text("utf-8")


def block(page: str, name: str) -> bytes:
    """One data block of a page."""
    found = re.search(f'<script id="{name}-data" type="application/octet-stream">([^<]*)</script>', page)
    assert found is not None
    return zlib.decompress(base64.b64decode(found[1], validate=True))


def unpacked(fields: tuple[int, int, int, bool], planes: bytes) -> list[int]:
    """What the page makes of a column, in plain Python."""
    length, width, base, rising = fields
    values: list[int] = []
    for i in range(length):
        above = sum(planes[plane * length + i] << (8 * plane) for plane in range(width))
        values.append(above + base + (values[-1] if rising and values else 0))
    return values


@given(st.lists(st.integers(-(2**53), 2**53), max_size=30), st.booleans())
def test_apack_column_column_comes_back_exactly(values: list[int], rising: bool) -> None:
    fields, planes = pack_column(np.array(values, np.int64), rising=rising)

    assert unpacked(fields, planes) == values
    assert len(planes) == fields[0] * fields[1]


def test_small_numbers_take_one_byte_and_constants_none() -> None:
    assert pack_column(np.arange(1_000, 1_200), rising=False)[0][1] == 1
    assert pack_column(np.arange(1_000, 1_200), rising=True)[0][1] == 2
    assert pack_column(np.full(50, -1), rising=False)[0][1] == 0


def test_the_page_carries_the_result_and_the_picture() -> None:
    page = as_html(TYPICAL, drawn(training_step()))
    picture = block(page, "picture")
    head_length = struct.unpack("<I", picture[:4])[0]
    header: dict[str, Any] = json.loads(picture[4 : 4 + head_length])

    assert msgspec.json.decode(block(page, "result"), type=Result) == TYPICAL
    assert "gemm_f32" in header["strings"]
    columns = sum(length * width for _, length, width, *_ in header["columns"])
    assert len(picture) == 4 + head_length + columns


def test_without_a_picture_the_block_is_empty() -> None:
    assert '<script id="picture-data" type="application/octet-stream"></script>' in as_html(TYPICAL)


@given(results())
def test_whatever_the_result_says_the_page_differs_only_in_base64(result: Result) -> None:
    page = as_html(result)
    data = html.block(json.dumps({**msgspec.to_builtins(result), "unplanned": unplanned(result)}).encode())

    assert re.fullmatch(r"[A-Za-z0-9+/=]+", data)
    assert page.replace(data, "{{result}}") == EMPTY.replace("{{picture}}", "")


@given(st.lists(st.sampled_from(HOSTILE) | st.text(), min_size=1, max_size=5))
def test_whatever_events_are_called_their_block_is_base64(names: list[str]) -> None:
    made = Recording()
    for i, name in enumerate(names):
        made.op(name, 10 * i, 10 * i + 5)
    data = html.block(pack_picture(drawn(made.timeline())))

    assert re.fullmatch(r"[A-Za-z0-9+/=]+", data)
    assert zlib.decompress(base64.b64decode(data))


def test_scrubbing_reaches_every_text_of_the_picture() -> None:
    page = as_html(TYPICAL, drawn(training_step()), scrub=lambda text: text.replace("train.py", "t.py"))

    assert b"train.py" not in block(page, "picture")
    assert b"t.py(41): step" in block(page, "picture")


def test_the_policy_allows_the_pages_own_script_and_style_and_nothing_else() -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', EMPTY)
    assert policy is not None

    def digest(pattern: str) -> str:
        found = re.search(pattern, EMPTY, re.DOTALL)
        assert found is not None
        return base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()

    assert policy[1].split("; ") == [
        "default-src 'none'",
        f"script-src 'sha256-{digest('<script>(.*?)</script>')}'",
        f"style-src 'sha256-{digest('<style>(.*?)</style>')}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_the_page_names_nothing_to_fetch() -> None:
    assert not re.search(r"""(?:src|href)\s*=\s*["'][^#]|@import|url\(|https?://""", EMPTY)


def test_the_page_is_small_and_has_one_slot_for_each_block() -> None:
    assert len(EMPTY.encode()) < 110_000
    assert EMPTY.count("{{result}}") == EMPTY.count("{{picture}}") == 1
    assert "\r" not in EMPTY
