"""Models of transformers that had no part in the virtual GPU's costs, measured on a GPU: a real one, or a virtual one.

    OUT=DIR python benchmarks/held_out_models.py [NAME…]       writes DIR/models_truth.json

Needs a GPU, and transformers 5.17. What an H200 took is benchmarks/results/held_out_models_h200.json;
`python -m benchmarks.virtual_models` takes both and compares.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from torch.profiler import ProfilerActivity, profile

Inputs = tuple[dict[str, torch.Tensor], torch.Tensor]
_STEPS = 8
_MEMORY = (
    "allocated_bytes.all.peak",
    "reserved_bytes.all.peak",
    "allocated_bytes.all.current",
    "reserved_bytes.all.current",
    "segment.all.current",
    "allocation.all.allocated",
    "requested_bytes.all.peak",
)


def images(batch: int) -> Inputs:
    return {"pixel_values": torch.randn(batch, 3, 224, 224)}, torch.randint(0, 1000, (batch,))


def tokens(length: int, vocabulary: int) -> Callable[[int], Inputs]:
    def inputs(batch: int) -> Inputs:
        ids = torch.randint(0, vocabulary, (batch, length))
        return {"input_ids": ids}, ids

    return inputs


def pairs(batch: int) -> Inputs:
    ids, answers = torch.randint(0, 32128, (batch, 64)), torch.randint(0, 32128, (batch, 64))
    return {"input_ids": ids, "decoder_input_ids": answers}, answers


def sound(batch: int) -> Inputs:
    answers = torch.randint(0, 51865, (batch, 32))
    return {"input_features": torch.randn(batch, 80, 3000), "decoder_input_ids": answers}, answers


_WIDE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
_WHISPER = {"d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6}
_LLAMA = {"hidden_size": 640, "intermediate_size": 1728, "num_hidden_layers": 8, "num_attention_heads": 10}

MODELS: dict[str, tuple[Callable[[], Any], Callable[[int], Inputs]]] = {
    "roberta_base": (lambda: hf.RobertaForMaskedLM(hf.RobertaConfig(vocab_size=50265)), tokens(160, 50265)),
    "t5_small": (
        lambda: hf.T5ForConditionalGeneration(hf.T5Config(num_heads=8, decoder_start_token_id=0)),
        pairs,
    ),
    "swin_tiny": (lambda: hf.SwinForImageClassification(hf.SwinConfig(num_labels=1000)), images),
    "mobilenet_v2": (lambda: hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config(num_labels=1000)), images),
    "opt_125m": (
        lambda: hf.OPTForCausalLM(hf.OPTConfig(ffn_dim=3072, word_embed_proj_dim=768, vocab_size=50272, **_WIDE)),
        tokens(200, 50272),
    ),
    "whisper_tiny": (
        lambda: hf.WhisperForConditionalGeneration(
            hf.WhisperConfig(decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536, **_WHISPER)
        ),
        sound,
    ),
    "llama_small_bf16": (
        lambda: hf.LlamaForCausalLM(hf.LlamaConfig(num_key_value_heads=5, vocab_size=32000, **_LLAMA)).bfloat16(),
        tokens(256, 32000),
    ),
}


def measured(make: Callable[[], Any], inputs: Callable[[int], Inputs], mode: str, batch: int) -> dict[str, Any]:
    torch.manual_seed(0)
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    before = torch.cuda.memory_allocated()
    model = make().to("cuda").train(mode == "train")
    given, labels = inputs(batch)
    given, labels = {name: tensor.to("cuda") for name, tensor in given.items()}, labels.to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> None:
        if mode == "train":
            used = {name: tensor for name, tensor in given.items() if name != "decoder_input_ids"}
            loss = model(**used, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        else:
            with torch.no_grad():
                model(**given)

    step()
    torch.cuda.synchronize()
    first = memory()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    after = memory()
    began = time.perf_counter()
    for _ in range(_STEPS):
        step()
    torch.cuda.synchronize()
    step_ms = (time.perf_counter() - began) / _STEPS * 1e3
    host_ms = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        step()
        host_ms.append((time.perf_counter() - began) * 1e3)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        step()
        torch.cuda.synchronize()
    marks = {event.name for event in profiled.events() if str(event.device_type).endswith("CPU") and "#" in event.name}
    ops = [e for e in profiled.events() if str(e.device_type).endswith("CUDA") and e.name not in marks]
    kernels = [event for event in ops if not event.name.startswith("Mem")]
    return {
        "step_ms": step_ms,
        "host_ms": statistics.median(host_ms),
        "kernels": len(kernels),
        "copies": len(ops) - len(kernels),
        "gpu_busy_ms": sum(event.time_range.elapsed_us() for event in kernels) / 1e3,
        "before": before,
        "first": first,
        "mem": after,
    }


def memory() -> dict[str, int]:
    stats = torch.cuda.memory_stats()
    return {name: stats[name] for name in _MEMORY}


def main() -> None:
    results: dict[str, Any] = {"versions": {"torch": torch.__version__, "transformers": hf.__version__}}
    for name in sys.argv[1:] or MODELS:
        for mode, batch in (("infer", 1), ("infer", 32), ("train", 8)):
            case = f"{name}/{mode}/b{batch}"
            results[case] = result = measured(*MODELS[name], mode, batch)
            gc.collect()
            figures = ", ".join(f"{key} {result[key]:.6g}" for key in ("step_ms", "host_ms", "kernels", "gpu_busy_ms"))
            print(f"{case}: {figures}", flush=True)
            Path(os.environ.get("OUT", "."), "models_truth.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
