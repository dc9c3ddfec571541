"""Replaces the names of temporary files by the names of notebook cells, such as `In[3]`.

IPython compiles each cell of a notebook as if it were a temporary file.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from unstall.timeline.columns import Timeline

_OF_THE_MAGIC = "get_ipython().run_cell_magic('unstall',"
_NOBODYS = "<%%unstall>"  # a file in angle brackets is not the user's: what runs there is the magic alone


def with_cell_names(timeline: Timeline) -> Timeline:
    """Returns a copy of a timeline in which source lines in notebook cells have the names of the
    cells, such as `In[3]`. The timeline itself has the names of temporary files instead, under
    which IPython compiled the cells.

    Outside of a notebook, returns the timeline unchanged.
    """
    shell = _shell()
    if shell is None:
        return timeline
    names = list(timeline.strings)
    for index in set(timeline.lines.file.tolist()):
        names[index] = _cell(shell, names[index]) or names[index]
    return timeline if names == list(timeline.strings) else replace(timeline, strings=tuple(names))


def _cell(shell: Any, file: str) -> str | None:
    describe: Callable[[str], tuple[str, str] | None] | None = getattr(shell.compile, "format_code_name", None)
    if describe is None:
        return None
    for name in (file, str(Path(file).absolute())):  # a recording shortens files below the working directory
        known = describe(name)
        if known is not None:
            return _NOBODYS if linecache.getline(name, 1).startswith(_OF_THE_MAGIC) else known[1]
    return None


def _shell() -> Any | None:
    """Returns the IPython shell of this process, or None if the process has none. Does not import IPython."""
    get = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get() if get is not None else None
