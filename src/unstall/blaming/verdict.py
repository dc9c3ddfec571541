"""Works out what failed, from the tables of a run."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from typing import Any

from unstall.blaming.causes import ERRORS, cause_of, fits
from unstall.blaming.core_dump.result import CoreDump
from unstall.blaming.culprit import Unfinished, unfinished
from unstall.blaming.demangle import demangled
from unstall.blaming.names import stream_name
from unstall.blaming.result import BlameResult, Line, Noticed, Suspect
from unstall.blaming.ring import COPY, GRAPH, MEMSET, WAIT, WAIT_VALUE, Place, Ring, Rows, name_in_results

_KINDS = {
    GRAPH: "graph replay",
    COPY: "copy",
    MEMSET: "memset",
    WAIT: "wait for an event",
    WAIT_VALUE: "wait for a value in memory",
}
_MOST_NAMES = 8


def verdict(ring: Ring, *, assertion: str = "", program: str = "", dump: CoreDump | None = None) -> BlameResult:
    """Returns what is known of the fault; a result without an error if the program saw none.

    `dump`: a core dump of the same fault, which names the kernel. Else the assertion's text may tell which it was.
    """
    header = ring.header
    code = int(header["error_code"])
    if not code:
        return BlameResult(program=program)
    may_be = _may_be(assertion, dump)
    found = _by_kernel([(each, suspect_of(ring, each, may_be)) for each in unfinished(ring)], may_be)
    suspects = tuple(suspect for _, suspect in found)
    launched = found[0][0].launch if found else None
    is_followed = bool(header["error_call"])  # else it was found at the program's end
    noticed = Noticed(
        where=line_of(ring.place(int(header["error_line"]))),
        call=ring.text(header["error_call"]) or "a call that is not followed",
        later_ns=int(header["error_time"]) - int(launched["time"]) if launched is not None and is_followed else None,
    )
    cause, fix = cause_of(code, assertion, suspects[0].work if suspects else ())
    return BlameResult(
        program=program,
        error=ERRORS.get(code, f"CUDA error {code}"),
        code=code,
        suspects=suspects,
        noticed=noticed,
        assertion=assertion,
        cause=cause,
        fix=fix,
        unmarked=_unmarked(header),
        dump=dump,
    )


def _may_be(assertion: str, dump: CoreDump | None) -> Callable[[str], bool]:
    """Returns what says of a kernel, by its demangled name, whether it may be the one that failed."""
    failed = dump.failed if dump else None
    if failed is not None and failed.linked:
        name = name_in_results(failed.linked)
        return lambda kernel: kernel == name
    return lambda kernel: fits(assertion, kernel)


def _by_kernel(
    found: list[tuple[Unfinished, Suspect]], may_be: Callable[[str], bool]
) -> list[tuple[Unfinished, Suspect]]:
    """Returns the one whose kernel failed if there is one such; else all, those that may have waited last."""
    fitting = [pair for pair in found if any(map(may_be, pair[1].work))]
    if len(fitting) == 1:
        return fitting
    return sorted(found, key=lambda pair: (pair[0].blocked, pair not in fitting))


def suspect_of(ring: Ring, each: Unfinished, may_be: Callable[[str], bool] = lambda _: False) -> Suspect:
    """Returns the line whose work never finished, and those that it may be of as well.

    `may_be` says of a kernel, by its demangled name, whether it may be the one. If none may, all may.
    """
    open_ones = _open(ring, each.entries, may_be)
    first = open_ones[0]
    failed = open_ones[open_ones["line"] == first["line"]]
    others = [line for line in dict.fromkeys(open_ones["line"].tolist()) if line != first["line"] and ring.place(line)]
    where, inner, outer = ring.stack(int(first["stack"]))
    replayed = each.replays if each.replays is not None else each.entries[:0]
    iteration, iteration_to = _visits(failed if len(replayed) == 0 else failed[:0])
    replay, replay_to = _visits(replayed)
    return Suspect(
        where=line_of(where),
        called_from=_lines(outer),
        inner=line_of(inner),
        iteration=iteration,
        iteration_to=iteration_to,
        work=_work(ring, failed),
        stream=name_of_stream(ring, int(each.launch["stream"])),
        backward=bool(first["backward"]),
        replayed=line_of(ring.place(int(replayed["line"][0]))) if len(replayed) else None,
        replay=replay,
        replay_to=replay_to,
        others=_lines(ring.place(line) for line in others),
        others_work=tuple(_work(ring, open_ones[open_ones["line"] == line]) for line in others),
        blocked=each.blocked,
    )


def _open(ring: Ring, entries: Rows, may_be: Callable[[str], bool]) -> Rows:
    """Returns the entries of a kernel that may have failed; all if none is known to."""
    fitting = entries[[may_be(demangled(ring.kernel(int(each["kernel"])))) for each in entries]]
    return fitting if len(fitting) else entries


def _visits(entries: Rows) -> tuple[int | None, int | None]:
    """Returns how often the program had come to a line, and the same for the last of these entries if it is another."""
    visits = entries["visit"][entries["visit"] > 0]
    if not len(visits):
        return None, None
    first, last = int(visits.min()), int(visits.max())
    return first, last if last > first else None


def _work(ring: Ring, entries: Any) -> tuple[str, ...]:
    names = (demangled(ring.kernel(int(each["kernel"]))) or _KINDS.get(int(each["kind"]), "kernel") for each in entries)
    return tuple(list(dict.fromkeys(names))[:_MOST_NAMES])


def name_of_stream(ring: Ring, number: int) -> str:
    """Returns what the stream in a row of `streams` is called."""
    row = ring.tables["streams"][number]
    return stream_name(int(row["handle"]), thread=int(row["thread"]))


def _lines(places: Iterable[Place | None]) -> tuple[Line, ...]:
    return tuple(line for place in places if (line := line_of(place)))


def line_of(place: Place | None) -> Line | None:
    """Returns a place with its source."""
    if place is None:
        return None
    return Line(place.file, place.line, place.function, linecache.getline(place.file, place.line).strip())


def _unmarked(header: Any) -> str:
    """Returns why lines may be missing between others, or nothing."""
    refused, lost = int(header["refused"]), int(header["lost_streams"])
    if refused:
        return f"the driver refused {refused:,} of {int(header['marks']):,} marks (error {int(header['refusal'])})"
    return f"{lost:,} calls were on streams beyond those that are followed" if lost else ""
