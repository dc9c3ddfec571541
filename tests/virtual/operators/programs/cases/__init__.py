"""What programs do with layers, each as a function without arguments, on the GPU."""

import torch

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def normal(*sizes: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda", dtype=dtype).requires_grad_(grad)


def backward(outputs) -> None:
    from torch.utils._pytree import tree_leaves

    roots = [one for one in tree_leaves(outputs) if isinstance(one, torch.Tensor) and one.requires_grad]
    if roots:
        sum(one.float().sum() for one in roots).backward()
