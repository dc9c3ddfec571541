"""A short CUDA program, to record: `python short_program.py KIND STEPS [TIMES.json]`. KIND says what marks its steps.

With a third argument it waits for the device after each step, and writes the steps' times there, in seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

Step = Callable[[], object]


def trained() -> Step:
    model = nn.Sequential(*(layer for _ in range(24) for layer in (nn.Linear(256, 256), nn.ReLU()))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        loss = model(torch.randn(64, 256).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def accumulated() -> Step:
    """A training that steps its optimizer once for nine batches."""
    model = nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters())

    def step() -> None:
        for _ in range(9):
            model(torch.randn(64, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def loaded() -> Step:
    data = torch.utils.data.TensorDataset(torch.randn(16_384, 64))

    def batches() -> Iterator[torch.Tensor]:
        while True:
            for (batch,) in torch.utils.data.DataLoader(data, batch_size=64):
                yield batch

    source, weight = batches(), torch.randn(64, 64, device="cuda")
    return lambda: (next(source).cuda() @ weight).sum().item()


def called() -> Step:
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
    tokens = iter(range(1, 100_000))
    return torch.inference_mode()(
        lambda: model(torch.ones(8, 256, device="cuda"))[: next(tokens) % 8 + 1].argmax().item()
    )


def marked() -> Step:
    import unstall

    def step() -> None:
        torch.ones(1024, device="cuda").cumsum(0).cpu()
        unstall.step()

    return step


def unmarked() -> Step:
    weight = torch.randn(4, 4, 3, 3, device="cuda")
    return lambda: torch.nn.functional.conv2d(torch.randn(1, 4, 16, 16, device="cuda"), weight).softmax(1)


def generated() -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=512)).cuda().eval()
    prompt = torch.randint(0, 512, (1, 8), device="cuda")
    return lambda: model.generate(prompt, max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=0)


def raises() -> Step:
    step, left = trained(), iter((None,) * 2)

    def fail_at_the_third() -> None:
        if next(left, False) is False:
            raise RuntimeError("the program's own error")
        step()

    return fail_at_the_third


KINDS = {make.__name__: make for make in (trained, accumulated, loaded, called, marked, unmarked, generated, raises)}


def main(kind: str, steps: str, times: str | None = None) -> None:
    step, took = KINDS[kind](), []
    for _ in range(int(steps)):
        began = time.perf_counter()
        step()
        if times:
            torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
    if times:
        Path(times).write_text(json.dumps(took))


if __name__ == "__main__":
    main(*sys.argv[1:])
