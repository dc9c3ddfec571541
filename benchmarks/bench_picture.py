"""What the usual timers say of sixteen functions, beside how long the device was at work for them: a picture, a table.

    python -m benchmarks.bench_picture        # docs/timers.svg, docs/timers-dark.svg; prints the table

Drawn from `benchmarks/results/bench_truth_h200.json`. Each reading is over the time by CUPTI's records with warm
caches, `do_bench`'s with flushed ones; of two streams CUPTI's is the span.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.svg import DARK, LETTER, LIGHT, Theme, line, opening, text

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = Path(__file__).parent / "results" / "bench_truth_h200.json"
TIMERS = {
    "around": "events around one call",
    "naive": "perf_counter",
    "Timer": "torch.utils.benchmark.Timer",
    "do_bench": "do_bench",
    "cudagraph": "do_bench_cudagraph",
    "events": "unstall, by events",
}
SHAPES = {"naive": "square", "do_bench": "diamond", "cudagraph": "square", "events": "diamond"}
WIDTH, LEFT, RIGHT, TOP, BOTTOM, ROW = 1000, 190, 30, 132, 56, 36
LOW, HIGH = 1 / 1000, 60
TICKS = {1 / 1000: "1/1000", 1 / 100: "1/100", 1 / 10: "1/10", 1: "1", 10: "10", 50: "50"}


def main() -> None:
    results: dict[str, Any] = json.loads(RESULTS.read_text())
    rows = readings(results["results"])
    for name, theme in (("timers.svg", LIGHT), ("timers-dark.svg", DARK)):
        (DOCS / name).write_text("\n".join(draw(rows, theme)) + "\n")
    print(table(results["results"]))


def readings(results: dict[str, dict[str, dict[str, Any]]]) -> list[tuple[str, float, dict[str, float]]]:
    """Returns `(name, device_ns, readings)` for each function, the shortest first. `device_ns` is
    its time on the device, and `readings` is what each timer says, over that time.
    """
    rows = []
    for name, found in results.items():
        if name == "next to nothing":
            continue
        true = {cache: found[cache]["span" if name == "two streams" else "cupti"] for cache in ("cold", "hot")}
        told = {}
        for timer in TIMERS:
            cache = "cold" if timer == "do_bench" else "hot"
            if found[cache].get(timer) is not None:
                told[timer] = found[cache][timer] / true[cache]
        rows.append((name, true["hot"], told))
    return sorted(rows, key=lambda row: row[1])


def draw(rows: list[tuple[str, float, dict[str, float]]], theme: Theme) -> Iterator[str]:
    height = TOP + ROW * len(rows) + BOTTOM
    bottom = TOP + ROW * len(rows)
    title = "What timers say of sixteen functions, over the device's time"
    about = (
        "1 is how long the device was at work, by CUPTI's records on an H200; left of it is too short, right too long."
    )

    def x(ratio: float) -> float:
        inside = min(max(ratio, LOW), HIGH)
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(inside / LOW) / math.log(HIGH / LOW)

    yield from opening(WIDTH, height, title, about, theme)
    yield text(24, 34, title, theme.ink, size=20, weight=600)
    yield text(24, 58, about, theme.faint_ink, size=13)
    at = 30.0
    for number, (timer, label) in enumerate(TIMERS.items()):
        yield mark(at, 90, timer, theme.hues[number], theme)
        yield text(at + 11, 94, label, theme.ink)
        at += 32 + LETTER * len(label)
    for ratio, label in TICKS.items():
        yield line(x(ratio), TOP - 8, x(ratio), bottom, theme.diagonal if ratio == 1 else theme.grid)
        yield text(x(ratio), bottom + 20, label, theme.faint_ink, anchor="middle")
    yield text(
        (LEFT + WIDTH - RIGHT) / 2, height - 14, "reading / time on the device", theme.ink, anchor="middle", size=13
    )
    for number, (name, true_ns, told) in enumerate(rows):
        y = TOP + ROW * (number + 0.5)
        yield line(LEFT, y, WIDTH - RIGHT, y, theme.grid)
        yield text(LEFT - 12, y + 4, name, theme.ink, anchor="end")
        yield text(24, y + 4, _time(true_ns), theme.faint_ink)
        for place, timer in enumerate(TIMERS):
            if timer in told:
                about = f"{name}: {TIMERS[timer]} says {told[timer]:.3g} of the device's {_time(true_ns)}"
                apart = 4 * (place - (len(TIMERS) - 1) / 2)
                yield mark(x(told[timer]), y + apart, timer, theme.hues[place], theme, about)
    yield "</svg>"


def mark(x: float, y: float, timer: str, colour: str, theme: Theme, about: str = "") -> str:
    title = f"<title>{escape(about)}</title>" if about else ""
    style = f'fill="{colour}" stroke="{theme.paper}" stroke-width="1.2"'
    shape = SHAPES.get(timer)
    if shape == "square":
        return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" {style}>{title}</rect>'
    if shape == "diamond":
        return f'<path d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z" {style}>{title}</path>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {style}>{title}</circle>'


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Returns what each timer says of each function as a Markdown table, in µs, with `timeit`
    too.
    """
    columns = ("cupti", "events", "naive", "timeit", "Timer", "around", "do_bench", "cudagraph")
    heads = ("device, by CUPTI", "unstall by events", "`perf_counter`", "`timeit`", "`Timer`", "events around")
    more = ("`do_bench`, cold", "`do_bench_cudagraph`")
    lines = [f"| hot caches, µs | {' | '.join((*heads, *more))} |", "|---|" + "--:|" * len(columns)]
    for name, true_ns, _ in readings(results):
        found = results[name]
        told = {**found["hot"], "do_bench": found["cold"].get("do_bench"), "cupti": true_ns}
        cells = [_microseconds(told.get(column)) for column in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _microseconds(ns: float | None) -> str:
    return "" if ns is None else f"{ns / 1e3:,.0f}" if ns >= 1e6 else f"{ns / 1e3:.3g}"


def _time(ns: float) -> str:
    return f"{ns / 1e6:.3g} ms" if ns >= 1e6 else f"{ns / 1e3:.3g} µs"


if __name__ == "__main__":
    main()
