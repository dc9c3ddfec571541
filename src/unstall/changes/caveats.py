"""Finds caveats: reasons why two recordings are hard to compare. Reports show the caveats first."""

from __future__ import annotations

from unstall.changes.alignment import Alignment, in_common, same_boundaries, same_extent
from unstall.changes.result import Caveat, Code, Time
from unstall.changes.sides import MatchedBy
from unstall.diagnose.explain import Diagnosis
from unstall.diagnose.run import Run
from unstall.document.plain import short
from unstall.figures import duration
from unstall.locate.operations import has_operators
from unstall.result import Result, Source

_BOUNDARIES = {
    "period": "repeating launches",
    "optimizer": "the optimizer step",
    "loader": "the batches or items of a loop",
    "forward": "model calls",
    "explicit": "unstall.step()",
}
_RECORDERS = {
    "cupti": "unstall's recorder cupti",
    "torch": "unstall's recorder torch",
    None: "torch.profiler or another tool",
}
_LONGEST_ERROR = 400
_ONE_KNOWS = "Only one run has operators: waits are matched by place alone."
_HARMLESS = "no Python stacks were recorded"  # the start of a note that a caveat here already covers


def caveats(
    a: Diagnosis, b: Diagnosis, matched_by: MatchedBy, found: Alignment, step: Time | None
) -> tuple[Caveat, ...]:
    """Returns the reasons why two runs are hard to compare, the most important first.

    Args:
        a: The report of run A.
        b: The report of run B.
        matched_by: Whether places of the runs are matched by line, by function, or by operator.
        found: The ratio of steps that do the same work in A and in B.
        step: The step times of both runs; None if they are not compared.
    """
    said = [
        *_simulated(a.result.source, b.result.source),
        *_work(a.result, b.result),
        *_saved(a, b),
        *_steps(a.result, b.result, found, step),
        *_left_out(a.result, b.result),
        *_integrity(a.result, b.result),
        *_hardware(a.result, b.result),
        *_recorded(a, b, matched_by),
        *(_chance(step, a.result, b.result) if a.run and b.run else []),
        *_notes(a.result, b.result),
    ]
    return tuple(Caveat(code=code, text=text) for code, text in said)


Said = list[tuple[Code, str]]


def has_work(result: Result) -> bool:
    """Returns whether anything ran on a device in the steps of a run."""
    return result.verdict.bound_by != "none"


def _simulated(a: Source, b: Source) -> Said:
    """Returns a caveat if a run is simulated. The times of a simulated run are predictions with a known error."""
    if a.simulated == b.simulated:
        errors = dict.fromkeys(short(of.known_error, _LONGEST_ERROR) for of in (a, b) if of.known_error)
        if not a.simulated:
            return []
        known = f" Known error: {'; '.join(errors)}." if errors else ""
        return [("simulated", f"Both runs are simulated: their times are predictions.{known}")]
    name, other, of = ("A", "B", a) if a.simulated else ("B", "A", b)
    known = f" Known error: {short(of.known_error, _LONGEST_ERROR)}." if of.known_error else ""
    text = (
        f"{name} is simulated, {other} was recorded: a difference in time may come from the prediction, or from the "
        f"recorder, which slows only the host of {other}.{known}"
    )
    return [("simulated", text)]


def _work(a: Result, b: Result) -> Said:
    without = [name for name, of in (("A", a), ("B", b)) if not has_work(of)]
    if not without:
        return []
    which = "Neither run has" if len(without) == 2 else f"{without[0]} has no"
    work = "any work" if len(without) == 2 else "work"
    return [("recorded", f"{which} {work} on a device in its steps: nothing is compared.")]


def _saved(a: Diagnosis, b: Diagnosis) -> Said:
    saved = [name for name, of in (("A", a), ("B", b)) if of.run is None]
    if not saved:
        return []
    which = f"{saved[0]} is a saved result" if len(saved) == 1 else "A and B are saved results"
    return [("recorded", f"{which}: only step times and the plan are compared. For the rest give traces.")]


def _steps(a: Result, b: Result, found: Alignment, step: Time | None) -> Said:
    """Returns a caveat if the steps of the two runs were found in different ways, or if no steps were found.

    `step` is None if the steps are not compared.
    """
    if a.steps.found_by == b.steps.found_by == "whole":
        return [("steps", "No steps were found in either run: the figures are of the whole runs.")]
    if same_boundaries(a.steps, b.steps) and found.one_to_one:
        return []
    if not same_extent(a.steps, b.steps):
        without, other = ("A", "B") if a.steps.found_by == "whole" else ("B", "A")
        text = f"No steps were found in {without}: its figures are for the whole run, those of {other} for a step"
        text += f". {in_common(found)}" if step else ", so "
    else:
        text = f"Steps were found in different ways: in A by {_boundary(a)}, in B by {_boundary(b)}. {in_common(found)}"
        text += "" if step else ", so "
    if step:
        if found.one_to_one:
            return [("steps", f"{text}: they are treated as the same work.")]
        one, several, number = ("A", "B", found.b) if found.a == 1 else ("B", "A", found.a)
        return [("steps", f"{text}: all figures of {several} are for {number:,} of its steps, as one of {one} is.")]
    text += (
        "nothing is compared. Put unstall.step() at the end of each step in both programs and record both again; or "
        "name the annotation around one: --step."
    )
    return [("steps", text)]


