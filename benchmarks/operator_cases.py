"""Ordinary calls of torch, of all kinds, at sizes at which a GPU's time is seen: what benchmarks/operators.py compares.

Chosen by reading torch's documentation from one end to the other, and by nothing that the virtual GPU knows.
"""

# ruff: noqa: B008 — the tensors of a call are made once, before it is timed

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as f

Call = Callable[..., Any]


def random(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Tensor:
    return torch.randn(shape, device="cuda").to(dtype).requires_grad_(grad)


def whole(high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape, device="cuda")


def cases() -> Iterator[tuple[str, Call]]:
    """Yields names and calls; each call's tensors are made when it is yielded."""
    for group in (
        _transformers,
        _training,
        _images,
        _losses,
        _reductions,
        _choices,
        _algebra,
        _signals,
        _random,
        _layout,
    ):
        for name, call in group():
            yield f"{group.__name__[1:]}: {name}", call


def _transformers() -> Iterator[tuple[str, Call]]:
    for dtype, batch, length, width in (
        (torch.float32, 8, 128, 256), (torch.float32, 32, 128, 512), (torch.float16, 32, 256, 512),
        (torch.bfloat16, 16, 512, 1024), (torch.float32, 4, 50, 64),
    ):  # fmt: skip
        label = f"{str(dtype)[6:]} {batch}x{length}x{width}"
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, device="cuda", dtype=dtype).eval()
        x = random(batch, length, width, dtype=dtype)
        yield f"encoder layer {label}", _inference(layer, x)
        gelu = nn.TransformerEncoderLayer(
            width, 8, 2 * width, activation="gelu", norm_first=True, batch_first=True, device="cuda", dtype=dtype
        ).eval()  # fmt: skip
        yield f"encoder layer, gelu, norm first {label}", _inference(gelu, x)
        mask = torch.zeros(batch, length, dtype=torch.bool, device="cuda")
        mask[:, length // 2 :] = True
        yield f"encoder layer, padding {label}", _inference(layer, x, src_key_padding_mask=mask)
        causal = nn.Transformer.generate_square_subsequent_mask(length, device=torch.device("cuda"), dtype=dtype)
        yield f"encoder layer, causal {label}", _inference(layer, x, src_mask=causal, is_causal=True)
        yield f"encoder of 3 {label}", _inference(nn.TransformerEncoder(layer, 3).eval(), x)
        heads = nn.MultiheadAttention(width, 8, batch_first=True, device="cuda", dtype=dtype).eval()
        yield f"attention {label}", _inference(heads, x, x, x, need_weights=False)
        yield f"attention, weights {label}", _inference(heads, x, x, x)
        yield f"attention, weights of heads {label}", _inference(heads, x, x, x, average_attn_weights=False)
        yield f"attention, grad mode {label}", lambda heads=heads, x=x: heads(x, x, x, need_weights=False)
        decoder = nn.TransformerDecoderLayer(width, 8, 4 * width, batch_first=True, device="cuda", dtype=dtype).eval()
        yield f"decoder layer {label}", _inference(decoder, x, x)


def _inference(module: nn.Module, *args: Any, **kwargs: Any) -> Call:
    def call() -> Any:
        with torch.inference_mode():
            return module(*args, **kwargs)

    return call


def _backward(function: Callable[..., Tensor], *args: Any) -> Call:
    """Returns a call that also computes the gradients of the tensors that want them."""
    wanted = [each for each in args if isinstance(each, Tensor) and each.requires_grad]

    def call() -> Any:
        out = function(*args)
        return torch.autograd.grad(out, wanted, torch.ones_like(out))

    return call


def _of_module(module: nn.Module, x: Tensor) -> Call:
    module.cuda()
    wanted = [*module.parameters(), x]

    def call() -> Any:
        out = module(x)
        out = out[0] if isinstance(out, tuple) else out
        return torch.autograd.grad(out, wanted, torch.ones_like(out), allow_unused=True)

    return call


def _training() -> Iterator[tuple[str, Call]]:
    x = random(32, 128, 512, grad=True)
    yield "Linear", _of_module(nn.Linear(512, 2048), x)
    yield "Bilinear", _of_module_of_two(nn.Bilinear(64, 64, 32), random(4096, 64, grad=True), random(4096, 64))
    yield "LayerNorm", _of_module(nn.LayerNorm(512), x)
    yield "RMSNorm", _of_module(nn.RMSNorm(512), x)
    yield "GroupNorm", _of_module(nn.GroupNorm(8, 64), random(32, 64, 56, 56, grad=True))
    yield "InstanceNorm2d", _of_module(nn.InstanceNorm2d(64, affine=True), random(32, 64, 56, 56, grad=True))
    yield "BatchNorm1d", _of_module(nn.BatchNorm1d(512), random(4096, 512, grad=True))
    yield "BatchNorm2d", _of_module(nn.BatchNorm2d(64), random(32, 64, 56, 56, grad=True))
    yield "BatchNorm3d", _of_module(nn.BatchNorm3d(16), random(8, 16, 16, 32, 32, grad=True))
    yield "LocalResponseNorm", _of_module(nn.LocalResponseNorm(5), random(32, 64, 28, 28, grad=True))
    for name in (
        "GELU",
        "SiLU",
        "Mish",
        "ELU",
        "Softplus",
        "Hardswish",
        "LeakyReLU",
        "LogSigmoid",
        "GLU",
        "Tanhshrink",
    ):
        yield name, _of_module(getattr(nn, name)(), x)
    yield "PReLU", _of_module(nn.PReLU(512), random(4096, 512, grad=True))
    yield "Softmax", _of_module(nn.Softmax(-1), x)
    yield "LogSoftmax over channels", _of_module(nn.LogSoftmax(1), random(16, 21, 128, 128, grad=True))
    yield "Dropout", _of_module(nn.Dropout(0.1), x)
    yield "Dropout2d", _of_module(nn.Dropout2d(0.1), random(32, 64, 56, 56, grad=True))
    yield "AlphaDropout", _of_module(nn.AlphaDropout(0.1), x)
    yield (
        "Embedding",
        lambda e=nn.Embedding(30000, 512).cuda(), i=whole(30000, 32, 128): torch.autograd.grad(e(i).sum(), e.weight),
    )
    yield (
        "EmbeddingBag",
        lambda e=nn.EmbeddingBag(30000, 128).cuda(), i=whole(30000, 512, 20): torch.autograd.grad(e(i).sum(), e.weight),
    )
    yield "weight_norm", _of_module(nn.utils.parametrizations.weight_norm(nn.Linear(512, 512)), x)
    yield "spectral_norm", _of_module(nn.utils.parametrizations.spectral_norm(nn.Linear(512, 512)), x)
    yield "LSTMCell", _of_module(nn.LSTMCell(256, 256), random(128, 256, grad=True))
    yield "GRUCell", _of_module(nn.GRUCell(256, 256), random(128, 256, grad=True))
    yield "RNNCell", _of_module(nn.RNNCell(256, 256), random(128, 256, grad=True))
    for clip in (torch.nn.utils.clip_grad_norm_, lambda p, v: torch.nn.utils.clip_grad_value_(p, v)):
        weights = [random(256, 256).requires_grad_() for _ in range(20)]
        for each in weights:
            each.grad = torch.ones_like(each)
        yield f"clip {getattr(clip, '__name__', '')}", lambda clip=clip, weights=weights: clip(weights, 1.0)
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"):
        for options in ({}, {"foreach": False}):
            weights = [random(512, 256).requires_grad_() for _ in range(6)]
            for each in weights:
                each.grad = torch.ones_like(each)
            optimizer = getattr(torch.optim, name)(weights, lr=1e-3, **options)
            yield f"{name} {options or ''}".strip(), optimizer.step
    with_amp = nn.Sequential(nn.Linear(512, 1024), nn.LayerNorm(1024), nn.GELU(), nn.Linear(1024, 10)).cuda()
    for dtype in (torch.float16, torch.bfloat16):
        yield f"autocast {str(dtype)[6:]}", _under_autocast(with_amp, random(1024, 512), dtype)
    yield (
        "checkpoint",
        lambda m=with_amp, x=random(1024, 512, grad=True): torch.autograd.grad(
            torch.utils.checkpoint.checkpoint(m, x, use_reentrant=False).sum(), x
        ),
    )
    yield (
        "vmap of grad",
        lambda w=random(64, 10), x=random(256, 64): torch.func.vmap(
            torch.func.grad(lambda w, x: (x @ w).square().sum()), (None, 0)
        )(w, x),
    )


def _of_module_of_two(module: nn.Module, x: Tensor, y: Tensor) -> Call:
    module.cuda()
    return lambda: torch.autograd.grad(module(x, y).sum(), [x, *module.parameters()])


def _under_autocast(module: nn.Module, x: Tensor, dtype: torch.dtype) -> Call:
    def call() -> Any:
        with torch.autocast("cuda", dtype):
            loss = module(x).float().sum()
        return torch.autograd.grad(loss, list(module.parameters()))

    return call


def _images() -> Iterator[tuple[str, Call]]:
    x = random(16, 32, 64, 64, grad=True)
    line, volume = random(32, 32, 1024, grad=True), random(4, 16, 16, 32, 32, grad=True)
    yield "Conv1d", _of_module(nn.Conv1d(32, 64, 5, padding=2), line)
    yield "Conv2d", _of_module(nn.Conv2d(32, 64, 3, padding=1), x)
    yield "Conv2d stride 2", _of_module(nn.Conv2d(32, 64, 3, stride=2, padding=1), x)
    yield "Conv2d 7x7", _of_module(nn.Conv2d(32, 32, 7, padding=3), x)
    yield "Conv2d 1x1", _of_module(nn.Conv2d(32, 128, 1), x)
    yield "Conv2d depthwise", _of_module(nn.Conv2d(32, 32, 3, padding=1, groups=32), x)
    yield "Conv2d groups", _of_module(nn.Conv2d(32, 64, 3, padding=1, groups=4), x)
    yield "Conv2d dilated", _of_module(nn.Conv2d(32, 32, 3, padding=2, dilation=2), x)
    yield "Conv3d", _of_module(nn.Conv3d(16, 32, 3, padding=1), volume)
    yield "ConvTranspose1d", _of_module(nn.ConvTranspose1d(32, 16, 4, 2, 1), line)
    yield "ConvTranspose2d", _of_module(nn.ConvTranspose2d(32, 16, 4, 2, 1), x)
    yield "ConvTranspose2d 2x2", _of_module(nn.ConvTranspose2d(32, 16, 2, 2), x)
    yield "ConvTranspose3d", _of_module(nn.ConvTranspose3d(16, 8, 2, 2), volume)
    half = x.detach().bfloat16().requires_grad_()
    yield "Conv2d bfloat16", _of_module(nn.Conv2d(32, 64, 3, padding=1).bfloat16(), half)
    yield "ConvTranspose2d bfloat16", _of_module(nn.ConvTranspose2d(32, 16, 4, 2, 1).bfloat16(), half)
    for name, pool, given in (
        ("MaxPool1d", nn.MaxPool1d(2), line),
        ("MaxPool2d", nn.MaxPool2d(2), x),
        ("MaxPool3d", nn.MaxPool3d(2), volume),
        ("MaxPool2d 3 2", nn.MaxPool2d(3, 2, 1), x),
        ("AvgPool1d", nn.AvgPool1d(2), line),
        ("AvgPool2d", nn.AvgPool2d(2), x),
        ("AvgPool3d", nn.AvgPool3d(2), volume),
        ("LPPool2d", nn.LPPool2d(2, 2), x),
        ("FractionalMaxPool2d", nn.FractionalMaxPool2d(3, output_size=20), x),
        ("AdaptiveAvgPool1d", nn.AdaptiveAvgPool1d(7), line),
        ("AdaptiveAvgPool2d", nn.AdaptiveAvgPool2d(7), x),
        ("AdaptiveAvgPool2d 1", nn.AdaptiveAvgPool2d(1), x),
        ("AdaptiveAvgPool3d", nn.AdaptiveAvgPool3d(4), volume),
        ("AdaptiveMaxPool1d", nn.AdaptiveMaxPool1d(7), line),
        ("AdaptiveMaxPool2d", nn.AdaptiveMaxPool2d(7), x),
        ("AdaptiveMaxPool3d", nn.AdaptiveMaxPool3d(4), volume),
        ("Fold", nn.Fold((64, 64), 4, stride=4), random(16, 64, 256, grad=True)),
        ("Unfold", nn.Unfold(3, padding=1), x),
        ("PixelShuffle", nn.PixelShuffle(2), x),
        ("PixelUnshuffle", nn.PixelUnshuffle(2), x),
        ("ZeroPad2d", nn.ZeroPad2d(2), x),
        ("ReflectionPad2d", nn.ReflectionPad2d(2), x),
        ("ReplicationPad2d", nn.ReplicationPad2d(2), x),
        ("CircularPad2d", nn.CircularPad2d(2), x),
        ("ReflectionPad1d", nn.ReflectionPad1d(2), line),
        ("ReplicationPad3d", nn.ReplicationPad3d(1), volume),
        ("ChannelShuffle", nn.ChannelShuffle(4), x),
        ("CosineSimilarity", _cosine, x),
    ):
        yield name, _of_module(pool, given) if isinstance(pool, nn.Module) else _backward(pool, given)
    for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
        yield f"interpolate {mode}", _backward(lambda x, m=mode: f.interpolate(x, scale_factor=2.0, mode=m), x)
    yield (
        "interpolate bilinear, antialias",
        _backward(lambda x: f.interpolate(x, size=(24, 24), mode="bilinear", antialias=True), x),
    )
    yield "interpolate linear", _backward(lambda x: f.interpolate(x, scale_factor=2.0, mode="linear"), line)
    yield "interpolate trilinear", _backward(lambda x: f.interpolate(x, scale_factor=2.0, mode="trilinear"), volume)
    theta = random(16, 2, 3)
    yield "affine_grid", lambda: f.affine_grid(theta, [16, 32, 64, 64], align_corners=False)
    grid = f.affine_grid(theta, [16, 32, 64, 64], align_corners=False)
    yield "grid_sample", _backward(lambda x: f.grid_sample(x, grid, align_corners=False), x)
    yield "grid_sample nearest", _backward(lambda x: f.grid_sample(x, grid, mode="nearest", align_corners=False), x)
    yield "normalize", _backward(lambda x: f.normalize(x, dim=1), x)


def _cosine(x: Tensor) -> Tensor:
    return f.cosine_similarity(x, x.detach().flip(0))


def _losses() -> Iterator[tuple[str, Call]]:
    x, y = random(4096, 1000, grad=True), random(4096, 1000)
    classes, probability = whole(1000, 4096), torch.rand(4096, 1000, device="cuda")
    inside = probability.clone().requires_grad_()
    yield "cross_entropy", _backward(lambda x: f.cross_entropy(x, classes), x)
    yield "cross_entropy, smoothing", _backward(lambda x: f.cross_entropy(x, classes, label_smoothing=0.1), x)
    yield (
        "cross_entropy, weights",
        _backward(lambda x, w=torch.ones(1000, device="cuda"): f.cross_entropy(x, classes, w), x),
    )
    yield "cross_entropy of probabilities", _backward(lambda x: f.cross_entropy(x, probability), x)
    image, labels = random(8, 21, 128, 128, grad=True), whole(21, 8, 128, 128)
    yield "cross_entropy of images", _backward(lambda x: f.cross_entropy(x, labels), image)
    half = x.detach().bfloat16().requires_grad_()
    yield "cross_entropy bfloat16", _backward(lambda x: f.cross_entropy(x, classes), half)
    yield "bce", _backward(lambda x: f.binary_cross_entropy(x, probability), inside)
    yield "bce with logits", _backward(lambda x: f.binary_cross_entropy_with_logits(x, probability), x)
    for name in (
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "soft_margin_loss",
        "poisson_nll_loss",
        "kl_div",
    ):
        yield name, _backward(lambda x, loss=getattr(f, name): loss(x, y), x)
    variance = torch.rand(4096, 1000, device="cuda") + 0.1
    yield "gaussian_nll_loss", _backward(lambda x: f.gaussian_nll_loss(x, y, variance), x)
    sign = torch.ones(4096, device="cuda")
    yield "cosine_embedding_loss", _backward(lambda x: f.cosine_embedding_loss(x, y, sign), x)
    yield "hinge_embedding_loss", _backward(lambda x: f.hinge_embedding_loss(x, torch.ones_like(x)), x)
    yield "triplet_margin_loss", _backward(lambda x: f.triplet_margin_loss(x, y, y.flip(0)), x)
    yield "margin_ranking_loss", _backward(lambda x: f.margin_ranking_loss(x, y, torch.ones_like(x)), x)
    yield "multi_margin_loss", _backward(lambda x: f.multi_margin_loss(x, classes), x)
    yield "multilabel_margin_loss", _backward(lambda x: f.multilabel_margin_loss(x, whole(1000, 4096, 1000)), x)
    yield "multilabel_soft_margin_loss", _backward(lambda x: f.multilabel_soft_margin_loss(x, probability.round()), x)
    speech = random(200, 16, 40, grad=True)
    lengths = torch.full((16,), 200, dtype=torch.long), torch.full((16,), 30, dtype=torch.long)
    said = 1 + whole(39, 16, 30)
    yield "ctc_loss", _backward(lambda x: f.ctc_loss(x.log_softmax(2), said, *lengths), speech)
    yield "pairwise_distance", _backward(lambda x: f.pairwise_distance(x, y), x)
    points = random(1024, 64, grad=True)
    yield "pdist", _backward(f.pdist, points)
    yield "cdist", _backward(lambda x: torch.cdist(x, x.detach().flip(0)), points)
    yield "cdist of few", _backward(lambda x: torch.cdist(x, x.detach()), random(20, 64, grad=True))
    yield "cdist p=1", _backward(lambda x: torch.cdist(x, x.detach().flip(0), p=1.0), points)


def _reductions() -> Iterator[tuple[str, Call]]:
    x, flat, counts = random(2048, 2048), random(1 << 22), whole(1000, 1 << 20)
    truth = x > 0
    for name in (
        "sum", "mean", "prod", "std", "var", "amax", "argmax", "norm", "logsumexp", "median", "nanmedian", "mode",
        "nansum", "nanmean", "count_nonzero", "aminmax", "cumsum", "cumprod", "logcumsumexp", "cummax", "sort",
        "argsort", "softmax",
    ):  # fmt: skip
        function = getattr(torch, name)
        if name != "mode":
            yield f"{name} over the last", partial(function, x, dim=-1)
        yield f"{name} over the first", partial(function, x[:, :512] if name == "mode" else x, dim=0)
    for name in (
        "sum",
        "mean",
        "prod",
        "std",
        "amax",
        "argmax",
        "norm",
        "median",
        "count_nonzero",
        "min",
        "max",
        "aminmax",
        "all",
    ):
        yield f"{name} of all", partial(getattr(torch, name), truth if name == "all" else flat)
    yield "std_mean", lambda: torch.std_mean(x, dim=1)
    yield "quantile", lambda: torch.quantile(x, 0.5, dim=1)
    yield "kthvalue", lambda: torch.kthvalue(x, 10, dim=1)
    for k in (1, 50):
        yield f"topk {k}", lambda k=k: torch.topk(x, k, dim=1)
    yield "topk 5 of a vocabulary", lambda v=random(64, 50000): torch.topk(v, 5)
    yield "topk 100 of all", lambda: torch.topk(flat, 100)
    yield "sort of all", lambda: torch.sort(flat)
    yield "sort of whole numbers", lambda: torch.sort(counts)
    yield "sort stable, descending", lambda: torch.sort(x, dim=1, descending=True, stable=True)
    yield "cumsum of all", lambda: torch.cumsum(flat, 0)
    yield "histc", lambda: torch.histc(flat, 100)
    yield "bincount", lambda: torch.bincount(counts)
    yield "bincount with weights", lambda w=torch.rand(1 << 20, device="cuda"): torch.bincount(counts, w)
    yield "unique", lambda: torch.unique(counts)
    yield "unique with counts", lambda: torch.unique(counts, return_inverse=True, return_counts=True)
    yield "unique_consecutive", lambda: torch.unique_consecutive(counts)
    yield "unique of rows", lambda rows=whole(4, 10000, 4): torch.unique(rows, dim=0)
    yield "diff", lambda: torch.diff(x)
    yield "trapezoid", lambda: torch.trapezoid(x)
    yield "cov", lambda y=random(256, 4096): torch.cov(y)
    yield "corrcoef", lambda y=random(256, 4096): torch.corrcoef(y)
    yield "renorm", lambda: torch.renorm(x, 2, 0, 1.0)
    yield "equal", lambda: torch.equal(x, x)
    yield "allclose", lambda: torch.allclose(x, x)
    yield "isfinite.all", lambda: torch.isfinite(x).all()
    yield "backward of cumsum", _backward(lambda x: torch.cumsum(x, 1), random(2048, 2048, grad=True))
    yield "backward of prod", _backward(lambda x: torch.prod(x, 1), random(2048, 256, grad=True))
    yield "backward of amax", _backward(lambda x: torch.amax(x, 1), random(2048, 2048, grad=True))
    yield "backward of std", _backward(lambda x: torch.std(x, 1), random(2048, 2048, grad=True))
    yield "backward of sort", _backward(lambda x: torch.sort(x, 1).values, random(2048, 2048, grad=True))
    yield "backward of norm", _backward(lambda x: torch.linalg.vector_norm(x, dim=1), random(2048, 2048, grad=True))


def _choices() -> Iterator[tuple[str, Call]]:
    x, index = random(4096, 1024), whole(4096, 8192)
    truth = x > 0
    wide = whole(4096, 4096, 1024)
    yield "index rows", lambda: x[index]
    yield "index both", lambda c=whole(1024, 8192): x[index, c]
    yield "index by truth", lambda: x[truth]
    yield "masked_select", lambda: torch.masked_select(x, truth)
    yield "nonzero", lambda: torch.nonzero(truth)
    yield "argwhere", lambda: torch.argwhere(truth)
    yield "where", lambda: torch.where(truth, x, 0.0)
    yield "where, one argument", lambda: torch.where(truth)
    yield "masked_fill", lambda: x.masked_fill(truth, 0.0)
    yield "masked_scatter", lambda: x.masked_scatter(truth, x)
    yield "index_select", lambda: x.index_select(0, index)
    yield "take", lambda: x.take(index)
    yield "take_along_dim", lambda: x.take_along_dim(wide[:100], 0)
    yield "gather", lambda: x.gather(0, wide)
    yield "scatter", lambda: torch.zeros_like(x).scatter(0, wide, x)
    yield "scatter_add", lambda: torch.zeros_like(x).scatter_add(0, wide, x)
    for reduce in ("sum", "amax", "mean", "prod"):
        yield f"scatter_reduce {reduce}", lambda r=reduce: torch.zeros_like(x).scatter_reduce(0, wide, x, r)
    rows = random(8192, 1024)
    yield "index_add", lambda: torch.zeros_like(x).index_add(0, index, rows)
    yield "index_add of few", lambda: torch.zeros(50, 64, device="cuda").index_add(0, index % 50, rows[:, :64])
    yield "index_copy", lambda: torch.zeros_like(x).index_copy(0, index[:4096], x)
    yield "index_fill", lambda: x.index_fill(0, index, 1.0)
    yield "index_reduce", lambda: torch.zeros_like(x).index_reduce(0, index, rows, "amax")
    yield "index_put", lambda: x.clone().index_put_((index,), rows)
    yield "index_put accumulate", lambda: x.clone().index_put_((index,), rows, accumulate=True)
    yield "set by truth", lambda: _set(x.clone(), truth)
    yield "backward of index", _backward(lambda x: x[index], random(4096, 1024, grad=True))
    yield "backward of gather", _backward(lambda x: x.gather(0, wide), random(4096, 1024, grad=True))
    yield "searchsorted", lambda s=torch.linspace(0, 1, 10000, device="cuda"): torch.searchsorted(s, x)
    yield "bucketize", lambda s=torch.linspace(0, 1, 100, device="cuda"): torch.bucketize(x, s)
    yield "isin", lambda: torch.isin(index, whole(4096, 100))
    yield "one_hot", lambda: f.one_hot(index, 4096)
    yield "repeat_interleave", lambda: x[:, :64].repeat_interleave(4, 0)
    yield "repeat_interleave by counts", lambda n=whole(5, 4096): x[:, :64].repeat_interleave(n, 0)
    yield "tril", lambda: x.tril()
    yield "triu_indices", lambda: torch.triu_indices(1000, 1000, device="cuda")
    yield "clamp", lambda: x.clamp(-1, 1)
    yield "nan_to_num", lambda: x.nan_to_num()
    yield "lerp", lambda: torch.lerp(x, x, 0.3)
    yield "addcmul", lambda: torch.addcmul(x, x, x)
    yield "polynomial of x", lambda: x.pow(3) + x.square() * 2 - x
    yield "segment_reduce", lambda n=torch.full((64,), 64, device="cuda"): torch.segment_reduce(x, "sum", lengths=n)
    yield "sparse @ dense", lambda: torch.sparse.mm(_sparse(), rows[:4096, :128])
    yield "csr @ dense", lambda: _sparse().to_sparse_csr() @ rows[:4096, :128]
    yield "coalesce", _sparse
    yield "to_sparse", lambda d=f.dropout(x, 0.99): d.to_sparse()
    yield "to_dense", lambda: _sparse().to_dense()


def _set(x: Tensor, truth: Tensor) -> Tensor:
    x[truth] = 0.0
    return x


def _sparse() -> Tensor:
    return torch.sparse_coo_tensor(whole(4096, 2, 60000), random(60000), (4096, 4096)).coalesce()


def _algebra() -> Iterator[tuple[str, Call]]:
    a, b = random(1024, 1024), random(64, 128, 128)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        yield f"mm {str(dtype)[6:]}", lambda a=a.to(dtype): a @ a
        yield f"bmm {str(dtype)[6:]}", lambda b=b.to(dtype): b @ b
    yield "mm float64", lambda a=a.double(): a @ a
    yield "mv", lambda: a @ a[0]
    yield "dot", lambda v=random(1 << 20): v @ v
    yield "outer", lambda: torch.outer(a[0], a[1])
    yield "baddbmm", lambda: torch.baddbmm(b, b, b)
    yield "int_mm", lambda i=torch.ones(1024, 1024, dtype=torch.int8, device="cuda"): torch._int_mm(i, i)
    for equation in ("bij,bjk->bik", "bhid,bhjd->bhij", "i,j->ij", "bi,bi->b", "bsd,de->bse", "ij,kj->ik"):
        sides = {"b": 16, "h": 8, "i": 128, "j": 128, "k": 64, "d": 64, "s": 128, "e": 256}
        shapes = equation.split("->")[0].split(",")
        operands = [random(*(sides[letter] for letter in shape)) for shape in shapes]
        yield f"einsum {equation}", lambda equation=equation, operands=operands: torch.einsum(equation, *operands)
    yield "tensordot", lambda: torch.tensordot(b, b, dims=([0, 2], [0, 2]))
    yield "kron", lambda: torch.kron(b[0], b[1])
    yield "chain_matmul", lambda: torch.linalg.multi_dot([a, a, a[:, :10]])
    yield "matrix_power", lambda: torch.matrix_power(b, 3)
    yield "matrix_exp", lambda: torch.matrix_exp(b * 0.01)
    yield "cross", lambda p=random(100000, 3): torch.linalg.cross(p, p.flip(0))
    spd = a @ a.T + 1024 * torch.eye(1024, device="cuda")
    many = b @ b.mT + 128 * torch.eye(128, device="cuda")
    small = many[:, :4, :4].contiguous()
    for name in (
        "cholesky",
        "inv",
        "det",
        "slogdet",
        "qr",
        "svd",
        "svdvals",
        "eigh",
        "eigvalsh",
        "pinv",
        "matrix_rank",
        "lu_factor",
    ):
        for size, given in (("256", spd[:256, :256].contiguous()), ("64 of 128", many), ("64 of 4", small)):
            if size == "64 of 128" and name in ("svd", "svdvals", "pinv", "matrix_rank"):
                continue
            yield f"linalg.{name} {size}", lambda g=getattr(torch.linalg, name), given=given: g(given)
    yield "linalg.solve", lambda: torch.linalg.solve(spd[:256, :256], a[:256, :10])
    yield "linalg.solve of many", lambda: torch.linalg.solve(many, b)
    yield "linalg.lstsq", lambda: torch.linalg.lstsq(a[:, :100], a[:, :5])
    yield "linalg.solve_triangular", lambda: torch.linalg.solve_triangular(spd, a, upper=False)
    yield "cholesky_solve", lambda c=torch.linalg.cholesky(spd): torch.cholesky_solve(a, c)
    yield "cond", lambda: torch.linalg.cond(spd[:64, :64])
    yield "backward of cholesky", _backward(torch.linalg.cholesky, spd[:256, :256].clone().requires_grad_())
    yield "backward of inv", _backward(torch.linalg.inv, many.clone().requires_grad_())
    yield (
        "bfloat16 sdpa",
        lambda q=random(8, 16, 512, 64, dtype=torch.bfloat16): f.scaled_dot_product_attention(q, q, q),
    )
    yield "float32 sdpa", lambda q=random(8, 8, 256, 64): f.scaled_dot_product_attention(q, q, q, is_causal=True)


def _signals() -> Iterator[tuple[str, Call]]:
    x, image = random(64, 16384), random(32, 256, 256)
    yield "fft", lambda: torch.fft.fft(x)
    yield "rfft, irfft", lambda: torch.fft.irfft(torch.fft.rfft(x))
    yield "fft2", lambda: torch.fft.fft2(image)
    yield "rfft2, irfft2", lambda: torch.fft.irfft2(torch.fft.rfft2(image))
    yield "fft of an odd length", lambda: torch.fft.rfft(x[:, :10007])
    yield "fft of the first dimension", lambda: torch.fft.fft(image, dim=0)
    yield "fftshift", lambda: torch.fft.fftshift(image)
    window = torch.hann_window(400, device="cuda")
    yield "stft", lambda: torch.stft(x, 400, 160, window=window, return_complex=True)
    spectrum = torch.stft(x, 400, 160, window=window, return_complex=True)
    yield "istft", lambda: torch.istft(spectrum, 400, 160, window=window)
    yield "abs, angle", lambda: (spectrum.abs(), spectrum.angle())
    yield "product of complex numbers", lambda: spectrum * spectrum.conj()
    yield "backward of rfft", _backward(lambda x: torch.fft.rfft(x).abs(), random(64, 16384, grad=True))
    yield "conv by fft", lambda k=random(64, 16384): torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(k))


