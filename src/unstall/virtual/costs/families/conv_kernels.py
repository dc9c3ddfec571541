"""What the names of a convolution's kernels tell: its passes, its algorithm, what its workspace holds.

cuDNN asks for one workspace for each pass: for the output, for the gradient of the input, for that
of the weight. It holds copies of tensors in another layout: a kernel before the product brings each
factor from NCHW to NHWC, say, and one after it brings the result back. Such a copy has more channels
if they must be a multiple of 16 bytes; a memset fills them. It also holds what the algorithm keeps:
transforms, or partial sums of products that several thread blocks share. All of this was measured on
an H100, by benchmarks/conv_workspaces.py: the copies and the transforms are exact, the sums are not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, takewhile
from math import ceil, sqrt

import numpy as np

from unstall.virtual.costs.families.family import Measured, item_bytes

_TURNS = re.compile("nchwToNhwc|nhwcToNchw|tensorTransformGeneric|convertTensor_kernel|genericTranspose_kernel")
_PREPARES = re.compile("^Memset|init_device_workspace|scalePackedTensor|elementwise_kernel")
_COPY = re.compile("elementwise_kernel")
_BEGINS = re.compile(f"{_TURNS.pattern}|^Memset|init_device_workspace")
_ENDS = re.compile(f"{_TURNS.pattern}|splitKreduce|ReduceSplitK|split_k_kernel")
_TILE = re.compile(r"tilesize(\d+)x(\d+)x(\d+)|_(\d+)x(\d+)_(\d+)x\d+_n|GemmShapeILi(\d+)ELi(\d+)ELi(\d+)")
_WINOGRAD = re.compile(r"winograd\w+?([49])x[49]")
_FFT = re.compile(r"fft2d_r2c_(\d+)x|regular_fft_pad")
_FFT_PART = re.compile(r"fft2d|_fft|flip_filter|region_transform|gemm_cf32")
_FFT_END = re.compile("fft2d_c2r|regular_fft_clip")
_PER_IMAGE, _STREAM_K, _SPLIT_K = (re.compile(each) for each in ("reduce_wgrad_nchw", "segment_k_on", "ReduceSplitK"))
_ALGORITHMS = (_WINOGRAD, _FFT, _PER_IMAGE, _STREAM_K, _SPLIT_K)
_FEW_CHANNELS = 4
_USUAL_TILE = (64, 64, 32)
_ALIGNED_BYTES = 16
_LEAST_DEPTH = 24
"""How many steps along the inner dimension a thread block does at least if several share a tile."""
_PADDED_BYTES = 16 << 10
"""Up to how many bytes besides copies count as padding or counters, which do not grow."""
_SUM_BYTES, _COMPLEX_BYTES = 4, 8


def turns(kernel: str) -> bool:
    """Returns whether a kernel only brings a tensor into another layout, as tensor cores need it."""
    return _TURNS.search(kernel) is not None


def passes(variant: str, kernels: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Returns the passes of a call, in order: which it is, and its kernels. A pass is "forward", or
    the gradient of the input, "x", or of the weight, "w". The kernels of a bias are left out.

    Args:
        variant: The variant of the convolution (see `CallShape`).
        kernels: The names of the kernels of the call, in order.
    """
    way, _, gradients = variant.split()[1].partition("-")
    if way == "forward":
        return [(way, tuple(kernels))]
    if "b" in gradients:
        last = max((at for at, name in enumerate(kernels) if "reduce_kernel" in name), default=len(kernels))
        kernels = kernels[: last - 1 if kernels[last - 1].startswith("Memset") else last]
    if "x" in gradients and "w" in gradients:
        second = _second(kernels, variant.split()[3])
        return [("x", tuple(kernels[:second])), ("w", tuple(kernels[second:]))]
    return [(gradients[0], tuple(kernels))]


def _second(kernels: Sequence[str], layouts: str) -> int:
    """Returns the index of the first kernel of the gradient of a weight, given the kernels of both
    gradients, and the layouts of the arguments. The kernels of many a gradient are named after it;
    others are plain products, or transforms for a convolution by FFT.
    """
    named = (at for at, name in enumerate(kernels) if "wgrad" in name.lower())
    begin = next(named, None)
    if begin is None and kernels and _FFT_END.search(kernels[-1]):
        return _last_by_fft(kernels)
    if begin is None:
        begin = max((at for at, name in enumerate(kernels) if not (at and _ENDS.search(name))), default=0)
    elif _PER_IMAGE.search(kernels[begin]):
        begin -= 1
    back = "nhwcToNchw" if layouts[0] == "c" else "nchwToNhwc"  # the last kernel of the first pass
    while begin > 0 and (found := _BEGINS.search(kernels[begin - 1])) and found[0] != back:
        begin -= 1
    return begin


