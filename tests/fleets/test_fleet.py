"""Jobs of many ranks, explained as one: planted causes are found, and jitter is no cause."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from fleets.jobs import (
    Arrival,
    Program,
    RankTrace,
    job,
    train_ahead,
    train_ddp,
    train_fsdp,
    train_pipeline,
    train_tensor,
)

from unstall.answers.fleet import Fleet
from unstall.document.document import LaneSets
from unstall.errors import TraceError, UsageError
from unstall.fleets.executors import Processes
from unstall.fleets.fleet import explain_fleet
from unstall.fleets.result import FleetResult

jittered = partial(job, host_jitter=0.05, kernel_jitter=0.02)


def explained(folder: Path, *edits: str, **options: object) -> FleetResult:
    return explain_fleet(folder, edits=edits, cache=False, **options)  # type: ignore[arg-type]


def explained_job(train: Program, folder: Path, ranks: int = 2) -> FleetResult:
    job(train, folder, ranks=ranks)
    return explained(folder)


def explained_both(late: Program, even: Program, folder: Path, *edits: str, ranks: int = 8) -> tuple[FleetResult, ...]:
    """Explains two jobs with jitter, the first with these edits."""

    def one(train: Program, name: str, *edits: str) -> FleetResult:
        (folder / name).mkdir()
        jittered(train, folder / name, ranks=ranks)
        return explained(folder / name, *edits)

    return one(late, "late", *edits), one(even, "even")


@pytest.mark.parametrize(
    ("cause", "kind", "line"),
    [
        ("loader", "data loading", "train.py:11"),
        ("item", "wait", "model.py:40"),
        ("kernel", "more work", "hooks.py:7"),
        ("sleep", "sleep", "hooks.py:9"),
        ("sequence", "more work", "train.py:30"),
        ("clocks", "clocks", "train.py:30"),
    ],
)
def test_a_planted_cause_is_named_with_its_rank_and_line(tmp_path: Path, cause: str, kind: str, line: str) -> None:
    found, even = explained_both(partial(train_ddp, slow=3, cause=cause), train_ddp, tmp_path)
    assert found.verdict.bound_by == "straggler"
    assert [each.rank for each in found.stragglers] == [3]
    assert found.verdict.text.endswith("% less.")
    first = found.stragglers[0].causes[0]
    assert (first.kind, f"{first.where.file}:{first.where.line}") == (kind, line)
    # What the job takes without the cause is what the replay predicts.
    without = found.replayed_step_ns - found.stragglers[0].gain_ns
    assert without == pytest.approx(even.step_ns, rel=0.03)


@pytest.mark.parametrize("train", [train_pipeline, partial(train_tensor, steps=5), partial(train_fsdp, steps=5)])
def test_a_slow_rank_is_named_in_any_kind_of_parallelism(tmp_path: Path, train: Program) -> None:
    def slow(rank: RankTrace) -> Iterator[Arrival]:
        rank.kernel_factor = 1.4 if rank.rank == 5 else 1.0
        return train(rank)

    found, even = explained_both(slow, train, tmp_path)
    assert (found.verdict.bound_by, even.stragglers) == ("straggler", ())
    (straggler,) = found.stragglers
    assert (straggler.rank, straggler.causes[0].kind) == (5, "clocks")
    assert found.replayed_step_ns - straggler.gain_ns == pytest.approx(even.step_ns, rel=0.03)


@pytest.mark.parametrize(("ranks", "slow"), [(2, (1,)), (4, (1, 2))])
def test_if_half_of_the_ranks_are_late_the_other_half_shows_the_ideal(
    tmp_path: Path, ranks: int, slow: tuple[int, ...]
) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        return train_ddp(rank, slow=rank.rank if rank.rank in slow else None, cause="loader")

    found, even = explained_both(train, train_ddp, tmp_path, ranks=ranks)
    assert found.ideal_step_ns == pytest.approx(even.step_ns, rel=0.03)
    assert even.ideal_step_ns > 0.98 * even.step_ns  # the faster of several is no promise


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_the_smaller_of_two_causes_at_once_is_named_and_the_gains_add_up(tmp_path: Path, ranks: int) -> None:
    found, even = explained_both(partial(train_ddp, slow=2, cause="loader", waits=1), train_ddp, tmp_path, ranks=ranks)
    assert [(each.rank, each.causes[0].kind) for each in found.stragglers] == [(2, "data loading"), (1, "wait")]
    assert "So does rank 1 (wait at model.py:40: its peers do not do this)" in found.verdict.text
    gains = sum(each.gain_ns for each in found.stragglers)
    assert found.replayed_step_ns - gains == pytest.approx(even.step_ns, rel=0.03)
    assert even.stragglers == ()


def test_two_ranks_that_are_as_late_are_named_together(tmp_path: Path) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        return train_ddp(rank, slow=rank.rank if rank.rank in (2, 5) else None, cause="loader")

    jittered(train, tmp_path)
    found = explained(tmp_path)
    assert sorted(each.rank for each in found.stragglers) == [2, 5]
    assert found.verdict.text.startswith("Ranks 2, 5 make the others wait: ")
    assert "If all of them worked as their peers do, a step would take" in found.verdict.text


def test_of_many_ranks_that_are_as_late_the_latest_stands_for_all(tmp_path: Path) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        return train_ddp(rank, slow=rank.rank if rank.rank < 9 else None, cause="clocks", layers=2)

    jittered(train, tmp_path, ranks=20)
    found = explained(tmp_path)
    assert found.verdict.bound_by == "straggler"
    (latest,) = found.stragglers
    assert latest.rank < 9
    assert found.verdict.text.startswith(f"Rank {latest.rank} and 8 others (ranks ")
    assert found.replayed_step_ns - latest.gain_ns == pytest.approx(found.ideal_step_ns, rel=0.02)


def test_of_two_ranks_that_sleep_elsewhere_both_sleeps_are_no_part_of_the_ideal(tmp_path: Path) -> None:
    def train(rank: RankTrace, late_us: float) -> Iterator[Arrival]:
        for _ in range(6):
            with rank.step(), rank.frame("train.py", 10, "train"):
                line = 20 + rank.rank
                with rank.frame("train.py", line, "sleeps"), rank.named_frame("<built-in function sleep>"):
                    rank.work((line - 18) * late_us + 10)
                rank.kernels(10, 500)
                yield rank.collective("allreduce", range(rank.world), us=300)
                rank.wait_for_comm()

    found, even = explained_both(partial(train, late_us=9_000), partial(train, late_us=0), tmp_path, ranks=2)
    assert found.ideal_step_ns == pytest.approx(even.step_ns, rel=0.03)
    (straggler,) = found.stragglers
    assert (straggler.rank, straggler.causes[0].where.line) == (1, 21)


def test_what_was_waited_for_before_the_steps_is_no_part_of_the_ideal(tmp_path: Path) -> None:
    def train(rank: RankTrace, late_us: float) -> Iterator[Arrival]:
        """What is sent before the first step is needed in the third."""
        late = late_us if rank.rank == 1 else 0
        with rank.frame("train.py", 3, "main"):
            rank.work(10 + 4 * late)
            yield rank.collective("allreduce", range(rank.world), us=50, stream=30)
        for step in range(5):
            with rank.step(), rank.frame("train.py", 10, "train"):
                rank.work(10 + late)
                if step == 2:
                    rank.wait_for_comm(30)
                rank.kernels(4, 500)
                yield rank.collective("allreduce", range(rank.world), us=300)
                rank.wait_for_comm()

    found, even = explained_both(partial(train, late_us=20_000), partial(train, late_us=0), tmp_path, ranks=4)
    assert found.ideal_step_ns == pytest.approx(even.step_ns, rel=0.03)


def test_slow_clocks_and_more_work_are_told_apart_by_the_same_factor(tmp_path: Path) -> None:
    factors = []
    for cause in ("clocks", "sequence"):
        (folder := tmp_path / cause).mkdir()
        jittered(partial(train_ddp, slow=3, cause=cause), folder)
        factors.append(explained(folder).stragglers[0].causes[0].factor)
    assert factors == [pytest.approx(1.3, abs=0.02), pytest.approx(1.4, abs=0.02)]


def named_in(folder: Path, seeds: range, ranks: int = 8) -> list[int]:
    named = []
    for seed in seeds:
        (each := folder / str(seed)).mkdir()
        jittered(partial(train_ddp, steps=5, layers=3, kernels=6), each, ranks=ranks, seed=seed)
        found = explained(each)
        named += [straggler.rank for straggler in found.stragglers]
        assert found.verdict.bound_by == "own work"
        shutil.rmtree(each)
    return named


def test_jitter_alone_names_nobody(tmp_path: Path) -> None:
    assert named_in(tmp_path, range(3)) == []


def test_ranks_that_take_turns_in_being_late_are_told_together(tmp_path: Path) -> None:
    turns = {1: (1,), 4: (2,), 6: (3,), 7: (5,)}

    def train(rank: RankTrace) -> Iterator[Arrival]:
        return train_ddp(rank, slow=rank.rank, cause="sequence", late_steps=turns.get(rank.rank, ()))

    jittered(train, tmp_path)
    found = explained(tmp_path)
    assert found.verdict.bound_by == "uneven work"
    said = "Ranks 1, 4, 6-7 take turns: in 4 of the 5 steps that count, one of them makes the others wait (more work)"
    assert found.verdict.text.startswith(said)
    assert {each.rank: each.steps for each in found.stragglers} == {1: (2,), 4: (3,), 6: (4,), 7: (6,)}


def test_ranks_that_begin_the_only_step_apart_have_no_straggler_and_no_gain(tmp_path: Path) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        rank.work(8_000 if rank.rank == 2 else 500 * rank.rank)
        yield from train_ddp(rank, steps=1)

    jittered(train, tmp_path)
    found = explained(tmp_path)
    assert (found.verdict.bound_by, found.stragglers) == ("late start", ())
    assert "rank 2 last" in found.verdict.text
    assert "if every rank were like its peers" not in str(Fleet(found))
    assert found.replayed_step_ns - found.ideal_step_ns < 0.05 * found.step_ns


def test_a_replay_that_is_far_off_decides_nothing(tmp_path: Path) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        """A device that is busy with what nobody recorded, and is then given less than its host took to launch."""
        rank.occupy(30_000 if rank.rank else 25_000)
        with rank.frame("train.py", 10, "train"):
            for _ in range(3):
                rank.kernels(20, us=5)
                rank.work(5_000)
            yield rank.collective("allreduce", range(2), us=20)
            rank.item()

    jittered(train, tmp_path, ranks=2)
    found = explained(tmp_path)
    assert found.verdict.bound_by == "unknown"
    assert "cannot be told" in found.verdict.text


def drop_first_step(path: Path) -> None:
    """Makes a trace one whose recorder began a step later."""
    document = msgspec.json.decode(path.read_bytes())
    events = document["traceEvents"]
    first = next(event for event in events if event["name"] == "ProfilerStep#0")
    begin = float(first["ts"]) + float(first["dur"])
    document["traceEvents"] = [event for event in events if float(event["ts"]) >= begin]
    path.write_bytes(msgspec.json.encode(document))


def test_steps_are_paired_by_what_the_ranks_do_together(tmp_path: Path) -> None:
    paths = jittered(partial(train_ddp, slow=3, cause="kernel"), tmp_path)
    whole = explained(tmp_path)
    drop_first_step(paths[5])
    found = explained(tmp_path)
    assert found.steps == whole.steps - 1
    assert [each.rank for each in found.stragglers] == [3]
    assert found.stragglers[0].gain_ns == pytest.approx(whole.stragglers[0].gain_ns, rel=0.02)
    assert any("began 1 step later" in note for note in found.notes)


def test_steps_are_paired_although_most_operations_are_sends_and_receives(tmp_path: Path) -> None:
    paths = jittered(partial(train_pipeline, slow_stage=2, steps=6), tmp_path)
    whole = explained(tmp_path)
    drop_first_step(paths[2])
    found = explained(tmp_path)
    assert found.steps == whole.steps - 1
    assert found.replayed_step_ns == pytest.approx(whole.replayed_step_ns, rel=0.02)
    assert any("rank 2 began 1 step later" in note for note in found.notes)


@pytest.mark.slow
def test_jitter_alone_names_nobody_in_50_jobs(tmp_path: Path) -> None:
    assert named_in(tmp_path, range(50)) == []


def test_a_rank_that_is_late_in_one_step_is_named_with_the_step(tmp_path: Path) -> None:
    jittered(partial(train_ddp, slow=5, cause="loader", late_steps=(3,)), tmp_path)
    (straggler,) = explained(tmp_path).stragglers
    assert (straggler.rank, straggler.steps) == (5, (4,))
    assert straggler.causes[0].kind == "data loading"


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        ("clocks", "power, temperature and throttling (nvidia-smi -q -d PERFORMANCE,CLOCK)"),
        ("sequence", "balance the work over the ranks"),
        ("kernel", "do this on no rank alone"),
        ("item", ""),
    ],
)
def test_advice_is_about_what_makes_the_rank_differ(tmp_path: Path, cause: str, advice: str) -> None:
    """All ranks multiply in fp32, of which each rank's trace has a finding."""

    def train(rank: RankTrace) -> Iterator[Arrival]:
        kernels = rank.kernels
        rank.kernels = partial(kernels, name="sm80_xmma_gemm_f32f32_f32f32_f32_nn")  # type: ignore[method-assign]
        return train_ddp(rank, slow=3, cause=cause)

    job(train, tmp_path, ranks=4)
    (straggler,) = explained(tmp_path).stragglers
    first = straggler.causes[0]
    assert advice in (first.fix or "")
    assert all(each.rule != "fp32-products" for each in straggler.causes)
    assert bool(advice) == (first.rule is None)
    assert ("nvidia-smi" in str(straggler)) == (cause == "clocks")


