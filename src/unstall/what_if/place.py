"""The place of an edit: a line or a function of the user's source."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import msgspec
import numpy as np

from unstall.did_you_mean import most_similar, suggestion
from unstall.errors import UsageError
from unstall.locate.engine import of_the_engine
from unstall.locate.places import Places
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I32, Bool, Timeline

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_LINE = re.compile(rf"(?P<file>{_QUOTED}|.+?):(?P<line>-?\d{{1,10}}|-)(?::(?P<op>{_QUOTED}|.+))?", re.DOTALL)
_OPERATOR = re.compile(r"\w+::[\w.:]*\w")
_FUNCTION = re.compile(rf"(?P<file>{_QUOTED}|.+):(?P<function>{_QUOTED}|[^:]+)", re.DOTALL)


class EditPlace(msgspec.Struct, frozen=True):
    """The place in the source that an edit changes: a line, one operator at a line, or a function
    with all that it calls. If no stacks were recorded, files are unknown, and a place is only an
    operator.

    As text, a place is FILE:LINE, FILE:LINE:OP or FILE:FUNCTION. `parse_line` and `parse_function`
    read such a text. Names come from the trace, so they may contain anything. A name that would be
    read back as another one is written like a string of JSON: "a:b.py":12.

    Attributes:
        file: The path of the file, as the trace has it; None if it is unknown.
        line: The line number; None if the place is a function, or if the line is unknown.
        op: The operator at the line; None for all operators.
        function: The function; None if the place is a line.
    """

    file: str | None
    line: int | None = None
    op: str | None = None
    function: str | None = None

    def chosen(self, places: Places) -> Bool:
        """Returns a mask of `timeline.host`: the events at this place.

        Raises:
            UsageError: No event was recorded at this place.
        """
        chosen = self.events(places)
        if not chosen.any():
            raise UsageError(f"nothing was recorded at {self}{self._instead(places)}")
        return chosen

    def events(self, places: Places) -> Bool:
        """Returns a mask of `timeline.host`: the events at this place. There may be none."""
        return self._in_function(places) if self.function is not None else self._on_line(places)

    def _instead(self, places: Places) -> str:
        """Returns words that suggest another place, which the user may have meant; "" if there is
        none.

        It lies in the file with the most similar name. There, it is the nearest line at which
        something was recorded, or the function with the most similar name.
        """
        timeline, lines = places.timeline, places.timeline.lines
        if self.file is None:
            return ""
        known = np.arange(len(lines))
        if self.line is not None:
            known = known[np.isin(known, places.place)]
        files = [timeline.text(int(lines.file[row])) for row in known.tolist()]
        near = most_similar(self.file, set(files))
        if not near:
            return ""
        of_it = [row for row, file in zip(known.tolist(), files, strict=True) if file == near]
        if self.line is not None:
            found = str(min((int(lines.line[row]) for row in of_it), key=lambda line: abs(line - (self.line or 0))))
        else:
            names = {timeline.text(int(lines.function[row])) for row in of_it}
            found = most_similar(self.function or "", names)
        return suggestion(found and f"{near}:{found}")

    def _on_line(self, places: Places) -> Bool:
        timeline = places.timeline
        chosen = np.ones(len(timeline.host), dtype=np.bool_)
        if self.file is not None:
            lines = timeline.lines
            known = np.flatnonzero((lines.line == self.line) & _is(lines.file, timeline, self.file))
            chosen = np.isin(places.place, known)
        if self.op is not None:
            top = places.top_op
            chosen &= (top >= 0) & _is(timeline.host.name[np.maximum(top, 0)], timeline, self.op)
        return chosen

    def while_it_runs(self, places: Places) -> Bool:
        """Returns a mask of `timeline.host`: the events that happen while the function of this
        place runs.

        The backward pass of the function's operators is in the mask only if it runs before the
        function returns.
        """
        stacks, stack = places.timeline.stacks, places.timeline.host.stack
        below = np.append(nearest(stacks.parent, self._itself(places)) >= 0, False)
        chosen: Bool = (stack >= 0) & below[stack]
        return chosen

    def _itself(self, places: Places) -> Bool:
        """Returns a mask of `timeline.stacks`: the frames of this place's function."""
        timeline, lines = places.timeline, places.timeline.lines
        wanted = _is(lines.file, timeline, self.file) & _is(lines.function, timeline, self.function)
        itself: Bool = wanted[timeline.stacks.line]
        return itself

    def _in_function(self, places: Places) -> Bool:
        timeline = places.timeline
        stacks, host = timeline.stacks, timeline.host
        itself = self._itself(places)
        below = nearest(stacks.parent, itself) >= 0
        source = np.where(host.forward >= 0, host.forward, np.arange(len(host)))
        found = np.zeros(len(host), dtype=np.bool_)
        of_operator = np.where(host.op >= 0, host.stack[np.maximum(host.op, 0)], -1)
        for stack in (host.stack, host.stack[source], of_operator):
            found |= (stack >= 0) & below[np.maximum(stack, 0)] if len(below) else False
        return found | of_the_engine(places, found, itself)

    def __str__(self) -> str:
        text = self._text(_as_it_is)
        try:
            same = (parse_line(text) if self.function is None else parse_function(text)) == self
        except UsageError:
            same = False
        return text if same else self._text(_quoted)

    def _text(self, name: Callable[[str], str]) -> str:
        """Returns the place as text. `name` writes the name of a file, an operator or a function."""
        if self.function is not None:
            return f"{name(self.file or '')}:{name(self.function)}"
        line = f"{name(self.file) if self.file is not None else '-'}:{self.line if self.line is not None else '-'}"
        return f"{line}:{name(self.op)}" if self.op else line


