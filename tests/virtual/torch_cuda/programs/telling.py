"""Facts of a program, printed as one line of JSON at its end."""

import atexit
import json
import warnings
from collections.abc import Callable

_facts: dict[str, object] = {}
atexit.register(lambda: print(json.dumps(_facts, default=str), flush=True))


def fact(name: str, find: Callable[[], object]) -> None:
    """What it returns, or ["raises", type, text]; the texts of its warnings are a fact of their own."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _facts[name] = find()
        except Exception as error:
            _facts[name] = ["raises", type(error).__name__, str(error)]
    _facts[f"{name} warns"] = [str(warning.message) for warning in caught]
