"""Pipelines of diffusers in tiny configurations: unstall audit examples/audit/diffusers_pipelines.py

One call of an entry is one call of the pipeline, with STEPS steps of its scheduler. Models have random weights. Images
have 32 x 32 pixels, so launches take nearly all of the time. What to look at are the lines that wait.
"""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import diffusers
import torch
from PIL import Image
from tiny import diffusers_models as tiny

STEPS = 4
_SIDE, _TOKENS = 32, 16
_BOTH = ("prompt", "negative_prompt")


@dataclass(frozen=True)
class _Case:
    """What a pipeline is called with, its parts, and settings of its models. A function is called for its value."""

    call: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scheduler: str = "EulerDiscreteScheduler"


def _image() -> torch.Tensor:
    return torch.rand(1, 3, _SIDE, _SIDE, device="cuda")


def _list_of_embeddings() -> list[torch.Tensor]:
    return [torch.randn(_TOKENS, 32, device="cuda")]


def _picture() -> Image.Image:
    return Image.new("RGB", (_SIDE, _SIDE))


def _mask() -> torch.Tensor:
    return torch.ones(1, 1, _SIDE, _SIDE, device="cuda")


_CALL: Mapping[str, Any] = {
    "prompt": "a cat",
    "num_inference_steps": STEPS,
    "height": _SIDE,
    "width": _SIDE,
    "image": _image,
    "control_image": _image,
    "mask_image": _mask,
}


def _embeddings(*names: str) -> dict[str, Any]:
    """In place of a prompt: for text encoders that have no tiny configuration here."""
    embeddings = {f"{name}_embeds": partial(torch.randn, 1, _TOKENS, 32, device="cuda") for name in names}
    return {**dict.fromkeys(names), **embeddings}


def _embeddings_and_masks(*names: str, mask: str = "attention_mask") -> dict[str, Any]:
    masks = {f"{name}_{mask}": partial(torch.ones, 1, _TOKENS, dtype=torch.long, device="cuda") for name in names}
    return {**_embeddings(*names), **masks}


