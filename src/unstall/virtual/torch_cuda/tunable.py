"""`torch.cuda.tunable`: off, and its settings kept for who asks; turning it on is refused."""

from __future__ import annotations

from typing import Any

DEFAULTS: dict[str, Any] = {
    "filename": "",
    "max_tuning_duration": 30,
    "max_tuning_iterations": 100,
    "rotating_buffer_size": 0,
}


def tunable_names() -> dict[str, object]:
    """Names of `torch._C` for TunableOp, but for those that refuse."""
    settings = dict(DEFAULTS)
    names: dict[str, object] = {
        "_cuda_record_untuned_is_enabled": lambda: False,
        "_cuda_tunableop_get_results": lambda: (),
        "_cuda_tunableop_get_validators": lambda: (),
        "_cuda_tunableop_is_enabled": lambda: False,
        "_cuda_tunableop_set_numerical_check_tolerances": lambda *_values: None,
        "_cuda_tunableop_tuning_is_enabled": lambda: False,
    }

    def setter(name: str) -> Any:
        return lambda value, *_rest: settings.__setitem__(name, value)

    def getter(name: str) -> Any:
        return lambda: settings[name]

    for name in settings:
        names[f"_cuda_tunableop_set_{name}"] = setter(name)
        names[f"_cuda_tunableop_get_{name}"] = getter(name)
    return names
