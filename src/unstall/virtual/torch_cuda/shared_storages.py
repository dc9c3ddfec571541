"""Storages of a virtual GPU that several processes use, as `torch.multiprocessing` sends CUDA tensors through queues.

The processes have the same bytes, so each sees what another writes. As on a real GPU, a tensor that is sent costs its
receiver no device memory, and the sender's bytes stay until every receiver has freed them.
"""

from __future__ import annotations

import os
import struct
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

_HANDLE = struct.Struct("<qq")
"""(process, its file descriptor of the bytes)"""


class SharingShim(Protocol):
    """The methods of the shim that this module uses."""

    def share_storage(self, storage: torch.UntypedStorage) -> int:
        """Moves the storage's bytes to a file in memory, and counts one more receiver of them. Returns the file's
        descriptor in this process.
        """

    def shared_storage(self, pid: int, descriptor: int, bytes: int, device: int) -> torch.UntypedStorage: ...

    def release_shared(self, pid: int, descriptor: int) -> None:
        """Counts one receiver less for the bytes of this file."""


def share_storages(module: ModuleType, shim: SharingShim) -> None:
    """Adds the methods of `torch.UntypedStorage` by which `torch.multiprocessing` sends and receives CUDA storages."""

    def share(self: torch.UntypedStorage) -> tuple[Any, ...]:
        """Returns the arguments of `_new_shared_cuda` in the process that receives the storage."""
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
