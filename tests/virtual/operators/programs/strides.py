"""Eager against captured, over torch's own samples in odd layouts: python strides.py SAMPLES [DRAWN | NAME…]

SAMPLES: of each operator. DRAWN: a number of operators, drawn by a fixed seed; else parts of their names. Prints, in
JSON, what was compared and how it differed. On the virtual GPU an eager call has the strides that the CPU's kernel
gives, and a captured one those of a Meta kernel.
"""

import contextlib
import itertools
import json
import random
import sys
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parents[4]))

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

from benchmarks.virtual_opinfo import UNINITIALISED, chosen, other_numbers, tensors


def reversed_dimensions(tensor):
    order = tuple(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def channels_last(tensor):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats[tensor.dim()]) if tensor.dim() in formats else tensor


def every_other(tensor):
    """A slice with steps, of a tensor that is twice as wide."""
    return torch.stack((tensor, tensor), -1).flatten(-2)[..., ::2]


def first_alone(tensor):
    """A first dimension of size 1, whose stride is that of more."""
    return tensor[:1]


def odd_ones(tensor):
    """Dimensions of size 1 with strides that nothing asks for; the others reversed."""
    given = reversed_dimensions(tensor[:1])
    strides = [3 if size == 1 else stride for size, stride in zip(given.shape, given.stride(), strict=True)]
    return given.as_strided(given.shape, strides)


def expanded(tensor):
    return tensor[:1].expand_as(tensor)


LAYOUTS = (torch.clone, reversed_dimensions, channels_last, every_other)
SMALLER = (first_alone, odd_ones, expanded)
# These take sizes as numbers, too, and read beyond tensors that are smaller.
OF_GIVEN_SIZES = ("native_group_norm", "native_layer_norm", "native_batch_norm", "_native_batch_norm_legit")


def laid_out(sample, layout, device):
    """A sample's nest on a device, its tensors in this layout."""

    dimensions = sample.input.dim() if isinstance(sample.input, torch.Tensor) else 1

    def move(leaf):
        if isinstance(leaf, torch.Tensor):
            moved = leaf.detach().clone().to(device)
            if moved.numel() and moved.dim() > (layout in SMALLER and dimensions > 1):
                moved = layout(moved)
            return moved.detach().requires_grad_(leaf.requires_grad)
        return device if isinstance(leaf, torch.device) or leaf == "cpu" else leaf

    return tree_map(move, (sample.input, sample.args, sample.kwargs))


def results_of(operator, sample, given):
    """Outputs and gradients, in a row."""
    torch.manual_seed(0)
    outputs = operator(given[0], *given[1], **given[2])
    wanted = [leaf for leaf in tensors(given) if leaf.requires_grad]
    roots = [root for root in tensors(sample.output_process_fn_grad(outputs)) if root.requires_grad]
    gradients = ()
    if operator.supports_autograd and wanted and roots:
        gradients = torch.autograd.grad(roots, wanted, [torch.ones_like(root) for root in roots], allow_unused=True)
    return [each.detach() for each in (*tensors(outputs), *tensors(gradients))]


def is_random(operator, sample, given, number, eager):
    """Whether other seeds give another result of this number; few elements may be the same by chance."""
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(other_numbers())  # one more than the seed before
            again = results_of(operator, sample, given)[number]
            if not torch.allclose(again, eager, equal_nan=True):
                return True
    return False


def differs(operator, sample, layout):
    """How they differ, "" for not at all, None if a GPU or the sample forbids to compare them."""
    try:
        results_of(operator, sample, laid_out(sample, layout, "cpu"))  # raises what would spoil the device
        given = laid_out(sample, layout, "cuda")
        eager = results_of(operator, sample, given)
    except Exception:
        return None
    graph = torch.cuda.CUDAGraph()
    error = None
    try:
        with torch.cuda.graph(graph):
            try:
                captured = results_of(operator, sample, given)
            except Exception as raised:
                error = raised
    except Exception as raised:
        error = error or raised
    if error is not None:
        refusals = ("capturing", "capture", "pinned")  # as on a real GPU
        return None if any(word in str(error) for word in refusals) else f"raises {str(error).splitlines()[0][:150]}"
    graph.replay()
    if len(eager) != len(captured):
        return f"{len(captured)} results for {len(eager)}"
    for number, (one, other) in enumerate(zip(eager, captured, strict=True)):
        if one.layout != torch.strided:
            continue
        for what in ("shape", "dtype"):
            if getattr(one, what) != getattr(other, what):
                return f"{number}: {what} {getattr(other, what)} for {getattr(one, what)}"
        if one.numel() and one.stride() != other.stride():
            return f"{number}: strides {other.stride()} for {one.stride()} of {tuple(one.shape)}"
        if operator.name in UNINITIALISED or torch.allclose(one, other, equal_nan=True):
            continue
        if not is_random(operator, sample, given, number, one):
            return f"{number}: values differ"
    return ""


def main():
    warnings.simplefilter("ignore")
    samples, *names = sys.argv[1:]
    operators = chosen(op_db, None)
    if len(names) == 1 and names[0].isdigit():
        operators = random.Random(0).sample(operators, int(names[0]))
    elif names:
        operators = [one for one in operators if any(name in one.formatted_name for name in names)]
    compared, wrong = 0, {}
    for operator in operators:
        print(operator.formatted_name, file=sys.stderr, flush=True)
        torch.manual_seed(0)
        found = operator.sample_inputs("cpu", torch.float32, requires_grad=operator.supports_autograd)
        for sample in itertools.islice(found, int(samples)):
            for layout in LAYOUTS if operator.name in OF_GIVEN_SIZES else LAYOUTS + SMALLER:
                how = differs(operator, sample, layout)
                compared += how is not None
                if how:
                    wrong.setdefault(operator.formatted_name, f"{layout.__name__}: {how}")
    print(json.dumps({"operators": len(operators), "compared": compared, "wrong": wrong}))


if __name__ == "__main__":
    main()
