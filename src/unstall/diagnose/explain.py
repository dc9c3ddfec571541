"""The function `explain`, which explains where the time of a recorded run went."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from unstall._version import __version__
from unstall.diagnose.analyse import analyse
from unstall.diagnose.arguments import texts
from unstall.diagnose.before_capture import with_what_comes_first
from unstall.diagnose.faulted import judge_faults
from unstall.diagnose.graphed_checks import shortfall_of, without_checks
from unstall.diagnose.input_check import load_usable
from unstall.diagnose.left_out import left_out_of
from unstall.diagnose.lines import cost_by_line
from unstall.diagnose.memory import memory_over_time
from unstall.diagnose.not_charged import note_of_free_work
from unstall.diagnose.notes import notes_of
from unstall.diagnose.outlook import look_ahead
from unstall.diagnose.per_step import copies_per_step, launches_per_step, waits_per_step
from unstall.diagnose.reserved import peak_reserved
from unstall.diagnose.rules import all_rules
from unstall.diagnose.rules.device_fault import device_fault
from unstall.diagnose.rules.device_work import DEVICE_WORK
from unstall.diagnose.rules.growing_memory import growing_memory
from unstall.diagnose.rules.out_of_memory import out_of_memory
from unstall.diagnose.run import Run
from unstall.diagnose.verdict import bound_by, judge
from unstall.diagnose.whole_graphs import with_whole_graphs
from unstall.locate.steps import RECORDED_STEP
from unstall.result import Accounts, Finding, Integrity, Result, Source, Steps, Verdict
from unstall.timeline.columns import Timeline
from unstall.what_if.gains import with_gains

_NOTABLE = 0.05  # of a step


@dataclass(frozen=True)
class Diagnosis:
    """The result of `explain`.

    `result` is what reports show, as data. `run` is the recorded run that it describes. `run` is
    None if the result was read from JSON. Without a run, no charts can be drawn.
    """

    result: Result
    run: Run | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the run: bugs first, then other findings by cost, and at the end the
        harmless ones, which cost nothing.
        """
        return self.result.findings

    @property
    def verdict(self) -> Verdict:
        """What limits the speed of the run: one resource, or several."""
        return self.result.verdict

    @property
    def accounts(self) -> Accounts:
        """Where the time of the steps went: the busy time by kind of work and the idle time by cause, in ns."""
        return self.result.accounts