def _bound_by_its_host(rank: RankTrace) -> Iterator[Arrival]:
    """Hosts launch a kernel each millisecond. Devices are half as busy, but for that of rank 2."""
    for _ in range(6):
        with rank.step(), rank.frame("train.py", 10, "train"):
            for _ in range(10):
                rank.work(1_000)
                rank.kernels(1, 1_070 if rank.rank == 2 else 500)
            yield rank.collective("allreduce", range(rank.world), us=30)
            rank.wait_for_comm()


def test_it_is_said_why_a_cause_and_a_wait_are_longer_than_what_mending_gains(tmp_path: Path) -> None:
    job(_bound_by_its_host, tmp_path, ranks=4)
    found = explained(tmp_path)
    (straggler,) = found.stragglers
    assert straggler.causes[0].late_ns > 5 * straggler.late_ns
    assert straggler.waited_for_ns > 3 * straggler.gain_ns
    said = " ".join(str(Fleet(found)).split())
    assert "why slow kernel (5.70 ms, mostly beside other work): " in said
    assert "gain less than the wait, as the others would idle or compute in part of it anyway" in said


def test_a_line_s_waits_are_no_work_and_device_and_host_are_not_added_up(tmp_path: Path) -> None:
    job(partial(train_ddp, slow=3, cause="sequence"), tmp_path, ranks=4)
    found = explained(tmp_path)
    lines = {line.where.line: line for line in found.lines if line.where.file == "train.py"}
    assert lines[33].wait_ns > 10_000_000 > 100 * lines[33].host_ns  # .item() waits for the device
    assert lines[30].most_rank == 3
    assert lines[30].most_ns == pytest.approx(1.4 * 40 * 250_000, rel=0.01)
    assert max(line.most_ns for line in found.lines) < found.step_ns
    assert "device host waits most" in " ".join(str(Fleet(found)).split())


