"""Products of float16 on the device. Prints, as JSON, for each: whether its values are those of the same product in
float32, rounded once, and how far it is from float64 at most, as a share of the largest value.
"""

import json
from collections.abc import Callable

import torch
from torch.nn import functional

torch.manual_seed(0)
a, b, c = torch.randn(200, 300), torch.randn(300, 100), torch.randn(200, 100)
image, filters = torch.randn(2, 8, 12, 12), torch.randn(16, 8, 3, 3)
told = {}


def tell(name: str, product: Callable[..., torch.Tensor], *factors: torch.Tensor) -> None:
    halves = [each.half() for each in factors]
    found = product(*[each.cuda() for each in halves]).cpu()
    wide = product(*[each.float() for each in halves]).half()
    true = product(*[each.double() for each in halves])
    assert found.dtype == torch.float16
    off = (found.double() - true).abs().max() / true.abs().max()
    told[name] = [torch.equal(found, wide), off.item()]


def into(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    out = torch.empty(len(first), second.shape[1], dtype=first.dtype, device=first.device)
    torch.mm(first, second, out=out)
    return out


def gradient(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    weight = weight.requires_grad_()
    functional.conv2d(x, weight, padding=1).sum().backward()
    assert weight.grad is not None
    return weight.grad


tell("mm", torch.mm, a, b)
tell("mm out=", into, a, b)
tell("addmm", lambda x, y, z: torch.addmm(z, x, y, alpha=0.5, beta=2.0), a, b, c)
tell("bmm", torch.bmm, a.view(2, 100, 300), b.expand(2, 300, 100))
tell("baddbmm", torch.baddbmm, c.view(2, 100, 100), a.view(2, 100, 300), b.expand(2, 300, 100))
tell("mv", torch.mv, a, b[:, 0])
tell("linear", functional.linear, a, b.mT.contiguous(), c[0])
tell("conv2d", functional.conv2d, image, filters)
tell("conv_transpose2d", functional.conv_transpose2d, image, filters.transpose(0, 1).contiguous())
tell("gradient of conv2d", gradient, image, filters)
print(json.dumps(told))
