"""How long the host works in each phase of a training step: forward, backward, optimizer, and what follows.

    python -m benchmarks.host_phases --out real.json                                                      # on a GPU
    python -m unstall.virtual --gpu h100 --numerics skip -m benchmarks.host_phases --against real.json    # anywhere

What an H100's host took is benchmarks/results/host_phases_h100.json.

Nine models that wait for their host, at sizes of their own. A step may take as long as on a real host while its phases
do not. Times are medians of the host's own, in us; each step begins with an idle device.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from benchmarks.on_device import comparing, machines, measured_on, why_skipped

_STEPS, _WARM_UP = 9, 3
PHASES = ("forward", "backward", "optimizer", "after", "inference")
Made = tuple[nn.Module, Callable[[], Tensor]]


def main(argv: list[str] | None = None) -> int:
    args = comparing(__doc__).parse_args(argv)
    if skipped := why_skipped("transformers"):
        print(skipped)
        return 0
    real = [each["us"] for each in machines(args.against)]
    found: dict[str, dict[str, float]] = {}
    for name, make in _models().items():
        torch.manual_seed(0)
        found[name] = _phases(*make())
        ratios = [[found[name][phase] / of[name][phase] for phase in PHASES] for of in real if name in of]
        line = "  ".join(f"{phase} {found[name][phase]:8.0f}" for phase in PHASES)
        print(
            f"{name:10} {line}" + "".join(f"  ({' '.join(f'{each:.2f}' for each in row)})" for row in ratios),
            flush=True,
        )
    for of in real:
        medians = [
            statistics.median(found[name][phase] / of[name][phase] for name in found if name in of) for phase in PHASES
        ]
        print(
            f"{'median':10} " + "  ".join(f"{phase} {each:8.2f}" for phase, each in zip(PHASES, medians, strict=True))
        )
    if args.out:
        args.out.write_text(json.dumps(measured_on() | {"us": found}, indent=1) + "\n")
    return 0


def _phases(model: nn.Module, loss: Callable[[], Tensor]) -> dict[str, float]:
    """Returns how long the host takes for each phase of a step, in us, and for the loss alone without gradients."""
    optimizer = torch.optim.AdamW(model.parameters())
    marks: list[tuple[str, int]] = []

    def mark(name: str) -> None:
        marks.append((name, time.perf_counter_ns()))

    hooks = (
        register_optimizer_step_pre_hook(lambda *_: mark("optimizer")),
        register_optimizer_step_post_hook(lambda *_: mark("after")),
    )
    rows: list[dict[str, float]] = []
    for _ in range(_WARM_UP + _STEPS):
        torch.cuda.synchronize()
        marks.clear()
        mark("forward")
        result = loss()
        mark("backward")
        result.backward()
        optimizer.step()
        optimizer.zero_grad()
        mark("end")
        rows.append({name: (then - at) / 1e3 for (name, at), (_, then) in itertools.pairwise(marks)})
    for hook in hooks:
        hook.remove()
    model.eval()
    with torch.no_grad():
        for row in rows:
            torch.cuda.synchronize()
            begin = time.perf_counter_ns()
            loss()
            row["inference"] = (time.perf_counter_ns() - begin) / 1e3
    return {name: round(statistics.median(row[name] for row in rows[_WARM_UP:]), 1) for name in PHASES}


def _models() -> dict[str, Callable[[], Made]]:
    import transformers as of

    small = {"hidden_size": 128, "num_hidden_layers": 8, "num_attention_heads": 4, "intermediate_size": 256}
    ids, labels = torch.randint(0, 500, (4, 64)).cuda(), torch.randint(0, 2, (4,)).cuda()
    pictures, rows = torch.randn(4, 3, 64, 64).cuda(), torch.zeros(8, 64, device="cuda")

    def with_loss(make: Callable[[], nn.Module], **inputs: Tensor) -> Callable[[], Made]:
        def made() -> Made:
            model: Any = make().cuda()
            return model, lambda: model(**inputs).loss

        return made

    def perceptron() -> Made:
        layers = [layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU())]
        model = nn.Sequential(*layers).cuda()
        return model, lambda: model(rows).square().mean()

    def convolutions() -> Made:
        layers: list[nn.Module] = []
        for channels in (3, *(16,) * 7):
            layers += [nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
        model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2)).cuda()
        return model, lambda: functional.cross_entropy(model(pictures), labels)

    def config(kind: Any, **options: Any) -> Any:
        return kind(vocab_size=500, **options)

    t5 = {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 4, "num_heads": 4}
    gpt2 = {"n_positions": 64, "n_embd": 128, "n_layer": 8, "n_head": 4}
    sizes = [32, 64, 128, 256]
    return {
        "bert": with_loss(
            lambda: of.BertForSequenceClassification(config(of.BertConfig, **small)), input_ids=ids, labels=labels
        ),
        "gpt2": with_loss(lambda: of.GPT2LMHeadModel(config(of.GPT2Config, **gpt2)), input_ids=ids, labels=ids),
        "llama": with_loss(
            lambda: of.LlamaForCausalLM(config(of.LlamaConfig, num_key_value_heads=4, **small)),
            input_ids=ids,
            labels=ids,
        ),
        "t5": with_loss(
            lambda: of.T5ForConditionalGeneration(config(of.T5Config, decoder_start_token_id=0, pad_token_id=0, **t5)),
            input_ids=ids,
            labels=ids,
        ),
        "vit": with_loss(
            lambda: of.ViTForImageClassification(of.ViTConfig(image_size=64, **small)),
            pixel_values=pictures,
            labels=labels,
        ),
        "resnet": with_loss(
            lambda: of.ResNetForImageClassification(
                of.ResNetConfig(depths=[2, 2, 2, 2], hidden_sizes=sizes, embedding_size=32)
            ),
            pixel_values=pictures,
            labels=labels,
        ),
        "convnext": with_loss(
            lambda: of.ConvNextForImageClassification(of.ConvNextConfig(depths=[2, 2, 4, 2], hidden_sizes=sizes)),
            pixel_values=pictures,
            labels=labels,
        ),
        "mlp": perceptron,
        "cnn": convolutions,
    }


if __name__ == "__main__":
    sys.exit(main())
