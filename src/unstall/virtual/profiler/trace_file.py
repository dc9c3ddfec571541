"""Writes a `Timeline` as a Chrome trace in Kineto's format. Perfetto and `unstall.load` can open it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import asdict

from unstall.chrome_trace import Text, micros, thread_names, write
from unstall.read.dependencies import described
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I32, DeviceKind, FaultKind, HostKind, Meta, RaceKind, Timeline, WaitKind
from unstall.timeline.fault_details import unpacked
from unstall.timeline.limits import MOST_FAULTS, MOST_HELD, MOST_RACES, MOST_READS, MOST_UPLOADS
from unstall.virtual.profiler.frames import StackTexts, is_frame, line_texts, slices_of

_HOST_CATEGORIES = {
    HostKind.OP: "cpu_op",
    HostKind.ANNOTATION: "user_annotation",
    HostKind.PYTHON: "python_function",
    HostKind.OVERHEAD: "overhead",
}
_DEVICE_CATEGORIES = {
    DeviceKind.KERNEL: "kernel",
    DeviceKind.COPY: "gpu_memcpy",
    DeviceKind.MEMSET: "gpu_memset",
}
_SYNCS = {
    WaitKind.STREAM: "Stream Sync",
    WaitKind.EVENT: "Event Sync",
    WaitKind.DEVICE: "Context Sync",
    WaitKind.STREAM_EVENT: "Stream Wait Event",
}
_CUDA = 1  # c10::DeviceType
_NOT_A_CALL = frozenset(_HOST_CATEGORIES)


def write_trace(
    timeline: Timeline,
    path: Path,
    metadata: Mapping[str, object] | None = None,
    head: Mapping[str, object] | None = None,
) -> None:
    """Writes a timeline as a Chrome trace. The file is compressed if its name ends in .gz.

    Calls and ops get new correlation ids, made from the rows of the host events.

    Args:
        timeline: The timeline to write.
        path: The file to write.
        metadata: Entries that are added under the key "unstall" of the trace; None for none.
        head: Entries that are added at the top level of the trace, before the events; None for
            none.

    Raises:
        UsageError: The file cannot be written.
    """
    text = Text(0)
    # Of frames with equal times, readers take the later as the inner one, so sleep events come after their callers.
    events = itertools.chain(
        _labels(timeline, text), _frames(timeline, text), _host(timeline, text), _device(timeline, text)
    )
    more = itertools.chain(_waits(timeline, text), _memory(timeline, text), _links(timeline))
    digests = timeline.line_digests()
    ours = {
        **_races(timeline),
        **_dependencies(timeline),
        **_uploads(timeline),
        **_clock_reads(timeline),
        **_faults(timeline),
        **({"digests": digests} if digests else {}),
        **(metadata or {}),
    }
    write(path, {**(head or {}), **_head(timeline.meta, ours)}, itertools.chain(events, more))


def _head(meta: Meta, metadata: Mapping[str, object]) -> dict[str, object]:
    head: dict[str, object] = {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": number, "name": name, **({"numSms": count} if count else {})}
            for number, (name, count) in enumerate(zip_longest(meta.devices, meta.multiprocessors[: len(meta.devices)]))
        ],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": meta.zero_ns,
        "with_stack": int(meta.has_stacks),
    }
    if meta.torch is not None:
        head["torch_version"] = meta.torch
    cuda = (meta.cuda or "").split(".")
    if len(cuda) >= 2 and cuda[0].isdecimal() and cuda[1].isdecimal():
        head["cuda_runtime_version"] = int(cuda[0]) * 1000 + int(cuda[1]) * 10
    if meta.rank is not None:
        groups = [{"pg_name": name, "ranks": list(ranks)} for name, ranks in meta.groups]
        head["distributedInfo"] = {"rank": meta.rank, "world_size": meta.world_size, "pg_config": groups}
    ours = {
        "recorder": meta.recorder,
        "lines": "exact" if meta.exact_lines else "def",
        "lines_by": "calls" if meta.frames_at_calls else None,
        "step_marks": meta.step_marks,
        "plain_step_ns": meta.plain_step_ns,
        "known_error": meta.known_error,
        "launches_block": meta.launches_block or None,
        "tf32_convolutions": meta.tf32_convolutions or None,
        "free_work": meta.free_work or None,
        "free_work_ns": meta.free_work_ns,
        "free_work_at": meta.free_work_at or None,
        "shortfall": meta.shortfall,
        "memory": None
        if meta.reserved_peak_bytes is None
        else {"after": {"reserved_bytes.all.peak": meta.reserved_peak_bytes}},
        "left_out": asdict(meta.left_out) if meta.left_out else None,
        "settings": {"step": meta.step, "user": list(meta.user)} if meta.step or meta.user else None,
        "notes": list(meta.notes),
    }
    return {**head, "unstall": {**{name: value for name, value in ours.items() if value is not None}, **metadata}}


def _races(timeline: Timeline) -> dict[str, object]:
    """Returns the races in the form that `read/races.py` reads; at most `MOST_RACES` of them, the first ones."""
    races, streams = timeline.races, timeline.streams
    if not len(races):
        return {}
    places = [*zip(*_lists(streams.device, streams.stream), strict=True), None]  # the last is the host: row -1
    columns = _lists(races.kind, races.earlier, races.later, races.earlier_stream, races.later_stream)
    rows = []
    for kind, earlier, later, first, second, size, count in zip(
        *columns, races.bytes.tolist(), races.count.tolist(), strict=True
    ):
        race = {"kind": RaceKind(kind).name.lower(), "bytes": size, "count": count}
        race |= {"earlier": earlier + 1 or -1, "later": later + 1 or -1}
        rows.append(race | {"earlier_stream": places[first], "later_stream": places[second]})
    return {"races": rows[:MOST_RACES]}


def _dependencies(timeline: Timeline) -> dict[str, object]:
    """Returns the dependencies between operators in the form that `read/dependencies.py` reads."""
    found = described(timeline.dependencies, np.arange(1, len(timeline.host) + 1))
    return {"dependencies": found} if found else {}


def _uploads(timeline: Timeline) -> dict[str, object]:
    """Returns what is known about the data of uploads in the form that `read/uploads.py` reads; of
    at most `MOST_UPLOADS` uploads, the first ones.
    """
    uploads = timeline.uploads

    def ids(rows: I32) -> list[int]:
        return _lists(np.where(rows >= 0, rows + 1, -1))[0]

    uses = map(ids, (uploads.used_before, uploads.first_use, uploads.last_use))
    columns = (ids(uploads.call), *_lists(uploads.content, uploads.previous), *uses, uploads.alone.tolist())
    rows = list(zip(*(column[:MOST_UPLOADS] for column in columns), strict=True))
    return {"uploads": rows} if rows else {}


def _clock_reads(timeline: Timeline) -> dict[str, object]:
    """Returns the program's reads of the clock in the form that `read/clock_reads.py` reads."""
    reads, lines, text = timeline.clock_reads, timeline.lines, timeline.text
    if not len(reads):
        return {}
    rows, place = np.unique(reads.line[:MOST_READS], return_inverse=True)
    places = [(text(int(lines.file[row])), int(lines.line[row]), text(int(lines.function[row]))) for row in rows]
    told = np.column_stack((reads.time[:MOST_READS] + timeline.meta.zero_ns, place))
    of_host = reads.of_host[:MOST_READS]
    by_clock = {"reads": told[of_host].tolist(), "device_reads": told[~of_host].tolist()}
    return {"clock_reads": {"places": places, **by_clock}}


