"""Programs made of `transformers`' models, with random weights, and each again as its first finding may say.

Mended by a CUDA graph, a step does the same work as written: captured without attention masks (`_without_masks`). But
for generations, whose cache of fixed size takes more launches.

unstall run examples/transformers/programs.py bert_train      # one of PROGRAMS, as one would write it
python examples/transformers/measure.py                       # what that promises, and what mending each gives

With --turns it goes on, after what unstall records, to time its step as written and mended in turns, each way that a
finding may ask for, and prints the times as JSON (`turns.py`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import transformers
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from turns import Mends, Step, device_work, in_turns, take

DEVICE = "cuda"


def bert_train() -> tuple[Step, Mends]:
    """A training step of a small BERT that classifies 8 texts of 128 tokens, its loss read at each."""
    config = transformers.BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config).to(DEVICE)
    batch = {
        "input_ids": torch.randint(0, config.vocab_size, (8, 128), device=DEVICE),
        "labels": torch.randint(0, 2, (8,), device=DEVICE),
    }
    return _training(model, batch)


def gpt2_train() -> tuple[Step, Mends]:
    """A training step of GPT-2 on 2 x 128 tokens, its loss read at each."""
    config = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, loss_type="ForCausalLMLoss")
    model = transformers.GPT2LMHeadModel(config).to(DEVICE)
    tokens = torch.randint(0, config.vocab_size, (2, 128), device=DEVICE)
    return _training(model, {"input_ids": tokens, "labels": tokens})


def _training(model: transformers.PreTrainedModel, batch: dict[str, Tensor]) -> tuple[Step, Mends]:
    # Capturable as written too: mended by a graph, it does the same arithmetic by the same kernels.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)

    def train() -> Tensor:
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def step() -> float:
        return float(train().item())

    def mended() -> Step:
        losses: list[Tensor] = []

        def captured() -> None:
            losses[:] = [train()]

        with _without_masks(model):
            graph = _graph(captured)

        def replay() -> float:
            graph.replay()
            return float(losses[0].item())

        return replay

    return step, {"graph": _made_when_called(mended), "remove-syncs": _read_together(train)}


def gpt2_generate() -> tuple[Step, Mends]:
    """GPT-2 writes 32 tokens, the likeliest each time. A step is one token."""
    config = transformers.GPT2Config(bos_token_id=0, eos_token_id=None, pad_token_id=0)
    return _generation(transformers.GPT2LMHeadModel(config), config.vocab_size)


def llama_generate() -> tuple[Step, Mends]:
    """A Llama of 12 layers writes 32 tokens, the likeliest each time. A step is one token."""
    config = transformers.LlamaConfig(
        hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12, bos_token_id=0,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return _generation(transformers.LlamaForCausalLM(config), config.vocab_size)


TOKENS = 32
READ_EVERY = 100


def _generation(model: transformers.PreTrainedModel, words: int) -> tuple[Step, Mends]:
    model = model.to(DEVICE).eval()
    prompt = torch.randint(0, words, (1, 8), device=DEVICE)

    def step() -> object:
        return model.generate(prompt, max_new_tokens=TOKENS, do_sample=False)

    def mended() -> Step:
        length = prompt.shape[1] + TOKENS
        cache = transformers.StaticCache(config=model.config, max_cache_len=length)
        token = torch.zeros(1, 1, dtype=torch.long, device=DEVICE)
        position = torch.full((1,), prompt.shape[1], device=DEVICE)

        @torch.no_grad()
        def one() -> None:
            out = model(
                token, past_key_values=cache, use_cache=True, position_ids=position[None], cache_position=position
            )
            token.copy_(out.logits[:, -1:].argmax(-1))
            position.add_(1)

        @torch.no_grad()
        def begin() -> None:
            cache.reset()
            start = torch.arange(prompt.shape[1], device=DEVICE)
            out = model(prompt, past_key_values=cache, use_cache=True, position_ids=start[None], cache_position=start)
            token.copy_(out.logits[:, -1:].argmax(-1))
            position.fill_(prompt.shape[1])

        begin()
        graph = _graph(one)

        def replay() -> object:
            begin()
            written = [token.item()]
            for _ in range(TOKENS - 1):
                graph.replay()
                written.append(token.item())  # as generate() does, to see whether the text has ended
            return written

        return replay

    return step, {"graph": _made_when_called(mended)}


def vit_infer() -> tuple[Step, Mends]:
    """A ViT names what is in one image, in single precision."""
    return _inference(torch.float32)


def vit_infer_bf16() -> tuple[Step, Mends]:
    """The same in bfloat16, of which the device has done long before the host has asked for it."""
    return _inference(torch.bfloat16)


def _inference(dtype: torch.dtype) -> tuple[Step, Mends]:
    model = transformers.ViTForImageClassification(transformers.ViTConfig()).to(DEVICE, dtype).eval()
    image = torch.randn(1, 3, 224, 224, device=DEVICE, dtype=dtype)

    @torch.no_grad()
    def name() -> Tensor:
        return model(image).logits.argmax(-1)

    @torch.no_grad()
    def step() -> object:
        return model(image).logits.argmax(-1).item()

    def mended() -> Step:
        named: list[Tensor] = []

        def captured() -> None:
            named[:] = [name()]

        with _without_masks(model):
            graph = _graph(captured)

        def replay() -> object:
            graph.replay()
            return named[0].item()

        return replay

    return step, {"graph": _made_when_called(mended), "remove-syncs": _read_together(name)}


def _graph(function: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """The function as a CUDA graph, after it ran on the stream that is captured: what autograd keeps is of a stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        function()
    return graph


