"""Runs cases of the suite on a GPU, and measures the kernels, durations and memory of each. Needs
torch and a GPU.

Before each measured call, the L2 cache is flushed, and then the arguments are read that are to be
in the cache. The call runs between two calls of `torch.cuda._sleep`, whose kernel has a name of its
own: what runs between these two kernels belongs to the call. In the history of the caching
allocator, allocations of a special size separate the calls. After that, the calls are measured in loops.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.profiler import ProfilerActivity, profile

from unstall.virtual.costs.launches import MeasuredKernel, launches
from unstall.virtual.costs.model import HOST_WAIT
from unstall.virtual.costs.prediction import OF_LIBRARIES
from unstall.virtual.costs.repeats import Repeater, Repeats
from unstall.virtual.costs.signature import Signature, TensorSpec
from unstall.virtual.costs.suite.case import Arguments, Case, TensorPool

_WAITS = (HOST_WAIT, "cudaDeviceSynchronize", "cudaEventSynchronize")
_TO_OR_FROM_HOST = re.compile("^Memcpy (DtoH|HtoD)")
_FENCE = "spin_kernel"
MARKER_BYTES = 512 * 1_237
"""The size of the allocations that separate the calls."""
_CHUNK = 768
_CHUNK_GFLOP = 20_000.0
_FLUSHED_BYTES = 160 << 20
_HOT_BYTES = 48 << 20
_WARM_BYTES = 12 << 20


class DeviceEvent(NamedTuple):
    """A device op in a profile, or a wait of the host, whose name is `HOST_WAIT`.

    Attributes:
        name: Its name.
        ns: How long it took.
        correlation: Its correlation id; 0 for a wait.
    """

    name: str
    ns: int
    correlation: int = 0


@dataclass
class CaseObservation:
    """What was measured of one case.

    Attributes:
        case: The case.
        signature: The call.
        kernels: Each device op with its median time, in order.
        taken: The bytes of each allocation that the call made, in order, without those of its
            outputs.
        kept: Of these, the bytes of each allocation that the call did not free.
        repeats: What it takes in loops; None if it was not measured.
    """

    case: Case
    signature: Signature
    kernels: list[MeasuredKernel] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    repeats: Repeats | None = None


def measure(cases: Iterable[Case], deadline: float, repeats: int = 3) -> Iterator[list[CaseObservation]]:
    """Measures cases, many at a time, and yields what was measured after each time. Stops after the
    last case, or once `time.monotonic()` is past `deadline`.

    Args:
        cases: The cases.
        deadline: A time of `time.monotonic()`, in seconds.
        repeats: How often each case is measured.
    """
    pool = TensorPool("cuda")
    repeater = Repeater()
    flushed = torch.empty(_FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    chunk: list[Case] = []
    gflop = 0.0
    for case in cases:
        if time.monotonic() > deadline:
            break
        chunk.append(case)
        gflop += case.gflop
        if len(chunk) >= _CHUNK or gflop > _CHUNK_GFLOP:
            yield _measure_chunk(chunk, pool, flushed, repeats, repeater)
            chunk, gflop = [], 0.0
    if chunk and time.monotonic() < deadline:
        yield _measure_chunk(chunk, pool, flushed, repeats, repeater)


def _measure_chunk(
    chunk: list[Case], pool: TensorPool, flushed: torch.Tensor, repeats: int, repeater: Repeater
) -> list[CaseObservation]:
    observations: list[CaseObservation] = []
    outputs: list[set[int]] = []
    calls: list[int] = []  # index into `observations` for each fenced call
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=1 << 20)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for case in chunk:
            with multiplying(case.precision):
                _run_case(case, pool, flushed, repeats, observations, outputs, calls)
        torch.cuda.synchronize()
    trace = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(None)
    attribute_memory(trace, observations, outputs)
    _attribute_kernels(profiler, observations, calls)
    for observation in observations:
        if _can_repeat(observation):
            with multiplying(observation.case.precision):
                repeat(observation, pool, repeater)
    return observations


def _can_repeat(observation: CaseObservation) -> bool:
    """Returns whether a call can be captured in a CUDA graph, as far as it is known before: it neither waits for the
    device nor copies to or from the host. Libraries for linear algebra end the process if they are captured.
    """
    signature, names = observation.signature, [kernel.name for kernel in observation.kernels]
    waits = any(name == HOST_WAIT or _TO_OR_FROM_HOST.search(name) for name in names)
    return bool(names) and not waits and not OF_LIBRARIES.match(signature.name.partition("::")[2])


def repeat(observation: CaseObservation, pool: TensorPool, repeater: Repeater) -> None:
    """Measures what a call takes in loops. Does nothing if one of its tensors is in host memory. Captured copies from
    the host crash. So does a captured backward with dropout: it reads its seed on the device, but a forward that was
    not captured has left the seed on the host.
    """
    operator = resolve(observation.case.operator)
    pool.begin()
    try:
        given = split(observation.case.build(pool)), split(observation.case.build(pool))
    except ValueError:  # there is no room for both
        return
    total_ns = sum(kernel.ns for kernel in observation.kernels)
    if all(tensor.is_cuda for args, kwargs in given for tensor in tensors_in((*args, *kwargs.values()))):
        observation.repeats = repeater.measure(operator, given, len(observation.kernels), total_ns)
    pool.renew_after(operator)


def _run_case(
    case: Case,
    pool: TensorPool,
    flushed: torch.Tensor,
    repeats: int,
    observations: list[CaseObservation],
    outputs: list[set[int]],
    calls: list[int],
) -> None:
    operator = resolve(case.operator)
    pool.begin()
    try:
        args, kwargs = split(case.build(pool))
        tensors = tensors_in(args[at] for at in case.hot) if case.hot is not None else _warm(tensors_in(args))
        torch.empty(MARKER_BYTES, dtype=torch.uint8, device="cuda")
        try:
            result = operator(*args, **kwargs)
        finally:
            torch.empty(MARKER_BYTES, dtype=torch.uint8, device="cuda")
            torch.empty(MARKER_BYTES, dtype=torch.uint8, device="cuda")
            outputs.append({tensor.untyped_storage().data_ptr() for tensor in tensors_in((*args, *kwargs.values()))})
            observations.append(CaseObservation(case, Signature("", "", (), ())))
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        print(f"{case.operator}: {str(error).splitlines()[0][:150]}", file=sys.stderr)
        return
    outputs[-1] |= {tensor.untyped_storage().data_ptr() for tensor in tensors_in((result,))}
    observations[-1].signature = replace(signature_of(operator, args, kwargs, result), precision=case.precision)
    del result
    for _ in range(repeats):
        flushed.zero_()
        for tensor in reversed(tensors):
            _touch(tensor)
        torch.cuda._sleep(1)
        operator(*args, **kwargs)
        torch.cuda._sleep(1)
        calls.append(len(observations) - 1)
    pool.renew_after(operator)


@contextmanager
def multiplying(precision: str) -> Iterator[None]:
    """Lets cuDNN and cuBLAS multiply in float32 as `precision` says (see `Case`)."""
    libraries: tuple[Any, ...] = torch.backends.cudnn, torch.backends.cuda.matmul
    usual = [library.allow_tf32 for library in libraries]
    for library, allowed in zip(libraries, usual, strict=True):
        library.allow_tf32 = precision == "tf32" if precision else allowed
    try:
        yield
    finally:
        for library, allowed in zip(libraries, usual, strict=True):
            library.allow_tf32 = allowed


def _warm(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the tensors that are probably in the L2 cache when a model makes a call with them:
    all if they take up to 12 MiB together; else only the first, which the operator before has just
    written.
    """
    together = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return tensors if together <= _WARM_BYTES else tensors[:1]


