"""Converts a script to a Jupyter notebook (nbformat 4). A code cell begins at each line `# %%`. The
text after it, and the script's docstring, become text cells.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator

from unstall.course.figures import filled
from unstall.course.row import Row

_MARK = "# %%"


def notebook(name: str, row: Row, source: str) -> str:
    """Returns the notebook of an experiment, in JSON. The same script always gives the same text.

    Args:
        name: The name of the experiment.
        row: The experiment.
        source: The source of its script.
    """
    cells = [
        _text(f"# {row.number}. {row.question}"),
        *_cells(source),
        _text(f"**What to learn.** {filled(row.learn, {})}".replace("\n", "\n\n")),
    ]
    if row.mine:
        cells.append(_text(f"**Which case is mine?** {filled(row.mine, {})}"))
    if row.change:
        change, *code = row.change.splitlines()
        cells.append(_text("\n".join([f"**Change.** {change}", *(["```python", *code, "```"] if code else [])])))
    if row.source:
        cells.append(_text(f"Source: <{row.source}>"))
    options = f'"t4", numerics="{row.numerics}", host="{row.host}"'
    cells.insert(2, _code(_VIRTUAL.format(options=options)))
    for number, cell in enumerate(cells):
        cell["id"] = hashlib.sha256(f"{name} {number}".encode()).hexdigest()[:8]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


_VIRTUAL = """\
# Without a GPU, the cells below run on a virtual T4. It must begin before torch is imported.
import unstall
from unstall.guest.device import has_gpu

if not has_gpu():
    gpu = unstall.virtual_gpu({options}).start()"""


def _cells(source: str) -> Iterator[dict[str, object]]:
    docstring = ast.get_docstring(ast.parse(source)) or ""
    yield _text(docstring)
    after = ast.parse(source).body[0].end_lineno or 0
    code: list[str] = []
    for line in source.splitlines()[after:]:
        if line.startswith(_MARK):
            yield from _of(code)
            code = []
            if said := line.removeprefix(_MARK).strip():
                yield _text(said)
        else:
            code.append(line)
    yield from _of(code)


def _of(code: list[str]) -> Iterator[dict[str, object]]:
    if text := "\n".join(code).strip("\n"):
        yield _code(text)


def _text(text: str) -> dict[str, object]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str) -> dict[str, object]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }
