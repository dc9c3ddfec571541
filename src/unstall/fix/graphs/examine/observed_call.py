"""What one eager run of a function read, wrote and left behind."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from unstall.fix.graphs.examine.reachable_state import CodeWithGlobals
from unstall.fix.graphs.refusals import Refusal
from unstall.fix.tensors.storages import lies_in, storage_of
from unstall.guest.step_replay import Boundary


@dataclass(slots=True)
class ObservedCall:
    """What one run did. `externals` are tensors neither passed in nor made inside: a graph reads and writes them in
    place."""

    externals: list[torch.Tensor] = field(default_factory=list)
    written: list[torch.Tensor] = field(default_factory=list)  # of externals, one a storage
    noticed: set[int] = field(default_factory=set)  # storages whose writes autograd counts as changes
    leaves: list[torch.Tensor] = field(default_factory=list)  # of externals, those with a `.grad`
    entry_grads: list[torch.Tensor | None] = field(default_factory=list)  # what `.grad` of each leaf was before
    left_alone: set[int] = field(default_factory=set)  # ids of leaves whose `.grad` it neither used nor replaced
    derived: list[torch.Tensor] = field(default_factory=list)  # of externals, results of operators before the call
    written_inputs: set[int] = field(default_factory=set)  # places among the inputs
    refusals: list[Refusal] = field(default_factory=list)
    uncertain: list[Refusal] = field(default_factory=list)  # RNG use that may be another thread's
    generators: list[torch.Generator] = field(default_factory=list)
    names: frozenset[str] | None = None  # in any Python code that ran; None: not known
    scopes: list[CodeWithGlobals] = field(default_factory=list)  # the user's code that ran
    backward_ran: bool = False
    grad_was_enabled: bool = False  # for any operator
    random: bool = False  # it uses a generator of the device
    may_fault: bool = False  # by values of tensors, as by an index out of bounds
    asks_whether_captured: bool = False  # and may take another way then
    warns: str = ""  # a warning that was shown
    moves: bool = False  # one of `externals` has other memory now
    steps: list[Boundary] = field(default_factory=list)  # step boundaries that a recording saw, in order
    launches: int = 0
    bytes_made: int = 0

    @property
    def only_waits(self) -> bool:
        """Whether all reasons against a graph are waits, which a function may leave out while it is captured."""
        return bool(self.refusals) and all(refusal.waits for refusal in self.refusals)

    def note_grads(self, entry: dict[int, torch.Tensor | None]) -> None:
        """Notes `.grad` after the call. `entry`: `.grad` before it, by the ids of leaves."""
        self.entry_grads = [entry.get(id(leaf)) for leaf in self.leaves]
        used = self.memory()
        self.left_alone = {
            id(leaf)
            for leaf, grad in zip(self.leaves, self.entry_grads, strict=True)
            if grad is not None and leaf.grad is grad and not lies_in(grad, used)
        }

    def memory(self) -> set[int]:
        """Storages of `externals`. Gradients may be views of one flat tensor, so storages are compared."""
        return set(map(storage_of, self.externals))

    def concerns_grads(self) -> bool:
        """Whether the function makes gradients, or reads those that were there before the call."""
        read = self.memory()
        return self.backward_ran or any(lies_in(grad, read) for grad in self.entry_grads if grad is not None)

    def grads_as_seen(self) -> bool:
        """Whether each `.grad` that the function read is still the same tensor, and each that was None is None."""
        read = self.memory()
        pairs = zip(self.leaves, self.entry_grads, strict=True)
        return all(leaf.grad is grad for leaf, grad in pairs if grad is None or lies_in(grad, read))
