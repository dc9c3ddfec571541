"""Recorded numbers: what a block leaves in a file, and what two files tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import unstall
from unstall.errors import TraceError, UsageError
from unstall.numbers import files
from unstall.numbers.answer import Row
from unstall.numbers.files import Recorded
from unstall.numbers.recorded import compare_recorded
from unstall.rounding.judge import RUNS, Errors
from unstall.rounding.noise import Noise


def step(factor: float = 1.0, *, spoil: bool = False) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        result = model(torch.randn(5, 8)) * factor
        if spoil:
            result = result + 0.01
        loss = result.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def recorded(path: Path, factor: float = 1.0, *, spoil: bool = False) -> Recorded:
    with unstall.recording_numbers(path):
        step(factor, spoil=spoil)
    return files.read(path)


def with_errors(path: Path) -> Recorded:
    """A recording that knows its errors, as `unstall numbers --record` makes it."""
    from unstall.numbers.recording import Recorder

    first = recorded(path)
    runs = []
    for seed in range(RUNS):
        recorder = Recorder(path.with_name("noisy.numbers"), most=1000, call=Noise(seed).call)
        with recorder.watch:
            step()
        recorder.close(complete=True)
        runs.append(files.read(path.with_name("noisy.numbers")).ran)
    found = replace(first, errors=Errors.of(first.ran, runs))
    files.write(path, found)
    return found


def compared(before: Path, after: Path) -> Row:
    return compare_recorded(before, after).rows[0]


def test_a_recording_has_operators_values_and_weights_with_their_lines(tmp_path: Path) -> None:
    ran = recorded(tmp_path / "a.numbers").ran
    assert ran.complete
    assert {"addmm", "gelu", "mm", "gelu_backward", "mean"} <= {each.name for each in ran.operators}
    assert {each.place.backward for each in ran.operators} == {True, False}
    assert all(Path(each.place.file).name == Path(__file__).name for each in ran.operators if each.place.file)
    assert [name for kind, name in ran.ends if kind == "value"] == ["1 of loss.item()", "2 of loss.item()"]
    assert len([name for kind, name in ran.ends if kind == "weight"]) == 4


def test_a_block_without_values_and_weights_ends_with_its_last_result(tmp_path: Path) -> None:
    with unstall.recording_numbers(tmp_path / "a.numbers"):
        torch.arange(4.0).exp()
    (end,) = files.read(tmp_path / "a.numbers").ran.ends.values()
    assert np.allclose(end.values, np.exp(np.arange(4.0)))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found = with_errors(tmp_path / "a.numbers")
    again = files.read(tmp_path / "a.numbers")
    assert again.header == found.header
    assert again.ending == found.ending
    assert again.errors is not None
    assert found.errors is not None
    for one, other in zip(again.ran.operators, found.ran.operators, strict=True):
        assert (one.key, one.place, one.dtype, one.total, one.terms) == (
            *(other.key, other.place, other.dtype, other.total, other.terms),
        )
        assert np.array_equal(one.values, other.values)
    assert again.errors.operators is not None
    assert found.errors.operators is not None
    for mine, its in zip(again.errors.operators, found.errors.operators, strict=True):
        assert mine is not None
        assert its is not None
        assert np.array_equal(mine, its, equal_nan=True)


def test_equal_runs_are_equal(tmp_path: Path) -> None:
    recorded(tmp_path / "a.numbers")
    recorded(tmp_path / "b.numbers")
    assert compared(tmp_path / "a.numbers", tmp_path / "b.numbers").kind == "equal"


def test_a_file_with_errors_tells_rounding_from_a_bug_whichever_comes_first(tmp_path: Path) -> None:
    with_errors(tmp_path / "a.numbers")
    recorded(tmp_path / "rounded.numbers", 1 + 1e-8)
    recorded(tmp_path / "rounded.numbers", 1.0000001)
    recorded(tmp_path / "wrong.numbers", spoil=True)
    for other, kinds in (("rounded", {"rounding", "equal"}), ("wrong", {"different", "factor"})):
        for order in (("a", other), (other, "a")):
            assert compared(*(tmp_path / f"{name}.numbers" for name in order)).kind in kinds


def test_without_errors_the_first_other_bits_are_all_that_is_told(tmp_path: Path) -> None:
    recorded(tmp_path / "a.numbers")
    recorded(tmp_path / "b.numbers", 1.001)
    row = compared(tmp_path / "a.numbers", tmp_path / "b.numbers")
    assert row.kind == "unknown"
    assert not row.agrees
    assert row.found is not None
    assert row.found.first is not None
    assert row.found.first.seen.name == "mul"


def test_a_program_that_was_killed_leaves_what_it_had(tmp_path: Path) -> None:
    whole = recorded(tmp_path / "a.numbers").ran
    data = (tmp_path / "a.numbers").read_bytes()
    (tmp_path / "b.numbers").write_bytes(data[: 2 * len(data) // 3])
    part = files.read(tmp_path / "b.numbers").ran
    assert not part.complete
    assert 0 < len(part.operators) <= len(whole.operators)
    assert compared(tmp_path / "a.numbers", tmp_path / "b.numbers").kind == "equal"


def test_no_more_operators_than_asked_for_are_recorded(tmp_path: Path) -> None:
    with unstall.recording_numbers(tmp_path / "a.numbers", most=3):
        value = torch.ones(3)
        for _ in range(10):
            value = value + 1
    found = files.read(tmp_path / "a.numbers")
    assert len(found.ran.operators) == 3
    assert not found.ran.complete
    assert float(value[0]) == 11


def test_the_name_of_the_file_tells_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in \.numbers"), unstall.recording_numbers(tmp_path / "train.py"):
        pass
    with pytest.raises(UsageError, match="cannot be written"), unstall.recording_numbers(tmp_path / "no" / "a.numbers"):
        pass


def test_each_rank_has_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    with unstall.recording_numbers(tmp_path / "a.numbers"):
        torch.ones(3) + 1
    assert [each.name for each in tmp_path.iterdir()] == ["a.rank3.numbers"]


def line(**changes: object) -> bytes:
    plain: dict[str, object] = {
        "kind": "operator",
        "name": "mm",
        "file": "a.py",
        "line": 1,
        "function": "f",
        "backward": False,
        "shape": [2],
        "dtype": "float32",
        "values": np.ones(3).tobytes(),
    }
    return msgspec.json.encode(plain | changes) + b"\n"


HEADER = msgspec.json.encode(files.Header(files.SCHEMA, "1", "2")) + b"\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no recording of numbers"),
        (b"\x00\x01", "no recording of numbers"),
        (json.dumps({"schema": "x/9", "unstall": "", "torch": ""}).encode(), "schema 'x/9'"),
        (HEADER + line(kind="given"), "cannot be read"),
        (HEADER + line(dtype="object"), "no type is called 'object'"),
        (HEADER + line(shape=[-2]), "shape"),
        (HEADER + line(values=b""), "0 values"),
        (HEADER + line(shape=[1 << 62] * 9), "a shape that no tensor has"),
        (HEADER + line(shape=[1] * 70), "a shape that no tensor has"),
        (HEADER + line(values=np.ones(9).tobytes()), "9 values"),
        (HEADER + line(values=b"123"), "cannot be read"),
        (HEADER + line(errors=np.ones(2).tobytes()), "2 errors"),
        (HEADER + b"[" * 100_000 + b"\n", "cannot be read"),
        (HEADER + b"x" * (5 << 20), "more than 4 MiB"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "a.numbers"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=says):
        files.read(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no such file"):
        files.read(tmp_path)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_change_of_a_file_is_more_than_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(HEADER + line() + line(kind="value", name="1 of x") + b'{"complete":true,"device":""}\n')
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "mutant.numbers"
    path.write_bytes(bytes(content))
    try:
        ran = files.read(path).ran
    except TraceError:
        return
    assert len(ran) <= 2


def test_that_values_vary_with_errors_is_kept_in_the_file(tmp_path: Path) -> None:
    found = with_errors(tmp_path / "a.numbers")
    assert found.errors is not None
    files.write(tmp_path / "a.numbers", replace(found, errors=replace(found.errors, vary=True)))
    again = files.read(tmp_path / "a.numbers")
    assert again.errors is not None
    assert again.errors.vary
