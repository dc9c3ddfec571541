"""Element-wise operators. A call is described by the bytes that it moves.

If all operands have the same layout, torch runs vectorised kernels. If not, its kernels compute an
address for each element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from unstall.virtual.costs.families.family import Axis, CallShape, Family, Work
from unstall.virtual.costs.signature import ITEM_BYTES, Signature, TensorSpec

_WRITES_RESULTS = re.compile(r"_?out$|^out(?=_)|^grad_input$")  # overloads that get their results as arguments
_BLOCK = 1_024
"""How many elements a thread block of torch's vectorised kernels has. If fewer are left for the last one, it takes
another path, which computes an address for each element: an exp of 43,808 takes 1.44 us on an H200, of 65,536 0.99.
"""
_TAIL = 16
"""The value of a call with such a block on its axis: as far from one without as a call of four times the size."""
_OVERLOADS = {"arange": "start_step"}  # by operator whose overloads all run the kernels of one
_STANDS_FOR = {0: "fill_.Scalar", 1: "neg.", 2: "add.Tensor", 3: "addcmul."}


def describe(signature: Signature) -> CallShape | None:
    """Describes a call of any operator by the number of elements of its result, the bytes that it
    moves, and the layout of each operand compared with that of the result. Returns None for a call
    without tensors.
    """
    results = signature.results
    tensors = signature.tensors
    name = signature.name.removeprefix("aten::")
    out = results[0] if results else tensors[0] if tensors else None
    if out is None:
        return None
    operands = tensors
    if name in ("copy_",):
        operands = tensors[1:2]
    elif name in ("fill_", "zero_", "bernoulli_", "normal_", "uniform_", "random_"):
        operands = ()
    overload = signature.overload
    if _WRITES_RESULTS.search(overload):  # the last arguments are the results
        operands = tensors[: len(tensors) - max(1, len(results))]
        overload = _WRITES_RESULTS.sub("", overload)
    overload = _OVERLOADS.get(name, overload)
    pattern = (
        "".join(sorted((_lies(tensor, out) for tensor in operands), reverse=False)) if len(operands) < 5 else "many"
    )
    main = max(operands, key=lambda tensor: tensor.numel, default=out)
    kinds = {tensor.dtype for tensor in (*operands, out)}
    mixed = "" if len(kinds) == 1 else f" {'+'.join(sorted({tensor.dtype for tensor in operands}))}>{out.dtype}"
    numel = max(out.numel, main.numel, 1)
    moved = sum(tensor.distinct_bytes for tensor in (*operands, *(results or (out,))))
    run, step = _run_and_step(operands, out) if "p" in pattern else (1, 1)
    tail = 1 if set(pattern) & set("bp") or numel % _BLOCK == 0 else _TAIL
    dims = numel, max(moved, 1), run, step, tail
    if name == "copy_" and mixed and pattern == "=":
        return CallShape(tuple(dict.fromkeys(_conversions(main.dtype, out.dtype))), dims)
    arity = min(sum(1 for tensor in operands if tensor.numel > 1), 3)
    called = f"{name}.{overload}"
    variants = [f"{main.dtype} {called} {pattern}{mixed}", f"{main.dtype} {called} {pattern}"]
    if not overload and len(operands) > 1:  # some operators name their usual overload so
        variants.append(f"{main.dtype} {called}Tensor {pattern}")
    if overload in ("", "Tensor") and "0" in pattern and any(tensor.sizes == () for tensor in operands):
        variants.insert(0, f"{main.dtype} {name}.Scalar {pattern.replace('0', '', 1)}")  # a wrapped Python number
    if len(kinds) == 1 or name == "copy_":
        variants += [f"{main.dtype} {name.rstrip('_')}.{overload} {pattern}", f"float32 {called} {pattern}"]
    ordinary = "".join(letter for letter in pattern if letter != "0") or "="
    variants += [f"{main.dtype} {_STANDS_FOR[arity]} {ordinary}", f"float32 {_STANDS_FOR[arity]} {ordinary}"]
    rough = "bp"[("p" in ordinary)] if set(ordinary) - {"="} else "="
    variants += {
        "=": ["float32 add.Tensor =="],
        "b": ["float32 add.Tensor =b"],
        "p": ["float32 add.Tensor =p", "float32 copy_. p"],
    }[rough]
    return CallShape(tuple(dict.fromkeys(variants)), dims)


def _conversions(source: str, result: str) -> Iterator[str]:
    """Returns the variants of a copy that converts elements, most similar first. None copies bytes as they are, which
    the driver does, and not a kernel.
    """
    widens = ITEM_BYTES.get(result, 4) > ITEM_BYTES.get(source, 4)
    similar = {"float16": "bfloat16"}
    usual = ("bfloat16", "float32") if widens else ("float32", "bfloat16")
    for one, other in ((source, result), (similar.get(source, source), similar.get(result, result)), usual):
        yield f"{one} copy_. = {one}>{other}"


def fits(signature: Signature) -> bool:
    """Returns whether a call has the sizes of an element-wise one: each of its tensors is broadcast to its results.
    Tensors without elements do not count.
    """
    return all(
        len(tensor.sizes) <= len(result.sizes)
        and all(mine in (1, its) for mine, its in zip(tensor.sizes[::-1], result.sizes[::-1], strict=False))
        for result in signature.results
        for tensor in signature.tensors
        if result.numel and tensor.numel
    )


def _run_and_step(operands: tuple[TensorSpec, ...], out: TensorSpec) -> tuple[int, int]:
    """Returns how many elements in a row are next to each other in memory, both in the result and in all operands, and
    how far apart in memory neighbouring runs are, in elements: the largest distance of an operand or the result.
    """
    run = 1
    for dim in sorted(range(len(out.sizes)), key=lambda dim: out.strides[dim]):
        if out.sizes[dim] == 1:
            continue
        steps = [tensor.strides[dim] for tensor in (*operands, out) if tensor.sizes == out.sizes]
        if any(step != run for step in steps):
            return max(run, 1), max(*steps, 1)
        run *= out.sizes[dim]
    return max(run, 1), 1


def _lies(tensor: TensorSpec, out: TensorSpec) -> str:
    """Returns the layout of an operand, compared with that of the result, as a letter: "=" if they
    are the same, "0" for an operand of one element, "b" for one that is broadcast, and "p" for one
    that is permuted or not dense.
    """
    if tensor.numel == 1:
        return "0" if out.numel != 1 else "="
    if tensor.distinct_bytes < out.numel * tensor.item_bytes:
        return "b"
    if tensor.sizes == out.sizes:
        same = all(
            mine == its for mine, its, size in zip(tensor.strides, out.strides, tensor.sizes, strict=True) if size != 1
        )
        return "=" if same and tensor.dense else "p"
    return "=" if tensor.contiguous and out.contiguous else "p"


def work(variant: str, dims: tuple[int, ...]) -> Work:
    """Returns the work of an element-wise call.

    Args:
        variant: Not used.
        dims: The number of its elements, the bytes that it moves, the length of a run of elements that are contiguous
            in all operands, how far apart neighbouring runs are, and `_TAIL` if its last thread block is not full.
    """
    return Work(0.0, float(dims[1]))


FAMILY = Family(
    "elementwise",
    (Axis("elements"), Axis("bytes"), Axis("run", 0.5), Axis("step", 0.5), Axis("tail", 0.5)),
    describe,
    work,
)