def _last_by_fft(kernels: Sequence[str]) -> int:
    """Returns the index of the first kernel of the convolution by FFT that ends with the last kernel."""
    begin = len(kernels) - 1
    while begin > 0 and _FFT_PART.search(kernels[begin - 1]) and not _FFT_END.search(kernels[begin - 1]):
        begin -= 1
    return begin


def halves(variant: str, measured: Measured) -> list[tuple[str, slice, tuple[int, ...]]] | None:
    """Returns which kernels and which temporary allocations of a call belong to each of its passes:
    the pass, its kernels, its allocations. Returns None if that cannot be told.

    Args:
        variant: The variant of the call (see `CallShape`).
        measured: The call.
    """
    made = passes(variant, measured.kernels)
    sizes = list(measured.sizes)
    count = sum(len(kernels) for _, kernels in made)
    if any(name.startswith("Memset") for name in measured.kernels[count:]):
        del sizes[-2:]  # of the sum that is the gradient of a bias
    found, begin = [], 0
    tensors = _tensors(variant, measured.dims)
    for place, (way, kernels) in enumerate(made):
        copied = sum(1 for _ in takewhile(_COPY.search, kernels))  # arguments that torch copies
        own = list(takewhile(tensors.__contains__, sizes[:copied]))
        del sizes[: len(own)]
        if len(sizes) >= len(made) - place or (sizes and _nearest(variant, measured.dims, made[place:], sizes[0])):
            own.append(sizes.pop(0))
        found.append((way, slice(begin, begin := begin + len(kernels)), tuple(own)))
    return None if sizes else found


def _nearest(variant: str, dims: tuple[int, ...], made: list[tuple[str, tuple[str, ...]]], size: int) -> bool:
    """Returns whether, of several passes, the first one needs nearest to `size` bytes. If they need
    the same, it is the last: a gradient of a weight has partial sums.
    """
    first, *others = (abs(size - _needed(variant, dims, way, kernels)) for way, kernels in made)
    return all(first < other for other in others)


def temporaries(
    variant: str, dims: tuple[int, ...], measured: Measured, multiprocessors: tuple[int, int]
) -> tuple[float, ...] | None:
    """Predicts the bytes of each temporary allocation of a call: copies of arguments that torch
    makes, and the workspace of each pass that has one. Returns None if the measured call had other
    temporary memory.

    Args:
        variant: The variant of both calls (see `CallShape`).
        dims: The value of the predicted call on each axis of the family.
        measured: The measured call.
        multiprocessors: How many there are on the GPU of the predicted call, and on the other.
    """
    parts = halves(variant, measured)
    if parts is None:
        return None
    whole = dict(zip(_tensors(variant, measured.dims), _tensors(variant, dims), strict=True))
    found: list[float] = []
    for way, kernels, sizes in parts:
        names = measured.kernels[kernels]
        for size in sizes:
            if size in whole:
                found.append(float(whole[size]))
                continue
            rest = size - _needed(variant, measured.dims, way, names)
            if rest > _PADDED_BYTES:
                before = sums(variant, measured.dims, way, names, multiprocessors[1])
                rest *= sums(variant, dims, way, names, multiprocessors[0]) / max(before, 1.0)
            found.append(max(_needed(variant, dims, way, names) + rest, 1.0))
    return tuple(found)


def _needed(variant: str, dims: tuple[int, ...], way: str, kernels: Sequence[str]) -> float:
    return copies(variant, dims, way, kernels) + transforms(variant, dims, way, kernels)


def _tensors(variant: str, dims: tuple[int, ...]) -> tuple[int, int, int]:
    """Returns the bytes of the input, of the output and of the weight."""
    batch, channels, filters, area, out_area, taps, groups, _ = dims
    numbers = batch * channels * area, batch * filters * out_area, channels * filters * taps // groups
    x, out, weight = (count * item_bytes(variant) for count in numbers)
    return x, out, weight


