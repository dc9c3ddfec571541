"""Makes a patch for a finding if an edit for the form of the finding's source line is known.
Otherwise says why there is no patch.

A line whose form is only similar gets no patch. Edits never change what the program computes, not
even in the last bit.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from unstall.patches.empty_cache import without_empty_cache
from unstall.patches.source import Source
from unstall.patches.syntax import UNKNOWN, Edit, Module
from unstall.patches.uploads import made_on_device, perhaps_pinned, uploaded
from unstall.result import Finding


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch for the user's source.

    Attributes:
        diff: A unified diff. `git apply` or `patch -p1` applies it, in the folder `Source.folder`.
        note: What the user must know when using the patch; "" if there is nothing to say.
    """

    diff: str
    note: str


Found = tuple[list[Edit], str] | str
"""Either `(edits, note)`, or a phrase that says why there are no edits. `note` is text that the
user should read before applying the edits, or "".
"""
_KNOWN: Mapping[str, Callable[[Module, int], Found]] = {
    "pageable-copy": uploaded,
    "blocking-copy": perhaps_pinned,
    "sync-tensor": made_on_device,
    "allocator-churn": without_empty_cache,
}


def patch_for(finding: Finding, source: Source | str, beside: Iterable[Finding] = ()) -> Patch | str:
    """Returns the patch for a finding, or a phrase that says why there is no patch.

    Args:
        finding: The finding.
        source: The file that contains the finding's line, or a phrase that says why this file was
            not read.
        beside: The other findings of the same run at the same line.
    """
    where = finding.where
    make = _KNOWN.get(finding.rule)
    if make is None:
        return UNKNOWN
    if isinstance(source, str):
        return f"its source is not shown: {source}"
    if "site-packages" in source.folder.parts or "site-packages/" in source.name:
        return "the line is a library's: change the line that calls it"
    if where.line is None or where.line_is != "exact":
        return "only the first line of its function is known: unstall run records exact lines"
    if make in (uploaded, perhaps_pinned) and any(_reads_back(each) for each in beside):
        return "the line also copies to the host, which non_blocking=True would make unsafe: split it in two"
    try:
        module = Module(source.text)
        found = make(module, where.line)
        if isinstance(found, str):
            return found
        edits, note = found
        return Patch(_diff(source, module.edited(edits)), note)
    except SyntaxError:
        return "the file is no Python that this version of Python reads"


def _reads_back(finding: Finding) -> bool:
    """Returns whether `finding` is a wait of the host for the device. Every blocking copy to the
    host causes such a finding.
    """
    return finding.rule.startswith("sync-") and finding.rule != "sync-tensor"


def _diff(source: Source, new: str) -> str:
    lines = difflib.unified_diff(_lines(source.text), _lines(new), f"a/{source.name}", f"b/{source.name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Splits a text at line feeds only. str.splitlines would also split it at form feeds."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
