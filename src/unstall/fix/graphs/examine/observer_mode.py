"""Observes each operator of one eager run: the memory that the operator reads and writes, and each reason why a CUDA
graph of the run is not possible."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from unstall.fix.graphs.autograd.nodes import node_number
from unstall.fix.graphs.examine.host_waits import SYNCHRONIZING, wait_of
from unstall.fix.graphs.examine.observed_call import ObservedCall
from unstall.fix.graphs.examine.rng_use import RngUse
from unstall.fix.graphs.refusals import Refusal, Refused, calling_place, calls_through
from unstall.fix.tensors.storages import Touched, decomposed, is_plain, storage_of, tensors_of, touched_by
from unstall.guest.dispatch_mode import DispatchMode

_FROM_HOST = (
    "a copy from CPU memory would be of the memory of one call",
    "make the tensor on the device, as with torch.full or torch.arange, or pass it in",
)
_TO_HOST = "return the tensor and copy it after the call, where unstall.to_host and MetricBuffer do so without a wait"
_IN_A_LIBRARY = "that line is the library's: have it leave that out, or graph a part of the model"
# transformers reads the values of a two-dimensional mask to find padding. Without a mask, a causal model reads its
# positions.
_MASK = (
    "pass an attention_mask of four dimensions, which it takes as it is; a model that is not causal does without one "
    "too where nothing is padded"
)
_IN_TRANSFORMERS = {  # remedies by the file of the library's line
    "transformers/cache_utils.py": (
        "pass a StaticCache or use_cache=False, or say cache_implementation='static' to generate(); "
        "the cache of a sliding window cannot be captured"
    ),
    "transformers/masking_utils.py": _MASK,
    "transformers/modeling_attn_mask_utils.py": _MASK,
}
_COPIES = {"_to_copy", "copy_", "copy", "_copy_from"}
_OPTIMIZERS = ("torch/optim/", "torch\\optim\\")
# If their condition is false, they make the device unusable, as an index out of bounds does.
_ASSERTS = {"_assert_async", "_functional_assert_async", "binary_cross_entropy", "binary_cross_entropy_backward"}


class ObserverMode(DispatchMode):
    """A dispatch mode that records which memory each operator of a call reads and writes. It also records all reasons
    why a CUDA graph of the call is not possible, with their source lines.

    Args:
        inputs: The input tensors of the call.
        device_type: The type of the device whose tensors a graph can use.
        index: The index of the device.
        rng_use: An object that records which random number generators are used.
        stops: Whether to raise `Refused` instead of waiting for the device.
    """

    def __init__(
        self, inputs: list[torch.Tensor], device_type: str, index: int | None, rng_use: RngUse, *, stops: bool = False
    ) -> None:
        DispatchMode.__init__(self)
        self.seen = ObservedCall()
        self._rng_use = rng_use
        self._stops = stops
        self._device_type = device_type
        self._index = index
        self._inputs: dict[int, set[int]] = {}  # storage → indices of the inputs in it
        for place, tensor in enumerate(inputs):
            self._inputs.setdefault(storage_of(tensor), set()).add(place)
        self._made: set[int] = set()
        self._external: dict[int, int] = {}  # storage → index in `externals` of its first tensor
        self._tensors: dict[int, torch.Tensor] = {}  # by id; kept alive, so that no id is reused
        self._written: set[int] = set()
        self._constants: set[int] = set()  # CPU storages that hold only constants from the code
        with torch.inference_mode(False), torch.enable_grad():
            self._first_node = node_number(torch.zeros((), requires_grad=True).exp()) or 0
        self._said: set[tuple[str, str]] = set()
        self.addresses: list[tuple[torch.Tensor, int]] = []  # each external tensor's address when first seen

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        whole = decomposed(self, func, args, kwargs)
        if whole is not NotImplemented:
            return whole
        name = func._schema.name.partition("::")[2]
        with self._noting():
            self._note_waits(name, func, args, kwargs)
        self.stop_if_refused()
        result = func(*args, **kwargs)
        with self._noting():
            self._note(name, func, args, kwargs, result)
        return result

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """During the block, catches errors of the observation itself, so that the program does not get these errors.
        Records each error as a reason against a graph."""
        try:
            yield
        except Exception as error:
            self.refuse(f"it could not be followed: {type(error).__name__}: {error}")

    def _note(self, name: str, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: object) -> None:
        if any(isinstance(leaf, torch.Tensor) and not is_plain(leaf) for leaf in tree_leaves((args, kwargs, result))):
            self.refuse("a sparse tensor takes part")
        touched = touched_by(func, args, kwargs, result)
        given, returned = tensors_of((args, kwargs)), tensors_of(result)
        if name == "lift_fresh":  # called by torch.tensor(…); no operator made that memory
            self._made.update(map(storage_of, given))
            self._constants.update(storage_of(tensor) for tensor in given if tensor.device.type == "cpu")
        self._made.update(touched.fresh)
        waits = not (kwargs.get("non_blocking") or (name == "copy_" and args[2:] == (True,)))
        self._note_host_memory(name, given, returned, waits=waits)
        for tensor in given:
            self.note_external(tensor)
        self._note_writes(touched)
        seen = self.seen
        seen.launches += touched.launches
        seen.may_fault |= name in _ASSERTS or touched.barrier or _may_index(func, given)
        seen.bytes_made += sum(t.untyped_storage().nbytes() for t in returned if storage_of(t) in touched.fresh)
        seen.backward_ran |= torch._C._current_graph_task_id() != -1
        seen.grad_was_enabled |= torch.is_grad_enabled()
        generator = kwargs.get("generator")
        self._rng_use.note_operator(func, generator, returned)
        if isinstance(generator, torch.Generator) and not any(generator is known for known in seen.generators):
            seen.generators.append(generator)

    def stop_if_refused(self) -> None:
        if self._stops and self.seen.refusals:
            raise Refused(*self.seen.refusals)

    def refuse(self, reason: str, remedy: str = "", *, waits: bool = False) -> None:
        """Records a reason why a graph of the call is not possible, with the line of the user's code that is running.
        The same reason is recorded only once for each line.

        Args:
            reason: The reason, as a clause.
            remedy: What the user can do. "" if no remedy is known.
            waits: Whether the reason is a wait of the host for the device.
        """
        place = calling_place()
        if place is not None and place.library and waits:
            remedy = _IN_TRANSFORMERS.get(place.library.partition(":")[0], _IN_A_LIBRARY)
        if (reason, str(place)) not in self._said:
            self._said.add((reason, str(place)))
            self.seen.refusals.append(Refusal(reason if place else f"{reason} (in backward)", place, remedy, waits))

    def note_wait(self) -> None:
        """Records that the host is about to wait for the device, in a function that only waits, such as
        `torch.cuda.synchronize`."""
        self.refuse("synchronize() waits for the device", "wait after the call, not inside", waits=True)
        self.stop_if_refused()

    def is_programs_warning(self, warning: str, again: bool) -> bool:
        """Returns whether a warning is the program's own. `again` says whether each call would show this warning. If
        `again` is True and the warning is the program's own, records the warning.

        torch's warnings about waits are not the program's own. These warnings are turned on only to find the line that
        waits.
        """
        if SYNCHRONIZING not in warning:
            self.seen.warns = self.seen.warns or (warning if again else "")
            return True
        if not self.seen.refusals:  # otherwise an operator on that line was already noted
            self.refuse("the host waits for the device", "do that outside the graph", waits=True)
        return False

    def note_external(self, tensor: torch.Tensor) -> None:
        storage = storage_of(tensor)
        if storage in self._inputs or storage in self._made or id(tensor) in self._tensors:
            return
        self._tensors[id(tensor)] = tensor
        self._external.setdefault(storage, len(self.seen.externals))
        self.addresses.append((tensor, tensor.data_ptr()))
        made_inside = False
        with contextlib.suppress(RuntimeError):  # a view whose node autograd cannot give
            number = node_number(tensor)
            if tensor.requires_grad and tensor.is_leaf:
                self.seen.leaves.append(tensor)
            elif tensor.requires_grad and number is not None and number < self._first_node:
                self.seen.derived.append(tensor)
            else:
                made_inside = number is not None
        # A view that the function made would keep autograd nodes alive.
        self.seen.externals.append(tensor.detach() if made_inside else tensor)

    def release(self) -> None:
        """Drops the tensors that were kept alive. As long as the tensors were alive, no new tensor could get the id or
        address of one of them."""
        self._tensors.clear()
        self.addresses.clear()

    def note_handed_out(self, results: list[torch.Tensor]) -> None:
        """Records tensors of the call's result that no operator of the call has read or written. They existed before
        the call."""
        for tensor in results:
            if storage_of(tensor) not in self._external:
                self.note_external(tensor)

    def _note_writes(self, touched: Touched) -> None:
        for storage in touched.writes:
            if storage in self._inputs:
                self.seen.written_inputs |= self._inputs[storage]
            elif storage in self._external:
                if touched.noticed:
                    self.seen.noticed.add(storage)
                if storage not in self._written:
                    self._written.add(storage)
                    self.seen.written.append(self.seen.externals[self._external[storage]])

    def _note_waits(self, name: str, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if name.startswith("_amp_"):
            self.refuse(
                "GradScaler decides on the host whether to step",
                "use bfloat16, which needs no GradScaler, or graph the model alone",
            )
        on_device = [tensor for tensor in tensors_of(args) if tensor.device.type == self._device_type]
        if not on_device:
            return
        wait = wait_of(name, func, args, kwargs)
        if wait is not None:
            self.refuse(*wait, waits=True)

    def _note_host_memory(
        self, name: str, given: list[torch.Tensor], returned: list[torch.Tensor], *, waits: bool
    ) -> None:
        if self._device_type == "cpu":
            return
        if any(t.device.type == self._device_type and t.device.index != self._index for t in (*given, *returned)):
            self.refuse("it works on several devices", "give each device's part a graph of its own")
        host = [tensor for tensor in given if tensor.device.type == "cpu"]
        made_on_host = [tensor for tensor in returned if tensor.device.type == "cpu"]
        on_device = any(tensor.device.type == self._device_type for tensor in (*given, *returned))
        if name in _COPIES and on_device and (host or made_on_host):
            target = returned[0] if returned else given[0]
            if target.device.type == "cpu":
                why = "waits for the device" if waits else "would be into the memory of one call"
                self.refuse(f"a copy to CPU memory {why}", _TO_HOST)
            else:
                self.refuse(*_FROM_HOST, waits=True)
        elif name == "lift_fresh" and on_device:  # called by torch.tensor(…), after a copy that no operator shows
            self.refuse(*_FROM_HOST, waits=True)
        elif any(storage_of(tensor) not in self._constants for tensor in host):
            self._refuse_host_tensor()
        else:
            # Attention kernels return their seeds in CPU memory, but in device memory within a capture.
            self._constants.update(storage_of(tensor) for tensor in made_on_host)

    def _refuse_host_tensor(self) -> None:
        if calls_through("swa_utils"):
            self.refuse("the averaged model counts its updates on the CPU", "update it after the call, not inside")
        elif calls_through(*_OPTIMIZERS):
            self.refuse("the optimizer keeps its steps on the CPU", "make it with capturable=True")
        else:
            self.refuse("a CPU tensor takes part, and a graph would keep its value", "move it to the device before")


def _may_index(operator: OpOverload, given: list[torch.Tensor]) -> bool:
    if torch.Tag.pointwise in operator.tags:
        return False
    return any(not (t.is_floating_point() or t.is_complex() or t.dtype is torch.bool) for t in given)
