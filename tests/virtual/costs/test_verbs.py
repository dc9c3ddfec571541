"""`unstall gpus` and `unstall calibrate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from unstall.cli import main
from unstall.virtual.costs.gpu_file import encode, gpu_named


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


def test_a_gpu_is_shown_with_where_each_part_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "t4"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    begin = lines.index("part           where it comes from                    known error")
    row = next(at for at in range(begin, len(lines)) if lines[at].startswith("kernel times"))
    assert lines[row : row + 3] == [
        "kernel times   scaled: the h200's, by the rates of    the course's figures: mul",
        "               both GPUs, and the shortest by their   and sum 3 %, batched",
        "               clocks                                 products 7 % too fast,",
    ]


def test_a_gpu_is_shown_as_json_with_where_each_part_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "h200", "--json"]) == 0

    (h200,) = json.loads(capsys.readouterr().out)["gpus"]
    (names,) = [part for part in h200["parts"] if part["part"] == "kernel names"]
    assert names == {
        "part": "kernel names",
        "kind": "measured",
        "of": "an H200 with torch 2.11 for CUDA 13.0",
        "known_error": None,
    }


def test_a_file_that_does_not_say_where_its_parts_come_from_is_shown_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(encode(replace(gpu_named("l4").file, origins={})))

    assert main(["gpus", str(path)]) == 0
    assert "The file does not say where its parts come from" in capsys.readouterr().out


def test_a_gpu_that_is_not_there_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "a100"]) == 2
    assert "did you mean a100-80g?" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("-o", "gpu.txt"), ("--minutes", "0")])
def test_calibrate_refuses_what_makes_no_sense(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", option, value]) == 2
    assert value in capsys.readouterr().err


def test_calibrate_without_a_gpu_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")

    assert main(["calibrate"]) == 2
    assert "torch sees none here" in capsys.readouterr().err
