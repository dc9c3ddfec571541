"""`torch.cuda.comm` and `torch.cuda.nccl` within one process, made of copies and additions.

The copies and their streams are those of torch/csrc/cuda/comm.cpp. The kernels of NCCL are not
modelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from unstall.virtual.torch_cuda.cuda_errors import NotSupportedError
from unstall.virtual.torch_cuda.properties import NCCL_VERSION

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Streams = Sequence[torch.Stream | None] | None

SUM, PRODUCT, MAXIMUM, MINIMUM = range(4)
"""The values of ncclRedOp_t."""


def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    if tensor.is_cuda and tensor.get_device() != devices[0]:
        raise RuntimeError("device of broadcasted tensor must appear as the first on devices list")
    copies = [_copy_to(tensor, device) for device in (devices[1:] if tensor.is_cuda else devices)]
    return [tensor, *copies] if tensor.is_cuda else copies


def broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> Sequence[Tensor]:
    for place, target in enumerate(out):
        if not target.is_cuda:
            raise RuntimeError(f"Expected all output tensors to be CUDA tensors, but output tensor at index {place}")
        if target.shape != tensor.shape:
            raise RuntimeError(
                f"Expected all output tensors to have same shape as the source tensor {list(tensor.shape)}, but output"
                f" tensor at index {place} has shape {list(target.shape)}"
            )
        target.copy_(tensor, non_blocking=True)
    return out


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int) -> list[list[Tensor]]:
    import torch._utils as utils

    if any(tensor.get_device() != devices[0] for tensor in tensors):
        raise RuntimeError("all tensors must be on devices[0]")
    by_device: list[list[Tensor]] = [list(tensors), *([] for _ in devices[1:])]
    for chunk in utils._take_tensors(tensors, buffer_size):
        sparse = bool(chunk) and chunk[0].is_sparse
        flat = utils._flatten_sparse_tensors(chunk) if sparse else (utils._flatten_dense_tensors(chunk),)
        sent = [broadcast(part, devices) for part in flat]
        for place in range(1, len(devices)):
            parts = [copies[place] for copies in sent]
            whole = (
                utils._unflatten_sparse_tensors(parts, chunk)
                if sparse
                else utils._unflatten_dense_tensors(parts[0], chunk)
            )
            by_device[place] += [each.data for each in whole]
    return [by_device[0], *(utils._reorder_tensors_as(copies, tensors) for copies in by_device[1:])]


def scatter(
    tensor: Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Streams,
) -> list[Tensor]:
    if chunk_sizes is not None and sum(chunk_sizes) != tensor.size(dim):
        raise RuntimeError(
            f"given chunk sizes don't sum up to the tensor's size (sum(chunk_sizes) == {sum(chunk_sizes)}, but expected"
            f" {tensor.size(dim)})"
        )
    chunks = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return [
        _copy_to(chunk, device, copy=False, stream=stream)
        for chunk, device, stream in zip(chunks, devices, streams or [None] * len(devices), strict=False)
    ]


def scatter_out(tensor: Tensor, out: Sequence[Tensor], dim: int, streams: Streams) -> Sequence[Tensor]:
    if not out:
        raise RuntimeError("Expected at least one output tensor to scatter to")
    chunks = tensor.split([target.size(dim) for target in out], dim)
    for chunk, target, stream in zip(chunks, out, streams or [None] * len(out), strict=True):
        with _on(stream):
            target.copy_(chunk, non_blocking=True)
    return out


def gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    import torch

    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    first = tensors[0]
    if any(not tensor.is_cuda for tensor in tensors):
        raise RuntimeError("Gather expects all inputs to have CUDA type")
    shape = list(first.shape)
    shape[dim] = sum(tensor.size(dim) for tensor in tensors)
    device = torch.device("cpu") if destination == -1 else torch.device("cuda", _index(destination))
    channels_last = all(_is_channels_last(tensor) for tensor in tensors)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return gather_out(tensors, torch.empty(shape, dtype=first.dtype, device=device, memory_format=layout), dim)


def gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    start = 0
    for tensor in tensors:
        _check_gathered(tensor, out, dim)
        out.narrow(dim, start, tensor.size(dim)).copy_(tensor, non_blocking=True)
        start += tensor.size(dim)
    if start != out.size(dim):
        raise RuntimeError(f"Expected out tensor to have size {start} at dimension {dim}, but got {out.size(dim)}")
    return out


def nccl_reduce(
    inputs: Sequence[Tensor], output: Tensor, root: int, op: int, streams: Streams = None, comms: object = None
) -> None:
    others = (tensor for place, tensor in enumerate(inputs) if place != root)
    output.copy_(_reduced(inputs[root], others, op))


def nccl_all_reduce(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], op: int, streams: Streams = None, comms: object = None
) -> None:
    whole = _reduced(inputs[0], inputs[1:], op)
    for output in outputs:
        output.copy_(whole, non_blocking=True)


def nccl_broadcast(inputs: Sequence[Tensor], root: int, streams: Streams = None, comms: object = None) -> None:
    for place, tensor in enumerate(inputs):
        if place != root:
            tensor.copy_(inputs[root], non_blocking=True)


def nccl_all_gather(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], streams: Streams = None, comms: object = None
) -> None:
    for output in outputs:
        for part, tensor in zip(output.view(len(inputs), -1), inputs, strict=True):
            part.copy_(tensor.reshape(-1), non_blocking=True)


def nccl_reduce_scatter(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], op: int, streams: Streams = None, comms: object = None
) -> None:
    parts = [tensor.view(len(outputs), -1) for tensor in inputs]
    for place, output in enumerate(outputs):
        mine = [part[place] for part in parts]
        others = (part for number, part in enumerate(mine) if number != place)
        output.view(-1).copy_(_reduced(mine[place], others, op))


def comm_names() -> dict[str, object]:
    """Returns the functions of `torch._C` for copies between virtual devices, as `{name: function}`."""
    major, minor, patch = NCCL_VERSION
    return {
        "_broadcast": broadcast,
        "_broadcast_coalesced": broadcast_coalesced,
        "_broadcast_out": broadcast_out,
        "_gather": gather,
        "_gather_out": gather_out,
        "_nccl_all_gather": nccl_all_gather,
        "_nccl_all_reduce": nccl_all_reduce,
        "_nccl_broadcast": nccl_broadcast,
        "_nccl_reduce": nccl_reduce,
        "_nccl_reduce_scatter": nccl_reduce_scatter,
        "_nccl_version": lambda: major << 32 | minor << 16 | patch,
        "_nccl_version_suffix": lambda: b"",
        "_scatter": scatter,
        "_scatter_out": scatter_out,
    }


def _copy_to(tensor: Tensor, device: int, *, copy: bool = True, stream: torch.Stream | None = None) -> Tensor:
    import torch

    with _on(stream):
        return tensor.to(torch.device("cuda", device), non_blocking=True, copy=copy)


def _on(stream: torch.Stream | None) -> AbstractContextManager[object]:
    """Returns a context manager that makes `stream` the current stream, or one that does nothing if
    it is None. torch passes a torch.Stream or a torch.cuda.Stream.
    """
    import torch

    if stream is None:
        return nullcontext()
    of_cuda = torch.cuda.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    context: AbstractContextManager[object] = torch.cuda.stream(of_cuda)
    return context


def _index(destination: int | None) -> int:
    import torch

    return torch.cuda.current_device() if destination is None else destination


def _is_channels_last(tensor: Tensor) -> bool:
    import torch

    return tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)


def _check_gathered(tensor: Tensor, out: Tensor, dim: int) -> None:
    expected = list(out.shape)
    expected[dim] = tensor.size(dim)
    if list(tensor.shape) != expected:
        raise RuntimeError(f"Gather got an input of invalid size: got {list(tensor.shape)}, but expected {expected}")


def _reduced(first: Tensor, others: Iterable[Tensor], op: int) -> Tensor:
    """Returns one tensor made of all these tensors by the reduction `op`, on the device of the first."""
    result = first
    for other in (tensor.to(first.device, non_blocking=True) for tensor in others):
        if op == SUM:
            result = result + other
        elif op == PRODUCT:
            result = result * other
        elif op == MAXIMUM:
            result = result.maximum(other)
        elif op == MINIMUM:
            result = result.minimum(other)
        else:
            raise NotSupportedError(f"NCCL's reduction {op}")
    return result
