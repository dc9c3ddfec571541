"""One eager run of a function, watched: what a CUDA graph of it would read, write and be unable to do."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unstall.fix.graphs.capture.device import Device
from unstall.fix.graphs.look.draws import Draws
from unstall.fix.graphs.look.heard import heard
from unstall.fix.graphs.look.users import is_users_code
from unstall.fix.graphs.look.waits import SYNCHRONIZING, wait_of, waits_named
from unstall.fix.graphs.look.watch import Scope
from unstall.fix.graphs.refusals import Refusal, Refused, calling_place, calls_through
from unstall.fix.tensors.storages import Touched, decomposed, is_plain, lies_in, storage_of, tensors_of, touched_by
from unstall.frameworks import OURS, top_module
from unstall.guest.step_replay import Boundary

_FROM_HOST = (
    "a copy from CPU memory would be of the memory of one call",
    "make the tensor on the device, as with torch.full or torch.arange, or pass it in",
)
_TO_HOST = "return the tensor and copy it after the call, where unstall.to_host and MetricBuffer do so without a wait"
_IN_A_LIBRARY = "that line is the library's: have it leave that out, or graph a part of the model"
# One of two dimensions is looked at for padding; where there is none, a causal model looks at its positions instead.
_MASK = (
    "pass an attention_mask of four dimensions, which it takes as it is; a model that is not causal does without one "
    "too where nothing is padded"
)
_IN_TRANSFORMERS = {  # by the file of the line: what spares it
    "transformers/cache_utils.py": (
        "pass a StaticCache or use_cache=False, or say cache_implementation='static' to generate(); "
        "the cache of a sliding window cannot be captured"
    ),
    "transformers/masking_utils.py": _MASK,
    "transformers/modeling_attn_mask_utils.py": _MASK,
}
_COPIES = {"_to_copy", "copy_", "copy", "_copy_from"}
_ASKS = {"is_current_stream_capturing", "_cuda_isCurrentStreamCapturing"}
_ASK_TOO = (str(Path(torch.__file__).parent), OURS)  # torch to warn or refuse, a recording at each step
_OPTIMIZERS = ("torch/optim/", "torch\\optim\\")
_COMPUTES_NAMES = {"getattr", "vars", "globals", "locals", "eval", "exec", "attrgetter", "__dict__", "__getattribute__"}
# The device stops for good where what they are given is not as they expect it; so it does for an index out of bounds.
_ASSERTS = {"_assert_async", "_functional_assert_async", "binary_cross_entropy", "binary_cross_entropy_backward"}
_SPEAKS = {"print", "open", "input", "write", "writelines"}


@dataclass(slots=True)
class Observation:
    """What one run did. `externals` are neither passed in nor made inside: they are read and written where they lie."""

    externals: list[torch.Tensor] = field(default_factory=list)
    written: list[torch.Tensor] = field(default_factory=list)  # of externals, one a storage
    noticed: set[int] = field(default_factory=set)  # their storages, where autograd notices that they are written to
    leaves: list[torch.Tensor] = field(default_factory=list)  # of externals, those that gradients are kept for
    entry_grads: list[torch.Tensor | None] = field(default_factory=list)  # what `.grad` of each leaf was before
    left_alone: set[int] = field(default_factory=set)  # of leaves, by id, whose gradient it neither used nor replaced
    derived: list[torch.Tensor] = field(default_factory=list)  # those through which gradients go on to before the call
    written_inputs: set[int] = field(default_factory=set)  # places among the inputs
    refusals: list[Refusal] = field(default_factory=list)
    doubts: list[Refusal] = field(default_factory=list)  # reasons that may be another thread's
    generators: list[torch.Generator] = field(default_factory=list)
    names: frozenset[str] | None = None  # read by any Python code that ran; None: not known
    scopes: list[Scope] = field(default_factory=list)  # of the user's code that ran
    backward_ran: bool = False
    grad_was_enabled: bool = False  # for any operator
    random: bool = False  # it draws from a generator of the device
    may_fault: bool = False  # by values of tensors, as by an index out of bounds
    asks_whether_captured: bool = False  # and may take another way then
    warns: str = ""  # a warning that was shown
    moves: bool = False  # it gave one of `externals` other memory
    steps: list[Boundary] = field(default_factory=list)  # of a recording, in order
    launches: int = 0
    bytes_made: int = 0

    @property
    def only_waits(self) -> bool:
        """Whether all that speaks against a graph are waits, which a function may leave out while it is captured."""
        return bool(self.refusals) and all(refusal.waits for refusal in self.refusals)

    def note_grads(self, entry: dict[int, torch.Tensor | None]) -> None:
        """`entry`: what `.grad` was before the call, by the ids of leaves. What it is now, the call has left."""
        self.entry_grads = [entry.get(id(leaf)) for leaf in self.leaves]
        used = self.memory()
        self.left_alone = {
            id(leaf)
            for leaf, grad in zip(self.leaves, self.entry_grads, strict=True)
            if grad is not None and leaf.grad is grad and not lies_in(grad, used)
        }

    def memory(self) -> set[int]:
        """Storages that it reads or writes where they lie: gradients may be views of one flat tensor."""
        return set(map(storage_of, self.externals))

    def concerns_grads(self) -> bool:
        """Whether the function makes gradients, or reads ones that it found."""
        read = self.memory()
        return self.backward_ran or any(lies_in(grad, read) for grad in self.entry_grads if grad is not None)

    def grads_as_seen(self) -> bool:
        """Whether the gradients that the function would find now are those that it found then: where it read them,
        the same tensors, and where there were none, none."""
        read = self.memory()
        pairs = zip(self.leaves, self.entry_grads, strict=True)
        return all(leaf.grad is grad for leaf, grad in pairs if grad is None or lies_in(grad, read))


class Observer(TorchDispatchMode):  # type: ignore[misc]
    """Notes what every operator touches. `device_type` is of the tensors that a graph can hold. With `stops` a wait is
    not begun: `Refused` is raised instead."""

    def __init__(
        self, inputs: list[torch.Tensor], device_type: str, index: int | None, draws: Draws, *, stops: bool = False
    ) -> None:
        super().__init__()
        self.seen = Observation()
        self._draws = draws
        self._stops = stops
        self._device_type = device_type
        self._index = index
        self._inputs: dict[int, set[int]] = {}
        for place, tensor in enumerate(inputs):
            self._inputs.setdefault(storage_of(tensor), set()).add(place)
        self._made: set[int] = set()
        self._external: dict[int, int] = {}  # storage → its place in `externals` when first seen
        self._tensors: dict[int, torch.Tensor] = {}  # by their ids, which are theirs while they live
        self._written: set[int] = set()
        self._constants: set[int] = set()  # storages in CPU memory that hold nothing but constants of the code
        with torch.inference_mode(False), torch.enable_grad():  # nodes of autograd are numbered as they are made
            self._begun = torch.zeros((), requires_grad=True).exp().grad_fn._sequence_nr()
        self._said: set[tuple[str, str]] = set()
        self.addresses: list[tuple[torch.Tensor, int]] = []  # of externals, as they were when first seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        whole = decomposed(self, func, args, kwargs)
        if whole is not NotImplemented:
            return whole
        name = func._schema.name.partition("::")[2]
        with self._noting():
            self._look_for_waits(name, func, args, kwargs)
        self.stop_if_refused()
        result = func(*args, **kwargs)
        with self._noting():
            self._note(name, func, args, kwargs, result)
        return result

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """What goes wrong in looking on is a reason not to capture, and nothing that the program should notice."""
        try:
            yield
        except Exception as error:
            self.refuse(f"it could not be followed: {type(error).__name__}: {error}")

    def _note(self, name: str, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        if any(isinstance(leaf, torch.Tensor) and not is_plain(leaf) for leaf in tree_leaves((args, kwargs, result))):
            self.refuse("a sparse tensor takes part")
        touched = touched_by(func, args, kwargs, result)
        given, returned = tensors_of((args, kwargs)), tensors_of(result)
        if name == "lift_fresh":  # of torch.tensor(…), whose memory no operator has made
            self._made.update(map(storage_of, given))
            self._constants.update(storage_of(tensor) for tensor in given if tensor.device.type == "cpu")
        self._made.update(touched.fresh)
        waits = not (kwargs.get("non_blocking") or (name == "copy_" and args[2:] == (True,)))
        self._look_at_memory(name, given, returned, waits=waits)
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
        self._draws.note_operator(func, generator, returned)
        if isinstance(generator, torch.Generator) and not any(generator is known for known in seen.generators):
            seen.generators.append(generator)

    def stop_if_refused(self) -> None:
        if self._stops and self.seen.refusals:
            raise Refused(*self.seen.refusals)

    def refuse(self, reason: str, remedy: str = "", *, waits: bool = False) -> None:
        """Notes a reason with the line that runs now; the same of one line once."""
        place = calling_place()
        if place is not None and place.library and waits:
            remedy = _IN_TRANSFORMERS.get(place.library.partition(":")[0], _IN_A_LIBRARY)
        if (reason, str(place)) not in self._said:
            self._said.add((reason, str(place)))
            self.seen.refusals.append(Refusal(reason if place else f"{reason} (in backward)", place, remedy, waits))

    def note_wait(self) -> None:
        """A call that is nothing but a wait is about to be made."""
        self.refuse("synchronize() waits for the device", "wait after the call, not inside", waits=True)
        self.stop_if_refused()

    def hears(self, warning: str) -> bool:
        """Whether it is the program's: torch's own of a wait is asked for to name the line."""
        if SYNCHRONIZING not in warning:
            self.seen.warns = self.seen.warns or warning
            return True
        if not self.seen.refusals:  # else an operator of that line has been named already
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
        with contextlib.suppress(RuntimeError):  # of a view that autograd refuses to speak about
            if tensor.requires_grad and tensor.is_leaf:
                self.seen.leaves.append(tensor)
            elif tensor.requires_grad and tensor.grad_fn._sequence_nr() < self._begun:
                self.seen.derived.append(tensor)
            else:
                made_inside = tensor.grad_fn is not None
        # A view that the function made would hold on to nodes of autograd's.
        self.seen.externals.append(tensor.detach() if made_inside else tensor)

    def release(self) -> None:
        """Lets go of tensors that nothing else may hold on to."""
        self._tensors.clear()
        self.addresses.clear()

    def note_handed_out(self, results: list[torch.Tensor]) -> None:
        """What no operator has touched was not made inside either. Of memory that one did, it may be a new view."""
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

    def _look_for_waits(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
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

    def _look_at_memory(
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
        elif name == "lift_fresh" and on_device:  # of torch.tensor(…), which has copied it there unseen
            self.refuse(*_FROM_HOST, waits=True)
        elif any(storage_of(tensor) not in self._constants for tensor in host):
            self._refuse_host_tensor()
        else:
            # Attention's kernels give their seeds in CPU memory, but within a capture in the device's.
            self._constants.update(storage_of(tensor) for tensor in made_on_host)

    def _refuse_host_tensor(self) -> None:
        if calls_through("swa_utils"):
            self.refuse("the averaged model counts its updates on the CPU", "update it after the call, not inside")
        elif calls_through(*_OPTIMIZERS):
            self.refuse("the optimizer keeps its steps on the CPU", "make it with capturable=True")
        else:
            self.refuse("a CPU tensor takes part, and a graph would keep its value", "move it to the device before")


def observed(
    run: Callable[[], Any], inputs: list[torch.Tensor], device: Device, *, stops: bool = False
) -> tuple[Any, Observation]:
    """What `run` returns, and what it did. Errors of it are raised as they are, and `Refused` instead of a wait where
    it `stops` at one."""
    device_type = device.type
    profiled = sys.getprofile() is not None
    draws = Draws(follows=not profiled)
    observer = Observer(inputs, device_type, device.index, draws, stops=stops)
    codes: dict[CodeType, dict[str, Any]] = {}

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            codes.setdefault(frame.f_code, frame.f_globals)
        elif event == "c_call":
            draws.note_call(called)
            if _seeds(called):
                observer.refuse("it seeds a random generator, and a graph would not", "seed before the call")
            elif _speaks(called) and _is_asked_by_user(frame):
                reason = "it prints, or reads or writes a file, and a graph would not"
                observer.refuse(reason, "do that outside the graph")

    drawn = None if stops else device.generator().get_state()
    with heard(observer.hears), waits_named(observer.note_wait, device_type):
        if not profiled:
            sys.setprofile(note)
        try:
            with observer:
                result = run()
        finally:
            if not profiled:
                sys.setprofile(None)
    observer.note_handed_out(tensors_of(result))
    refusals, doubts = draws.found(codes, beside="torch" if device_type == "cpu" else "")
    observer.seen.refusals += refusals
    observer.seen.doubts += doubts
    observer.seen.random = bool(observer.seen.generators)
    if drawn is not None:  # else it is captured, and the generator may not be asked
        observer.seen.random |= not torch.equal(drawn, device.generator().get_state())
    observer.seen.moves = any(tensor.data_ptr() != address for tensor, address in observer.addresses)
    observer.release()
    if not profiled:
        observer.seen.names = _names_in(codes)
        observer.seen.scopes = [Scope(code, names) for code, names in codes.items() if is_users_code(code)]
        observer.seen.asks_whether_captured = any(
            not _ASKS.isdisjoint(code.co_names) and not code.co_filename.startswith(_ASK_TOO) for code in codes
        )
    return result, observer.seen


def _may_index(operator: Any, given: list[torch.Tensor]) -> bool:
    if torch.Tag.pointwise in operator.tags:
        return False
    return any(not (t.is_floating_point() or t.is_complex() or t.dtype is torch.bool) for t in given)


def _names_in(codes: Iterable[CodeType]) -> frozenset[str] | None:
    """All names that stand in some code. None where the user's code makes names up as it runs."""
    names: set[str] = set()
    for code in codes:
        if is_users_code(code) and not _COMPUTES_NAMES.isdisjoint(code.co_names):
            return None
        names.update(code.co_names, code.co_freevars)
        for constant in code.co_consts:
            if isinstance(constant, str):
                names.add(constant)
            elif isinstance(constant, tuple):
                names.update(part for part in constant if isinstance(part, str))
    return frozenset(names)


def _seeds(called: Any) -> bool:
    owner = getattr(called, "__self__", None)
    return isinstance(owner, torch.Generator) and called.__name__ in ("manual_seed", "seed")


def _speaks(called: Any) -> bool:
    if getattr(called, "__name__", None) not in _SPEAKS:
        return False
    owner = getattr(called, "__self__", None)
    return isinstance(owner, (ModuleType, io.IOBase))


def _is_asked_by_user(frame: FrameType | None) -> bool:
    """Whether the user's code does that, itself or through the standard library, and not some library of its own."""
    while frame is not None:
        if is_users_code(frame.f_code):
            return True
        if (
            top_module(frame.f_code.co_filename) not in sys.stdlib_module_names
            or frame.f_globals["__name__"] == "warnings"
        ):
            return False
        frame = frame.f_back
    return False
