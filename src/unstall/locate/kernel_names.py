"""Shortens the names of kernels, so that people can read them easily."""

from __future__ import annotations

import re

_BRACKETS = {"(": ")", "<": ">", "[": "]", "{": "}"}


def plain(kernel: str) -> str:
    """Returns a short name of a kernel, such as "cutlass::Kernel2". The short name has no return type, no template
    arguments and no parameters."""
    name, opened = "", [""]
    for letter in re.sub(r"^void |\(anonymous namespace\)::", "", kernel):
        if letter == _BRACKETS.get(opened[-1]):
            opened.pop()
        elif letter in _BRACKETS:
            if letter == "(" and len(opened) == 1:
                break
            opened.append(letter)
        elif len(opened) == 1:
            name += letter
    # Only names of templates include the return type, which may be a template itself: std::enable_if<…>::type.
    words = name.split() if "<" in kernel else [name.strip()]
    return "".join(words[-1:]) or kernel
