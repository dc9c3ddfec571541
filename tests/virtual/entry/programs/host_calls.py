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


def within():
    with torch.cuda.stream(stream):
        pass


def mixed():
    with torch.autocast("cuda"):
        pass


def ungraded():
    with torch.no_grad():
        pass


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
plain, stream = torch.zeros(8, device="cuda"), torch.cuda.Stream()
several = [nn.Parameter(bias.clone()) for _ in range(50)]
for each in several:
    each.grad = torch.ones_like(each)
add = loop(lambda: plain.add_(1.0))
deep, inner = torch.zeros(2, 4, 8, device="cuda"), nn.Sequential(*(nn.Identity() for _ in range(20)))
found["over add_"] = {
    "view": loop(lambda: deep.view(8, 8)) / add,
    "slice": loop(lambda: deep[:, 1:]) / add,
    "detach": loop(plain.detach) / add,
    "to, nothing to do": loop(lambda: plain.to("cuda")) / add,
    "manual_seed": loop(lambda: torch.manual_seed(0)) / add,
    "get_rng_state": loop(torch.cuda.get_rng_state) / add,
    "no_grad": loop(ungraded) / add,
    "Identity": loop(lambda: inner(plain)) / add / 20,
    "current_stream": loop(torch.cuda.current_stream) / add,
    "with stream": loop(within) / add,
    "memory_allocated": loop(torch.cuda.memory_allocated) / add,
    "autocast": loop(mixed) / add,
    "train": loop(model.train) / add / 37,
    "parameters": loop(lambda: list(model.parameters())) / add / 37,
    "SGD": us(torch.optim.SGD(several, lr=0.1).step) / add / 50,
    "_foreach_sqrt": us(lambda: torch._foreach_sqrt([each.data for each in several])) / add / 50,
}
print(json.dumps(found))
