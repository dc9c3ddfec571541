"""The report on where a program hangs, or on where a running program is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unstall.blaming.document import source_block
from unstall.blaming.names import at_line, place
from unstall.blaming.result import BlameResult, Hang, Line, Process, Standing, Suspect
from unstall.document.document import Annotation, Block, Bullets, Document, Prose, Span, Words, labelled, words
from unstall.document.plain import plain, short
from unstall.document.shown import Shown
from unstall.figures import capital, counted, duration

_MOST_OTHERS, _MOST_THREADS = 8, 8


class HangReport(Shown):
    """The report of a hang: a program that makes no progress. `print` shows the report. `save`
    writes it to a file. The extension of the file's name selects the format.
    """

    def __init__(self, result: BlameResult) -> None:
        self.result = result

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the report of the hang as a document. If `scrub_paths` is set, file paths are shortened."""
        hang = self.result.hang
        assert hang is not None
        summary = " ".join(_sentences(hang))
        where = _line_of(_first(hang)) if hang.processes else None
        told = Annotation(
            "error" if hang.after_ns is not None else "notice",
            "unstall blame",
            summary,
            where.file if where else None,
            where.line if where else None,
        )
        return Document(
            title="unstall blame",
            about=(words(Span(plain(self.result.program), "subject")),) if self.result.program else (),
            summary=summary,
            blocks=tuple(_blocks(hang)),
            data=self.result,
            annotations=(told,),
        )


def _first(hang: Hang) -> Process:
    """Returns the process that explains the hang best: one that waits for its device, if there is such a process."""
    return min(hang.processes, key=lambda each: (not _sure(each), not each.collective, each.state != "waits"))


def _sentences(hang: Hang) -> Iterator[str]:
    if not hang.processes:
        yield "No process of the program answers."
        return
    first = _first(hang)
    if hang.after_ns is not None:
        quiet = max((each.quiet_ns or 0 for each in hang.processes if each.state == "waits"), default=hang.after_ns)
        if _is_idle(hang):
            yield f"The program has put no work on the device for {duration(quiet)}, and all of its work is done."
            yield _of_host(first)
            yield from _of_end(hang)
            return
        yield f"The program hangs: nothing has moved for {duration(quiet)}."
    ranks = [each for each in hang.processes if each.rank is not None]
    within = [each for each in ranks if each.collective and each.state != "ended"]
    if within:
        yield from _of_ranks(within, [each for each in ranks if each not in within], _unseen(ranks))
    else:
        yield _of_process(first)
    yield from _of_end(hang)


def _of_end(hang: Hang) -> Iterator[str]:
    if hang.ended:
        yield "The program is ended."


def _of_ranks(within: Sequence[Process], without: Sequence[Process], unseen: Sequence[int]) -> Iterator[str]:
    """Yields sentences that say which ranks wait in a collective, and which ranks have not joined
    the collective.

    Args:
        within: The processes of ranks that wait in a collective.
        without: The processes of the other ranks.
        unseen: The ranks whose processes were not found.
    """
    by_call: dict[tuple[str, str], list[int]] = {}
    for each in within:
        line = _line_of(each)
        by_call.setdefault((each.collective, at_line(line) if line else "a line that is not known"), []).append(
            each.rank or 0
        )
    for (call, at), numbers in by_call.items():
        yield f"{_ranks(numbers)} {'wait' if len(numbers) > 1 else 'waits'} in {plain(call)} at {at}."
    for each in without:
        line = _line_of(each)
        where = f"is at {at_line(line) if line else 'a line that is not known'}"
        state = each.state if each.state in ("ended", "stopped", "silent") else ""
        yield f"Rank {each.rank} never joined: it {_STATES[state] if state else where}."
    if unseen:
        yield f"{_ranks(unseen)}: not on this machine, or ended."
    if not without and not unseen and len(by_call) == 1 and len(within) > 1:
        yield "Every rank has joined."


def _unseen(ranks: Sequence[Process]) -> list[int]:
    size = max((each.world_size or 0 for each in ranks), default=0)
    seen = {each.rank for each in ranks}
    return [rank for rank in range(min(size, 1 << 16)) if rank not in seen]


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in sorted(ranks)[:8]) + (" …" if len(ranks) > 8 else "")
    return f"Rank {shown}" if len(ranks) == 1 else f"Ranks {shown}"


def _of_process(process: Process) -> str:
    """Returns a sentence that says where a process is."""
    if process.state in ("ended", "stopped", "silent"):
        return f"Process {process.pid} {_STATES[process.state]}."
    circular = [each for each in process.streams if each.circular]
    if circular:
        is_called = len({each.work.where for each in circular if each.work}) < len(
            circular
        )  # in a function of the user's
        return f"Streams wait for each other: {' and '.join(_circular(each, is_called) for each in circular)}."
    if sure := _sure(process):
        return f"{capital(_standing(sure[0]))}."
    host = _of_host(process)
    if not process.worked:
        return f"Nothing was put on a device yet. {host}"
    if process.streams:
        return f"{capital(_standing(process.streams[0]))}, or has done it unseen. {host}"
    return f"All work that was put on the device is done. {host}"