def test_collectives_to_pick_have_labels_of_their_own(tmp_path: Path) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        """The same wait at two lines of a step, in collectives of different size."""
        for _ in range(4):
            with rank.step():
                for line, size in ((20, 1 << 20), (21, 1 << 20), (22, 1 << 22)):
                    with rank.frame("model.py", line, "forward"):
                        rank.kernels(4, 2_000 if rank.rank == 1 else 500)
                    yield rank.collective("allreduce", range(4), us=50, size=size)
                    rank.wait_for_comm()

    job(train, tmp_path, ranks=4)
    document = Fleet(explained(tmp_path)).document()
    (sets,) = (block.sets for block in document.blocks if isinstance(block, LaneSets))
    titles = [each.title for each in sets]
    assert len(set(titles)) == len(titles) == 3
    assert sorted(title.partition(" in ")[0].partition(" of step")[0] for title in titles) == [
        f"collective {number}" for number in (1, 2, 3)
    ]
    assert ["of 8.00 MiB in" in title for title in sorted(titles)] == [False, False, True]


def test_what_a_job_takes_if_it_goes_on_is_said_only_if_it_is_another_figure(tmp_path: Path) -> None:
    found = explained_job(partial(train_ddp, steps=3), tmp_path)
    near = msgspec.structs.replace(found, error_ns=0, replayed_step_ns=found.step_ns + 2)
    far = msgspec.structs.replace(near, replayed_step_ns=2 * found.step_ns)
    assert ["if the job goes on" in " ".join(str(Fleet(each)).split()) for each in (near, far)] == [False, True]


