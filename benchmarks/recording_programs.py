"""The programs on which the recorders are measured: three that the host bounds, one that the device
bounds, and one that only launches.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torchvision
from transformers import GPT2Config, GPT2LMHeadModel

DEVICE = "cuda"


def resnet50_train() -> Callable[[], None]:
    """A training step of batch 8."""
    model = torchvision.models.resnet50().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=False)
    images, labels = torch.randn(8, 3, 224, 224, device=DEVICE), torch.randint(0, 1000, (8,), device=DEVICE)

    def step() -> None:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def resnet18_infer() -> Callable[[], None]:
    """Five inferences of one image, each read on the host."""
    model = torchvision.models.resnet18().to(DEVICE).eval()
    image = torch.randn(1, 3, 224, 224, device=DEVICE)

    @torch.no_grad()
    def step() -> None:
        for _ in range(5):
            model(image).argmax(-1).item()

    return step


def gpt2_decode() -> Callable[[], None]:
    """A prompt of 8 tokens and four tokens more, with a cache, each read on the host."""
    model = GPT2LMHeadModel(GPT2Config()).to(DEVICE).eval()
    prompt = torch.randint(0, 50257, (1, 8), device=DEVICE)

    @torch.no_grad()
    def step() -> None:
        out = model(prompt, use_cache=True)
        for _ in range(4):
            token = out.logits[:, -1:].argmax(-1)
            token.item()
            out = model(token, past_key_values=out.past_key_values, use_cache=True)

    return step


def gpt2_train() -> Callable[[], None]:
    """A training step of 8 x 1,024 tokens in bfloat16, which the device bounds."""
    model = GPT2LMHeadModel(GPT2Config(loss_type="ForCausalLMLoss")).to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, 50257, (8, 1024), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def launches() -> Callable[[], None]:
    """Five hundred kernels that do next to nothing."""
    one = torch.zeros(1, device=DEVICE)

    def step() -> None:
        for _ in range(500):
            one.add_(1)

    return step


PROGRAMS: dict[str, Callable[[], Callable[[], None]]] = {
    "ResNet-50 training, batch 8": resnet50_train,
    "ResNet-18 inference, 5 images": resnet18_infer,
    "GPT-2 decode, 5 tokens": gpt2_decode,
    "GPT-2 training, bound by the device": gpt2_train,
}
"""By the name of a program, a function that makes its step."""


def chosen(part: str) -> dict[str, Callable[[], Callable[[], None]]]:
    """Returns the programs whose name contains `part`. If there is none, says so and exits."""
    found = {name: make for name, make in PROGRAMS.items() if part.lower() in name.lower()}
    if not found:
        raise SystemExit(f"--only {part}: it is in none of {', '.join(PROGRAMS)}")
    return found
