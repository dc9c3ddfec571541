"""How true replays, step times without the recorder, and predictions are.

Usage: python -m benchmarks.whatif [--pairs DIR] [--fit] [--out FILE] [--docs DIR]

Three questions are asked of the recordings in tests/data and examples/traces, and of those that `whatif_programs.py`
left in `--pairs`.

- Identity: replayed, does a run take as long as it did, and do its device ops start when they did?
- Without the recorder: how far is the step time that is estimated with the recorder's usual cost from the one that was
  measured without recording? `--fit` fits that cost anew, and again without each family of programs in turn.
- Predictions: how far is the step predicted from a stalled run from that of the mended program? With the step time
  without the recorder given and without it; edits made everywhere and where findings say.

`--out` writes all of it as JSON, as in results/whatif.json; `--docs` the page and the picture made of that.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import asdict

import unstall
from benchmarks import whatif_fit, whatif_page, whatif_picture, whatif_truth
from benchmarks.whatif_fit import Known
from benchmarks.whatif_truth import Pair, Recording
from unstall.diagnose.analyse import analyse
from unstall.diagnose.explain import explain
from unstall.diagnose.run import Run
from unstall.diagnose.verdict import bound_by
from unstall.replay import engine
from unstall.replay.build import build
from unstall.replay.steady import steady_step_ns
from unstall.what_if.edits import parse
from unstall.what_if.model import Model, as_a_rule, model
from unstall.what_if.predict import predict
from unstall.what_if.subject import Subject
from unstall.what_if.undistort import USUAL, USUAL_ERROR, undistort

GAIN_SHARE, STEP_SHARE = 0.2, 0.03
"""A predicted gain is right if its error is at most the larger of two limits: GAIN_SHARE of the
true gain, and STEP_SHARE of the step.
"""

Row = dict[str, Any]


def identity(recording: Recording, run: Run) -> Row:
    """Replays a run without a change, and returns its times beside those that were recorded."""
    steps = run.steps
    program = build(run.timeline, steps.start, steps.end)
    replayed = engine.replay(program)
    measured = (steps.window[1] - steps.window[0]) / len(steps)
    inside = slice(program.ops_of_steps[0].start, program.ops_of_steps[-1].stop)
    step = np.searchsorted(program.step_starts, program.launcher[inside], side="right") - 1
    recorded_start = run.timeline.device.start[program.ops.device[inside]] - steps.start[step]
    start = replayed.op_start[inside] - replayed.end[program.step_starts[step]]
    off = np.abs(start - recorded_start) / measured
    return {
        "group": recording.group,
        "trace": recording.name,
        "steps": len(steps),
        "ops": inside.stop - inside.start,
        "measured_ms": round(measured / 1e6, 4),
        "error": round(replayed.mean_step_ns(program) / measured - 1, 5),
        "op_start_p50": round(float(np.percentile(off, 50)), 5),
        "op_start_p90": round(float(np.percentile(off, 90)), 5),
    }


def undistorted(recording: Recording, run: Run, known: Known) -> Row:
    """Returns the step time without the recorder as it is estimated from a recording, beside the
    measured one.
    """
    estimate = steady_step_ns(undistort(known.program))
    return {
        "group": recording.group,
        "trace": recording.name,
        "family": recording.family,
        "recorded_bound_by": bound_by(run),
        "plain_ms": recording.plain_ms,
        "recorded_ms": round(run.wall / len(run.steps) / 1e6, 4),
        "estimated_ms": round(estimate / 1e6, 4),
        "error": round(estimate / known.plain_ns - 1, 4),
    }


def predictions(pair: Pair, recording: Recording, *, plain: bool) -> Iterator[Row]:
    """Predicts the step of a mended program from a recording of the stalled one. Yields a row for
    each way to make the edits: everywhere, and where findings say.

    Args:
        pair: The stalled and the mended program.
        recording: The recording of the stalled program.
        plain: Whether the plain step time of the stalled program is given.
    """
    plain_ns = round(pair.stalled_ms * 1e6) if plain else None
    report = explain(unstall.load(recording.path), step=recording.step, plain_step_ns=plain_ns)
    run = report.run
    assert run
    made = model(run.timeline, run.steps, run.places, plain_step_ns=plain_ns)
    at = f":-:-:{pair.operator}" if pair.operator else ""
    everywhere = [edit + at for edit in pair.edits]
    found: list[str] = []
    for name in pair.edits:
        found += dict.fromkeys(
            finding.edit
            for finding in report.findings
            if finding.edit and finding.edit.partition(":")[0] == name and pair.operator in (None, finding.where.op)
        )
    missing = sorted(set(pair.edits) - {edit.partition(":")[0] for edit in found})
    yield _prediction(pair, recording, made, everywhere, plain=plain, placed=False)
    if not missing:
        yield _prediction(pair, recording, made, found, plain=plain, placed=True)


def _prediction(
    pair: Pair, recording: Recording, made: Model, edits: Sequence[str], *, plain: bool, placed: bool
) -> Row:
    steps = predict(made, [parse(edit) for edit in edits])
    base, step = made.undistorted_step_ns / 1e6, steps[-1].step_ns / 1e6
    gain, true_gain = base - step, pair.stalled_ms - pair.mended_ms
    return {
        "group": pair.group,
        "stalled": pair.stalled,
        "mended": pair.mended,
        "label": pair.label,
        "trace": recording.name,
        "stacks": recording.stacks,
        "plain_given": plain,
        "placed": placed,
        "edits": list(edits),
        "stalled_ms": round(pair.stalled_ms, 4),
        "base_ms": round(base, 4),
        "predicted_ms": round(step, 4),
        "measured_ms": round(pair.mended_ms, 4),
        "judged_by": pair.judged_by,
        "single_ms": round(pair.single_ms, 4) if pair.single_ms else None,
        "error": round(step / pair.mended_ms - 1, 4),
        "ratio_error": round(step / base / (pair.mended_ms / pair.stalled_ms) - 1, 4),
        "gain_ms": round(gain, 4),
        "true_gain_ms": round(true_gain, 4),
        "gain_right": bool(abs(gain - true_gain) <= max(GAIN_SHARE * abs(true_gain), STEP_SHARE * pair.stalled_ms)),
        "notes": [note for prediction in steps for note in prediction.notes],
    }


def spread(errors: Iterable[float]) -> Row:
    """Returns how large errors are, whatever their signs: their median and other quantiles."""
    size = np.abs(np.fromiter(errors, np.float64))
    if not len(size):
        return {"count": 0}
    return {
        "count": len(size),
        "median": round(float(np.median(size)), 4),
        "p90": round(float(np.percentile(size, 90)), 4),
        "worst": round(float(size.max()), 4),
    }


def by(rows: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def check_identity(recordings: Sequence[Recording], runs: dict[Path, Run]) -> Row:
    rows = [identity(recording, runs[recording.path]) for recording in recordings]
    return {
        "groups": {
            group: {
                "step": spread(row["error"] for row in mine),
                "op_start_p50": spread(row["op_start_p50"] for row in mine),
                "op_start_p90": spread(row["op_start_p90"] for row in mine),
            }
            for (group,), mine in by(rows, "group").items()
        },
        "traces": rows,
    }


def check_undistortion(recordings: Sequence[Recording], runs: dict[Path, Run], *, refit: bool) -> Row:
    rows, known = [], []
    for recording in recordings:
        if recording.plain_ms is None or recording.name in whatif_truth.NOT_TIMED:
            continue
        run = runs[recording.path]
        made = build(run.timeline, run.steps.start, run.steps.end)
        program, _ = as_a_rule(Subject(run.timeline, run.places, run.steps, made))
        known.append(Known(recording.name, recording.family, program, recording.plain_ms * 1e6))
        rows.append(undistorted(recording, run, known[-1]))
    host_bound = {row["trace"] for row in rows if row["recorded_bound_by"] == "launch"}

    def both(errors: Sequence[tuple[str, float]]) -> Row:
        return {
            "all": spread(error for _, error in errors),
            "host_bound": spread(error for trace, error in errors if trace in host_bound),
        }

    result = {
        "usual_cost_ns": asdict(USUAL),
        "usual_error": USUAL_ERROR,
        **both([(row["trace"], row["error"]) for row in rows]),
        "not_timed": whatif_truth.NOT_TIMED,
        "traces": rows,
    }
    if refit:
        errors = whatif_fit.of(known)
        best = whatif_fit.fit(errors)
        names = [run.name for run in known]
        left_out = whatif_fit.cross_validated(known)
        result["fit"] = {
            "cost_ns": asdict(best),
            "loss": round(whatif_fit.loss(best, errors), 4),
            "loss_of_usual": round(whatif_fit.loss(USUAL, errors), 4),
            **both(list(zip(names, np.expm1(errors(best)).tolist(), strict=True))),
            "cross_validated": {
                **both([error for _, mine in left_out.values() for error in mine]),
                "families": {
                    family: {"cost_ns": asdict(cost), **both(mine)} for family, (cost, mine) in left_out.items()
                },
            },
        }
    return result


def check_predictions(pairs: Sequence[Pair]) -> Row:
    rows = [
        row
        for pair in pairs
        for recording in pair.recordings
        for plain in (True, False)
        for row in predictions(pair, recording, plain=plain)
    ]
    return {
        "left_out": whatif_truth.LEFT_OUT,
        "summary": [
            {
                **dict(zip(("plain_given", "placed", "stacks"), key, strict=True)),
                "step": spread(row["error"] for row in mine),
                "ratio": spread(row["ratio_error"] for row in mine),
                "within_10_percent": sum(abs(row["error"]) <= 0.1 for row in mine),
                "gains_right": sum(row["gain_right"] for row in mine),
            }
            for key, mine in sorted(by(rows, "plain_given", "placed", "stacks").items(), reverse=True)
        ],
        "pairs": rows,
    }


def lines(result: Row) -> Iterator[str]:
    """Yields the lines that the benchmark prints."""
    yield "Replayed beside measured: median and worst error of the mean step; of op starts, median and worst p50, p90"
    for group, facts in result["identity"]["groups"].items():
        step, p50, p90 = facts["step"], facts["op_start_p50"], facts["op_start_p90"]
        yield (
            f"  {group:<9} {step['count']:>3} runs   step {step['median']:.2%} {step['worst']:.2%}"
            f"   op starts p50 {p50['median']:.2%} {p50['worst']:.2%}   p90 {p90['median']:.2%} {p90['worst']:.2%}"
        )
    found = result["undistortion"]
    yield f"Without the recorder, by its usual cost {found['usual_cost_ns']}: error of the step"
    yield from (f"  {_spread(title, part)}" for title, part in _parts(found))
    if fit := found.get("fit"):
        yield f"Fitted anew: {fit['cost_ns']}, loss {fit['loss']} (that of the usual cost: {fit['loss_of_usual']})"
        yield from (f"  {_spread(title, part)}" for title, part in _parts(fit))
        yield "Fitted without the family that is asked about"
        yield from (f"  {_spread(title, part)}" for title, part in _parts(fit["cross_validated"]))
        for family, facts in fit["cross_validated"]["families"].items():
            yield f"    {_spread(family, facts['all'])}"
    yield "Predictions: error of the mended step"
    for row in result["predictions"]["pairs"]:
        if row["plain_given"] and not row["placed"]:
            yield f"  {_pair(row)}"
    for facts in result["predictions"]["summary"]:
        what = ", ".join(
            (
                "plain step given" if facts["plain_given"] else "plain step not given",
                "edits where findings say" if facts["placed"] else "edits everywhere",
                "stacks" if facts["stacks"] else "no stacks",
            )
        )
        count = facts["step"]["count"]
        yield f"  {_spread(what, facts['step'])}"
        yield f"    {facts['within_10_percent']} of {count} within 10 %, {facts['gains_right']} gains right"
        yield f"    {_spread('as a ratio to the step before', facts['ratio'])}"


def _parts(found: Row) -> Iterator[tuple[str, Row]]:
    yield "all runs", found["all"]
    yield "host-bound ones", found["host_bound"]


def _spread(title: str, part: Row) -> str:
    if not part["count"]:
        return f"{title}: none"
    return f"{title} ({part['count']}): median {part['median']:.1%}, p90 {part['p90']:.1%}, worst {part['worst']:.1%}"


def _pair(row: Row) -> str:
    return (
        f"{row['trace']:<36} {row['label']:<42} {row['stalled_ms']:>8.3f} -> {row['measured_ms']:>7.3f} ms, "
        f"predicted {row['predicted_ms']:>7.3f} {row['error']:+7.1%} by {row['judged_by']:<5} "
        f"gain {row['gain_ms']:>7.3f} of {row['true_gain_ms']:>7.3f} {'' if row['gain_right'] else 'WRONG'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=Path, metavar="DIR")
    parser.add_argument("--fit", action="store_true", help="fit the recorder's usual cost anew; takes minutes")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="write predictions.md and the picture of it")
    args = parser.parse_args()
    known = [whatif_truth.of_h200(), whatif_truth.of_examples()]
    if args.pairs:
        known.append(whatif_truth.of_programs(args.pairs))
    recordings = [each for more, _ in known for each in more]
    pairs = [each for _, more in known for each in more]
    runs = {r.path: analyse(unstall.load(r.path), step=r.step) for r in recordings}
    recordings = [r for r in recordings if runs[r.path].ops_inside.any()]
    result: Row = {
        "date": date.today().isoformat(),
        "unstall": unstall.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "engine": engine.name(),
        "identity": check_identity(recordings, runs),
        "undistortion": check_undistortion(recordings, runs, refit=args.fit),
        "predictions": check_predictions(pairs),
    }
    print("\n".join(lines(result)))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    if args.docs:
        args.docs.mkdir(exist_ok=True)
        (args.docs / "predictions.md").write_text(whatif_page.page(result))
        for dark in (False, True):
            picture = whatif_picture.draw(result["predictions"]["pairs"], dark=dark)
            (args.docs / f"predictions{'-dark' if dark else ''}.svg").write_text(picture)


if __name__ == "__main__":
    main()