def _as_it_is(name: str) -> str:
    return name


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _is(column: I32, timeline: Timeline, text: str | None) -> Bool:
    """Returns a mask of the rows of `column` that have this text. The column has indices of texts
    in the timeline.

    Several indices may have the same text: if a notebook's history is off, all cells are called
    In[1].
    """
    return np.isin(column, [at for at, each in enumerate(timeline.strings) if each == text])


def parse_line(text: str) -> EditPlace:
    """Returns the place that `text` names: FILE:LINE, FILE:LINE:OP or OP. A "-" stands for an
    unknown file or line.

    Raises:
        UsageError: The text has another form.
    """
    if _OPERATOR.fullmatch(text) and not _LINE.fullmatch(text):
        return EditPlace(file=None, op=text)
    if (match := _LINE.fullmatch(text)) is None:
        raise UsageError(f"{text!r} is no place: write FILE:LINE or FILE:LINE:OP, as in the findings")
    file, line, op = match["file"], match["line"], match["op"]
    return EditPlace(
        file=None if file == "-" else _unquoted(file),
        line=None if line == "-" else int(line),
        op=None if op is None else _unquoted(op),
    )


def graph_of(file: str | None, function: str | None) -> str | None:
    """Returns the edit "graph:FILE:FUNCTION" as text, or None if the file or the function is unknown."""
    return f"graph:{EditPlace(file=file, function=function)}" if file and function else None


def parse_function(text: str) -> EditPlace:
    """Returns the place that `text` names: FILE:FUNCTION.

    Raises:
        UsageError: The text has another form, or has a line number in place of a function.
    """
    if (match := _FUNCTION.fullmatch(text)) is None:
        raise UsageError(f"{text!r} is no place: write FILE:FUNCTION, as in the findings")
    if match["function"].isdecimal():
        raise UsageError(f"{text!r} is a line: a graph is of a function, FILE:FUNCTION")
    return EditPlace(file=_unquoted(match["file"]), function=_unquoted(match["function"]))


def _unquoted(name: str) -> str:
    """Returns the name that `name` stands for: itself, or what it says if it is written like a string of JSON."""
    if len(name) < 2 or not name.startswith('"') or not name.endswith('"'):
        return name
    try:
        return str(json.loads(name))
    except ValueError:
        return name
