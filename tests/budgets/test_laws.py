"""Laws of budgets: a tighter one holds for fewer runs, and where a result was kept changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from budgets.results import budgets, measured
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import Program, programs
from report.rendered import as_json

from unstall.budgets.budget import Budget
from unstall.budgets.check import check
from unstall.budgets.limits import LIMITS
from unstall.diagnose.explain import explain
from unstall.result import Result


def _held(result: Result, budget: Budget) -> set[str]:
    return {outcome.budget for outcome in check(result, budget).outcomes if outcome.state == "held"}


@given(measured(), budgets, st.data())
def test_the_tighter_a_budget_the_fewer_limits_hold(result: Result, loose: Budget, data: st.DataObject) -> None:
    limits: dict[str, Any] = {
        limit.field: data.draw(st.floats(0, value) if limit.field == "idle" else st.integers(0, int(value)))
        for limit, value in loose.limits()
    }
    tight = Budget(**limits)
    assert _held(result, tight) <= _held(result, loose)


@given(measured(), budgets, budgets)
def test_what_cannot_be_checked_does_not_depend_on_the_limit(result: Result, one: Budget, other: Budget) -> None:
    unknown = [
        {outcome.budget for outcome in check(result, budget).outcomes if outcome.state == "unknown"}
        for budget in (one, other)
    ]
    both = {limit.option for limit, _ in one.limits()} & {limit.option for limit, _ in other.limits()}
    assert unknown[0] & both == unknown[1] & both


@given(measured(), budgets)
def test_each_limit_has_its_outcome_by_itself(result: Result, budget: Budget) -> None:
    together = check(result, budget).outcomes
    limits: list[dict[str, Any]] = [{limit.field: value} for limit, value in budget.limits()]
    alone = [check(result, Budget(**each)).outcomes[0] for each in limits]
    assert list(together) == alone


_EVERYTHING = Budget(**{limit.field: 0 for limit in LIMITS})


@settings(max_examples=15)
@given(programs())
def test_a_saved_result_has_the_outcomes_of_its_trace(program: Program) -> None:
    result = explain(program.timeline()).result
    saved = msgspec.json.decode(as_json(result), type=Result)
    assert check(saved, _EVERYTHING) == check(result, _EVERYTHING)
