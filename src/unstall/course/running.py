"""Runs the script of an experiment in a process of its own, and checks the figures that it prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from unstall.course.figures import Figure, figures_in, filled, in_unit_of
from unstall.course.result import Checked, Experiment
from unstall.course.row import Check, Row
from unstall.course.table import SCRIPTS
from unstall.figures import signal_name

LIMIT_S = 600.0  # the slowest scripts take a minute; much longer if other programs load the machine
_LARGE = 1000  # from here on, ratios are written without an exponent


def run(script: Path, row: Row, gpu: str | None, limit_s: float = LIMIT_S) -> Experiment:
    """Runs the script of an experiment, and checks the figures that it prints.

    Args:
        script: The script.
        row: The experiment.
        gpu: The name of a virtual GPU; None for the GPU of this machine.
        limit_s: How many seconds the script may take.

    Returns:
        What the script printed, and which checks hold. If the script fails, the field `failure`
        says why, and figures that it did not print are not checked.
    """
    gpu = gpu if row.on_gpu else None
    output, said, failure = "", "", needed(row)
    if not failure:
        with tempfile.TemporaryDirectory(prefix="unstall-course-") as folder:
            copy = shutil.copy(script, folder)  # files below the package would count as code of unstall
            ran = _ran(_command(copy, row, gpu), limit_s, folder)
            output, said, failure = (text.replace(f"{folder}{os.sep}", "") for text in ran)  # it is gone afterwards
    figures = tuple(figures_in(output))
    by_label = {figure.label: figure for figure in figures}
    original = SCRIPTS / script.name
    return Experiment(
        name=script.stem,
        number=row.number,
        question=row.question,
        gpu=gpu,
        output=output,
        said=said,
        failure=failure,
        figures=figures,
        checks=tuple(checked(check, by_label, failure) for check in row.checks),
        learn=filled(row.learn, by_label),
        mine=filled(row.mine, by_label),
        change=row.change,
        source=row.source,
        changed=original.is_file() and original.read_bytes() != script.read_bytes(),
        host=row.host if gpu else "",
    )


def needed(row: Row) -> str:
    """Returns what to install before the script of an experiment can run, as a sentence; "" if nothing is missing."""
    missing = row.needs and find_spec(row.needs) is None
    return f"the script needs {row.needs}: pip install {row.needs}" if missing else ""


def _command(path: str, row: Row, gpu: str | None) -> list[str]:
    if gpu is None:
        return [sys.executable, path]
    return [sys.executable, "-m", "unstall.virtual", *options(row, gpu), path]


def options(row: Row, gpu: str) -> list[str]:
    """Returns the options of `unstall run` with which an experiment runs on the virtual GPU `gpu`."""
    return ["--gpu", gpu, "--numerics", row.numerics, "--host", row.host]


def checked(check: Check, figures: Mapping[str, Figure], failure: str = "") -> Checked:
    """Returns the outcome of one check of an experiment's figures. It is not checked if a figure is missing.

    Args:
        check: The check.
        figures: Maps the label of a figure to the figure.
        failure: Why the script failed, such as "the script ended with exit code 1: ..."; "" if it did not fail.
    """
    missing = [label for label in (check.of, check.over) if label is not None and label not in figures]
    if missing:
        why = failure.partition(": ")[0] or f'the script did not print "{missing[0]}"'
        return Checked(check.sentence, None, None, why)
    of, over = figures[check.of], figures[check.over] if check.over is not None else None
    value = of.value
    if over is not None:
        if not over.value:
            return Checked(check.sentence, False, None, f'"{over.label}" is 0')
        value /= over.value
    least, most = (check.at_least, check.at_most) if check.equal is None else (check.equal, check.equal)
    written = partial(in_unit_of, of.text) if over is None else _ratio
    reason = f'"{of.label}" is {of.text}' if over is None else f'"{of.label}" is {_ratio(value)} times "{over.label}"'
    return Checked(check.sentence, least <= value <= most, value, f"{reason} ({_limits(check, written)})")


def _ratio(value: float) -> str:
    return f"{value:,.0f}" if value >= _LARGE else f"{value:,.3g}"


def _limits(check: Check, written: Callable[[float], str]) -> str:
    """Returns the limits of a check in words. `written` returns a limit as text, with its unit."""
    if check.equal is not None:
        return f"exactly {written(check.equal)}"
    limits = {"at least": check.at_least, "at most": check.at_most}
    return " and ".join(f"{word} {written(limit)}" for word, limit in limits.items() if abs(limit) != float("inf"))


def _ran(words: Iterable[str], limit_s: float, folder: str) -> tuple[str, str, str]:
    """Runs a command in a folder. Returns (stdout, stderr, why it failed or "")."""
    paths = [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    try:
        done = subprocess.run(
            [*words],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
            env=environ,
            cwd=folder,
        )
    except subprocess.TimeoutExpired as late:
        return (
            _text(late.stdout),
            _text(late.stderr),
            f"the script was stopped after {limit_s:g} s: --timeout sets the limit",
        )
    if not done.returncode:
        return done.stdout, done.stderr, ""
    last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
    ended = f"with exit code {done.returncode}" if done.returncode > 0 else f"by {signal_name(-done.returncode)}"
    return done.stdout, done.stderr, f"the script ended {ended}{last and f': {last}'}"


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
