"""How the kernels of operators on rows divide their work among threads.

Sources: torch's SoftMax.cu and PersistentSoftmax.cuh, ScanKernels and Sorting in ATen/native/cuda, and
Normalization.cuh. The weights of all figures are those with which each measured call, left out in turn, was predicted
best: layer norms were off by 6.8 % on average instead of 9.0, softmax by 13 instead of 19, scans by 21 instead of 25,
sorting by 18 instead of 24, and batch norms by 15 instead of 17.
"""

from __future__ import annotations

import math

from unstall.virtual.costs.families.powers import below_power, halvings, power_within

THREADS, _FEW_THREADS = 1_024, 512
"""How many threads a block of a softmax or a layer norm has at most, and how many one of a scan or a batch norm."""
WIDTH_OF_WARPS = 1_024
"""The largest width of a row that one warp of a softmax computes."""
_NARROW = 64
"""Up to so many elements between two of a row, and from so many in a row, threads of a softmax share rows."""
_SORTED_AT_ONCE = 4_096
"""The largest number of elements that one thread block sorts."""
_UNSIGNED = 1 << 32
_STEPS, _MOST_BLOCKS, _FEW_BLOCKS = 16, 128, 8
"""Limits of batch norms with channels last. A thread has `_STEPS` rows. Up to `_MOST_BLOCKS` blocks share the rows of
some channels; if they would be fewer than `_FEW_BLOCKS`, one block has them all.
"""
_OTHER_KERNELS = 3.0
"""How far apart calls are that other kernels compute, in doublings."""


def geometry(variant: str, dims: tuple[int, ...], multiprocessors: int) -> tuple[float, ...]:
    """Returns coordinates of a call (see `Family.geometry`).

    Args:
        variant: The variant of the call (see `CallShape`).
        dims: The number of rows, their width, and the number of elements between two elements of a row.
        multiprocessors: The number of multiprocessors of the GPU.
    """
    rows, width, inner = dims
    name = variant.partition(" ")[2]
    if "softmax" in name:
        return _softmax(rows, width, inner, multiprocessors)
    if "layer_norm" in name or "rms_norm" in name:
        return 1.5 * below_power(width), 1.5 * below_power(rows)
    if name.startswith(("cumsum", "cumprod")):
        return of_scan(rows, width, inner, multiprocessors)
    if "sort" in name or name.startswith("topk"):
        whole = width <= _SORTED_AT_ONCE
        return math.log2(width), below_power(width) if whole else 0.0, 0.0 if whole else _OTHER_KERNELS
    if "batch_norm" in name:
        return _batch_norm(name, rows, width, inner, multiprocessors)
    return (math.log2(rows),) if name.startswith("nll_loss") else ()


def _softmax(rows: int, width: int, inner: int, multiprocessors: int) -> tuple[float, ...]:
    """A warp computes a power of two of elements, at least as many as a short row has. Longer rows have a block each,
    whose threads read up to 16 bytes at once. Rows whose elements are apart are computed side by side.
    """
    if inner == 1 and width <= WIDTH_OF_WARPS:
        return 2 * below_power(width), 0.0, 0.0
    if inner == 1:
        return below_power(width), 0.5 * halvings(width, 3), _OTHER_KERNELS
    across, along = min(inner, THREADS), 1
    if across <= _NARROW <= width:
        along = power_within(min(THREADS // across, width))
    blocks = rows * -(-inner // across)
    return (
        math.log2(width / along),
        math.log2(blocks / multiprocessors),
        0.5 * math.log2(across * along / THREADS),
    )


def of_scan(rows: int, width: int, inner: int, multiprocessors: int) -> tuple[float, ...]:
    """A thread scans a row whose elements are apart by itself. Else some threads of a block share a row, two elements
    each at a time: the more, the longer rows are, compared with their number. A single row has other kernels.
    """
    if inner > 1:
        return 0.0, 0.5 * math.log2(rows * -(-inner // _FEW_THREADS) / multiprocessors), 0.0
    if rows == 1:
        return 0.0, 0.0, 2 * _OTHER_KERNELS
    longer = (width - 1).bit_length() - (rows - 1).bit_length()
    half = (_FEW_THREADS.bit_length() - 1 + longer) % _UNSIGNED // 2  # below zero, torch's number comes round
    threads = 1 << min(max(half, 4), 9)
    blocks = -(-rows // (_FEW_THREADS // threads))
    steps = -(-width // (2 * threads))
    return math.log2(steps), math.log2(blocks / multiprocessors), 0.5 * math.log2(threads)


def _batch_norm(name: str, images: int, channels: int, inner: int, multiprocessors: int) -> tuple[float, ...]:
    """In training, a block computes the mean of one channel. With channels last, a block has several channels, and
    blocks may share their rows.
    """
    if "frozen" in name and "nhwc" not in name:
        return 0.5 * math.log2(images * channels * inner), 0.5 * halvings(inner, 2), 0.0
    if "nhwc" in name:
        rows = images * inner
        wide = power_within(min(channels, 32))
        high = min(power_within(-(-rows // _STEPS)), _FEW_THREADS // wide)
        wide = power_within(min(channels, _FEW_THREADS // high))
        sharing = min(-(-rows // (high * _STEPS)), _MOST_BLOCKS)
        sharing = sharing if sharing >= _FEW_BLOCKS else 1
        blocks = -(-channels // wide) * sharing
        return math.log2(rows / (high * sharing)), math.log2(blocks / multiprocessors), 0.5 * halvings(channels, 4)
    threads = next((count for count in (32, 64, 128, 256) if inner <= count), _FEW_THREADS)
    steps = -(-inner // threads) * -(-images // (_FEW_THREADS // threads))
    rounds = -(-channels // multiprocessors) * multiprocessors / channels
    return math.log2(steps), 2 * math.log2(rounds), math.log2(channels / multiprocessors)
