"""`unstall doctor`: what is here, found without importing anything that might break."""

from __future__ import annotations

import json
import platform

from cli.command import Cli


def test_it_names_what_is_here_and_what_the_rest_would_enable(unstall: Cli) -> None:
    outcome = unstall("doctor")
    assert outcome.code == 0
    assert f"python           {platform.python_version()}" in outcome.out
    for line in outcome.out.splitlines():
        assert line.startswith(("ok  ", "--  ", "    "))


def test_json_has_the_same_checks(unstall: Cli) -> None:
    document = json.loads(unstall("doctor", "--json").out)
    assert document["schema"] == "unstall.doctor/1"
    names = [check["name"] for check in document["checks"]]
    assert names == ["unstall", "python", "numpy", "msgspec", "rich", "torch", "torch built for", "GPU"]
    assert all(set(check) == {"name", "found", "enables"} for check in document["checks"])
