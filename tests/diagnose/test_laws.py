"""What holds for any recorded run, of any program."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
from hypothesis import Phase, assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from profiles import examples
from programs import Program, programs
from traces import PROCESS, Event

from unstall.diagnose.analyse import analyse
from unstall.diagnose.explain import explain
from unstall.result import IDLE_CAUSES, Accounts, Result
from unstall.timeline.columns import Timeline
from unstall.timeline.intervals import Intervals

A_FEW = examples(25, phases=set(Phase) - {Phase.explain})


def result_of(timeline: Timeline) -> Result:
    return explain(timeline).result


def sum_of(accounts: Accounts) -> int:
    parts = [*msgspec.structs.astuple(accounts.busy_ns), *msgspec.structs.astuple(accounts.idle_ns)]
    assert min(parts) >= 0
    return int(sum(parts))


@A_FEW
@given(programs())
def test_the_parts_of_the_accounts_add_up_to_the_wall_time(program: Program) -> None:
    result = result_of(program.timeline())
    assert sum_of(result.accounts) == result.accounts.wall_ns == result.steps.wall_ns
    for device in result.by_device:
        assert sum_of(device) == device.wall_ns == result.accounts.wall_ns


@A_FEW
@given(programs(), st.data())
def test_whatever_is_missing_from_the_file_the_rest_is_explained(program: Program, data: st.DataObject) -> None:
    without = data.draw(st.sets(st.sampled_from(["cuda_runtime", "cpu_op", "python_function", "kernel", "cuda_sync"])))
    lost = data.draw(st.sets(st.integers(0, len(program.events)), max_size=5))
    events = [event for i, event in enumerate(program.events) if i not in lost and event["cat"] not in without]
    result = result_of(program.timeline(events))
    assert sum_of(result.accounts) == result.accounts.wall_ns
    device = {
        event["args"]["correlation"] for event in events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
    }
    calls = {event["args"]["correlation"] for event in events if event["cat"] == "cuda_runtime"}
    # What comes before all calls may have been launched before the recording began, which is no damage.
    if any(number >= min(calls, default=0) for number in device - calls):
        assert not result.integrity.ok
    if device <= calls:
        assert result.integrity.ok


@A_FEW
@given(programs(), st.sampled_from(["cupti", "torch"]))
def test_lines_that_ran_are_said_to_be_exact_whatever_the_program(program: Program, recorder: str) -> None:
    program.unstall = {"recorder": recorder, "lines": "exact"}
    without = "cpu_op" if recorder == "cupti" else ""
    result = result_of(program.timeline([event for event in program.events if event["cat"] != without]))
    assert sum_of(result.accounts) == result.accounts.wall_ns
    places = [finding.where for finding in result.findings] + [line.where for line in result.lines]
    assert {where.line_is for where in places if where.file} <= {"exact"}


@A_FEW
@given(programs())
def test_idle_intervals_are_what_no_op_covers_and_each_part_has_one_cause(program: Program) -> None:
    timeline = program.timeline()
    run = analyse(timeline)
    low, high = run.window
    every = np.ones(len(timeline.device), np.bool_)
    views = [(every, run.gaps)]
    views += [(timeline.device.device == accounts.device, gaps) for accounts, gaps in run.by_device]
    for ops, gaps in views:
        expected = Intervals.union(timeline.device.start[ops], timeline.device.end[ops]).gaps(low, high)
        whole = Intervals.union(gaps.start, gaps.end)
        assert whole.start.tolist() == expected.start.tolist()
        assert whole.end.tolist() == expected.end.tolist()
        assert int(gaps.length.sum()) == expected.total
        assert (gaps.length > 0).all()
        assert ((gaps.cause >= 0) & (gaps.cause < len(IDLE_CAUSES))).all()
        assert ((gaps.culprit >= -1) & (gaps.culprit < len(timeline.host))).all()


@A_FEW
@given(programs(), st.integers(0, 10_000_000))
def test_once_a_launch_has_returned_idle_time_is_not_the_launchs(program: Program, late_ns: int) -> None:
    """However late the ops start."""
    timeline = program.timeline()
    assume(len(timeline.device))
    device = timeline.device
    late = replace(device, start=device.start + late_ns, end=device.end + late_ns)
    run = analyse(replace(timeline, device=late))
    for gaps in (run.gaps, *(own for _, own in run.by_device)):
        mine = (gaps.cause == IDLE_CAUSES.index("launch")) & (gaps.op >= 0)
        launch = late.launch[gaps.op[mine]]
        assert (launch >= 0).all()
        assert (gaps.end[mine] <= run.timeline.host.end[launch]).all()


@A_FEW
@given(programs())
def test_lines_share_out_all_idle_time_that_has_a_culprit(program: Program) -> None:
    run = analyse(program.timeline())
    assume(run.ops_inside.any())
    blamed = int(run.gaps.length[run.gaps.culprit >= 0].sum())
    lines = result_of(run.timeline).lines
    rounded = len(run.steps) * sum(line.idle_ns for line in lines)
    assert abs(rounded - blamed) <= len(lines) * len(run.steps) / 2


@A_FEW
@given(programs())
def test_each_wait_is_one_findings(program: Program) -> None:
    """What these findings wait for is no more than all waits of the window."""
    run = analyse(program.timeline())
    assume(run.ops_inside.any())
    by_rule = [finding for finding in result_of(run.timeline).findings if is_a_wait(finding.rule)]
    waited = int(run.host_length[run.activity.waits.row].sum())
    assert len(run.steps) * sum(f.wait_ns for f in by_rule) <= waited + len(by_rule) * len(run.steps) / 2


def is_a_wait(rule: str) -> bool:
    return rule.startswith("sync-") or rule in ("pageable-copy", "blocking-copy", "blocking-pinned-copy")


@A_FEW
@given(programs(), st.integers(1, 10**13))
def test_a_later_clock_changes_nothing(program: Program, shift_us: int) -> None:
    plain, later = program.timeline(), program.timeline(shift_us=shift_us)
    assert comparable(result_of(later)) == comparable(result_of(plain))


@A_FEW
@given(programs(), st.randoms(use_true_random=False))
def test_the_order_of_events_in_the_file_changes_nothing(program: Program, generator: random.Random) -> None:
    """Unless they begin at the same time."""
    for categories in (["cuda_runtime"], ["kernel", "gpu_memcpy", "gpu_memset"]):
        starts = [event["ts"] for event in program.events if event["cat"] in categories]
        assume(len(starts) == len(set(starts)))
    events = list(program.events)
    generator.shuffle(events)
    assert but_for_the_plan(program.timeline(events)) == but_for_the_plan(program.timeline())


def but_for_the_plan(timeline: Timeline) -> dict[str, Any]:
    """Of the plan the end alone: of changes that gain only together, the file's order says which is told first."""
    told = figures(result_of(timeline))
    return {**told, "plan": min((step["step_ns"] for step in told["plan"]), default=None)}


