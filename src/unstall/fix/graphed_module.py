"""A module whose calls are served by graphs, and which is in all else the module itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from unstall.fix.graph_stats import GraphedStats

_CONTAINERS = ("__len__", "__getitem__", "__setitem__", "__delitem__", "__iter__", "__contains__")


def _forwarding(name: str) -> Callable[..., Any]:
    def forward(self: GraphedModule, *args: Any) -> Any:
        return getattr(self._module, name)(*args)

    return forward


class GraphedModule(torch.nn.Module):  # type: ignore[misc]
    """Shares its whole state with the module that it was made of: parameters, buffers, submodules, hooks, whether it
    trains. So the names in its `state_dict` are the module's own, and a change to one is a change to both."""

    __slots__ = ("_graphed", "_module")

    def __init__(self, module: torch.nn.Module, graphed: Callable[..., Any]) -> None:
        object.__setattr__(self, "__dict__", module.__dict__)
        object.__setattr__(self, "_module", module)
        object.__setattr__(self, "_graphed", graphed)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's hooks run when it is captured, and what they do on the device is part of the graph."""
        return self._graphed(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_module"), name)

    def __repr__(self) -> str:
        return f"graphed({self._module!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copied or saved, it is the module that it was made of: graphs cannot be."""
        return self._module.__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Module:
        import copy

        return copy.deepcopy(self._module, memo)

    @classmethod
    def of(cls, module: torch.nn.Module, graphed: Callable[..., Any]) -> GraphedModule:
        """With the length, items and so on that this module has."""
        names = [name for name in _CONTAINERS if hasattr(type(module), name)]
        forwards = {name: _forwarding(name) for name in names}
        kind = type(cls.__name__, (cls,), {"__slots__": (), **forwards}) if names else cls
        made: GraphedModule = kind(module, graphed)
        return made

    def stats(self) -> GraphedStats:
        """What its graphs did so far."""
        found: GraphedStats = self._graphed.stats()
        return found
