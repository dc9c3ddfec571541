"""Layers that CUDA computes by other operators than the CPU: how far outputs and gradients are apart on CPU and GPU."""

import copy
import json
import warnings

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pack_padded_sequence

TOLD = {}
RANGES = [(5, 0, 0), (3, 0, 9), (7, -3, 12)]


def leaves(value) -> list:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, (tuple, list)) else []


def run(module: nn.Module, inputs: list, device: str) -> list:
    module = copy.deepcopy(module).to(device)
    given = [copy.deepcopy(value).to(device) for value in inputs]
    for value in given:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            value.requires_grad_()
    outputs = [leaf for leaf in leaves(module(*given)) if leaf.is_floating_point()]
    sum((one * one).sum() for one in outputs).backward()
    gradients = [value.grad for value in [*given, *module.parameters()] if getattr(value, "grad", None) is not None]
    return [one.detach().cpu() for one in [*outputs, *gradients]]


def apart(name: str, module: nn.Module, *inputs) -> None:
    cpu, gpu = run(module, list(inputs), "cpu"), run(module, list(inputs), "cuda")
    same = len(cpu) == len(gpu) and all(
        a.shape == b.shape and a.dtype == b.dtype for a, b in zip(cpu, gpu, strict=True)
    )
    TOLD[name] = max(float((a - b).abs().max()) for a, b in zip(cpu, gpu, strict=True)) if same else "other shapes"


def recurrent() -> None:
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        for name, options in {
            "": {},
            " of two layers both ways": {"num_layers": 2, "bidirectional": True},
            " batch first": {"batch_first": True},
            " without biases": {"bias": False},
        }.items():
            apart(f"{kind.__name__}{name}", kind(5, 6, **options), torch.randn(7, 3, 5))
        wide = kind(32, 32, batch_first=True)
        apart(f"{kind.__name__} wide and batch first", wide, torch.randn(3, 61, 32))
        packed = pack_padded_sequence(torch.randn(7, 3, 5), torch.tensor([7, 5, 2]))
        apart(f"{kind.__name__} packed", kind(5, 6), packed)
    apart("LSTM with projections", nn.LSTM(5, 6, proj_size=3), torch.randn(7, 3, 5))
    apart("LSTM evaluated", nn.Sequential(nn.LSTM(5, 6), nn.Identity()).train(), torch.randn(7, 3, 5))
    for kind in (nn.LSTMCell, nn.GRUCell, nn.RNNCell):
        apart(kind.__name__, kind(5, 6), torch.randn(3, 5))
    apart("GRUCell without biases", nn.GRUCell(5, 6, bias=False), torch.randn(3, 5))


def convolutions() -> None:
    image, line, volume = torch.randn(2, 4, 9, 9), torch.randn(2, 4, 11), torch.randn(2, 4, 5, 5, 5)
    apart("Conv2d", nn.Conv2d(4, 6, 3, stride=2, padding=1), image)
    apart("Conv2d grouped", nn.Conv2d(4, 6, 3, groups=2), image)
    apart("Conv2d depthwise", nn.Conv2d(4, 8, 3, groups=4), image)
    apart("Conv2d channels last", nn.Conv2d(4, 6, 3), image.to(memory_format=torch.channels_last))
    apart("ConvTranspose2d", nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), image)
    apart("Conv1d same", nn.Conv1d(4, 6, 4, padding="same"), line)
    apart("Conv3d", nn.Conv3d(4, 6, 3), volume)


def norms() -> None:
    image = torch.randn(4, 6, 5, 5)
    apart("BatchNorm2d", nn.BatchNorm2d(6), image)
    apart("BatchNorm2d evaluated", nn.BatchNorm2d(6).eval(), image)
    apart("BatchNorm1d of rows", nn.BatchNorm1d(6), torch.randn(8, 6))
    apart("InstanceNorm2d", nn.InstanceNorm2d(6, affine=True), image)
    apart("LayerNorm", nn.LayerNorm(5), image)
    apart("GroupNorm", nn.GroupNorm(3, 6), image)
    apart("RMSNorm", nn.RMSNorm(5), image)


