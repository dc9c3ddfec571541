"""What an H200 refuses, and its words: of torch 2.11 for CUDA 13.0."""

import json
import warnings

import torch
from torch import nn
from torch.nn import functional

assert nn
assert functional
d = "cuda"
told = {}


def tell(code):
    try:
        eval(code, globals())
        told[code] = "fine"
    except Exception as error:
        told[code] = f"{type(error).__name__}: {str(error).splitlines()[0]}"


integers = "torch.ones(4, 4, device=d).long()"
image = "torch.ones(1, 2, 4, 4, device=d)"
for code in (
    f"{integers} @ {integers}",
    f"{integers} @ {integers}[0]",
    f"{integers}[0] @ {integers}[0]",
    f"torch.bmm({integers}[None], {integers}[None])",
    f"functional.linear({integers}, {integers}, {integers}[0])",
    f"{integers} + {integers}",
    f"functional.max_pool2d({image}.int(), 2)",
    f"functional.conv2d({image}.long(), torch.ones(2, 2, 3, 3, device=d).long())",
    "torch.cdist(torch.ones(4, 4, device=d).half(), torch.ones(4, 4, device=d).half())",
    f"functional.elu({integers})",
    f"functional.gelu({integers})",
    f"torch.exp({image}.to(torch.float8_e4m3fn))",
    f"torch.sigmoid({image}.to(torch.float8_e4m3fn))",
    f"torch.nn.functional.interpolate({image}.bool(), 8)",
    f"torch.mode({image}.to(torch.complex64))",
    f"torch.tan({image}.to(torch.complex32))",
    "torch.zeros(4)[torch.tensor([1], device=d)]",
    "torch.zeros(4, device=d)[torch.tensor([1])]",
    "torch.zeros(4).index_put_((torch.tensor([1], device=d),), torch.ones(1))",
    "torch.randperm(4, generator=torch.Generator(d))",
    "torch.randperm(4, device=d, generator=torch.Generator(d))",
    "torch.zeros(4).normal_(generator=torch.Generator(d))",
    "torch.randn(4, device=d, generator=torch.Generator())",
    "nn.Linear(4, 2)(torch.ones(1, 4, device=d))",
    "nn.Linear(4, 2).to(d)(torch.ones(1, 4))",
    "torch.ones(4, 4) @ torch.ones(4, 4, device=d)",
    "torch.ones(4, 4, device=d) @ torch.ones(4, 4)",
    "torch.ones(4, 4, device=d).index_select(0, torch.zeros(2, dtype=torch.long))",
    "torch.ones(4, 4, device=d) + torch.ones(4, 4)",
    "torch.mm(torch.ones(4, 4, device=d), torch.ones(4, 4, device=d), out=torch.ones(4, 4))",
):
    tell(code)

x, graph, side = torch.ones(4, device=d), torch.cuda.CUDAGraph(), torch.cuda.Stream()


def captured(joins):
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.add_(1)
        if joins:
            torch.cuda.current_stream().wait_stream(side)


tell("captured(joins=False)")
graph = torch.cuda.CUDAGraph()
tell("captured(joins=True)")

torch.use_deterministic_algorithms(True)
image = "torch.rand(1, 2, 4, 4, device=d, requires_grad=True)"
for code in (
    "torch.histc(torch.rand(8, device=d), bins=4)",
    "torch.bincount(torch.zeros(4, dtype=torch.long, device=d))",
    "torch.bincount(torch.zeros(4, dtype=torch.long, device=d), torch.ones(4, device=d))",
    f"functional.adaptive_avg_pool2d({image}, 2).sum().backward()",
    f"functional.max_pool2d({image}, 2).sum().backward()",
    f"{image}.median(2)[0]",
    f"functional.grid_sample({image}, torch.zeros(1, 4, 4, 2, device=d), align_corners=False).sum().backward()",
):
    tell(code)
torch.use_deterministic_algorithms(True, warn_only=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.histc(torch.rand(8, device=d), bins=4)
told["warned"] = [str(each.message).partition(",")[0] for each in caught]
values = torch.randn(7, 4, 32, device=d, dtype=torch.float16, requires_grad=True)
nested = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 5, 7], device=d)).transpose(1, 2)
tell("functional.scaled_dot_product_attention(nested, nested, nested)")
tell("[functional.scaled_dot_product_attention(each, each, each) for each in nested.unbind()]")
tell("nested.transpose(1, 2).to_padded_tensor(0.0)")
print(json.dumps(told))
