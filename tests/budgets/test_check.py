"""What a budget says of a result: held, exceeded or not to be checked, with its figure, its sentence and its lines."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from budgets.results import RECORDED, SIMULATED, WHOLE, outcome_of
from report.sample import NO_DEVICE, TYPICAL

from unstall.budgets.budget import Budget
from unstall.budgets.check import check, check_races
from unstall.budgets.limits import LIMITS
from unstall.budgets.outcome import CheckResult, OutcomeLine
from unstall.result import Fault, Finding, Integrity, Replay, Result, Where

_PLAIN = Replay(
    mean_step_ns=57_000_000,
    error=0.01,
    undistorted_mean_step_ns=50_000_000,
    undistorted_by="plain step time",
    plain_step_ns=50_000_000,
    host_free_step_ns=40_000_000,
    accounts=TYPICAL.accounts,
)
_RACE = Finding(
    rule="race",
    title="Race: read before the write has finished",
    where=Where(file="race.py", line=11),
    count=1,
    wait_ns=0,
    exposed_ns=0,
    saw="aten::sum reads what aten::normal_ may not have written",
    fix="let stream 3 wait for stream 0",
    safe_if="always",
    confidence="high",
    wrong=True,
)


def _with(result: Result, **changes: Any) -> Result:
    return msgspec.structs.replace(result, **changes)


@pytest.mark.parametrize(
    ("limits", "held", "exceeded"),
    [
        ("syncs_per_step", 2, 1),
        ("launches_per_step", 770, 769),
        ("idle", 0.32, 0.31),
        ("exposed_ns", 12_184_001, 12_184_000),
        ("step_ns", 57_637_668, 57_637_667),
        ("reserved_bytes", 2_100_000_000, 2_099_999_999),
    ],
)
def test_a_budget_holds_up_to_its_limit(limits: str, held: float, exceeded: float) -> None:
    assert outcome_of(RECORDED, **{limits: held}).state == "held"
    assert outcome_of(RECORDED, **{limits: exceeded}).state == "exceeded"


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"syncs_per_step": 0}, "waits per step: 2 in step 2 of 3 (mean: 1.3), the budget is 0"),
        ({"launches_per_step": 700}, "launches per step: 770, the budget is 700"),
        ({"idle": 0.1}, "device idle: 31.5 % of a step as recorded, the budget is 10 %"),
        ({"exposed_ns": 10**6}, "exposed by one finding: 12.2 ms per step as recorded, the budget is 1.00 ms"),
        ({"step_ns": 30_000_000}, "step time: 57.6 ms (mean, as recorded), the budget is 30.0 ms"),
        ({"reserved_bytes": 2 * 10**9}, "reserved memory: 2.10 GB at the peak, the budget is 2.00 GB"),
        ({"reserved_bytes": 2**30}, "reserved memory: 1.96 GiB at the peak, the budget is 1.00 GiB"),
    ],
)
def test_a_budget_that_is_exceeded_says_so_in_a_sentence(limits: dict[str, Any], text: str) -> None:
    assert outcome_of(RECORDED, **limits).text == text


def test_a_simulated_run_has_no_recorder_in_its_sentences() -> None:
    assert outcome_of(SIMULATED, idle=0.1).text == "device idle: 31.5 % of a step, the budget is 10 %"
    assert outcome_of(SIMULATED, step_ns=1).text == "step time: 57.6 ms (mean), the budget is 1 ns"


def test_the_step_time_is_the_one_without_recording_if_that_was_measured() -> None:
    outcome = outcome_of(_with(RECORDED, replay=_PLAIN), step_ns=49_000_000)
    assert outcome.seen == 50_000_000
    assert outcome.text == "step time: 50.0 ms (mean, measured without recording), the budget is 49.0 ms"


def test_a_wait_in_one_step_of_many_is_not_hidden_by_the_mean() -> None:
    assert RECORDED.waits is not None
    once = msgspec.structs.replace(RECORDED.waits, most=1, count=1, step=3, lines=RECORDED.waits.lines[1:])
    outcome = outcome_of(_with(RECORDED, waits=once), syncs_per_step=0)
    assert (outcome.state, outcome.seen) == ("exceeded", 1)
    assert outcome.text == "waits per step: 1 in step 3 of 3 (mean: 0.3), the budget is 0"


def test_lines_say_how_often_and_what_to_do() -> None:
    first, second = outcome_of(RECORDED, syncs_per_step=0).lines
    assert (first.text, first.title, first.fix) == ("1x a step", "It waits.", "do not")
    assert second.text == "1x in 1 of 3 steps"


def test_each_finding_over_the_limit_is_a_line_and_no_other_is() -> None:
    lines = outcome_of(RECORDED, exposed_ns=4_000_000).lines
    assert [line.text for line in lines] == ["12.2 ms per step", "4.13 ms per step"]


def test_idle_time_names_the_lines_that_cost_it_with_the_advice_of_their_findings() -> None:
    lines = outcome_of(RECORDED, idle=0).lines
    assert [line.text for line in lines] == [
        "12.2 ms per step, mostly launch",
        "4.13 ms per step, mostly sync",
        "1.43 ms per step, mostly input",
    ]
    assert lines[1].fix == "keep the loss on the device and read it every 50 steps"


def test_races_are_lines_of_a_simulated_run() -> None:
    outcome = outcome_of(_with(SIMULATED, findings=(_RACE,)), races=0)
    assert (outcome.state, outcome.text) == ("exceeded", "races: 1, the budget is none")
    assert [(line.where.line, line.title) for line in outcome.lines] == [(11, _RACE.title)]
    assert outcome_of(SIMULATED, races=0).state == "held"


_OK = Integrity(ok=True)
_FAULT = msgspec.structs.replace(_RACE, rule="device-fault", fault=Fault(kind="index", check="in bounds", device=0))


@pytest.mark.parametrize(
    ("result", "limits", "why"),
    [
        (RECORDED, {"races": 0}, "nothing looked for races in this run"),
        (_with(RECORDED, reserved=None), {"reserved_bytes": 1}, "no figures of the allocator"),
        (_with(RECORDED, waits=None), {"syncs_per_step": 9}, "an older version of unstall saved this result"),
        (WHOLE, {"syncs_per_step": 9}, "no steps were found in the run: call unstall.step()"),
        (WHOLE, {"launches_per_step": 9999}, "no steps were found"),
        (WHOLE, {"step_ns": 2**60}, "no steps were found"),
        (_with(NO_DEVICE, integrity=_OK), {"idle": 1.0}, "the run has no work on a device"),
        (_with(NO_DEVICE, findings=(_FAULT,)), {"exposed_ns": 2**60}, "a device failed"),
        (
            _with(RECORDED, integrity=Integrity(ok=False, notes=("5 launches were lost.",))),
            {"launches_per_step": 9999},
            "something is missing from the recording (5 launches were lost): record it again",
        ),
    ],
)
def test_what_is_not_known_cannot_be_checked(result: Result, limits: dict[str, Any], why: str) -> None:
    outcome = outcome_of(result, **limits)
    assert (outcome.state, outcome.seen, outcome.lines) == ("unknown", None, ())
    assert outcome.text.startswith(f"{outcome.name} cannot be checked: ")
    assert why in outcome.text


@pytest.mark.parametrize("limits", [{"idle": 0.5}, {"exposed_ns": 10**9}])
def test_a_run_without_steps_counts_as_one_step_for_what_is_a_share_or_a_cost(limits: dict[str, Any]) -> None:
    assert outcome_of(WHOLE, **limits).state == "held"


@pytest.mark.parametrize(
    ("budget", "code"),
    [
        (Budget(syncs_per_step=9), 0),
        (Budget(syncs_per_step=0), 1),
        (Budget(races=0), 3),
        (Budget(syncs_per_step=9, races=0), 3),
        (Budget(syncs_per_step=0, races=0), 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst_that_is_known(budget: Budget, code: int) -> None:
    assert check(RECORDED, budget).exit_code == code


def test_outcomes_come_in_the_order_of_the_kinds() -> None:
    everything = Budget(**{limit.field: 1 for limit in LIMITS})
    assert [outcome.budget for outcome in check(RECORDED, everything).outcomes] == [limit.option for limit in LIMITS]


_LINE = OutcomeLine(where=Where(file="race.py", line=11), text="it reads early", title="Race")


@pytest.mark.parametrize(
    ("lines", "missing", "state"),
    [
        ([], "", "held"),
        ([_LINE], "", "exceeded"),
        ([], "the program did not import torch", "unknown"),
        ([_LINE], "it stopped early", "exceeded"),
    ],
)
def test_a_run_that_only_looked_for_races_is_held_to_them(lines: list[OutcomeLine], missing: str, state: str) -> None:
    (of_races,) = check_races(lines, missing, Budget(races=0), path="train.py").outcomes
    assert of_races.state == state


def test_outcomes_have_a_versioned_form() -> None:
    checked = check(RECORDED, Budget(idle=0.1))
    data = msgspec.json.encode(checked)
    assert b'"schema":"unstall.check/1"' in data
    assert msgspec.json.decode(data, type=CheckResult) == checked
