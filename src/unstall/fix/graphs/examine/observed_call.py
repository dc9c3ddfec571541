"""The reads, writes and side effects of one eager run of a function."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from unstall.fix.graphs.examine.reachable_state import CodeWithGlobals
from unstall.fix.graphs.refusals import Refusal
from unstall.fix.tensors.storages import lies_in, storage_of
from unstall.guest.step_replay import Boundary


@dataclass(slots=True)
class ObservedCall:
    """The effects of one eager run of a function.

    `externals` are the tensors that the run used, but neither received as arguments nor made. A graph reads and writes
    these tensors in place.
    """

    externals: list[torch.Tensor] = field(default_factory=list)
    written: list[torch.Tensor] = field(default_factory=list)  # externals written to, one for each storage
    noticed: set[int] = field(default_factory=set)  # storages whose writes change autograd's version counter
    leaves: list[torch.Tensor] = field(default_factory=list)  # externals that are leaves and require gradients
    entry_grads: list[torch.Tensor | None] = field(default_factory=list)  # each leaf's `.grad` before the call
    left_alone: set[int] = field(default_factory=set)  # ids of leaves whose `.grad` the call neither used nor replaced
    derived: list[torch.Tensor] = field(default_factory=list)  # externals that operators computed before the call
    written_inputs: set[int] = field(default_factory=set)  # indices of inputs written to
    refusals: list[Refusal] = field(default_factory=list)
    uncertain: list[Refusal] = field(default_factory=list)  # RNG use that may be another thread's
    generators: list[torch.Generator] = field(default_factory=list)
    names: frozenset[str] | None = None  # names in any Python code that ran; None: not known
    scopes: list[CodeWithGlobals] = field(default_factory=list)  # the user's code that ran
    backward_ran: bool = False
    grad_was_enabled: bool = False  # during any operator
    random: bool = False  # whether it uses an RNG of the device
    may_fault: bool = False  # whether values can make it fail, as an index out of bounds does
    asks_whether_captured: bool = False  # whether it asks if it is being captured; it may then behave differently
    warns: str = ""  # a warning that each call shows
    moves: bool = False  # whether the memory of one of `externals` was replaced
    steps: list[Boundary] = field(default_factory=list)  # step boundaries that a recording saw, in order
    launches: int = 0
    bytes_made: int = 0

    @property
    def only_waits(self) -> bool:
        """Whether there are reasons against a graph, and all these reasons are waits. A function may skip such waits
        while it is captured."""
        return bool(self.refusals) and all(refusal.waits for refusal in self.refusals)

    def note_grads(self, entry: dict[int, torch.Tensor | None]) -> None:
        """Records the leaves whose `.grad` the observed call neither used nor replaced. Must be used after the observed
        call. `entry` maps the id of each leaf to its `.grad` before the observed call."""
        self.entry_grads = [entry.get(id(leaf)) for leaf in self.leaves]
        used = self.memory()
        self.left_alone = {
            id(leaf)
            for leaf, grad in zip(self.leaves, self.entry_grads, strict=True)
            if grad is not None and leaf.grad is grad and not lies_in(grad, used)
        }

    def memory(self) -> set[int]:
        """Returns the storages of `externals`. Callers compare storages instead of tensors, because gradients may be
        views of one flat tensor."""
        return set(map(storage_of, self.externals))

    def concerns_grads(self) -> bool:
        """Returns whether the function computes gradients, or reads `.grad` tensors that existed before the call."""
        read = self.memory()
        return self.backward_ran or any(lies_in(grad, read) for grad in self.entry_grads if grad is not None)

    def grads_as_seen(self) -> bool:
        """Compares each leaf's `.grad` with its `.grad` before the observed call. Returns False if a `.grad` was None
        and is now a tensor. Also returns False if the function reads a `.grad` and this `.grad` was replaced. Otherwise
        returns True, even if any other `.grad` was replaced."""
        read = self.memory()
        pairs = zip(self.leaves, self.entry_grads, strict=True)
        return all(leaf.grad is grad for leaf, grad in pairs if grad is None or lies_in(grad, read))
