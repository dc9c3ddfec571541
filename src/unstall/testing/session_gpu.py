"""The virtual GPU of a whole test run."""

from __future__ import annotations

import sys

import pytest

from unstall.errors import UnstallError
from unstall.virtual.entry import VirtualGpu, virtual_gpu
from unstall.virtual.machine import current


def begin(name: str, config: pytest.Config) -> VirtualGpu:
    """Starts the virtual GPU called `name` for a whole test run.

    Raises:
        pytest.UsageError: There is no such GPU, or torch is already imported.
    """
    if "torch" in sys.modules and current() is None:
        raise pytest.UsageError(
            f"--unstall-gpu {name}: {_importer(config)} imported torch before the virtual GPU was there. Begin it "
            f"before pytest does: python -m unstall.virtual --gpu {name} -m pytest ..."
        )
    try:
        return virtual_gpu(name).start()
    except UnstallError as error:
        raise pytest.UsageError(f"--unstall-gpu {name}: {error}") from None


def _importer(config: pytest.Config) -> str:
    """Returns words for what imported torch: the name of a plugin that has it, or else words for an
    unknown importer.
    """
    for name, plugin in config.pluginmanager.list_name_plugin():
        if "torch" in getattr(plugin, "__dict__", ()):
            return f"the plugin {name}"
    return "a plugin, or the program that called pytest.main()"
