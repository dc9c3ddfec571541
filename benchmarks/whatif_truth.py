"""Recorded runs whose step times without the recorder are known, and pairs of them: a stalled
program, and the same program mended.

A pair says by which edits one run becomes the other. Its step times were measured without a
profiler, by turns if possible.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_H200 = _ROOT / "tests" / "data" / "h200"
_EXAMPLES = _ROOT / "examples" / "traces"

HOST_BOUND_BUSY = 0.5
"""If the device is busy for a smaller share of a mended step, the step follows the speed of the
host, which differs from run to run by up to a third. The truth for such a step is the ratio that
was measured by turns. For all others, it is a time.
"""


@dataclass(frozen=True)
class Recording:
    """A recorded run: one trace file.

    Attributes:
        group: The group of recordings to which it belongs.
        name: The name of the run.
        family: The program of which the run is a variant.
        path: The path of the trace file.
        stacks: Whether it has Python stacks.
        step: The name of the annotation around a step; None if the profiler marked the steps.
        plain_ms: The step time without the recorder, in ms; None if it is unknown.
    """

    group: str
    name: str
    family: str
    path: Path
    stacks: bool
    step: str | None = None
    plain_ms: float | None = None


@dataclass(frozen=True)
class Pair:
    """A stalled program, and the same program mended.

    Attributes:
        group: The group of recordings to which it belongs.
        stalled: The name of the stalled program.
        mended: The name of the mended program.
        edits: The edits by which the first becomes the second.
        recordings: The recordings of the stalled program.
        stalled_ms: The step time of the stalled program.
        mended_ms: The step time of the mended program. If `judged_by` is "ratio", it is
            `stalled_ms` times the ratio that was measured by turns.
        judged_by: "time" or "ratio": what is compared with the prediction.
        single_ms: The step time of the mended program as it was timed once, if the truth is a
            ratio.
        operator: The only operator at which the program was mended; None if it was mended
            everywhere.
    """

    group: str
    stalled: str
    mended: str
    edits: tuple[str, ...]
    recordings: tuple[Recording, ...]
    stalled_ms: float
    mended_ms: float
    judged_by: str
    single_ms: float | None = None
    operator: str | None = None

    @property
    def label(self) -> str:
        """The edits as text."""
        return " + ".join(self.edits)


# What each family's variants are to one another.
_TRAINING = (
    ("pageable_item_nan", "pinned_item_nan", ("pin-copies",)),
    ("pageable_item_nan", "pinned", ("pin-copies", "remove-syncs")),
    ("pageable_item_nan", "pageable", ("remove-syncs",)),
)
_DECODING = (
    ("item", "noitem", ("remove-syncs",)),
    ("item", "graph_item", ("graph",)),
    ("item", "graph_noitem", ("remove-syncs", "graph")),
    ("noitem", "graph_noitem", ("graph",)),
    ("graph_item", "graph_noitem", ("remove-syncs",)),
)
_OFFLOAD = (("sequential", "prefetch", ("overlap-copies",)),)
_EAGER = (("eager", "graph", ("graph",)),)
_LANGUAGE = (
    ("pageable_item", "pinned_item", ("pin-copies",)),
    ("pageable_item", "pinned", ("pin-copies", "remove-syncs")),
    ("pageable_item", "pageable", ("remove-syncs",)),
)
_FAMILIES = {
    "resnet50": _TRAINING,
    "vit": _TRAINING,
    "resnet18": _TRAINING,
    "gpt2_decode": _DECODING,
    "opt_decode": _DECODING,
    "gpt2_small_decode": _DECODING,
    "gpt_neo": _LANGUAGE,
    "conv_offload": _OFFLOAD,
    "elementwise": _EAGER,
    "offload": _OFFLOAD,
    "course_slow": _EAGER,
    "simulation": _EAGER,
}

# Programs of examples/ whose mending edits model.
_MENDED_BY: dict[str, tuple[str, ...]] = {
    "decode": ("remove-syncs", "graph"),  # the library's wait cannot be captured: the graph does without it
    "decode_item": ("remove-syncs",),
    "downloads": ("read-later",),
    "empty_cache": ("keep-cache",),
    "growing": ("keep-cache",),
    "offload_in_order": ("overlap-copies",),
    "train_item": ("remove-syncs",),
    "train_three_waits": ("pin-copies", "remove-syncs", "overlap-copies"),  # mended, the batch is there already
    "unmarked_inference": ("read-later",),
    "uploads": ("pin-copies",),
    "wait_behind": ("remove-syncs",),
}
_ONLY_AT = {"decode_item": "aten::item"}

# Programs of examples/ that are variants of one another.
_SAME = {
    **dict.fromkeys(("decode", "decode_item", "decode_graph"), "tiny_llama"),
    **dict.fromkeys(("train_item", "train_three_waits", "unmarked_training", "unmarked_inference"), "classifier"),
    **dict.fromkeys(("named_steps", "one_shot"), "classifier"),
    **dict.fromkeys(("offload_in_order", "offload_ahead", "offload_hand_in_hand"), "eight_layers"),
    **dict.fromkeys(("waits", "wait_behind"), "products"),
    **dict.fromkeys(("loader_in_process", "loader_starved"), "loader"),
}

LEFT_OUT = {
    "all_reduce_after": "no edit lets collectives run beside the backward pass",
    "loader_in_process": "`load-ahead` says how much could be gained at most",
    "loader_starved": "`load-ahead` says how much could be gained at most",
    "offload_hand_in_hand": "no edit removes a needless wait of one stream for another",
    "pin_each_step": "the fix removes the copy into pinned memory too",
    "python_bound": "the fix removes the Python between the launches",
    "tiny_kernels": "the fix is one fused kernel in place of many",
}
"""By program of examples/ that has a mended step, why no edit models the mending."""

NOT_TIMED = {
    "first_steps": "recorded from the process's start, timed once it had settled",
    "one_shot": "its one step was recorded, many were timed",
}
"""By program of examples/, why the steps that were recorded are not those that were timed."""


def of_h200() -> tuple[list[Recording], list[Pair]]:
    """Returns the recordings and pairs in tests/data. The stalled and the mended programs were
    timed by turns.
    """
    once: dict[str, Any] = json.loads((_H200 / "plain_steps.json").read_text())
    turns: dict[str, Any] = json.loads((_H200 / "step_ratios.json").read_text())
    plain = {name: facts["step_ms"] for name, facts in once.items()}
    recordings = list(_variants("h200", (_H200 / "traces", _EXAMPLES), plain))
    pairs = []
    for stalled, mended, edits in _pairs_of(plain):
        measured = turns.get(f"{stalled} -> {mended}")
        truth: dict[str, Any] = {"mended_ms": plain[mended], "judged_by": "time"}
        if measured:
            host_bound = once[mended]["gpu_busy_ms"] < HOST_BOUND_BUSY * plain[mended]
            by_ratio = measured["ratio"] * plain[stalled]
            truth = {
                "mended_ms": by_ratio if host_bound else measured["step_ms"],
                "judged_by": "ratio" if host_bound else "time",
                "single_ms": plain[mended],
            }
        pairs.append(_pair("h200", stalled, mended, edits, recordings, stalled_ms=plain[stalled], **truth))
    return recordings, pairs


def of_programs(folder: Path) -> tuple[list[Recording], list[Pair]]:
    """Returns the recordings and pairs that `whatif_programs.py` wrote to a folder."""
    truth = json.loads((folder / "truth.json").read_text())["variants"]
    plain = {name: facts["step_ms"] for name, facts in truth.items()}
    recordings = list(_variants("pairs", (folder,), plain))
    return recordings, [
        _pair(
            "pairs",
            stalled,
            mended,
            edits,
            recordings,
            stalled_ms=plain[stalled],
            mended_ms=plain[mended],
            judged_by="time",
        )
        for stalled, mended, edits in _pairs_of(plain)
    ]


def of_examples() -> tuple[list[Recording], list[Pair]]:
    """Returns the recordings and pairs of the programs in examples/."""
    expected: dict[str, Any] = json.loads((_EXAMPLES / "expected.json").read_text())
    recordings, pairs = [], []
    for name, program in expected.items():
        mine = [
            Recording(
                "examples",
                trace["trace"].removesuffix(".json.gz"),
                _SAME.get(name, name),
                _EXAMPLES / trace["trace"],
                trace["stacks"],
                program["step_name"],
                program["plain_step_ms"],
            )
            for trace in program["traces"]
            if trace["device"]
        ]
        recordings += mine
        if name not in _MENDED_BY:
            assert "mended_step_ms" not in program or name in LEFT_OUT, name
            continue
        pairs.append(
            Pair(
                "examples",
                name,
                "mended",
                _MENDED_BY[name],
                tuple(mine),
                program["plain_step_ms"],
                program["mended_step_ms"],
                "time",
                operator=_ONLY_AT.get(name),
            )
        )
    return recordings, pairs


def _variants(group: str, folders: Sequence[Path], plain: dict[str, float]) -> Iterator[Recording]:
    """Yields the recordings of each program, with Python stacks and without. `plain` has the plain
    step time of each program, in ms.
    """
    for name, step_ms in plain.items():
        (family,) = (family for family in _FAMILIES if name.startswith(f"{family}_"))
        for stacks in (True, False):
            recorded = name if stacks else f"{name}.nostack"
            (path,) = (path for folder in folders if (path := folder / f"{recorded}.json.gz").exists())
            yield Recording(group, recorded, family, path, stacks=stacks, step=None, plain_ms=step_ms)


def _pairs_of(plain: dict[str, float]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for family, pairs in _FAMILIES.items():
        for stalled, mended, edits in pairs:
            if f"{family}_{stalled}" in plain and f"{family}_{mended}" in plain:
                yield f"{family}_{stalled}", f"{family}_{mended}", edits


def _pair(
    group: str, stalled: str, mended: str, edits: tuple[str, ...], recordings: list[Recording], **truth: Any
) -> Pair:
    mine = tuple(r for r in recordings if r.group == group and r.name.removesuffix(".nostack") == stalled)
    return Pair(group, stalled, mended, edits, mine, **truth)