_XL = {"unet": tiny.UNET_XL}
_XL_CONTROL = {"unet": tiny.UNET_XL, "controlnet": tiny.UNET_XL}
_SHIFTED = {"vae": {"shift_factor": 0.1}}
_FLUX = {"vae": {"shift_factor": 0.1, "latent_channels": 1}}
_MARIGOLD = _Case({"processing_resolution": _SIDE}, models={"unet": {"in_channels": 8}})
_LATENT_CONSISTENCY = _Case(models={"unet": {"time_cond_proj_dim": 32}})
_CASES = {
    # A model of images, and its scheduler
    "ConsistencyModelPipeline": _Case(),
    "DDIMPipeline": _Case(),
    "DDPMPipeline": _Case(),
    "KarrasVePipeline": _Case(),
    "LDMPipeline": _Case(models={"vqvae": {"latent_channels": 3}}),
    "PNDMPipeline": _Case(),
    "RePaintPipeline": _Case(),
    "ScoreSdeVePipeline": _Case(),
    # Stable Diffusion
    "AnimateDiffPipeline": _Case({"num_frames": 2}),
    "CycleDiffusionPipeline": _Case({"source_prompt": "a dog"}),
    "LatentConsistencyModelImg2ImgPipeline": _LATENT_CONSISTENCY,
    "LatentConsistencyModelPipeline": _LATENT_CONSISTENCY,
    "MarigoldDepthPipeline": _MARIGOLD,
    "MarigoldNormalsPipeline": _MARIGOLD,
    "SemanticStableDiffusionPipeline": _Case(),
    "StableDiffusionControlNetImg2ImgPipeline": _Case(),
    "StableDiffusionControlNetInpaintPipeline": _Case(),
    "StableDiffusionControlNetPAGPipeline": _Case(),
    "StableDiffusionControlNetPipeline": _Case(),
    "StableDiffusionImg2ImgPipeline": _Case(),
    "StableDiffusionInpaintPipeline": _Case(),
    "StableDiffusionInstructPix2PixPipeline": _Case(models={"unet": {"in_channels": 8}}),
    "StableDiffusionPAGImg2ImgPipeline": _Case(),
    "StableDiffusionPAGInpaintPipeline": _Case(),
    "StableDiffusionPAGPipeline": _Case(),
    "StableDiffusionPanoramaPipeline": _Case(),
    "StableDiffusionPipeline": _Case(),
    "StableDiffusionSAGPipeline": _Case(scheduler="DDIMScheduler"),
    "StableDiffusionUpscalePipeline": _Case(models={"unet": {"in_channels": 7, "num_class_embeds": 1000}}),
    "TextToVideoSDPipeline": _Case({"num_frames": 2}),
    "VideoToVideoSDPipeline": _Case({"video": partial(torch.rand, 1, 2, 3, _SIDE, _SIDE)}),
    # Stable Diffusion XL
    "StableDiffusionXLControlNetImg2ImgPipeline": _Case(models=_XL_CONTROL),
    "StableDiffusionXLControlNetInpaintPipeline": _Case(models=_XL_CONTROL),
    "StableDiffusionXLControlNetPAGPipeline": _Case(models=_XL_CONTROL),
    "StableDiffusionXLControlNetPipeline": _Case(models=_XL_CONTROL),
    "StableDiffusionXLImg2ImgPipeline": _Case(models=_XL),
    "StableDiffusionXLInpaintPipeline": _Case(models=_XL),
    "StableDiffusionXLInstructPix2PixPipeline": _Case(models={"unet": {**tiny.UNET_XL, "in_channels": 8}}),
    "StableDiffusionXLPAGImg2ImgPipeline": _Case(models=_XL),
    "StableDiffusionXLPAGInpaintPipeline": _Case(models=_XL),
    "StableDiffusionXLPAGPipeline": _Case(models=_XL),
    "StableDiffusionXLPipeline": _Case(models=_XL),
    # Transformers
    "AmusedPipeline": _Case(parts={"scheduler": partial(diffusers.AmusedScheduler, mask_token_id=31)}),
    "AuraFlowPipeline": _Case(),
    "ChromaPipeline": _Case(models=_FLUX),
    "CogVideoXPipeline": _Case({"num_frames": 9, "height": 16, "width": 16, "max_sequence_length": 16}),
    "CogView3PlusPipeline": _Case(),
    "CogView4Pipeline": _Case(_embeddings(*_BOTH)),
    "DiTPipeline": _Case({"class_labels": [1]}),
    "FluxControlPipeline": _Case(models={**_FLUX, "transformer": {"in_channels": 8, "out_channels": 4}}),
    "FluxFillPipeline": _Case(models={**_FLUX, "transformer": {"in_channels": 24, "out_channels": 4}}),
    "FluxImg2ImgPipeline": _Case(models=_FLUX),
    "FluxInpaintPipeline": _Case(models=_FLUX),
    "FluxKontextPipeline": _Case({"max_area": _SIDE**2, "_auto_resize": False}, models=_FLUX),
    "FluxPipeline": _Case(models=_FLUX),
    "LTXPipeline": _Case(),
    "LattePipeline": _Case(),
    "Lumina2Pipeline": _Case(_embeddings_and_masks(*_BOTH), models=_SHIFTED),
    "LuminaPipeline": _Case(_embeddings_and_masks(*_BOTH)),
    "PixArtAlphaPipeline": _Case({"use_resolution_binning": False, "clean_caption": False}),
    "PixArtSigmaPipeline": _Case({"use_resolution_binning": False, "clean_caption": False}),
    "QwenImagePipeline": _Case(_embeddings_and_masks("prompt", mask="embeds_mask")),
    "SanaPipeline": _Case(_embeddings_and_masks(*_BOTH) | {"use_resolution_binning": False}),
    "SanaSprintPipeline": _Case(
        _embeddings_and_masks("prompt") | {"use_resolution_binning": False, "intermediate_timesteps": None},
        parts={"scheduler": diffusers.SCMScheduler},
        models={"transformer": {"guidance_embeds": True}},
    ),
    "StableDiffusion3Img2ImgPipeline": _Case(models=_SHIFTED),
    "StableDiffusion3InpaintPipeline": _Case(
        models={
            "vae": {"shift_factor": 0.1, "latent_channels": 16},
            "transformer": {"in_channels": 16, "out_channels": 16},
        }
    ),
    "StableDiffusion3PAGPipeline": _Case(models={**_SHIFTED, "transformer": {"num_layers": 2}}),
    "StableDiffusion3Pipeline": _Case(models=_SHIFTED),
    "StableVideoDiffusionPipeline": _Case(
        {"num_frames": 2, "image": _picture},
        parts={"feature_extractor": tiny.image_processor},
        models={"image_encoder": {"image_size": 224, "patch_size": 32}},
    ),
    "WanPipeline": _Case(),
    "ZImagePipeline": _Case(
        {"prompt": None, **{f"{name}_embeds": _list_of_embeddings for name in _BOTH}},
        models={"vae": {"latent_channels": 16, "shift_factor": 0.1}},
    ),
}


def entries() -> dict[str, Callable[[], Callable[[], object]]]:
    """The pipelines by name."""
    return {name: partial(_prepare, name) for name in _CASES}


def _prepare(name: str) -> Callable[[], object]:
    case = _CASES[name]
    kind = getattr(diffusers, name)
    pipeline = kind(**_parts(kind, case)).to("cuda")
    pipeline.set_progress_bar_config(disable=True)
    taken = inspect.signature(kind.__call__).parameters
    arguments = {**{key: value for key, value in _CALL.items() if key in taken}, **case.call}
    return partial(pipeline, **{key: value() if callable(value) else value for key, value in arguments.items()})


def _parts(kind: type, case: _Case) -> dict[str, Any]:
    """The pipeline's components, by the classes that its constructor names. One without a tiny configuration is left
    out."""
    parts = {}
    for name, parameter in list(inspect.signature(kind.__init__).parameters.items())[1:]:
        names = _class_names(parameter.annotation)
        if name in case.parts:
            parts[name] = case.parts[name]()
        elif "scheduler" in name:
            scheduler = next((each for each in names if hasattr(diffusers, each)), case.scheduler)
            parts[name] = getattr(diffusers, scheduler)()
        elif known := [each for each in names if tiny.knows(each)]:
            parts[name] = tiny.make(known[0], **case.models.get(name, {}))
        elif parameter.default is parameter.empty:
            parts[name] = None
    return parts


def _class_names(annotation: Any) -> list[str]:
    return [getattr(each, "__name__", "") for each in typing.get_args(annotation) or [annotation]]
