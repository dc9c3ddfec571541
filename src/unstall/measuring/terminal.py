"""A measurement as text for a terminal of 80 columns, and as an HTML fragment for a notebook."""

from __future__ import annotations

import io
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from unstall.figures import duration
from unstall.measuring.measurement import Measurement, Rate, Verdict
from unstall.measuring.statistics import Spread
from unstall.measuring.wording import capital, percent
from unstall.report.wording import plain

_console = partial(Console, highlight=False, markup=False, emoji=False)
_METHODS = {
    "cupti": "by the device's records (CUPTI)",
    "events": "by events in a full queue",
    "model": "of the virtual GPU",
    "host": "by the host's clock",
}
_MEANING = {
    "device": "on the device",
    "host": "to launch it",
    "wall": "until it is done",
    "throughput": "back to back",
}
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def render(measurement: Measurement, *, width: int = 80) -> str:
    """Plain text, without colours; what a name holds that is not printable is left out."""
    console = _console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table_of(measurement))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def notebook(measurement: Measurement) -> str:
    """For a notebook's output cell."""
    console = _console(file=io.StringIO(), width=100, record=True, color_system="standard")
    console.print(table_of(measurement))
    return console.export_html(inline_styles=True, code_format='<pre style="line-height:normal">{code}</pre>')


def table_of(measurement: Measurement) -> RenderableType:
    """Times, rates, verdicts and notes."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    for justify in ("left", "right", "left", "left", "left", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right")
    on_device = measurement.device is not None or measurement.throughput is not None
    for name in ("device", "host", "wall", "throughput") if on_device else ("wall",):
        spread: Spread | None = getattr(measurement, name)
        if spread is not None:
            table.add_row(Text(name, style="bold"), *_cells(spread), Text(_MEANING[name], style="dim"))
    blocks: list[RenderableType] = [_heading(measurement), table]
    rates = [_rate(rate) for rate in (measurement.bandwidth, measurement.rate) if rate is not None]
    blocks += [Text(line) for line in rates]
    blocks += [_verdict(verdict) for verdict in measurement.verdicts]
    said = any(verdict.text.startswith(measurement.stopped) for verdict in measurement.verdicts)
    stopped = [f"{capital(measurement.stopped)}."] if measurement.stopped and not said else []
    blocks += [Text(plain(line), style="dim") for line in stopped]
    blocks += [Text(plain(f"{capital(note)}."), style="dim") for note in measurement.notes]
    return Group(*blocks)


def _heading(measurement: Measurement) -> Text:
    device = measurement.method if measurement.device is not None else "host"
    about = f"{measurement.device_name} · {_METHODS[device]} · {measurement.cache} cache"
    return Text.assemble((plain(measurement.label), "bold"), "\n", (plain(about), "dim"))


def _cells(spread: Spread) -> tuple[Text, ...]:
    alike = spread.n > 1 and spread.low == spread.high  # as a model's
    sure = f"± {percent(spread.relative_ci)}" if (spread.is_bounded or alike) and spread.relative_ci < 10 else ""
    middle = f"{duration(round(spread.q1))} to {duration(round(spread.q3))}" if spread.n > 1 else ""
    return (
        Text(duration(round(spread.median))),
        Text(sure),
        Text(middle, style="dim"),
        Text(f"n = {spread.n:,}", style="dim"),
    )


def _verdict(verdict: Verdict) -> Text:
    place = f" ({verdict.place})" if verdict.place else ""
    style = "bold red" if verdict.serious else "bold yellow"
    return Text.assemble((verdict.kind, style), plain(f": {verdict.text}{place}."))


def _rate(rate: Rate) -> str:
    scale, prefix = next(((scale, prefix) for scale, prefix in _PREFIXES if rate.per_second >= scale), (1.0, ""))
    percent = (
        f": {rate.percent:.0f} % of {_figure(rate.ceiling / scale)} {prefix}{rate.unit}, {rate.of}"
        if rate.ceiling and rate.percent
        else ""
    )
    return f"{rate.per_second / scale:.3g} {prefix}{rate.unit}{percent}"


def _figure(value: float) -> str:
    """Three digits, and none of them as a power of ten: "35.4", "4,180"."""
    return f"{value:.3g}" if value < 999.5 else f"{float(f'{value:.3g}'):,.0f}"
