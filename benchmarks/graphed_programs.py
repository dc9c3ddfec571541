"""Programs for `benchmarks/graphed.py`: chains, branches and training steps, with random weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

DEVICE = "cuda"


@dataclass(frozen=True)
class Program:
    """A program that `benchmarks/graphed.py` measures. `make()` returns its function and its
    arguments: new ones in each call, and always with the same values.
    """

    name: str
    kind: str  # "chain", "branches", "layers" (with a little of both) or "training"
    make: Callable[[], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]
    goal: float  # of the time of a hand capture, at most; what has branches is to be faster than torch.compile too
    captured_differs: bool = False  # it asks whether it is being captured, and takes another way then


class Decoder(nn.Module):
    """The layers of GPT-2 for one token. Keys and values have a fixed length, and are written in
    place.
    """

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, vocabulary: int = 50257) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = self.token(token) + self.place(position)
        for block in self.blocks:
            x = block(x, position)
        logits: torch.Tensor = self.norm(x) @ self.token.weight.t()
        return logits


class Block(nn.Module):
    keys: torch.Tensor
    values: torch.Tensor
    places: torch.Tensor

    def __init__(self, width: int, heads: int, length: int = 256) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("keys", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("places", torch.arange(length))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.before(x)).view(1, 1, 3, self.heads, self.width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        mask = (self.places <= position).view(1, 1, 1, -1)
        seen = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(1, 1, self.width))
        fed: torch.Tensor = self.down(F.gelu(self.up(self.after(x)), approximate="tanh"))
        return x + fed


def vision(name: str, size: int) -> Callable[[], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]:
    def make() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
        torch.manual_seed(0)
        more = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        model = getattr(import_module("torchvision").models, name)(**more).to(DEVICE).eval()
        return torch.no_grad()(lambda x: model(x)), (torch.randn(1, 3, size, size, device=DEVICE),)

    return make


def gpt2_decode() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    model = Decoder().to(DEVICE).eval()
    token = torch.tensor([[464]], device=DEVICE)
    return torch.no_grad()(lambda token, position: model(token, position)), (token, torch.tensor([7], device=DEVICE))


def llama() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    transformers = import_module("transformers")
    config = transformers.LlamaConfig(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
        vocab_size=32000,
        use_cache=False,
    )
    model = transformers.LlamaForCausalLM(config).to(DEVICE).eval()
    return torch.no_grad()(lambda ids: model(ids).logits), (torch.randint(0, 32000, (1, 64), device=DEVICE),)


def _training(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> Any:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)

    def step(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (inputs, labels)


def resnet18_training() -> Any:
    torch.manual_seed(0)
    model = import_module("torchvision").models.resnet18().to(DEVICE).train()
    return _training(model, torch.randn(8, 3, 224, 224, device=DEVICE), torch.randint(0, 1000, (8,), device=DEVICE))


def transformer_training() -> Any:
    torch.manual_seed(0)
    width = 256
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Linear(32, width), nn.TransformerEncoder(layer, 4), Mean(), nn.Linear(width, 10))
    inputs = torch.randn(16, 64, 32, device=DEVICE) / math.sqrt(2)
    return _training(model.to(DEVICE).train(), inputs, torch.randint(0, 10, (16,), device=DEVICE))


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)


PROGRAMS = (
    Program("resnet50", "chain", vision("resnet50", 224), 1.02),
    Program("gpt2-decode", "chain", gpt2_decode, 1.02),
    Program("googlenet", "branches", vision("googlenet", 224), 1 / 1.4),
    Program("inception_v3", "branches", vision("inception_v3", 299), 1 / 1.4),
    Program("llama-160m", "layers", llama, 1 / 1.15, captured_differs=True),
    Program("resnet18-training", "training", resnet18_training, 1.02),
    Program("transformer-training", "training", transformer_training, 1.02),
)
