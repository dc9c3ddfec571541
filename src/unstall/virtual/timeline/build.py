"""Makes a `Timeline` of what was simulated on the virtual GPU, with the same columns as that of a recorded run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from unstall.figures import counted
from unstall.line_digests import LineDigests
from unstall.lines.places import Shortened
from unstall.locate.kinds import SLEEP
from unstall.read.clock_reads import with_lines
from unstall.replay.program import WHOLE
from unstall.timeline.columns import (
    I32,
    I64,
    ClockReads,
    Device,
    DeviceKind,
    Held,
    Host,
    Lines,
    Memory,
    Meta,
    Streams,
    Threads,
    Timeline,
    Uploads,
)
from unstall.timeline.grouping import groups
from unstall.virtual.clock_log import ClockLog
from unstall.virtual.costs.occupancy import MOST
from unstall.virtual.faults.fault_log import Ended, FaultLog
from unstall.virtual.faults.held import held_table
from unstall.virtual.faults.table import faults_table
from unstall.virtual.options import MachineOptions
from unstall.virtual.races import Race, RaceLog, dependencies_table, races_table
from unstall.virtual.simulation.history import Done, Happened, History, Ran
from unstall.virtual.simulation.log_reader import LogReader
from unstall.virtual.simulation.simulate import Simulation
from unstall.virtual.timeline.collectives import collectives_table, groups_of
from unstall.virtual.timeline.host_rows import CALLS, HostRows, host_rows, shapes_of
from unstall.virtual.timeline.notes import division_notes, host_note, values_notes
from unstall.virtual.timeline.stack_rows import stack_of_records, stack_rows
from unstall.virtual.timeline.streams_note import streams_note
from unstall.virtual.timeline.uploads import calls_of, uploads_table

_NAMED = 10
"""How many operators with guessed times a note names."""
_PROCESS = "1"  # not the real id, so that the same log gives the same timeline


class _Texts:
    """Texts, each with its index. Called with a text, it returns the index."""

    def __init__(self) -> None:
        self.all: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.all.setdefault(text, len(self.all))


def timeline_of(
    log: LogReader, options: MachineOptions, races: Sequence[Race], clock: ClockLog, folder: str, digest: LineDigests
) -> Timeline:
    """Returns the timeline of all that was simulated so far. The log has a record for each thing
    that the program asked of its GPU.

    Args:
        log: The log and its simulation. Its lock is held.
        options: The settings of the virtual machine.
        races: The races in the log that the timeline is to have.
        clock: The program's reads of the clock.
        folder: The folder in which the program was started. Paths in the timeline are relative to
            it.
        digest: Works out the digests of source lines.
    """
    simulation, stacks, faults = log.simulation, log.stacks, log.faults
    history, text = simulation.history, _Texts()
    happened, done = history.happened.whole(), history.done.whole()
    threads = _threads(happened, text)
    calls = {call: text(name) for call, (_, name) in CALLS.items()}
    name_of = np.array([*(text(name) for name in log.names), -1], np.int32)
    lines, tree, whole, calling = stack_rows(stacks, folder, digest, text)
    lines, clock_reads = _clock_reads(clock, lines, folder, text)
    rows = host_rows(happened, done, stack_of_records(happened, whole, calling), name_of, calls, text(SLEEP))
    # Sorted, so that the result does not depend on how the log was split into batches.
    ran_names = simulation.actions.recipes.names
    for name in sorted(ran_names):
        text(name)
    op_names = np.array([*(text(name) for name in ran_names), -1], np.int32)
    places = simulation.streams.places
    order = sorted(range(len(places)), key=places.__getitem__)
    stream_of = np.full(len(places) + 1, -1, np.int32)
    stream_of[order] = np.arange(len(places))
    number_of = {places[row]: number for number, row in enumerate(order)}

    def stream_row(device: int, number: int) -> int:
        return number_of.get((device, number), -1)

    called = np.array([(text(name), text(shapes)) for name, shapes in simulation.actions.shapes], np.int32).reshape(
        -1, 2
    )
    host = replace(rows.host, shapes=shapes_of(happened, rows, called[:, 0], called[:, 1]))
    ran = history.ran.whole()
    device_order = np.argsort(ran.start, kind="stable")
    collectives = simulation.actions.collectives
    rank, ranks = simulation.actions.job or (None, None)
    waits = replace(rows.waits, stream=stream_of[rows.waits.stream], on_stream=stream_of[rows.waits.on_stream])
    return Timeline(
        host=host,
        device=_device(ran, device_order, rows.row_of, op_names, simulation, rows.host, stream_of),
        waits=waits,
        threads=threads,
        streams=Streams(
            np.array([places[row][0] for row in order], np.int32), np.array([places[row][1] for row in order], np.int64)
        ),
        lines=lines,
        stacks=tree,
        memory=_memory(history, done),
        races=races_table(races, rows.by_record, stream_row),
        dependencies=dependencies_table(log.races.dependencies(), rows.by_record, rows.host.op),
        uploads=_uploads(log.races, len(happened.code), done, history.ran.whole(), rows.row_of),
        clock_reads=clock_reads,
        faults=faults_table(faults, happened, rows.by_record, stream_row, text),
        held=_held(history, faults, rows),
        collectives=collectives_table(collectives, happened, done, ran, device_order, text),
        meta=Meta(
            path="",
            reader="virtual",
            devices=(simulation.costs.device.name,) * simulation.devices,
            torch=str(sys.modules["torch"].__version__) if "torch" in sys.modules else None,
            has_stacks=bool((rows.host.stack >= 0).any()),
            rank=rank,
            world_size=ranks,
            groups=groups_of(collectives),
            recorder="virtual",
            exact_lines=True,
            frames_at_calls=True,
            launches_block=simulation.actions.launches_block,
            tf32_convolutions=simulation.actions.tf32_convolutions,
            free_work=options.host == "modelled",
            known_error=simulation.costs.known_error,
            notes=_notes(
                simulation,
                host_note(simulation, stacks, options.host, folder),
                *values_notes(options.numerics, log.unknown_reads(), log.assumed_finds(), folder),
                *division_notes(log.divisions_by_zero(), folder),
                streams_note(simulation, stacks, folder),
            ),
        ),
        strings=tuple(text.all),
    )


def _threads(happened: Happened, text: _Texts) -> Threads:
    """Returns the table `Threads`, with one row for each thread of the log, by number."""
    count = int(happened.thread.max(initial=0)) + 1
    process = text(_PROCESS)
    threads = np.array([text(str(number + 1)) for number in range(count)], np.int32)
    runs_python = np.zeros(count, np.bool_)
    runs_python[happened.thread[happened.stack >= 0]] = True
    runs_python[0] = True
    labels = ["MainThread" if not number else "" if runs_python[number] else "autograd" for number in range(count)]
    order = np.argsort(threads, kind="stable")
    assert (order == np.arange(count)).all()
    return Threads(np.full(count, process, np.int32), threads, np.array([text(label) for label in labels], np.int32))


def _device(
    ran: Ran, order: I64, row_of: I32, names: I32, simulation: Simulation, host: Host, stream_of: I32
) -> Device:
    devices = np.array([device for device, _ in simulation.streams.places], np.int32)
    stream, launch = ran.stream[order], row_of[ran.instruction[order]]
    ops, op = simulation.actions.recipes.ops, ran.op[order]
    return Device(
        kind=ops.kind[op],
        device=devices[stream],
        stream=stream_of[stream],
        start=ran.start[order],
        end=ran.end[order],
        name=names[ops.name[op]],
        correlation=host.correlation[launch] if len(launch) else np.zeros(0, np.int64),
        launch=launch,
        bytes=ops.bytes[op],
        direction=ops.direction[op],
        host_memory=ops.memory[op],
        blocks=_thread_blocks(ops.blocks[op], simulation),
        share=np.where((ops.kind[op] == DeviceKind.KERNEL) & (ops.share[op] > 0), ops.used[op], -1).astype(np.int32),
    )


def _thread_blocks(per_multiprocessor: I32, simulation: Simulation) -> I32:
    """Returns the number of thread blocks of each op, or -1 if the costs do not tell it. `per_multiprocessor` has the
    blocks per multiprocessor, in thousandths, or 0.
    """
    known = (per_multiprocessor > 0) & (per_multiprocessor < MOST)
    blocks = per_multiprocessor.astype(np.int64) * simulation.costs.device.multiprocessors // WHOLE
    return np.where(known, np.maximum(blocks, 1), -1).astype(np.int32)


def _uploads(race_log: RaceLog, records: int, done: Done, ran: Ran, row_of: I32) -> Uploads:
    if not race_log.kept:
        return Uploads.none()
    calls = calls_of(records, done.record[ran.instruction], row_of[ran.instruction])
    return uploads_table(*race_log.whole(), calls)


def _clock_reads(clock: ClockLog, lines: Lines, folder: str, text: Callable[[str], int]) -> tuple[Lines, ClockReads]:
    """Returns `(lines, reads)`: the table `Lines` with the lines that read the clock added to it,
    and the table `ClockReads`.
    """
    reads, short = clock.whole(), Shortened(folder)
    places = [(text(short[code.co_filename]), line, text(code.co_qualname)) for code, line in clock.places]
    if not len(reads):
        return lines, ClockReads.none()
    lines, rows = with_lines(lines, places)
    line = rows[reads["place"]].astype(np.int32)
    return lines, ClockReads(reads["ns"].astype(np.int64), line, reads["of_host"].astype(np.bool_))


def _memory(history: History, done: Done) -> Memory:
    """Returns the table `Memory`: the allocations and frees, sorted by time. The time of each is
    that of its record in the log.
    """
    changes = history.allocated.whole()
    first = np.searchsorted(done.record, changes.record, side="right") - 1
    time = done.end[first] if len(changes.record) else np.zeros(0, np.int64)
    allocated = np.zeros(len(changes.size), np.int64)
    for _, mine in groups(changes.device):
        allocated[mine] = np.cumsum(changes.size[mine])
    order = np.argsort(time, kind="stable")
    return Memory(
        time=time[order],
        device=changes.device[order],
        size=changes.size[order],
        allocated=allocated[order],
        reserved=changes.reserved[order],
        address=changes.address[order],
    )


def _held(history: History, faults: FaultLog, rows: HostRows) -> Held:
    """Returns the table `Held`: if a refused request for memory ended the program, the calls that
    had allocated what was in use then. Otherwise, the table is empty.
    """
    refusal = faults.refusal
    if faults.ended != Ended.MEMORY or refusal is None:
        return Held.none()
    return held_table(history.allocated.whole(), rows.by_record, rows.host, refusal.device, refusal.record)


def _notes(simulation: Simulation, *first: str | None) -> tuple[str, ...]:
    notes = [note for note in first if note]
    if simulation.requests.refused:
        failed = counted(simulation.requests.refused, "request")
        notes.append(f"{failed} for memory failed. The program got the error at a later call than it would on a GPU")
    guessed = sorted(simulation.actions.guessed)
    if guessed:
        more = f" and {len(guessed) - _NAMED} more" if len(guessed) > _NAMED else ""
        names = ", ".join(name.removeprefix("aten::") for name in guessed[:_NAMED])
        notes.append(
            f"the times of these operators are guesses, from the bytes of their tensors alone, since the model of the "
            f"GPU lacks them: {names}{more}"
        )
    return tuple(notes)
