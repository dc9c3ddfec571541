"""When a failed assertion is told, and when not. A device for each part."""

import json
import sys

import torch

facts = {}


def kind(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "fine"


def fail(device):
    return torch.ones(4, device=device)[torch.tensor([9], device=device)]


def stream(device):
    return torch.cuda.current_stream(device)


def events():
    before, after = torch.cuda.Event(), torch.cuda.Event()
    before.record(stream(0))
    fail("cuda:0")
    after.record(stream(0))
    facts["event before"] = kind(before.synchronize)
    facts["event after"] = kind(after.synchronize)


def copies():
    wrong = fail("cuda:1")
    pinned = torch.empty(1, pin_memory=True)
    facts["pinned copy"] = kind(lambda: pinned.copy_(wrong, non_blocking=True))
    facts["launch"] = kind(lambda: torch.mm(torch.ones(2, 2, device="cuda:1"), torch.ones(2, 2, device="cuda:1")))
    facts["copy into memory that torch pins"] = kind(lambda: wrong.to("cpu", non_blocking=True))
    facts["pageable copy"] = kind(lambda: torch.empty(1).copy_(wrong, non_blocking=True))


def afterwards():
    x = torch.ones(2, 2, device="cuda:2")
    wrong = fail("cuda:2")
    facts["item"] = kind(wrong.item)
    facts["item again"] = kind(x.sum().item) if kind(x.sum) == "fine" else kind(x.sum)
    facts["empty"] = kind(lambda: torch.empty(3, device="cuda:2"))
    facts["upload"] = kind(lambda: x.copy_(torch.ones(2, 2)))
    facts["record"] = kind(lambda: torch.cuda.Event().record(stream(2)))
    facts["metadata"] = kind(lambda: (x.shape, x.view(4)))


def others():
    fail("cuda:3")
    facts["other device"] = kind(lambda: torch.ones(3, device="cuda:4").sum().item())


def shapes():
    x, index = torch.ones(4, 5, device="cuda:4"), torch.tensor([[0]], device="cuda:4")
    facts["wrong dimension"] = kind(lambda: x.gather(7, index))
    facts["too many indices"] = kind(lambda: x[index, index, index])
    facts["wrong dtype"] = kind(lambda: x.gather(1, index.float()))
    facts["fine still"] = kind(lambda: x.sum().item())


def waits_within():
    wrong = fail("cuda:5")
    facts["nonzero"] = kind(wrong.nonzero)


def graphs():
    with torch.cuda.device(6):
        x, index = torch.ones(4, device="cuda"), torch.zeros(1, dtype=torch.long, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x[index]
        graph.replay()
        facts["replay"] = y.item()
        index.fill_(9)
        facts["wrong replay"] = kind(graph.replay)
        facts["after replay"] = kind(torch.cuda.synchronize)


def backward():
    weight = torch.ones(4, 5, device="cuda:7", requires_grad=True)
    loss = torch.nn.functional.embedding(torch.tensor([9], device="cuda:7"), weight).sum()
    facts["backward"] = kind(loss.backward)
    facts["gradient"] = list(weight.grad.shape)
    facts["after backward"] = kind(loss.item)


def queries():
    after = torch.cuda.Event()
    fail("cuda:8")
    after.record(stream(8))
    torch.cuda._sleep  # noqa: B018 - is there
    facts["query"] = sorted({kind(after.query) for _ in range(1000)} - {"fine"})


for part in (graphs, events, copies, afterwards, others, shapes, waits_within, backward, queries):
    part()
json.dump(facts, sys.stdout)