def test_the_only_rank_that_has_a_trace_is_named(tmp_path: Path) -> None:
    for path in job(partial(train_ddp, steps=3), tmp_path, ranks=3)[1:]:
        path.unlink()
    said = "No trace of ranks 1-2 could be used: rank 0 may wait for them, and spends up to"
    assert said in explained(tmp_path).verdict.text


def _late_at_times(rank: RankTrace, steps: int, every: int) -> Iterator[Arrival]:
    """Rank 3 has a kernel of 4 ms in some steps, also in the first, and one of 4 µs in the others."""
    for step in range(steps):
        with rank.step(), rank.frame("train.py", 10, "train"):
            rank.kernels(10, 1_000)
            if rank.rank == 3:
                with rank.frame("log.py", 7, "log"):
                    rank.kernels(1, 4 if step % every else 4_000)
            yield rank.collective("allreduce", range(rank.world), us=30)
            rank.wait_for_comm()


def test_late_steps_are_those_that_matter_and_late_is_their_mean(tmp_path: Path) -> None:
    job(partial(_late_at_times, steps=13, every=3), tmp_path, ranks=6)
    found = explained(tmp_path)
    (straggler,) = found.stragglers
    assert straggler.steps == (4, 7, 10, 13)
    assert straggler.late_ns == pytest.approx(4_000_000, rel=0.01)
    assert "makes the others wait in 4 of the 12 steps that count: its own work there takes 4.0" in found.verdict.text
    said = " ".join(str(Fleet(found)).split())
    assert "late in steps 4, 7, 10, 13 only, of 2 to 13;" in said
    assert "gain the mean of all steps" in said


def test_a_long_list_of_late_steps_says_how_many_more_there_are(tmp_path: Path) -> None:
    job(partial(_late_at_times, steps=40, every=3), tmp_path, ranks=5)
    said = " ".join(str(Fleet(explained(tmp_path))).split())
    assert "late in steps 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, 37 and 1 more only, of 2 to 40;" in said


def test_a_stage_with_twice_the_layers_makes_the_pipeline_wait(tmp_path: Path) -> None:
    found, even = explained_both(partial(train_pipeline, slow_stage=2), train_pipeline, tmp_path, "balance-stages")
    assert (found.verdict.bound_by, even.verdict.bound_by) == ("stages", "own work")
    assert "Stage 2 (ranks 4-5)" in found.verdict.text
    assert found.stages[2].causes[0].text == "it launches 2 times as many kernels as its peers"
    assert [stage.ranks for stage in found.stages] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    # Balanced, each of four stages has 5/4 of the layers that it has in the even job.
    assert found.edits[0].step_ns == pytest.approx(1.25 * even.step_ns, rel=0.03)
    assert found.stages[2].bubble_ns < found.stages[1].bubble_ns


@pytest.mark.parametrize(
    ("cause", "kind", "line"), [("sleep", "sleep", 40), ("item", "wait", 41), ("clocks", "clocks", 12)]
)
def test_what_no_other_stage_could_do_is_not_shared_among_the_stages(
    tmp_path: Path, cause: str, kind: str, line: int
) -> None:
    found, even = explained_both(
        partial(train_pipeline, slow_stage=2, cause=cause), train_pipeline, tmp_path, "balance-stages", ranks=4
    )
    assert found.verdict.text.startswith("Stage 2 (rank 2) makes the pipeline wait")
    first = found.stages[2].causes[0]
    assert (first.kind, first.where.line) == (kind, line)
    shared = 1.3 / 4 + 3 / 4 if cause == "clocks" else 1
    assert found.edits[0].step_ns == pytest.approx(shared * even.step_ns, rel=0.03)


def test_lines_of_one_function_that_only_some_stages_run_are_compared(tmp_path: Path) -> None:
    jittered(partial(train_pipeline, slow_stage=2, own_lines=True), tmp_path)
    (cause, *_) = explained(tmp_path).stages[2].causes
    assert (cause.where.line, cause.text) == (30, "it launches 2 times as many kernels as its peers")


def test_if_sends_have_unknown_peers_the_verdict_names_the_stage_for_which_the_others_seem_to_wait(
    tmp_path: Path,
) -> None:
    jobs = explained_both(
        partial(train_pipeline, slow_stage=2, peers_told=False), partial(train_pipeline, peers_told=False), tmp_path
    )
    found, even = jobs[0].verdict, jobs[1].verdict
    assert (found.bound_by, even.bound_by) == ("stages", "unknown")
    assert found.text.startswith("Stage 2 (ranks 4-5) seems to make the pipeline wait: it computes for ")
    assert "(more work at pipe.py:12: it launches 2 times as many kernels as its peers)" in found.text
    assert even.text.startswith("Which rank the others wait for cannot be told: the ranks spend ")


def test_sharded_training_overlaps_its_gathers(tmp_path: Path) -> None:
    jittered(train_fsdp, tmp_path)
    (data,) = explained(tmp_path).groups
    assert (data.use, data.told_by, data.ranks) == ("data", "name", 8)
    assert data.hidden_ns > data.exposed_ns


