"""CUDA graphs: captured, replayed, refused."""

import functools
import warnings
from pathlib import Path

import torch
from virtual.torch_cuda.programs.telling import fact


def warmed(model: object, x: object) -> None:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)  # type: ignore[operator]
    torch.cuda.current_stream().wait_stream(side)


def replayed() -> object:
    x = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        capturing = torch.cuda.is_current_stream_capturing()
        y = x * 2 + 1
    results = []
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        results.append(y.tolist())
    return [capturing, torch.cuda.is_current_stream_capturing(), results]


def pools() -> object:
    x = torch.zeros(4, device="cuda")
    first, second, third = (torch.cuda.CUDAGraph() for _ in range(3))
    with torch.cuda.graph(first):
        a = x + 1
    with torch.cuda.graph(second, pool=first.pool()):
        b = x + 2
    with torch.cuda.graph(third, pool=torch.cuda.graph_pool_handle()):
        c = x + 3
    keys = [key for key in torch.cuda.memory_stats() if key.startswith("reserved_bytes_by_private_pools")]
    names = sorted({key.split(".")[1] for key in keys})
    segments = {segment["segment_pool_id"] for segment in torch.cuda.memory_snapshot()}
    assert a.shape == b.shape == c.shape
    return [first.pool() == second.pool(), third.pool()[0], names, third.pool() in segments]


def recurrent() -> object:
    """A layer whose gradients torch computes by autograd of its own."""
    layer, x = torch.nn.LSTM(4, 4).cuda(), torch.ones(3, 2, 4, device="cuda", requires_grad=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(layer(x)[0].sum(), x)[0]

    warmed(step, x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gradient = step(x)
    graph.replay()
    return torch.equal(gradient, step(x))


def joined_streams() -> object:
    x = torch.ones(4, device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 3
            within = torch.cuda.is_current_stream_capturing()
        torch.cuda.current_stream().wait_stream(side)
        z = y + 1
    graph.replay()
    return [within, z.tolist()]


def graphed_training() -> object:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).cuda()
    x = torch.randn(16, 4, device="cuda")
    eager = model(x).detach().clone()
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn(16, 4, device="cuda"),))
    out = graphed(x)
    out.sum().backward()
    return [torch.allclose(out, eager), next(model.parameters()).grad is not None]


def spoiled_by(name: str) -> object:
    """What happens within the capture, what at its end, what at a replay."""
    x, host = torch.ones(4, device="cuda"), torch.ones(4)
    doing = {
        "item": lambda: x.sum().item(),
        "synchronize": torch.cuda.synchronize,
        "stream synchronize": lambda: torch.cuda.current_stream().synchronize(),
        "stream query": lambda: torch.cuda.current_stream().query(),
        "event query": lambda: (event := torch.cuda.Event(), event.record(), event.query()),
        "nonzero": lambda: x.nonzero(),
        "upload": lambda: host.cuda(),
        "download": lambda: x.cpu(),
        "empty cache": torch.cuda.empty_cache,
        "statistics": lambda: len(torch.cuda.memory_stats()) > 0,
    }[name]
    graph = torch.cuda.CUDAGraph()
    happened = []
    try:
        with torch.cuda.graph(graph):
            try:
                y = x + 1
                doing()
                happened.append(["fine"])
            except Exception as error:
                happened.append([type(error).__name__, str(error).splitlines()[0]])
        happened.append(["fine"])
        assert y.is_cuda
    except Exception as error:
        happened.append([type(error).__name__, str(error).splitlines()[0]])
        torch.cuda.set_stream(torch.cuda.default_stream())
    try:
        graph.replay()
        happened.append(["fine"])
    except Exception as error:
        happened.append([type(error).__name__, str(error)])
    return happened


def warned(name: str) -> list[list[str]]:
    """The warnings of a capture, and the file that each is of."""
    x, side = torch.ones(4, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    doing = {
        "nothing": lambda: None,
        "a view": lambda: x.view(2, 2),
        "memory": lambda: torch.empty(4, device="cuda"),
        "no elements": lambda: x[:0] + 1,
        "a kernel": lambda: x + 1,
        "a copy": lambda: x.clone(),
    }[name]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=side):
            doing()
    return [[type(each.message).__name__, str(each.message), Path(each.filename).name] for each in seen]


def twice() -> None:
    graph = torch.cuda.CUDAGraph()
    for _ in range(2):
        with torch.cuda.graph(graph):
            torch.ones(1, device="cuda")


fact("replayed", replayed)
fact("pools", pools)
fact("recurrent", recurrent)
fact("joined streams", joined_streams)
fact("graphed training", graphed_training)
for what in (
    "item",
    "synchronize",
    "stream synchronize",
    "stream query",
    "event query",
    "nonzero",
    "upload",
    "download",
    "empty cache",
    "statistics",
):
    fact(f"within a capture: {what}", functools.partial(spoiled_by, what))
for what in ("nothing", "a view", "memory", "no elements", "a kernel", "a copy"):
    fact(f"captured {what}", functools.partial(warned, what))
fact("twice", twice)
torch.cuda.set_stream(torch.cuda.default_stream())
fact("never captured", lambda: torch.cuda.CUDAGraph().replay())
fact("pool of none", lambda: torch.cuda.CUDAGraph().pool())
fact("on the default stream", lambda: torch.cuda.CUDAGraph().capture_begin())
fact("raw", lambda: torch.cuda.CUDAGraph().raw_cuda_graph())
fact("handles", lambda: torch.cuda.graph_pool_handle()[0])
