"""The CUDA graphs of torch: `_CUDAGraph` and its memory pools, with the errors of ATen/cuda/CUDAGraph.cpp."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from unstall.virtual.allocator.blocks import PoolId, pool_number
from unstall.virtual.torch_cuda.cuda_errors import NotSupportedError, cuda_error, refusing
from unstall.virtual.torch_cuda.runtime import Runtime

if TYPE_CHECKING:
    import torch

NO_POOL: PoolId = (0, 0)
MODES = ("global", "thread_local", "relaxed")
ILLEGAL_STATE = "the operation cannot be performed in the present state"
EMPTY = (
    "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong device or stream."
)


def graph_names(runtime: Runtime) -> dict[str, object]:
    """Returns the functions and classes of `torch._C` for CUDA graphs on a virtual GPU, as `{name: value}`."""
    torch_c, shim, captures = runtime.torch_c, runtime.shim, runtime.captures
    numbers = itertools.count(1)
    own_pools = itertools.count(1)
    shared_pools = itertools.count(1)

    class CudaGraph:
        """A CUDA graph, with the methods of torch's `_CUDAGraph`."""

        _keep_graph: bool = False
        _debug: bool = False
        _number: int = 0
        _pool: PoolId = NO_POOL
        _device: int = 0
        _began_on: tuple[int, int] | None = None
        _captured: bool = False
        _instantiated: bool = False
        _release: Callable[[], object] | None = None

        def __new__(cls, keep_graph: bool = False, **_keywords: object) -> Self:
            graph = super().__new__(cls)
            graph._keep_graph = bool(keep_graph)
            return graph

        def capture_begin(self, pool: PoolId | None = None, capture_error_mode: str = "global") -> None:
            if self._instantiated:
                raise RuntimeError(
                    "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new"
                    " instance."
                )
            if capture_error_mode not in (*MODES, "default"):
                raise RuntimeError(
                    "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got"
                    f" {capture_error_mode}"
                )
            device, stream = runtime.current_stream()
            if stream == 0:
                raise RuntimeError(
                    "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay"
                    " them on the default stream.)"
                )
            if shim.is_capturing(device, stream):
                raise cuda_error(torch_c, ILLEGAL_STATE, "cudaStreamBeginCapture")
            self._number = next(numbers)
            self._pool = (pool[0], pool[1]) if pool is not None and any(pool) else (next(own_pools), 0)
            self._began_on = device, stream
            shim.capture_begin(self._number, device, stream, pool_number(self._pool), capture_error_mode)
            captures.running.add(self._number)

        def capture_end(self) -> None:
            if self._began_on is None:
                raise cuda_error(torch_c, ILLEGAL_STATE, "cudaStreamEndCapture")
            if self._began_on != runtime.current_stream():
                raise RuntimeError("Capture must end on the same stream it began on.")
            self._device = self._began_on[0]
            self._began_on = None
            captures.running.discard(self._number)
            try:
                shim.capture_end(self._number)
            except Exception:
                shim.free_graph(self._number)
                raise
            if runtime.graph_is_empty(self._number):
                warnings.warn(EMPTY, UserWarning, stacklevel=2)
            self._captured = True
            release = weakref.finalize(self, shim.free_graph, self._number)
            release.atexit = False
            self._release = release
            self._instantiated = not self._keep_graph

        def instantiate(self) -> None:
            if not self._captured:
                raise RuntimeError("capture_end() must have been called before calling instantiate")
            if self._instantiated and not self._keep_graph:
                raise RuntimeError("instantiate() is intended to be called by the user only when keep_graph=true")
            self._instantiated = True

        def replay(self) -> None:
            if not self._captured:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            runtime.refuse_in_capture("cudaGraphLaunch of a graph that is captured")
            self._instantiated = True
            shim.replay(self._number, self._device, shim.current_stream(self._device))

        def reset(self) -> None:
            if self._release is not None:
                self._release()
            self._release = None
            self._captured = self._instantiated = False

        def pool(self) -> PoolId:
            if not self._captured:
                raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
            return self._pool

        def register_generator_state(self, _generator: torch.Generator) -> None:
            """Does nothing: a random number generator of a virtual device gives new numbers in each
            replay, registered or not.
            """

        def enable_debug_mode(self) -> None:
            self._debug = True

        def debug_dump(self, _debug_path: str) -> None:
            if self._debug or self._keep_graph:
                raise NotSupportedError("torch.cuda.CUDAGraph.debug_dump")
            warnings.warn(
                "CUDA Graphs debug not enabled, set with [graph].enable_debug_mode()", UserWarning, stacklevel=3
            )

        def raw_cuda_graph(self) -> int:
            if not self._keep_graph:
                raise RuntimeError(
                    "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with"
                    " keep_graph=true"
                )
            raise NotSupportedError("torch.cuda.CUDAGraph.raw_cuda_graph")

        raw_cuda_graph_exec = refusing("torch.cuda.CUDAGraph.raw_cuda_graph_exec")
        begin_capture_to_if_node = refusing("control flow in a torch.cuda.CUDAGraph")
        end_capture_to_conditional_node = refusing("control flow in a torch.cuda.CUDAGraph")
        set_conditional_handle = staticmethod(refusing("control flow in a torch.cuda.CUDAGraph"))
        get_currently_capturing_graph = staticmethod(refusing("torch.cuda.CUDAGraph.get_currently_capturing_graph"))

    CudaGraph.__name__ = CudaGraph.__qualname__ = "_CUDAGraph"
    CudaGraph.__module__ = "torch._C"
    return {
        "_CUDAGraph": CudaGraph,
        "_acceleratorGraph": CudaGraph,
        "_cuda_isCurrentStreamCapturing": lambda: bool(shim.is_capturing(*runtime.current_stream())),
        "_graph_pool_handle": lambda: (0, next(shared_pools)),
    }