@A_FEW
@given(programs())
def test_a_thread_that_does_nothing_changes_nothing(program: Program) -> None:
    hosts = [event for event in program.events if event["pid"] == PROCESS]
    assume(hosts)
    start = min(event["ts"] for event in hosts)
    end = max(event["ts"] + event["dur"] for event in hosts)
    watcher: Event = {"ph": "X", "cat": "user_annotation", "name": "watcher", "pid": PROCESS, "tid": 999}
    watcher |= {"ts": start, "dur": end - start, "args": {}}
    watched = program.timeline([*program.events, watcher])
    assert comparable(result_of(watched)) == comparable(result_of(program.timeline()))


@A_FEW
@given(programs())
def test_which_number_a_device_has_changes_nothing(program: Program) -> None:
    other = {0: 1, 1: 0}

    def swapped(event: Event) -> Event:
        if "device" not in event["args"]:
            return event
        device = other[event["args"]["device"]]
        return event | {"pid": device, "args": event["args"] | {"device": device}}

    plain = figures(result_of(program.timeline()))
    changed = figures(result_of(program.timeline([swapped(event) for event in program.events])))
    assert changed.pop("verdict")["bound_by"] == plain.pop("verdict")["bound_by"]  # the text has the devices in order

    def anonymous(devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(({"busy": each["busy_ns"], "idle": each["idle_ns"]} for each in devices), key=repr)

    assert anonymous(changed.pop("by_device")) == anonymous(plain.pop("by_device"))
    assert changed == plain


IDS = 10**6  # more than one program has


def beside(program: Program, other: Program) -> list[Event]:
    """The events of two processes, the second with devices and ids of its own. The first is the first to begin."""
    begins = min((event["ts"] for event in program.events), default=0)

    def moved(event: Event) -> Event:
        args = dict(event["args"])
        for key, shift in (("device", 2), ("correlation", IDS), ("External id", IDS), ("Python id", IDS)):
            if key in args:
                args[key] += shift
        for key in ("Python parent id", "wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_id"):
            if args.get(key) is not None:
                args[key] += IDS
        process = event["pid"] + (1 if event["pid"] in (PROCESS, -1) else 2)
        return event | {"pid": process, "ts": event["ts"] + begins, "args": args}

    return [*program.events, *map(moved, other.events)]


@A_FEW
@given(programs(), programs())
def test_the_parts_of_several_processes_add_up_for_each_device(program: Program, other: Program) -> None:
    events = beside(program, other)
    result = result_of(program.timeline(events))
    assert sum_of(result.accounts) == result.accounts.wall_ns
    used = {event["args"]["device"] for event in events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")}
    assert {device.device for device in result.by_device} == used
    for device in result.by_device:
        assert sum_of(device) == device.wall_ns == result.accounts.wall_ns


@A_FEW
@given(programs(), programs())
def test_another_process_changes_nothing_about_how_busy_this_ones_devices_are(program: Program, other: Program) -> None:
    """In the steps of this one: those of both may be others."""
    alone = analyse(program.timeline())
    together = analyse(program.timeline(beside(program, other)), steps=alone.steps)
    busy = {accounts.device: accounts.busy_ns for accounts, _ in together.by_device}
    assert [busy[accounts.device] for accounts, _ in alone.by_device] == [each.busy_ns for each, _ in alone.by_device]


NEW_NAMES = {
    "train.py": "zzz/run_it.py",
    "model/net.py": "aaa/parts.py",
    "forward": "calculate",
    "forward pass": "there",
    "loss": "back again",
    "gemm": "k_1",
    "relu": "k_2",
    "softmax": "k_3",
}


@A_FEW
@given(programs())
def test_other_names_for_files_functions_and_kernels_change_nothing_but_names(program: Program) -> None:
    def renamed(name: str) -> str:
        head, bracket, tail = name.partition("(")
        if not bracket:
            return NEW_NAMES.get(name, name)
        place, colon, function = tail.partition(": ")
        return NEW_NAMES.get(head, head) + bracket + place + colon + NEW_NAMES.get(function, function)

    events = [event | {"name": renamed(event["name"])} for event in program.events]
    assert figures(result_of(program.timeline(events))) == figures(result_of(program.timeline()), NEW_NAMES)


def comparable(result: Result) -> dict[str, Any]:
    """All but where the file lay and how many host events it had."""
    plain: dict[str, Any] = msgspec.to_builtins(result)
    del plain["source"]["path"], plain["source"]["host_events"]
    return plain


def figures(result: Result, names: dict[str, str] | None = None) -> dict[str, Any]:
    """What is comparable and no sentence, in an order of its own, with other names for files and functions."""
    plain = comparable(result)

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            sentences = ("edit", "saw", "fix", "title", "text", "safe_if")
            return {key: named(each) for key, each in value.items() if key not in sentences}
        return (names or {}).get(value, value) if isinstance(value, str) else value

    for table in ("findings", "lines", "plan"):
        plain[table] = sorted((named(row) for row in plain[table] or ()), key=repr)
    for count in ("waits", "launches", "copies", "reserved"):
        if plain[count]:
            lines = sorted((named(row) for row in plain[count]["lines"]), key=repr)
            plain[count] = plain[count] | {"lines": lines}
    notes = len(plain["integrity"]["notes"])  # sentences too, and some of them quote names
    return plain | {"steps": named(plain["steps"]), "integrity": plain["integrity"] | {"notes": notes}}
