"""Operators of every other kind that is not element-wise: of linear algebra, Fourier transforms, scans, pools, losses,
random numbers.

A call is described by how many elements it reads and writes, and by the dimension along which it works. These operators
have little in common, so the times of an operator are predicted from measured calls of its own alone.
"""

from __future__ import annotations

from math import prod

from unstall.virtual.costs.families.family import Axis, CallShape, Family, Found, Target, Work, item_bytes
from unstall.virtual.costs.signature import Signature, TensorSpec

_ALONG: dict[str, int] = {
    "_cummax_helper": 3,
    "_logcumsumexp": 1,
    "_masked_softmax": 2,
    "glu_backward": 2,
    "index_copy": 1,
    "index_fill_": 1,
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
_SEARCHES = {"searchsorted": 0, "bucketize": 1}
"""By operator that searches for each element, which of its tensors it searches."""
_OPTIONS: dict[str, tuple[int, ...]] = {
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
    "_int_mm",
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
    it. For matrices, the last two are the numbers of columns and of rows. The results of an index
    are what it names, however often. Returns None for a call without tensors.
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
    extent, inner = x.sizes[-1] if x.sizes else 1, 1
    if name in _MATRICES:
        x = given[0]
        extent, inner = x.sizes[-1], x.sizes[-2]
    elif name in _SEARCHES:
        extent = given[_SEARCHES[name]].numel
    elif name in _TRANSFORMS:
        kind, extent, inner = _transform(kind, signature, results[0])
    elif name in _ALONG:
        x = given[0] if name.startswith("index_") else x  # an index may be longer
        rank = len(results[0].sizes if name == "unfold_backward" else x.sizes)
        dim = signature.value(_ALONG[name])
        if not isinstance(dim, int) or isinstance(dim, bool):
            kind += " all"
        elif x.sizes:
            dim %= rank
            extent, inner = x.sizes[dim], prod(x.sizes[dim + 1 :])
            kind += " last" if inner == 1 else ""
    written = sum(result.numel for result in results)
    if name.startswith("index_") and len(given) > 1:
        written = given[1].numel * (x.numel // max(extent, 1))
    plain = kind.removesuffix(" last")
    variants = tuple(f"{x.dtype} {each}" for each in (kind, plain, f"{plain} last"))
    others = tuple(f"float32 {each.partition(' ')[2]}" for each in variants)
    dims = max(x.numel, 1), max(written, 1), max(extent, 1), max(inner, 1)
    return CallShape(tuple(dict.fromkeys((*variants, *others))), dims)


def _transform(kind: str, signature: Signature, result: TensorSpec) -> tuple[str, int, int]:
    """Returns the kind, the length and the number of transforms of a Fourier transform. Lengths with large prime
    factors have kernels of their own.
    """
    x = signature.tensors[0]
    whole = result if "c2r" in kind else x  # of the real numbers, or of the complex ones
    along = tuple(dim % len(x.sizes) for dim in signature.value(1, (-1,)) or (-1,))
    length = prod(whole.sizes[dim] for dim in along)
    rest = length
    for factor in (2, 3, 5, 7):
        while rest % factor == 0:
            rest //= factor
    kind += f" {len(along)}" + (" strided" if len(x.sizes) - 1 not in along else "") + (" odd" if rest > 1 else "")
    return kind, length, max(whole.numel // max(length, 1), 1)


def adapt(signature: Signature, shape: CallShape, found: Found, target: Target) -> Found:
    """Returns the kernels of a call of `repeat_interleave` without the copy of the result's size to the host if the
    program gives that size. In measured calls, it does not.
    """
    if signature.name != "aten::repeat_interleave" or signature.value(1) is None:
        return found
    return found._replace(kernels=tuple(kernel for kernel in found.kernels if "DtoH" not in kernel.name))


def work(variant: str, dims: tuple[int, ...]) -> Work:
    """Returns the work of a call: its elements are read, and its results written.

    Args:
        variant: The variant of the call (see `CallShape`).
        dims: The number of elements of its largest argument and of its results, and two figures that are not used.
    """
    return Work(0.0, float(dims[0] + dims[1]) * item_bytes(variant))


FAMILY = Family(
    "other",
    (Axis("elements"), Axis("results"), Axis("extent"), Axis("inner", 0.7)),
    describe,
    work,
    adapt=adapt,
)
