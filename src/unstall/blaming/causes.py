"""The errors that end a CUDA context, the assertions in torch's kernels, and the known causes of these errors and
assertions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

ASSERTED, LAUNCH_FAILED = 710, 719
ERRORS = {  # CUresult, in cuda.h
    214: "uncorrectable ECC error",
    220: "uncorrectable NVLink error",
    226: "contained device error",
    700: "illegal memory access",
    702: "launch timed out",
    ASSERTED: "device-side assert",
    714: "hardware stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "invalid address space",
    718: "invalid program counter",
    LAUNCH_FAILED: "launch failed",
    721: "tensor memory leak",
}
ASSERTION = re.compile(
    r"^(?P<file>\S.{0,400}?):(?P<line>\d+): (?P<function>.{1,4000}?): "
    r"block: \[(?P<block>[\d,]+)\], thread: \[(?P<thread>[\d,]+)\] Assertion `(?P<text>.{0,400}?)` failed\.?"
)
_COMMON = ("Kernel", "Kernels", "Utils", "Functions")
_INDEX = "an index is out of range"
_CHECK_INDEX = "check the index before this line: index.min() and index.max() against the size of the dimension"
# By words in the assertion's text, its file, its function or the kernel's name: the first row that fits.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"nll_loss|cross_entropy|t >= 0 && t < n_classes|cur_target",
        "a class label is outside 0 … C-1",
        "check labels.min() and labels.max() against the number of classes; labels to leave out need ignore_index",
    ),
    (
        r"multinomial|MultinomialKernel|probability tensor|cumdist|TensorMultinomial",
        "a probability is NaN, infinite or negative, or all are zero",
        "check torch.isfinite(p).all() and p.min() of the probabilities before this line; the usual cause: NaN logits",
    ),
    (
        r"embedding|vectorized.gather|indexSelect|index_select|srcIndex < srcSelectDimSize",
        f"{_INDEX} (embedding or index_select)",
        _CHECK_INDEX,
    ),
    (r"scatter|gather|ScatterGather", f"{_INDEX} (gather or scatter)", _CHECK_INDEX),
    (r"index_put|IndexKernel|index_elementwise|indexing_backward|index out of bounds", _INDEX, _CHECK_INDEX),
    (
        r"binary_cross_entropy|input_val >= zero|input >= 0.*1",
        "an input of binary_cross_entropy is outside 0 … 1",
        "apply sigmoid, or use binary_cross_entropy_with_logits",
    ),
)
_WITHOUT_ASSERTION = {
    214: (
        "the GPU's memory has failed: this is no error of the program",
        "run it again on another GPU; reset this one",
    ),
    700: (
        "a kernel read or wrote memory that is not there",
        "compute-sanitizer on this kernel names the thread and the address",
    ),
    702: ("a kernel ran longer than the display's driver allows", ""),
    716: (
        "a kernel read or wrote an address that is no multiple of the size",
        "compute-sanitizer names the thread and the address",
    ),
}


def fits(assertion: str, kernel: str) -> bool:
    """Returns whether a failed assertion may come from a kernel.

    The text of an assertion names the function that contains it. That name must occur in the
    kernel's name. If the function is a lambda, it has no name. In that case the name of the
    assertion's source file must occur in the kernel's name, because torch names source files after
    their kernels, for example IndexKernel.cu.

    Args:
        assertion: The text that the assertion printed.
        kernel: The demangled name of the kernel.
    """
    found = ASSERTION.match(assertion)
    if not found:
        return False
    function = re.split(r"[<(]", found["function"].replace("(anonymous namespace)", ""), maxsplit=1)[0].split("::")[-1]
    name = (function.split() or [""])[-1]
    if name not in ("", "operator"):
        return name in kernel
    words = re.findall(r"[A-Z][a-z]+", found["file"].rpartition("/")[2].partition(".")[0])
    telling = [word.lower() for word in words if word not in _COMMON]
    return bool(telling) and all(word in kernel.lower() for word in telling)


def cause_of(code: int, assertion: str, work: Sequence[str]) -> tuple[str, str]:
    """Returns `(cause, advice)` for a CUDA error: a text with the cause of the error, and a text
    with what to do. A text is "" if it is not known.

    Args:
        code: The error, as a CUresult.
        assertion: The text of the failed device-side assertion; "" if none failed.
        work: Names of the kernels that may have failed.
    """
    for text in (assertion, *work) if code == ASSERTED else ():
        for pattern, cause, fix in _CAUSES:
            if text and re.search(pattern, text):
                return cause, fix
    return _WITHOUT_ASSERTION.get(code, ("", ""))
