"""Finds the traces of a job and reads each as a rank. Files that cannot be used are named with a reason, and the others
are used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from unstall.errors import TraceError, UsageError
from unstall.figures import counted
from unstall.fleets.executors import Executor, all_of
from unstall.fleets.join import Joined, join, ranks_text
from unstall.fleets.mapping import Mapped, Task, files_of_glob
from unstall.fleets.result import NotRead
from unstall.fleets.steps import paired_steps
from unstall.fleets.summary import Group, Rank, decode
from unstall.result import Where
from unstall.timeline.grouping import unique

ENDINGS = (".json", ".json.gz", ".json.zst", ".trace", ".trace.gz", ".timeline", ".unstall")
_MOST_FILES = 1 << 16
_DIGITS = re.compile(r"(\d+)")
_UNITS = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9, "%": 1.0, "ops": 1.0}
_FIGURE = re.compile(r"(?<![\w.,:/-])(\d[\d,]*(?:\.\d+)?) (ns|µs|ms|s|%|ops)(?!\w)")


class Gathered(msgspec.Struct, frozen=True):
    """The ranks of a job that could be read.

    Attributes:
        ranks: The ranks, in ascending order of their numbers.
        joined: The collectives in which several of these ranks take part.
        not_read: The files that were left out, and why.
        ranks_by: Where the numbers of the ranks come from: "distributedInfo" (in the traces), "file name", or "both".
        notes: Sentences about steps that were left out, and about ranks whose numbers may be wrong.
        unedited: For each trace to which its last edit did not fit, the path and why. This edit is left out.
    """

    ranks: tuple[Rank, ...]
    joined: Joined
    not_read: tuple[NotRead, ...]
    ranks_by: str
    notes: tuple[str, ...]
    unedited: tuple[NotRead, ...]


def find_traces(source: str | Path | Iterable[str | Path], find: Callable[[str], list[str]] | None = None) -> list[str]:
    """Returns the paths of the traces that `source` names, each path once, in natural order ("rank-2" before
    "rank-10").

    Args:
        source: A folder, a file, a glob, or a list of these. In folders, files are chosen by their endings.
        find: A function that returns the files that match a glob, on the machines where traces are read. None: globs
            are matched on this machine.

    Raises:
        UsageError: A name matches no file, there are no traces, or there are more than 65,536.
    """
    given = [source] if isinstance(source, str | Path) else list(source)
    found: list[str] = []
    for each in map(str, given):
        if Path(each).is_dir():
            files = [str(path) for path in Path(each).rglob("*") if path.is_file()]
            found += [path for path in files if path.lower().endswith(ENDINGS)]
        elif Path(each).is_file():
            found.append(each)
        else:
            matched = (find or files_of_glob)(each)
            if not matched:
                raise UsageError(f"{each}: there is no such file or folder, and no file matches it")
            found += matched
    distinct = list(dict.fromkeys(found))
    if not distinct:
        raise UsageError(f"no traces in {', '.join(map(str, given))}: no file there ends in {', '.join(ENDINGS)}")
    if len(distinct) > _MOST_FILES:
        raise UsageError(f"{len(distinct):,} files are more than the {_MOST_FILES:,} that one job may have")
    return sorted(distinct, key=_natural)


def _natural(path: str) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in _DIGITS.split(path)]


def gather(
    tasks: Sequence[Task],
    executor: Executor,
    progress: Callable[[int, int], None] | None = None,
    trying: Collection[str] = (),
) -> Gathered:
    """Reads the traces of a job, and finds the collectives in which their ranks take part together.

    Files are left out if they cannot be read, if their rank is unknown or repeated, if they have far fewer steps than
    most files, or if they belong to another job.

    Args:
        tasks: One task for each trace.
        executor: Runs the tasks.
        progress: If not None, called with the number of traces read and the number of all traces.
        trying: The paths of the traces whose last edit may not fit. If it does not fit, it is left out.

    Raises:
        UsageError: An edit fits none of the files in `trying`, or an annotation fits none of the files.
        TraceError: None of the files can be used.
    """
    mapped = all_of(executor, tasks, progress)
    unedited = _without_unfit_edits(tasks, mapped, executor, trying)
    asked = [each for each in mapped if each.usage]
    if asked and len(asked) == sum(each.data is None for each in mapped) == len(mapped):
        raise UsageError(asked[0].why)
    not_read = [NotRead(path=each.path, why=each.why) for each in mapped if each.data is None]
    ranks, by = _distinct(_of_one_world(_decoded(mapped, not_read), not_read), not_read)
    ranks = _whole(ranks, not_read)
    joined = join(ranks) if ranks else None
    if joined is not None and len(joined):
        parts = set(joined.rank.tolist())
        if len(parts) < len(ranks):
            for index, rank in enumerate(ranks):
                if index not in parts and len(rank.calls):
                    not_read.append(NotRead(path=rank.summary.path, why=_why_apart(rank, ranks)))
            ranks = [rank for index, rank in enumerate(ranks) if index in parts or not len(rank.calls)]
            joined = join(ranks)
    if not ranks or joined is None:
        shown = "; ".join(f"{each.path}: {each.why}" for each in not_read[:3])
        which = "the file cannot" if len(mapped) == 1 else f"none of the {len(mapped)} files can"
        raise TraceError(f"{which} be used: {shown}")
    ranks, notes = paired_steps(ranks, joined)
    said = (*notes, *(note for rank in ranks if (note := _of_other_groups(rank))))
    return Gathered(tuple(ranks), join(ranks) if notes else joined, tuple(not_read), by, said, tuple(unedited))


def _why_apart(rank: Rank, ranks: Sequence[Rank]) -> str:
    """Returns why a rank shares no operation with the others."""
    calls, partners = rank.calls, set[int]()
    for number in unique(calls.group).tolist():
        mine = calls.group == number
        sent = mine & (calls.source >= 0) & (calls.target >= 0)
        partners |= {*unique(calls.source[sent]).tolist(), *unique(calls.target[sent]).tolist()}
        if (mine & ~sent).any():
            partners |= set(rank.summary.groups[number].ranks)
    partners -= {rank.number}
    if partners and not partners & {each.number for each in ranks}:
        return (
            f"it communicates with {ranks_text(sorted(partners))} only, of which no trace could be used: its times "
            "cannot be compared with those of the others"
        )
    why = "it shares no operation with the other files: it is from another job, or from another time"
    return f"{why}; {note}" if (note := _of_other_groups(rank)) else why


def _of_other_groups(rank: Rank) -> str:
    """Returns a clause about a rank that is in none of its process groups, as its number may be wrong; else ""."""
    members = {number for group in rank.summary.groups for number in group.ranks}
    if not members or rank.number in members:
        return ""
    return (
        f"rank {rank.number} is in none of its process groups, which have {ranks_text(sorted(members))}: the number of "
        f"the rank may be wrong in {rank.summary.path}"
    )


def _without_unfit_edits(
    tasks: Sequence[Task], mapped: list[Mapped], executor: Executor, trying: Collection[str]
) -> list[NotRead]:
    """Summarises the traces in `trying` to which their last edit does not fit again, without this edit, and puts them
    into `mapped`. Returns these traces, and why the edit does not fit.

    Raises:
        UsageError: The edit fits none of the traces.
    """
    unfit = [at for at, task in enumerate(tasks) if task.path in trying and mapped[at].usage]
    if unfit and len(unfit) == len(trying):
        raise UsageError(mapped[unfit[0]].why)
    again = [msgspec.structs.replace(tasks[at], edits=tasks[at].edits[:-1]) for at in unfit]
    found = [NotRead(path=tasks[at].path, why=mapped[at].why) for at in unfit]
    for at, each in zip(unfit, all_of(executor, again, None) if again else (), strict=True):
        mapped[at] = each
    return found


def _decoded(mapped: Sequence[Mapped], not_read: list[NotRead]) -> list[Rank]:
    """Returns the ranks of the files that could be read, without copies of one file, which are added to `not_read`."""
    by_digest: dict[str, str] = {}
    groups: dict[Group, Group] = {}  # ranks share what they say alike: a group names all of its members
    places: dict[Where, Where] = {}
    ranks = []
    for each in mapped:
        if each.data is None:
            continue
        if each.digest and each.digest in by_digest:
            not_read.append(NotRead(path=each.path, why=f"it is the same file as {by_digest[each.digest]}"))
            continue
        by_digest[each.digest] = each.path
        rank = decode(each.data)
        summary = msgspec.structs.replace(
            rank.summary,
            groups=tuple(groups.setdefault(group, group) for group in rank.summary.groups),
            places=tuple(places.setdefault(place, place) for place in rank.summary.places),
        )
        ranks.append(msgspec.structs.replace(rank, summary=summary))
    return ranks


def _distinct(ranks: Sequence[Rank], not_read: list[NotRead]) -> tuple[list[Rank], str]:
    """Returns `(ranks, by)`. `ranks` has one rank for each rank number, in ascending order. If several files have the
    same rank, only the first is used. `by` says where the rank numbers come from: "distributedInfo", "file name" or
    "both". The files that are left out are added to `not_read`: those of a folder of which all are left out together.
    """
    by_rank: dict[int, Rank] = {}
    again: dict[Path, list[tuple[Rank, Rank]]] = {}  # by folder: files whose ranks others have, and these others
    for rank in ranks:
        path = rank.summary.path
        if rank.number < 0:
            why = "its rank is unknown: the trace has no distributedInfo, and its name no rank (such as rank-3.json)"
            not_read.append(NotRead(path=path, why=why))
        elif rank.number in by_rank:
            again.setdefault(Path(path).parent, []).append((rank, by_rank[rank.number]))
        else:
            by_rank[rank.number] = rank
    used = {Path(rank.summary.path).parent for rank in by_rank.values()}
    for folder, pairs in again.items():
        others = {Path(other.summary.path).parent for _, other in pairs}
        if len(pairs) > 1 and folder not in used and len(others) == 1:
            why = f"its {len(pairs)} files are of ranks that {others.pop()} has, too: another recording?"
            not_read.append(NotRead(path=str(folder), why=why))
            continue
        for rank, other in pairs:
            why = f"{other.summary.path} is already the file of rank {rank.number}"
            not_read.append(NotRead(path=rank.summary.path, why=why))
    told = {rank.summary.rank_by for rank in by_rank.values()}
    by = "file name" if told == {"file name"} else "distributedInfo" if len(told) < 2 else "both"
    return [by_rank[number] for number in sorted(by_rank)], by


def _of_one_world(ranks: list[Rank], not_read: list[NotRead]) -> list[Rank]:
    """Returns the ranks without those whose trace has another world size (number of ranks) than most traces. The files
    that are left out are added to `not_read`."""
    sizes = Counter(rank.summary.world_size for rank in ranks if rank.summary.world_size is not None)
    if not sizes:
        return ranks
    usual = max(sizes, key=lambda size: (sizes[size], size))
    kept = []
    for rank in ranks:
        size = rank.summary.world_size
        if size is not None and size != usual:
            why = f"it is from another job: its job has {size:,} ranks, and that of most files has {usual:,}"
            not_read.append(NotRead(path=rank.summary.path, why=why))
        else:
            kept.append(rank)
    return kept


def _whole(ranks: list[Rank], not_read: list[NotRead]) -> list[Rank]:
    """Returns the ranks without those that have less than half of the usual number of steps, as only steps that all
    ranks have are compared, and without damaged files that have less than half of the usual number of collectives.
    The files that are left out are added to `not_read`."""
    usual = sorted(rank.steps for rank in ranks)[len(ranks) // 2] if ranks else 0
    calls = sorted(len(rank.calls) for rank in ranks)[len(ranks) // 2] if ranks else 0
    kept = []
    for rank in ranks:
        cut = next((f": {note}" for note in rank.summary.notes if "at byte" in note), "")
        if 2 * rank.steps < usual:
            why = f"it has {counted(rank.steps, 'step')}, and most files have {usual:,}"
            not_read.append(NotRead(path=rank.summary.path, why=why + cut))
        elif cut and 2 * len(rank.calls) < calls:
            why = f"it has {counted(len(rank.calls), 'collective')}, and most files have {calls:,}"
            not_read.append(NotRead(path=rank.summary.path, why=why + cut))
        else:
            kept.append(rank)
    return kept


def notes_of(gathered: Gathered) -> tuple[str, ...]:
    """Returns the notes of the ranks' own traces, one sentence each. A note that several ranks have is returned once.
    If only some ranks have a note, the sentence begins with their numbers. Notes that differ in times, shares or
    numbers of ops only count as one note, which has the smallest and the largest of each: "3.97 s to 4.65 s"."""
    said: dict[str, dict[str, list[int]]] = {}
    for rank in gathered.ranks:
        for note in rank.summary.notes:
            said.setdefault(_FIGURE.sub("\0", note), {}).setdefault(note, []).append(rank.number)
    every, notes = len(gathered.ranks), []
    for alike in said.values():
        note, numbers = _with_ranges(list(alike)), sorted({number for each in alike.values() for number in each})
        notes.append(note if len(numbers) == every else f"{ranks_text(numbers)}: {note}")
    return tuple(notes)


def _with_ranges(notes: Sequence[str]) -> str:
    """Returns one note for notes that differ in their figures only."""
    columns = zip(*(_FIGURE.finditer(note) for note in notes), strict=True)
    ranges = iter([sorted(column, key=_value) for column in columns])

    def in_words(_: re.Match[str]) -> str:
        found = next(ranges)
        low, high = found[0][0], found[-1][0]
        return low if low == high else f"{low} to {high}"

    return _FIGURE.sub(in_words, notes[0])


def _value(figure: re.Match[str]) -> float:
    return float(figure[1].replace(",", "")) * _UNITS[figure[2]]