def _touch(tensor: torch.Tensor) -> None:
    """Brings a tensor into the L2 cache by reading memory and writing the same: from its first
    element on, as many elements as it has, whatever its strides.
    """
    if tensor.is_floating_point() and tensor.numel() * tensor.element_size() <= _HOT_BYTES:
        there = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
        tensor.detach().as_strided((min(tensor.numel(), there),), (1,)).mul_(1)


def attribute_memory(trace: list[dict[str, Any]], observations: list[CaseObservation], outputs: list[set[int]]) -> None:
    events = [event for event in trace if event["action"] in ("alloc", "free_requested")]
    marks = [
        index for index, event in enumerate(events) if event["action"] == "alloc" and event["size"] == MARKER_BYTES
    ]
    if len(marks) != 3 * len(observations):
        print(f"{len(marks)} markers for {len(observations)} cases: their memory is not known", file=sys.stderr)
        return
    for number, observation in enumerate(observations):
        first, last = marks[3 * number], marks[3 * number + 1]
        held: dict[int, int] = {}  # by address: the position in `taken`
        taken: list[int] = []
        for event in events[first + 2 : last]:
            if event["action"] == "alloc":
                held[event["addr"]] = len(taken)
                taken.append(event["size"])
            else:
                held.pop(event["addr"], None)
        results = {position for address, position in held.items() if address in outputs[number]}
        observation.taken = [size for position, size in enumerate(taken) if position not in results]
        observation.kept = [taken[position] for position in held.values() if position not in results]


def _attribute_kernels(profiler: profile, observations: list[CaseObservation], calls: list[int]) -> None:
    groups = fenced(device_events(profiler))
    if len(groups) != 2 * len(calls):
        print(f"{len(groups)} fences for {len(calls)} calls: the chunk is left out", file=sys.stderr)
        observations.clear()
        return
    launched = launches(profiler)
    runs: dict[int, list[list[DeviceEvent]]] = {}
    for call, observation in enumerate(calls):
        runs.setdefault(observation, []).append(groups[2 * call])
    for observation, found in runs.items():
        usual = statistics.mode([tuple(event.name for event in run) for run in found])
        same = [run for run in found if tuple(event.name for event in run) == usual]
        observations[observation].kernels = [
            MeasuredKernel(
                each[0].name,
                round(statistics.median(event.ns for event in each)),
                launched.get(each[-1].correlation),
            )
            for each in zip(*same, strict=True)
        ]
    observations[:] = [observation for observation in observations if observation.signature.name]


