"""`%unstall_bench` measures a statement in a notebook's line or cell. The statement can use the notebook's names.

%unstall_bench torch.softmax(x, -1)
%unstall_bench --max-seconds 1 x.sum() --vs x @ one

%%unstall_bench --cache hot
y = x + 1
y.relu()
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unstall.errors import UnstallError, UsageError
from unstall.measuring.amounts import parse_bytes, parse_flops, parse_share
from unstall.notebook.ipython import Shell, usage_error

if TYPE_CHECKING:
    from unstall.measuring.shown import ShownComparison, ShownMeasurement

_OPTIONS: dict[str, Callable[[str], Any]] = {
    "--max-seconds": float,
    "--num-threads": int,
    "--cache": str,
    "--rel-ci": parse_share,
    "--bytes": parse_bytes,
    "--flops": parse_flops,
    "--method": str,
    "--by": str,
}
_OF_ONE = ("rel_ci", "bytes", "flops", "method")
_OPTION = re.compile(r"\s*(--[a-z-]+)(?:\s+|=)(\S+)\s*")


@dataclass(frozen=True)
class BenchMagic:
    """Implements the magic `%unstall_bench` for one IPython shell."""

    shell: Shell

    def unstall_bench(self, line: str, cell: str | None = None) -> ShownMeasurement | ShownComparison:
        """Measure a statement, or compare several. Shows times on the device and on the host, and verdicts.

        %unstall_bench [OPTION VALUE]... STATEMENT [--vs STATEMENT]...

        Options are --max-seconds, --num-threads and --cache (cold, hot, rotate). For one statement, there are also
        --rel-ci (1%), --bytes (64MiB), --flops (2e9) and --method. For a comparison, there is also --by (device, wall,
        throughput). In a cell, the cell's text is the statement, and the line has only options.
        """
        from unstall.measuring.benchmark import bench
        from unstall.measuring.compare import compare
        from unstall.measuring.statement import functions

        try:
            statements, options = _parsed(line, cell)
            if len(statements) == 1 and "by" in options:
                raise UsageError("--by is about a comparison: give --vs too")
            if len(statements) > 1 and (alone := [name for name in _OF_ONE if name in options]):
                raise UsageError(f"--{alone[0].replace('_', '-')} is about one statement: leave --vs out")
            texts = [self.shell.transform_cell(each).rstrip() for each in statements]
            made = functions(texts, "", dict(self.shell.user_ns))
            found: ShownMeasurement | ShownComparison
            if len(made) > 1:
                found = compare(made, **options)
            else:
                ((label, function),) = made.items()
                found = bench(function, label=label, **options)
            return found
        except UnstallError as error:
            raise usage_error("%unstall_bench", error) from None


def _parsed(line: str, cell: str | None) -> tuple[list[str], dict[str, Any]]:
    """Returns `(statements, options)`, which it reads from the text of the magic. `statements` are
    the statements to measure. `options` maps the name of each given option, such as "max_seconds",
    to its value.

    Raises:
        UsageError: An option is unknown, has no value or a wrong value, or a statement is missing.
    """
    options: dict[str, Any] = {}
    while match := _OPTION.match(line):
        name, value = match.groups()
        if name not in _OPTIONS:
            break
        try:
            options[name[2:].replace("-", "_")] = _OPTIONS[name](value)
        except ValueError:
            raise UsageError(f"{name} {value}: this is no number") from None
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from None
        line = line[match.end() :]
    if line.lstrip().startswith("--"):
        raise UsageError(f"{line.split()[0]}: there is no such option, or it has no value")
    if cell is not None:
        if line.strip():
            raise UsageError(f"{line.strip()!r}: of a cell the line has options alone")
        return [cell], options
    statements = [each.strip() for each in re.split(r"\s--vs\s", line)]
    if not all(statements):
        raise UsageError("a statement is missing: %unstall_bench x.sum() --vs x.mean()")
    return statements, options
