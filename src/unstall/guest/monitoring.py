"""Takes and frees a tool id of sys.monitoring (Python 3.12 and newer)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import CodeType

from unstall.errors import UnstallError

# The optimizer's id, which no known tool takes, and the unassigned ones. Never that of debuggers, coverage or
# profilers: the program's own tool, such as cProfile, raises if its id is taken.
_IDS = (5, 4, 3)


def take(name: str) -> int:
    """Reserves a free tool id of sys.monitoring for a tool named `name`. Returns the id. Raises UnstallError if no id
    is free, or if Python is older than 3.12."""
    if sys.version_info < (3, 12):
        raise UnstallError("sys.monitoring is there from Python 3.12 on")
    for tool in _IDS:
        if sys.monitoring.get_tool(tool) is None:
            sys.monitoring.use_tool_id(tool, name)
            return tool
    raise UnstallError("no tool of sys.monitoring is free for a recording")


def let_go(tool: int, watched: Iterable[CodeType]) -> None:
    """Removes all events and callbacks of a tool id of sys.monitoring, and frees the id. `watched` are the code objects
    for which the tool has set local events."""
    if sys.version_info < (3, 12):
        return
    monitoring = sys.monitoring
    monitoring.set_events(tool, 0)
    for code in watched:
        monitoring.set_local_events(tool, code, 0)
    for event in (name for name in dir(monitoring.events) if name.startswith("PY_") or name == "LINE"):
        monitoring.register_callback(tool, getattr(monitoring.events, event), None)
    monitoring.free_tool_id(tool)