def device_events(profiler: profile) -> list[DeviceEvent]:
    """Returns the device ops of a profile, in the order of their start. Between them are the waits of the host for the
    stream, without those for copies to or from the host: those follow from the copies. All must be on one stream.
    """
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    events = list(results.events() if results is not None else ())
    on_device = sorted((event for event in events if _of_device(event)), key=lambda event: event.start_ns())
    place_of = {event.correlation_id(): place for place, event in enumerate(on_device)}
    calls = sorted((event for event in events if not _of_device(event)), key=lambda event: event.start_ns())
    waits_after: list[int] = []
    last = -1
    for call in calls:
        if call.name() in _WAITS and last >= 0 and not _TO_OR_FROM_HOST.search(on_device[last].name()):
            waits_after.append(last)
        elif call.correlation_id() in place_of:
            last = max(last, place_of[call.correlation_id()])
    found: list[DeviceEvent] = []
    waits = iter(waits_after)
    wait = next(waits, -1)
    for place, event in enumerate(on_device):
        found.append(DeviceEvent(event.name(), event.duration_ns(), event.correlation_id()))
        while wait == place:
            found.append(DeviceEvent(HOST_WAIT, 0))
            wait = next(waits, -1)
    return found


def _of_device(event: Any) -> bool:
    return str(event.device_type()).endswith("CUDA")


def fenced(events: list[DeviceEvent]) -> list[list[DeviceEvent]]:
    """Splits device ops at each kernel of `torch.cuda._sleep`. Returns a list for each such kernel, with the ops after
    it, up to the next such kernel. Ops before the first one are left out.
    """
    groups: list[list[DeviceEvent]] = []
    for event in events:
        if _FENCE in event.name:
            groups.append([])
        elif groups:
            groups[-1].append(event)
    return groups


def resolve(name: str) -> OpOverload:
    """Returns the operator of aten with the given name and overload, such as "add.Tensor"."""
    operator, _, overload = name.partition(".")
    found: OpOverload = getattr(getattr(torch.ops.aten, operator), overload)
    return found


def split(built: Arguments) -> tuple[Arguments, dict[str, object]]:
    """Returns `(args, kwargs)` of a case. In `built`, the keyword arguments are a dict at the end."""
    if built and isinstance(built[-1], dict):
        return built[:-1], built[-1]
    return built, {}


def tensors_in(values: Iterable[object]) -> list[torch.Tensor]:
    """Returns the tensors among values, with those in lists and tuples. Of a sparse tensor, these are its parts."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.extend(_parts(value))
        elif isinstance(value, (list, tuple)):
            found.extend(tensors_in(value))
    return found


def signature_of(operator: OpOverload, args: Arguments, kwargs: Mapping[str, object], result: object) -> Signature:
    """Returns the signature of a call, with the defaults of the arguments that are missing.

    Args:
        operator: The operator.
        args: The positional arguments.
        kwargs: The keyword arguments.
        result: What the call returned.
    """
    schema = operator._schema
    values = []
    for position, argument in enumerate(schema.arguments):
        if position < len(args):
            value = args[position]
        else:
            value = kwargs.get(argument.name, argument.default_value if argument.has_default_value() else None)
        values.append(_argument(value))
    results = result if isinstance(result, (tuple, list)) else (result,)
    overload = operator._overloadname
    sparse = any(map(_is_sparse, (*args, *kwargs.values(), *results)))
    name = schema.name.replace("aten::", "sparse::") if sparse else schema.name
    parts = (part for each in results for part in (_parts(each) if _is_sparse(each) else (each,)))
    return Signature(name, "" if overload == "default" else overload, tuple(values), tuple(map(_argument, parts)))


def _is_sparse(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is not torch.strided


def _parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns the dense tensors that a tensor is made of: itself if it is dense."""
    if tensor.layout is torch.strided:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    of_rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    indices = (
        (tensor.crow_indices(), tensor.col_indices()) if of_rows else (tensor.ccol_indices(), tensor.row_indices())
    )
    return *indices, tensor.values()


def _argument(value: object) -> object:
    if isinstance(value, torch.Tensor) and not _is_sparse(value):
        return TensorSpec(str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.stride()))
    if isinstance(value, torch.Tensor):
        return tuple(map(_argument, _parts(value)))
    if isinstance(value, (list, tuple)):
        return tuple(_argument(part) for each in value for part in (_parts(each) if _is_sparse(each) else (each,)))
    if isinstance(value, float):
        return ("s", value != 0.0)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)
