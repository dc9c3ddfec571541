"""Programs that nobody wrote: what a line clock and a reader of stacks are held to.

A program has levels; each level's function and generator use only those of later levels, so that it ends. It calls
`probe()` wherever it likes, and `threaded(function)`, which runs it in a thread and waits for it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from hypothesis import strategies as st

FILE = "/home/somebody/invented.py"
LEVELS = 3

Lines = list[str]

_HEAD = """\
import contextlib
import functools


@contextlib.contextmanager
def manager():
    probe()
    try:
        yield
    finally:
        probe()


def wraps(function):
    @functools.wraps(function)
    def inside(*arguments):
        probe()
        result = function(*arguments)
        probe()
        return result

    return inside


def both(*_):
    probe()


class Thing:
    @property
    def value(self):
        return probe()
"""


def _indented(lines: Lines) -> Lines:
    return ["    " + line for line in lines]


def _block(head: str) -> Callable[[Lines], Lines]:
    return lambda body: [head, *_indented(body)]


def _tried(body: Lines, handler: Lines, last: Lines) -> Lines:
    return ["try:", *_indented(body), "except ValueError:", *_indented(handler), "finally:", *_indented(last)]


def _uses(function: str, generator: str) -> list[Lines]:
    return [
        [f"{function}(2)"],
        [f"[{function}(0) for _ in range(2)]"],
        [f"threaded({function})"],
        [f"wraps({function})(0)"],
        [f"list({generator}())"],
        [f"both({function}(0),", f"     {function}(0))"],
        [f"for _ in {generator}():", "    probe()"],
        [f"some = {generator}()", "next(some, None)", "probe()", "next(some, None)", "some.close()", "probe()"],
        [f"some = {generator}()", "next(some, None)", "some.throw(ValueError)"],
        [f"try: {function}(0)", "except ValueError:", "    probe()", "    raise"],
    ]


def _simple(level: int) -> st.SearchStrategy[Lines]:
    """Statements that have no others within."""
    fixed = [
        ["probe()"],
        ["probe(); probe()"],
        ["if level >= 0: probe()"],
        ["[probe() for _ in range(2)]"],
        ["sum(probe() for _ in range(2))"],
        ["{each: probe() for each in range(2)}"],
        ["(lambda: probe())()"],
        ["list(map(lambda _: probe(), range(2)))"],
        ["Thing().value"],
        ["both(", "    probe(),", "    Thing().value,", ")"],
        ["raise ValueError"],
        ["return"],
        ["with contextlib.suppress(ValueError):", "    probe()", "    raise ValueError"],
    ]
    below = [each for later in range(level + 1, LEVELS) for each in _uses(f"f{later}", f"g{later}")]
    return st.sampled_from(fixed + below)


def _bodies(statement: st.SearchStrategy[Lines]) -> st.SearchStrategy[Lines]:
    return st.lists(statement, min_size=1, max_size=4).map(lambda each: [line for lines in each for line in lines])


def _compound(inner: st.SearchStrategy[Lines]) -> st.SearchStrategy[Lines]:
    body = _bodies(inner)
    heads = ("for _ in range(2):", "with manager():", "if level == 0:", "while True:")
    return st.one_of(
        *(body.map(_block(head)) for head in heads[:3]),
        body.map(lambda lines: _block(heads[3])([*lines, "break"])),
        st.builds(_tried, body, body, body),
    )


def _level(number: int) -> st.SearchStrategy[Lines]:
    statement = st.recursive(_simple(number), _compound, max_leaves=4)
    yielding = st.one_of(st.just(["yield probe()"]), statement)

    def functions(body: Lines, generated: Lines) -> Lines:
        again = ["if level > 0:", f"    f{number}(level - 1)"]
        return [
            *(f"def f{number}(level=0):", *_indented([*again, *body])),
            *(f"def g{number}(level=0):", *_indented([*generated, "yield"])),
        ]

    return st.builds(functions, _bodies(statement), _bodies(yielding))


PROGRAMS: st.SearchStrategy[str] = st.tuples(*(_level(number) for number in range(LEVELS))).map(
    lambda levels: "\n".join([_HEAD, *(line for level in levels for line in level), ""])
)


@dataclass(frozen=True)
class Invented:
    """A program that was compiled: each run of it runs the same code objects."""

    code: CodeType

    def run(self, probe: Callable[[], Any], around: Callable[[Callable[[], Any]], Any] = lambda run: run()) -> None:
        """Run it, in the end through `around`, which is given the first level's function."""

        def probed() -> int:
            probe()
            return 0

        space: dict[str, Any] = {"probe": probed, "threaded": _threaded, "__name__": "invented"}
        exec(self.code, space)
        with contextlib.suppress(ValueError):
            around(lambda: space["f0"](1))

    def codes(self) -> list[CodeType]:
        """Its code, and all that is in it."""
        found = [self.code]
        for code in found:
            found += [each for each in code.co_consts if isinstance(each, CodeType)]
        return found


def compiled(text: str) -> Invented:
    """The program of this text."""
    return Invented(compile(text, FILE, "exec"))


def _threaded(function: Callable[[], Any]) -> None:
    def run() -> None:
        with contextlib.suppress(ValueError):
            function()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def stack_here(
    wanted: Callable[[CodeType], bool] = lambda code: code.co_filename == FILE,
) -> list[tuple[CodeType, int]]:
    """The calling thread's frames of wanted code, with the line that each is on, innermost first."""
    frame: FrameType | None = sys._getframe()
    found = []
    while frame is not None:
        if wanted(frame.f_code):
            found.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    return found
