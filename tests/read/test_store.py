"""A timeline's own file: what is saved is what is loaded, and nothing else can be slipped in."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from programs import Program, programs
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.errors import TraceError
from unstall.read import load
from unstall.timeline.columns import Timeline

Members = dict[str, bytes]


def equal(one: Timeline, other: Timeline) -> bool:
    """Whether they agree in every column, its type, every text, and all else."""
    if (one.strings, one.meta) != (other.strings, other.meta):
        return False
    for name, table in one.tables.items():
        for column in table.__struct_fields__:
            ours, theirs = getattr(table, column), getattr(other.tables[name], column)
            if ours.dtype != theirs.dtype or not np.array_equal(ours, theirs):
                return False
    return True


def small() -> TraceBuilder:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        with trace.op("aten::mm", shapes=[[2, 3], [3, 4]]):
            trace.launch("gemm", 10)
        trace.stream_wait(trace.record(), stream=7)
        trace.item()
    return trace


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    return small().timeline()


@pytest.fixture(scope="module")
def saved(timeline: Timeline) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.timeline"
        timeline.save(path)
        return path.read_bytes()


def loaded(content: bytes) -> Timeline:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.timeline"
        path.write_bytes(content)
        return load(path)


def members(saved: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(content: Members) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in content.items():
            archive.writestr(name, member)
    return buffer.getvalue()


def column(values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(values, dtype))
    return buffer.getvalue()


@examples(20)
@given(programs())
def test_what_is_saved_is_what_is_loaded(program: Program) -> None:
    timeline = program.timeline()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.timeline"
        timeline.save(path)
        assert equal(load(path), timeline)
        assert list(Path(folder).iterdir()) == [path]


def test_a_saved_run_is_explained_as_the_recorded_one_is(saved: bytes, timeline: Timeline) -> None:
    assert explain(loaded(saved)).result == explain(timeline).result


def test_columns_after_a_header_without_padding_are_explained_too(saved: bytes, timeline: Timeline) -> None:
    content = members(saved)
    for name, member in content.items():
        if name.endswith(".npy"):
            content[name] = member.replace(b" \n", b"\n", 1)
    found = loaded(packed(content))
    assert equal(found, timeline)
    assert all(column.flags.aligned for column in (found.host.start, found.device.launch))
    assert explain(found).result == explain(timeline).result


def test_the_content_decides_and_not_the_name(timeline: Timeline, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    timeline.save(path)
    assert equal(load(path), timeline)


RECORDED = {"recorder": "cupti", "step_marks": "loader", "lines": "exact", "notes": ["GPU 0 was throttled"]}


def recorded() -> bytes:
    trace = TraceBuilder(operators=False, unstall=RECORDED)
    with trace.frame("train.py", 41, "step"):
        trace.launch()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.timeline"
        trace.timeline().save(path)
        return path.read_bytes()


def test_what_our_own_recorder_said_is_kept() -> None:
    timeline = loaded(recorded())
    meta = timeline.meta
    assert (meta.recorder, meta.step_marks, meta.exact_lines) == ("cupti", "loader", True)
    assert meta.notes == ("GPU 0 was throttled",)
    assert timeline.lines.exact.tolist() == [True]


def test_a_timeline_saved_before_recorders_had_names_still_loads(saved: bytes, timeline: Timeline) -> None:
    content = members(saved)
    header = msgspec.json.decode(content["timeline.json"])
    for name in ("recorder", "step_marks", "exact_lines"):
        del header["meta"][name]
    assert equal(loaded(packed(content | {"timeline.json": msgspec.json.encode(header)})), timeline)


@pytest.mark.parametrize("said", [{"recorder": "nsys"}, {"step_marks": "moon"}, {"exact_lines": "yes"}])
def test_a_recorder_that_is_none_of_ours_is_refused(said: dict[str, str]) -> None:
    content = members(recorded())
    header = msgspec.json.decode(content["timeline.json"])
    header["meta"] |= said
    with pytest.raises(TraceError, match="not a whole saved timeline"):
        loaded(packed(content | {"timeline.json": msgspec.json.encode(header)}))


@pytest.mark.parametrize("plain_step_ns", [-5, 0, 2**62])
def test_a_plain_step_time_that_is_none_is_refused(plain_step_ns: int) -> None:
    content = members(recorded())
    header = msgspec.json.decode(content["timeline.json"])
    header["meta"]["plain_step_ns"] = plain_step_ns
    with pytest.raises(TraceError, match=r"plain_step_ns is -?[0-9]+, which is no time"):
        loaded(packed(content | {"timeline.json": msgspec.json.encode(header)}))


def test_a_timeline_of_an_older_version_knows_no_grids_no_shares_and_no_multiprocessors(saved: bytes) -> None:
    content = members(saved)
    header = msgspec.json.decode(content["timeline.json"])
    del header["meta"]["multiprocessors"], content["device.blocks.npy"], content["device.share.npy"]
    older = loaded(packed(content | {"timeline.json": msgspec.json.encode(header)}))

    assert older.device.blocks.tolist() == older.device.share.tolist() == [-1, -1]
    assert older.meta.multiprocessors == ()


@pytest.mark.parametrize("count", [-1, 2**31])
def test_a_number_of_multiprocessors_that_is_none_is_refused(saved: bytes, count: int) -> None:
    content = members(saved)
    header = msgspec.json.decode(content["timeline.json"])
    header["meta"]["multiprocessors"] = [132, count]

    with pytest.raises(TraceError, match="multiprocessors"):
        loaded(packed(content | {"timeline.json": msgspec.json.encode(header)}))


def harmless(saved: bytes, damaged: bytes) -> bool:
    """Whether a damaged file is refused, or the damage was in nothing that matters."""
    try:
        return equal(loaded(damaged), loaded(saved))
    except TraceError:
        return True


@examples(100)
@given(st.data())
def test_a_wrong_byte_is_noticed(saved: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(saved) - 1))
    wrong = data.draw(st.integers(1, 255))
    assert harmless(saved, saved[:at] + bytes([saved[at] ^ wrong]) + saved[at + 1 :])


@examples(50)
@given(st.data())
def test_a_file_cut_short_is_refused(saved: bytes, data: st.DataObject) -> None:
    with pytest.raises(TraceError):
        loaded(saved[: data.draw(st.integers(0, len(saved) - 1))])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))
def test_every_wrong_byte_is_noticed(saved: bytes, part: int) -> None:
    for at in range(part, len(saved), 16):
        assert harmless(saved, saved[:at] + bytes([saved[at] ^ 0xFF]) + saved[at + 1 :])


class TestForged:
    """Files with checksums that are right and contents that are not."""

    def forge(self, saved: bytes, name: str, change: Callable[[bytes], bytes]) -> Timeline:
        content = members(saved)
        content[name] = change(content[name])
        return loaded(packed(content))

    def test_forging_is_possible(self, saved: bytes, timeline: Timeline) -> None:
        assert equal(self.forge(saved, "host.start.npy", lambda member: member), timeline)

    @pytest.mark.parametrize(
        ("name", "values", "dtype"),
        [
            ("host.start.npy", [1.5], np.float64),
            ("host.start.npy", [[1]], np.int64),
            ("host.start.npy", [1], np.int64),
            ("host.start.npy", [None], object),
            ("host.kind.npy", [1], np.int64),
            ("streams.device.npy", [0, 0, 0], np.int32),
        ],
        ids=["floats", "two dimensions", "too short", "objects", "too wide", "too long"],
    )
    def test_columns_of_another_shape_or_type_are_refused(
        self, saved: bytes, name: str, values: npt.ArrayLike, dtype: npt.DTypeLike
    ) -> None:
        with pytest.raises(TraceError):
            self.forge(saved, name, lambda _: column(values, dtype))

    @examples(60)
    @given(st.data())
    def test_a_damaged_column_is_refused_or_read(self, saved: bytes, data: st.DataObject) -> None:
        """Whatever stands in the column's header: it is text that a parser has to cope with."""
        name = data.draw(st.sampled_from(sorted(members(saved))))
        at, wrong = data.draw(st.integers(0, 127)), data.draw(st.binary(min_size=1, max_size=4))
        with suppress(TraceError):
            self.forge(saved, name, lambda member: member[:at] + wrong + member[at + len(wrong) :])

    @pytest.mark.parametrize(
        "name",
        ["host.name", "host.parent", "host.stack", "device.launch", "device.stream", "waits.host", "lines.file"],
    )
    @pytest.mark.parametrize("value", [-2, 2**31 - 1])
    def test_indices_that_point_outside_of_their_table_are_refused(
        self, saved: bytes, timeline: Timeline, name: str, value: int
    ) -> None:
        table, field = name.split(".")
        values = getattr(timeline.tables[table], field).copy()
        values[0] = value
        with pytest.raises(TraceError, match=rf"column {table}\.{field} points outside of"):
            self.forge(saved, f"{name}.npy", lambda _: column(values))

    @pytest.mark.parametrize(("name", "value"), [("host.kind", 15), ("device.direction", -1), ("waits.kind", 4)])
    def test_kinds_that_there_are_not_are_refused(
        self, saved: bytes, timeline: Timeline, name: str, value: int
    ) -> None:
        table, field = name.split(".")
        values = getattr(timeline.tables[table], field).copy()
        values[0] = value
        with pytest.raises(TraceError, match=rf"column {table}\.{field} holds what is no "):
            self.forge(saved, f"{name}.npy", lambda _: column(values))

    @examples(100)
    @given(st.data())
    def test_a_forged_value_is_refused_or_explained(
        self, saved: bytes, timeline: Timeline, data: st.DataObject
    ) -> None:
        table = data.draw(st.sampled_from(sorted(name for name, columns in timeline.tables.items() if len(columns))))
        field = data.draw(st.sampled_from(sorted(timeline.tables[table].__struct_fields__)))
        values = getattr(timeline.tables[table], field).copy()
        at = data.draw(st.integers(0, len(values) - 1))
        far = 10**12 if values.dtype == np.int64 else 100
        values[at] = data.draw(st.booleans() if values.dtype == np.bool_ else st.integers(-far, far))
        with suppress(TraceError):
            explain(self.forge(saved, f"{table}.{field}.npy", lambda _: column(values)))

    def test_a_loop_of_parents_is_refused(self, saved: bytes, timeline: Timeline) -> None:
        parent = timeline.host.parent.copy()
        parent[0] = 1
        with pytest.raises(TraceError, match="does not point upwards"):
            self.forge(saved, "host.parent.npy", lambda _: column(parent))

    def test_another_schema_is_named(self, saved: bytes) -> None:
        def change(member: bytes) -> bytes:
            return msgspec.json.encode(msgspec.json.decode(member) | {"schema": "unstall.timeline/99"})

        with pytest.raises(TraceError, match=r"unstall\.timeline/99.*this version reads 'unstall\.timeline/1'"):
            self.forge(saved, "timeline.json", change)

    def test_a_missing_column_is_named(self, saved: bytes) -> None:
        content = members(saved)
        del content["host.op.npy"]
        with pytest.raises(TraceError, match=r"host\.op\.npy"):
            loaded(packed(content))

    def test_a_bomb_is_refused_unopened(self, saved: bytes) -> None:
        """100 MB of zeros from 100 kB."""
        zeros = column(np.zeros(100_000_000, np.int8))
        with pytest.raises(TraceError, match=r"claims to unpack to 100,\d+,\d+ bytes from \d+,\d+; refused"):
            self.forge(saved, "host.kind.npy", lambda _: zeros)

    def test_a_column_that_claims_to_be_vast_is_refused(self, saved: bytes) -> None:
        def change(member: bytes) -> bytes:
            shape = member.index(b"'shape': (") + len("'shape': (")
            return member[:shape] + b"9999999999999,), }\n" + member[shape:]

        with pytest.raises(TraceError):
            self.forge(saved, "host.start.npy", change)
