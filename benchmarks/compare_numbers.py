"""What `compare_numbers` says of models of transformers on the CPU and on a GPU, and of planted differences. On a GPU.

    PYTHONPATH=tests python -m benchmarks.compare_numbers [--only cases|planted|products] [--out FILE]

Models have random weights. On the CPU and on the GPU in float32 all must be within rounding. With TF32, the first
product must be named. With one weight matrix scaled by 1.001, that matrix must be named. Then come ways that are equal:
graphs, compiled functions, other orders of sums; and kernels that add up in varying order.

Planted: programs of `tests/planted_numbers.py` and `planted_numbers_gpu.py`, with the class and the line of each.

Products: of 100 random matrices in five sizes and four types, the error of the kept elements, by the limit up to which
it is called rounding. The true value is added up in long double. Then the sixth power of a matrix, on the CPU and the
GPU.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.on_device import measured_on, why_skipped

Row = dict[str, Any]
_SIZES = (32, 128, 512, 1024, 3000)
_KEPT = 256  # elements of a product whose true values are computed
_EACH = 5  # matrices of each size and type
_COURSE = 5000


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=("cases", "planted", "products"), help="one part")
    parser.add_argument("--out", type=Path, help="where the rows go, as JSON")
    args = parser.parse_args(argv)
    if skipped := why_skipped():
        print(skipped)
        return 0
    result: Row = measured_on()
    for part, made in (("cases", _rows), ("planted", _planted)):
        if args.only in (None, part):
            rows = []
            for row in made():
                row.pop("report", None)
                rows.append(row)
                print(f"{row['case']:32} {row['right']!s:6} {row['is']:18} {row['first']}", flush=True)
            result[part] = {"right": sum(row["right"] for row in rows), "of": len(rows), "rows": rows}
            print(f"{result[part]['right']} of {result[part]['of']} right")
    if args.only in (None, "products"):
        result["products"] = _products()
        result["sixth_power"] = _sixth_power()
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _products() -> list[Row]:
    """Returns a row for each size and type: the least and the greatest error of five matrix
    products, over the limit up to which `compare_numbers` calls an error rounding.
    """
    import torch

    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    rows = []
    for size in _SIZES:
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            shares = [_share_of_limit(size, dtype, number) for number in range(_EACH)]
            rows.append({"size": size, "type": str(dtype), "least": min(shares), "most": max(shares)})
            print(f"{size:6} {dtype!s:16} {min(shares):.3f} to {max(shares):.3f} of the limit", flush=True)
    return rows


def _share_of_limit(size: int, dtype: Any, number: int) -> float:
    import numpy as np
    import torch

    from unstall.numbers.run import run
    from unstall.numbers.ways import as_given
    from unstall.rounding.judge import CONFIDENCE, RUNS, student
    from unstall.rounding.noise import Noise
    from unstall.rounding.samples import ENDS, positions

    seeds = torch.Generator("cuda").manual_seed(size + number)
    make = torch.rand if number % 2 else torch.randn
    a, b = (make(size, size, generator=seeds, device="cuda").to(dtype) for _ in range(2))

    def values(noise: Noise | None = None) -> Any:
        return run(as_given(torch.matmul, [a, b]), noise).ends["result", "1"].values

    got = values()
    noisy = np.concatenate([values(Noise(seed)) - got for seed in range(RUNS)])
    rows, columns = np.divmod(positions(size * size, a.device, ENDS).cpu().numpy(), size)
    picked = np.random.default_rng(number).choice(len(rows), min(_KEPT, len(rows)), replace=False)
    left, right = (each.double().cpu().numpy().astype(np.longdouble) for each in (a, b))
    true = (left[rows[picked]] * right[:, columns[picked]].T).sum(-1)
    error = float(np.sqrt(np.mean(np.square(got[picked] - true), dtype=np.float64)))
    limit = student(1 - CONFIDENCE, RUNS) * float(np.sqrt(np.mean(np.square(noisy)))) * 2**0.5
    return error / limit


def _sixth_power() -> Row:
    import torch

    import unstall

    def power(matrix: torch.Tensor) -> torch.Tensor:
        result = matrix
        for _ in range(5):
            result = result @ matrix
        return result

    torch.manual_seed(0)
    found = unstall.compare_numbers(power, torch.rand(_COURSE, _COURSE), across=["cuda"])
    print(found)
    return json.loads(found.to_json())["ways"][0]  # type: ignore[no-any-return]


def _rows() -> Iterator[Row]:
    import torch

    for name, model, inputs in _models():
        torch.set_float32_matmul_precision("highest")
        yield _row(f"{name}, CPU and GPU", model, inputs, "cuda", "rounding")
        torch.set_float32_matmul_precision("high")
        yield _row(f"{name}, TF32", model, inputs, "cuda", "TF32")
        torch.set_float32_matmul_precision("highest")
        scaled = copy.deepcopy(model).cuda()
        which = [each for each, value in scaled.named_parameters() if value.dim() == 2 and "embed" not in each][3]
        with torch.no_grad():
            scaled.get_parameter(which).mul_(1.001)
        yield _row(f"{name}, {which} x 1.001", model, inputs, scaled, "factor", which)
    for case, fn, inputs, which, known in _functions():
        yield _row(case, fn, inputs, which, known)


def _planted() -> Iterator[Row]:
    """Yields a row for each program with a planted difference. A row is right if the class of the
    difference is, and also the line, if a line is planted.
    """
    import planted_numbers
    import planted_numbers_gpu as on_gpu
    import torch

    torch.set_float32_matmul_precision("highest")
    x = torch.randn(4, 8, 48, generator=torch.Generator().manual_seed(3))
    for base, other, known in planted_numbers.CASES:
        row = _row(other.__name__, planted_numbers.made(base), (x,), planted_numbers.made(other), known)
        yield _with_line(row, other)
    for case in on_gpu.CASES:
        with on_gpu.set_for(case):
            yield _with_line(_row(case.name, case.fn, case.inputs(), case.way, case.kind), case.fn)


def _with_line(row: Row, planted: Any) -> Row:
    """Adds to a row whether the report names the planted line, if the file has one for this
    function or class.
    """
    file = Path(inspect.getsourcefile(planted) or "")
    lines = file.read_text().splitlines()
    named = [int(number) for number in re.findall(rf"{file.name}:(\d+)", row["report"])]
    found = [number for number in named if "# planted" in lines[number - 1]]
    marked = row["known"] not in ("rounding", "equal", "random")
    right = row["right"] and (bool(found) or not marked)
    return {key: value for key, value in row.items() if key != "report"} | {"lines": found, "right": right}


def _row(case: str, fn: Any, inputs: tuple[Any, ...], which: Any, known: str, place: str = "") -> Row:
    import unstall

    found = unstall.compare_numbers(fn, *inputs, across=[which])
    told = json.loads(found.to_json())["ways"][0]
    first = told["first"] or {}
    at = f"{first.get('kind', '')} {first.get('name', '')} {Path(first.get('file', '')).name}:{first.get('line', '')}"
    right = told["is"] == known or (known == "rounding" and told["is"] == "equal")
    return {
        "case": case,
        "known": known,
        "right": right and place in first.get("name", place),
        "is": told["is"],
        "of_limit": told["most_of_limit"],
        "tensors": told["tensors"],
        "first": at if first else "",
        "sentence": told["sentence"],
        "report": str(found),
    }


def _models() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    import torch
    import transformers as t

    torch.manual_seed(0)
    words = torch.randint(0, 1000, (2, 32))
    sizes = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256}
    yield "BERT", t.BertModel(t.BertConfig(vocab_size=1000, **sizes)).eval(), (words,)
    gpt2 = t.GPT2Config(vocab_size=1000, n_embd=128, n_layer=4, n_head=4, n_positions=64, use_cache=False)
    yield "GPT-2", t.GPT2LMHeadModel(gpt2).eval(), (words,)
    llama = t.LlamaConfig(vocab_size=1000, use_cache=False, **sizes)
    yield "Llama", t.LlamaForCausalLM(llama).eval(), (words,)
    vit = t.ViTConfig(image_size=64, patch_size=8, **sizes)
    yield "ViT", t.ViTModel(vit).eval(), (torch.randn(2, 3, 64, 64),)


def _functions() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...], Any, str]]:
    import torch
    from torch import nn

    torch.manual_seed(0)
    x = torch.randn(64, 512, device="cuda")
    layers = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).cuda()
    where = torch.randint(0, 8, (1 << 16,), device="cuda")
    many = torch.randn(1 << 16, device="cuda")

    def softmax(value: torch.Tensor) -> torch.Tensor:
        return (value @ value.t() / 20).softmax(-1)

    def by_hand(value: torch.Tensor) -> torch.Tensor:
        scores = value @ value.t() / 20
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        return weights / weights.sum(-1, keepdim=True)

    def added(value: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.zeros(8, device="cuda").index_add(0, index, value)

    def scattered(value: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.zeros(8, device="cuda").scatter_add(0, index, value)

    def summed(value: torch.Tensor) -> torch.Tensor:
        return value.sum(-1)

    def summed_backwards(value: torch.Tensor) -> torch.Tensor:
        return value.flip(-1).cumsum(-1)[..., -1]

    image = torch.randn(2, 16, 32, 32, device="cuda")
    convolved = nn.Sequential(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 16, 3)).cuda()
    yield "graph of layers", layers, (x,), "graph", "rounding"
    yield "graph of softmax", softmax, (x,), "graph", "rounding"
    yield "graph of a convolution", convolved, (image,), "graph", "rounding"
    yield "graph of a sum", summed, (x,), "graph", "rounding"
    yield "compiled layers", layers, (x,), "compiled", "rounding"
    yield "compiled softmax", softmax, (x,), "compiled", "rounding"
    yield "softmax by hand", softmax, (x,), by_hand, "rounding"
    yield "a sum from its end", summed, (x,), summed_backwards, "rounding"
    yield "half batches", layers, (x,), "batch", "rounding"
    yield "index_add, again", added, (many, where), "repeat", "nondeterministic"
    yield "scatter_add, again", scattered, (many, where), "repeat", "nondeterministic"
    yield "float64", convolved, (image,), "float64", "rounding"


if __name__ == "__main__":
    sys.exit(main())
