"""`torch.cuda.memory._record_memory_history`: an entry for each thing that the allocator does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from unstall.virtual.allocator.kept_stacks import Context
from unstall.virtual.torch_cuda.runtime import Runtime
from unstall.virtual.torch_cuda.streams import stream_pointer

if TYPE_CHECKING:
    from unstall.virtual.allocator.segments import TraceEntry

OUT_OF_MEMORY = "oom"
ACTIONS = {
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    OUT_OF_MEMORY,
}


class MemoryHistory:
    """torch's history of the allocator: whether it is recorded, which actions it leaves out, and
    its entries, with the Python frames that made them.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._enabled = False
        self._skipped: frozenset[str] = frozenset()
        self._metadata = ""

    def entries(self, device: int) -> list[dict[str, object]]:
        """Returns the entries of a device, in the form that a memory snapshot has under
        `device_traces`. Returns [] unless the history is recorded.
        """
        if not self._enabled:
            return []
        with self._runtime.simulator.simulated() as simulation:
            entries = simulation.requests.history(device)
        return [self._entry(device, entry) for entry in entries if entry.action not in self._skipped]

    def frames(self, stack: int) -> list[dict[str, object]]:
        """Returns the frames of a stack that the history keeps, in the form of a memory snapshot; [] for -1."""
        return self._runtime.simulator.frames(stack) if stack >= 0 else []

    def names(self) -> dict[str, object]:
        """Returns the functions of `torch._C` for the history of the allocator, as `{name: function}`."""
        return {
            "_cuda_allocationTraceback": lambda _pointer: None,
            "_cuda_getMemoryMetadata": lambda: self._metadata,
            "_cuda_isHistoryEnabled": lambda: self._enabled,
            "_cuda_record_memory_history": self._record,
            "_cuda_record_memory_history_legacy": self._record_legacy,
            "_cuda_setMemoryMetadata": self._set_metadata,
        }

    def _record(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = sys.maxsize,
        clear_history: bool = False,
        compile_context: bool = False,
        global_record_annotations: bool = False,
        skip_actions: list[str] | None = None,
    ) -> None:
        if enabled not in (None, "state", "all"):
            raise RuntimeError("expected state to be 'state', 'all', or None")
        if context not in (None, "state", "alloc", "all"):
            raise RuntimeError("expected context to be 'state', 'alloc', 'all', or None")
        unknown = set(skip_actions or ()) - ACTIONS
        if unknown:
            raise ValueError(f"Unknown trace action {sorted(unknown)[0]!r}")
        with self._runtime.simulator.simulated() as simulation:
            kept = Context[context.upper()] if enabled is not None and context is not None else Context.NEVER
            simulation.requests.record_history(max_entries if enabled == "all" else None, kept)
        self._enabled = enabled is not None
        self._skipped = frozenset(skip_actions or ())

    def _record_legacy(self, enabled: bool, _context: bool = True, max_entries: int = 1, *_rest: object) -> None:
        self._record("all" if enabled else None, max_entries=max_entries)

    def _set_metadata(self, metadata: str) -> None:
        self._metadata = metadata

    def _entry(self, device: int, entry: TraceEntry) -> dict[str, object]:
        address = "device_free" if entry.action == OUT_OF_MEMORY else "addr"
        return {
            "action": entry.action,
            address: entry.address,
            "size": entry.size,
            "stream": stream_pointer(device, entry.stream),
            "frames": self.frames(entry.stack),
        }
