"""No idle nanosecond is two findings': each rule claims idle time by cause, and what a cause has is not exceeded."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from programs import Program, programs

from unstall.diagnose.explain import explain
from unstall.diagnose.rules.device_work import DEVICE_WORK
from unstall.result import IDLE_CAUSES, Finding, Result

WAITS = frozenset({"sync", "copy"})
CAUSES = {  # the causes of the idle time that a rule claims, and shares with all rules that claim the same ones
    "pageable-copy": WAITS,
    "blocking-copy": WAITS,
    "blocking-pinned-copy": WAITS,
    "data-loading": frozenset({"input"}),
    "allocator-churn": frozenset({"allocator", "startup"}),
    "pinned-allocation": frozenset({"allocator", "startup"}),
    "first-use": frozenset({"allocator", "startup"}),
    "python-bound": frozenset({"python", "latency"}),
    "stream-wait": frozenset({"event"}),
    "launch-bound": frozenset({"launch", "latency"}),
    "tiny-kernels": frozenset({"launch", "latency"}),
}
# They claim time in which a device is at work.
BUSY = {
    *("exposed-comm", "serial-copy", "repeated-upload", "partial-overlap", "lonely-stream", "serial-devices"),
    *DEVICE_WORK,
}
# They claim none, or what others are to blame for.
APART = {"full-queue", "full-device", "early-clock-read", "growing-memory", "launches-block", "recording"}
ALL = frozenset(IDLE_CAUSES)

TRACES = sorted((Path(__file__).parents[2] / "examples" / "traces").glob("*.json.gz"))


def causes_of(finding: Finding) -> frozenset[str]:
    return WAITS if finding.rule.startswith("sync-") else CAUSES[finding.rule]


def check(result: Result) -> None:
    """Sums of means per step are exact to half a nanosecond a step and finding."""
    claims: dict[frozenset[str], list[int]] = {}
    for finding in result.findings:
        assert 0 <= finding.exposed_ns <= result.steps.mean_ns
        if finding.rule not in BUSY | APART:
            claims.setdefault(causes_of(finding), []).append(finding.exposed_ns)
    # What is claimed from some of a set of causes, and from nothing else, is no more than they have.
    for causes in [*claims, ALL]:
        exposed = [each for some, their in claims.items() if some <= causes for each in their]
        idle = sum(int(getattr(result.accounts.idle_ns, cause)) for cause in causes)
        assert result.steps.count * sum(exposed) <= idle + result.steps.count * len(exposed) / 2


@given(programs())
def test_of_any_program_idle_time_is_claimed_once(program: Program) -> None:
    check(explain(program.timeline()).result)


@pytest.mark.parametrize("trace", TRACES, ids=[path.name.removesuffix(".json.gz") for path in TRACES])
def test_of_a_recorded_run_idle_time_is_claimed_once(trace: Path) -> None:
    check(explain(trace).result)