@contextmanager
def _without_masks(model: transformers.PreTrainedModel) -> Iterator[None]:
    """Attention is given no mask within.

    Nothing is padded here, and transformers makes no mask for that; but in a capture, where it cannot look at one, it
    does, and attention with a mask takes slower kernels than the step as written.
    """
    usual = model.config._attn_implementation
    transformers.AttentionInterface.register("sdpa_without_mask", sdpa_attention_forward)
    model.set_attn_implementation("sdpa_without_mask")
    try:
        yield
    finally:
        model.set_attn_implementation(usual)


def _read_together(step: Callable[[], Tensor]) -> Step:
    """A step whose value is kept on the device; every so many are read at once."""
    kept: list[Tensor] = []

    def later() -> object:
        kept.append(step())
        if len(kept) < READ_EVERY:
            return None
        values = torch.stack(kept).tolist()
        kept.clear()
        return values

    return later


def _made_when_called(make: Callable[[], Step]) -> Step:
    """A step that is made the first time it is taken."""
    made: list[Step] = []

    def step() -> object:
        if not made:
            made.append(make())
        return made[0]()

    return step


PROGRAMS: dict[str, tuple[Callable[[], tuple[Step, Mends]], int]] = {
    "bert_train": (bert_train, 1),
    "gpt2_train": (gpt2_train, 1),
    "gpt2_generate": (gpt2_generate, TOKENS),
    "llama_generate": (llama_generate, TOKENS),
    "vit_infer": (vit_infer, 1),
    "vit_infer_bf16": (vit_infer_bf16, 1),
}
"""What makes a program's step, and how many steps of the report that is. Mends are by the edit that models them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument(
        "--turns", type=float, metavar="SECONDS", help="time its step as written and mended, for so long"
    )
    parser.add_argument("--work", action="store_true", help="and, last, what a step of each does on the device")
    args = parser.parse_args()
    make, parts = PROGRAMS[args.name]
    written, mends = make()
    take(written, parts)
    if args.turns is None:
        return
    told: dict[str, object] = in_turns(written, mends, parts, args.turns)
    if args.work:
        told["work"] = {"written": device_work(written, parts), "graph": device_work(mends["graph"], parts)}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
