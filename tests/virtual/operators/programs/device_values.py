"""Operators on a virtual GPU beside the CPU's, in float32 and float64."""

import hashlib
import json
from collections.abc import Callable
from contextlib import contextmanager

import torch
from torch.nn import functional

Call = Callable[..., torch.Tensor]

ROWS, TERMS = 8, 5000
SUMS: dict[str, Call] = {
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(1),
    "sum of columns": lambda x: x.t().sum(0),
    "mean": lambda x: x.mean(),
    "mean of rows": lambda x: x.mean(-1, keepdim=True),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "variance": lambda x: x.var(1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "layer norm": lambda x: functional.layer_norm(x, x.shape[1:], x[0], x[1]),
    "batch norm": lambda x: functional.batch_norm(x.t().contiguous(), None, None, training=True),
}
INTO = torch.arange(TERMS) % 7
ATOMICS: dict[str, Call] = {
    "index_add": lambda x: x.new_zeros(7, ROWS).index_add(0, INTO.to(x.device), x.t()),
    "scatter_add": lambda x: x.new_zeros(ROWS, 7).scatter_add(1, INTO.to(x.device).expand(ROWS, -1), x),
    "index_put": lambda x: x.new_zeros(7, ROWS).index_put((INTO.to(x.device),), x.t(), accumulate=True),
    "index_put of columns": lambda x: x.new_zeros(ROWS, 7).index_put_(
        (torch.arange(ROWS, device=x.device)[:, None], INTO.to(x.device)), x, accumulate=True
    ),
    "index_put after a slice": lambda x: torch.ops.aten.index_put(
        x.new_zeros(ROWS, 7), [None, INTO.to(x.device)], x, True
    ),
    "embedding": lambda x: embedding_gradient(x),
}


def embedding_gradient(x: torch.Tensor) -> torch.Tensor:
    table = x.new_zeros(7, ROWS, requires_grad=True)
    functional.embedding(INTO.to(x.device), table).backward(x.t())
    return table.grad


PRODUCTS: dict[str, Call] = {
    "mm": lambda a, b: a @ b,
    "mm.out": lambda a, b: torch.mm(a, b, out=a.new_empty(len(a), b.shape[1])),
    "addmm_": lambda a, b: a.new_ones(len(a), b.shape[1]).addmm_(a, b),
    "linear": lambda a, b: functional.linear(a, b.t(), b[0]),
    "bmm": lambda a, b: torch.bmm(a.unflatten(0, (2, -1)), b.expand(2, -1, -1)),
    "baddbmm": lambda a, b: torch.baddbmm(b[:1, None], a[None], b[None]),
}
VECTORS: dict[str, Call] = {"mv": lambda a, b: a @ b[:, 0], "dot": lambda a, b: a[0] @ b[:, 0]}


def convolution(x: torch.Tensor, weight: torch.Tensor, **options: int) -> list[torch.Tensor]:
    """The output, and the gradients."""
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    out = functional.conv2d(x, weight, padding=1, **options)
    out.square().sum().backward()
    return [out, x.grad, weight.grad]


CONVOLUTIONS: dict[str, Call] = {
    name: lambda x, weight, number=number: convolution(x, weight)[number]
    for number, name in enumerate(("convolution", "gradient of its input", "gradient of its weight"))
}
GROUPED: dict[str, Call] = {
    "grouped": lambda x, weight: convolution(x, weight[:, :2], groups=24)[0],
    "transposed": lambda x, weight: functional.conv_transpose2d(x, weight),
}


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((found.cpu().double() - wanted).norm() / wanted.norm()).item()


def told_of(call: Call, *inputs: torch.Tensor) -> dict[str, object]:
    exact = call(*[each.double() for each in inputs]).detach()
    on_cpu = call(*inputs).detach()
    found = call(*[each.cuda() for each in inputs]).detach()
    again = call(*[each.cuda() for each in inputs]).detach()
    return {
        "differ": not torch.equal(found.cpu(), on_cpu),
        "again": torch.equal(found, again),
        "error": relative(found, exact),
        "of the CPU": relative(on_cpu, exact),
        "strides": found.stride() == on_cpu.stride(),
        "bits": hashlib.sha256(found.cpu().contiguous().numpy().tobytes()).hexdigest(),
    }


def replayed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Their product, by a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product = a @ b
    graph.replay()
    return product


@contextmanager
def tf32(products: bool, convolutions: bool):
    torch.backends.cuda.matmul.allow_tf32 = products
    torch.backends.cudnn.allow_tf32 = convolutions
    yield


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(ROWS, TERMS)
    a, b = torch.randn(16, 700), torch.randn(700, 24)
    image, weight = torch.randn(3, 48, 9, 9), torch.randn(48, 48, 3, 3)
    heads = [torch.randn(2, 3, 40, 64) for _ in range(3)]
    told: dict[str, object] = {}
    for name, call in (SUMS | ATOMICS).items():
        told[name] = told_of(call, x)
    for switch in (False, True):
        with tf32(products=switch, convolutions=switch):
            about = " in TF32" if switch else ""
            for name, call in (PRODUCTS | VECTORS).items():
                told[name + about] = told_of(call, a, b)
            for name, call in (CONVOLUTIONS | GROUPED).items():
                told[name + about] = told_of(call, image, weight)
            told["attention" + about] = told_of(attention, *heads)
    for name in ("mm", "linear"):
        told[name + " of halves"] = told_of(PRODUCTS[name], a.half(), b.half())
        rounded = PRODUCTS[name](a.half().double(), b.half().double()).half()
        found = PRODUCTS[name](a.half().cuda(), b.half().cuda()).cpu()
        told[name + " rounded once"] = (found == rounded).double().mean().item()
    told["replayed"] = torch.equal(replayed(a.cuda(), b.cuda()), a.cuda() @ b.cuda())
    told["integers"] = torch.arange(TERMS, device="cuda").sum().item()
    torch.use_deterministic_algorithms(True)
    told["fixed"] = {name: told_of(call, x) for name, call in ATOMICS.items()}
    torch.use_deterministic_algorithms(False)
    print(json.dumps(told))


main()
