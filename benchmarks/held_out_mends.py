"""Ten programs with a stall, and the same programs mended: steps of both on a real GPU, and on a virtual one.

    python -m benchmarks.held_out_mends --out real.json                                     # on a GPU
    python -m unstall.virtual --gpu h100 -m benchmarks.held_out_mends --against real.json   # anywhere

No program had a part in the costs of the virtual GPU. What the H100s of three machines took is
benchmarks/results/held_out_mends_h100.json; of the third, four programs only. Three runs on an H200 are
held_out_mends_h200.json beside it. Host-bound steps should agree to 35 %, what mending gains to 10 %.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.on_device import agreement, comparing, machines, measured_on, step_ms, why_skipped

_STEP_LIMIT, _GAIN_LIMIT = 0.35, 0.10
_STEPS, _ROUNDS = 10, 7
Step = Callable[[], object]


def main(argv: list[str] | None = None) -> int:
    parser = comparing(__doc__)
    parser.add_argument("names", nargs="*", help="programs; without any, all")
    args = parser.parse_args(argv)
    if skipped := why_skipped("transformers"):
        print(skipped)
        return 0
    real = [each["ms"] for each in machines(args.against)]
    found: dict[str, list[float]] = {}
    print(
        f"{'ms of a step':18} {'before':>8} {'after':>8} {'gain':>6}"
        + "   real: before    after   gain    ratios" * bool(real)
    )
    for name in args.names or PROGRAMS:
        torch.manual_seed(0)
        ms = found[name] = [_ms(step) for step in PROGRAMS[name]()]
        print(f"{name:18} {ms[0]:8.3f} {ms[1]:8.3f} {ms[0] / ms[1]:6.2f}", end="")
        for at, its in enumerate(of[name] for of in real if name in of):
            steps = [one / other for one, other in zip(ms, its, strict=True)]
            print("\n" + 43 * " " if at else "", end="")
            print(f"   {its[0]:12.3f} {its[1]:8.3f} {its[0] / its[1]:6.2f}", end="")
            print(f"    {steps[0]:.2f} {steps[1]:.2f}, gain {steps[0] / steps[1]:.2f}", end="")
        print(flush=True)
    if real:
        print(f"steps: {agreement(_steps(found), [_steps(of) for of in real], _STEP_LIMIT)}")
        print(f"gains: {agreement(_gains(found), [_gains(of) for of in real], _GAIN_LIMIT)}")
    if args.out:
        args.out.write_text(json.dumps(measured_on() | {"ms": found}, indent=1) + "\n")
    return 0


def _steps(ms: dict[str, list[float]]) -> dict[str, float]:
    return {f"{name} {at}": each for name, both in ms.items() for at, each in enumerate(both)}


def _gains(ms: dict[str, list[float]]) -> dict[str, float]:
    return {name: before / after for name, (before, after) in ms.items()}


def _ms(step: Step) -> float:
    """Returns how long a step takes, in ms: the median over rounds that each end with a wait for
    the device.
    """
    for _ in range(5):
        step()
    return step_ms(step, steps=_STEPS, rounds=_ROUNDS)


def _layers(count: int, width: int) -> nn.Module:
    return nn.Sequential(*[layer for _ in range(count) for layer in (nn.Linear(width, width), nn.GELU())]).cuda()


def reads_loss() -> tuple[Step, Step]:
    """Reads the loss of each step; adds it up on the device instead."""
    model, x, y = _layers(10, 384), torch.randn(96, 384).cuda(), torch.randn(96, 384).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    read, added = [0.0], torch.zeros((), device="cuda")

    def trained() -> Tensor:
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    def before() -> None:
        read[0] += trained().item()

    def after() -> None:
        added.add_(trained())

    return before, after


def loops_over_parameters() -> tuple[Step, Step]:
    """AdamW that updates one parameter after the other; fused."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokens = torch.randint(0, 900, (4, 96)).cuda()

    def step_of(**options: Any) -> Step:
        model = GPT2LMHeadModel(GPT2Config(vocab_size=900, n_positions=96, n_embd=192, n_layer=5, n_head=6)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), **options)

        def step() -> None:
            model(tokens, labels=tokens).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return step_of(foreach=False), step_of(fused=True)


