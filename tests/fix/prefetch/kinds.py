"""Tensors of every kind, by each helper and by a plain `.to()`. Run as a program, on any GPU."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import torch
from torch.nn.utils.rnn import pack_sequence

from unstall import prefetch, stream_map, to_host
from unstall.fix.tensors.nesting import map_tensors, tensors_in

base = torch.arange(12.0).reshape(3, 4)
with torch.inference_mode():
    inferred = torch.ones(4)
KINDS: dict[str, Any] = {
    "none": None,
    "expanded": torch.ones(1, 3).expand(4, 3),
    "strided": base.t()[::2],
    "overlapping": torch.arange(10.0).as_strided((3, 3), (1, 1)),
    "sharing": (base, base[1], base.view(-1), base),
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(3),
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "large and strided": torch.arange(70_000.0)[::2],
    "pinned": torch.arange(3.0).pin_memory(),
    "part of what is pinned": torch.arange(40.0).pin_memory()[::3],
    "on the device": torch.arange(3.0, device="cuda"),
    "learnt": torch.ones(2, requires_grad=True) * 2,
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "frozen parameter": torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "inferred": inferred,
    "conjugated": torch.tensor([1 + 2j, 3 - 1j]).conj(),
    "negated": torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
    "bool": torch.tensor([True, False]),
    "uint16": torch.ones(3, dtype=torch.uint16),
    "bfloat16": torch.ones(2, dtype=torch.bfloat16),
    "float8": torch.ones(4).to(torch.float8_e4m3fn),
    "jagged": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "packed": pack_sequence([torch.ones(3), torch.ones(2)]),
    "read only": MappingProxyType({"x": torch.ones(2)}),
}


def facts(value: Any, *, of_the_device: bool) -> Any:
    said: list[Any] = [type(value).__name__]
    for tensor in tensors_in(value):
        dense = tensor.values() if tensor.is_nested else tensor
        host = dense.detach().cpu().resolve_conj().resolve_neg()
        numbers = (torch.view_as_real(host) if host.is_complex() else host.double()).tolist()
        strides = None if tensor.is_nested else tensor.stride()
        where = (tensor.device, tensor.requires_grad, tensor.is_inference(), type(tensor)) if of_the_device else ()
        said.append((tensor.dtype, strides, numbers, *where))
    return said


if __name__ == "__main__":
    plain = {name: map_tensors(value, lambda tensor: tensor.to("cuda")) for name, value in KINDS.items()}
    names = list(KINDS) * 3
    for depth in (3, 0, "auto"):
        for name, batch in zip(names, prefetch((KINDS[name] for name in names), depth=depth), strict=True):
            given, wanted = facts(batch, of_the_device=True), facts(plain[name], of_the_device=True)
            assert given == wanted, (name, depth, given, wanted)
    on_host = {
        name: facts(map_tensors(value, lambda tensor: tensor.detach().cpu()), of_the_device=False)
        for name, value in plain.items()
    }
    for name, value in plain.items():
        assert facts(to_host(value).result(), of_the_device=False) == on_host[name], name
    for strategy in ("auto", "engines", "streams"):
        results = stream_map(lambda item: item, (KINDS[name] for name in names), strategy=strategy)
        for name, result in zip(names, results, strict=True):
            assert facts(result, of_the_device=False) == on_host[name], (name, strategy)
    print("KINDS", len(KINDS))
