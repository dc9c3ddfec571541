"""Finds which work of an ended program failed, and the line that launched it. Reads the ring file:
the file in which the program recorded the work that it put on streams.
"""

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
    """Returns what is known of a program's fault (an error of the device). If the program saw no
    error, the field `error` of the result is "".

    Args:
        ring: The work that the program put on streams.
        assertion: The text of the failed device-side assertion; "" if none is known.
        program: The program, for the result.
        dump: A core dump of the same fault, which names the failed kernel. If None, the kernel is
            guessed from `assertion`.
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
    """Returns a function that says whether a kernel, given by its demangled name, may have failed."""
    failed = dump.failed if dump else None
    if failed is not None and failed.linked:
        name = name_in_results(failed.linked)
        return lambda kernel: kernel == name
    return lambda kernel: fits(assertion, kernel)


def _by_kernel(
    found: list[tuple[Unfinished, Suspect]], may_be: Callable[[str], bool]
) -> list[tuple[Unfinished, Suspect]]:
    """Returns the one suspect whose kernel may have failed, if there is exactly one. Otherwise returns all suspects.

    If all suspects are returned, suspects that may only have waited for another stream come last.
    """
    fitting = [pair for pair in found if any(map(may_be, pair[1].work))]
    if len(fitting) == 1:
        return fitting
    return sorted(found, key=lambda pair: (pair[0].blocked, pair not in fitting))


def suspect_of(ring: Ring, each: Unfinished, may_be: Callable[[str], bool] = lambda _: False) -> Suspect:
    """Returns the line whose work never finished. If other lines are possible too, they are in the
    field `others` of the result.

    Args:
        ring: The work that the program put on streams.
        each: The unfinished work.
        may_be: A function that takes the demangled name of a kernel, and returns whether the kernel
            may have failed. If it returns False for all kernels in `each`, all of them count as
            possible.
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
    """Returns the entries whose kernel may have failed; all entries if there is no such kernel."""
    fitting = entries[[may_be(demangled(ring.kernel(int(each["kernel"])))) for each in entries]]
    return fitting if len(fitting) else entries


def _visits(entries: Rows) -> tuple[int | None, int | None]:
    """Returns which executions of a source line launched the work in `entries`.

    All entries come from the same line. Its executions are counted from 1.

    Returns:
        (first execution, last execution). The last is None if it equals the first. Both are None if they are not known.
    """
    visits = entries["visit"][entries["visit"] > 0]
    if not len(visits):
        return None, None
    first, last = int(visits.min()), int(visits.max())
    return first, last if last > first else None


def _work(ring: Ring, entries: Any) -> tuple[str, ...]:
    names = (demangled(ring.kernel(int(each["kernel"]))) or _KINDS.get(int(each["kind"]), "kernel") for each in entries)
    return tuple(list(dict.fromkeys(names))[:_MOST_NAMES])


def name_of_stream(ring: Ring, number: int) -> str:
    """Returns the name that reports use for a stream. `number` is the index of the stream in the
    table `streams` of `ring`.
    """
    row = ring.tables["streams"][number]
    return stream_name(int(row["handle"]), thread=int(row["thread"]))


def _lines(places: Iterable[Place | None]) -> tuple[Line, ...]:
    return tuple(line for place in places if (line := line_of(place)))


def line_of(place: Place | None) -> Line | None:
    """Converts a recorded line (`Place`) to a line of a result (`Line`), and adds its source text.
    Returns None for None.
    """
    if place is None:
        return None
    return Line(place.file, place.line, place.function, linecache.getline(place.file, place.line).strip())


def _unmarked(header: Any) -> str:
    """Returns why the lines whose work may have failed are not exact; "" if they are exact.
    `header` is the header of the ring file.
    """
    refused, lost = int(header["refused"]), int(header["lost_streams"])
    if refused:
        return f"the driver refused {refused:,} of {int(header['marks']):,} marks (error {int(header['refusal'])})"
    return f"{lost:,} calls were on streams beyond those that are followed" if lost else ""
