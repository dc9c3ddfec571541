"""Messages for which the receiver has room: their senders wait for nobody."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from fleets.jobs import job, train_ahead, train_pipeline

from unstall.fleets.job import Job, make_job
from unstall.fleets.join import join
from unstall.fleets.roles import roles_of
from unstall.fleets.summarise import summarise
from unstall.fleets.summary import decode
from unstall.fleets.waiting import waiting
from unstall.replay.engine import replay_job


def job_of(paths: list[Path]) -> Job:
    ranks = [decode(summarise(path)) for path in paths]
    joined = join(ranks)
    return make_job(ranks, joined, waiting(ranks, joined), roles_of(ranks, joined))


def test_a_send_that_ended_before_its_receiver_began_waits_for_nobody_in_the_replay(tmp_path: Path) -> None:
    made = job_of(job(train_ahead, tmp_path, ranks=2))
    sends = made.joined.rank == made.joined.of_members(made.ranks, "source")
    assert (made.waiting.alone == sends).all()
    assert made.waiting.waits[sends].max() == 0
    forward = made.joined.of_members(made.ranks, "source")[made.joined.first[:-1]] == 0
    assert set(made.waiting.blamed[forward].tolist()) <= {-1, 0}  # nobody waits for the receiver
    times, _ = replay_job(made.programs, made.meeting, made.offsets)
    ends = np.array([times[rank].op_end[op] for rank, op in zip(made.meeting.rank, made.meeting.op, strict=True)])
    off = ends - made.waiting.end
    assert np.ptp(off) < 1_000


def test_a_send_that_waited_for_its_receiver_waits_in_the_replay(tmp_path: Path) -> None:
    made = job_of(job(train_pipeline, tmp_path, ranks=4))
    assert not made.waiting.alone.any()
