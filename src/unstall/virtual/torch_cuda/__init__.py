"""What `torch._C` has in a CUDA build of torch and lacks in a CPU build. With it, the unchanged
`torch.cuda` works on a virtual GPU.

`install` is called when the module `torch._C` has been executed, `finish` when torch has been
imported. `attach` connects the simulator.
"""

from __future__ import annotations

from unstall.virtual.torch_cuda.cuda_errors import NotSupportedError
from unstall.virtual.torch_cuda.install import finish, install
from unstall.virtual.torch_cuda.properties import DeviceProperties
from unstall.virtual.torch_cuda.runtime import attach

__all__ = ["DeviceProperties", "NotSupportedError", "attach", "finish", "install"]
