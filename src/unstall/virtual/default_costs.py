"""Costs from a data sheet alone: a roofline of arithmetic and of memory. The defaults are an H200's."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from unstall.timeline import CopyDirection
from unstall.virtual.cost import DeviceFacts, HostCosts, Kernel, Limits, OperatorCost
from unstall.virtual.costs.signature import Signature, Tensor

_NO_KERNEL = frozenset(
    "aten::" + name
    for name in (
        "empty", "empty_strided", "empty_like", "view", "as_strided", "expand", "permute", "transpose", "t", "slice",
        "select", "unsqueeze", "squeeze", "detach", "alias", "_reshape_alias", "resize_", "set_", "unfold", "diagonal",
        "unbind", "split", "split_with_sizes", "view_as_real", "view_as_complex", "_unsafe_view", "record_stream",
    )
)  # fmt: skip
_PRODUCTS = frozenset(
    "aten::" + name for name in ("mm", "addmm", "bmm", "baddbmm", "_addmm_activation", "linear", "addbmm", "mv")
)
_CUBLAS_WORKSPACE = ("cublas", 32 << 20)
"""Of each handle and stream on sm_90: torch's `getChosenWorkspaceSize`."""
_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class DefaultCosts:
    """See the module's docstring."""

    device: DeviceFacts = DeviceFacts("NVIDIA H200", 150_109_880_320, 571_473_920)
    host: HostCosts = field(default_factory=HostCosts)
    limits: Limits = field(default_factory=Limits)
    known_error: str = "a roofline: not compared with any real run"
    memory_bytes_per_us: float = 3.9e6
    flops_per_us: float = 50e6
    """In float32, without tensor cores."""
    half_flops_per_us: float = 700e6
    shortest_ns: int = 800
    fills_ns: int = 3_000
    """A kernel that takes longer has more blocks than the device holds at once."""

    def cost(self, signature: Signature) -> OperatorCost:
        if signature.name in _NO_KERNEL:
            return OperatorCost(())
        tensors = signature.tensors
        moved = sum(tensor.distinct_bytes for tensor in (*tensors, *signature.results))
        half = any(tensor.dtype in _HALVES for tensor in tensors)
        flops = _flops(signature)
        peak = self.half_flops_per_us if half else self.flops_per_us
        duration = max(self.shortest_ns, round(1_000 * max(flops / peak, moved / self.memory_bytes_per_us)))
        name = signature.name.removeprefix("aten::")
        kernel = Kernel(f"{name}_kernel", duration, fills=duration >= self.fills_ns)
        workspaces = (_CUBLAS_WORKSPACE,) if signature.name in _PRODUCTS else ()
        return OperatorCost((kernel,), host_ns=2_500, workspaces=workspaces)

    def copy_ns(self, size_bytes: int, direction: CopyDirection, pinned: bool) -> int:
        rates = {
            CopyDirection.DEVICE_TO_DEVICE: self.memory_bytes_per_us / 2,
            CopyDirection.PEER_TO_PEER: 360e3,
            CopyDirection.HOST_TO_DEVICE: 55e3 if pinned else 9e3,
            CopyDirection.DEVICE_TO_HOST: 55e3 if pinned else 14e3,
        }
        return 1_000 + round(1_000 * size_bytes / rates[direction])

    def memset_ns(self, size_bytes: int) -> int:
        return self.shortest_ns + round(1_000 * size_bytes / self.memory_bytes_per_us)


def _flops(signature: Signature) -> float:
    tensors, results = signature.tensors, signature.results
    if signature.name in _PRODUCTS and len(tensors) >= 2 and results:
        return 2.0 * results[0].numel * tensors[-2].sizes[-1]
    if "convolution" in signature.name and len(tensors) >= 2 and results:
        return _of_convolution(signature.name, tensors, results)
    if "attention" in signature.name and len(tensors) >= 3:
        query, key = tensors[:2] if "backward" not in signature.name else tensors[1:3]
        passes = 5 if "backward" in signature.name else 2
        return 2.0 * passes * prod(query.sizes) * key.sizes[-2]
    return 0.0


def _of_convolution(name: str, tensors: tuple[Tensor, ...], results: tuple[Tensor, ...]) -> float:
    if "backward" in name:
        return 2.0 * 2 * tensors[0].numel * prod(tensors[2].sizes[1:]) if len(tensors) > 2 else 0.0
    return 2.0 * results[0].numel * prod(tensors[1].sizes[1:])
