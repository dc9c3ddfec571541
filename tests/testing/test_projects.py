"""Real projects that nobody here wrote, on each kind of GPU: a wait that is planted fails the test, with its line."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from testing.running import copied, line_of, run_tests


@pytest.mark.ci
@pytest.mark.parametrize("gpu", ["virtual", pytest.param("real", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("project", "package", "limit", "wait"),
    [
        ("trainer", "transformers", "limit_syncs(2): the CPU waited for the GPU 8 times:", "loss.item()"),
        ("lightning_fit", "lightning", "limit_syncs(17): the CPU waited for the GPU 23 times:", "loss.item()"),
        ("accelerate_loop", "accelerate", "", "loss.item()"),
        (
            "pipeline",
            "diffusers",
            "limit_syncs(7): the CPU waited for the GPU 13 times:",
            "bool(noise.isfinite().all())",
        ),
    ],
    ids=["trainer", "lightning", "accelerate", "diffusers"],
)
def test_a_planted_wait_fails_with_its_line_and_the_mended_program_passes(
    project: str, package: str, limit: str, wait: str, gpu: str, tmp_path: Path
) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    file = copied(f"projects/{project}", tmp_path)
    options = ["--unstall-gpu", "h200"] if gpu == "virtual" else ["-k", "planted or mended"]
    ran = run_tests(tmp_path, *options, strict=False)
    outcomes = {"planted": "FAILED", "mended": "PASSED"}
    if gpu == "virtual":
        outcomes["steps_are_found"] = "PASSED"
    assert ran.outcomes == {f"{file.name}::test_{test}": outcome for test, outcome in outcomes.items()}
    told, place = ran.told("test_planted"), f"{file.name}:{line_of(f'projects/{project}', 'planted')}"
    if limit:
        assert told.splitlines()[0] == limit
        assert f"  6x {place}: {wait}\n" in told
    else:
        assert f"SyncError: {place}: {wait} waits for the GPU" in told
        assert told.rstrip().endswith(f"{place}: SyncError")
