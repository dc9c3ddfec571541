"""Describes a fault of a device in words: a title, which value was wrong, and what to do. A fault
is work that failed, such as a lookup by an index out of bounds.
"""

from __future__ import annotations

import re

from unstall.figures import counted
from unstall.result import Fault, Where, WrongValue

_LONGEST = 200  # characters of a kernel's own message
_TITLES = {
    "index": "Device fault: an index is out of bounds",
    "class": "Device fault: a class label is out of bounds",
    "probability": "Device fault: a value is outside 0 to 1",
    "weight": "Device fault: no distribution to draw from",
    "assertion": "Device fault: an assertion of the program failed",
    "other": "Device fault",
}
_PLURALS = {"index": "indices", "class": "labels", "weight": "weights"}
_ROWS_OF_WEIGHTS = "self.sum(-1)"
_OF_DIMENSION = re.compile(r"indices\[(\d+)\]")


def title(fault: Fault) -> str:
    """Returns a title for a fault of a device, such as "Device fault: an index is out of bounds"."""
    return _TITLES[fault.kind]


def line_of(where: Where) -> str:
    """Returns a source line as text, such as "train.py:41". If the line is unknown, returns the
    name of the function or operator.
    """
    if not where.file:
        return where.function or where.op or "a line that is not known"
    return f"{where.file}:{where.line}"


def what_is_wrong(fault: Fault) -> str:
    """Returns which value led to a fault of a device, such as "index 1063 at [5] is out of bounds
    for a table of 1024 rows". If the value is unknown, returns the message of the kernel that
    failed.
    """
    wrong = fault.wrong
    if wrong is None:
        return fault.check[:_LONGEST] or "what was wrong is not known"
    at = f" at [{', '.join(map(str, wrong.position))}]" if wrong.position else ""
    if wrong.argument == _ROWS_OF_WEIGHTS:
        said = f"the weights{' of row ' + str(wrong.position[0]) if wrong.position else ''} add up to 0"
    elif fault.kind == "index":
        said = f"index {wrong.value}{at} is out of bounds for {_room(fault, wrong)}"
    elif fault.kind == "class":
        said = f"class {wrong.value}{at} is out of bounds for {counted(wrong.bound or 0, 'class')}"
    elif fault.kind == "probability":
        said = f"{'target' if wrong.argument == 'target' else 'value'} {_value(wrong)}{at} is outside 0 to 1"
    elif fault.kind == "weight":
        said = f"the weight{at} is {_value(wrong)}"
    else:
        said = f"value {_value(wrong)}{at}: {fault.check[:_LONGEST]}"
    if wrong.count == 1:
        return said
    return f"{said} ({wrong.count:,} of {wrong.of:,} {_PLURALS.get(fault.kind, 'values')} are wrong)"


def _value(wrong: WrongValue) -> str:
    if isinstance(wrong.value, str):
        return {"nan": "NaN"}.get(wrong.value, wrong.value)
    return f"{wrong.value:g}"


def _room(fault: Fault, wrong: WrongValue) -> str:
    if _looks_up(fault):
        return f"a table of {wrong.bound} rows" if wrong.bound != 1 else "a table of 1 row"
    dim = _OF_DIMENSION.fullmatch(wrong.argument)
    room = f"dimension {dim[1]} of size {wrong.bound}" if dim else f"a size of {wrong.bound}"
    return f"{room}, which takes {wrong.least} to {_last(wrong)}" if wrong.least else room


def _last(wrong: WrongValue) -> int:
    return (wrong.bound or 1) - 1


def _looks_up(fault: Fault) -> bool:
    return "embedding" in (fault.operator or "") or "embedding" in (fault.kernel or "")


def advice(fault: Fault) -> str:
    """Returns what to do about a fault of a device."""
    wrong = fault.wrong
    if fault.kind == "index":
        return _of_ids(wrong) if _looks_up(fault) else _of_index(wrong)
    if fault.kind == "class":
        return _of_labels(wrong)
    if fault.kind == "probability":
        return _of_probabilities(fault)
    if fault.kind == "weight":
        return _of_weights(wrong)
    if fault.kind == "assertion":
        return "look at what the condition is made of: the message is its author's, and the values are still the CPU's"
    return "look at the values that this line is given: the kernel checks them, and says what it wants"


