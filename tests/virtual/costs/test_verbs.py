"""`unstall gpus` and `unstall calibrate`."""

from __future__ import annotations

import json

import pytest

from unstall.cli import main


def test_gpus_are_listed_with_how_they_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus"]) == 0

    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert max(map(len, lines.values())) < 80
    assert lines["h200"].endswith("measured")
    assert lines["t4"].endswith("data sheet, like h200")


def test_gpus_are_listed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "unstall.gpus/1"
    h200 = next(gpu for gpu in document["gpus"] if gpu["name"] == "h200")
    assert (h200["multiprocessors"], h200["total_bytes"]) == (132, 150_109_880_320)


@pytest.mark.parametrize(("option", "value"), [("-o", "gpu.txt"), ("--minutes", "0")])
def test_calibrate_refuses_what_makes_no_sense(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", option, value]) == 2
    assert value in capsys.readouterr().err


def test_calibrate_without_a_gpu_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")

    assert main(["calibrate"]) == 2
    assert "torch sees none here" in capsys.readouterr().err