def _random() -> Iterator[tuple[str, Call]]:
    p = torch.rand(256, 32000, device="cuda")
    yield "randn", lambda: torch.randn(2048, 2048, device="cuda")
    yield "rand", lambda: torch.rand(2048, 2048, device="cuda")
    yield "randint", lambda: torch.randint(100, (2048, 2048), device="cuda")
    yield "randperm", lambda: torch.randperm(1 << 20, device="cuda")
    yield "randperm of few", lambda: torch.randperm(1000, device="cuda")
    yield "bernoulli", lambda: torch.bernoulli(p)
    yield "multinomial", lambda: torch.multinomial(p, 1)
    yield "multinomial of 10", lambda: torch.multinomial(p, 10)
    yield "multinomial, replaced", lambda: torch.multinomial(p, 10, replacement=True)
    yield "normal", lambda: torch.normal(p, 1.0)
    yield "poisson", lambda: torch.poisson(p)
    yield "exponential_", lambda: torch.empty(2048, 2048, device="cuda").exponential_()
    yield "gumbel_softmax", lambda x=random(4096, 100): f.gumbel_softmax(x, hard=True)
    yield "gumbel by hand", lambda x=random(64, 32000): (x / torch.empty_like(x).exponential_()).argmax(-1)
    yield "Categorical", lambda x=random(4096, 100): torch.distributions.Categorical(logits=x).sample()
    yield "Normal.log_prob", lambda x=random(4096, 100): torch.distributions.Normal(x, 1.0).log_prob(x)
    yield "Gamma", lambda: torch.distributions.Gamma(torch.ones(4096, 16, device="cuda"), 2.0).sample()
    yield "Dirichlet", lambda: torch.distributions.Dirichlet(torch.ones(4096, 16, device="cuda")).sample()
    yield "Beta", lambda: torch.distributions.Beta(torch.ones(4096, device="cuda"), 2.0).sample()
    yield "trunc_normal_", lambda: nn.init.trunc_normal_(torch.empty(1024, 1024, device="cuda"))
    yield "kaiming_uniform_", lambda: nn.init.kaiming_uniform_(torch.empty(1024, 1024, device="cuda"))
    yield "orthogonal_", lambda: nn.init.orthogonal_(torch.empty(256, 256, device="cuda"))


