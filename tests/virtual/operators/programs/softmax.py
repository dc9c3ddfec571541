"""softmax() and log_softmax() that read halves and write float32, beside those of float32 alone, and what uses them."""

import json

import torch
from torch.nn import functional


def close(found: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> bool:
    return found.dtype == dtype and torch.allclose(found.float(), wanted.float(), rtol=2e-3, atol=2e-3)


def gradients(call, dtype: torch.dtype) -> bool:
    half = torch.randn(4, 7, device="cuda").to(dtype).requires_grad_()
    wide = half.detach().float().requires_grad_()
    weights = torch.randn(4, 7, device="cuda")
    (call(half, -1, dtype=torch.float32) * weights).sum().backward()
    (call(wide, -1) * weights).sum().backward()
    return close(half.grad, wide.grad, dtype)


def attends(dtype: torch.dtype) -> list:
    layer = torch.nn.MultiheadAttention(16, 4, batch_first=True).cuda()
    x = torch.randn(2, 5, 16, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=dtype):
        y = layer(x, x, x)[0]
    y.float().sum().backward()
    return [str(y.dtype), bool(x.grad.isfinite().all())]


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 7, device="cuda").half()
    told = {}
    for call in (functional.softmax, functional.log_softmax):
        told[call.__name__] = [
            close(call(x, 0, dtype=torch.float32), call(x.float(), 0), torch.float32),
            close(call(x, 0), call(x.float(), 0), torch.float16),
            gradients(call, torch.float16),
            gradients(call, torch.bfloat16),
        ]
    out = torch.empty(4, 7, device="cuda")
    torch.softmax(x, 0, dtype=torch.float32, out=out)
    told["out"] = close(out, x.float().softmax(0), torch.float32)
    told["attention"] = [attends(torch.float16), attends(torch.bfloat16)]
    print(json.dumps(told))


if __name__ == "__main__":
    main()
