"""CUDA tensors through queues of torch.multiprocessing: both processes have the same bytes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import succeeded

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parent / "programs" / "queues.py"


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    done = succeeded([sys.executable, "-m", "unstall.virtual", "--gpu", "h200", str(PROGRAM)])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_tensor_arrives_and_takes_no_memory_there(told: dict[str, Any]) -> None:
    assert told["received"] == ["cuda:0", [0.0, 1.0, 2.0, 3.0], 0]


def test_what_the_receiver_writes_the_sender_reads(told: dict[str, Any]) -> None:
    assert told["written to"] == [1.0, 2.0, 3.0, 4.0]
    assert told["same memory"] == 0


def test_views_parameters_and_empty_tensors_arrive(told: dict[str, Any]) -> None:
    assert told["view, parameter and empty tensor"] == [[[3, 4, 5]], "Parameter", [0]]
    assert told["sent back"] == [[6, 8, 10]]


def test_a_received_tensor_is_not_sent_on_as_with_cuda(told: dict[str, Any]) -> None:
    assert told["sent on"].startswith("Attempted to send CUDA tensor received from another process")


def test_bytes_are_kept_until_every_process_has_freed_them(told: dict[str, Any]) -> None:
    assert told["files after that"] < told["files"]
    assert told["exit code"] == 0
