"""Defines what `%load_ext unstall` does in a notebook: it adds two magics."""

from __future__ import annotations

from unstall.notebook.bench_magic import BenchMagic
from unstall.notebook.cell_magic import CellMagic, without_body
from unstall.notebook.ipython import Shell


def load_ipython_extension(shell: Shell) -> None:
    """Adds the magics `%%unstall` and `%unstall_bench` to `shell`. `%load_ext unstall` calls this
    function, which IPython finds by its name.
    """
    shell.register_magic_function(CellMagic(shell).unstall, magic_kind="line_cell")
    if without_body not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(without_body)
    shell.register_magic_function(BenchMagic(shell).unstall_bench, magic_kind="line_cell")
