"""Tells whether a device could run fused attention.

The conditions are those of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp. Conditions that
depend on how torch was built are left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from unstall.virtual.torch_cuda.runtime import Runtime

if TYPE_CHECKING:
    from torch.backends.cuda import SDPAParams

    Against = Callable[[SDPAParams, int], Iterator[str]]

AMPERE = 8
LARGEST_HEAD = 256
ALIGNED_BYTES = 16
HALF_BYTES = 2


def against_flash(params: SDPAParams, major: int) -> Iterator[str]:
    """Yields each reason why flash attention cannot run on these inputs. `major` is the first
    number of the device's compute capability.
    """
    import torch

    query, key, value = params.query, params.key, params.value
    if major < AMPERE:
        yield "Flash attention only supports gpu architectures in the range [sm80, sm121]."
    if query.dtype not in (torch.float16, torch.bfloat16):
        yield f"Expected query, key and value to be of dtype: {{Half, BFloat16}}, not {query.dtype}."
    if not query.size(-1) == key.size(-1) == value.size(-1) or query.size(-1) > LARGEST_HEAD:
        yield f"Flash attention requires q,k,v to have the same last dimension, of at most {LARGEST_HEAD}."
    if params.attn_mask is not None:
        yield "Flash Attention does not support non-null attn_mask."
    if params.is_causal and query.size(-2) != key.size(-2):
        yield "Flash attention does not support the is_causal flag when seqlen_q != seqlen_k."


def against_efficient(params: SDPAParams, major: int) -> Iterator[str]:
    """Yields each reason why memory-efficient attention cannot run on these inputs. `major` is the
    first number of the device's compute capability.
    """
    import torch

    query, key, value = params.query, params.key, params.value
    types = {torch.float16: "Half", torch.float32: "Float"}
    if major >= AMPERE:
        types[torch.bfloat16] = "BFloat16"
    if query.dtype not in types:
        yield f"Expected query, key and value to be of dtype: {{{', '.join(types.values())}}}, not {query.dtype}."
    on_tensor_cores = major >= AMPERE or query.element_size() == HALF_BYTES
    alignment = ALIGNED_BYTES // query.element_size() if on_tensor_cores else 1
    if query.size(-1) != key.size(-1) or query.size(-1) % alignment or value.size(-1) % alignment:
        yield f"Mem efficient attention requires last dimension of inputs to be divisible by {alignment}."


def attention_names(runtime: Runtime) -> dict[str, object]:
    """Returns the functions of `torch._C` for attention on a virtual GPU, as `{name: function}`."""
    torch_c = runtime.torch_c

    def can_use(
        enabled: Callable[[], bool], against: Callable[[SDPAParams, int], Iterator[str]]
    ) -> Callable[..., bool]:
        def answer(params: SDPAParams, debug: bool = False) -> bool:
            tensors = (params.query, params.key, params.value)
            reasons = [] if enabled() else ["It is disabled: see torch.backends.cuda."]
            if any(not each.is_cuda or each.dim() != 4 or each.is_nested for each in tensors):
                reasons.append("Both fused kernels need dense inputs of 4 dimensions on the device.")
            else:
                reasons += against(params, runtime.devices[0].major)
            for reason in reasons if debug else ():
                warnings.warn(reason, UserWarning, stacklevel=3)
            return not reasons

        return answer

    return {
        "_can_use_flash_attention": can_use(torch_c._get_flash_sdp_enabled, against_flash),
        "_can_use_mem_efficient_attention": can_use(torch_c._get_mem_efficient_sdp_enabled, against_efficient),
        "_is_flash_attention_available": lambda: True,
    }
