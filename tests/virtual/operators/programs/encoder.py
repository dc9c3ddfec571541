"""The fast path of nn.TransformerEncoderLayer and nn.MultiheadAttention: values beside the CPU's, and kernels."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

BATCH, LENGTH, WIDTH, HEADS = 4, 32, 64, 8


def outputs(device: str, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    options = {"batch_first": True, "dtype": dtype}
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 128, **options).eval().to(device)
    first = (
        nn.TransformerEncoderLayer(WIDTH, HEADS, 128, activation="gelu", norm_first=True, **options).eval().to(device)
    )
    attention = nn.MultiheadAttention(WIDTH, HEADS, **options).eval().to(device)
    x = torch.randn(BATCH, LENGTH, WIDTH, dtype=dtype).to(device)
    padding = torch.zeros(BATCH, LENGTH, dtype=torch.bool, device=device)
    padding[:, LENGTH // 2 :] = True
    causal = nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=dtype).to(device)
    with torch.inference_mode():
        found = [
            layer(x),
            layer(x, src_key_padding_mask=padding),
            layer(x, src_mask=causal, is_causal=True),
            first(x),
            layer(x[:0]),
            *attention(x, x, x),
            attention(x, x, x, average_attn_weights=False)[1],
            attention(x, x, x, need_weights=False)[0],
            attention(x, x.flip(0), x, need_weights=False)[0],
        ]
    return [each.cpu().float() for each in found]


def differences() -> list[str]:
    found = []
    for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 0.05)):
        for number, (cpu, gpu) in enumerate(zip(outputs("cpu", dtype), outputs("cuda", dtype), strict=True)):
            if not torch.allclose(cpu, gpu, atol=near):
                found.append(f"{dtype}, output {number}: {(cpu - gpu).abs().max()}")
    return found


def measured(call: Callable[[], object]) -> dict:
    with torch.inference_mode():
        call()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        peak = torch.cuda.max_memory_allocated() - before
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            call()
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kernels = [each for each in events if each.get("cat") == "kernel"]
    return {"peak": peak, "kernels": len(kernels), "us": sum(float(each["dur"]) for each in kernels)}


if __name__ == "__main__":
    x, causal = torch.randn(32, 128, 512, device="cuda"), nn.Transformer.generate_square_subsequent_mask(128).cuda()
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True).eval().cuda()
    heads = nn.MultiheadAttention(512, 8, batch_first=True).eval().cuda()
    told = {
        "differences": differences(),
        "bare": measured(lambda: layer(x)),
        "causal": measured(lambda: layer(x, src_mask=causal, is_causal=True)),
        "attention": measured(lambda: heads(x, x, x, need_weights=False)),
        "weights": measured(lambda: heads(x, x, x)),
    }
    print(json.dumps(told))