def test_a_ring_that_passes_sequences_on_has_no_stages(tmp_path: Path) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        rank.kernel_factor = 1.3 if rank.rank == 5 else 1.0
        after, before = (rank.rank + 1) % rank.world, (rank.rank - 1) % rank.world
        ways = [("send", (rank.rank, after)), ("recv", (before, rank.rank))]
        for _ in range(5):
            with rank.step(), rank.frame("ring.py", 5, "train"):
                for _ in range(4):
                    with rank.frame("ring.py", 8, "scores"):
                        rank.kernels(10, 300)
                    with rank.frame("ring.py", 9, "values"):
                        rank.kernels(10, 200)
                    for kind, peer in ways if rank.rank % 2 == 0 else ways[::-1]:
                        yield rank.collective(kind, range(rank.world), us=20, group="cp", peer=peer)
                        rank.wait_for_comm()
                yield rank.collective("allreduce", range(rank.world), us=200, group="dp")
                rank.wait_for_comm()
                rank.item()

    jittered(train, tmp_path)
    found = explained(tmp_path)
    assert found.stages == ()
    assert {each.stage for each in found.ranks} == {0}
    assert [(each.rank, each.causes[0].kind) for each in found.stragglers] == [(5, "clocks")]


def test_tensor_groups_are_told_by_their_pattern(tmp_path: Path) -> None:
    jittered(train_tensor, tmp_path)
    found = {group.use: group for group in explained(tmp_path).groups}
    assert {use: (group.groups, group.ranks, group.told_by) for use, group in found.items()} == {
        "tensor": (4, 2, "pattern"),
        "data": (2, 4, "pattern"),
        "expert": (1, 8, "pattern"),
    }
    assert found["expert"].imbalance == pytest.approx(2 / 1.125, abs=1e-4)
    assert found["expert"].imbalanced_rank == 6


def test_clocks_that_are_off_change_no_answer(tmp_path: Path) -> None:
    for name in (plain := tmp_path / "plain"), (off := tmp_path / "off"):
        name.mkdir()
    jittered(partial(train_ddp, slow=3, cause="kernel"), plain)
    jittered(
        partial(train_ddp, slow=3, cause="kernel"),
        off,
        clock=lambda rank: (130 * rank - 500, 5e-6 * rank - 20e-6),
        end_jitter_us=3,
    )
    one, other = explained(plain), explained(off)
    assert other.clocks.most_offset_ns == pytest.approx(910_000, rel=0.05)
    assert other.clocks.residual_ns is not None
    assert 500 < other.clocks.residual_ns < 10_000
    assert [each.rank for each in other.stragglers] == [3]
    assert other.stragglers[0].gain_ns == pytest.approx(one.stragglers[0].gain_ns, rel=0.01)


def test_messages_that_are_received_long_after_they_were_sent_move_no_clock(tmp_path: Path) -> None:
    found = explained_job(train_ahead, tmp_path)
    assert found.clocks.most_offset_ns < 50_000


def test_a_job_goes_on_at_the_pace_of_its_hosts_usual_step(tmp_path: Path) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        """Devices are busy in the first step, so hosts run ahead: for 9 ms a step, and once for 60 ms."""
        for step in range(8):
            with rank.step(), rank.frame("train.py", 10, "train"):
                rank.work(60_000 if step == 3 else 9_000)
                rank.kernels(4, 1_000 if step else 100_000)
                yield rank.collective("allreduce", range(rank.world), us=300)
                rank.wait_for_comm()
                with rank.optimizer():
                    rank.kernels(1, 100)

    found = explained_job(train, tmp_path)
    assert found.step_ns < 5_000_000
    assert found.error_ns < 0.01 * found.step_ns
    assert found.replayed_step_ns == pytest.approx(9_000_000, rel=0.05)
    assert any(note.startswith("the host of rank ") and "as slow as this host" in note for note in found.notes)
    assert "the replay of these steps is 0 % off; if the job goes on: 9" in " ".join(str(Fleet(found)).split())


def test_a_residual_that_is_too_large_is_said(tmp_path: Path) -> None:
    jittered(train_ddp, tmp_path, end_jitter_us=400)
    found = explained(tmp_path)
    assert any(note.startswith("the clocks agree to ") and "cannot be told" in note for note in found.notes)


@pytest.mark.parametrize("ranks", [2, 3])
def test_one_peer_is_named_and_more_are_peers(tmp_path: Path, ranks: int) -> None:
    jittered(partial(train_ddp, slow=1, cause="item"), tmp_path, ranks=ranks)
    found = explained(tmp_path)
    said = " ".join(str(Fleet(found)).split())
    assert ("longer than that of rank 0 (wait at model.py:40: its peer does not do this)" in said) == (ranks == 2)
    assert ("peers " in said.replace("like its peers", "")) == (ranks == 3)
    assert "if every rank were like its peers" in said  # one of them is late beyond chance


def test_what_steps_are_too_few_to_tell_is_not_told(tmp_path: Path) -> None:
    jittered(partial(train_ddp, slow=1, cause="item", steps=2), tmp_path, ranks=2)
    found = explained(tmp_path)
    assert found.stragglers == ()
    assert found.verdict.text.startswith("The own work of rank 1 takes ")
    assert "longer than that of rank 0, but 1 step of 2 ranks cannot tell whether that is chance" in found.verdict.text
    assert "What it gains if they work alike cannot be told" in found.verdict.text
    assert "instead of" not in found.verdict.text
    assert "if every rank were like its peers" not in str(Fleet(found))


