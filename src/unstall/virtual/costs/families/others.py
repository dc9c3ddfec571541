"""Operators of every other kind that is not element-wise: of linear algebra, Fourier transforms, scans, pools, losses,
random numbers.

A call is described by how many elements it reads and writes, and by the dimension along which it works. These operators
have little in common, so the times of an operator are predicted from measured calls of its own alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod

from unstall.virtual.costs.families.family import Axis, CallShape, Family, Found, Target, Work, item_bytes, read_apart
from unstall.virtual.costs.families.powers import below_power, halvings
from unstall.virtual.costs.families.row_launches import of_scan
from unstall.virtual.costs.signature import Signature, TensorSpec, nonzero

_ALONG: dict[str, int] = {
    "_cummax_helper": 3,
    "_logcumsumexp": 1,
    "_masked_softmax": 2,
    "glu_backward": 2,
    "index_copy": 1,
    "index_reduce": 1,
    "linalg_cross": 2,
    "median": 1,
    "mode": 1,
    "nanmedian": 1,
    "renorm": 2,
    "scatter_reduce": 1,
    "unfold_backward": 2,
    "unique_dim": 1,
}
"""The position of the argument that says along which dimension an operator works."""
_MATRICES = (
    "_cholesky_solve_helper",
    "_linalg_det",
    "_linalg_eigh",
    "_linalg_slogdet",
    "_linalg_solve_ex",
    "_linalg_svd",
    "geqrf",
    "linalg_cholesky_ex",
    "linalg_householder_product",
    "linalg_inv_ex",
    "linalg_lstsq",
    "linalg_lu_factor_ex",
    "linalg_matrix_exp",
    "linalg_qr",
    "linalg_solve_triangular",
)
"""Operators on the matrices in the last two dimensions."""
_TRANSFORMS = ("_fft_c2c", "_fft_c2r", "_fft_r2c")
_SCANS = ("_cummax_helper", "_logcumsumexp")
_SEARCHES = {"searchsorted": 0, "bucketize": 1}
"""By operator that searches for each element, which of its tensors it searches."""
_PROBES = 8
"""How many sectors of a sequence a search reads that no other does: it halves the sequence again and again, and the
first halves are the same for all.
"""
_ROWS_OF_PIXELS = 2
"""From how many rows of an image a pixel is sampled."""
_GRIDS = {
    "cudnn_grid_sampler": 1,
    "cudnn_grid_sampler_backward": 1,
    "grid_sampler_2d": 1,
    "grid_sampler_2d_backward": 2,
}
"""By operator that samples images, the position of its grid among its tensors."""
_PLANES = {
    "_adaptive_avg_pool3d": 3,
    "_adaptive_avg_pool3d_backward": 3,
    "_upsample_bicubic2d_aa": 2,
    "_upsample_bicubic2d_aa_backward": 2,
    "_upsample_bilinear2d_aa": 2,
    "_upsample_bilinear2d_aa_backward": 2,
    "_upsample_nearest_exact2d": 2,
    "adaptive_max_pool2d": 2,
    "adaptive_max_pool3d": 3,
}
"""By operator on images, how many dimensions one channel of an image has: two, or three of a volume."""
_OPTIONS: dict[str, tuple[int, ...]] = {
    "_embedding_bag": (4,),
    "_embedding_bag_forward_only": (4,),
    "_linalg_eigh": (2,),
    "_linalg_svd": (2,),
    "_unique2": (2, 3),
    "grid_sampler_2d": (2,),
    "grid_sampler_2d_backward": (3,),
    "index_reduce": (4,),
    "multinomial": (2,),
    "scatter_reduce": (4,),
    "segment_reduce": (6,),
}
"""The positions of arguments that choose between different kernels."""
NAMES = (
    *_ALONG,
    *_MATRICES,
    *_TRANSFORMS,
    "_adaptive_avg_pool3d",
    "_adaptive_avg_pool3d_backward",
    "_cdist_backward",
    "_cdist_forward",
    "_ctc_loss",
    "_ctc_loss_backward",
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "_pdist_backward",
    "_pdist_forward",
    "_prelu_kernel",
    "_prelu_kernel_backward",
    "_sample_dirichlet",
    "_standard_gamma",
    "_thnn_fused_gru_cell",
    "_thnn_fused_gru_cell_backward",
    "_thnn_fused_lstm_cell",
    "_thnn_fused_lstm_cell_backward_impl",
    "_transform_bias_rescale_qkv",
    "_unique2",
    "_upsample_bicubic2d_aa",
    "_upsample_bicubic2d_aa_backward",
    "_upsample_bilinear2d_aa",
    "_upsample_bilinear2d_aa_backward",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact2d_backward",
    "_weight_norm_interface",
    "_weight_norm_interface_backward",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_backward",
    "avg_pool3d",
    "avg_pool3d_backward",
    "binary_cross_entropy",
    "binary_cross_entropy_backward",
    "bincount",
    "bucketize",
    "col2im",
    "cudnn_grid_sampler",
    "cudnn_grid_sampler_backward",
    "exponential_",
    "flip",
    "fractional_max_pool2d",
    "fractional_max_pool2d_backward",
    "grid_sampler_2d",
    "grid_sampler_2d_backward",
    "histc",
    "huber_loss",
    "im2col",
    "isin",
    "linspace",
    "masked_scatter_",
    "max_pool3d_with_indices",
    "max_pool3d_with_indices_backward",
    "multi_margin_loss",
    "multi_margin_loss_backward",
    "multilabel_margin_loss_backward",
    "multilabel_margin_loss_forward",
    "multinomial",
    "native_dropout",
    "nll_loss2d_backward",
    "nll_loss2d_forward",
    "poisson",
    "randperm",
    "reflection_pad1d",
    "reflection_pad1d_backward",
    "reflection_pad2d",
    "reflection_pad2d_backward",
    "reflection_pad3d",
    "repeat_interleave",
    "replication_pad2d",
    "replication_pad2d_backward",
    "replication_pad3d",
    "replication_pad3d_backward",
    "searchsorted",
    "segment_reduce",
    "smooth_l1_loss",
    "soft_margin_loss",
    "tril",
    "triu",
    "unique_consecutive",
    "upsample_trilinear3d_backward",
    "vdot",
)


def describe(signature: Signature) -> CallShape | None:
    """Describes a call by the elements of its largest argument and of its results, by the size of
    the dimension along which it works, and by the number of elements between two neighbours along
    it. For matrices, the last two are the numbers of columns and of rows; for images, those of what a thread
    does one after the other and of threads (see `_of_images`). The results of an index are what it names, however
    often. Returns None for a call without tensors.
    """
    name = signature.name.removeprefix("aten::")
    given = signature.tensors
    results = signature.results or given[:1]
    if not results:
        return None
    x = max(given, key=lambda tensor: tensor.numel, default=results[0])
    if not x.numel:
        x = results[0]
    kind = " ".join([name, *(str(signature.value(at, "")) for at in _OPTIONS.get(name, ()))])
    if name == "bincount" and len(given) > 1:
        kind += " weighted"
    extent, inner = x.sizes[-1] if x.sizes else 1, 1
    if name in _MATRICES:
        x = given[0]
        extent, inner = x.sizes[-1], x.sizes[-2]
    elif name in _SEARCHES:
        extent = given[_SEARCHES[name]].numel
    elif found := _of_images(name, given, results):
        extent, inner = found
    elif name in _TRANSFORMS:
        kind, extent, inner = _transform(kind, signature, results[0])
    elif name in _ALONG:
        x = given[0] if name.startswith("index_") else x  # an index may be longer
        rank = len(results[0].sizes if name == "unfold_backward" else x.sizes)
        dim = signature.value(_ALONG[name])
        if not isinstance(dim, int) or isinstance(dim, bool):
            kind += " all"
        elif x.sizes and rank:
            dim %= rank
            extent, inner = x.sizes[dim], prod(x.sizes[dim + 1 :])
            kind += " last" if inner == 1 else ""
    written = sum(result.numel for result in results)
    if name.startswith("index_") and len(given) > 1:
        written = given[1].numel * (x.numel // max(extent, 1))
    plain = kind.removesuffix(" last")
    variants = tuple(f"{x.dtype} {each}" for each in (kind, plain, f"{plain} last", plain.removesuffix("_")))
    others = tuple(f"float32 {each.partition(' ')[2]}" for each in variants)
    dims = max(x.numel, 1), max(written, 1), max(extent, 1), max(inner, 1)
    return CallShape(tuple(dict.fromkeys((*variants, *others))), dims)


def _of_images(name: str, given: Sequence[TensorSpec], results: Sequence[TensorSpec]) -> tuple[int, int] | None:
    """Returns the number of channels, or of those of all images, and the pixels that a channel or an image gets or
    gives. A thread samples all channels of a pixel of the grid; the gradient of a pixel's neighbours adds up image
    by image. Returns None for other operators. Sources: torch's GridSampler.cu, UpSampleNearest2d.cu.
    """
    if name in _GRIDS:
        return given[0].sizes[1], max(given[_GRIDS[name]].numel // 2, 1)
    if name == "_upsample_nearest_exact2d_backward":
        images = given[0].sizes[0]
        return images, max(results[0].numel // max(images, 1), 1)
    if name not in _PLANES:
        return None
    planes = prod(given[0].sizes[: -_PLANES[name]])
    pixels = min(given[0].numel, results[0].numel) if "pool" in name else results[0].numel
    return planes, max(pixels // max(planes, 1), 1)


def _transform(kind: str, signature: Signature, result: TensorSpec) -> tuple[str, int, int]:
    """Returns the kind, the length and the number of transforms of a Fourier transform. Lengths with large prime
    factors have kernels of their own.
    """
    x = signature.tensors[0]
    whole = result if "c2r" in kind else x  # of the real numbers, or of the complex ones
    along = tuple(dim % len(x.sizes) for dim in signature.value(1, (-1,)) or (-1,))
    length = prod(whole.sizes[dim] for dim in along)
    rest = max(length, 1)
    for factor in (2, 3, 5, 7):
        while rest % factor == 0:
            rest //= factor
    kind += f" {len(along)}" + (" strided" if len(x.sizes) - 1 not in along else "") + (" odd" if rest > 1 else "")
    return kind, length, max(whole.numel // max(length, 1), 1)


def adapt(signature: Signature, shape: CallShape, found: Found, target: Target) -> Found:
    """Returns the kernels of a call of `repeat_interleave` without the copy of the result's size to the host if the
    program gives that size, and those of a histogram without the search for its bounds if the program gives these. In
    measured calls, it does not.
    """
    if signature.name == "aten::repeat_interleave" and signature.value(1) is not None:
        return found._replace(kernels=tuple(kernel for kernel in found.kernels if "DtoH" not in kernel.name))
    copies = [at for at, kernel in enumerate(found.kernels) if "DtoH" in kernel.name]
    if signature.name == "aten::histc" and copies and _has_bounds(signature):
        return found._replace(kernels=(found.kernels[0], *found.kernels[copies[-1] + 1 :]), temporaries=())
    return found


def _has_bounds(signature: Signature) -> bool:
    """Returns whether the bounds of a histogram are given: torch searches them if they are equal. Of numbers that are
    not integers, only zero is known, and two others are taken to differ.
    """
    low, high = (signature.value(at, 0) for at in (2, 3))
    if type(low) is int and type(high) is int:
        return low != high
    return nonzero(low) or nonzero(high) or bool(type(low) is int and low) or bool(type(high) is int and high)


def work(variant: str, dims: tuple[int, ...]) -> Work:
    """Returns the work of a call: its elements are read, and its results written.

    Args:
        variant: The variant of the call (see `CallShape`).
        dims: The number of elements of its largest argument and of its results, and the extents along which it works.
            A few searches, or pixels, do not read all of what they search, or of an image.
    """
    read, written, extent, _ = dims
    name, item = variant.split()[1], item_bytes(variant)
    if name in _SEARCHES:
        read = written + read_apart(_PROBES * written, item, extent)
    elif name in _GRIDS and "backward" not in name:
        read = read_apart(_ROWS_OF_PIXELS * written, item, read)
    return Work(0.0, float(read + written) * item)


def geometry(variant: str, dims: tuple[int, ...], multiprocessors: int) -> tuple[float, ...]:
    """Returns, in doublings, how far sizes are from those that kernels take best: of a transform and of a matrix, from
    a power of two; of a dropout, from a multiple of what a thread reads at once. Scans of rows have the coordinates of
    other scans, and calls on matrices the number of these.

    Args:
        variant: The variant of the call (see `CallShape`).
        dims: The value of the call on each axis of the family.
        multiprocessors: The number of multiprocessors of the GPU.
    """
    elements, _, extent, inner = dims
    name, *kind = variant.split()[1:]
    if name in _MATRICES:
        each = elements / (extent * inner)
        return 2 * below_power(extent), 0.5 * math.log2(extent), 0.5 * math.log2(max(each, 1.0))
    if name in _TRANSFORMS and "odd" not in kind:
        return (2 * below_power(extent),)
    if name in _SCANS:
        return of_scan(max(elements // (extent * inner), 1), extent, inner, multiprocessors)
    return (0.5 * halvings(elements, 4),) if name == "native_dropout" else ()


FAMILY = Family(
    "other",
    (Axis("elements"), Axis("results"), Axis("extent"), Axis("inner", 0.7)),
    describe,
    work,
    adapt=adapt,
    geometry=geometry,
)
