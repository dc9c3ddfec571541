"""Open the last report in a browser.

FILE is an HTML report, a trace or a saved result. Without FILE, the last run in this folder is shown. If FILE is no
HTML, an HTML report is written beside it first: train.report.html for train.trace.json.gz.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.cli._inputs import read_report
from unstall.cli._last import TRACE_ENDING, is_page, last_page, last_run
from unstall.cli._recording import say
from unstall.errors import UsageError

_PAGE_ENDING = ".report.html"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="what to show (default: the last run's report)")
    parser.add_argument("--print", dest="prints", action="store_true", help="print the page's path, and open nothing")


def run(args: argparse.Namespace) -> int:
    page = _page(Path(args.file) if args.file else last_page() or last_run()).resolve()
    if args.prints:
        print(page)
        return 0
    import webbrowser

    if not webbrowser.open(page.as_uri()):
        say(f"no browser was found; the report is {page.as_uri()}")
        return 1
    say(f"opened {page}")
    return 0


def _page(path: Path) -> Path:
    """Returns the path of an HTML report for a file. Writes the report if there is none, or if it is older than the
    file.
    """
    if path.suffix.lower() in (".html", ".htm"):
        if not is_page(path):
            raise UsageError(f"{path}: this is no report of unstall")
        return path
    page = page_of(path)
    if page.exists() and not is_page(page):
        raise UsageError(f"{page}: cannot be written: another file has this name")
    if not page.exists() or page.stat().st_mtime_ns < path.stat().st_mtime_ns:
        read_report(str(path), quiet=False).save(page)
        say(f"the report is in {page}")
    return page


def page_of(path: Path) -> Path:
    """Returns the path of the HTML report for a trace or a saved result, such as train.report.html
    for train.trace.json.gz.
    """
    stem = path.name.removesuffix(TRACE_ENDING) if path.name.endswith(TRACE_ENDING) else path.name.partition(".")[0]
    return path.with_name(f"{stem or path.name}{_PAGE_ENDING}")
