"""What `%load_ext unstall` offers in a notebook."""

from __future__ import annotations

from unstall.bench.notebook import BenchMagic
from unstall.ipython import Shell
from unstall.record.notebook import CellMagic


def load_ipython_extension(shell: Shell) -> None:
    """Offer `%%unstall` and `%unstall_bench`; IPython calls it by this name."""
    shell.register_magic_function(CellMagic(shell).unstall, magic_kind="cell")
    shell.register_magic_function(BenchMagic(shell).unstall_bench, magic_kind="line_cell")
