"""The page of a run on a virtual GPU: it knows of no recorder, and says how far off such times were."""

from __future__ import annotations

import msgspec
import pytest
from browser.conftest import Open
from report.answers import PLANNED
from report.rendered import as_html

from unstall.result import Result

pytestmark = pytest.mark.browser


def _simulated() -> Result:
    assert PLANNED.replay is not None
    source = msgspec.structs.replace(
        PLANNED.source, reader="virtual", recorder="virtual", known_error="a step within 9 %"
    )
    replay = msgspec.structs.replace(PLANNED.replay, undistorted_by="nothing", usual_error=None)
    return msgspec.structs.replace(PLANNED, source=source, replay=replay)


def test_its_head_says_what_it_is_and_how_far_off_it_may_be(opened: Open) -> None:
    page = opened(as_html(_simulated()))

    assert "simulated for NVIDIA H200" in page.text(".masthead")
    assert page.text(".known-error") == "Known error: a step within 9 %"


def test_it_speaks_of_no_recorder_and_no_reader(opened: Open) -> None:
    page = opened(as_html(_simulated()))

    assert "recorder" not in page.text("#page")
    assert "read by" not in page.text("footer")
    assert "--as-recorded" not in page.text("#page")
