"""A module whose calls are served by graphs. In all other respects, it behaves like the wrapped module."""

from __future__ import annotations

import copy
import operator
from typing import Any, SupportsIndex

import torch

from unstall.fix.graphs.graphed_function import GraphedFunction
from unstall.fix.graphs.graphed_stats import GraphedStats


class GraphedModule(torch.nn.Module):
    """A module whose calls are served by CUDA graphs. The GraphedModule shares the `__dict__` of the wrapped module:
    parameters, buffers, submodules, hooks and `training`. So the two modules have the same names in their `state_dict`,
    and a change to one module also changes the other module."""

    __slots__ = ("_unstall_graphed", "_unstall_module")
    _unstall_graphed: GraphedFunction
    _unstall_module: torch.nn.Module

    def __init__(self, module: torch.nn.Module, graphed: GraphedFunction) -> None:
        object.__setattr__(self, "__dict__", module.__dict__)
        object.__setattr__(self, "_unstall_module", module)
        object.__setattr__(self, "_unstall_graphed", graphed)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module. The module's hooks run during the capture, so the device work of the hooks is part of the
        graph."""
        return self._unstall_graphed(*args, **kwargs)

    def __repr__(self) -> str:
        return f"graphed({self._unstall_module!r})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickles the wrapped module in place of this module, so that unpickling does not need unstall."""
        return operator.getitem, ([self._unstall_module], 0)

    def __copy__(self) -> torch.nn.Module:
        return self._unstall_anew(copy.copy(self._unstall_module))

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Module:
        return self._unstall_anew(copy.deepcopy(self._unstall_module, memo))

    def _unstall_anew(self, module: torch.nn.Module) -> torch.nn.Module:
        """Wraps `module`, a copy of the wrapped module, with the same options. The copy has its own graphs."""
        return graphed_module(module, self._unstall_graphed.anew(module))

    def stats(self) -> GraphedStats:
        """Returns statistics of all calls of this module so far."""
        graphed: GraphedFunction = self._unstall_graphed
        return graphed.stats()


def graphed_module(module: torch.nn.Module, graphed: GraphedFunction) -> torch.nn.Module:
    """Returns a GraphedModule whose class also inherits from the class of `module`. So methods that the class of
    `module` overrides, such as `train`, are inherited.

    Args:
        module: The module to wrap.
        graphed: The graphed function that serves the calls of `module`.
    """
    kind = type(module)
    try:
        both = type(kind.__name__, (GraphedModule, kind), {"__slots__": ()})
    except TypeError:  # the class does not allow subclasses
        both = GraphedModule
    made: torch.nn.Module = both(module, graphed)
    return made
