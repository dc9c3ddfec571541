"""Facts and tables of a measured GPU → its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unstall.virtual.costs.answers import roofline_of
from unstall.virtual.costs.build import Tables, rows_of
from unstall.virtual.costs.gpu_file import DeviceEntry, GpuFile, Peaks

_FOUR_MIB = 4 << 20
_MOST_NS = 60_000
"""What takes longer did so for the number of its tensors, or for a plan that is made once."""
_BINDING_NS = 300
"""Of a method that torch binds by hand, as `torch.cuda._sleep` is: its call, without the launch in it."""


def peaks_of(facts: Mapping[str, Any]) -> Peaks:
    """Rates from products and copies within the device: a small one's, less an empty one's time, is the L2 cache's."""
    rates = facts["peaks"]
    within = {size: ns for at, _, size, ns, _ in facts["copies"] if at == "DtoD"}
    large = max(within)
    cached = 2 * _FOUR_MIB / max(within[_FOUR_MIB] - within[min(within)], 1)
    return Peaks(
        float32=rates["float32"],
        half=rates["bfloat16"],
        float64=rates["float64"],
        bytes=round(2 * large / within[large], 1),
        l2_bytes=round(cached, 1),
        floor_ns=facts["latencies"]["tiny_kernel"],
    )


def assemble(facts: Mapping[str, Any], tables: Tables, hosts: Mapping[str, int], note: str, within: float) -> GpuFile:
    """The file. `hosts` has ns of one call of an operator from Python; `within` is how exactly neighbours must tell a
    call to leave
    it out.
    """
    device = {name: value for name, value in facts["device"].items() if name in DeviceEntry.__struct_fields__}
    peaks = peaks_of(facts)
    kept = tables.thinned(roofline_of(peaks, device["l2_bytes"]), within)
    kernels, sequences, rows = rows_of(kept, tables.names)
    limits = {
        "queue_capacity": facts["queue"]["capacity"],
        "sleep_cycles_per_us": facts["queue"]["sleep_cycles_per_us"],
        "gap": facts["latencies"]["gap"],
        "event_latency": facts["latencies"]["event"],
        "wake_latency": facts["latencies"]["wake"],
        "graph_gap": facts["graph"]["gap_of_100"],
    }
    return GpuFile(
        schema="unstall.gpu/1",
        source="measured",
        note=note,
        known_error="not compared with a real run",
        device=DeviceEntry(**device),
        peaks=peaks,
        copies=[(at, held, size, ns) for at, held, size, ns, _ in facts["copies"]],
        memsets=[(size, ns) for size, ns in facts["memset"]],
        limits={name: value for name, value in limits.items() if value},
        workspaces=workspaces_of(device["capability"]),
        operators_host_ns=_own_ns(hosts, facts),
        kernels=kernels,
        sequences=sequences,
        tables=rows,
    )


def workspaces_of(capability: list[int] | tuple[int, ...]) -> dict[str, int]:
    """What torch gives a cuBLAS handle and cuBLASLt: `getChosenWorkspaceSize` and `_getWorkspaceSize`."""
    hopper = capability[0] == 9
    return {"cublas": 32 << 20 if hopper else (4096 * 2 + 16 * 8) << 10, "cublaslt": 1 << 20}


def _own_ns(hosts: Mapping[str, int], facts: Mapping[str, Any]) -> dict[str, int]:
    """By operator, what its call takes beyond an operator that does nothing and one launch."""
    launch = facts["calls"]["sleep_kernel"] - _BINDING_NS
    bare = facts["calls"]["bound_operator"]
    own: dict[str, int] = {}
    for operator, ns in sorted(hosts.items()):
        name = operator.partition(".")[0]
        if ns:
            own[name] = max(0, min(ns - bare - launch, own.get(name, ns), _MOST_NS))
    return own
