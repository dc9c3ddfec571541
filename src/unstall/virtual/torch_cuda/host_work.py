"""Logs what torch's own Python code does without an operator, as the modelled host charges it: for autocast and
other contexts, for random numbers' seeds, for the parameters of optimizers, for gradients that are unscaled, and for
modules.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from unstall.guest.patching import wrap_after
from unstall.virtual.log import TorchCall
from unstall.virtual.torch_cuda.runtime import Shim, worked

if TYPE_CHECKING:
    from torch.optim import Optimizer

_CALLS = (
    ("autocast_increment_nesting", TorchCall.AUTOCAST),
    ("_C._set_sdp_use_math", TorchCall.CHOOSE_ATTENTION),
    ("nn.Module.named_modules", TorchCall.WALK),
    ("nn.Module.train", TorchCall.SET_MODE),
    ("nn.Module._save_to_state_dict", TorchCall.SAVE_STATE),
    ("nn.Identity.__call__", TorchCall.IDENTITY),
    *((f"{where}manual_seed", TorchCall.SEED) for where in ("", "random.")),
    *((f"{where}manual_seed", TorchCall.SEED_DEVICE) for where in ("cuda.", "cuda.random.")),
    *((f"{where}get_rng_state", TorchCall.RNG_STATE) for where in ("cuda.", "cuda.random.")),
    ("no_grad.__exit__", TorchCall.NO_GRAD),
    ("enable_grad.__exit__", TorchCall.ENABLE_GRAD),
    ("inference_mode.__exit__", TorchCall.INFERENCE_MODE),
    ("cuda.device.__exit__", TorchCall.SWITCH_DEVICE),
    ("cuda.set_device", TorchCall.SET_DEVICE),
    ("cuda.current_device", TorchCall.CURRENT_DEVICE),
)
"""The functions of torch that do one such work in each call, and which."""


def log_host_work(module: ModuleType, shim: Shim) -> None:
    """Has torch's Python code tell the log what it does. `module` is torch."""

    def steps(optimizer: Optimizer, *_: object) -> None:
        worked(shim, TorchCall.PARAMETER, _with_gradient(optimizer))

    def unscales(_: object, optimizer: Optimizer, *__: object) -> None:
        worked(shim, TorchCall.UNSCALED, _with_gradient(optimizer))

    def does(call: TorchCall) -> Callable[..., None]:
        return lambda *_, **__: worked(shim, call)

    for path, call in _CALLS:
        *owner, name = path.split(".")
        wrap_after(functools.reduce(getattr, owner, module), name, does(call))
    sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(steps)
    wrap_after(module.amp.GradScaler, "_unscale_grads_", unscales)


def _with_gradient(optimizer: Optimizer) -> int:
    return sum(each.grad is not None for group in optimizer.param_groups for each in group["params"])
