"""The options of a virtual machine, as users write them and as child processes get them."""

from __future__ import annotations

import pytest

from unstall.virtual.options import MachineOptions, parse


@pytest.mark.parametrize(
    ("gpu", "name", "devices", "clocks"),
    [
        ("h200", "h200", 1, ()),
        ("H200:8", "h200", 8, ()),
        ("h200:8,3@0.8", "h200", 8, ((3, 0.8),)),
        ("h200:8,3@.8,0@1", "h200", 8, ((3, 0.8), (0, 1.0))),
        ("/a,b/slow.json:2,1@0.5", "/a,b/slow.json", 2, ((1, 0.5),)),
        ("/a,1@0.5/x.json", "/a,1@0.5/x.json", 1, ()),
    ],
)
def test_a_gpu_its_count_and_its_clocks(
    gpu: str, name: str, devices: int, clocks: tuple[tuple[int, float], ...]
) -> None:
    options = parse(gpu)
    assert (options.gpu, options.devices, options.clocks) == (name, devices, clocks)
    assert MachineOptions.from_json(options.to_json()) == options
    assert str(options).startswith(f"{name}:{devices}{''.join(f',{at}@{part:g}' for at, part in clocks)}, ")
