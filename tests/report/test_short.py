"""The end of `unstall run`: the verdict, the plan in a line, what gains most, and what to do next."""

from __future__ import annotations

import msgspec
import pytest
from report.sample import MS, NO_DEVICE, TYPICAL

from unstall.document import terminal
from unstall.report.short import SHOWN, document
from unstall.report.verdict_text import in_short, more_of
from unstall.result import CAVEAT, PlanStep, Replay, Result

_REPLAY = Replay(
    mean_step_ns=12 * MS,
    error=0.0,
    undistorted_mean_step_ns=10 * MS,
    undistorted_by="nothing",
    host_free_step_ns=MS,
    accounts=TYPICAL.accounts,
)


def _lines(result: Result, *last: str) -> list[str]:
    return terminal.render(document(result, last)).splitlines()


def test_it_begins_with_the_verdict_and_ends_with_what_to_do_next() -> None:
    lines = _lines(TYPICAL, "next: unstall show 1", "all of it: x.json")
    assert TYPICAL.verdict.text.startswith(lines[0].removesuffix("."))
    assert lines[-2:] == ["next: unstall show 1", "all of it: x.json"]


def test_it_is_short_and_fits_the_terminal() -> None:
    lines = _lines(TYPICAL, "next: unstall show 1", "all of it: x.json")
    assert len([line for line in lines if line]) <= 3 * SHOWN + 6
    assert max(map(len, lines)) <= 80


def test_the_three_findings_have_the_numbers_of_the_full_report() -> None:
    lines = _lines(TYPICAL)
    for number, finding in enumerate(TYPICAL.costly[:SHOWN], 1):
        (line,) = (line for line in lines if line.startswith(f"{number}. "))
        assert f"{(finding.where.file or '').rpartition('/')[2]}:{finding.where.line}" in line
    assert not any(line.startswith(f"{SHOWN + 1}. ") for line in lines)


@pytest.mark.parametrize(
    ("basis", "by", "which"),
    [
        ("recorded", "nothing", "as recorded"),
        ("undistorted", "usual cost", "without the recorder, estimated"),
        ("undistorted", "plain step time", "without the recorder"),
    ],
)
def test_the_plan_is_one_line_and_says_of_which_run_the_step_is(basis: str, by: str, which: str) -> None:
    planned = msgspec.structs.replace(
        TYPICAL,
        verdict=msgspec.structs.replace(TYPICAL.verdict, basis=basis),
        replay=msgspec.structs.replace(_REPLAY, undistorted_by=by),
        plan=(PlanStep(edit="graph", step_ns=3 * MS, gain_ns=7 * MS),),
    )
    assert f"plan: 10.0 ms a step ({which}) → 3.00 ms with 1 change" in _lines(planned)


@pytest.mark.parametrize(("gain_ns", "said"), [(0, "gains anything"), (30_000, "gains more than 30.0 µs")])
def test_without_a_plan_no_finding_gains_more_than_is_said(gain_ns: int, said: str) -> None:
    finding = msgspec.structs.replace(TYPICAL.findings[0], gain_ns=gain_ns, harmless=False, wrong=False)
    unplanned = msgspec.structs.replace(
        TYPICAL,
        findings=(finding,),
        replay=_REPLAY,
        plan=(),
    )
    assert f"no change that was replayed {said}" in " ".join(_lines(unplanned))


@pytest.mark.parametrize(("after_ms", "said"), [(3.0, True), (1.9, False)])
def test_a_change_that_gains_more_after_the_others_is_told(after_ms: float, said: bool) -> None:
    findings = tuple(
        msgspec.structs.replace(TYPICAL.findings[0], edit=edit, gain_ns=MS, harmless=False, wrong=False)
        for edit in ("graph", "remove-syncs")
    )
    plan = tuple(
        PlanStep(edit=edit, step_ns=5 * MS, gain_ns=round(gain * MS))
        for edit, gain in (("graph", 1), ("remove-syncs", after_ms))
    )
    planned = msgspec.structs.replace(TYPICAL, findings=findings, replay=_REPLAY, plan=plan)
    told = "in this order. Finding 2 gains 1.00 ms alone, and 3.00 ms after the changes before it"
    assert (told in " ".join(_lines(planned))) == said


def test_the_plan_says_which_findings_its_changes_mend_in_order() -> None:
    edits = ["graph:train.py:main", "remove-syncs:train.py:4", "pin-copies:train.py:9"]
    template = TYPICAL.findings[0]
    findings = tuple(msgspec.structs.replace(template, edit=edit, harmless=False, wrong=False) for edit in edits)
    planned = msgspec.structs.replace(
        TYPICAL,
        findings=findings,
        replay=_REPLAY,
        plan=tuple(PlanStep(edit=edit, step_ns=3 * MS, gain_ns=MS) for edit in (edits[2], edits[0])),
    )
    assert "with 2 changes: findings 3 and 1, in this order" in " ".join(_lines(planned))


def test_a_run_without_device_work_has_its_verdict_alone() -> None:
    lines = _lines(NO_DEVICE, "all of it: x.json")
    assert (lines[0], lines[-1]) == (NO_DEVICE.verdict.text, "all of it: x.json")
    assert not any(line.startswith(("plan", "No finding")) for line in lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Launch-bound: 1.5 % more. Next: 2.0 %.", "Launch-bound: 1.5 % more."),
        ("No device work was recorded.", "No device work was recorded."),
        (
            f"{CAVEAT} a step takes 3 ms: off. Copy-bound: 4 %. More.",
            f"{CAVEAT} a step takes 3 ms: off. Copy-bound: 4 %.",
        ),
    ],
)
def test_a_caveat_goes_with_what_bounds_the_run(text: str, said: str) -> None:
    assert in_short(text) == said
    assert " ".join([said, *more_of(text)]) == text
    for missing in ("This is the whole run, since it is short.", "This is how it began. CUDA failed: 2 of 2."):
        assert in_short(f"{missing} {text}", missing.removesuffix(".")) == f"{missing} {said}"


def test_missing_input_is_told() -> None:
    damaged = msgspec.structs.replace(TYPICAL, integrity=msgspec.structs.replace(TYPICAL.integrity, ok=False))
    assert any("missing or damaged" in line for line in _lines(damaged))
