"""What is said of the waits that transformers' attention masks make, and that what it advises spares them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fix.on_a_gpu import on_virtual_gpu

# What is printed is a reason of its own, so that no capture tells which of the waits would be left out.
_PROGRAM = """
import torch, unstall
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel
from transformers.utils import logging

logging.set_verbosity_error()
sizes = dict(vocab_size=101, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4)
tokens = torch.randint(1, 100, (2, 8), device="cuda")
flat = torch.ones_like(tokens)
whole = torch.ones(2, 1, 8, 8, dtype=torch.bool, device="cuda")
cases = [
    (BertModel(BertConfig(**sizes)), {}, {"none": None, "of four": whole}, {"of two": flat}),
    (LlamaModel(LlamaConfig(**sizes)), {"use_cache": False}, {"of four": whole.tril()}, {"of two": flat, "none": None}),
]
for model, options, spared, waiting in cases:
    model.cuda().eval()
    for name, mask in (spared | waiting).items():
        def call(mask):
            print(end="")
            return model(tokens, attention_mask=mask, **options)[0]

        fast = unstall.graphed(call)
        with torch.no_grad():
            for _ in range(3):
                fast(mask)
        refusals = [each for each in fast.stats().refusals if each.waits]
        assert bool(refusals) == (name in waiting), (type(model).__name__, name, refusals)
        assert all(each.remedy.startswith("pass an attention_mask of four dimensions") for each in refusals)
print("MASKED")
"""


@pytest.mark.slow
def test_a_mask_of_four_dimensions_spares_the_waits_and_to_bert_none_does(tmp_path: Path) -> None:
    assert "MASKED" in on_virtual_gpu(tmp_path, _PROGRAM)
