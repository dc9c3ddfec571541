"""Predicts what operators and copies cost on a GPU, from calls that were measured.

The calls were measured on that GPU, or on another one. In the second case, their times are scaled
to the GPU by the peak rates of both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from itertools import chain, repeat

from unstall.timeline.columns import CopyDirection
from unstall.virtual.costs.collectives import Operation, Transfer, transfer
from unstall.virtual.costs.convolution import OTHERS, by_cudnn, by_gradient, in_one_format, without_bias
from unstall.virtual.costs.cudnn_search import is_search, search_cost
from unstall.virtual.costs.families import convolutions, describe
from unstall.virtual.costs.families.family import Work
from unstall.virtual.costs.families.indexing import timed_as
from unstall.virtual.costs.families.products import CUBLAS
from unstall.virtual.costs.gpu_file import Gpu, gpu_named
from unstall.virtual.costs.host_work import host_work_ns
from unstall.virtual.costs.model import DeviceFacts, HostCosts, Kernel, Limits, OperatorCost, Startup
from unstall.virtual.costs.no_kernel import runs_nothing
from unstall.virtual.costs.piece import Piece
from unstall.virtual.costs.pieces import pieces
from unstall.virtual.costs.prediction import (
    PieceCost,
    Predictor,
    interpolated,
    lasting,
    multiplies_in_tf32,
    total_ns,
)
from unstall.virtual.costs.signature import Signature

_DIRECTIONS = {
    CopyDirection.HOST_TO_DEVICE: "HtoD",
    CopyDirection.DEVICE_TO_HOST: "DtoH",
    CopyDirection.DEVICE_TO_DEVICE: "DtoD",
    CopyDirection.PEER_TO_PEER: "PtoP",
}


def _in_one(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """Returns the longest of some kernels, with the time of all of them. A matrix product without a
    workspace is one kernel: there is no room for sums of parts, which a second kernel adds up.
    """
    longest = max(kernels, key=lambda kernel: kernel.duration_ns)
    return (replace(longest, duration_ns=total_ns(kernels)),)


class MeasuredCosts:
    """The costs of operators and copies on one GPU, from calls that were measured on the same or on
    another GPU.

    Args:
        gpu: The GPU whose costs are predicted.
        measured: The GPU on which the calls were measured. If `gpu` was measured, it is the same
            GPU.
    """

    def __init__(self, gpu: Gpu, measured: Gpu) -> None:
        self._gpu, self._measured = gpu, measured
        self._predictor = Predictor(gpu, measured)

    @property
    def device(self) -> DeviceFacts:
        """The device's name and memory, which programs and timelines see."""
        return self._gpu.facts

    @cached_property
    def host(self) -> HostCosts:
        """The costs of calls and of other work on the host."""
        return self._gpu.host

    @cached_property
    def limits(self) -> Limits:
        """The latencies and limits of the device."""
        return self._gpu.limits

    @cached_property
    def startup(self) -> Startup:
        """What first uses cost the host."""
        return self._gpu.startup

    @cached_property
    def _usual_host_ns(self) -> int:
        """The host time, in ns, that is taken for an operator whose host time was not measured: the
        median of the others.
        """
        known = self._measured.file.operators_host_ns.values()
        return round(statistics.median(known)) if known else 0

    @property
    def known_error(self) -> str:
        """How wrong predictions were for programs whose real times are known, as a text that reports show."""
        return self._gpu.file.known_error

    def cost(self, signature: Signature) -> OperatorCost:
        """Returns the cost of a call of an operator.

        CUDA may run a call in several pieces. An element-wise piece that was not measured takes as
        long as another element-wise operator.

        Raises:
            NotImplementedError: No call like it was measured, and it is not element-wise, or belongs to cuSOLVER or
                cuFFT.
        """
        if runs_nothing(signature):
            return OperatorCost(())
        if is_search(signature):
            return search_cost(signature)
        if not multiplies_in_tf32(self._gpu):
            signature = replace(signature, precision="ieee")
        split = self._pieces(signature)
        usual = self._put_together(signature, split, self._predictor.cost)
        if not any(piece.signature.name in convolutions.OPERATORS for piece in split):
            return usual
        fallback = self._put_together(signature, split, self._without_workspace)
        return usual if fallback.temporaries == usual.temporaries else replace(usual, fallback=fallback)

    def _put_together(
        self, signature: Signature, split: tuple[Piece, ...], piece_cost: Callable[[Signature], PieceCost]
    ) -> OperatorCost:
        """Returns the cost of a call that CUDA runs in pieces.

        Args:
            signature: The call.
            split: The pieces, in the order in which they run.
            piece_cost: A function that returns the kernels and the temporary memory of one piece.
        """
        name = signature.name.removeprefix("aten::")
        kernels: list[Kernel] = []
        temporaries: list[tuple[int, ...]] = []
        held: tuple[int, ...] = ()  # bytes that the next pass takes over
        workspaces: dict[str, int] = {}
        known: dict[int, PieceCost] = {}  # the same piece may occur many times
        for piece in split:
            if piece.ns is not None:
                known[id(piece)] = (self._predictor.kernel(f"{name}_kernel", piece.ns),), ()
            elif id(piece) not in known:
                known[id(piece)] = piece_cost(piece.signature)
                if not piece.takes_workspace:
                    known[id(piece)] = _in_one(known[id(piece)][0]), ()
            found, passes = known[id(piece)]
            if piece.zeroes:
                kernels.append(self._predictor.zeroing(piece.zeroes))
            kernels += _on_the_host(piece, found, self._gpu.host_pace) if piece.host_ns or piece.between_ns else found
            held += piece.holds
            if passes:
                temporaries += ((*held, *passes[0]), *passes[1:])
                held = ()
            if piece.takes_workspace:
                workspaces |= self._workspaces(piece.signature)
        if held:
            temporaries.append(held)
        return OperatorCost(
            lasting(tuple(kernels), self._link_ns(signature)) if kernels else (),
            0 if signature.overload == OTHERS else self._operator_ns(timed_as(signature)),
            tuple(temporaries),
            tuple(workspaces.items()),
        )

    def _link_ns(self, signature: Signature) -> int:
        """Returns how long the kernels of a call take to read and write memory of the host over the
        link, in ns.

        Reads and writes run at the same time, each at the rate of copies from or to pinned memory.
        """
        directions = CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST
        moved = zip(signature.host_bytes, directions, strict=True)
        return max((self.copy_ns(size, way, pinned=True) for size, way in moved if size), default=0)

    def guess(self, signature: Signature) -> OperatorCost:
        """Returns the cost of a call as one kernel that moves the bytes of each tensor once, at the GPU's peak rate."""
        moved = sum(tensor.distinct_bytes for tensor in (*signature.tensors, *signature.results))
        name = signature.name.partition("::")[2] or signature.name
        ns = self._predictor.roofline.ns(Work(0.0, float(moved)), "float32")
        kernel = self._predictor.kernel(f"{name}_kernel", ns)
        return OperatorCost((kernel,), self._operator_ns(name))

    def _operator_ns(self, name: str) -> int:
        """Returns the host time of the work within an operator, in ns (see `OperatorCost`)."""
        return round(self._gpu.host_pace * self._measured.file.operators_host_ns.get(name, self._usual_host_ns))

    def _pieces(self, signature: Signature) -> tuple[Piece, ...]:
        """Returns the pieces in which CUDA runs a call, in order.

        The gradients of a convolution are pieces, and so is a bias that torch adds. If torch may
        compute several gradients at once, that of the bias becomes a piece of its own if the
        measured convolution that is most like it has no bias.
        """
        apart = pieces(signature)
        last = apart[-1].signature
        described = describe(last)
        if described is None or described[0].name != "convolution":
            return apart
        if self._unlike(last)[0]:
            apart = (*apart[:-1], *in_one_format(last))
            last = apart[-1].signature
            described = describe(last)
        variant = described[1].variants[0] if described else ""
        bare = without_bias(last)
        backward = "backward" in last.name
        if backward and convolutions.has_parts(variant):
            return (*apart[:-1], *by_gradient(last))
        if not backward and convolutions.is_by_cudnn(variant):
            return (*apart[:-1], *by_cudnn(*(bare or (last,))))
        if bare is not None and backward and self._unlike(bare[0], False) < self._unlike(last, True):
            return (*apart[:-1], *map(Piece, bare))
        return apart

    def _unlike(self, signature: Signature, bias: bool | None = None) -> tuple[float, float]:
        """Returns how much a convolution differs from the measured convolution that is most like
        it.

        Args:
            signature: The convolution.
            bias: True: compare only with measured convolutions that have a bias. False: only with
                those without. None: with all.

        Returns:
            `(words, distance)`. `words` is in how many words the names of their variants differ.
            `distance` is how far apart their sizes are, in doublings. Both are infinite if there is
            no convolution to compare with.
        """
        described = describe(signature)
        table = self._predictor.tables.find(*described) if described is not None else None
        if described is None or table is None:
            return math.inf, math.inf
        if bias is not None and convolutions.with_bias(table.variant) != bias:
            return math.inf, math.inf
        asked, measured = described[1].variants[0].split(), table.variant.split()
        differ = sum(one != other for one, other in zip(asked, measured, strict=True))
        return differ, table.ask(described[1].dims, self._predictor.roofline).distance

    def _without_workspace(self, signature: Signature) -> PieceCost:
        """Returns the kernels and the temporary memory of a piece of a call if the device has no
        room for the workspace of a convolution.

        cuDNN then tries other algorithms, the ones without a workspace last. None of them is faster
        than the one that it chose first, so the kernels take at least as long as those with the
        workspace.
        """
        kernels, allocations = self._predictor.cost(signature)
        if signature.name not in convolutions.OPERATORS or not allocations:
            return kernels, allocations
        others, _ = self._predictor.cost(signature, bare=True)
        return lasting(others, total_ns(kernels)), ()

    def host_work_ns(self, signature: Signature, threads: int) -> int:
        """Returns for how long an operator on CPU tensors computes, in ns.

        Args:
            signature: The call.
            threads: The number of threads that the program set; 0 if it set none.
        """
        return host_work_ns(signature, threads, self.host)

    def transfer(self, operation: Operation, size_bytes: int, ranks: int) -> Transfer:
        """Returns how NCCL runs an operation, and how long it takes once all ranks are ready. The
        arguments are those of `collectives.chosen_way`.
        """
        device = self._gpu.file.device
        return transfer(operation, size_bytes, self._gpu.links, device.capability, ranks)

    def copy_ns(self, size_bytes: int, direction: CopyDirection, pinned: bool) -> int:
        """Returns how long a copy takes, in ns. The time is interpolated between measured sizes. A
        copy that is larger than all of them has the rate of the largest. Copies between devices that were not measured
        move at the rate of the links.

        Args:
            size_bytes: The size of the copy.
            direction: Its direction.
            pinned: Whether its host memory is pinned.
        """
        copies = self._gpu.file.copies
        of = _DIRECTIONS.get(direction, "DtoD")
        rows = [(size, ns) for at, held, size, ns in copies if at == of and (held == pinned or of in ("DtoD", "PtoP"))]
        if rows:
            return interpolated(size_bytes, rows)
        least = interpolated(0, [(size, ns) for at, _, size, ns in copies if at == "DtoD"])
        return least + round(size_bytes / self._gpu.links.bytes_per_ns)

    def _workspaces(self, signature: Signature) -> dict[str, int]:
        """Returns the bytes of the workspaces that torch gives to a matrix product, by library:
        "cublas", and also "cublaslt" if the product adds a bias. Returns an empty dict for other
        calls.
        """
        name = signature.name.removeprefix("aten::")
        if name not in CUBLAS:
            return {}
        sizes = self._gpu.file.workspaces or self._measured.file.workspaces
        lt = name == "_addmm_activation" or (name == "addmm" and len(signature.tensors[0].sizes) == 1)
        return {key: size for key, size in sizes.items() if key != "cublaslt" or lt}


def _on_the_host(piece: Piece, kernels: tuple[Kernel, ...], pace: float) -> tuple[Kernel, ...]:
    """Returns the kernels of a piece with the time before each on a host of this pace."""
    times = chain((round(pace * piece.host_ns),), repeat(round(pace * piece.between_ns)))
    return tuple(replace(kernel, host_ns=ns) for kernel, ns in zip(kernels, times, strict=False))


def costs_of(name: str) -> MeasuredCosts:
    """Returns the costs on a GPU. Raises UsageError if there is no such GPU.

    Args:
        name: The name of the GPU, or the path of its .json file.
    """
    gpu = gpu_named(name)
    return MeasuredCosts(gpu, gpu.measured)