def _of_host(process: Process) -> str:
    return f"The host is at {at_line(process.at)}." if process.at else "Where the host is, is not known."


def _is_idle(hang: Hang) -> bool:
    """Returns whether the program may be idle instead of hanging: no device has work, and no rank waits for another
    rank.
    """
    alive = [each for each in hang.processes if each.state != "ended"]
    is_unsure = any(each.streams or each.collective or each.state in ("silent", "stopped") for each in alive)
    return any(each.worked for each in alive) and not is_unsure


_STATES = {
    "ended": "has ended",
    "stopped": "is stopped, by a signal or a debugger",
    "silent": "does not answer",
    "moves": "has moved lately",
}


def _circular(standing: Standing, is_called: bool) -> str:
    work = standing.work
    caller = f" (called from {at_line(work.called_from[0])})" if is_called and work and work.called_from else ""
    return f"{standing.stream} at {at_line(work.where) if work and work.where else '?'}{caller}"


def _standing(standing: Standing) -> str:
    """Returns a sentence that says what a stream is doing. The sentence begins with a lower-case letter."""
    work = standing.work
    if work is None or work.where is None:
        return f"{standing.stream} has work that is not done; its line is not known"
    where = at_line(work.where)
    if work.others:
        where = f"{where} most likely, or of {counted(len(work.others), 'other line')}"
    if standing.waits == "event":
        by = f", which {standing.on_stream} is to reach ({at_line(standing.on)})" if standing.on else ""
        return f"{standing.stream} waits at {where} for an event{by}"
    if standing.waits == "value":
        if standing.on is None:
            return f"{standing.stream} waits at {where} for a value in memory that no stream is to write"
        return (
            f"{standing.stream} waits at {where} for a value in memory, which {standing.on_stream} is to write "
            f"({at_line(standing.on)})"
        )
    what = (
        f"kernel {short(work.work[0], 80)}" if standing.waits in ("kernel", "graph", "collective") else standing.waits
    )
    graph = f", in a graph replayed at {at_line(work.replayed)}" if work.replayed else ""
    return f"{standing.stream} is at {what} of {where}{graph}"


def _sure(process: Process) -> list[Standing]:
    return [each for each in process.streams if each.is_sure]


def _line_of(process: Process) -> Line | None:
    """Returns the line that launched the work that the device is executing. If no such line is
    known, returns the line that the host is executing.
    """
    sure = _sure(process)
    work = next((each.work for each in sure if each.work and each.work.where), None)
    return work.where if work else process.at


def _blocks(hang: Hang) -> Iterator[Block]:
    if not hang.processes:
        return
    first = _first(hang)
    yield from _details(first, titled=len(hang.processes) > 1)
    others = [each for each in hang.processes if each is not first]
    if others:
        yield Bullets(words("Other processes"), tuple(words(f"{_title(each)}: {_of_process(each)}") for each in others))
    if hang.moved_ns is not None:
        yield Prose((words(f"It moved again after {duration(hang.moved_ns)}."),))


def _details(process: Process, *, titled: bool) -> Iterator[Block]:
    if titled:
        yield Prose((words(Span(_title(process), "strong")),))
    sure = _sure(process)
    work = next((each.work for each in sure if each.work and each.work.where), None)
    if work is None and process.at is not None:
        work = Suspect(where=process.at)
    if work is not None:
        yield source_block(work)
    yield Prose(tuple(_facts(process)))
    for each in sure:
        if each.work and each.work.others:
            lines = each.work.others
            items = tuple(words(Span(place(line), "place")) for line in lines[:_MOST_OTHERS])
            more = (words(counted(len(lines) - _MOST_OTHERS, "more line")),) if len(lines) > _MOST_OTHERS else ()
            yield Bullets(words(f"Other lines at whose work {each.stream} may be"), items + more)
    if process.stack:
        frames = tuple(words(Span(place(frame), "place" if frame.source else "dim")) for frame in process.stack[:12])
        yield Bullets(words("The host's main thread, innermost first"), frames)


def _facts(process: Process) -> Iterator[Words]:
    for each in process.streams:
        unseen = "" if each.is_sure else " (or has done it: the driver does not say)"
        yield labelled("device", f"{_standing(each)}{unseen}")
        has_kernel = each.waits in ("kernel", "graph", "collective")
        for name in each.work.work[:3] if each.work and has_kernel else ():
            yield labelled("kernel", Span(short(name, 150), "name"))
        for caller in each.work.called_from[:2] if each.work else ():
            yield labelled("called from", Span(place(caller), "place"))
    if process.worked and not process.streams:
        yield labelled("device", "all work is done")
    if process.at is not None:
        yield labelled("host", Span(place(process.at), "place"))
    for thread in process.threads[:_MOST_THREADS]:
        if not thread.is_main:
            yield labelled("thread", Span(place(thread.at), "place"))


def _title(process: Process) -> str:
    rank = f"rank {process.rank}, " if process.rank is not None else ""
    quiet = f"nothing has moved for {duration(process.quiet_ns)}" if process.quiet_ns else "nothing moves"
    return capital(f"{rank}process {process.pid} ({_STATES.get(process.state, quiet)})")
