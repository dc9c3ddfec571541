"""The processes in which first uses are measured can be forked: no thread of torch's is missing in them."""

from __future__ import annotations

import os
import sys

import pytest
from processes import succeeded

from unstall.virtual.costs import startup

FORKS = """
import os, signal, sys, torch
from unstall.virtual.costs.startup import _calls_of_suite, small_calls
from unstall.virtual.costs.suite import cases
known = _calls_of_suite(3, small_calls(cases(3)))
child = os.fork()
if not child:
    signal.alarm(60)
    for calls in known.values():
        for _, _, args, _ in calls:
            for each in args:
                if isinstance(each, torch.Tensor):
                    each.clone().copy_(each)
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1] != 0)
"""


@pytest.mark.slow
def test_a_forked_process_can_copy_the_arguments_of_all_calls() -> None:
    succeeded([sys.executable, "-W", "ignore", "-c", FORKS], timeout=300, env=os.environ | startup._ONE_THREAD)
