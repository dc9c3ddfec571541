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
    """What one eager run of a function read, wrote and changed.

    Attributes:
        externals: The tensors that the run used, but neither received as arguments nor made. A graph reads and writes
            these tensors in place.
        written: Those of `externals` that the run wrote to, one for each storage.
        noticed: The addresses of storages with writes that autograd noticed (it counts them in the version counter).
        leaves: Those of `externals` that are leaves of autograd and require gradients.
        entry_grads: The `.grad` of each tensor in `leaves` before the run.
        left_alone: The ids of those of `leaves` whose `.grad` the run neither used nor replaced.
        derived: Those of `externals` that require gradients and were computed by operators before the run.
        written_inputs: The indices of the inputs that the run wrote to.
        refusals: Reasons why a graph is not possible.
        uncertain: Reasons why a graph is perhaps not possible: the run or another thread used a random number
            generator.
        generators: The random number generators that operators got as an argument.
        names: All names in the Python code that ran. None if they are not known.
        scopes: The user's code that ran, with its global variables.
        backward_ran: Whether a backward pass ran.
        grad_was_enabled: Whether autograd was on during some operator.
        random: Whether the run used a random number generator of the device.
        may_fault: Whether values of tensors can make the run fail on the device, as an index out of bounds does.
        asks_whether_captured: Whether the code asks if it is being captured. It may then do something else in a
            capture.
        warns: The text of a warning that each call shows. "" if there is none.
        moves: Whether one of `externals` was given other memory.
        steps: The step boundaries that the run set, in order.
        launches: The number of operators that put work on a stream.
        bytes_made: The bytes of memory that operators created.
    """

    externals: list[torch.Tensor] = field(default_factory=list)
    written: list[torch.Tensor] = field(default_factory=list)
    noticed: set[int] = field(default_factory=set)
    leaves: list[torch.Tensor] = field(default_factory=list)
    entry_grads: list[torch.Tensor | None] = field(default_factory=list)
    left_alone: set[int] = field(default_factory=set)
    derived: list[torch.Tensor] = field(default_factory=list)
    written_inputs: set[int] = field(default_factory=set)
    refusals: list[Refusal] = field(default_factory=list)
    uncertain: list[Refusal] = field(default_factory=list)
    generators: list[torch.Generator] = field(default_factory=list)
    names: frozenset[str] | None = None
    scopes: list[CodeWithGlobals] = field(default_factory=list)
    backward_ran: bool = False
    grad_was_enabled: bool = False
    random: bool = False
    may_fault: bool = False
    asks_whether_captured: bool = False
    warns: str = ""
    moves: bool = False
    steps: list[Boundary] = field(default_factory=list)
    launches: int = 0
    bytes_made: int = 0

    @property
    def only_waits(self) -> bool:
        """Whether there are reasons against a graph, and all these reasons are waits. A function may skip such waits
        while it is captured."""
        return bool(self.refusals) and all(refusal.waits for refusal in self.refusals)

    def note_grads(self, entry: dict[int, torch.Tensor | None]) -> None:
        """Records which leaves had a `.grad` that the run neither used nor replaced. It must be called after the run.
        `entry` maps the id of each leaf to its `.grad` before the run."""
        self.entry_grads = [entry.get(id(leaf)) for leaf in self.leaves]
        used = self.memory()
        self.left_alone = {
            id(leaf)
            for leaf, grad in zip(self.leaves, self.entry_grads, strict=True)
            if grad is not None and leaf.grad is grad and not lies_in(grad, used)
        }

    def memory(self) -> set[int]:
        """Returns the addresses of the storages of `externals`, the tensors that the run used but neither received nor
        made. Callers compare storages instead of tensors, because gradients may be views of one flat tensor."""
        return set(map(storage_of, self.externals))

    def concerns_grads(self) -> bool:
        """Returns whether the function computes gradients, or reads `.grad` tensors that existed before the run."""
        read = self.memory()
        return self.backward_ran or any(lies_in(grad, read) for grad in self.entry_grads if grad is not None)

    def grads_as_seen(self) -> bool:
        """Compares the `.grad` of each leaf with its `.grad` before the observed run. Returns False if a `.grad` was
        None and is now a tensor, or if the function reads a `.grad` that was replaced by another tensor. Otherwise
        returns True, even if another `.grad` was replaced."""
        read = self.memory()
        pairs = zip(self.leaves, self.entry_grads, strict=True)
        return all(leaf.grad is grad for leaf, grad in pairs if grad is None or lies_in(grad, read))
