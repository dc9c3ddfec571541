"""Programs with stalls that can be mended one at a time, run and recorded on a GPU: the truth for predictions.

    python benchmarks/whatif_programs.py --out DIR     (needs a CUDA device, torchvision and transformers)

Each family's variants do the same work with and without a stall. Their plain step times are measured in rounds that
take turns, no profiler running; then `torch.profiler` records a few steps of each, with and without Python stacks.
DIR gets the traces and `truth.json`: for each variant the median plain step time in ms and its range.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

Step: TypeAlias = Callable[[], object]

ROUNDS = 7


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", nargs="*", metavar="FAMILY")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    truth: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "variants": {},
    }
    for name, family in FAMILIES.items():
        if options.only and name not in options.only:
            continue
        begun = time.perf_counter()
        for variant, facts in measured(name, dict(family()), options.out):
            truth["variants"][variant] = facts
        print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)
        (options.out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
        torch.cuda.empty_cache()


def measured(family: str, steps: dict[str, Step], out: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import torch

    for step in steps.values():
        for _ in range(4):
            step()
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {variant: [] for variant in steps}
    count = {variant: max(3, round(0.15 / max(timed(step, 3), 1e-4))) for variant, step in steps.items()}
    for _ in range(ROUNDS):
        for variant, step in steps.items():
            times[variant].append(timed(step, count[variant]) * 1e3)
    for variant, step in steps.items():
        name = f"{family}_{variant}"
        facts: dict[str, Any] = {
            "family": family,
            "variant": variant,
            "step_ms": round(statistics.median(times[variant]), 4),
            "range_ms": [round(min(times[variant]), 4), round(max(times[variant]), 4)],
        }
        for stacks in (True, False):
            path = out / f"{name}{'' if stacks else '.nostack'}.json.gz"
            record(step, path, stacks, 2 if facts["step_ms"] > 20 else 3)
        yield name, facts


def timed(step: Step, count: int) -> float:
    """Runs a step `count` times. Returns how many seconds one took, up to the end of the last one's
    work on the device.
    """
    import torch

    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / count


def record(step: Step, path: Path, stacks: bool, count: int) -> None:
    import torch
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile, record_function

    config = _ExperimentalConfig(verbose=stacks, enable_cuda_sync_events=True)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, record_shapes=True, with_stack=stacks, experimental_config=config) as profiler:
        for i in range(count):
            with record_function(f"ProfilerStep#{i}"):
                step()
        torch.cuda.synchronize()
    plain = path.with_suffix("")
    profiler.export_chrome_trace(str(plain))
    path.write_bytes(gzip.compress(plain.read_bytes(), 6))
    plain.unlink()


def training(model: Any, shape: tuple[int, ...], classes: int) -> Iterator[tuple[str, Step]]:
    """Training steps on batches from pageable or pinned memory, which read the loss and check it
    for NaN, or do not.
    """
    import torch
    from torch.nn import functional

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    pageable = [(torch.randn(shape), torch.randint(0, classes, (shape[0],))) for _ in range(2)]
    pinned = [(x.pin_memory(), y.pin_memory()) for x, y in pageable]
    number = 0

    def variant(batches: list[Any], item: bool, nan: bool) -> Step:
        def step() -> None:
            nonlocal number
            number += 1
            x, y = batches[number % 2]
            x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if item:
                loss.item()
            if nan and torch.isnan(loss):
                raise SystemExit("not a number")

        return step

    yield "pageable_item_nan", variant(pageable, True, True)
    yield "pinned_item_nan", variant(pinned, True, True)
    yield "pageable", variant(pageable, False, False)
    yield "pinned_item", variant(pinned, True, False)
    yield "pinned", variant(pinned, False, False)


def vision_transformer() -> Iterator[tuple[str, Step]]:
    import torchvision

    model = torchvision.models.vit_b_32().to("cuda")
    yield from training(model, (96, 3, 224, 224), 1000)


def small_resnet() -> Iterator[tuple[str, Step]]:
    import torchvision

    model = torchvision.models.resnet18(num_classes=10).to("cuda")
    yield from training(model, (64, 3, 160, 160), 10)


def decoding() -> Iterator[tuple[str, Step]]:
    """Eight tokens of a small OPT at batch 1, one at a time, without a cache."""
    import torch
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=32000,
        hidden_size=1024,
        num_hidden_layers=16,
        ffn_dim=4096,
        num_attention_heads=16,
        word_embed_proj_dim=1024,
        max_position_embeddings=512,
    )
    model = OPTForCausalLM(config).to("cuda").bfloat16().eval()
    prompt = torch.randint(0, 32000, (1, 48), device="cuda")

    @torch.no_grad()
    def following(tokens: Any) -> Any:
        return model(input_ids=tokens, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)

    static = prompt.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            following(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        output = following(static)

    def eager(item: bool) -> Step:
        def step() -> None:
            tokens = prompt
            for _ in range(8):
                token = following(tokens)
                if item and token.item() == -1:
                    break
                tokens = torch.cat([tokens[:, 1:], token], 1)

        return step

    def graphed(item: bool) -> Step:
        def step() -> None:
            static.copy_(prompt)
            for _ in range(8):
                graph.replay()
                if item and output.item() == -1:
                    break
                static.copy_(torch.cat([static[:, 1:], output], 1))

        return step

    yield "item", eager(True)
    yield "noitem", eager(False)
    yield "graph_item", graphed(True)
    yield "graph_noitem", graphed(False)


def offload() -> Iterator[tuple[str, Step]]:
    """A pass through layers whose weights are in pinned memory. They are uploaded one after the
    other: in line, or one layer ahead on a second stream.
    """
    import torch
    from torch.nn import functional

    weights = [torch.randn(6144, 3072).pin_memory() for _ in range(8)] + [
        torch.randn(3072, 6144).pin_memory() for _ in range(8)
    ]
    weights = [weights[i // 2 + 8 * (i % 2)] for i in range(16)]
    batch = torch.randn(12288, 3072, device="cuda")
    copying = torch.cuda.Stream()
    buffers = [torch.empty(6144, 3072, device="cuda"), torch.empty(3072, 6144, device="cuda")]
    torch.backends.cuda.matmul.allow_tf32 = True

    def sequential() -> None:
        h = batch
        for weight in weights:
            h = functional.relu(functional.linear(h, weight.to("cuda", non_blocking=True)))

    def prefetch() -> None:
        h, computing = batch, torch.cuda.current_stream()
        done: list[Any] = [None, None]

        def fetch(i: int) -> Any:
            with torch.cuda.stream(copying):
                if done[i % 2] is not None:
                    copying.wait_event(done[i % 2])
                buffers[i % 2].copy_(weights[i], non_blocking=True)
                return copying.record_event()

        copying.wait_stream(computing)
        ready = fetch(0)
        for i in range(len(weights)):
            here = ready
            if i + 1 < len(weights):
                ready = fetch(i + 1)
            computing.wait_event(here)
            h = functional.relu(functional.linear(h, buffers[i % 2]))
            done[i % 2] = computing.record_event()

    yield "sequential", sequential
    yield "prefetch", prefetch


def many_small() -> Iterator[tuple[str, Step]]:
    """A simulation step of hundreds of small kernels, launched one by one or as a graph."""
    import torch

    position, speed = torch.randn(2048, 3, device="cuda"), torch.zeros(2048, 3, device="cuda")

    def simulate() -> None:
        for _ in range(120):
            force = -position - 0.1 * speed
            speed.add_(force, alpha=0.01)
            position.add_(speed, alpha=0.01)
            position.clamp_(-4, 4)

    simulate()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        simulate()
    yield "eager", simulate
    yield "graph", graph.replay


def language_model() -> Iterator[tuple[str, Step]]:
    """Training a small GPT-Neo on token batches that come from pageable or pinned memory, with the loss read or not."""
    import torch
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    config = GPTNeoConfig(
        vocab_size=16000,
        hidden_size=768,
        num_layers=8,
        attention_types=[[["global"], 8]],
        num_heads=12,
        max_position_embeddings=512,
    )
    model = GPTNeoForCausalLM(config).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = [torch.randint(0, 16000, (24, 256)) for _ in range(2)]
    extra = [torch.randn(24, 256, 768) for _ in range(2)]
    pinned = [(a.pin_memory(), b.pin_memory()) for a, b in zip(tokens, extra, strict=True)]
    pageable = list(zip(tokens, extra, strict=True))
    number = 0

    def variant(batches: list[Any], item: bool) -> Step:
        def step() -> None:
            nonlocal number
            number += 1
            ids, noise = batches[number % 2]
            ids, noise = ids.to("cuda", non_blocking=True), noise.to("cuda", non_blocking=True)
            embedded = model.transformer.wte(ids) + 0.01 * noise
            loss = model(inputs_embeds=embedded, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if item and (loss.item() > 1e9 or norm.item() > 1e9):
                raise SystemExit("diverged")

        return step

    yield "pageable_item", variant(pageable, True)
    yield "pageable", variant(pageable, False)
    yield "pinned_item", variant(pinned, True)
    yield "pinned", variant(pinned, False)


def gpt2_decoding() -> Iterator[tuple[str, Step]]:
    """Six tokens of a small GPT-2 at batch 2, one at a time, without a cache."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=24000, n_embd=640, n_layer=10, n_head=10, n_positions=512)
    model = GPT2LMHeadModel(config).to("cuda").half().eval()
    prompt = torch.randint(0, 24000, (2, 64), device="cuda")

    @torch.no_grad()
    def following(tokens: Any) -> Any:
        return model(input_ids=tokens, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)

    static = prompt.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            following(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        output = following(static)

    def eager(item: bool) -> Step:
        def step() -> None:
            tokens = prompt
            for _ in range(6):
                token = following(tokens)
                if item and int(token.min().item()) < 0:
                    break
                tokens = torch.cat([tokens[:, 1:], token], 1)

        return step

    def graphed(item: bool) -> Step:
        def step() -> None:
            static.copy_(prompt)
            for _ in range(6):
                graph.replay()
                if item and int(output.min().item()) < 0:
                    break
                static.copy_(torch.cat([static[:, 1:], output], 1))

        return step

    yield "item", eager(True)
    yield "noitem", eager(False)
    yield "graph_item", graphed(True)
    yield "graph_noitem", graphed(False)


def convolution_offload() -> Iterator[tuple[str, Step]]:
    """A convolution of feature maps that are in pinned memory. They are uploaded one after the
    other: in line, or one ahead.
    """
    import torch

    maps = [torch.randn(16, 64, 128, 128).pin_memory() for _ in range(6)]
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(64, 256, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(256, 256, 3, padding=1)
    ).to("cuda")
    copying = torch.cuda.Stream()
    buffers = [torch.empty(16, 64, 128, 128, device="cuda") for _ in range(2)]

    @torch.no_grad()
    def sequential() -> None:
        for one in maps:
            layers(one.to("cuda", non_blocking=True))

    @torch.no_grad()
    def prefetch() -> None:
        computing = torch.cuda.current_stream()
        done: list[Any] = [None, None]

        def fetch(i: int) -> Any:
            with torch.cuda.stream(copying):
                if done[i % 2] is not None:
                    copying.wait_event(done[i % 2])
                buffers[i % 2].copy_(maps[i], non_blocking=True)
                return copying.record_event()

        copying.wait_stream(computing)
        ready = fetch(0)
        for i in range(len(maps)):
            here = ready
            if i + 1 < len(maps):
                ready = fetch(i + 1)
            computing.wait_event(here)
            layers(buffers[i % 2])
            done[i % 2] = computing.record_event()

    yield "sequential", sequential
    yield "prefetch", prefetch


def elementwise_chain() -> Iterator[tuple[str, Step]]:
    """A function of small elementwise operators, called in a loop or captured once."""
    import torch

    start = torch.rand(64, 64, device="cuda")

    def chain() -> Any:
        x = start
        for _ in range(150):
            y = torch.tanh(x) + 0.5
            x = torch.where(y > 1, y - 1, y).sqrt()
        return x

    chain()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain()
    yield "eager", chain
    yield "graph", graph.replay


FAMILIES: dict[str, Callable[[], Iterator[tuple[str, Step]]]] = {
    "vit": vision_transformer,
    "resnet18": small_resnet,
    "opt_decode": decoding,
    "offload": offload,
    "simulation": many_small,
    "gpt_neo": language_model,
    "gpt2_small_decode": gpt2_decoding,
    "conv_offload": convolution_offload,
    "elementwise": elementwise_chain,
}

if __name__ == "__main__":
    main()
