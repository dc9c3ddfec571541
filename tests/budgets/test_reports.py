"""What reports of budgets say in each format, to people and to continuous integration."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import jsonschema
import msgspec
import pytest
from budgets.results import RECORDED, SIMULATED, budgets, measured
from hypothesis import given
from report.sample import HOME, HOSTILE, LIBRARY, MODEL, TRAIN

from unstall.answers.check import Checked
from unstall.budgets.budget import Budget
from unstall.budgets.check import check
from unstall.document import github, html, junit, markdown, sarif, terminal
from unstall.document.document import Document
from unstall.document.plain import plain
from unstall.report.check import document
from unstall.result import LineCount, Result, StepCount, Where

_SOME = Budget(syncs_per_step=0, launches_per_step=1000, idle=0.1, exposed_ns=10**7, races=0)
_SCHEMA = Path(__file__).parents[1] / "data" / "sarif-schema-2.1.0.json.gz"
_COMMAND = re.compile(r"::error ([^:]*)::(.*)")
_HERE = {TRAIN: "train.py", MODEL: "models/backbone.py"}


@cache
def _schema() -> jsonschema.Draft4Validator:
    return jsonschema.Draft4Validator(json.loads(gzip.decompress(_SCHEMA.read_bytes())))


def _document(result: Result = RECORDED, budget: Budget = _SOME) -> Document:
    return document(check(result, budget, path="train.py"), _HERE)


def _log(shown: Document) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(sarif.render(shown))
    _schema().validate(log)
    return log["runs"][0]  # type: ignore[no-any-return]


def test_the_terminal(golden: Callable[[str, str], None]) -> None:
    golden("check.txt", terminal.render(_document()))


def test_a_summary_for_github(golden: Callable[[str, str], None]) -> None:
    golden("check.md", markdown.render(_document()))


def test_annotations_stand_at_the_lines_one_of_each_budget_first(golden: Callable[[str, str], None]) -> None:
    golden("check.github.txt", github.render(_document()))


def test_budgets_that_hold_annotate_nothing() -> None:
    assert github.render(_document(SIMULATED, Budget(syncs_per_step=9, races=0))) == ""


def test_advice_is_given_once() -> None:
    text = terminal.render(_document(budget=Budget(idle=0, exposed_ns=0)))
    assert text.count("keep the loss on the device and read it every 50 steps") == 1
    assert "as in 2 of device idle" in text


@pytest.mark.parametrize(
    ("budget", "summary"),
    [
        (Budget(idle=0.9), "The budget holds."),
        (Budget(idle=0.9, syncs_per_step=5), "All 2 budgets hold."),
        (Budget(idle=0.1), "The budget is exceeded."),
        (Budget(idle=0.1, races=0, syncs_per_step=0), "2 of 3 budgets are exceeded, 1 cannot be checked."),
        (Budget(races=0), "The budget cannot be checked."),
        (Budget(idle=0.9, races=0), "1 of 2 budgets cannot be checked."),
    ],
)
def test_the_summary_counts(budget: Budget, summary: str) -> None:
    assert _document(budget=budget).summary == summary


def test_a_line_of_a_library_is_annotated_where_the_repository_leads_to_it() -> None:
    first, second = _document(budget=Budget(syncs_per_step=0)).annotations
    assert (first.file, first.line) == ("train.py", 41)
    assert (second.file, second.line) == ("train.py", 90)
    assert LIBRARY in second.text


def test_sarif_has_a_rule_for_each_budget_and_a_result_for_each_line() -> None:
    run = _log(_document())
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [
        "max-syncs-per-step",
        "max-launches-per-step",
        "max-idle",
        "max-exposed",
        "no-races",
    ]
    found = [(result["ruleId"], result["ruleIndex"]) for result in run["results"]]
    assert found == [
        *[("max-syncs-per-step", 0)] * 2,
        *[("max-idle", 2)] * 3,
        ("max-exposed", 3),
    ]
    location = run["results"][0]["locations"][0]["physicalLocation"]
    assert location == {
        "artifactLocation": {"uri": "train.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 41},
    }


_NOWHERE = msgspec.structs.replace(
    RECORDED,
    launches=StepCount(most=9, step=1, count=27, lines=(LineCount(where=Where(), most=9, count=27, steps_seen=3),)),
)


def test_a_result_whose_file_is_not_known_is_at_the_program() -> None:
    (found,) = _log(
        document(check(_NOWHERE, Budget(launches_per_step=0), path="train.py"), {"train.py": "src/train.py"})
    )["results"]
    (location,) = found["locations"]
    assert location["physicalLocation"] == {"artifactLocation": {"uri": "src/train.py", "uriBaseId": "%SRCROOT%"}}


def test_a_result_of_a_trace_elsewhere_is_at_the_table_of_budgets() -> None:
    (found,) = _log(document(check(_NOWHERE, Budget(launches_per_step=0), path="/tmp/a.json.gz")))["results"]
    (location,) = found["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "pyproject.toml"
    assert "region" not in location["physicalLocation"]


def test_a_module_is_no_file_to_annotate() -> None:
    shown = Checked(check(_NOWHERE, Budget(launches_per_step=0), path="package.train")).document()
    assert [each.file for each in shown.annotations] == [None]


def test_sarif_says_what_could_not_be_checked() -> None:
    (invocation,) = _log(_document())["invocations"]
    assert invocation["executionSuccessful"] is False
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["associatedRule"] == {"id": "no-races"}


def _moved(result: Result, by: int) -> Result:
    """The result of a program whose lines are all further down."""
    assert result.waits is not None
    lines = tuple(
        msgspec.structs.replace(
            line, where=msgspec.structs.replace(line.where, line=(line.where.line or 0) + by), count=line.count + 9
        )
        for line in result.waits.lines
    )
    return msgspec.structs.replace(result, waits=msgspec.structs.replace(result.waits, lines=lines))


def test_a_fingerprint_stays_if_the_line_moves_and_is_its_own() -> None:
    runs = [_log(_document(result, Budget(syncs_per_step=0))) for result in (RECORDED, _moved(RECORDED, 7))]
    before, after = ([result["partialFingerprints"] for result in run["results"]] for run in runs)
    assert before == after
    assert before[0] != before[1]


def test_junit_has_a_test_case_for_each_budget() -> None:
    suite = Xml.fromstring(junit.render(_document())).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "3", "1")
    cases = {case.get("name"): case for case in suite}
    failure = cases["waits per step"].find("failure")
    assert failure is not None
    assert failure.get("message") == "waits per step: 2 in step 2 of 3 (mean: 1.3), the budget is 0"
    assert (cases["waits per step"].get("file"), cases["waits per step"].get("line")) == ("train.py", "41")
    assert [child.tag for child in cases["launches per step"]] == ["system-out"]
    assert [child.tag for child in cases["races"]] == ["error"]


@given(measured(), budgets)
def test_any_outcomes_make_valid_reports(result: Result, budget: Budget) -> None:
    shown = document(check(result, budget))
    assert all(len(found["locations"]) == 1 for found in _log(shown)["results"])
    suite = Xml.fromstring(junit.render(shown)).find("testsuite")
    assert suite is not None
    assert len(suite) == len(shown.cases)
    commands = github.render(shown, top=1000).splitlines()
    assert all(map(_COMMAND.fullmatch, commands))
    assert len(commands) == len(shown.annotations)
    terminal.render(shown)
    html.render(shown)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_name_reaches_every_format_as_one_name(name: str) -> None:
    where = msgspec.structs.replace(RECORDED.findings[1].where, file=name, called_from=None)
    assert RECORDED.waits is not None
    line = msgspec.structs.replace(RECORDED.waits.lines[0], where=where)
    result = msgspec.structs.replace(RECORDED, waits=msgspec.structs.replace(RECORDED.waits, lines=(line,)))
    shown = document(check(result, Budget(syncs_per_step=0)))
    (found,) = _log(shown)["results"]
    assert len(found["locations"]) == 1
    (case,) = Xml.fromstring(junit.render(shown)).iter("testcase")
    assert case.get("file") == plain(name).encode(errors="replace").decode()


def test_scrubbed_reports_name_no_home_in_any_format() -> None:
    scrubbed = Checked(check(RECORDED, _SOME)).document(scrub_paths=True)
    for renderer in (github, html, junit, markdown, sarif, terminal):
        assert HOME not in renderer.render(scrubbed)
