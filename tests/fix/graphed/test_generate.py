"""`generate` of transformers' models, with a cache of fixed size and `graphed` in the place of `forward`."""

from __future__ import annotations

from pathlib import Path

import pytest
from fix.on_a_gpu import on_real_gpu, on_virtual_gpu

# Prompts of three lengths, each some times over: its prefill is a graph from the third time on, and each step after it.
_PROGRAM = """
import torch, unstall
from transformers import AutoModelForCausalLM, GemmaConfig, GPT2Config, LlamaConfig, StaticCache
from transformers.utils import logging

logging.set_verbosity_error()
ends = dict(vocab_size=101, bos_token_id=1, eos_token_id=None)
sizes = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
configs = [
    GPT2Config(n_layer=2, n_embd=64, n_head=2, n_positions=128, **ends),
    GPT2Config(n_layer=2, n_embd=64, n_head=2, n_positions=128, pad_token_id=0, **ends),  # looks for padding, and waits
    LlamaConfig(max_position_embeddings=128, **sizes, **ends),
    GemmaConfig(max_position_embeddings=128, head_dim=16, **sizes, **ends),
]
for config in configs:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).cuda().eval()
    prompts = [torch.randint(2, 100, (1, length), device="cuda") for length in (5, 5, 9, 5, 5, 9, 7, 9)]
    options = dict(max_new_tokens=16, do_sample=False, pad_token_id=0, disable_compile=True)
    wanted = [model.generate(prompt, **options) for prompt in prompts]
    fast = model.forward = unstall.graphed(model.forward)
    cache = StaticCache(config=config, max_cache_len=32)
    for number, prompt in enumerate(prompts):
        cache.reset()
        given = model.generate(prompt, **options, past_key_values=cache)
        assert torch.equal(given, wanted[number]), (config.model_type, number)
    stats = fast.stats()
    assert (stats.calls, stats.captures) == (8 * 16, 3), stats
    assert stats.hits >= stats.calls - 7, stats
    # Whose cache is full with its last token, and is another for each call.
    given = model.generate(prompts[0], **options, cache_implementation="static")
    assert torch.equal(given, wanted[0]), config.model_type
    assert fast.stats().captures == 4, fast.stats()
    # A cache that grows is the reason then, and none of the waits that a capture leaves out.
    alone = unstall.graphed(type(model).forward)
    with torch.no_grad():
        for _ in range(3):
            alone(model, prompts[0], attention_mask=torch.ones_like(prompts[0]))
    refusals = alone.stats().refusals
    assert {refusal.place.library.split(":")[0] for refusal in refusals} == {"transformers/cache_utils.py"}, refusals
    assert all("StaticCache" in refusal.remedy for refusal in refusals)
print("GENERATED")
"""


@pytest.mark.slow
def test_each_step_and_each_known_prefill_is_a_graph(tmp_path: Path) -> None:
    assert "GENERATED" in on_virtual_gpu(tmp_path, _PROGRAM)


@pytest.mark.gpu
def test_each_step_and_each_known_prefill_is_a_graph_on_a_real_gpu(tmp_path: Path) -> None:
    assert "GENERATED" in on_real_gpu(tmp_path, _PROGRAM)