def _faults(timeline: Timeline) -> dict[str, object]:
    """Returns the faults in the form that `read/faults.py` reads, and the calls that had allocated
    the memory in use if it was full.
    """
    faults = timeline.faults
    numbers = [*timeline.streams.stream.tolist(), -1]
    columns = (faults.kind, faults.device, faults.stream, faults.iteration, faults.ended, faults.details)
    calls = (faults.call, faults.replay, faults.noticed)
    rows: list[dict[str, object]] = []
    for (kind, device, stream, iteration, ended, details), (call, replay, noticed) in zip(
        zip(*_lists(*columns), strict=True), zip(*_lists(*calls), strict=True), strict=True
    ):
        fault: dict[str, object] = {"kind": FaultKind(kind).name.lower(), "device": device, "stream": numbers[stream]}
        fault |= {"call": call + 1 or -1, "replay": replay + 1 or -1, "noticed": noticed + 1 or -1}
        known = unpacked(timeline.text(details))
        if known is not None:
            rows.append(fault | {"iteration": iteration, "ended": ended, "details": msgspec.to_builtins(known)})
    if not rows:
        return {}
    held = [
        {"call": call + 1 or -1, "bytes": size, "count": count}
        for call, size, count in zip(*_lists(timeline.held.call, timeline.held.bytes, timeline.held.count), strict=True)
    ]
    return {"faults": rows[:MOST_FAULTS], **({"held": held[:MOST_HELD]} if held else {})}


def _labels(timeline: Timeline, text: Text) -> Iterator[str]:
    threads = timeline.threads
    for process, thread, name in zip(*_lists(threads.process, threads.thread, threads.name), strict=True):
        if name >= 0:
            number, lane = _number(timeline.strings[process]), _number(timeline.strings[thread])
            yield from thread_names({lane: timeline.strings[name]}, number, text)