def by_backend() -> None:
    """Where scores are dropped: the output is linear in v, so its gradient must use the very same mask."""
    for backend, dtype in (
        (SDPBackend.EFFICIENT_ATTENTION, torch.float32),
        (SDPBackend.FLASH_ATTENTION, torch.bfloat16),
        (SDPBackend.CUDNN_ATTENTION, torch.float16),
    ):
        for masked in (False, True):
            if masked and backend == SDPBackend.FLASH_ATTENTION:
                continue
            q, k, v, grad = (torch.randn(2, 3, 17, 16, device="cuda", dtype=dtype) for _ in range(4))
            v.requires_grad_()
            mask = torch.ones(17, 17, dtype=torch.bool, device="cuda").tril() if masked else None
            with sdpa_kernel([backend]):
                out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.5)
                plain = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            out.backward(grad)
            forward, backward = (grad * out).double().sum(), (v.grad * v).double().sum()
            name = f"{backend.name} {'masked' if masked else 'plain'}"
            TOLD[f"dropout {name}"] = float((forward - backward).abs() / forward.abs().clamp(min=1))
            TOLD[f"dropped {name}"] = bool((out - plain).abs().max() > 0.05)


def dropping_between_layers() -> None:
    layers = nn.LSTM(5, 6, num_layers=3, dropout=0.5).cuda()
    data = torch.randn(7, 3, 5, device="cuda")

    def loss(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return layers(x)[0].square().sum()

    x = data.clone().requires_grad_()
    loss(x).backward()
    way = torch.randn_like(data)
    numeric = float(loss(data + 1e-2 * way) - loss(data - 1e-2 * way)) / 2e-2
    analytic = float((x.grad * way).sum())
    TOLD["LSTM dropping"] = abs(numeric - analytic) / max(abs(analytic), 1e-3)
    torch.manual_seed(4)
    TOLD["LSTM drops by the seed"] = bool((layers(data)[0] - layers(data)[0]).abs().max() > 0)


def refusal(rows: int, inner: int, columns: int) -> str:
    """What the error of a product of integers says; "" if it is computed."""
    left = torch.ones(rows, inner, dtype=torch.int8, device="cuda")
    right = torch.ones(inner, columns, dtype=torch.int8, device="cuda")
    try:
        assert torch._int_mm(left, right).tolist() == [[inner] * columns] * rows
    except RuntimeError as error:
        return str(error)
    return ""


def others() -> None:
    torch.manual_seed(0)
    scores = torch.randn(20, 2, 6)
    targets = torch.randint(1, 6, (8,), dtype=torch.int32)
    losses = []
    for device in ("cpu", "cuda"):
        x = scores.clone().to(device).requires_grad_()
        loss = functional.ctc_loss(x.log_softmax(2), targets, (20, 20), (4, 4))
        loss.backward()
        losses.append((loss.detach().cpu(), x.grad.cpu()))
    with torch.profiler.profile() as profile:
        torch._use_cudnn_ctc_loss(scores.cuda(), targets.cuda(), (20, 20), (4, 4), 0)
    TOLD["asked"] = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    TOLD["ctc"] = max(float((a - b).abs().max()) for a, b in zip(*losses, strict=True))
    for mode in ("sum", "mean", "max"):
        bag = nn.EmbeddingBag(9, 4, mode=mode)
        apart(f"EmbeddingBag {mode}", bag, torch.tensor([[1, 2, 1], [8, 0, 3]]))
    integers = torch.tensor([-7, -3, 0, 1, 2, 3, 4, 4, 5, 6, 9, 12])
    for dtype in (torch.int16, torch.int64):
        counts = [torch.histc(integers.to("cuda", dtype), bins, low, high) for bins, low, high in RANGES]
        assert {count.dtype for count in counts} == {dtype}
        TOLD[f"histc {dtype}"] = [count.tolist() for count in counts]
    TOLD["histc"] = [torch.histc(integers.double(), bins, low, high).tolist() for bins, low, high in RANGES]
    TOLD["_int_mm"] = [refusal(16, 16, 16), refusal(32, 20, 16), refusal(32, 16, 20), refusal(32, 16, 24)]
    x = torch.randn(2, 3, 8, 8, device="cuda", dtype=torch.float16)
    pooled = functional.avg_pool3d(x, 2)
    TOLD["halves"] = [
        str(pooled.dtype),
        float((pooled.cpu().float() - functional.avg_pool3d(x.cpu().float(), 2)).abs().max()),
    ]
    half = torch.randn(4, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    nn.LayerNorm(16, device="cuda", dtype=torch.bfloat16)(half).float().square().sum().backward()
    TOLD["layer norm of halves"] = bool(half.grad.isfinite().all())
    with torch.autocast("cuda", torch.float16):
        TOLD["autocast LSTM"] = str(nn.LSTM(5, 6).cuda()(torch.randn(7, 3, 5, device="cuda"))[0].dtype)


def main() -> None:
    warnings.simplefilter("ignore")
    for part in (recurrent, convolutions, norms, by_backend, dropping_between_layers, others):
        torch.manual_seed(11)
        part()
    print(json.dumps(TOLD))


main()
