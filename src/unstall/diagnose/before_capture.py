"""Completes the advice to capture a CUDA graph: adds the changes that the capture needs.

The waits and copies to remove come first, the changes to the optimizer last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from unstall.diagnose.run import Run
from unstall.errors import UsageError
from unstall.figures import counted, listed, numbered_findings
from unstall.locate.capture_aware import leaves_waits_out
from unstall.locate.frameworks import OF_LBFGS
from unstall.locate.grad_scaler import of_grad_scaler
from unstall.locate.kinds import named
from unstall.locate.step_optimizer import OPTIMIZER_STEP
from unstall.result import Finding, Where
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import Bool, HostKind
from unstall.what_if.place import EditPlace, parse_function
from unstall.what_if.set_up import was_set_up

_BLOCKS = re.compile(r"sync-|pageable-copy$|blocking-copy$|blocking-pinned-copy$")
_MOST_NAMED = 4  # lines; of the others, the numbers of their findings are told
_SELVES = "itself", "themselves"
_OPTIMIZER_FILE = re.compile(r"(?:.*/)?torch/optim/_?(?P<name>[a-z]+)\w*\.py")
_NAME = re.compile(r"Optimizer\.step#(?P<name>\w+)\.step")
_NO_OPTIMIZER = {"optimizer", "lr"}  # files that hold no optimizer: optimizer.py, lr_scheduler.py
# torch.optim's classes that take `capturable`, in lower case; tests hold them against the installed torch.
CAPTURABLE = frozenset({"adadelta", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop", "rprop"})
# Those that count no steps, and so need nothing to be captured.
COUNTS_NO_STEPS = frozenset({"sgd"})
_CALLS_CLOSURES = frozenset({"lbfgs"})  # never in a graph: the advice there is to capture its closure
_TENSOR_RATE = "lr=torch.tensor(…, device='cuda'){fused} if a scheduler changes the learning rate at each step"


def with_what_comes_first(run: Run, findings: Sequence[Finding]) -> list[Finding]:
    """Returns a copy of `findings`, in the same order. If a finding advises to capture a CUDA
    graph, its copy also advises what the user must change before the capture.

    The advice refers to other findings by their numbers in the report. The report counts findings
    from 1. It does not count bugs, and findings that cost nothing.
    """
    costly = [finding for finding in findings if not finding.harmless and not finding.wrong]
    numbers = {id(finding): number for number, finding in enumerate(costly, 1)}

    def advised(finding: Finding) -> Finding:
        inside = _inside(run, finding)
        if inside is None:
            return finding
        blockers = [each for each in findings if _blocks(run, each, inside)]
        first = _first(blockers, numbers)
        # At a package's own loop the advice is to capture the model, which holds no optimizer.
        needs = _optimizer_needs(run, inside) if run.framework_code.package_of(finding.where.file) is None else ""
        fix = f"{first}; then {finding.fix}" if first else finding.fix
        return msgspec.structs.replace(finding, fix=f"{fix}; {needs}" if needs else fix)

    return [advised(finding) for finding in findings]


def _inside(run: Run, finding: Finding) -> Bool | None:
    """Returns a mask over the rows of `timeline.host`: the events that would be in the CUDA graph
    that a finding advises.

    Returns None if the finding does not advise a graph. No graph contains the work of a GradScaler.
    """
    name, colon, place = (finding.edit or "").partition(":")
    if finding.rule != "launch-bound" or name != "graph":
        return None
    inside: Bool = run.inside & ~of_grad_scaler(run.timeline)
    return inside & parse_function(place).chosen(run.places) if colon else inside


def _blocks(run: Run, finding: Finding, inside: Bool) -> bool:
    """Returns whether a finding is about a wait or a copy that prevents the capture of a CUDA graph.

    `inside` is a mask of the host events that the graph would contain.
    """
    where = finding.where
    if was_set_up(finding, run.timeline, run.steps):
        return False
    if not _BLOCKS.match(finding.rule) or (where.file is None and where.op is None):
        return False
    try:
        at = EditPlace(file=where.file, line=where.line, op=where.op).chosen(run.places)
    except UsageError:  # an annotation's name stands for the place
        return False
    kind = run.timeline.host.kind
    left_out = _are_of_lbfgs(run) | leaves_waits_out(run.timeline)
    return bool((at & inside & ((kind == HostKind.SYNC) | (kind == HostKind.COPY)) & ~left_out).any())


def _are_of_lbfgs(run: Run) -> Bool:
    """Returns a mask over the rows of `timeline.host`: the events of torch's LBFGS itself, which no graph contains.
    Events of its closure are not among them.
    """
    timeline = run.timeline
    is_of_lbfgs = named(timeline, OF_LBFGS, timeline.lines.file)[timeline.stacks.line]
    innermost = nearest(timeline.stacks.parent, is_of_lbfgs | run.places.is_user_frame)
    found: Bool = np.append(is_of_lbfgs, False)[np.append(innermost, -1)[timeline.host.stack]]
    return found


def _first(blockers: Sequence[Finding], numbers: dict[int, int]) -> str:
    """Returns the advice to fix the findings `blockers` first, or "" if there are no findings.

    `numbers` maps the id() of each finding to the finding's number in the report.
    """
    at: dict[str, list[Finding]] = {}
    for each in sorted(blockers, key=lambda each: numbers.get(id(each), len(numbers) + 1)):
        at.setdefault(f"{each.where.file}:{each.where.line}", []).append(each)
    groups = list(at.values())
    said = [_named(group, numbers) for group in groups[:_MOST_NAMED]] + _by_number(groups[_MOST_NAMED:], numbers)
    return f"first {listed(said)}: a graph cannot contain {'it' if len(blockers) == 1 else 'them'}" if said else ""


def _by_number(groups: Sequence[Sequence[Finding]], numbers: dict[int, int]) -> list[str]:
    """Returns up to two texts: the first names the findings that have a number, and the second counts the findings
    without a number.

    Each group has the findings of one line. `numbers` maps the id() of each finding to the finding's number in the
    report.
    """
    blockers = [each for group in groups for each in group]
    told = [str(number) for number in sorted(numbers[id(each)] for each in blockers if id(each) in numbers)]
    others = len(blockers) - len(told)
    return ([numbered_findings(told)] if told else []) + (
        [f"{counted(others, 'more wait')} that cost{'s' * (others == 1)} nothing by {_SELVES[others > 1]}"]
        if others
        else []
    )


def _named(blockers: Sequence[Finding], numbers: dict[int, int]) -> str:
    """Returns a text that names the findings of one line, such as "finding 2 (train.py:41 aten::item)"."""
    told = [str(numbers[id(each)]) for each in blockers if id(each) in numbers]
    where = blockers[0].where
    place = _at(where if len(blockers) == 1 else msgspec.structs.replace(where, op=None if where.file else where.op))
    if not told:
        several = len(blockers) > 1
        waits, cost = ("waits", "cost") if several else ("wait", "costs")
        return f"the {waits} at {place}, which {cost} nothing by {_SELVES[several]}"
    others = len(blockers) - len(told)
    more = f" and {counted(others, 'wait')} that cost{'s' * (others == 1)} nothing" if others else ""
    return f"{numbered_findings(told)}{more} ({place})"


def _at(where: Where) -> str:
    at = f"{where.file}:{where.line}" if where.file else ""
    return f"{at} {where.op}".strip() if where.op else at


def _optimizer_needs(run: Run, inside: Bool) -> str:
    """Returns a text that says what must change so that a graph can contain the optimizers' steps.

    Returns "" if nothing must change. `inside` is a mask of the host events that the graph would contain.
    """
    names = sorted(_optimizers(run, inside))
    capturable = [name for name in names if name in CAPTURABLE]
    plain = [name for name in names if name in COUNTS_NO_STEPS]
    others = [name for name in names if name not in CAPTURABLE | COUNTS_NO_STEPS | _CALLS_CLOSURES]
    needs = []
    if capturable:
        rate = _TENSOR_RATE.format(fused="")
        needs.append(f"make the optimizer with capturable=True, which rounds a little differently, and with {rate}")
    elif plain:
        needs.append(f"make the optimizer with {_TENSOR_RATE.format(fused=' and fused=True')}")
    if others:
        which = f"{counted(len(others), 'optimizer')} " if capturable or plain else "the optimizer "
        needs.append(f"if {which}cannot be made with capturable=True, leave its step outside")
    return "; ".join(needs)


def _optimizers(run: Run, inside: Bool) -> set[str]:
    """Returns the lower-case names of the optimizers whose steps are among the host events in the mask `inside`.

    The names come from annotations. If there are no annotations, the names come from stack frames in torch.optim.
    """
    host, stacks, lines, text = run.timeline.host, run.timeline.stacks, run.timeline.lines, run.timeline.text
    marks = np.flatnonzero(inside & (host.kind == HostKind.ANNOTATION) & named(run.timeline, OPTIMIZER_STEP, host.name))
    found = {match["name"].lower() for i in np.unique(host.name[marks]) if (match := _NAME.match(text(int(i))))}
    if found:
        return found
    launched = host.stack[inside & (host.kind == HostKind.LAUNCH) & (host.stack >= 0)]
    # A closure of the program that an optimizer calls is no work of the optimizer.
    of_optimizer = named(run.timeline, _OPTIMIZER_FILE, lines.file)[stacks.line]
    nearest_one = np.unique(nearest(stacks.parent, of_optimizer | run.places.is_user_frame)[launched])
    files = np.unique(lines.file[stacks.line[nearest_one[np.append(of_optimizer, False)[nearest_one]]]])
    modules = {match["name"] for i in files.tolist() if (match := _OPTIMIZER_FILE.match(text(i)))}
    return modules - _NO_OPTIMIZER