def test_what_a_rank_does_between_some_steps_is_named(tmp_path: Path) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        """Rank 0 evaluates after every third step."""
        for step in range(9):
            with rank.step(), rank.frame("train.py", 10, "train"):
                rank.kernels(20, 150)
                yield rank.collective("allreduce", range(rank.world), us=300)
                rank.wait_for_comm()
                with rank.optimizer():
                    rank.kernels(2, 100)
            if not rank.rank and step % 3 == 2:
                with rank.frame("eval.py", 3, "evaluate"):
                    rank.kernels(40, 150)
                    rank.item()

    jittered(train, tmp_path, ranks=4)
    (late,) = explained(tmp_path).stragglers
    assert (late.rank, late.steps) == (0, (4, 7))
    assert {(each.where.file, each.where.line) for each in late.causes} == {("eval.py", 3)}


def test_of_two_replicas_of_a_pipeline_the_one_with_more_work_is_told(tmp_path: Path) -> None:
    """Over so few steps that this may be chance. All ranks of a pipeline are waited for."""

    def train(rank: RankTrace) -> Iterator[Arrival]:
        rank.kernel_factor = 1.2 if rank.rank == 2 else 1
        return train_pipeline(rank, stages=2, steps=3)

    jittered(train, tmp_path, ranks=4)
    found = explained(tmp_path)
    assert found.verdict.bound_by == "uneven work"
    assert found.verdict.text.startswith("The own work of rank 2 takes ")
    assert "2 steps of 2 ranks cannot tell whether that is chance" in found.verdict.text


def test_a_rank_that_costs_the_job_next_to_nothing_is_no_straggler(tmp_path: Path) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        rank.kernel_factor = 1.005 if rank.rank == 2 else 1.0
        yield from train_ddp(rank)

    job(train, tmp_path)
    assert explained(tmp_path).stragglers == ()


def test_the_recorder_s_overhead_is_told(tmp_path: Path) -> None:
    for path in jittered(train_ddp, tmp_path, ranks=2):
        document = msgspec.json.decode(path.read_bytes())
        document["unstall"] = {"version": 1, "plain_step_ns": 15_000_000}
        path.write_bytes(msgspec.json.encode(document))
    (note,) = (note for note in explained(tmp_path).notes if "without the recorder" in note)
    assert note.startswith("a step takes 15.0 ms without the recorder, as measured on 2 ranks.")


def test_a_note_that_each_rank_has_with_figures_of_its_own_is_told_once(tmp_path: Path) -> None:
    figures = ["968 ms, 81 % of 7 ops", "1.25 s, 9 % of 1,041 ops", "1.10 s, 81 % of 730 ops"]
    for path, said in zip(jittered(train_ddp, tmp_path, ranks=3), figures, strict=True):
        document = msgspec.json.decode(path.read_bytes())
        document["unstall"] = {"version": 1, "notes": [f"here it took {said} at train.py:33"]}
        path.write_bytes(msgspec.json.encode(document))
    told = [note for note in explained(tmp_path).notes if "here it took" in note]
    assert told == ["here it took 968 ms to 1.25 s, 9 % to 81 % of 7 ops to 1,041 ops at train.py:33"]


@pytest.mark.parametrize(
    "edits",
    [("no-stragglers", "rank-like:3:0"), ("rank-like:3:0", "no-stragglers"), ("rank-like:3:0", "rank-like:0:3")],
)
def test_edits_of_the_job_add_up_if_a_rank_has_the_program_of_another(tmp_path: Path, edits: tuple[str, ...]) -> None:
    # The rank that waits after each kernel has more ops in its reduced program than its peers.
    jittered(partial(train_ddp, slow=3, cause="item"), tmp_path)
    alone = explained(tmp_path, edits[0]).edits[0]
    first, second = explained(tmp_path, *edits).edits
    assert first == alone
    assert first.gain_ns > 0
    assert abs(second.gain_ns) < 0.1 * first.gain_ns  # the first has mended it


def test_edits_of_single_ranks_change_all_ranks_or_one(tmp_path: Path) -> None:
    jittered(partial(train_ddp, slow=3, cause="item"), tmp_path)
    every = explained(tmp_path, "remove-syncs:model.py:40").edits[0]
    one = explained(tmp_path, "3/remove-syncs:model.py:40").edits[0]
    like = explained(tmp_path, "rank-like:3:0").edits[0]
    assert 0 < one.gain_ns == pytest.approx(every.gain_ns, rel=0.01)
    assert like.gain_ns > one.gain_ns  # the line also works by itself


def test_an_edit_leaves_the_ranks_that_it_does_not_fit_as_they_are(tmp_path: Path) -> None:
    jittered(partial(train_ddp, slow=3, cause="kernel"), tmp_path, ranks=4)
    check = "leave-out:hooks.py:check"
    one = explained(tmp_path, f"3/{check}").edits[0]
    every = explained(tmp_path, check).edits[0]
    assert every.step_ns == one.step_ns
    assert [note for note in every.notes if "changes nothing of ranks 0-2: " in note]
    assert one.gain_ns > 0
    with pytest.raises(UsageError, match=r"nowhere\.py"):
        explained(tmp_path, "2/leave-out:nowhere.py:step")


def test_an_operation_that_comes_before_the_steps_changes_no_ideal(tmp_path: Path) -> None:
    def train(rank: RankTrace, before: bool) -> Iterator[Arrival]:
        if before:
            yield rank.collective("allreduce", range(rank.world), us=100)
            rank.wait_for_comm()
        yield from train_ddp(rank, layers=2, kernels=5)

    ideal = []
    for before in (True, False):
        folder = tmp_path / str(before)
        folder.mkdir()
        jittered(partial(train, before=before), folder, ranks=4)
        first, second = explained(folder, "no-stragglers", "no-stragglers").edits
        assert second.step_ns == pytest.approx(first.step_ns, rel=0.001)
        ideal.append(first.step_ns)
    assert ideal[0] == pytest.approx(ideal[1], rel=0.005)
    explained(tmp_path / "True", "rank-like:1:0", "no-stragglers")


