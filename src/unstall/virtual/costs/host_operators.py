"""What the host takes for an operator that submits nothing to the device: it depends on the operator."""

from __future__ import annotations

from unstall.virtual.costs.model import HostCosts

_TIMES = {
    "aten::chunk": 1.15,
    "aten::detach": 0.37,
    "aten::expand": 1.2,
    "aten::flatten": 1.15,
    "aten::permute": 1.3,
    "aten::select": 1.3,
    "aten::slice": 1.95,
    "aten::split": 2.6,
    "aten::t": 0.47,
    "aten::to": 0.5,
    "aten::transpose": 0.85,
    "aten::unbind": 1.2,
    "aten::unsqueeze": 1.05,
    "aten::view": 1.15,
}
"""How many times `HostCosts.operator` the begin of an operator takes, if not once. Python's own part, such as objects
for slices, is in it. From loops on H200s' hosts, without the end of the operator and the operators that it calls: how
they compare is from `benchmarks/host_calls.py`, and that a view takes 1.4 to 1.6 us in all is from
`benchmarks/host_reuse.py`. `to` is one that does nothing.
"""


def begin_ns(name: str, host: HostCosts) -> int:
    """Returns how long the host takes, in ns, from the call of an operator in Python to the start of its own work.

    Args:
        name: The name of the operator, with its namespace.
        host: The costs of the host.
    """
    return round(_TIMES.get(name, 1.0) * host.operator)
