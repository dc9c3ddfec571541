"""A module whose calls are served by graphs, and which is otherwise the module itself."""

from __future__ import annotations

import copy
import operator
from typing import Any, SupportsIndex

import torch

from unstall.fix.graphs.graphed_function import GraphedFunction
from unstall.fix.graphs.graphed_stats import GraphedStats


class GraphedModule(torch.nn.Module):
    """Shares the `__dict__` of the module that it was made of: parameters, buffers, submodules, hooks, `training`. So
    the names in its `state_dict` are the module's own, and a change to one is a change to both."""

    __slots__ = ("_unstall_graphed", "_unstall_module")
    _unstall_graphed: GraphedFunction
    _unstall_module: torch.nn.Module

    def __init__(self, module: torch.nn.Module, graphed: GraphedFunction) -> None:
        object.__setattr__(self, "__dict__", module.__dict__)
        object.__setattr__(self, "_unstall_module", module)
        object.__setattr__(self, "_unstall_graphed", graphed)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's hooks run when it is captured, and what they do on the device is part of the graph."""
        return self._unstall_graphed(*args, **kwargs)

    def __repr__(self) -> str:
        return f"graphed({self._unstall_module!r})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Saved as the module that it was made of: whoever loads it does not need this package."""
        return operator.getitem, ([self._unstall_module], 0)

    def __copy__(self) -> torch.nn.Module:
        return self._unstall_anew(copy.copy(self._unstall_module))

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Module:
        return self._unstall_anew(copy.deepcopy(self._unstall_module, memo))

    def _unstall_anew(self, module: torch.nn.Module) -> torch.nn.Module:
        """Another module, with graphs of its own."""
        return graphed_module(module, self._unstall_graphed.anew(module))

    def stats(self) -> GraphedStats:
        """What its graphs did so far."""
        graphed: GraphedFunction = self._unstall_graphed
        return graphed.stats()


def graphed_module(module: torch.nn.Module, graphed: GraphedFunction) -> torch.nn.Module:
    """Of the module's own class too, so that methods that it overrides, as `train`, are its own."""
    kind = type(module)
    try:
        both = type(kind.__name__, (GraphedModule, kind), {"__slots__": ()})
    except TypeError:  # a class that cannot be inherited from
        both = GraphedModule
    made: torch.nn.Module = both(module, graphed)
    return made
