"""The part of `torch._C` that is missing in a CPU build of torch. With this part, the unmodified `torch.cuda` works on
a virtual GPU.

`install` runs after the module `torch._C` was executed. `finish` runs after torch was imported. `attach` connects the
simulator.
"""

from __future__ import annotations

from unstall.virtual.torch_cuda.cuda_errors import NotSupportedError
from unstall.virtual.torch_cuda.install import finish, install
from unstall.virtual.torch_cuda.properties import DeviceProperties
from unstall.virtual.torch_cuda.runtime import attach

__all__ = ["DeviceProperties", "NotSupportedError", "attach", "finish", "install"]
