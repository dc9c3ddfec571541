"""Which kernels scaled_dot_product_attention takes, by data type and the width of a head, with a mask and without."""

import json

import torch
from torch.nn.attention import SDPBackend

chosen = {}
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    for width in (64, 20):
        for mask in (None, torch.ones(16, 16, dtype=torch.bool, device="cuda")):
            x = torch.zeros(2, 4, 16, width, device="cuda", dtype=dtype)
            called = f"{str(dtype).removeprefix('torch.')} {width}{' masked' if mask is not None else ''}"
            chosen[called] = SDPBackend(torch._fused_sdp_choice(x, x, x, mask)).name.removesuffix("_ATTENTION")
print(json.dumps(chosen))
