"""Storages on a virtual GPU that several processes share, as `torch.multiprocessing` does when it
sends CUDA tensors through queues.

The processes share the same bytes, so each sees what the others write. As on a real GPU, the
receiver of a tensor needs no more device memory, and the bytes stay allocated in the sender until
every receiver has freed them.
"""

from __future__ import annotations

import os
import struct
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

_HANDLE = struct.Struct("<qq")
"""The id of a process, and that process's descriptor of the file that has the bytes."""


class SharingShim(Protocol):
    """The functions of the shim that this module calls."""

    def share_storage(self, storage: torch.UntypedStorage) -> int:
        """Moves the bytes of a storage to a file in memory, and counts one receiver more. Returns
        this process's descriptor of the file.
        """

    def shared_storage(self, pid: int, descriptor: int, bytes: int, device: int) -> torch.UntypedStorage: ...

    def release_shared(self, pid: int, descriptor: int) -> None:
        """Counts one receiver less of the bytes in the file. `pid` is the id of the process that
        shares them, and `descriptor` that process's descriptor of the file.
        """


def share_storages(module: ModuleType, shim: SharingShim) -> None:
    """Adds to `torch.UntypedStorage` the methods by which `torch.multiprocessing` sends and
    receives CUDA storages. `module` is torch.
    """

    def share(self: torch.UntypedStorage) -> tuple[Any, ...]:
        """Returns the arguments with which the receiving process calls `_new_shared_cuda`."""
        size = self.nbytes()
        handle = _HANDLE.pack(os.getpid(), shim.share_storage(self)) if size else None
        return self.device.index, handle, size, 0, handle, 0, b"", False

    def receive(
        cls: type[torch.UntypedStorage], device: int, handle: bytes, size: int, *rest: object
    ) -> torch.UntypedStorage:
        pid, descriptor = _HANDLE.unpack(handle)
        return shim.shared_storage(pid, descriptor, size, device)

    def release(cls: type[torch.UntypedStorage], counter: bytes | None, offset: int) -> None:
        if counter is not None:
            pid, descriptor = _HANDLE.unpack(counter)
            shim.release_shared(pid, descriptor)

    storage = module.UntypedStorage
    storage._share_cuda_ = share
    storage._new_shared_cuda = classmethod(receive)
    storage._release_ipc_counter_cuda = classmethod(release)