def _number(digits: str) -> int:
    """Returns the process or thread id in a text; 0 if the text is no number."""
    return int(digits) if digits.lstrip("-").isdecimal() and len(digits) < 19 else 0


def _lanes(timeline: Timeline) -> list[tuple[int, int]]:
    """Returns `(process id, thread id)` for each row of the table `Threads`."""
    threads = timeline.threads
    return [
        (_number(timeline.strings[process]), _number(timeline.strings[thread]))
        for process, thread in zip(*_lists(threads.process, threads.thread), strict=True)
    ]


def _host(timeline: Timeline, text: Text) -> Iterator[str]:
    host, strings, lanes = timeline.host, timeline.strings, _lanes(timeline)
    outermost = _outermost(timeline)
    makers = np.zeros(len(host), np.bool_)
    makers[outermost[outermost >= 0]] = True
    written = _stacks_of_operators(timeline)
    columns = _lists(
        host.kind, host.thread, host.start, host.end, host.name, host.op, outermost, makers.astype(np.int8), host.shapes
    )
    for row, (kind, thread, start, end, name, op, forward, makes, shapes) in enumerate(zip(*columns, strict=True)):
        arguments = []
        if op >= 0:
            arguments.append(f'"External id":{op + 1}')
        if kind == HostKind.OP:
            if forward >= 0:
                arguments.append(f'"Sequence number":{forward},"Fwd thread id":1')
            elif makes:
                arguments.append(f'"Sequence number":{row},"Fwd thread id":0')
            if shapes >= 0:
                arguments.append(f'"Input Dims":{strings[shapes]}')
            if row in written:
                arguments.append(f'"Call stack":{text.name(written[row])}')
        elif kind not in _NOT_A_CALL:
            arguments.append(f'"correlation":{row + 1}')
        category = _HOST_CATEGORIES.get(kind) or _call_category(strings[name])
        process, lane = lanes[thread]
        yield text.span(category, strings[name], process, lane, start, end, ",".join(arguments))


def _outermost(timeline: Timeline) -> I32:
    """Returns, for each host event, the row of the forward operator whose gradient it computes; -1
    if there is none, or if the event around it has the same.
    """
    host = timeline.host
    outermost = host.forward.copy()
    outermost[(host.parent >= 0) & (host.forward[np.maximum(host.parent, 0)] == host.forward)] = -1
    return outermost


def _links(timeline: Timeline) -> Iterator[str]:
    """Yields the arrows from forward operators to operators of the backward pass, as Kineto writes them."""
    host, lanes, forward = timeline.host, _lanes(timeline), _outermost(timeline)
    rows = np.flatnonzero(forward >= 0)
    columns = (host.thread[forward[rows]], host.start[forward[rows]], host.thread[rows], host.start[rows])
    for number, (thread, start, to, arrives) in enumerate(zip(*_lists(*columns), strict=True)):
        for phase, row, time in (('"s"', thread, start), ('"f","bp":"e"', to, arrives)):
            process, lane = lanes[row]
            yield (
                f'{{"ph":{phase},"id":{number},"cat":"fwdbwd","name":"fwdbwd","pid":{process},"tid":{lane},'
                f'"ts":{micros(time)}}}'
            )


def _stacks_of_operators(timeline: Timeline) -> dict[int, str]:
    """Returns the call stacks, as texts, of operators that no Python frame encloses, by their rows
    in the table `Host`.

    An operator is left out if the event around it has the same stack. Returns {} if the timeline
    has no Python frames.
    """
    host = timeline.host
    framed = is_frame(timeline)
    if not framed.any():
        return {}
    around = np.where(host.parent >= 0, host.stack[host.parent], -1)
    own = (host.kind == HostKind.OP) & (nearest(host.parent, framed) < 0) & (host.stack >= 0) & (host.stack != around)
    stacks = StackTexts(timeline)
    return {
        row: ";".join(stacks[stack])
        for row, stack in zip(np.flatnonzero(own).tolist(), host.stack[own].tolist(), strict=True)
    }


def _call_category(name: str) -> str:
    return "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"


def _frames(timeline: Timeline, text: Text) -> Iterator[str]:
    """Yields the Python frames as events of the trace, made from the call stacks of the timeline.
    Yields nothing if the timeline has frames among its host events already.
    """
    if is_frame(timeline).any():
        return
    names, lanes = line_texts(timeline), _lanes(timeline)
    slices = slices_of(timeline)
    for thread, start, end, line in zip(*_lists(slices.thread, slices.start, slices.end, slices.line), strict=True):
        process, lane = lanes[thread]
        yield text.span("python_function", names[line], process, lane, start, end, "")


