"""Integers divided by 0, and the smallest ones by -1, as an H200 divides them."""

import json

import unstall

with unstall.virtual_gpu("h200") as gpu:
    import torch

    d = "cuda"
    ways = {
        "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        "floor": lambda a, b: a // b,
        "floor_": lambda a, b: a.clone().floor_divide_(b),
        "%": lambda a, b: a % b,
        "fmod": torch.fmod,
        "out": lambda a, b: torch.remainder(a, b, out=torch.empty_like(a)),
    }
    told = {}
    for dtype in (torch.uint8, torch.int32, torch.int64):
        info = torch.iinfo(dtype)
        x = torch.tensor([info.min, 0, 7, info.max] if info.min == 0 else [info.min, -7, 0, 7, info.max], device=d)
        x = x.to(dtype)
        for name, way in ways.items():
            for divisor in (0, torch.zeros_like(x)) if info.min == 0 else (0, torch.zeros_like(x), -1):
                kind = "zeros" if isinstance(divisor, torch.Tensor) else divisor
                told[f"{str(dtype)[6:]} {name} {kind}"] = way(x, divisor).tolist()
    told["mixed"] = (torch.tensor([9, 8, -9], device=d) // torch.tensor([[2, 0, -1]], device=d)).tolist()
    told["number"] = (7 % torch.tensor([0, 4], device=d)).tolist()
    told["bool"] = (torch.tensor([True], device=d) // 0).tolist()
    told["true"] = (torch.tensor([1, 0], device=d) / 0).tolist()

    left, right = torch.full((2,), 8, device=d), torch.tensor([2, 4], device=d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        quotient = left // right
    right[0] = 0
    graph.replay()
    told["replayed"] = quotient.tolist()

told["note"] = [note for note in gpu.timeline().meta.notes if "divided by zero" in note]
print(json.dumps(told))