def test_edits_of_several_ranks_add_up(tmp_path: Path) -> None:
    jittered(partial(train_ddp, slow=3, cause="item"), tmp_path, ranks=4)
    one, both = (
        explained(tmp_path, *edits).edits for edits in (("3/host-speed:2",), ("3/host-speed:2", "2/host-speed:2"))
    )
    assert both[0].step_ns == one[0].step_ns
    assert both[1].step_ns <= both[0].step_ns


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("rank-like:3", "write rank-like:R:S"),
        ("rank-like:1:99", "there is no trace of rank 99"),
        ("balance-stages", "the traces show no pipeline"),
        ("no-such-edit", "for a whole job also: no-stragglers, rank-like, balance-stages"),
        ("no-straggler", "did you mean no-stragglers?"),
        ("Rank-like:1:0", "did you mean rank-like?"),
        ("0/remove-sync", "did you mean remove-syncs?"),
        ("x/remove-syncs:train.py:4", "before the slash is the number of a rank, such as 3/remove-syncs, and not 'x'"),
        ("0/no-stragglers", "changes the whole job"),
    ],
)
def test_edits_that_cannot_be_made_are_refused(tmp_path: Path, edit: str, said: str) -> None:
    jittered(partial(train_ddp, steps=2, layers=1, kernels=1), tmp_path, ranks=2)
    with pytest.raises(UsageError, match=said):
        explained(tmp_path, edit)


