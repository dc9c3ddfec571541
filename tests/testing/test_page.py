"""docs/pytest.md shows what a reader gets. `--update-goldens` writes what pytest prints now into the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from testing.running import run_tests

_PAGE = Path(__file__).parents[2] / "docs" / "pytest.md"
_SAMPLE = re.compile(r"^```\n\$ pytest ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TEST = re.compile(r"^```python\n(import pytest\n.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.skipif(pytest.version_tuple < (9,), reason="the page is of pytest 9")
def test_the_sample_is_what_pytest_prints(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    page = _PAGE.read_text("utf-8")
    sample, test = _SAMPLE.search(page), _TEST.search(page)
    assert sample is not None
    assert test is not None
    (tmp_path / "test_step.py").write_text(test[1])
    printed = run_tests(tmp_path, *sample[1].split(), plain=True).text
    for varies, shown in ((r"in \d+\.\d+s", "in 3.42s"), (r"0x[0-9a-f]+", "0x7f1c5a3e20c0")):
        printed = re.sub(varies, shown, printed)
    now = page[: sample.start(2)] + printed + page[sample.end(2) :]
    if now != page and request.config.getoption("--update-goldens"):
        _PAGE.write_text(now, "utf-8")
    assert _PAGE.read_text("utf-8") == now
