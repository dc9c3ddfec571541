"""How true replays, estimates and predictions are, on runs whose truth was measured: bounds that must hold.

`python -m benchmarks.whatif` prints the figures themselves.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from benchmarks import whatif, whatif_truth
from benchmarks.whatif_fit import Known
from benchmarks.whatif_truth import Pair, Recording
from unstall import load
from unstall.diagnose.analyse import analyse
from unstall.diagnose.run import Run
from unstall.replay.build import build
from unstall.replay.engine import replay
from unstall.what_if.model import as_a_rule
from unstall.what_if.subject import Subject

PAIR_ERROR = 0.10
ON_SEVERAL_STREAMS = ("model_parallel", "offload_ahead", "offload_hand_in_hand", "two_streams")

H200, PAIRS = whatif_truth.of_h200()
EXAMPLES, _ = whatif_truth.of_examples()


def run_of(recording: Recording) -> Run:
    return analyse(load(recording.path), step=recording.step)


@cache
def identity(recording: Recording) -> whatif.Row:
    return whatif.identity(recording, run_of(recording))


@pytest.mark.parametrize("recording", [*H200, *EXAMPLES], ids=lambda each: f"{each.group}-{each.name}")
def test_a_run_replayed_is_the_run_recorded(recording: Recording) -> None:
    facts = identity(recording)
    assert abs(facts["error"]) <= 0.01
    assert facts["op_start_p90"] <= 0.01


def test_half_of_the_replays_are_off_by_next_to_nothing() -> None:
    errors = [abs(identity(recording)["error"]) for recording in [*H200, *EXAMPLES]]
    assert np.median(errors) <= 0.001


def test_the_order_of_ops_across_streams_is_kept() -> None:
    for name in ON_SEVERAL_STREAMS:
        (recording,) = (each for each in EXAMPLES if each.name == name)
        run = run_of(recording)
        program = build(run.timeline, run.steps.start, run.steps.end)
        replayed = replay(program)
        recorded = run.timeline.device.start[program.ops.device]
        order = np.argsort(recorded, kind="stable")
        later = np.diff(replayed.op_start[order])
        apart = np.diff(recorded[order]) > 20_000  # ns: ops nearer than that may change places
        assert (later[apart] > 0).all(), recording.name


def test_the_step_without_the_recorder_is_estimated() -> None:
    errors = []
    for recording in H200:
        assert recording.plain_ms is not None
        run = run_of(recording)
        made = build(run.timeline, run.steps.start, run.steps.end)
        program, _ = as_a_rule(Subject(run.timeline, run.places, run.steps, made))
        known = Known(recording.name, recording.family, program, recording.plain_ms * 1e6)
        errors.append(abs(whatif.undistorted(recording, run, known)["error"]))
    assert len(errors) == 26
    assert np.median(errors) <= 0.15


@cache
def rows(pair: Pair) -> list[whatif.Row]:
    return [row for recording in pair.recordings for row in whatif.predictions(pair, recording, plain=True)]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.stalled}-{pair.mended}")
def test_the_mended_run_is_predicted_from_the_stalled_one(pair: Pair) -> None:
    """With stacks and without, edits made everywhere and where findings say."""
    found = rows(pair)
    assert {row["stacks"] for row in found} == {True, False}
    for row in found:
        assert abs(row["error"]) <= PAIR_ERROR, row
        assert row["gain_right"], row


def test_half_of_the_predictions_are_within_five_percent() -> None:
    errors = [abs(row["error"]) for pair in PAIRS for row in rows(pair)]
    assert np.median(errors) <= 0.05
