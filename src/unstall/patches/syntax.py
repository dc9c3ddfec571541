"""A Python file as a syntax tree together with its text, and edits of the text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
Loop = ast.For | ast.AsyncFor | ast.While
UNKNOWN = "none is known for findings of this kind"
"""The phrase that says why there is no patch if patches for this kind of finding are not known."""
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of a UTF-8 file: replaces the bytes from offset `start` up to offset `end` by `text`."""

    start: int
    end: int
    text: str


class Module:
    """A parsed Python file. Each method's argument `node` is a node of the file's syntax tree.

    Raises:
        SyntaxError: The file is not valid Python, has line ends other than LF and CR LF, or begins
            with a byte order mark.
    """

    def __init__(self, text: str) -> None:
        if "\r" in text.replace("\r\n", "") or text.startswith("\ufeff"):
            raise SyntaxError("unusual line ends")
        self.text = text
        self.data = text.encode()
        try:
            self.tree = ast.parse(text)
        except (RecursionError, MemoryError, ValueError) as error:
            raise SyntaxError(str(error)) from error
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        for line in self.data.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        return starts

    def at(self, line: int, kind: type[Node]) -> list[Node]:
        """Returns the nodes of class `kind` that begin or end on line number `line`."""
        return [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, kind) and line in (getattr(node, "lineno", 0), getattr(node, "end_lineno", 0))
        ]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields the nodes that contain `node`, from the innermost to the outermost."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def scope(self, node: ast.AST) -> ast.AST:
        """Returns the innermost function, lambda, class or module that contains `node`."""
        return next(each for each in self.above(node) if isinstance(each, SCOPES))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Returns `(start, end)`: where the text of `node` begins and ends in the file, as offsets in bytes."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        starts = self._line_starts
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def source(self, node: ast.expr | ast.stmt) -> str:
        """Returns the source text of `node`."""
        start, end = self.span(node)
        return self.data[start:end].decode()

    def indent(self, node: ast.stmt) -> str | None:
        """Returns the white space before the statement `node` on its first line. Returns None if
        other text precedes the statement on this line.
        """
        start = self._line_starts[node.lineno - 1]
        before = self.data[start : start + node.col_offset].decode()
        return None if before.strip() else before

    def line_end(self, node: ast.stmt) -> int | None:
        """Returns the offset, in bytes, of the line after the statement `node`.

        Returns None if other code follows the statement on its last line. A comment may follow.
        """
        assert node.end_lineno is not None
        _, end = self.span(node)
        after = self.data.find(b"\n", end)
        after = len(self.data) if after < 0 else after
        rest = self.data[end:after].strip()
        return None if rest and not rest.startswith(b"#") else min(after + 1, len(self.data))

    @cached_property
    def _imported(self) -> dict[str, str]:
        """A dict from imported names to full names: {"DataLoader": "torch.utils.data.DataLoader"}.

        It omits names that the file also defines in another way.
        """
        names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    names[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        for bound in self.bound(self.tree):
            names.pop(bound, None)
        return names

    def bound(self, within: ast.AST) -> list[str]:
        """Returns the names of the variables, functions, classes and parameters that are defined
        within `within`. A name that is defined several times is returned several times. Imported
        names are omitted.
        """
        names = []
        for node in ast.walk(within):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                names.append(node.id)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.append(node.name)
            elif isinstance(node, ast.arg):
                names.append(node.arg)
        return names

    def dotted(self, node: ast.expr) -> str:
        """Returns the full name of what the expression `node` names, such as
        "torch.cuda.synchronize". Returns "" if the name does not begin with an imported name.
        """
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._imported:
            return ""
        return ".".join([self._imported[node.id], *reversed(parts)])

    def calls(self, node: ast.expr, *names: str) -> bool:
        """Returns whether `node` is a call of a function whose full name, such as "torch.randn", is in `names`."""
        return isinstance(node, ast.Call) and self.dotted(node.func) in names

    def with_argument(self, call: ast.Call, argument: str) -> Edit:
        """Returns an edit that adds the argument `argument`, such as "pin_memory=True", to the end
        of a call's arguments.
        """
        _, end = self.span(call)
        inside = [*call.args, *(keyword.value for keyword in call.keywords)]
        if not inside:
            return Edit(end - 1, end - 1, argument)
        last = max(self.span(each)[1] for each in inside)
        rest = self.data[last : end - 1]
        # Behind the last argument stand white space, brackets around it, comments, and perhaps a comma.
        behind = last + len(rest) - len(rest.lstrip(b") \t")) if rest.strip(b" \t)") == b"" else last
        behind = min(behind, end - 1)
        return Edit(behind, behind, f", {argument}")

    def edited(self, edits: list[Edit]) -> str:
        """Returns the text of the file after `edits` were made. The edits must not overlap. Their
        offsets are those of the file before any edit.

        Raises:
            SyntaxError: The new text is not valid Python.
        """
        data = self.data
        for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
            data = data[: edit.start] + edit.text.encode() + data[edit.end :]
        text = data.decode()
        ast.parse(text)
        return text


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """Returns the value of the keyword argument `name` of `call`. Returns None if the call lacks this argument."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def names_in(node: ast.AST) -> set[str]:
    """Returns the names of all variables that `node` contains."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
