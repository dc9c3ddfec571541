"""The report of `unstall run --blame` and of `unstall.blame()`: a program's fault, and the line whose work failed."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Literal

from unstall.blaming.core_dump import document as core_dump
from unstall.blaming.names import at_line, place
from unstall.blaming.races.words import NO_RACE, annotations_of, blocks_of, sentence
from unstall.blaming.result import BlameResult, Suspect
from unstall.blaming.ring import name_in_results
from unstall.document.document import Annotation, Block, Bullets, Code, Document, Prose, Span, Words, labelled, words
from unstall.document.plain import plain, short
from unstall.document.shown import Shown
from unstall.figures import capital, counted, duration

NO_FAULT = "no fault was seen"
_AROUND = 2


class Blame(Shown):
    """The report of a fault: an error that ended a program's use of the device. `print` shows the
    report. `save` writes it to a file. The extension of the file's name selects the format.
    """

    def __init__(self, result: BlameResult, again: str = "") -> None:
        """Makes the report of a result.

        Args:
            result: What is known of the program's fault.
            again: A command that reruns the program to find the line that failed; "" for none. The
                report suggests this command if several lines may have failed.
        """
        self.result = result
        self._again = again

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the report of the fault as a document. If `scrub_paths` is set, file paths are shortened."""
        return document(self.result, self._again)


def document(result: BlameResult, again: str = "") -> Document:
    """Returns the report of a program's fault.

    Args:
        result: What is known of the fault.
        again: A command that reruns the program to find the line that failed; "" for none. The
            report suggests this command if several lines may have failed.
    """
    first = result.suspects[0] if result.suspects else None
    where = first.where if first else None
    summary = _summary(result, first)
    races = result.races or ()
    level: Literal["error", "notice"] = "error" if result.error or races else "notice"
    return Document(
        title="unstall blame",
        about=(words(Span(plain(result.program), "subject")),) if result.program else (),
        summary=summary,
        blocks=tuple(_blocks(result, first, again)),
        data=result,
        annotations=(
            Annotation(level, "unstall blame", summary, where.file if where else None, where.line if where else None),
            *annotations_of(races),
        ),
    )


def is_certain(result: BlameResult) -> bool:
    """Returns whether a result leaves no question open: the program had no error, or only one line can have failed."""
    open_ones = [suspect for suspect in result.suspects if not suspect.blocked]
    return not result.error or (len(open_ones) == 1 and not open_ones[0].others)


def _summary(result: BlameResult, first: Suspect | None) -> str:
    if not result.error:
        nothing = f"{capital(NO_FAULT)}." if result.races is None else f"{capital(NO_FAULT)}, and {NO_RACE}."
        return sentence(result.races) if result.races else nothing
    cause = f": {result.cause}" if result.cause else ""
    if first is None or first.where is None:
        return f"{capital(result.error)}{cause}. The line is not known."
    where = at_line(first.where)
    if first.others:
        where += f" or of {counted(len(first.others), 'other line')}"
    elif not is_certain(result):
        where = f"most likely {where}"
    return f"{capital(result.error)} in the work of {where}{cause}."


def _blocks(result: BlameResult, first: Suspect | None, again: str) -> Iterator[Block]:
    if first is not None:
        if first.where is not None:
            yield source_block(first)
        if facts := tuple(_facts(result, first)):
            yield Prose(facts)
    if result.dump is not None:
        yield Prose((words("In a second run, which wrote a core dump:"), *core_dump.facts(result.dump)))
    if noticing := tuple(_noticing(result)):
        yield Prose(noticing)
    if result.fix:
        yield Prose((labelled("do", capital(result.fix) + "."),))
    others = tuple(_other_lines(result))
    if others:
        yield Bullets(words("Other lines whose work had not finished"), others)
    if others and again:
        yield Prose((words("To find the one line: ", Span(again, "strong")),))
    if result.no_dump:
        yield Prose((words(Span(f"No core dump: {plain(result.no_dump)}.", "dim")),))
    yield from blocks_of(result.races or ())
    if result.races_missing:
        yield Prose((words(Span(f"Races may be missing: {plain(result.races_missing)}.", "warning")),))
    if result.unmarked:
        yield Prose((words(Span(f"Not exact: {result.unmarked}.", "warning")),))


def source_block(suspect: Suspect) -> Block:
    """Returns the source text of the line whose work may have failed, with a few lines before and
    after it. `suspect.where` must not be None.
    """
    assert suspect.where is not None
    where, reached = suspect.where, []
    if suspect.iteration:
        reached.append(f"the {_range(suspect.iteration, suspect.iteration_to)} time that it ran")
    if suspect.replay:
        reached.append(f"in the {_range(suspect.replay, suspect.replay_to)} replay of its graph")
    if suspect.backward:
        reached.append("in the backward pass")
    head = words(Span(place(where), "place"), *(Span(f", {each}", "dim") for each in reached))
    lines = linecache.getlines(where.file)
    if not lines:
        return Prose((head,))
    low, high = max(1, where.line - _AROUND), min(len(lines), where.line + _AROUND)
    width = len(str(high))
    numbered = tuple(
        f"{'>' if number == where.line else ' '} {number:{width}}  {plain(lines[number - 1].rstrip())}".rstrip()
        for number in range(low, high + 1)
    )
    return Code(head, numbered, "python")


def _facts(result: BlameResult, suspect: Suspect) -> Iterator[Words]:
    for caller in suspect.called_from[:2]:
        yield labelled("called from", Span(place(caller), "place"))
    for line in suspect.forward[:1]:
        yield labelled("forward", Span(place(line), "place"))
    if suspect.replayed:
        yield labelled("replayed at", Span(place(suspect.replayed), "place"))
    failed = result.dump.failed if result.dump else None
    told = name_in_results(failed.linked) if failed else ""
    for name in suspect.work[:3] if told not in suspect.work else ():
        yield labelled("kernel", Span(short(name, 150), "name"))
    if result.assertion:
        yield labelled("assertion", Span(short(result.assertion[result.assertion.find("Assertion ") :], 300), "name"))
    for tensor in result.tensors:
        yield labelled("tensor", Span(f"{tensor.name}: {tensor.dtype}{list(tensor.shape)} on {tensor.device}", "name"))


def _noticing(result: BlameResult) -> Iterator[Words]:
    noticed = result.noticed
    if noticed is None:
        return
    where = noticed.where or result.traceback
    at = Span(place(where), "place") if where else Span("a thread without Python")
    later = f", {duration(noticed.later_ns)} after that work was launched" if noticed.later_ns is not None else ""
    yield labelled("noticed at", words(at, f", by {noticed.call}{later}"))
    if result.traceback is not None and result.traceback != where:
        yield labelled("traceback", Span(place(result.traceback), "place"))


def _other_lines(result: BlameResult) -> Iterator[Words]:
    for number, suspect in enumerate(result.suspects):
        held = " (it may only have waited for another stream)" if suspect.blocked else ""
        if number and suspect.where is not None:
            yield words(Span(place(suspect.where), "place"), f" on {suspect.stream}{held}")
        for line in suspect.others[:5]:
            yield words(Span(place(line), "place"), f" on {suspect.stream}, behind that")
        if len(suspect.others) > 5:
            yield words(f"{counted(len(suspect.others) - 5, 'more line')} on {suspect.stream}")


def _range(first: int, last: int | None) -> str:
    return f"{_ordinal(first)} to {_ordinal(last)}" if last else _ordinal(first)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
