"""`unstall whatif` on real runs: what it prints, writes and exits with."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli.command import EXAMPLES, Cli

from unstall import explain, load, whatif
from unstall.errors import UsageError

DECODE = EXAMPLES / "gpt2_decode_item.json.gz"
OFFLOAD = EXAMPLES / "offload_sequential.json.gz"


def asked(unstall: Cli, *arguments: object) -> dict[str, Any]:
    outcome = unstall("whatif", *arguments, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    result = json.loads(outcome.out)
    assert isinstance(result, dict)
    return result


def test_the_json_is_the_contracts(unstall: Cli) -> None:
    result = asked(unstall, OFFLOAD, "--edit", "overlap-copies")
    assert result["schema"] == "unstall.whatif/1"
    times = ("measured_step_ns", "replayed_step_ns", "undistorted_step_ns", "predicted_step_ns", "floor_ns")
    assert all(isinstance(result[time], int) for time in times)
    assert [edit["edit"] for edit in result["edits"]] == ["overlap-copies"]


def test_edits_are_made_one_after_the_other(unstall: Cli) -> None:
    result = asked(unstall, DECODE, "--edit", "graph", "--edit", "remove-syncs")
    first, second = result["edits"]
    before = result["undistorted_step_ns"]
    assert isinstance(before, int)
    assert abs(before - first["gain_ns"] - first["step_ns"]) <= 1
    assert abs(first["step_ns"] - second["gain_ns"] - second["step_ns"]) <= 1
    assert result["predicted_step_ns"] == second["step_ns"]


def test_no_change_is_said_only_if_no_row_of_the_table_gains(unstall: Cli) -> None:
    """Faster kernels gain less than 0.5 % here, but they gain."""
    for edit in ("copy-speed:1", "kernel-speed:1.01", "kernel-speed:inf"):
        out = " ".join(unstall("whatif", DECODE, "--as-recorded", "--edit", edit).out.split())
        result = asked(unstall, DECODE, "--as-recorded", "--edit", edit)
        (row,) = re.findall(rf"1\. {re.escape(edit)} \d\S* \w+ (nothing|<?\d\S* .s)", out)
        assert ("No change: " in out) == (row == "nothing"), (edit, result["error_ns"])


def test_an_edit_says_what_its_factor_is_and_whether_there_is_anything_to_change(unstall: Cli) -> None:
    out = " ".join(unstall("whatif", DECODE, "--edit", "kernel-speed:2", "--edit", "input-speed:inf").out.split())
    assert "run K times as fast. Collectives stay as they are: they wait for others. K is 2. 2. input-speed:inf" in out
    assert "K is infinite: it takes no time. The recorded steps have nothing that this edit changes floor" in out


def test_what_two_edits_do_alike_is_told_once(unstall: Cli) -> None:
    out = " ".join(unstall("whatif", DECODE, "--edit", "kernel-speed:2", "--edit", "kernel-speed:2").out.split())
    assert out.count("run K times as fast") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "A step takes about "),
        (["--plain-step-ms", "28.9"], "A step takes 28.9 ms."),
        (["--as-recorded"], "A step takes 5"),
    ],
)
def test_without_an_edit_the_step_is_told_as_what_it_is(unstall: Cli, options: list[str], said: str) -> None:
    assert said in unstall("whatif", DECODE, *options).out


def test_the_plain_step_time_is_met(unstall: Cli) -> None:
    result = asked(unstall, DECODE, "--plain-step-ms", "28.9")
    assert result["undistorted_by"] == "plain step time"
    assert result["undistorted_step_ns"] == pytest.approx(28_900_000, rel=0.005)


def test_without_an_edit_it_says_how_well_the_run_replays(unstall: Cli) -> None:
    result = asked(unstall, DECODE, "--as-recorded")
    assert result["edits"] == []
    assert result["replayed_step_ns"] == pytest.approx(result["measured_step_ns"], rel=0.02)
    assert result["undistorted_by"] == "nothing"


def test_an_estimate_of_which_nobody_knows_how_good_it_is_says_so(unstall: Cli) -> None:
    unknown, known = (" ".join(unstall("whatif", run).out.split()) for run in (EXAMPLES / "one_shot.json.gz", DECODE))
    assert "how good cannot be told" in unknown
    assert "± 34 % or so" in known


def test_without_an_edit_there_is_one_run_to_show(unstall: Cli) -> None:
    out = unstall("whatif", DECODE).out
    assert "idle: launch" in out
    assert "before" not in out
    assert "after" not in out


@pytest.mark.parametrize("edits", [3, ["graph", 3]])
def test_an_edit_that_is_no_text_is_refused_in_a_sentence(edits: Any) -> None:
    with pytest.raises(UsageError, match="edits are text, one or a list of them"):
        whatif(DECODE, edits)


def test_one_glob_may_stand_by_itself() -> None:
    given = [explain(DECODE, user=user).result for user in ("*/cache_utils.py", ["*/cache_utils.py"])]
    assert given[0] == given[1]
    with pytest.raises(UsageError, match="globs of files are text"):
        explain(DECODE, user=3)  # type: ignore[arg-type]


def test_the_answer_goes_from_the_recorded_step_by_each_edit_to_the_floor(unstall: Cli) -> None:
    out = unstall("whatif", DECODE, "--plain-step-ms", "28.9", "--edit", "graph", "--edit", "remove-syncs").out
    rows = [re.split(r"\s{2,}", line) for line in out.splitlines()]
    at = next(number for number, row in enumerate(rows) if row[0] == "A step")
    assert rows[at] == ["A step", "takes", "gain ± 2.37 µs"]
    assert [row for row in rows[at + 1 : rows.index([""], at)] if row[0]] == [
        ["as recorded", "56.5 ms"],
        ["without the recorder", "28.9 ms"],
        ["1. graph", "6.29 ms", "22.6 ms"],
        ["2. remove-syncs", "5.25 ms", "1.04 ms"],
        ["floor: device busy time after these changes", "4.49 ms"],
    ]
    assert "A step would take 5.25 ms instead of 28.9 ms: 5.5x as fast.\n" in out
    before, after = (out.splitlines()[out.splitlines().index(name) + 1] for name in ("before", "after"))
    assert len(before) == 80
    assert len(after) == 15  # of the same scale
    assert re.split(
        r"\s{2,}|(?<=::) |(?<=ms) |(?<=µs) ", next(line for line in out.splitlines() if line.startswith(":: "))
    ) == ["::", "idle: launch", "21.4 ms", "44.0 µs", "-21.4 ms"]


def test_it_is_written_to_files_in_the_format_of_their_ending(unstall: Cli, tmp_path: Path) -> None:
    outputs = [tmp_path / f"answer{ending}" for ending in (".json", ".md", ".txt")]
    outcome = unstall(
        "whatif", OFFLOAD, "--edit", "overlap-copies", "-q", *(a for path in outputs for a in ("-o", path))
    )
    assert (outcome.code, outcome.out) == (0, "")
    assert json.loads(outputs[0].read_text())["schema"] == "unstall.whatif/1"
    assert outputs[1].read_text().startswith("### unstall whatif")


def test_an_answer_saves_itself_as_the_verb_does(unstall: Cli, tmp_path: Path) -> None:
    answer = whatif(OFFLOAD, "overlap-copies")
    for ending in (".html", ".json", ".md", ".txt"):
        saved, written = tmp_path / f"saved{ending}", tmp_path / f"written{ending}"
        answer.save(saved)
        assert unstall("whatif", OFFLOAD, "--edit", "overlap-copies", "-q", "-o", written).code == 0
        assert saved.read_text() == written.read_text(), ending


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--edit", "make-it-fast"],
            "there is no edit 'make-it-fast'; there are: comm-speed",
        ),
        (["--edit", "host-speed:0"], "write host-speed:K"),
        (["--edit", "remove-syncs:train.py"], "'train.py' is no place"),
        (["--edit", "remove-syncs:nowhere.py:3"], "nothing was recorded at nowhere.py:3"),
        (["load-ahead"], "unrecognized arguments: load-ahead; an edit needs --edit before it: --edit load-ahead\n"),
        (["--plain-step-ms", "fast"], "--plain-step-ms"),
        (["--plain-step-ms", "nan"], "'nan' is no time"),
        (["--plain-step-ms", "1e300"], "'1e300' is no time"),
        (["--step", "nothing"], "no annotation is called 'nothing'"),
    ],
)
def test_a_users_mistake_is_a_sentence(unstall: Cli, arguments: list[str], says: str) -> None:
    outcome = unstall("whatif", OFFLOAD, *arguments)
    assert outcome.code == 2
    assert says in outcome.err
    assert "Traceback" not in outcome.err


def test_a_run_without_device_work_cannot_be_replayed(unstall: Cli) -> None:
    outcome = unstall("whatif", EXAMPLES / "train_item.no_device.json.gz", "--edit", "graph")
    assert outcome.code == 2
    assert "nothing can be replayed" in outcome.err


def test_the_input_is_not_overwritten(unstall: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "run.json"
    trace.write_bytes(OFFLOAD.read_bytes())
    outcome = unstall("whatif", trace, "-o", trace)
    assert outcome.code == 2
    assert trace.read_bytes() == OFFLOAD.read_bytes()


def test_the_predicted_run_is_written_as_a_trace(unstall: Cli, tmp_path: Path) -> None:
    file = tmp_path / "predicted.json.gz"
    result = asked(unstall, OFFLOAD, "--edit", "overlap-copies", "--save-trace", file)
    predicted = load(file)
    assert len(predicted.device) == len(load(OFFLOAD).device)
    again = explain(predicted, as_recorded=True)
    assert again.result.steps.count == result["steps"]["count"]
    assert again.result.steps.mean_ns == pytest.approx(result["predicted_step_ns"], rel=0.05)


def test_a_predicted_run_replaces_no_other_file(unstall: Cli, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print()")
    outcome = unstall("whatif", OFFLOAD, "--save-trace", script)
    assert outcome.code == 2
    assert "by its name no trace" in outcome.err
    assert script.read_text() == "print()"
