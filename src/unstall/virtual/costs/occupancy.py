"""Finds how much of a multiprocessor the thread blocks of a kernel fill.

The number of threads, registers and bytes of shared memory of a multiprocessor is limited (CUDA C++
Programming Guide, "Technical Specifications per Compute Capability"). What the kernels use of them
is measured with their times. For a kernel of which it was not, it follows from the name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from unstall.replay.program import WHOLE
from unstall.timeline.columns import DeviceKind
from unstall.virtual.costs.kernel_names import needed_capability
from unstall.virtual.costs.model import Kernel

MOST = 1 << 30
"""The largest figure, in thousandths, that the replay engine takes."""
ADDS_PARTS = re.compile(r"split_k_kernel|splitKreduce")
"""Matches the kernel that follows a matrix product in which several thread blocks sum parts of the
same results. It adds these parts up.
"""
_MULTIPLIES = re.compile(
    r"gemm|nvjet|fprop|dgrad|wgrad|sdpa|flash|fmha|cutlass|xmma(?!.*init_device)|splitKreduce|grouped_direct|conv2d_c1|"
    r"convolve_common"
)
"""Matches the kernels of products, convolutions and attention that compute. Others of these move memory, such as those
that transpose images, and depthwise convolutions.
"""
COMPUTES = re.compile(r"ffma|simt_sgemm")
"""Matches the matrix products in float32 without tensor cores."""
_BLOCKS_OF_PARTS = 2
"""How many thread blocks per multiprocessor a matrix product has if its blocks sum parts of the
same results. It was 1.8 to 2.0 in three of four such products in traces of an H200.
"""
_REGISTERS = 65_536
_MOST_BLOCKS = 32
_WARP = 32
_RESERVED_BYTES = 1 << 10
"""How much shared memory CUDA reserves for each thread block (since Ampere)."""
_SHARED_KIB = {(7, 5): 64, (8, 0): 164, (8, 6): 100, (8, 9): 100, (9, 0): 228}
_THREADS = {(7, 5): 1_024, (8, 6): 1_536, (8, 9): 1_536, (12, 0): 1_536}
"""The maximum number of threads on a multiprocessor, by compute capability. It is 2,048 for all others."""
_TILE = re.compile(r"(?:tilesize|[th]s[tsh]_|gemm_|_bf16_|_f16_)(\d+)x(\d+)")


class Block(NamedTuple):
    """What a thread block uses of its multiprocessor.

    Attributes:
        threads: The number of its threads.
        registers: The number of registers of each thread.
        shared_bytes: Its shared memory.
    """

    threads: int
    registers: int
    shared_bytes: int = 0


UNKNOWN = Block(0, 0)


class Launch(NamedTuple):
    """How a kernel is launched.

    Attributes:
        blocks: The number of its thread blocks, 0 if it is unknown.
        block: What each of them uses; `UNKNOWN` if it is unknown.
    """

    blocks: int
    block: Block


_BLOCKS = {
    r"nvjet_sm90|sm90_\w*wgmma": Block(384, 168, 213_460),
    r"split_k_kernel": Block(128, 72, 8_704),
    r"gemm\w*tilesize32x32x8": Block(64, 80, 6_912),
    r"gemm\w*tilesize(64x32|32x64)x8": Block(64, 126, 9_984),
    r"gemm\w*tilesize64x64x8": Block(128, 121, 12_672),
    r"gemm\w*tilesize(128x32|32x128)x8": Block(128, 126, 16_128),
    r"gemm\w*tilesize(128x64|64x128)x8": Block(128, 224, 18_816),
    r"gemm\w*tilesize(128x128|256x64|64x256)x8": Block(128, 255, 33_792),
    r"gemm\w*tilesize(128x256|256x128)x8": Block(256, 254, 66_560),
    r"simt_sgemm_(256x128|128x256)": Block(256, 202, 49_152),
    r"simt_sgemm_128x128": Block(128, 202, 32_768),
    r"simt_sgemm_(128x64|64x128)": Block(128, 120, 30_720),
    r"simt_sgemm_(128x32|32x128)": Block(128, 80, 25_600),
    r"simt_sgemm_64x64": Block(128, 74, 20_480),
    r"tensorop_bf16_s16816fprop\w*128x128_32x5": Block(128, 242, 81_920),
    r"fprop_implicit_gemm_tf32\w*tilesize64x32x64_stage5": Block(128, 0, 5 * (64 + 32) * 64 * 4),
    r"fprop_implicit_gemm_tf32\w*tilesize128x64x32_stage5": Block(128, 0, 5 * (128 + 64) * 32 * 4),
    r"fmha_cutlassF_f32": Block(128, 168, 36_352),
    r"fmha_cutlassB_f32": Block(128, 232, 53_504),
    r"nchwToNhwcKernel": Block(256, 32, 2_112),
    r"nhwcToNchwKernel": Block(256, 36, 2_112),
}


def usual_block(kernel: str) -> Block:
    """Returns what a thread block of a kernel usually uses, by the name of the kernel; `UNKNOWN` if that is unknown.
    The figures are from traces of an H200 in `examples/transformers/recorded`.
    """
    return next((block for pattern, block in _BLOCKS.items() if re.search(pattern, kernel)), UNKNOWN)


def size_of(block: Block, capability: tuple[int, int]) -> int:
    """Returns how much of a multiprocessor's room for thread blocks a block fills, in thousandths.

    Args:
        block: The block.
        capability: The compute capability of the GPU.
    """
    warps = -(-block.threads // _WARP)
    registers = -(-block.registers // 8) * 8 * _WARP * warps
    shared = block.shared_bytes + _RESERVED_BYTES if block.shared_bytes else 0
    fractions = (
        1 / _MOST_BLOCKS,
        warps * _WARP / threads_on(capability),
        registers / _REGISTERS,
        shared / ((_SHARED_KIB.get(capability) or 100) << 10),
    )
    return max(1, min(int(WHOLE * max(fractions)), WHOLE))


@lru_cache(maxsize=8192)
def at_once(kernel: str) -> int:
    """Returns how many thread blocks of a kernel fit on a multiprocessor of an H200. Returns 0 if that is unknown."""
    block = usual_block(kernel)
    return WHOLE // size_of(block, (9, 0)) if block != UNKNOWN else 0


def threads_on(capability: tuple[int, int]) -> int:
    """Returns how many threads fit on a multiprocessor of a GPU with this compute capability."""
    return _THREADS.get(capability, 2_048)


@lru_cache(maxsize=8192)
def tile_of(kernel: str) -> tuple[int, int] | None:
    """Returns `(rows, columns)` of the part of the result that a thread block of a matrix product
    or a convolution computes, as the name of the kernel tells. Returns None if the name does not
    tell.
    """
    found = _TILE.search(kernel)
    return (int(found[1]), int(found[2])) if found else None


def _share(rate: int, blocks: int, size: int, duration_ns: int, floor_ns: float) -> int:
    """Returns how much of the device a kernel uses by rule, in thousandths (see `Kernel`). While it starts and ends, it
    leaves the device to others. In between it uses it at the rate at which it works, or as far as its blocks fill the
    room for blocks.

    Args:
        rate: The rate at which it works, in thousandths of the best.
        blocks: The number of its blocks per multiprocessor, in thousandths; 0 if it is unknown.
        size: The size of a block, in thousandths of a multiprocessor.
        duration_ns: How long it takes.
        floor_ns: How long an empty kernel takes.
    """
    filled = min(blocks / (WHOLE // size), WHOLE)
    starting = floor_ns / duration_ns
    return max(round(rate * max(1 - starting / 2, 0.0)), round(filled * max(1 - starting, 0.0)), 1)


def with_blocks(
    kernels: tuple[Kernel, ...],
    blocks_of: Callable[[str], int],
    launches: Sequence[Launch],
    capability: tuple[int, int],
    multiprocessors: int,
    floor_ns: float,
    of_products: bool,
) -> tuple[Kernel, ...]:
    """Returns the kernels of a call with the number and the size of their thread blocks, and the share of the device
    that they use. Of a kernel, the blocks are unchanged if either is unknown.

    If thread blocks sum parts of the same results, the measured number counts, as no rule tells that of the parts.

    Args:
        kernels: The kernels, with their names on the GPU that was measured.
        blocks_of: A function of the name of a kernel that returns the number of its blocks, or 0 if
            it is unknown. The name is "" for a kernel that the GPU cannot run.
        launches: How each kernel is launched on the GPU that was measured.
        capability: The compute capability of the GPU.
        multiprocessors: The number of multiprocessors of the GPU.
        floor_ns: How long an empty kernel takes.
        of_products: Whether the call is a product, a convolution or attention. A block of unknown size
            of its kernels that compute is taken to fill a multiprocessor.
    """
    in_parts = any(ADDS_PARTS.search(kernel.name) for kernel in kernels)

    def placed(kernel: Kernel, launch: Launch) -> Kernel:
        runs = needed_capability(kernel.name) <= capability
        name = kernel.name if runs else ""
        block = launch.block if runs and launch.block != UNKNOWN else usual_block(name)
        multiplies = of_products and _MULTIPLIES.search(kernel.name)
        told, measured = blocks_of(name), launch.blocks if runs else 0
        sums_parts = in_parts and multiplies
        count = measured or told if sums_parts else told or measured
        unknown = block == UNKNOWN and not multiplies
        if kernel.kind is not DeviceKind.KERNEL or not kernel.duration_ns:
            return kernel
        if unknown or not count:
            return replace(kernel, share=_share(kernel.share, 0, 1, kernel.duration_ns, floor_ns))
        size = WHOLE if block == UNKNOWN else size_of(block, capability)
        if sums_parts and not measured and not ADDS_PARTS.search(name):
            count *= max(_BLOCKS_OF_PARTS * multiprocessors // count, 1)
        blocks = min(-(-count * WHOLE // multiprocessors), MOST)
        share = _share(kernel.share, blocks, size, kernel.duration_ns, floor_ns)
        return replace(kernel, blocks=blocks, size=size, share=share)

    return tuple(map(placed, kernels, launches))
