"""Tiny models with random weights, made from their config classes: nothing is downloaded."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import diffusers
import torch
import transformers

_CROSS = 32  # of text embeddings, as the text encoders below give them
_UNET = {
    "block_out_channels": (32, 64),
    "layers_per_block": 1,
    "sample_size": 16,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    "cross_attention_dim": _CROSS,
    "attention_head_dim": 8,
}
UNET_XL = MappingProxyType(
    {
        "attention_head_dim": (2, 4),
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 8,
        "transformer_layers_per_block": (1, 2),
        "projection_class_embeddings_input_dim": 6 * 8 + _CROSS,
        "cross_attention_dim": 2 * _CROSS,
    }
)
_FLUX = {
    "patch_size": 1,
    "in_channels": 4,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": _CROSS,
    "pooled_projection_dim": _CROSS,
    "axes_dims_rope": (4, 4, 8),
}
_PIXART = {
    "sample_size": 8,
    "num_layers": 2,
    "patch_size": 2,
    "attention_head_dim": 8,
    "num_attention_heads": 3,
    "caption_channels": _CROSS,
    "in_channels": 4,
    "cross_attention_dim": 24,
    "out_channels": 8,
    "attention_bias": True,
    "activation_fn": "gelu-approximate",
    "num_embeds_ada_norm": 1000,
    "norm_type": "ada_norm_single",
    "norm_elementwise_affine": False,
    "norm_eps": 1e-6,
}

DIFFUSERS: Mapping[str, Mapping[str, Any]] = {
    "AuraFlowTransformer2DModel": {
        "sample_size": 32,
        "patch_size": 2,
        "in_channels": 4,
        "num_mmdit_layers": 1,
        "num_single_dit_layers": 1,
        "attention_head_dim": 8,
        "num_attention_heads": 4,
        "caption_projection_dim": 32,
        "joint_attention_dim": _CROSS,
        "out_channels": 4,
        "pos_embed_max_size": 256,
    },
    "AutoencoderDC": {
        "in_channels": 3,
        "latent_channels": 4,
        "attention_head_dim": 2,
        "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
        "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
        "encoder_block_out_channels": (8, 8),
        "decoder_block_out_channels": (8, 8),
        "encoder_qkv_multiscales": ((), (5,)),
        "decoder_qkv_multiscales": ((), (5,)),
        "encoder_layers_per_block": (1, 1),
        "decoder_layers_per_block": (1, 1),
        "downsample_block_type": "conv",
        "upsample_block_type": "interpolate",
        "decoder_norm_types": "rms_norm",
        "decoder_act_fns": "silu",
        "scaling_factor": 0.41407,
    },
    "AutoencoderKL": {
        "block_out_channels": (32, 64),
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "latent_channels": 4,
        "norm_num_groups": 32,
        "sample_size": 32,
    },
    "AutoencoderKLCogVideoX": {
        "down_block_types": ("CogVideoXDownBlock3D",) * 4,
        "up_block_types": ("CogVideoXUpBlock3D",) * 4,
        "block_out_channels": (8, 8, 8, 8),
        "latent_channels": 4,
        "layers_per_block": 1,
        "norm_num_groups": 2,
        "temporal_compression_ratio": 4,
    },
    "AutoencoderKLLTXVideo": {
        "latent_channels": 8,
        "block_out_channels": (8, 8, 8, 8),
        "decoder_block_out_channels": (8, 8, 8, 8),
        "layers_per_block": (1, 1, 1, 1, 1),
        "decoder_layers_per_block": (1, 1, 1, 1, 1),
        "spatio_temporal_scaling": (True, True, False, False),
        "decoder_spatio_temporal_scaling": (True, True, False, False),
        "decoder_inject_noise": (False,) * 5,
        "upsample_residual": (False,) * 4,
        "upsample_factor": (1,) * 4,
        "timestep_conditioning": False,
        "patch_size": 1,
        "patch_size_t": 1,
        "encoder_causal": True,
        "decoder_causal": False,
    },
    "AutoencoderKLQwenImage": {
        "base_dim": 24,
        "z_dim": 4,
        "dim_mult": [1, 2, 4],
        "num_res_blocks": 1,
        "temperal_downsample": [False, True],
        "latents_mean": [0.0] * 4,
        "latents_std": [1.0] * 4,
    },
    "AutoencoderKLTemporalDecoder": {
        "block_out_channels": (32, 64),
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "latent_channels": 4,
    },
    "AutoencoderKLWan": {
        "base_dim": 3,
        "z_dim": 16,
        "dim_mult": [1, 1, 1, 1],
        "num_res_blocks": 1,
        "temperal_downsample": [False, True, True],
    },
    "ChromaTransformer2DModel": {
        **{key: value for key, value in _FLUX.items() if key != "pooled_projection_dim"},
        "approximator_hidden_dim": 32,
        "approximator_layers": 1,
        "approximator_num_channels": 16,
    },
    "CogVideoXTransformer3DModel": {
        "num_attention_heads": 4,
        "attention_head_dim": 8,
        "in_channels": 4,
        "out_channels": 4,
        "time_embed_dim": 2,
        "text_embed_dim": _CROSS,
        "num_layers": 1,
        "sample_width": 2,
        "sample_height": 2,
        "sample_frames": 9,
        "patch_size": 2,
        "temporal_compression_ratio": 4,
        "max_text_seq_length": 16,
    },
    "CogView3PlusTransformer2DModel": {
        "patch_size": 2,
        "in_channels": 4,
        "num_layers": 1,
        "attention_head_dim": 4,
        "num_attention_heads": 2,
        "out_channels": 4,
        "text_embed_dim": _CROSS,
        "time_embed_dim": 8,
        "condition_dim": 2,
        "pos_embed_max_size": 32,
        "sample_size": 8,
    },
    "CogView4Transformer2DModel": {
        "patch_size": 2,
        "in_channels": 4,
        "num_layers": 2,
        "attention_head_dim": 4,
        "num_attention_heads": 4,
        "out_channels": 4,
        "text_embed_dim": _CROSS,
        "time_embed_dim": 8,
        "condition_dim": 4,
    },
    "ControlNetModel": {
        **{key: _UNET[key] for key in ("block_out_channels", "layers_per_block", "down_block_types")},
        "cross_attention_dim": _CROSS,
        "conditioning_embedding_out_channels": (16, 32),
    },
    "DiTTransformer2DModel": {
        "sample_size": 16,
        "num_layers": 2,
        "patch_size": 4,
        "attention_head_dim": 8,
        "num_attention_heads": 2,
        "in_channels": 4,
        "out_channels": 8,
        "attention_bias": True,
        "activation_fn": "gelu-approximate",
        "num_embeds_ada_norm": 1000,
        "norm_type": "ada_norm_zero",
        "norm_elementwise_affine": False,
    },
    "FluxTransformer2DModel": _FLUX,
    "HunyuanDiT2DModel": {
        "sample_size": 16,
        "num_layers": 2,
        "patch_size": 2,
        "attention_head_dim": 8,
        "num_attention_heads": 3,
        "in_channels": 4,
        "cross_attention_dim": _CROSS,
        "cross_attention_dim_t5": _CROSS,
        "pooled_projection_dim": 16,
        "hidden_size": 24,
        "activation_fn": "gelu-approximate",
    },
    "LTXVideoTransformer3DModel": {
        "in_channels": 8,
        "out_channels": 8,
        "patch_size": 1,
        "patch_size_t": 1,
        "num_attention_heads": 4,
        "attention_head_dim": 8,
        "cross_attention_dim": 32,
        "num_layers": 1,
        "caption_channels": _CROSS,
    },
    "LatteTransformer3DModel": {
        **{key: value for key, value in _PIXART.items() if key != "num_embeds_ada_norm"},
        "num_layers": 1,
        "video_length": 1,
    },
    "Lumina2Transformer2DModel": {
        "sample_size": 4,
        "patch_size": 2,
        "in_channels": 4,
        "hidden_size": 24,
        "num_layers": 1,
        "num_refiner_layers": 1,
        "num_attention_heads": 3,
        "num_kv_heads": 1,
        "multiple_of": 2,
        "scaling_factor": 1.0,
        "axes_dim_rope": (4, 2, 2),
        "axes_lens": (128, 128, 128),
        "cap_feat_dim": _CROSS,
    },
    "LuminaNextDiT2DModel": {
        "sample_size": 4,
        "patch_size": 2,
        "in_channels": 4,
        "hidden_size": 24,
        "num_layers": 2,
        "num_attention_heads": 3,
        "num_kv_heads": 1,
        "multiple_of": 16,
        "ffn_dim_multiplier": None,
        "norm_eps": 1e-5,
        "learn_sigma": True,
        "qk_norm": True,
        "cross_attention_dim": _CROSS,
        "scaling_factor": 1.0,
    },
    "MotionAdapter": {
        "block_out_channels": (32, 64),
        "motion_layers_per_block": 1,
        "motion_norm_num_groups": 2,
        "motion_num_attention_heads": 4,
    },
    "PixArtTransformer2DModel": _PIXART,
    "PriorTransformer": {
        "num_attention_heads": 2,
        "attention_head_dim": 12,
        "embedding_dim": _CROSS,
        "num_layers": 1,
    },
    "QwenImageTransformer2DModel": {
        "patch_size": 2,
        "in_channels": 16,
        "out_channels": 4,
        "num_layers": 2,
        "attention_head_dim": 16,
        "num_attention_heads": 3,
        "joint_attention_dim": _CROSS,
        "guidance_embeds": False,
        "axes_dims_rope": (8, 4, 4),
    },
    "SD3Transformer2DModel": {
        "sample_size": 32,
        "patch_size": 1,
        "in_channels": 4,
        "num_layers": 1,
        "attention_head_dim": 8,
        "num_attention_heads": 4,
        "caption_projection_dim": 32,
        "joint_attention_dim": _CROSS,
        "pooled_projection_dim": 2 * _CROSS,
        "out_channels": 4,
    },
    "SanaTransformer2DModel": {
        "patch_size": 1,
        "in_channels": 4,
        "out_channels": 4,
        "num_layers": 1,
        "num_attention_heads": 2,
        "attention_head_dim": 4,
        "num_cross_attention_heads": 2,
        "cross_attention_head_dim": 4,
        "cross_attention_dim": 8,
        "caption_channels": _CROSS,
        "sample_size": 32,
    },
    "UNet2DConditionModel": _UNET,
    "UNet2DModel": {
        "block_out_channels": (32, 64),
        "layers_per_block": 1,
        "sample_size": 16,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    },
    "UNet3DConditionModel": {
        "block_out_channels": (4, 8),
        "layers_per_block": 1,
        "sample_size": 16,
        "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
        "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        "cross_attention_dim": _CROSS,
        "attention_head_dim": 4,
        "norm_num_groups": 2,
    },
    "UNetSpatioTemporalConditionModel": {
        "block_out_channels": (32, 64),
        "layers_per_block": 1,
        "sample_size": 16,
        "in_channels": 8,
        "down_block_types": ("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
        "up_block_types": ("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
        "cross_attention_dim": _CROSS,
        "num_attention_heads": 8,
        "projection_class_embeddings_input_dim": 96,
        "addition_time_embed_dim": 32,
    },
    "UVit2DModel": {
        "hidden_size": 8,
        "use_bias": False,
        "hidden_dropout": 0.0,
        "cond_embed_dim": _CROSS,
        "micro_cond_encode_dim": 2,
        "micro_cond_embed_dim": 10,
        "encoder_hidden_size": _CROSS,
        "vocab_size": 32,
        "codebook_size": 32,
        "in_channels": 8,
        "block_out_channels": 8,
        "num_res_blocks": 1,
        "downsample": True,
        "upsample": True,
        "block_num_heads": 1,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "attention_dropout": 0.0,
        "intermediate_size": 8,
        "layer_norm_eps": 1e-6,
        "ln_elementwise_affine": True,
    },
    "VQModel": {
        "act_fn": "silu",
        "block_out_channels": (8,),
        "down_block_types": ("DownEncoderBlock2D",),
        "up_block_types": ("UpDecoderBlock2D",),
        "latent_channels": 8,
        "layers_per_block": 1,
        "norm_num_groups": 8,
        "num_vq_embeddings": 32,
        "sample_size": 8,
        "mid_block_add_attention": False,
        "lookup_from_codebook": True,
    },
    "WanTransformer3DModel": {
        "patch_size": (1, 2, 2),
        "num_attention_heads": 2,
        "attention_head_dim": 12,
        "in_channels": 16,
        "out_channels": 16,
        "text_dim": _CROSS,
        "freq_dim": 256,
        "ffn_dim": 32,
        "num_layers": 2,
        "cross_attn_norm": True,
        "qk_norm": "rms_norm_across_heads",
        "rope_max_seq_len": 32,
    },
    "ZImageTransformer2DModel": {
        "all_patch_size": (2,),
        "all_f_patch_size": (1,),
        "in_channels": 16,
        "dim": 32,
        "n_layers": 2,
        "n_refiner_layers": 1,
        "n_heads": 2,
        "n_kv_heads": 2,
        "qk_norm": True,
        "cap_feat_dim": _CROSS,
        "rope_theta": 256.0,
        "t_scale": 1000.0,
        "axes_dims": (8, 4, 4),
        "axes_lens": (256, 32, 32),
    },
}

_CLIP = {
    "hidden_size": _CROSS,
    "intermediate_size": 37,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "projection_dim": _CROSS,
}
_T5 = {"d_model": _CROSS, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4}
_VOCABULARY = [
    "<unk>",
    "<s>",
    "</s>",
    "<pad>",
    *string.ascii_lowercase,
    *(f"{each}</w>" for each in string.ascii_lowercase),
]


def _clip_tokenizer() -> Any:
    vocabulary = {word: index for index, word in enumerate([*_VOCABULARY, "<|startoftext|>", "<|endoftext|>"])}
    return transformers.CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)


def image_processor() -> Any:
    """Returns a processor of images for `CLIPVisionModelWithProjection`."""
    return transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})


def _t5_tokenizer() -> Any:
    pieces = ["<pad>", "</s>", "<unk>", "▁", *string.ascii_lowercase]
    return transformers.T5Tokenizer(vocab=[(piece, 0.0) for piece in pieces], extra_ids=0, model_max_length=77)


_TOKENIZERS: Mapping[str, Callable[[], Any]] = {
    "AutoTokenizer": _t5_tokenizer,
    "CLIPTokenizer": _clip_tokenizer,
    "T5Tokenizer": _t5_tokenizer,
    "T5TokenizerFast": _t5_tokenizer,
}
_TRANSFORMERS: Mapping[str, tuple[Any, Any, Mapping[str, Any]]] = {
    "CLIPTextModel": (transformers.CLIPTextModel, transformers.CLIPTextConfig, {**_CLIP, "vocab_size": 100}),
    "CLIPTextModelWithProjection": (
        transformers.CLIPTextModelWithProjection,
        transformers.CLIPTextConfig,
        {**_CLIP, "vocab_size": 100},
    ),
    "CLIPVisionModelWithProjection": (
        transformers.CLIPVisionModelWithProjection,
        transformers.CLIPVisionConfig,
        {**_CLIP, "image_size": 32, "patch_size": 4},
    ),
    "T5EncoderModel": (transformers.T5EncoderModel, transformers.T5Config, {**_T5, "vocab_size": 100}),
    "UMT5EncoderModel": (transformers.UMT5EncoderModel, transformers.UMT5Config, {**_T5, "vocab_size": 100}),
}


def make(name: str, **settings: Any) -> Any:
    """Returns a model, a tokenizer or another component by the name of its class, on the GPU if it has weights."""
    if name in _TOKENIZERS:
        return _TOKENIZERS[name]()
    torch.manual_seed(0)
    if name in DIFFUSERS:
        made = getattr(diffusers, name)(**{**DIFFUSERS[name], **settings})
    else:
        model, config, usual = _TRANSFORMERS[name]
        made = model(config(**{**usual, **settings}))
    return made.eval()


def knows(name: str) -> bool:
    """Whether `make` has a tiny configuration of this class."""
    return name in DIFFUSERS or name in _TRANSFORMERS or name in _TOKENIZERS