def _device(timeline: Timeline, text: Text) -> Iterator[str]:
    device, strings, numbers = timeline.device, timeline.strings, timeline.streams.stream.tolist()
    columns = _lists(device.kind, device.device, device.stream, device.start, device.end, device.name, device.launch)
    operators = timeline.host.op.tolist()
    described = _collectives(timeline)
    more = _lists(device.bytes, device.blocks, device.share)
    for number, (*row, size, blocks, used) in enumerate(zip(*columns, *more, strict=True)):
        kind, index, stream, start, end, name, launch = row
        arguments = f'"device":{index},"context":1,"stream":{numbers[stream]}'
        if launch >= 0:
            arguments += f',"correlation":{launch + 1}'
            if operators[launch] >= 0:
                arguments += f',"External id":{operators[launch] + 1}'
        if size >= 0:
            arguments += f',"bytes":{size}'
        if blocks >= 0:
            arguments += f',"grid":[{blocks},1,1]'
        if used >= 0:
            arguments += f',"device share":{used}'
        arguments += described.get(number, "")
        category = _DEVICE_CATEGORIES[DeviceKind(kind)]
        yield text.span(category, strings[name], index, numbers[stream], start, end, arguments)


def _collectives(timeline: Timeline) -> dict[int, str]:
    """Returns, for each collective, the arguments that Kineto writes, as JSON text, by the row of
    its kernel in the table `Device`. Data is counted in elements of the type Byte.
    """
    told, strings = timeline.collectives, timeline.strings
    texts = _lists(told.op, told.name, told.group, told.members)
    numbers = _lists(told.ranks, told.sent, told.received, told.sequence, told.source, told.target)
    found = {}
    for (op, name, group, members), (ranks, sent, received, sequence, source, target) in zip(
        zip(*texts, strict=True), zip(*numbers, strict=True), strict=True
    ):
        known = {
            "Collective name": strings[name],
            "dtype": "Byte" if sent >= 0 or received >= 0 else None,
            "In msg nelems": sent,
            "Out msg nelems": received,
            "Group size": ranks,
            "Process Group Name": strings[group] if group >= 0 else None,
            "Process Group Ranks": strings[members] if members >= 0 else None,
            "Seq": sequence,
            "Src Rank": source,
            "Dst Rank": target,
        }
        written = {key: value for key, value in known.items() if value is not None and value != -1}
        found[op] = f",{msgspec.json.encode(written).decode()[1:-1]}"
    return found


def _waits(timeline: Timeline, text: Text) -> Iterator[str]:
    """Yields an event of the trace for each wait, in the form of CUPTI's records. It says for which
    stream or event the wait waits.

    Waits for which that was inferred are left out: a reader of the trace infers it again.
    """
    waits, host, streams = timeline.waits, timeline.host, timeline.streams
    said = np.flatnonzero(~waits.inferred)
    device, number = [*streams.device.tolist(), 0], [*streams.stream.tolist(), -1]
    columns = (waits.host, waits.kind, waits.stream, waits.record, waits.on_stream)
    for row, kind, stream, record, on in zip(*_lists(*(column[said] for column in columns)), strict=True):
        name = _SYNCS[WaitKind(kind)]
        arguments = (
            f'"cuda_sync_kind":"{name}","stream":{number[stream]},"correlation":{row + 1},'
            f'"device":{device[stream if stream >= 0 else on]},"context":1'
        )
        if record >= 0 or on >= 0:
            arguments += f',"wait_on_stream":{number[on]},"wait_on_cuda_event_record_corr_id":{record + 1 or -1}'
        start, end = int(host.start[row]), int(host.end[row])
        yield text.span("cuda_sync", name, device[stream], number[stream], start, end, arguments)


def _memory(timeline: Timeline, text: Text) -> Iterator[str]:
    memory = timeline.memory
    process, thread = (_lanes(timeline) or [(0, 0)])[0]
    columns = _lists(memory.time, memory.device, memory.size, memory.allocated, memory.reserved, memory.address)
    for time, device, size, allocated, reserved, address in zip(*columns, strict=True):
        totals = f'"Total Allocated":{allocated},"Total Reserved":{reserved},"Addr":{address}'
        yield (
            f'{{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":{process},"tid":{thread},'
            f'"ts":{micros(time)},"args":{{"Device Type":{_CUDA if device >= 0 else 0},"Device Id":{device},'
            f'"Bytes":{size},{totals}}}}}'
        )


def _lists(*columns: np.ndarray) -> list[list[int]]:
    """Returns the columns as lists of Python numbers, over which loops are faster."""
    return [column.tolist() for column in columns]
