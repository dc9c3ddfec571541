"""Models of transformers in tiny configurations: unstall audit examples/audit/transformers_models.py

The models are made from their config classes with random weights. One call generates TOKENS tokens (text), classifies
an image, or computes a forward pass (all others).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

TOKENS = 8
_BATCH, _LENGTH, _VOCABULARY = 2, 16, 128
_GENERATE = (
    *("bloom", "codegen", "cohere", "falcon", "gemma", "gemma2", "gpt2", "gpt_bigcode"),
    *("gpt_neox", "gptj", "granite", "granitemoe", "jetmoe", "llama", "mamba", "mistral", "mixtral"),
    *("olmo", "olmo2", "olmoe", "opt", "persimmon", "phi", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
    *("rwkv", "stablelm", "starcoder2", "xglm"),
)
_SEQUENCE_TO_SEQUENCE = ("bart", "blenderbot", "led", "m2m_100", "marian", "mbart", "pegasus", "t5")
_FILL_MASK = (
    *("albert", "bert", "big_bird", "camembert", "convbert", "deberta", "deberta-v2", "distilbert", "electra"),
    *("ernie", "fnet", "ibert", "layoutlm", "mobilebert", "modernbert", "mpnet", "roberta", "roformer", "squeezebert"),
)
_IMAGES = (
    *("beit", "bit", "convnext", "convnextv2", "cvt", "dinov2", "focalnet", "mobilenet_v1"),
    *("mobilenet_v2", "mobilevit", "poolformer", "pvt", "regnet", "resnet", "segformer", "swin", "swinv2", "vit"),
)
# Where a configuration has a field of this name, it is made so small.
_TINY = {
    "hidden_size": 32,
    "d_model": 32,
    "n_embd": 32,
    "dim": 32,
    "embedding_size": 32,
    "word_embed_proj_dim": 32,
    "intermediate_size": 64,
    "ffn_dim": 64,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "hidden_dim": 64,
    "d_ff": 64,
    "d_kv": 8,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "num_attention_heads": 4,
    "num_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_encoder_attention_heads": 4,
    "num_decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "rotary_dim": 8,
    "vocab_size": _VOCABULARY,
    "pad_token_id": 0,
}


def entries() -> dict[str, Callable[[], Callable[[], object]]]:
    """The models by the name of their architecture."""
    return {
        **{name: partial(_generates, name) for name in (*_GENERATE, *_SEQUENCE_TO_SEQUENCE)},
        **{name: partial(_fills, name) for name in _FILL_MASK},
        **{name: partial(_classifies, name) for name in _IMAGES},
    }


def _generates(name: str) -> Callable[[], object]:
    kind = transformers.AutoModelForCausalLM if name in _GENERATE else transformers.AutoModelForSeq2SeqLM
    model = _model(kind, _config(name))
    model.generation_config.eos_token_id = None  # so that all calls take the same number of steps
    model.generation_config.pad_token_id = 0
    if name in _SEQUENCE_TO_SEQUENCE:
        model.generation_config.decoder_start_token_id = 0
    return partial(model.generate, _tokens(), max_new_tokens=TOKENS, do_sample=False)


def _fills(name: str) -> Callable[[], object]:
    return _without_gradients(_model(transformers.AutoModelForMaskedLM, _config(name)), input_ids=_tokens())


def _classifies(name: str) -> Callable[[], object]:
    config = _config(name, sizes=False)
    image = torch.randn(1, 3, getattr(config, "image_size", 64), getattr(config, "image_size", 64), device="cuda")
    return _without_gradients(_model(transformers.AutoModelForImageClassification, config), pixel_values=image)


def _config(name: str, *, sizes: bool = True) -> Any:
    kind = transformers.AutoConfig.for_model(name).__class__
    usual = kind()
    own = [key for key in _TINY if hasattr(usual, key) and not isinstance(getattr(kind, key, None), property)]
    return kind(**{key: _TINY[key] for key in own if sizes})


def _model(kind: Any, config: Any) -> Any:
    torch.manual_seed(0)
    return kind.from_config(config).eval().to("cuda")


def _tokens() -> torch.Tensor:
    return torch.randint(4, _VOCABULARY, (_BATCH, _LENGTH), device="cuda")


def _without_gradients(model: Any, **inputs: torch.Tensor) -> Callable[[], object]:
    @torch.no_grad()
    def call() -> object:
        return model(**inputs)

    return call