def _of_ids(wrong: WrongValue | None) -> str:
    if wrong is None or wrong.bound is None or not isinstance(wrong.value, int):
        return "check the ids before they are uploaded: each must be at least 0 and below num_embeddings"
    right = "ids.min() >= 0" if wrong.value < 0 else f"ids.max() < {wrong.bound}"
    check = f"to find where it comes from, check each batch before it is uploaded: {right}"
    if wrong.value < 0:
        return (
            "a negative id has no row: if it means padding, replace it before the lookup by an id that the table has "
            f"(padding_idx); {check}"
        )
    if wrong.value == wrong.bound:
        return (
            "the id is too large by one, as if ids counted from 1: subtract 1, or give the table one more row "
            f"(num_embeddings={wrong.bound + 1}); {check}"
        )
    return (
        f"give the table as many rows as there are ids (num_embeddings > {wrong.value}; of a pretrained model: "
        f"model.resize_token_embeddings(len(tokenizer))), or mend what makes such an id; {check}"
    )


def _of_index(wrong: WrongValue | None) -> str:
    if wrong is None or wrong.bound is None or not isinstance(wrong.value, int):
        return "check the indices where they are made: on the device no index may be out of bounds"
    if wrong.value == wrong.bound:
        return (
            f"the index is too large by one: look where it is made for a count from 1, or for the size ({wrong.bound}) "
            f"in place of the last index ({_last(wrong)})"
        )
    if wrong.value < 0:
        negative = "gather, scatter and index_select take no negative index" if not wrong.least else "it is too low"
        return f"{negative}: if -1 stands for nothing, leave those out by a mask, or replace them before this line"
    return (
        f"mend what makes the index: it must be below {wrong.bound}, the size of what it looks into (is it of another "
        "dimension, or of a batch that was cut or padded?)"
    )


def _of_labels(wrong: WrongValue | None) -> str:
    if wrong is None or wrong.bound is None or not isinstance(wrong.value, int):
        return "labels must be at least 0 and below the number of classes"
    if wrong.value == wrong.bound:
        return (
            f"labels must be 0 to {_last(wrong)}: subtract 1 if they count from 1, or make the last layer wider by one "
            "class"
        )
    if wrong.value < 0 or wrong.value == 255:  # as masks of segmentation mark what is no class
        return (
            f"labels must be 0 to {_last(wrong)}: if {wrong.value} marks what has no class, say so: "
            f"ignore_index={wrong.value}"
        )
    return (
        f"make the last layer as wide as there are classes (at least {wrong.value + 1} for this label), or mend the "
        f"labels: they must be 0 to {_last(wrong)}"
    )


def _of_probabilities(fault: Fault) -> str:
    if "binary_cross_entropy" in (fault.kernel or ""):
        if fault.wrong is not None and fault.wrong.argument == "target":
            return "targets must be 0 to 1: scale them, or take a loss for other targets (mse_loss)"
        return (
            "give logits to binary_cross_entropy_with_logits (BCEWithLogitsLoss), which needs no sigmoid; or apply "
            "sigmoid before this line; if the value is NaN, find the line that makes it "
            "(torch.autograd.set_detect_anomaly)"
        )
    return "give probabilities: apply sigmoid or softmax before this line; a NaN comes from an earlier line"


def _of_weights(wrong: WrongValue | None) -> str:
    if wrong is not None and wrong.argument == _ROWS_OF_WEIGHTS:
        return "leave at least one weight above 0: a mask, or top-k and top-p together, took away all of them"
    if wrong is not None and isinstance(wrong.value, int | float) and wrong.value < 0:
        return "weights must not be negative: give probabilities (softmax), not logits"
    return (
        "find where NaN or inf begins: check torch.isfinite(logits).all() line by line; often it is a logit that "
        "overflows float16 (use bfloat16 or float32 for softmax), a division by a temperature of 0, or a row that is "
        "masked as a whole"
    )