def copies(variant: str, dims: tuple[int, ...], way: str, kernels: Sequence[str]) -> int:
    """Returns the bytes of the copies of tensors in another layout that a pass makes.

    Args:
        variant: The variant of the convolution (see `CallShape`).
        dims: Its value on each axis of the family.
        way: Which pass it is (see `passes`).
        kernels: The names of its kernels, in order.
    """
    first = next((at for at, name in enumerate(kernels) if not (_TURNS.search(name) or _PREPARES.search(name))), 0)
    before = [found[0] for name in kernels[:first] if (found := _TURNS.search(name))]
    after = [found[0] for name in kernels[first:] if (found := _TURNS.search(name))]
    padded = any(name.startswith("Memset") and _TURNS.search(then) for name, then in pairwise(kernels))
    batch, channels, filters, area, out_area, taps, groups, _ = dims
    aligned = _ALIGNED_BYTES // item_bytes(variant) if padded else 1
    channels, filters = (_up(count // groups, aligned) * groups for count in (channels, filters))
    weight = channels * filters * taps // groups
    factors, result = _factors(way, batch * channels * area, batch * filters * out_area, weight)
    turned = sum(factors[: len(before)])
    if any(name != before[0] for name in after) if before else after:
        turned += result
    return turned * item_bytes(variant)


def transforms(variant: str, dims: tuple[int, ...], way: str, kernels: Sequence[str]) -> float:
    """Returns the bytes of what the algorithm of a pass keeps besides copies; 0 if it is a product of
    matrices.

    - Winograd's algorithm keeps the transforms of both factors and of the result: for 3 x 3
      filters, 6 x 6 numbers for each tile of 4 x 4; for 5 x 5 filters, 13 x 13 for each tile of
      9 x 9 (Lavin and Gray, 2016, arXiv:1509.09308).
    - Convolutions by FFT keep the transforms of squares (Mathieu et al., 2014, arXiv:1312.5851):
      of those that the names of kernels tell, or of the padded image, up to a power of two.
    - If each image has a product of its own, a gradient of the weight is a sum of as many.

    Args:
        variant: The variant of the convolution (see `CallShape`).
        dims: Its value on each axis of the family.
        way: Which pass it is (see `passes`).
        kernels: The names of its kernels, in order.
    """
    batch, channels, filters, area, out_area, taps, groups, _ = dims
    named = " ".join(kernels)
    weight = channels * filters // groups
    if winograd := _WINOGRAD.search(named):
        tile, points, batch = (4, 36, batch) if winograd[1] == "4" else (9, 169, _up(batch, 16))
        images = batch * ceil(sqrt(out_area) / tile) ** 2
        return float(_SUM_BYTES * points * (images * (channels + filters) + weight))
    if squares := _FFT.search(named):
        planes, areas = _factors(way, batch * channels, batch * filters, weight), (area, out_area, taps)
        padded = round(sqrt(area) + sqrt(taps)) - 1
        side = int(squares[1] or 1 << (padded - 1).bit_length())
        return _of_squares(side, planes, areas, way, not squares[1] or "flip_filter" in named)
    return float(_SUM_BYTES * batch * weight * taps) if _PER_IMAGE.search(named) else 0.0


def sums(variant: str, dims: tuple[int, ...], way: str, kernels: Sequence[str], multiprocessors: int) -> float:
    """Returns the bytes of the sums that thread blocks share, for a product of matrices, up to a
    factor that depends on the kernels alone.

    - Stream-K: the tiles that are left once each multiprocessor had as many whole ones as all the
      others are shared (Osama et al., 2023, arXiv:2301.03598). Each part of a tile is kept.
    - Split-K: as many sums of the whole result as in the measured call, since cuDNN looks up how
      many. CUTLASS keeps numbers of the result, the channels of its weight up to a multiple of 16
      bytes; other kernels keep whole tiles.

    Args:
        variant: The variant of the convolution (see `CallShape`).
        dims: Its value on each axis of the family.
        way: Which pass it is (see `passes`).
        kernels: The names of its kernels, in order.
        multiprocessors: How many the GPU has.
    """
    batch, channels, filters, area, out_area, taps, groups, _ = dims
    named = " ".join(kernels)
    rows, columns, depth = _tile(named)
    if way == "w":
        high, wide, deep = filters, taps * _up(channels, columns), batch * out_area
    elif way == "x":
        high, wide, deep = batch * area, channels, taps * _up(filters, depth)
    else:
        high, wide, deep = batch * out_area, filters, taps * _up(channels, depth)
    tiles = max(1, ceil(high / rows) * ceil(wide / columns))
    if _STREAM_K.search(named):
        left = tiles % multiprocessors or tiles
        parts = max(1, min(multiprocessors // left, ceil(deep / depth) // _LEAST_DEPTH))
        return float(_SUM_BYTES * left * parts * rows * columns)
    if not _SPLIT_K.search(named):
        return float(_SUM_BYTES * tiles * rows * columns)
    padded = _up(channels // groups, _ALIGNED_BYTES // item_bytes(variant)) * taps * filters
    return float(_SUM_BYTES * (padded if way == "w" else high * wide))


def _factors(way: str, x: int, out: int, weight: int) -> tuple[tuple[int, int], int]:
    """Returns the figures of the two factors and of the result of a pass, given those of the input,
    of the output and of the weight.
    """
    return {"x": ((out, weight), x), "w": ((x, out), weight)}.get(way, ((x, weight), out))


def _of_squares(
    side: int, planes: tuple[tuple[int, int], int], areas: tuple[int, int, int], way: str, one: bool
) -> float:
    """Returns the bytes of the transforms of squares of `side` x `side` numbers.

    Args:
        side: The side of a square.
        planes: How many planes the two factors and the result have.
        areas: How many numbers are in a plane of the input, of the output and of the weight.
        way: Which pass it is.
        one: Whether one square holds a plane. Then a factor is copied, flipped. Else the planes of
            images are transformed square by square, while the next ones are read.
    """
    transform = _COMPLEX_BYTES * side * (side // 2 + 1)
    factors, result = planes
    if one:
        flipped = _factors(way, *areas)[0][1]
        return float(2 * transform * max(sum(factors), result) + _SUM_BYTES * factors[1] * flipped)
    weight = result if way == "w" else factors[1]
    return float(transform * (2 * (sum(factors) + result) - weight))


def _tile(named: str) -> tuple[int, int, int]:
    found = _TILE.search(named)
    rows, columns, depth = (int(size) for size in found.groups() if size) if found else _USUAL_TILE
    return rows, columns, depth


def _up(size: int, to: int) -> int:
    return ceil(size / to) * to


def places(variant: str, dims: np.ndarray, multiprocessors: int) -> np.ndarray:
    """Returns the places of convolutions among others: those near each other probably have the same
    algorithm. Channels count, and whether they are multiples of what instructions and thread blocks
    read at once; the number of images does not count for much, once there is enough work. How full
    the last wave of thread blocks is counts, too: what does not fill the GPU is computed otherwise.

    The weights are those with which 5,400 random convolutions of an H200 tell each other's
    workspaces best. For 5,000 others, they are right for 1 % more of the gradients of the weight
    and of the outputs than without the waves, and for 2 % more of the gradients of the input.

    Args:
        variant: The variant of the convolutions (see `CallShape`).
        dims: Their values on each axis of the family. An array of [convolutions, axes].
        multiprocessors: How many the GPU has.

    Returns:
        An array of [convolutions, coordinates].
    """
    batch, channels, filters, area, out_area, taps, groups, sides = np.maximum(dims, 1).T
    kind = variant.split()[1]
    high, wide = batch * out_area, filters
    if "w" in kind.partition("-")[2]:
        high, wide = filters, taps * channels
    elif kind.startswith("backward"):
        high, wide = batch * area, channels
    columns = [0.1 * np.log2(batch), 0.3 * np.log2(batch * out_area), 0.2 * np.log2(out_area)]
    columns += [np.log2(channels), np.log2(filters), np.log2(taps), np.log2(area / out_area), 0.5 * np.log2(groups)]
    columns += [0.3 * np.log2(batch * channels * area), 2.0 * (channels <= _FEW_CHANNELS), 3.0 * sides]
    columns += [2.0 * (count % 4 > 0) for count in (channels, filters)]
    columns += [1.0 * (count % 8 > 0) for count in (channels, filters)]
    columns += [0.75 * (channels % 32 > 0), 0.5 * (filters % 32 > 0)]
    for rows, wides in ((64, 64), (128, 64)):
        tiles = -(-high // rows) * -(-wide // wides)
        columns.append(1.5 * tiles / (-(-tiles // multiprocessors) * multiprocessors))
    return np.stack(columns, 1)


def algorithm(variant: str, kernels: Sequence[str]) -> tuple[object, ...]:
    """Returns what tells the algorithm of a call, as far as its workspace depends on it: for each
    pass, how many tensors are copied, and what else is held.

    Args:
        variant: The variant of the call (see `CallShape`).
        kernels: The names of its kernels, in order.
    """
    found: list[object] = []
    for way, names in passes(variant, kernels):
        named = " ".join(names)
        found += way, len(_TURNS.findall(named)), *(pattern.search(named) is not None for pattern in _ALGORITHMS)
    return tuple(found)
