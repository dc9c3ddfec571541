"""How long the host takes for calls of torch in a loop, over `x.add_(1.0)`: on a real GPU, and on a virtual one.

    python -m benchmarks.host_calls --out real.json                                                     # on a GPU
    python -m unstall.virtual --gpu h200 --numerics skip -m benchmarks.host_calls --against real.json   # anywhere

Each call is repeated without waits on tensors so small that the device is never what takes the time. Hosts change their
pace from second to second, so figures are over the time of `add_` in the same process.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.on_device import comparing, host_ns, measured_on, why_skipped

_CALLS, _ROUNDS = 100, 7
Call = Callable[[], object]


def main(argv: list[str] | None = None) -> int:
    args = comparing(__doc__).parse_args(argv)
    if skipped := why_skipped():
        print(skipped)
        return 0
    real = json.loads(args.against.read_text())["over_add"] if args.against else {}
    found: dict[str, float] = {}
    plain = torch.zeros(1, 256, device="cuda")
    for label, call in _all():
        found[label] = round(_ns(call) / _ns(lambda: plain.add_(1.0)), 3)
        beside = f"   real: {real[label]:7.2f}   {found[label] / real[label]:.2f}" if label in real else ""
        print(f"{label:36} {found[label]:7.2f}{beside}", flush=True)
    if real:
        ratios = [found[name] / real[name] for name in found if name in real]
        near = [sum(1 / limit <= each <= limit for each in ratios) for limit in (1.35, 2.0)]
        print(f"median {statistics.median(ratios):.2f}; {near[0]} within 35 %, {near[1]} within 2, of {len(ratios)}")
    if args.out:
        args.out.write_text(json.dumps(measured_on() | {"over_add": found}, indent=1) + "\n")
    return 0


def _ns(call: Call) -> float:
    return host_ns([call], times=_CALLS, rounds=_ROUNDS, warm_up=20)


def _all() -> Iterator[tuple[str, Call]]:
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            for name, call in _operators(gradients).items():
                yield f"{name}{', recorded' if gradients else ''}", call
    yield from _of_the_device().items()
    yield from _contexts()
    yield from _of_models()
    yield from _of_python().items()
    for count in (10, 100):
        yield from _of_optimizers(count)


def _operators(gradients: bool) -> dict[str, Call]:
    def tensor(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device="cuda", requires_grad=gradients)

    weight, bias, scale, shift = tensor(256, 256), tensor(256), tensor(256), tensor(256)
    x, deep = tensor(1, 256), tensor(2, 4, 256)
    module, turned = nn.Linear(256, 256).cuda(), weight.t()
    indices = torch.zeros(4, dtype=torch.long, device="cuda")
    return {
        "linear": lambda: functional.linear(x, weight),
        "linear, bias": lambda: functional.linear(x, weight, bias),
        "linear, 3 dimensions": lambda: functional.linear(deep, weight, bias),
        "nn.Linear": lambda: module(x),
        "mm": lambda: torch.mm(x, turned),
        "addmm": lambda: torch.addmm(bias, x, turned),
        "matmul, 3 dimensions": lambda: torch.matmul(deep, turned),
        "t": weight.t,
        "transpose": lambda: weight.transpose(0, 1),
        "view": lambda: deep.view(8, 256),
        "reshape": lambda: deep.reshape(8, 256),
        "expand": lambda: bias.expand(8, 256),
        "permute": lambda: deep.permute(1, 0, 2),
        "unsqueeze": lambda: bias.unsqueeze(0),
        "flatten": lambda: deep.flatten(0, 1),
        "select": lambda: deep[0],
        "slice": lambda: deep[:, 1:],
        "chunk": lambda: deep.chunk(2, 2),
        "split": lambda: deep.split(128, 2),
        "unbind": lambda: deep.unbind(0),
        "detach": x.detach,
        "add": lambda: x + bias,
        "relu": lambda: torch.relu(x),
        "gelu": lambda: functional.gelu(x),
        "square": x.square,
        "pow": lambda: x**2,
        "sum": x.sum,
        "mean": x.mean,
        "softmax": lambda: functional.softmax(x, -1),
        "layer_norm": lambda: functional.layer_norm(x, (256,), scale, shift),
        "dropout": lambda: functional.dropout(x, 0.1, True),
        "to half": x.half,
        "zeros": lambda: torch.zeros(4, device="cuda"),
        "zeros_like": lambda: torch.zeros_like(x),
        "cat": lambda: torch.cat([x, x]),
        "stack": lambda: torch.stack([x, x]),
        "embedding": lambda: functional.embedding(indices, weight),
        "bmm": lambda: torch.bmm(deep, deep.transpose(1, 2)),
        "attention": lambda: functional.scaled_dot_product_attention(deep[None], deep[None], deep[None]),
    }


def _of_the_device() -> dict[str, Call]:
    x, stream, event = torch.zeros(4, device="cuda"), torch.cuda.Stream(), torch.cuda.Event()
    timed = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for each in (event, *timed):
        each.record()
    torch.cuda.synchronize()
    return {
        "current_stream": torch.cuda.current_stream,
        "default_stream": torch.cuda.default_stream,
        "Event": torch.cuda.Event,
        "Event, timed": lambda: torch.cuda.Event(enable_timing=True),
        "event.record": lambda: event.record(),
        "event.record, stream": lambda: event.record(stream),
        "event.wait": lambda: event.wait(),
        "event.query": event.query,
        "event.synchronize": event.synchronize,
        "event.elapsed_time": lambda: timed[0].elapsed_time(timed[1]),
        "Stream": torch.cuda.Stream,
        "stream.query": stream.query,
        "stream.synchronize": stream.synchronize,
        "stream.wait_stream": lambda: stream.wait_stream(torch.cuda.current_stream()),
        "stream.wait_event": lambda: stream.wait_event(event),
        "stream.record_event": lambda: stream.record_event(),
        "record_stream": lambda: x.record_stream(stream),
        "synchronize": torch.cuda.synchronize,
        "current_device": torch.cuda.current_device,
        "set_device": lambda: torch.cuda.set_device(0),
        "is_available": torch.cuda.is_available,
        "get_device_properties": lambda: torch.cuda.get_device_properties(0),
        "get_device_name": torch.cuda.get_device_name,
        "memory_allocated": torch.cuda.memory_allocated,
        "max_memory_allocated": torch.cuda.max_memory_allocated,
        "memory_stats": torch.cuda.memory_stats,
        "reset_peak_memory_stats": torch.cuda.reset_peak_memory_stats,
        "mem_get_info": torch.cuda.mem_get_info,
        "manual_seed": lambda: torch.manual_seed(0),
        "cuda.manual_seed": lambda: torch.cuda.manual_seed(0),
        "get_rng_state": torch.cuda.get_rng_state,
        "is_bf16_supported": torch.cuda.is_bf16_supported,
        "to, nothing to do": lambda: x.to("cuda"),
        "cuda, nothing to do": x.cuda,
        "float, nothing to do": x.float,
        "contiguous, nothing to do": x.contiguous,
    }


def _contexts() -> Iterator[tuple[str, Call]]:
    stream = torch.cuda.Stream()
    contexts: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "with stream": lambda: torch.cuda.stream(stream),
        "with device": lambda: torch.cuda.device(0),
        "with autocast, float16": lambda: torch.autocast("cuda", dtype=torch.float16),
        "with autocast, bfloat16": lambda: torch.autocast("cuda", dtype=torch.bfloat16),
        "with no_grad": torch.no_grad,
        "with enable_grad": torch.enable_grad,
        "with inference_mode": torch.inference_mode,
        "with record_function": lambda: torch.autograd.profiler.record_function("part"),
        "with nvtx.range": lambda: torch.cuda.nvtx.range("part"),
        "with sdpa_kernel": lambda: sdpa_kernel(SDPBackend.MATH),
    }

    def entered(context: Callable[[], AbstractContextManager[object]]) -> Call:
        def call() -> None:
            with context():
                pass

        return call

    for name, context in contexts.items():
        yield name, entered(context)


def _of_models() -> Iterator[tuple[str, Call]]:
    deep = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Identity()) for _ in range(20))).cuda()
    inner, x = nn.Sequential(*(nn.Identity() for _ in range(20))), torch.zeros(4, device="cuda")
    yield "20 Identity", lambda: inner(x)
    yield "parameters of 20 layers", lambda: list(deep.parameters())
    yield "train of 20 layers", lambda: deep.train()
    yield "state_dict of 20 layers", lambda: deep.state_dict()
    yield "zero_grad of 20 layers", lambda: deep.zero_grad()


def _of_python() -> dict[str, Call]:
    def empty() -> None: ...

    def several(a: int, b: int = 1, *, c: int = 2) -> int:
        if a > b:
            a, b = b, a
        found = {"a": a, "b": b, "c": c}
        return found["a"] + found["b"] * found["c"]

    def calls(function: Callable[[int], object]) -> Call:
        def call() -> None:
            for number in range(20):
                function(number)

        return call

    def loop() -> int:
        total = 0
        for number in range(100):
            if number % 3:
                total += number * number
        return total

    def nested(depth: int) -> list[int]:
        return [depth, *nested(depth - 1)] if depth else []

    def numbers() -> Iterator[int]:
        yield from range(20)

    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

        @property
        def twice(self) -> int:
            return 2 * self.x

    return {
        "20 calls, empty": calls(lambda _: empty()),
        "20 calls": calls(several),
        "20 objects": calls(lambda number: Point(number).twice),
        "20 calls of C": calls(lambda number: isinstance(number, (int, float))),
        "loop of 100": loop,
        "recursion of 20": lambda: nested(20),
        "generator of 20": lambda: list(numbers()),
        "sorted 100": lambda: sorted(range(100, 0, -1), key=lambda number: -number),
        "json": lambda: json.loads(json.dumps({"a": [1, 2, 3], "b": {"c": "d"}})),
        "format": lambda: [f"{number:5.2f} of {number}" for number in range(20)],
    }


def _of_optimizers(count: int) -> Iterator[tuple[str, Call]]:
    made: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
        "SGD": lambda all: torch.optim.SGD(all, lr=0.1),
        "SGD, momentum": lambda all: torch.optim.SGD(all, lr=0.1, momentum=0.9),
        "SGD, fused": lambda all: torch.optim.SGD(all, lr=0.1, fused=True),
        "SGD, one by one": lambda all: torch.optim.SGD(all, lr=0.1, foreach=False),
        "Adam": lambda all: torch.optim.Adam(all),
        "Adam, one by one": lambda all: torch.optim.Adam(all, foreach=False),
        "AdamW": lambda all: torch.optim.AdamW(all),
        "AdamW, fused": lambda all: torch.optim.AdamW(all, fused=True),
        "RMSprop": lambda all: torch.optim.RMSprop(all),
        "Adagrad": lambda all: torch.optim.Adagrad(all),
    }
    several = [nn.Parameter(torch.zeros(8, device="cuda")) for _ in range(count)]
    for each in several:
        each.grad = torch.ones_like(each)
    for name, make in made.items():
        yield f"{name}, {count} tensors", make(several).step
    one = torch.optim.SGD(several, lr=0.1)
    schedule, scaler = torch.optim.lr_scheduler.StepLR(one, 1000), torch.amp.GradScaler("cuda")
    scale = torch.ones((), device="cuda")
    one.step()
    yield f"StepLR, {count} tensors", schedule.step
    yield f"unscaling, {count} tensors", lambda: scaler._unscale_grads_(one, scale, scale, False)
    yield f"zero_grad to zeros, {count} tensors", lambda: one.zero_grad(set_to_none=False)
    yield f"clip_grad_norm_, {count} tensors", lambda: nn.utils.clip_grad_norm_(several, 1.0)
    yield f"clip_grad_value_, {count} tensors", lambda: nn.utils.clip_grad_value_(several, 1.0)
    values = [each.data for each in several]
    yield f"_foreach_add_, {count} tensors", lambda: torch._foreach_add_(values, 1.0)
    yield f"_foreach_sqrt, {count} tensors", lambda: torch._foreach_sqrt(values)
    yield f"_foreach_norm, {count} tensors", lambda: torch._foreach_norm(values)
    yield f"_foreach_lerp_, {count} tensors", lambda: torch._foreach_lerp_(values, values, 0.5)

    def cleared() -> None:
        for each in several:
            each.grad = each.detach()
        one.zero_grad()

    yield f"zero_grad to None, {count} tensors", cleared


if __name__ == "__main__":
    sys.exit(main())