def explain(
    source: str | Path | Timeline,
    *,
    step: str | None = None,
    user: str | Sequence[str] = (),
    plain_step_ns: int | None = None,
    as_recorded: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """Explains where the time of a recorded run went, at which lines, and why.

    Args:
        source: A trace that `torch.profiler` wrote, a saved timeline, or a `Timeline`.
        step: The name of the annotation around each step, or a glob. By default, steps are detected.
        user: One or several globs of the files with your code. By default, all files except those of frameworks.
        plain_step_ns: The step time measured without recording, in ns. By default, the value in the file is used.
        as_recorded: Whether all times include the recorder's overhead.
        progress: A function that is called with (bytes read, total bytes) while a file is read.

    Raises:
        TraceError: The file cannot be read, ends before its device events, or has no events.
        UsageError: No annotation is called `step`, or `user` is not text.
    """
    user = texts(user, "user", "globs of files")
    timeline = source if isinstance(source, Timeline) else load_usable(source, progress)
    run = analyse(timeline, step=step, user=user)
    faults = [*device_fault(run), *out_of_memory(run)]
    # Without device work only the use of memory can be judged: the host did not wait for a device.
    known = not faults and run.ops_inside.any()
    rules = all_rules() if known else (growing_memory,)
    findings = faults or without_checks(finding for rule in rules for finding in rule(run))
    outlook = look_ahead(run, plain_step_ns=plain_step_ns, as_recorded=as_recorded) if known else None
    gains = None
    if outlook and outlook.trusted:
        gains = with_gains(outlook.model, with_whole_graphs(run, outlook.model, findings))
        verdict = judge(outlook.undistorted, outlook.freed)
        # Faster kernels are worth trying only if a step without any is notably shorter.
        kernels_count = outlook.freed.gains["kernels"] >= _NOTABLE * outlook.freed.step_ns
        findings = [finding for finding in gains.findings if kernels_count or finding.rule not in DEVICE_WORK]
        verdict = msgspec.structs.replace(
            verdict,
            basis="recorded" if as_recorded else "undistorted",
            text=" ".join([verdict.text, *outlook.sentences()]),
            or_bound_by=bound_by(outlook.undistorted, outlook.doubt) if outlook.doubt else None,
        )
    else:
        verdict = judge_faults(faults) if faults else judge(run)
    if outlook and (caveat := outlook.caveat()):
        verdict = msgspec.structs.replace(verdict, text=f"{caveat} {verdict.text}")
    meta = timeline.meta
    short_of = (meta.shortfall, shortfall_of(run) if known else None, note_of_free_work(run) if known else None)
    shortfall = " ".join(_sentence(each) for each in short_of if each) or None
    if shortfall:
        verdict = msgspec.structs.replace(verdict, text=f"{shortfall} {verdict.text}")
    result = Result(
        version=__version__,
        source=source_of(timeline),
        integrity=Integrity(ok=meta.sound, notes=notes_of(run), shortfall=shortfall),
        steps=steps_of(run),
        replay=outlook.replay if outlook else None,
        accounts=run.accounts,
        by_device=tuple(accounts for accounts, _ in run.by_device),
        verdict=verdict,
        findings=tuple(with_what_comes_first(run, _ordered(findings, verdict.if_free or {}))),
        lines=cost_by_line(run) if known else (),
        waits=waits_per_step(run, findings) if known else None,
        launches=launches_per_step(run, findings) if known else None,
        copies=copies_per_step(run) if known else None,
        reserved=peak_reserved(run),
        memory=memory_over_time(run),
        plan=gains.plan if gains else None,
        floor_ns=gains.floor_ns if gains else None,
    )
    return Diagnosis(result, run)


def _sentence(text: str) -> str:
    """Returns the text as a sentence, with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def source_of(timeline: Timeline) -> Source:
    """Returns what a result says about the recording: its file, recorder, versions and size."""
    meta = timeline.meta
    return Source(
        path=meta.path,
        reader=meta.reader,
        recorder=meta.recorder,
        known_error=meta.known_error,
        device=next(iter(meta.devices), None),
        torch=meta.torch,
        cuda=meta.cuda,
        rank=meta.rank,
        world_size=meta.world_size,
        has_stacks=meta.has_stacks,
        host_events=len(timeline.host),
        device_ops=len(timeline.device),
    )


def steps_of(run: Run) -> Steps:
    """Returns what a result says about the steps of a run: how they were found, their number and their times."""
    marks = run.timeline.meta.step_marks if run.steps.name == RECORDED_STEP else None
    return Steps(
        found_by=run.steps.found_by,
        name=run.steps.name,
        marks=None if marks == "time" else marks,
        count=len(run.steps),
        start_ns=run.steps.window[0],
        wall_ns=run.wall,
        mean_ns=run.per_step(run.wall),
        left_out=left_out_of(run),
    )


RESOURCE_OF = {
    "exposed-comm": "communication",
    "data-loading": "input",
    "python-bound": "host",
    "first-use": "startup",
    "serial-copy": "copies",
    **dict.fromkeys(DEVICE_WORK, "kernels"),
}
"""Maps each rule (the name of a kind of finding) to the resource that its findings concern, such as
the input or the host. The gain of a finding without an edit is at most the gain if this resource
took no time.
"""


def _ordered(findings: list[Finding], if_free: Mapping[str, int]) -> list[Finding]:
    """Sorts findings: bugs first, then other findings by gain, and harmless findings last.

    A finding whose edit has its gain at another finding follows that one. If the gain of a finding is unknown, the
    smaller of two numbers is used: the finding's exposed time, and the gain of the finding's resource. `if_free` has
    the gain of each resource in ns: how much shorter a step would be if the resource took no time.
    """
    known = {f.edit: f.gain_ns or 0 for f in findings if f.gain_ns is not None or f.gain_below_ns is not None}

    def key(f: Finding) -> tuple[bool, bool, int, bool, int, int, str, str]:
        another = f.gain_ns is None and f.gain_below_ns is None
        if f.edit in known:
            gain = known[f.edit]
        else:
            gain = min(f.exposed_ns, if_free.get(RESOURCE_OF.get(f.rule, ""), f.exposed_ns))
        return not f.wrong, f.harmless, -gain, another, -f.exposed_ns, -f.wait_ns, f.rule, str(f.where)

    return sorted(findings, key=key)
