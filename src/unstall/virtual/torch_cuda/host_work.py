"""Logs what torch's own Python code does without an operator, as the modelled host charges it: for autocast, for the
parameters of optimizers, for gradients that are unscaled, and for walks over modules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from unstall.guest.patching import wrap_after
from unstall.virtual.log import TorchCall
from unstall.virtual.torch_cuda.runtime import Shim, worked

if TYPE_CHECKING:
    from torch.optim import Optimizer


def log_host_work(module: ModuleType, shim: Shim) -> None:
    """Has torch's Python code tell the log what it does. `module` is torch."""

    def steps(optimizer: Optimizer, *_: object) -> None:
        worked(shim, TorchCall.PARAMETER, _with_gradient(optimizer))

    def unscales(_: object, optimizer: Optimizer, *__: object) -> None:
        worked(shim, TorchCall.UNSCALED, _with_gradient(optimizer))

    def does(call: TorchCall) -> Callable[..., None]:
        return lambda *_, **__: worked(shim, call)

    wrap_after(module, "autocast_increment_nesting", does(TorchCall.AUTOCAST))
    sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(steps)
    wrap_after(module.amp.GradScaler, "_unscale_grads_", unscales)
    wrap_after(module._C, "_set_sdp_use_math", does(TorchCall.CHOOSE_ATTENTION))
    wrap_after(module.nn.Module, "named_modules", does(TorchCall.WALK))
    wrap_after(module.nn.Module, "train", does(TorchCall.SET_MODE))


def _with_gradient(optimizer: Optimizer) -> int:
    return sum(each.grad is not None for group in optimizer.param_groups for each in group["params"])