def _left_out(a: Result, b: Result) -> Said:
    """Returns a caveat for each run in which most steps were left out of the figures."""
    return [
        (
            "steps",
            f"The figures of {name} are of only {of.steps.count:,} of its {left_out.of:,} steps. The others are left "
            f"out, since unstall.graphed proves or captures graphs; they take {duration(left_out.mean_ns)} in the "
            "mean.",
        )
        for name, of in (("A", a), ("B", b))
        if (left_out := of.steps.left_out) is not None and left_out.most
    ]


def _boundary(result: Result) -> str:
    steps = result.steps
    kind = _BOUNDARIES.get(steps.marks or steps.found_by, "annotation")
    name = f" {short(steps.plain_name, 60)}" if steps.name and not steps.marks and steps.found_by != "period" else ""
    return kind + name


def _integrity(a: Result, b: Result) -> Said:
    unsound = [name for name, of in (("A", a), ("B", b)) if not of.integrity.ok]
    if not unsound:
        return []
    which = " and of ".join(unsound)
    return [
        ("integrity", f"Part of {which} is missing from the file: counts and times may differ for that reason alone.")
    ]


def _hardware(a: Result, b: Result) -> Said:
    said: Said = []
    one, other = a.source, b.source
    if one.device and other.device and one.device != other.device:
        text = (
            f"A ran on {short(one.device, 60)}, B on {short(other.device, 60)}: "
            "a difference in time may come from the hardware."
        )
        said.append(("device", text))
    if has_work(a) and has_work(b) and len(a.by_device) != len(b.by_device):
        text = (
            f"A used {len(a.by_device)} of its devices, B {len(b.by_device)}: "
            "the accounts are of all of them together, which are busy if any is."
        )
        said.append(("devices", text))
    if one.rank is not None and other.rank is not None and (one.rank, one.world_size) != (other.rank, other.world_size):
        said.append(("rank", f"A is rank {_rank(a)}, B rank {_rank(b)}: their work may differ."))
    versions = [
        f"{name} {short(mine, 30)} in A, {short(theirs, 30)} in B"
        for name, mine, theirs in (("torch", one.torch, other.torch), ("CUDA", one.cuda, other.cuda))
        if mine and theirs and mine != theirs
    ]
    if versions:
        said.append(("software", f"Versions differ: {'; '.join(versions)}. Kernels may differ for that reason alone."))
    return said


def _rank(result: Result) -> str:
    source = result.source
    return f"{source.rank} of {source.world_size}" if source.world_size else str(source.rank)


def _recorded(a: Diagnosis, b: Diagnosis, matched_by: MatchedBy) -> Said:
    said: Said = []
    one_simulated = a.result.source.simulated != b.result.source.simulated
    stacks = a.result.source.has_stacks, b.result.source.has_stacks
    if stacks[0] != stacks[1]:
        has_none = "B" if stacks[0] else "A"
        text = (
            f"{has_none} has no Python stacks: places are matched by annotation and operator, not by line."
            if one_simulated
            else f"{has_none} was recorded without Python stacks: places are matched by annotation and operator, not "
            "by line. Recording stacks slows the host, so part of the host's extra time may come from the recorder."
        )
        said.append(("stacks", text))
    elif not stacks[0]:
        said.append(("stacks", "Neither run has Python stacks: places are annotations and operators, not lines."))
    elif matched_by == "function":
        text = "One run has the lines that ran, the other only the first lines of functions: costs are by function."
        said.append(("stacks", text))
    if a.run and b.run:
        said += _recorders(a.run, b.run)
    both_simulated = a.result.source.simulated and b.result.source.simulated  # no recorder was at work
    if a.result.source.reader != b.result.source.reader and not both_simulated:
        text = (
            f"A is a {short(a.result.source.reader, 30)} trace, B a {short(b.result.source.reader, 30)} one: "
            "recorders differ in overhead."
        )
        said.append(("recorded", text))
    return said


def _recorders(a: Run, b: Run) -> Said:
    said: Said = []
    recorders = a.timeline.meta.recorder, b.timeline.meta.recorder
    if "virtual" in recorders:
        if has_operators(a.timeline) != has_operators(b.timeline):
            said.append(("recorded", _ONE_KNOWS))
    elif recorders[0] != recorders[1]:
        names = [_RECORDERS[recorder] for recorder in recorders]
        text = (
            f"A was recorded by {names[0]}, B by {names[1]}: recorders differ in overhead, so part of the host's "
            "extra time may come from the recorder."
        )
        if has_operators(a.timeline) != has_operators(b.timeline):
            text += f" {_ONE_KNOWS}"
        said.append(("recorded", text))
    elif a.activity.operators != b.activity.operators:
        without = "B" if a.activity.operators else "A"
        text = f"{without} was recorded without operators (ProfilerActivity.CPU), which makes its host faster."
        said.append(("recorded", text))
    return said


def _chance(step: Time | None, a: Result, b: Result) -> Said:
    if step is None:
        return []
    if step.noise is None:
        text = "Each run has a single step, so that change cannot be told from chance: "
        if a.source.simulated and b.source.simulated:
            return [("noise", f"{text}let them run several steps.")]
        text += "record several steps: schedule(wait=2, warmup=2, active=5)."
        return [("noise", text)]
    return []


def _notes(a: Result, b: Result) -> Said:
    notes = [[note for note in of.integrity.notes if not note.startswith(_HARMLESS)] for of in (a, b)]
    both = [note for note in notes[0] if note in notes[1]]
    said: Said = [("note", f"A and B: {note}") for note in both]
    for name, own in zip("AB", notes, strict=True):
        said += [("note", f"{name}: {note}") for note in own if note not in both]
    return said