def _layout() -> Iterator[tuple[str, Call]]:
    x, parts = random(2048, 2048), [random(512, 1024) for _ in range(8)]
    yield "cat", lambda: torch.cat(parts)
    yield "cat along the last", lambda: torch.cat(parts, 1)
    yield "stack", lambda: torch.stack(parts)
    yield "transpose, contiguous", lambda: x.t().contiguous()
    yield "permute, contiguous", lambda y=random(32, 64, 32, 32): y.permute(0, 2, 3, 1).contiguous()
    yield "channels_last", lambda y=random(32, 64, 32, 32): y.contiguous(memory_format=torch.channels_last)
    yield "flip", lambda: x.flip(1)
    yield "roll", lambda: x.roll(5, 1)
    yield "rot90", lambda: x.rot90()
    yield "expand, contiguous", lambda: x[:, :1].expand(-1, 2048).contiguous()
    yield "tile", lambda: x[:512].tile(4, 1)
    yield "pad", lambda: f.pad(x, (3, 3))
    yield "meshgrid", lambda i=torch.arange(1000, device="cuda"): torch.stack(torch.meshgrid(i, i, indexing="ij"))
    yield "arange", lambda: torch.arange(1 << 20, device="cuda")
    yield "linspace", lambda: torch.linspace(0, 1, 1 << 20, device="cuda")
    yield "eye", lambda: torch.eye(1024, device="cuda")
    yield "diag_embed", lambda: torch.diag_embed(x[:64, :256])
    yield "block_diag", lambda: torch.block_diag(*parts[:2])
    yield "combinations", lambda: torch.combinations(x[0, :200])
    yield "cartesian_prod", lambda: torch.cartesian_prod(x[0, :200], x[1, :200])
    yield "unfold", lambda: x.unfold(1, 16, 8).contiguous()
    yield "to bfloat16", lambda: x.bfloat16()
    yield "to int", lambda: x.int()
    yield "item", lambda: x[0, 0].item()
    yield "tolist", lambda: x[0].tolist()
    yield "to the CPU", lambda: x.cpu()
    yield "from the CPU", lambda y=torch.randn(512, 512): y.cuda()
    yield "tensor of a list", lambda: torch.tensor([1.0, 2.0, 3.0], device="cuda")
    yield "full", lambda: torch.full((2048, 2048), 3.0, device="cuda")
    yield "split, cat", lambda: torch.cat([each * 2 for each in x.split(256)])
    yield "unbind, stack", lambda: torch.stack(list(reversed(x[:16].unbind())))
    yield "pad_sequence", lambda: nn.utils.rnn.pad_sequence([x[0, :n] for n in range(100, 200, 10)])
    yield "logical", lambda: (x > 0) & (x < 1) | x.isnan()
    yield "bit operations", lambda y=whole(1000, 2048, 2048): (y << 2) ^ (y & 7)
    yield "integer division", lambda y=whole(1000, 2048, 2048): y // 7 + y % 7
    yield "comparison chain", lambda: ((x - x.mean()) / x.std()).clamp(-3, 3).mul_(0.5)
