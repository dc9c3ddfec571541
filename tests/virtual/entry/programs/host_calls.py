"""Times calls of torch on the host: in loops over one of them, and `zero_grad` after a step."""

import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional


def us(call, before=lambda: None):
    taken = []
    for _ in range(20):
        before()
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        call()
        taken.append((time.perf_counter_ns() - begin) / 1e3)
    return statistics.median(taken)


def loop(call):
    return us(lambda: [call() for _ in range(50)]) / 50


x, images, weight, bias = (torch.randn(*sizes, device="cuda") for sizes in ((1, 256), (2, 4, 256), (256, 256), (256,)))
layers = [layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU())]
model, rows = nn.Sequential(*layers).cuda(), torch.zeros(8, 64, device="cuda")
optimizer = torch.optim.AdamW(model.parameters())


def step():
    model(rows).square().mean().backward()
    optimizer.step()


found = {"zero_grad": us(optimizer.zero_grad, step) / 48}
with torch.no_grad():
    found["linear"] = loop(lambda: functional.linear(x, weight, bias))
    found["softmax"] = loop(lambda: functional.softmax(x, -1))
    found["layer_norm"] = loop(lambda: functional.layer_norm(x, (256,), bias, bias))
weight.requires_grad_()
found["t, recorded"] = loop(weight.t)
found["linear, recorded"] = loop(lambda: functional.linear(x, weight, bias))
print(json.dumps(found))