def test_files_that_cannot_be_used_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    paths = jittered(partial(train_ddp, slow=3, cause="kernel"), tmp_path)
    cut = paths[1].read_bytes()
    paths[1].write_bytes(cut[: len(cut) // 50])
    shutil.copy(paths[2], tmp_path / "zz.json")
    document = msgspec.json.decode(paths[4].read_bytes())
    document["distributedInfo"]["world_size"] = 64
    paths[4].write_bytes(msgspec.json.encode(document))
    (tmp_path / "rank9.json").write_bytes(b'{"traceEvents": [' + b'{"ph":"X","args":' * 5000)
    paths[5].unlink()
    paths[6].write_bytes(gzip.compress(paths[6].read_bytes()))
    found = explained(tmp_path)
    assert [each.rank for each in found.ranks] == [0, 2, 3, 6, 7]
    assert found.missing == (1, 4, 5)
    why = {Path(each.path).name: each.why for each in found.not_read}
    assert set(why) == {"rank1.json", "zz.json", "rank4.json", "rank9.json"}
    assert why["zz.json"] == f"it is the same file as {paths[2]}"
    assert why["rank4.json"] == "it is from another job: its job has 64 ranks, and that of most files has 8"
    assert [each.rank for each in found.stragglers] == [3]


def test_a_rank_of_another_job_does_not_take_the_place_of_one(tmp_path: Path) -> None:
    train = partial(train_ddp, steps=3)
    paths = jittered(train, tmp_path, ranks=4)
    document = msgspec.json.decode(paths[1].read_bytes())
    document["distributedInfo"]["world_size"] = 128
    (tmp_path / "a_first_one.json").write_bytes(msgspec.json.encode(document))
    found = explained(tmp_path)
    assert [each.rank for each in found.ranks] == [0, 1, 2, 3]
    assert [Path(each.path).name for each in found.not_read] == ["a_first_one.json"]


def test_a_second_recording_beside_the_first_is_named_once(tmp_path: Path) -> None:
    for kernels, folder in enumerate(("iteration_5", "iteration_10"), 5):
        (tmp_path / folder).mkdir()
        jittered(partial(train_ddp, steps=3, kernels=kernels), tmp_path / folder, ranks=4)
    found = explained(tmp_path)
    assert [each.rank for each in found.ranks] == [0, 1, 2, 3]
    (other,) = found.not_read
    assert Path(other.path) == tmp_path / "iteration_10"
    assert other.why == f"its 4 files are of ranks that {tmp_path / 'iteration_5'} has, too: another recording?"


def test_a_file_that_is_cut_before_most_collectives_is_no_slow_rank(tmp_path: Path) -> None:
    paths = jittered(partial(train_ddp, steps=1, layers=12), tmp_path, ranks=4)
    paths[3].write_bytes(paths[3].read_bytes()[: int(0.4 * paths[3].stat().st_size)])
    found = explained(tmp_path)
    assert [each.rank for each in found.ranks] == [0, 1, 2]
    (cut,) = found.not_read
    assert "collectives, and most files have" in cut.why


def test_the_others_may_wait_for_a_rank_that_has_no_trace(tmp_path: Path) -> None:
    paths = job(partial(train_ddp, slow=2, cause="sleep"), tmp_path, ranks=4)
    paths[2].unlink()
    verdict = explained(tmp_path).verdict
    assert verdict.bound_by == "communication"
    assert verdict.text.startswith(
        "The ranks wait for transfers, or for rank 2: the others do not wait for one another"
    )
    assert "No trace of rank 2 could be used: the others may wait for it, and spend up to 29." in verdict.text


@pytest.mark.parametrize("told", [True, False])
def test_a_job_is_not_called_even_if_a_rank_has_no_trace(tmp_path: Path, told: bool) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        """One rank is late by 3 %, which is too little to hold up the job."""
        for _ in range(5):
            with rank.step(), rank.frame("train.py", 10, "train"):
                rank.kernels(10, 1_030 if rank.rank == 2 else 1_000)
                yield rank.collective("allreduce", range(4), us=30)
                rank.wait_for_comm()

    for path in job(train, tmp_path, ranks=4):
        if not told:  # which ranks a group has
            document = msgspec.json.decode(path.read_bytes())
            for event in document["traceEvents"]:
                for name in ("Process Group Ranks", "Process Group Name", "Group size"):
                    event.get("args", {}).pop(name, None)
            path.write_bytes(msgspec.json.encode(document))
    whole = explained(tmp_path).verdict
    (tmp_path / "rank2.json").unlink()
    found = explained(tmp_path)
    verdict = found.verdict
    assert any("their groups have: operations of such groups are" in note for note in found.notes) == (not told)
    assert "No trace" not in whole.text
    assert verdict.bound_by == "own work"
    assert verdict.text.startswith("None of the ranks that have a trace makes the others wait.")
    assert "Without transfers and waits, it would take 10.0 ms." in verdict.text
    said = "No trace of rank 2 could be used: the others may wait for it, and spend up to 3"
    assert said in verdict.text


def test_time_with_a_rank_that_has_no_trace_is_nobody_s_own_work(tmp_path: Path) -> None:
    def train(rank: RankTrace) -> Iterator[Arrival]:
        """Pairs, one of which is slow; the others wait for it only in the pair."""
        pair = range(rank.rank // 2 * 2, rank.rank // 2 * 2 + 2)
        for _ in range(5):
            with rank.step(), rank.frame("train.py", 10, "train"):
                rank.kernels(10, 900 if rank.rank == 3 else 300)
                yield rank.collective("allreduce", pair, us=30, group="pair")
                rank.wait_for_comm()
                yield rank.collective("allreduce", range(4), us=30, group="all")
                rank.wait_for_comm()

    job(train, tmp_path, ranks=4)[3].unlink()
    verdict = explained(tmp_path).verdict
    assert verdict.bound_by == "unknown"
    assert verdict.text.startswith("Which rank the others wait for cannot be told. No trace of rank 3 could be used: ")
    assert "spend up to 6.0" in verdict.text


def test_a_stage_whose_neighbours_have_no_trace_is_not_called_one_of_another_job(tmp_path: Path) -> None:
    paths = job(train_pipeline, tmp_path, ranks=4)
    paths[2].unlink()
    (left,) = explained(tmp_path).not_read
    assert left.path.endswith("rank3.json")
    assert left.why.startswith("it communicates with rank 2 only, of which no trace could be used: ")


def test_a_rank_that_is_not_in_its_groups_is_noted(tmp_path: Path) -> None:
    paths = job(train_ddp, tmp_path, ranks=4)
    document = msgspec.json.decode(paths[1].read_bytes())
    document["distributedInfo"]["rank"] = 99
    paths[1].write_bytes(msgspec.json.encode(document))
    assert any("rank 99 is in none of its process groups" in note for note in explained(tmp_path).notes)


@pytest.mark.parametrize("value", [10**30, -(10**30), "x"])
def test_a_rank_that_is_no_number_is_taken_from_the_name(tmp_path: Path, value: object) -> None:
    paths = job(train_ddp, tmp_path, ranks=4)
    document = msgspec.json.decode(paths[1].read_bytes())
    document["distributedInfo"]["rank"] = value
    paths[1].write_text(json.dumps(document))
    found = explained(tmp_path)
    assert [each.rank for each in found.ranks] == [0, 1, 2, 3]
    assert found.not_read == ()


def test_a_trace_of_another_time_is_left_out(tmp_path: Path) -> None:
    paths = jittered(train_ddp, tmp_path)
    document = msgspec.json.decode(paths[4].read_bytes())
    for event in document["traceEvents"]:
        if "Seq" in event.get("args", {}):
            event["args"]["Seq"] += 1000
    paths[4].write_bytes(msgspec.json.encode(document))
    found = explained(tmp_path)
    assert [Path(each.path).name for each in found.not_read] == ["rank4.json"]
    assert "from another time" in found.not_read[0].why
    assert len(found.ranks) == 7


def test_a_desync_is_noted_with_who_calls_what(tmp_path: Path) -> None:
    paths = jittered(train_ddp, tmp_path)
    document = msgspec.json.decode(paths[4].read_bytes())
    for event in document["traceEvents"]:
        if event.get("args", {}).get("Seq") == 7:
            event["args"]["Collective name"] = "_allgather_base"
    paths[4].write_bytes(msgspec.json.encode(document))
    (note,) = (note for note in explained(tmp_path).notes if note.startswith("desync"))
    assert "ranks 0-3, 5-7 all-reduce; rank 4 all-gather" in note


def test_nothing_that_can_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text("{}")
    with pytest.raises(TraceError, match="the file cannot be used"):
        explained(tmp_path)
    with pytest.raises(UsageError, match="there is no such file or folder"):
        explain_fleet(tmp_path / "no-*.json")
    jittered(partial(train_ddp, steps=2, layers=1, kernels=1), tmp_path, ranks=2)
    with pytest.raises(UsageError, match="no annotation is called 'never'"):
        explained(tmp_path, step="never")


def test_processes_give_the_same_answer(tmp_path: Path) -> None:
    jittered(partial(train_ddp, slow=1, cause="kernel", steps=3), tmp_path, ranks=4)
    seen: list[tuple[int, int]] = []
    other = explained(tmp_path, on=Processes(2), progress=lambda done, total: seen.append((done, total)))
    assert other == explained(tmp_path)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