def uploads_pageable() -> tuple[Step, Step]:
    """Uploads images from pageable memory; from pinned memory, without blocking."""
    model = nn.Sequential(nn.Conv2d(3, 32, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).cuda()
    images = torch.randn(48, 3, 192, 192)
    pinned = images.pin_memory()

    def before() -> None:
        with torch.no_grad():
            model(images.cuda())

    def after() -> None:
        with torch.no_grad():
            model(pinned.cuda(non_blocking=True))

    return before, after


def launches_one_by_one() -> tuple[Step, Step]:
    """A small ViT on one image; as a CUDA graph."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=192, num_hidden_layers=8, num_attention_heads=3, intermediate_size=768, image_size=128
    )
    model, image = ViTModel(config).cuda().eval(), torch.randn(1, 3, 128, 128).cuda()

    def before() -> None:
        with torch.no_grad():
            model(image)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            before()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        before()
    return before, graph.replay


def loops_over_rows() -> tuple[Step, Step]:
    """Normalizes and projects row after row; all rows at once."""
    rows, weight = torch.randn(48, 320).cuda(), torch.randn(320, 320).cuda()

    def one(row: Tensor) -> Tensor:
        return torch.tanh(functional.layer_norm(row, (320,)) @ weight)

    return lambda: torch.stack([one(row) for row in rows]), lambda: one(rows)


def indexes_by_mask() -> tuple[Step, Step]:
    """Sets masked elements by an index, which waits for their number; by `masked_fill`."""
    scores = torch.randn(24, 12, 96, 96).cuda()
    mask = torch.rand(24, 12, 96, 96).cuda() > 0.7

    def before() -> Tensor:
        found = scores * 0.125
        found[mask.nonzero(as_tuple=True)] = -1e4
        return found.softmax(-1)

    return before, lambda: (scores * 0.125).masked_fill(mask, -1e4).softmax(-1)


def asks_for_the_norm() -> tuple[Step, Step]:
    """Asks on the host whether the norm of the gradients is finite; does not ask."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=800, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512
    )
    model, tokens = BertModel(config, add_pooling_layer=False).cuda(), torch.randint(0, 800, (6, 80)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def norm() -> Tensor:
        optimizer.zero_grad()
        model(tokens).last_hidden_state.pow(2).mean().backward()
        return nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def before() -> None:
        if norm().isfinite():
            optimizer.step()

    def after() -> None:
        norm()
        optimizer.step()

    return before, after


def makes_constants() -> tuple[Step, Step]:
    """Makes small constants on the host in each step; once, on the device."""
    x, known = torch.randn(16, 3, 160, 160).cuda(), []

    def constants() -> tuple[Tensor, Tensor]:
        mean = torch.tensor([0.485, 0.456, 0.406], device="cuda").view(3, 1, 1)
        return mean, torch.tensor([0.229, 0.224, 0.225], device="cuda").view(3, 1, 1)

    def normal(mean: Tensor, deviation: Tensor) -> Tensor:
        return functional.avg_pool2d((x - mean) / deviation, 2)

    known.append(constants())
    return lambda: normal(*constants()), lambda: normal(*known[0])


def steps_through_time() -> tuple[Step, Step]:
    """An LSTM cell called for each position; cuDNN's LSTM."""
    layer, x = nn.LSTM(128, 160).cuda(), torch.randn(40, 20, 128).cuda()
    cell = nn.LSTMCell(128, 160).cuda()

    def before() -> Tensor:
        with torch.no_grad():
            state = torch.zeros(20, 160, device="cuda"), torch.zeros(20, 160, device="cuda")
            outputs = []
            for each in x:
                state = cell(each, state)
                outputs.append(state[0])
            return torch.stack(outputs)

    def after() -> object:
        with torch.no_grad():
            return layer(x)[0]

    return before, after


def scales_gradients() -> tuple[Step, Step]:
    """float16 with a scaler, which reads whether gradients are finite; bfloat16 without."""
    images, labels = torch.randn(24, 3, 64, 64).cuda(), torch.randint(0, 10, (24,)).cuda()

    def step_of(dtype: torch.dtype) -> Step:
        model = nn.Sequential(
            nn.Conv2d(3, 48, 3, 2), nn.ReLU(), nn.Conv2d(48, 96, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(96 * 225, 10)
        ).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)

        def step() -> None:
            with torch.autocast("cuda", dtype):
                loss = functional.cross_entropy(model(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

        return step

    return step_of(torch.float16), step_of(torch.bfloat16)


PROGRAMS: dict[str, Callable[[], tuple[Step, Step]]] = {
    "loss.item": reads_loss,
    "AdamW": loops_over_parameters,
    "uploads": uploads_pageable,
    "graph": launches_one_by_one,
    "rows": loops_over_rows,
    "mask": indexes_by_mask,
    "norm": asks_for_the_norm,
    "constants": makes_constants,
    "LSTM": steps_through_time,
    "scaler": scales_gradients,
}

if __name__ == "__main__":
    sys.exit(main())
