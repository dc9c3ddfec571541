"""Both engines: every test of one holds the other to the same."""

from __future__ import annotations

import pytest
from replay.running import Engine

from unstall.replay.engine import ENGINES


@pytest.fixture(params=["python", "c"], scope="session")
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param not in ENGINES:
        pytest.skip("the C engine is not built: there was no C compiler when unstall was installed")
    return ENGINES[request.param]
