"""Every scheduler of diffusers, driven as a pipeline drives it: unstall audit examples/audit/diffusers_schedulers.py

One call samples once: it sets the timesteps on the GPU, then takes each step. The model's output is a constant, so all
work is the scheduler's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import diffusers.schedulers
import torch

STEPS = 10
_CLASSES, _TOKENS, _CHANNELS = 32, 32, 4


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (1, _CHANNELS, 32, 32), device="cuda")


def _masked() -> torch.Tensor:
    return torch.full((1, _TOKENS), _CLASSES - 1, device="cuda")


@torch.no_grad()
def _sample(scheduler: Any, case: _Case, latents: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """The loop of most pipelines."""
    scheduler.set_timesteps(case.steps, device="cuda", **case.timesteps)
    extra = case.step()
    if hasattr(scheduler, "init_noise_sigma"):
        latents = latents * scheduler.init_noise_sigma
    for timestep in scheduler.timesteps[: case.until]:
        if hasattr(scheduler, "scale_model_input"):
            scheduler.scale_model_input(latents, timestep)
        latents = scheduler.step(output, timestep, latents, return_dict=False, **extra)[0]
    return latents


@torch.no_grad()
def _sample_cogvideox(scheduler: Any, case: _Case, latents: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    scheduler.set_timesteps(case.steps, device="cuda")
    before, original = None, None
    for timestep in scheduler.timesteps:
        latents, original = scheduler.step(output, original, timestep, before, latents, return_dict=False)
        before = timestep
    return latents


@torch.no_grad()
def _sample_wuerstchen(scheduler: Any, case: _Case, latents: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    scheduler.set_timesteps(case.steps, device="cuda")
    for timestep in scheduler.timesteps[:-1]:
        latents = scheduler.step(output, timestep.expand(latents.size(0)), latents).prev_sample
    return latents


@torch.no_grad()
def _sample_helios_dmd(scheduler: Any, case: _Case, latents: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    scheduler.set_timesteps(case.steps, device="cuda")
    for index, timestep in enumerate(scheduler.timesteps):
        latents = scheduler.step(
            output,
            timestep,
            latents,
            return_dict=False,
            cur_sampling_step=index,
            dmd_noisy_tensor=output,
            dmd_sigmas=scheduler.sigmas,
            dmd_timesteps=scheduler.timesteps,
            all_timesteps=scheduler.timesteps,
        )[0]
    return latents


@torch.no_grad()
def _sample_karras_ve(scheduler: Any, case: _Case, latents: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    scheduler.set_timesteps(case.steps, device="cuda")
    for timestep in scheduler.timesteps:
        sigma = scheduler.schedule[timestep]
        before = scheduler.schedule[timestep - 1] if timestep > 0 else 0
        noisy, sigma_hat = scheduler.add_noise_to_input(latents, sigma)
        found = scheduler.step(output, sigma_hat, before, noisy)
        if before:
            latents, derivative = found.prev_sample, found.derivative
            found = scheduler.step_correct(output, sigma_hat, before, noisy, latents, derivative)
        latents = found.prev_sample
    return latents


@torch.no_grad()
def _sample_repaint(scheduler: Any, case: _Case, latents: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    scheduler.set_timesteps(case.steps, jump_length=2, jump_n_sample=2, device="cuda")
    mask, last = torch.ones_like(latents), scheduler.timesteps[0] + 1
    for timestep in scheduler.timesteps:
        if timestep < last:
            latents = scheduler.step(output, timestep, latents, output, mask).prev_sample
        else:
            latents = scheduler.undo_step(latents, last)
        last = timestep
    return latents


@torch.no_grad()
def _sample_sde_ve(scheduler: Any, case: _Case, latents: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    scheduler.set_timesteps(case.steps, device="cuda")
    scheduler.set_sigmas(case.steps)
    for timestep in scheduler.timesteps:
        for _ in range(scheduler.config.correct_steps):
            latents = scheduler.step_correct(output, latents).prev_sample
        latents = scheduler.step_pred(output, timestep, latents).prev_sample
    return latents


@torch.no_grad()
def _sample_sde_vp(scheduler: Any, case: _Case, latents: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    scheduler.set_timesteps(case.steps, device="cuda")
    for timestep in scheduler.timesteps:
        latents, _ = scheduler.step_pred(output, latents, timestep.expand(latents.size(0)))
    return latents


@dataclass(frozen=True)
class _Case:
    """What a scheduler is made with, what it is given, and how it is driven."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    timesteps: Mapping[str, Any] = field(default_factory=dict)
    step: Callable[[], Mapping[str, Any]] = dict
    latents: Callable[[], torch.Tensor] = _noise
    output: Callable[[], torch.Tensor] = _noise
    steps: int = STEPS
    until: int | None = None
    sample: Callable[..., torch.Tensor] = _sample


_LOGITS = partial(_noise, 1, _TOKENS, _CLASSES)
_USUAL = _Case()
_CASES = {
    "AmusedScheduler": _Case({"mask_token_id": _CLASSES - 1}, latents=_masked, output=_LOGITS),
    "BlockRefinementScheduler": _Case(step=lambda: {"mask_token_id": _CLASSES - 1}, latents=_masked, output=_LOGITS),
    "CogVideoXDPMScheduler": _Case(sample=_sample_cogvideox),
    "ConsistencyDecoderScheduler": _Case(steps=2),
    "DDPMWuerstchenScheduler": _Case(sample=_sample_wuerstchen),
    "DiscreteDDIMScheduler": _Case(latents=_masked, output=_LOGITS),
    "EntropyBoundScheduler": _Case(latents=_masked, output=_LOGITS),
    "HeliosDMDScheduler": _Case({"stages": 1}, sample=_sample_helios_dmd),
    "HeliosScheduler": _Case({"stages": 1}),
    "KarrasVeScheduler": _Case(sample=_sample_karras_ve),
    "PiflowScheduler": _Case(
        latents=partial(_noise, 1, 256, _CHANNELS), output=partial(_noise, 1, 256, 10 * _CHANNELS)
    ),
    "RFD4ProteinaScheduler": _Case(
        {"schedule_mode": "power", "noise_mode": "1/t", "tsr_k": 1.0, "tsr_sigma": 1.0, "tail_steps": 2},
        step=lambda: {"emit_mask": torch.ones(1, _TOKENS, dtype=torch.bool, device="cuda")},
        latents=partial(_noise, 1, _TOKENS, 3),
        output=partial(_noise, 1, _TOKENS, 3),
    ),
    "RePaintScheduler": _Case(sample=_sample_repaint),
    "SCMScheduler": _Case(timesteps={"intermediate_timesteps": None}, until=-1),
    "ScoreSdeVeScheduler": _Case(sample=_sample_sde_ve),
    "ScoreSdeVpScheduler": _Case(sample=_sample_sde_vp),
    "VQDiffusionScheduler": _Case(
        {"num_vec_classes": _CLASSES}, latents=_masked, output=partial(_noise, 1, _CLASSES - 1, _TOKENS)
    ),
}


def entries() -> dict[str, Callable[[], Callable[[], object]]]:
    """All schedulers by name. One that needs a package that is not installed says so when it is prepared."""
    names = [name for name in dir(diffusers.schedulers) if name.endswith("Scheduler")]
    return {name: partial(_prepare, name) for name in names}


def _prepare(name: str) -> Callable[[], object]:
    case = _CASES.get(name, _USUAL)
    torch.manual_seed(0)
    scheduler = getattr(diffusers.schedulers, name)(**case.settings)
    return partial(case.sample, scheduler, case, case.latents(), case.output())
