"""Recorded jobs with jitter: the same work, at other times, in which the ranks still wait for one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

import unstall
from unstall.diagnose.analyse import analyse
from unstall.fleets.join import join
from unstall.fleets.summarise import summarise
from unstall.fleets.summary import decode
from unstall.fleets.waiting import waiting
from unstall.locate.kinds import is_communication
from unstall.replay.build import build
from unstall.replay.engine import replay_job
from unstall.replay.meeting import Meeting
from unstall.replay.program import Program, Replayed
from unstall.replay.retime import retime
from unstall.timeline.columns import I64, Bool, Timeline


@dataclass
class Recorded:
    """The traces of a job, as the programs of its ranks and what these do together."""

    timelines: list[Timeline]
    programs: list[Program]
    comm: list[Bool]
    meeting: Meeting
    offsets: list[int]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Recorded:
        ranks = [decode(summarise(path)) for path in paths]
        timelines = [unstall.load(path) for path in paths]
        programs = []
        for timeline in timelines:
            steps = analyse(timeline).steps
            programs.append(build(timeline, steps.start, steps.end))
        pairs = list(zip(timelines, programs, strict=True))
        comm = [is_communication(timeline)[program.ops.device] for timeline, program in pairs]
        joined = join(ranks)
        waits = waiting(ranks, joined)
        ops = joined.of_rows([np.flatnonzero(each) for each in comm])
        meeting = Meeting(
            joined.first, joined.rank, ops, (~waits.alone).astype(np.int8), waits.transfer, np.arange(len(ops))
        )
        return cls(timelines, programs, comm, meeting, list(waits.zero))

    def jittered(
        self, folder: Path, seed: int, host: float = 0.05, kernels: float = 0.02, by_step: bool = False
    ) -> None:
        """Writes the job with times multiplied by factors, whose spreads are given.

        Each call and each kernel has a factor of its own. With `by_step`, all of a step have the same two instead.
        """
        random = np.random.default_rng(seed)
        changed = []
        for program, comm in zip(self.programs, self.comm, strict=True):
            do, ops = program.instructions, program.ops
            rows = program.step_of(np.arange(len(do)))

            def times(column: I64, step: I64, spread: float) -> I64:
                factors = random.normal(1, spread, max(len(column), int(step.max(initial=0)) + 2))
                factor = factors[step] if by_step else factors[: len(column)]
                return np.rint(column * np.maximum(factor, 0.2)).astype(np.int64)

            duration = np.where(comm, ops.duration, times(ops.duration, rows[program.launcher], kernels))
            made = replace(do, work=times(do.work, rows, host), call=times(do.call, rows, host))
            changed.append(replace(program, instructions=made, ops=replace(ops, duration=duration)))
        (was, _), (now, _) = (replay_job(each, self.meeting, self.offsets) for each in (self.programs, changed))
        folder.mkdir()
        for rank, timeline in enumerate(self.timelines):
            old, new = (self._own(each[rank], rank) for each in (was, now))
            none = np.zeros(len(changed[rank].ops), dtype=np.bool_)
            moved = retime(timeline, changed[rank], new, (old.start, old.end), none, np.zeros(0, dtype=np.int32))
            moved.save(folder / f"rank{rank}.timeline")

    def _own(self, times: Replayed, rank: int) -> Replayed:
        return Replayed(*(getattr(times, name) - self.offsets[rank] for name in Replayed.__struct_fields__))
