"""The host's pace: dispatch slower than the device, Python between launches, a full queue."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from programs import Cause, Run, Step, program

TOKENS = 4


def tiny_llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        use_cache=False,
    )
    return LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()


def asks_if_packed() -> Cause:
    """A wait in the model library itself, when it makes the attention mask."""
    from transformers.masking_utils import find_packed_sequence_indices

    return Cause("sync-bool", find_packed_sequence_indices, "aten::is_nonzero", costs=None)


class Decoder:
    """Greedy decoding over a sliding window of 32 tokens, batch 1."""

    def __init__(self) -> None:
        self.model = tiny_llama()
        self.prompt = torch.randint(0, 1024, (1, 32), device="cuda")

    @torch.no_grad()
    def next(self, ids: torch.Tensor) -> torch.Tensor:
        token = self.model(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)
        return torch.cat([ids[:, 1:], token], 1)

    def plain(self) -> None:
        ids = self.prompt
        for _ in range(TOKENS):
            ids = self.next(ids)

    def until_end(self) -> None:
        """Asks after every token whether it was the last."""
        ids = self.prompt
        for _ in range(TOKENS):
            ids = self.next(ids)
            if ids[0, -1].item() == -1:  # stalls
                break

    def captured(self) -> Step:
        """The same tokens from a CUDA graph of one forward pass."""
        window = self.prompt.clone()
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            for _ in range(3):
                self.next(window)
        torch.cuda.current_stream().wait_stream(warm)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            window.copy_(self.next(window))

        def replay() -> None:
            window.copy_(self.prompt)
            for _ in range(TOKENS):
                graph.replay()

        return replay


@program(steps=2)
def decode_item() -> Run:
    """A small Llama decodes with batch 1 and asks after every token whether it was the last. The device is
    idle most of the time, for want of launches; the waits themselves cost little."""
    run = Decoder()
    causes = (
        Cause("launch-bound"),
        Cause("sync-item", Decoder.until_end, "aten::item", costs=None),
        asks_if_packed(),
    )
    return Run(run.until_end, ("launch",), causes, run.plain)


@program(steps=2, also=("stacks",))
def decode() -> Run:
    """The same without asking: as slow, for the host's dispatch is what takes the time."""
    run = Decoder()
    return Run(run.plain, ("launch",), (Cause("launch-bound"), asks_if_packed()), run.captured())


@program()
def decode_graph() -> Run:
    """The same as a CUDA graph: one launch a token, and the device is busy."""
    return Run(Decoder().captured(), ("device",))


@program(steps=2)
def queue_full() -> Run:
    """Forty large products, each with thirty small kernels behind it: the host runs ahead until 1,022
    launches are outstanding, and then each launch call waits for room. That looks like slow launches,
    and costs nothing."""
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) / 90
    small = torch.zeros(256, device="cuda")

    def step() -> None:
        for _ in range(40):
            x @ x
            for _ in range(30):
                small.add_(1.0)  # stalls

    return Run(step, ("device",), (Cause("full-queue", step, "aten::add_", costs=False),))


@program()
def tiny_kernels() -> Run:
    """AdamW without foreach: a dozen kernels of microseconds for each of 24 parameters, all bound by
    launching."""
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(12)]).to("cuda")
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    stalled = torch.optim.AdamW(model.parameters(), lr=1e-6, foreach=False)
    fused = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def step() -> None:
        stalled.step()  # stalls

    return Run(step, ("launch",), (Cause("tiny-kernels", step),), fused.step)


def think(noise: np.ndarray) -> float:
    """Some milliseconds of Python and numpy."""
    total = 0
    for i in range(100_000):  # stalls
        total += i * i
    return total + float(np.sort(noise)[0])


@program()
def python_bound() -> Run:
    """Python and numpy work between two launches, and the device waits for it."""
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64
    noise = np.random.default_rng(0).normal(size=200_000)

    def step() -> None:
        y = x
        for _ in range(3):
            y = y @ x
            think(noise)

    def mended() -> None:
        y = x
        for _ in range(3):
            y = y @ x

    return Run(step, ("python",), (Cause("python-bound", think),), mended)
