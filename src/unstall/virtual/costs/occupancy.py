"""How much room the thread blocks of a kernel fill on a multiprocessor, by the kernel's name.

A multiprocessor has a limited number of threads, registers and bytes of shared memory (CUDA C++ Programming Guide,
"Technical Specifications per Compute Capability"). Threads, registers and shared memory of the kernels are from traces
of an H200 in `examples/transformers/recorded`, which have them for each launch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from unstall.replay.program import WHOLE
from unstall.timeline.columns import DeviceKind
from unstall.virtual.costs.kernel_names import needed_capability
from unstall.virtual.costs.model import Kernel

MOST = 1 << 30
"""The largest figure in thousandths that the replay engine takes."""
ADDS_PARTS = re.compile(r"split_k_kernel|splitKreduce")
"""The kernel after a product whose thread blocks sum parts of the same results."""
_BLOCKS_OF_PARTS = 2
"""Thread blocks for each multiprocessor in products whose blocks sum parts: 1.8 to 2.0 in three of four products in
traces of an H200.
"""
_REGISTERS = 65_536
_MOST_BLOCKS = 32
_WARP = 32
_RESERVED_BYTES = 1 << 10
"""The shared memory that CUDA reserves for each block (since Ampere)."""
_SHARED_KIB = {(7, 5): 64, (8, 0): 164, (8, 6): 100, (8, 9): 100, (9, 0): 228}
_THREADS = {(7, 5): 1_024, (8, 6): 1_536, (8, 9): 1_536, (12, 0): 1_536}
"""Maximum number of threads per multiprocessor, by compute capability. For all other capabilities, it is 2,048."""
_TILE = re.compile(r"(?:tilesize|tst_|sgemm_|_bf16_|_f16_)(\d+)x(\d+)(?:x|_)(\d+)x?(\d*)")


class Block(NamedTuple):
    """What a thread block uses of its multiprocessor. `registers` are those of each thread."""

    threads: int
    registers: int
    shared_bytes: int = 0


_BLOCKS = {
    r"nvjet_sm90|sm90_\w*wgmma": Block(384, 168, 213_460),
    r"split_k_kernel": Block(128, 72, 8_704),
    r"gemm\w*tilesize32x32x8": Block(64, 80, 6_912),
    r"gemm\w*tilesize64x64x8": Block(128, 121, 12_672),
    r"gemm\w*tilesize(128x64|64x128)x8": Block(128, 224, 18_816),
    r"gemm\w*tilesize128x256x8": Block(256, 254, 66_560),
    r"simt_sgemm_256x128": Block(256, 202, 49_152),
    r"simt_sgemm_128x128": Block(128, 202, 32_768),
    r"simt_sgemm_128x64": Block(128, 120, 30_720),
    r"simt_sgemm_128x32": Block(128, 80, 25_600),
    r"simt_sgemm_64x64": Block(128, 74, 20_480),
    r"tensorop_bf16_s16816fprop\w*128x128_32x5": Block(128, 242, 81_920),
    r"fprop_implicit_gemm_tf32\w*tilesize64x32x64_stage5": Block(128, 0, 5 * (64 + 32) * 64 * 4),
    r"fprop_implicit_gemm_tf32\w*tilesize128x64x32_stage5": Block(128, 0, 5 * (128 + 64) * 32 * 4),
    r"fmha_cutlassF_f32": Block(128, 168, 36_352),
    r"fmha_cutlassB_f32": Block(128, 232, 53_504),
    r"cunn_SoftMaxForward": Block(1_024, 32, 128),
    r"softmax_warp_forward<\w+, \w+, \w+, 10\b": Block(128, 52),
    r"softmax_warp_forward": Block(128, 32),
    r"layer_norm_kernel": Block(128, 39, 24),
    r"nchwToNhwcKernel": Block(256, 32, 2_112),
    r"nhwcToNchwKernel": Block(256, 36, 2_112),
    r"reduce_kernel<512, 1": Block(512, 32, 16),
    r"elementwise_kernel": Block(128, 32),
}


def size_of(kernel: str, capability: tuple[int, int]) -> int | None:
    """Returns the thousandths of a multiprocessor that a thread block fills, or None if that is unknown."""
    block = next((block for pattern, block in _BLOCKS.items() if re.search(pattern, kernel)), None)
    if block is None:
        return None
    registers = -(-block.registers // 8) * 8 * block.threads
    shared = block.shared_bytes + _RESERVED_BYTES if block.shared_bytes else 0
    fractions = (
        1 / _MOST_BLOCKS,
        block.threads / threads_on(capability),
        registers / _REGISTERS,
        shared / ((_SHARED_KIB.get(capability) or 100) << 10),
    )
    return max(1, min(int(WHOLE * max(fractions)), WHOLE))


def threads_on(capability: tuple[int, int]) -> int:
    """Returns the largest number of threads on a multiprocessor."""
    return _THREADS.get(capability, 2_048)


def tile_of(kernel: str) -> tuple[int, int] | None:
    """Returns the results that a thread block of a matrix product or a convolution computes, as (rows, columns)."""
    found = _TILE.search(kernel)
    return (int(found[1]), int(found[2])) if found else None


def with_blocks(
    kernels: tuple[Kernel, ...],
    blocks_of: Callable[[str], int],
    capability: tuple[int, int],
    multiprocessors: int,
    floor_ns: float,
    unknown_size: int | None,
) -> tuple[Kernel, ...]:
    """Returns the kernels of a call with their thread blocks.

    Args:
        kernels: The kernels, with the names of the GPU that was measured.
        blocks_of: A function from the name of a kernel to the number of its blocks, or 0 if that is unknown.
        capability: The GPU's compute capability. It cannot run kernels of later GPUs: those have no name here.
        multiprocessors: The GPU's number of multiprocessors.
        floor_ns: The time of an empty kernel. After its last block was given out, a kernel of several waves leaves the
            device to others for at most this time.
        unknown_size: The size of a block if it is unknown. None leaves the kernel as it is.
    """
    in_parts = any(ADDS_PARTS.search(kernel.name) for kernel in kernels)

    def placed(kernel: Kernel) -> Kernel:
        name = kernel.name if needed_capability(kernel.name) <= capability else ""
        size = size_of(name, capability) or unknown_size
        count = blocks_of(name)
        if kernel.kind is not DeviceKind.KERNEL or size is None or not count:
            return kernel
        if in_parts and not ADDS_PARTS.search(name):
            count *= max(_BLOCKS_OF_PARTS * multiprocessors // count, 1)
        blocks = min(-(-count * WHOLE // multiprocessors), MOST)
        later_waves = max(1 - WHOLE // size * WHOLE / blocks, 0.0)
        tail_ns = round(min(floor_ns, kernel.duration_ns) * later_waves)
        return replace(kernel, blocks=blocks, size=size, tail_ns=tail_ns)

    return tuple(map(placed, kernels))
