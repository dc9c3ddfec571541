"""What a CPU build of torch lacks of `torch._C`, so that the unmodified `torch.cuda` works on a virtual GPU.

`install` is called when `torch._C` has been executed, `finish` when torch has; `attach` says who simulates.
"""

from __future__ import annotations

from unstall.virtual.torch_cuda.attached import attach
from unstall.virtual.torch_cuda.install import finish, install
from unstall.virtual.torch_cuda.properties import DeviceProperties
from unstall.virtual.torch_cuda.refuse import NotSupportedError

__all__ = ["DeviceProperties", "NotSupportedError", "attach", "finish", "install"]
