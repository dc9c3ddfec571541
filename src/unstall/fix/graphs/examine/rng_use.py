"""Finds out whether a call, or another thread during the call, used the host's random number generators (RNGs).

An RNG's state shows that the RNG was used, but not by which thread. All operators of the call and of its backward are
observed. So the call used torch's CPU RNG if one of these operators uses this RNG. C code may use the RNGs of Python
and NumPy unobserved. So if there are other threads, it is uncertain whether the call used the RNGs of Python and NumPy.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from types import CodeType

import torch
from torch._ops import OpOverload

from unstall.fix.graphs.refusals import Refusal
from unstall.frameworks import top_module
from unstall.guest.rng import drawn_from, random_states

_NAMES = {"torch": "torch's CPU generator", "random": "Python's random", "numpy.random": "numpy.random"}
_OF_TORCH = {"aten", "prims", "prim"}  # namespaces whose operators carry a tag if they use a generator
_OF_THREADS = {"threading", "_thread", "queue", "_queue", "concurrent", "asyncio", "multiprocessing"}


class RngUse:
    """Finds which random number generators of the host a function uses while it runs.

    Create an `RngUse` before the function runs. Call `note_operator` for each operator of torch, and `note_call` for
    each C function that runs. Then call `found`. `follows` says whether `note_call` will be called for every C
    function.
    """

    def __init__(self, *, follows: bool) -> None:
        self._before = random_states()
        self._alone = len(sys._current_frames()) == 1  # only threads that exist before the call count
        self._seen: set[str] = set()
        self._hidden = not follows  # whether parts of the call may run unobserved

    def note_operator(
        self, operator: OpOverload, generator: torch.Generator | None, returned: list[torch.Tensor]
    ) -> None:
        if operator.namespace not in _OF_TORCH:
            self._hidden = True
        if torch.Tag.nondeterministic_seeded not in operator.tags:
            return
        # Attention on a device returns its seed in CPU memory, beside its result.
        home = generator.device if generator is not None else returned[0].device if returned else None
        if home is None or home.type == "cpu":
            self._seen.add("torch")

    def note_call(self, called: object) -> None:
        owner = getattr(called, "__self__", None)
        name = getattr(called, "__name__", None)
        if owner is random._inst:
            self._seen.add("random")
        elif owner is torch.default_generator and name == "set_state":
            self._seen.add("torch")
        elif type(owner).__module__ in _OF_THREADS or name == "start_new_thread":
            self._hidden = True

    def found(self, codes: Iterable[CodeType], *, beside: str = "") -> tuple[list[Refusal], list[Refusal]]:
        """Returns `(certain, uncertain)`: two lists of reasons why a graph of the function is not possible. A reason is
        uncertain if another thread may have used the random number generator.

        Args:
            codes: All Python code that ran in the call.
            beside: The name of a generator that is ignored. "" if none is ignored.
        """
        self._hidden |= any(top_module(code.co_filename) in _OF_THREADS for code in codes)
        certain: list[Refusal] = []
        uncertain: list[Refusal] = []
        for name in sorted(drawn_from(self._before, random_states())):
            if name not in _NAMES or name == beside:
                continue
            reason = f"it draws from {_NAMES[name]}, and a graph would repeat what was drawn"
            if self._alone or name in self._seen:
                certain.append(Refusal(reason, None, "draw on the device"))
            elif name != "torch" or self._hidden:
                reason += ", or another thread did whenever a call was observed"
                remedy = "draw on the device, or let that thread wait during the function's first calls"
                uncertain.append(Refusal(reason, None, remedy))
        return certain, uncertain
