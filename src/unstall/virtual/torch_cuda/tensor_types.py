"""The types of CUDA tensors, such as `torch.cuda.FloatTensor`. A CPU build of torch has them but
refuses to use them.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Protocol


class TypesShim(Protocol):
    """The functions of the shim that this module calls."""

    def make_tensor_type(self, type: type) -> bool:
        """Makes the type create tensors on the virtual GPU. Returns False if the shim does not know
        how the installed torch lays such types out in memory.
        """

    def set_default_tensor_type(self, type: type) -> None: ...


def make_tensor_types(module: ModuleType, shim: TypesShim) -> None:
    """Makes types such as `torch.cuda.FloatTensor` create tensors on the virtual GPU, and
    `torch.set_default_tensor_type` accept them. `module` is torch.
    """
    dense = [kind for kind in module._tensor_classes if kind.__module__ == "torch.cuda"]
    made = {kind for kind in dense if shim.make_tensor_type(kind)}
    refusing = module._C._set_default_tensor_type

    @functools.wraps(refusing)
    def set_default_tensor_type(kind: type) -> None:
        (shim.set_default_tensor_type if kind in made else refusing)(kind)

    module._C._set_default_tensor_type = set_default_tensor_type
