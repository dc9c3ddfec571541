"""The error of the modelled allocator for a device whose memory is full, with torch's message."""

from __future__ import annotations

ADVICE = (
    " If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid"
    " fragmentation.  See documentation for Memory Management "
    " (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
"""The last sentences of torch's message."""


class OutOfMemoryError(RuntimeError):
    """Raised when the memory of a virtual device is full. It stands for `torch.OutOfMemoryError`."""


def out_of_memory_message(
    *,
    device: int,
    tried: int,
    total: int,
    free: int,
    allowed: int | None,
    allocated: int,
    reserved: int,
    in_private_pools: int,
) -> str:
    """Returns torch's message for a request that did not fit into the device's memory. Sizes are in
    bytes.

    Args:
        device: The device's index.
        tried: The size of the request.
        total: The size of the device's memory.
        free: The size of its free part.
        allowed: How much the process may use; None if there is no limit.
        allocated: The size of all allocated blocks.
        reserved: How much the allocator has reserved from the driver.
        in_private_pools: The size of all free blocks in private pools of CUDA graphs.
    """
    allowed_text = "" if allowed is None else f"{format_size(allowed)} allowed; "
    private_text = (
        f"with {format_size(in_private_pools)} allocated in private pools (e.g., CUDA Graphs), "
        if in_private_pools
        else ""
    )
    return (
        f"CUDA out of memory. Tried to allocate {format_size(tried)}. GPU {device} has a total capacity of"
        f" {format_size(total)} of which {format_size(free)} is free. Including non-PyTorch memory, this process has"
        f" {format_size(total - free)} memory in use. {allowed_text}Of the allocated memory"
        f" {format_size(allocated + in_private_pools)} is allocated by PyTorch, {private_text}and"
        f" {format_size(reserved - allocated - in_private_pools)} is reserved by PyTorch but unallocated.{ADVICE}"
    )


def format_size(size: int) -> str:
    """Returns a size in bytes as torch writes it: "512 bytes", "20.00 MiB"."""
    if size <= 1 << 10:
        return f"{size} bytes"
    for unit, power in (("KiB", 10), ("MiB", 20)):
        if size <= 1 << power + 10:
            return f"{size / (1 << power):.2f} {unit}"
    return f"{size / (1 << 30):.2f} GiB"
