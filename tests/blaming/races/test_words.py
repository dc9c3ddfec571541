"""What a person reads of races."""

from __future__ import annotations

from unstall.blaming.document import Blame
from unstall.blaming.result import BlameResult, Line, Race, RaceSide

SUM = Line("train.py", 11, "main", "total = noise.sum()")


def race(**more: object) -> Race:
    facts = {
        "kind": "read-early",
        "title": "Race: read before the write has finished",
        "earlier": RaceSide(
            where=Line("train.py", 9, "main", "noise.normal_()"), operator="aten::normal_", stream="the default stream"
        ),
        "later": RaceSide(where=SUM, operator="aten::sum", stream="stream 0x7"),
        "bytes": 1 << 20,
        "count": 1,
        "fix": "let stream 0x7 wait",
        **more,
    }
    return Race(**facts)  # type: ignore[arg-type]


def text(*races: Race, missing: str = "") -> str:
    return " ".join(str(Blame(BlameResult(races=races, races_missing=missing))).split())


def test_the_first_sentence_has_both_lines() -> None:
    assert "1 race: results may be wrong, and differ from run to run; between train.py:9 and train.py:11." in text(
        race()
    )


def test_both_operations_are_told_with_their_streams() -> None:
    assert (
        "aten::sum at train.py:11 on stream 0x7 reads 1.00 MiB that aten::normal_ at train.py:9 on the default stream "
        "may not have written yet: nothing orders the two"
    ) in text(race())


def test_the_source_of_both_lines_is_shown() -> None:
    told = text(race())
    assert "first train.py:9 in main: noise.normal_()" in told
    assert "second train.py:11 in main: total = noise.sum()" in told


def test_a_race_of_many_iterations_is_told_with_their_number() -> None:
    assert "nothing orders the two; 1,200 times" in text(race(count=1200))


def test_the_host_is_told_as_such() -> None:
    assert "aten::item at train.py:11 on the host reads" in text(race(later=RaceSide(where=SUM, operator="aten::item")))


def test_the_line_that_freed_the_memory_is_told() -> None:
    assert "freed train.py:10 in main" in text(race(kind="reused", freed_at=Line("train.py", 10, "main")))


def test_a_captured_operation_is_told_with_its_replay() -> None:
    replayed = RaceSide(where=SUM, operator="aten::mul", stream="stream 0x7", replayed=Line("train.py", 30, "main"))
    assert "second train.py:11 in main, replayed at train.py:30: total = noise.sum()" in text(race(later=replayed))


def test_a_line_that_is_not_known_is_told_as_such() -> None:
    assert "aten::sum, by a line that is not known" in text(race(later=RaceSide(where=None, operator="aten::sum")))


def test_no_race_is_told_as_such_only_if_they_were_looked_for() -> None:
    assert "No fault was seen, and no race was seen." in text()
    assert "race" not in str(Blame(BlameResult()))


def test_why_races_may_be_missing_is_told() -> None:
    assert "Races may be missing: this torch has no sanitizer." in text(missing="this torch has no sanitizer")


def test_each_race_is_an_annotation_at_its_later_line() -> None:
    document = Blame(BlameResult(races=(race(),))).document()
    assert [(each.level, each.line) for each in document.annotations] == [("error", None), ("error", 11)]
