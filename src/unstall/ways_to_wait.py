"""The ways in which PyTorch code makes the host wait for the device, each with advice.

`WAYS` has the waits for values, and explicit synchronizations. Such a wait is recognised by its
operator and its call stack. If no operators were recorded, it is recognised by the built-in
function that the line called; if that is unknown, by the data that was copied to the host.

Copies to the device, requests for memory, and waits before the program reads a clock are
recognised by other means. The ways for them are
not in `WAYS`: each has its own constant, such as `PAGEABLE_UPLOAD`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

VALUE_BYTES = 16
"""The size in bytes of the largest single value: a complex number of two float64."""

Read = Literal["", "value", "data"]
"""What a wait copies to the host: a single value, more data, or nothing ("")."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What is known about one wait of the host for the device. What is unknown is "".

    Attributes:
        op: The name of the outermost operator.
        frames: The frames between the user's line and the wait, one per line of text, the innermost
            first.
        call: The name of the CUDA call that waits.
        read: What is copied to the host. Known only if no operators were recorded.
        kernel: The name of the last kernel that the user's line ran before that copy. Known only if
            no operators were recorded.
    """

    op: str
    frames: str
    call: str
    read: Read = ""
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which code waits for the device, with advice.

    The attributes `op`, `frame`, `call` and `kernel` are regular expressions. A wait is of this way
    if it matches all four, and if its `read` is the same. An attribute that is None matches every
    wait.

    Attributes:
        rule: The name of the rule that reports such waits.
        title: What happens, in a sentence.
        fix: What to do instead.
        safe_if: The condition under which `fix` keeps the program correct.
        op: Matches the beginning of the outermost operator's name.
        frame: Matches a part of a frame between the user's line and the wait.
        call: Matches the beginning of the name of the CUDA call that waits.
        read: What the wait copies to the host.
        kernel: Matches a part of the name of the kernel before that copy.
        stays: Whether `fix` cannot remove the wait alone, so that its gain is unknown.
        check: Whether the outermost function that `frame` matches does nothing but check something.
            If True, the fix removes this function with the wait.
        only_float16: The way with other advice, for a GPU whose tensor cores do not multiply in bfloat16; None if the
            advice is the same.
    """

    rule: str
    title: str
    fix: str
    safe_if: str
    op: str | None = None
    frame: str | None = None
    call: str | None = None
    read: Read | None = None
    kernel: str | None = None
    stays: bool = False
    check: bool = False
    only_float16: Way | None = None

    def left_out(self, frames: str) -> str | None:
        """Returns the function that the fix removes together with the wait, as "FILE:FUNCTION";
        None if it removes none.

        `frames` are the frames between the user's line and the wait, one per line of text, the
        innermost first.
        """
        if not self.check or not self.frame:
            return None
        found = [frame for frame in frames.splitlines() if re.search(self.frame, frame)]
        file, colon, function = found[-1].partition(": ") if found else ("", "", "")
        return f"{file}:{function}" if colon else None

    def matches(self, wait: Wait) -> bool:
        """Returns whether `wait` matches all patterns of this way."""
        return (
            (self.op is None or re.match(self.op, wait.op) is not None)
            and (self.frame is None or re.search(self.frame, wait.frames, re.MULTILINE) is not None)
            and (self.call is None or re.match(self.call, wait.call) is not None)
            and (self.read is None or self.read == wait.read)
            and (self.kernel is None or re.search(self.kernel, wait.kernel) is not None)
        )


MAKES_TENSOR = r"<built-in (method|function) (tensor|as_tensor|asarray|scalar_tensor)\b"
"""A regular expression for the frame of `torch.tensor(…)` and similar calls.

A copy to the device that such a call makes is reported as a wait of one of `WAYS`. The rules for
copies leave it out.
"""

_SHAPE_SAFE = "the result can have a fixed shape, or its size is known beforehand"

FROM_PYTHON_VALUES = Way(
    rule="sync-tensor",
    frame=MAKES_TENSOR,
    title="A tensor is made from Python values, straight onto the device",
    fix="make it once outside the loop, or on the device (torch.full, torch.arange), or pinned and then "
    ".to(device, non_blocking=True)",
    safe_if="the values do not change between steps, or can be computed on the device",
)

_PINNED_STAYS = "the pinned source is not written before the copy has ended"
PAGEABLE_UPLOAD = Way(
    rule="pageable-copy",
    title="Copies from pageable host memory block the host",
    fix="pin the source (DataLoader(pin_memory=True), or tensor.pin_memory() once), "
    "then .to(device, non_blocking=True); or take batches from unstall.prefetch(loader)",
    safe_if=_PINNED_STAYS,
)
PINNED_UPLOAD = Way(
    rule="blocking-pinned-copy",
    title="Copies from pinned memory wait, because non_blocking=True is missing",
    fix="pass non_blocking=True: .to(device, non_blocking=True)",
    safe_if=_PINNED_STAYS,
)

EXPLICIT = "sync-explicit"
"""The rule of calls that only wait, such as `torch.cuda.synchronize()`."""
TO_READ_A_CLOCK = Way(
    rule="sync-to-time",
    title="The host waits in order to read a clock",
    fix="keep it as long as you need this time: without it, the clock leaves the device's work out. If the program "
    "should be fast, time many steps at once, or with CUDA events, whose times are read after the loop",
    safe_if="the time is not needed, or is taken by events",
)
TO_READ_EVENTS = Way(
    rule="sync-to-time",
    title="The host waits in order to read the time between CUDA events",
    fix="read the time later, when the events have passed by themselves: keep each step's events, and call "
    "elapsed_time() after the loop, or some steps later (end.query() tells whether it has passed)",
    safe_if="the time is not needed before the next step",
)

_ROOM = "the device has enough memory for the cache"
_FEW_SIZES = "if sizes vary, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True or pad to a few fixed shapes"
CACHE_GROWS = Way(
    rule="allocator-churn",
    title="Device memory is taken from the driver",
    fix=f"call the largest sizes first (unstall.warm_up); {_FEW_SIZES}",
    safe_if=_ROOM,
)
LIBRARY_TAKES_MEMORY = Way(
    rule="allocator-churn",
    title="A library takes device memory for itself",
    fix="run a step before the guarded ones: libraries take their memory on their first call",
    safe_if=_ROOM,
)
CACHE_IS_EMPTIED = Way(
    rule="allocator-churn",
    title="Device memory is given back to the driver",
    fix=f"let the caching allocator keep its blocks: remove torch.cuda.empty_cache(); {_FEW_SIZES}",
    safe_if=_ROOM,
)
CACHE_IS_GIVEN_BACK = Way(
    rule="allocator-churn",
    title="Device memory is given back to the driver",
    fix="let the caching allocator keep its blocks: it gives them back by itself if the device's memory runs out, so "
    f"use less of it; {_FEW_SIZES}",
    safe_if=_ROOM,
)

_READS_FOUND_INF = "GradScaler reads found_inf on the host at every step"

WAYS = (
    Way(
        rule="sync-grad-scaler",
        frame=r"torch/(cuda/)?amp/grad_scaler\.py: .*\bget_scale$",
        title="scaler.get_scale() brings the scale to the host",
        fix="ask for it only every N steps",
        safe_if="the scale is only logged",
    ),
    Way(
        rule="sync-grad-scaler",
        frame=r"torch/(cuda/)?amp/grad_scaler\.py",
        title=_READS_FOUND_INF,
        fix="train in bfloat16, which needs no scaler; or keep the scaler and build the optimizer with fused=True, "
        "which reads found_inf on the device",
        safe_if="the model trains in bfloat16 (same range as float32), or the optimizer has a fused version",
        only_float16=Way(
            rule="sync-grad-scaler",
            title=_READS_FOUND_INF,
            fix="keep the scaler, and build the optimizer with fused=True, which reads found_inf on the device "
            "(bfloat16 needs no scaler, but this GPU multiplies in it far more slowly)",
            safe_if="the optimizer has a fused version",
        ),
    ),
    Way(
        rule="sync-clip-grad",
        frame=r"torch/nn/utils/clip_grad\.py",
        title="clip_grad_norm_ brings the gradient norm to the host",
        fix="pass error_if_nonfinite=False and foreach=True, and keep the returned norm as a tensor until you log it",
        safe_if="a step with a non-finite norm may be found later, when the norm is logged",
    ),
    Way(
        rule="sync-validate",
        frame=r"torch/distributions/distribution\.py: .*(?:__init__|_validate_sample)$",
        title="torch.distributions checks its arguments on the host",
        fix="pass validate_args=False, or once torch.distributions.Distribution.set_default_validate_args(False)",
        safe_if="the parameters and the values are known to be valid, such as the output of a softmax or the "
        "distribution's own sample",
        check=True,
    ),
    Way(
        rule="sync-print",
        frame=r"torch/_tensor_str\.py|torch/_tensor\.py.*(__repr__|__format__)|<built-in function print>",
        title="Printing or formatting a tensor waits for it",
        fix="print less often, or copy with .to('cpu', non_blocking=True) and print a step later",
        safe_if="the printed value may come a step late",
    ),
    FROM_PYTHON_VALUES,
    Way(
        rule="sync-item",
        frame=r"torch/optim/lr_scheduler\.py: .*\bstep$",
        title="ReduceLROnPlateau.step() reads the metric on the host",
        fix="the scheduler needs the number: call it once an epoch, or with a number that the host has read already, "
        "such as the validation loss that you print or the loss of the step before (unstall.MetricBuffer)",
        safe_if="the learning rate may change a little later",
    ),
    Way(
        rule="sync-mask",
        frame=r"torch/nn/modules/_functions\.py: .*\bforward$",
        title="SyncBatchNorm asks on the host which ranks had samples",
        fix="no option leaves that out, but in a CUDA graph SyncBatchNorm does not ask. If the batch of a rank is "
        "large enough, nn.BatchNorm needs neither the wait nor the collective",
        safe_if="each rank's own batch has good statistics",
        stays=True,
    ),
    Way(
        rule=EXPLICIT,
        op=r"$",
        call=r".*(Device|Ctx)Synchronize",
        title="torch.cuda.synchronize() waits for all work of the device",
        fix="remove it: operations on one stream are ordered already; to time a loop, wait before it and after it, "
        "or use events",
        safe_if="nothing outside the CUDA stream (another process, a file, a timer) relies on the work being done",
    ),
    Way(
        rule=EXPLICIT,
        op=r"$",
        call=r".*StreamSynchronize",
        read="",
        title="stream.synchronize() makes the host wait for a stream",
        fix="let the stream that needs the result wait instead: stream.wait_stream(other)",
        safe_if="the host itself does not read the result at this point",
    ),
    Way(
        rule=EXPLICIT,
        op=r"$",
        call=r".*EventSynchronize",
        title="event.synchronize() makes the host wait for an event",
        fix="let the stream that needs the result wait instead: stream.wait_event(event), or poll event.query()",
        safe_if="the host itself does not read the result at this point",
    ),
    Way(
        rule="sync-comm",
        op=r"(nccl:|c10d::|gloo:|record_param_comms)",
        title="The host waits for a collective",
        fix="use async_op=True and wait as late as possible; on CUDA, work.wait() makes only the stream wait "
        "unless TORCH_NCCL_BLOCKING_WAIT is set",
        safe_if="the result is not read on the host before the wait",
    ),
    Way(
        rule="sync-bool",
        op=r"aten::(is_nonzero|__bool__)$",
        title="`if tensor` (bool of a tensor) waits for its value",
        fix="compute both branches and choose with torch.where, or test only every N steps, or test one step later; "
        "for nan there is unstall.MetricBuffer(stop_on_nan=True)",
        safe_if="the branch may be taken on the device, or a step later",
    ),
    Way(
        rule="sync-equal",
        op=r"aten::(equal|allclose)",
        title="torch.equal / allclose brings its answer to the host",
        fix="keep it on the device: (a == b).all() or torch.isclose(a, b).all(), read later",
        safe_if="the answer may be read later",
    ),
    Way(
        rule="sync-item",
        op=r"aten::(item|_local_scalar_dense|__(float|int|index|complex)__)$",
        title=".item() (or float(), int() of a tensor) waits for its value",
        fix="keep the tensors (.detach()) and read them together every N steps (torch.stack(kept).tolist()), or "
        "read each of them one step later (unstall.MetricBuffer); do not add them up on the device: each addition is "
        "a launch",
        safe_if="nothing on the host depends on the value at this point",
    ),
    Way(
        rule="sync-mask",
        op=r"aten::(index|index_put_?|_index_put_impl_|masked_select|masked_scatter_?)$",
        title="Indexing with a boolean mask waits, to learn how many elements it selects",
        fix="use torch.where(mask, a, b), masked_fill, or multiply by the mask: the shape stays fixed",
        safe_if=_SHAPE_SAFE,
    ),
    Way(
        rule="sync-nonzero",
        op=r"aten::(nonzero|nonzero_numpy|argwhere|where)$",
        title="nonzero() waits, to learn how many elements there are",
        fix="work with the mask itself (torch.where with three arguments), or torch.nonzero_static(size=…)",
        safe_if=_SHAPE_SAFE,
    ),
    Way(
        rule="sync-shape",
        op=r"aten::bincount$",
        title="bincount reads the smallest and the largest value on the host",
        fix="count on the device: torch.zeros(size, device=…).index_add_(0, values, weights), or one_hot(values, "
        "size).sum(0); minlength does not save the wait",
        safe_if="all values are known to be less than that size",
    ),
    Way(
        rule="sync-shape",
        op=r"aten::(_?unique\w*|repeat_interleave|histc|multinomial|combinations|segment_reduce)|torchvision::nms",
        title="An operator whose output size depends on the data waits for that size",
        fix="give the size where the operator takes it (repeat_interleave(output_size=…)), "
        "or use a version with a fixed shape",
        safe_if=_SHAPE_SAFE,
    ),
    Way(
        rule="sync-linalg",
        op=r"aten::(linalg_|_linalg_|cholesky|inverse|lu_|svd|symeig)",
        title="A linear-algebra operator waits, to check for errors on the host",
        fix="use the _ex version (torch.linalg.cholesky_ex, inv_ex, …) with check_errors=False",
        safe_if="you check the returned info tensor yourself, later",
    ),
    Way(
        rule="sync-cpu",
        op=r"aten::(to|_to_copy|copy_|_copy_from|cpu|clone|contiguous|resolve_conj|lift_fresh|detach|numpy|tolist|__array__)$",
        title=".cpu() / .numpy() / .tolist() waits for the tensor",
        fix="copy into a pinned tensor with non_blocking=True and read it after an event, a step later "
        "(unstall.to_host); or copy once, at the end",
        safe_if="the host copy is not read before its event has been reached",
    ),
    Way(
        rule="sync-nonzero",
        read="value",
        kernel=r"NonZeroOp",
        title="nonzero(), or indexing with a boolean mask, waits to learn how many elements there are",
        fix="work with the mask itself: torch.where(mask, a, b), masked_fill, or multiply by it; or "
        "torch.nonzero_static(size=…)",
        safe_if=_SHAPE_SAFE,
    ),
    Way(
        rule="sync-item",
        read="value",
        title="Reading a value on the host waits: .item(), float(), `if tensor`, or a call that does so",
        fix="keep the tensors (.detach()) and read them together every N steps (torch.stack(kept).tolist()), or "
        "read each of them one step later (unstall.MetricBuffer); if a library call reads the value (GradScaler, "
        "clip_grad_norm_, unique), use its version that does not",
        safe_if="nothing on the host depends on the value at this point",
    ),
    Way(
        rule="sync-cpu",
        read="data",
        title="The host waits for a tensor that it copies: .cpu(), .numpy(), .tolist() or print",
        fix="copy into a pinned tensor with non_blocking=True and read it after an event, a step later "
        "(unstall.to_host); or copy once, at the end",
        safe_if="the host copy is not read before its event has been reached",
    ),
    Way(
        rule="sync-other",
        title="The host waits for the device here",
        fix="find what in this operator needs a value on the host, and keep that value on the device",
        safe_if="nothing on the host depends on the value at this point",
    ),
)

_OTHER = WAYS[-1]


def way_of(wait: Wait) -> Way:
    """Returns the first of `WAYS` that matches `wait`. The last of them matches every wait."""
    return next(way for way in WAYS if way.matches(wait))


def is_known(way: Way) -> bool:
    """Returns whether `way` is a specific way to wait. Returns False for the last of `WAYS`,
    because that one matches every wait.
    """
    return way is not _OTHER


# Of a tensor, or of torch itself: `<built-in method item of Tensor>`, `<built-in method equal of type>`.
_BUILTIN = re.compile(r"<built-in (?:method|function) (?P<name>\w+)(?: of (?:\w*Tensor|Parameter|type)(?: object)?)?>")


def called(frames: str) -> str:
    """Returns the operator that the innermost frame calls, such as "aten::item", if that frame is a
    built-in function that may wait. Otherwise returns "".

    `frames` has one frame per line of text, the innermost first. A built-in function of torch is
    taken to be the operator of the same name.
    """
    builtin = _BUILTIN.match(frames)
    name = f"aten::{builtin['name']}" if builtin else ""
    return name if name and any(way.op and re.match(way.op, name) for way in WAYS) else ""


TENSORS_OWN = re.compile(
    r"torch/_tensor\.py|torch/_tensor_str\.py|torch/cuda/(__init__|streams)\.py|torch/accelerator/__init__\.py"
    r"|torch/utils/_device\.py|torch/overrides\.py"
)
"""A regular expression for frames of methods of torch's tensors and streams, by which code waits. With
`torch.set_default_device`, or another mode that overrides torch's functions, calls go through a frame of the mode."""
# Waits of unstall's helpers while they measure or verify cannot be removed; those of to_host(…).result() can.
_OURS = re.compile(r"(.*/)?unstall/(?!fix/to_host\.py)[^:]*\.py: ")


def is_ours(frames: str) -> bool:
    """Returns whether unstall's own code made the call that waits.

    If unstall's code calls a module of the program, and the module waits, that is a wait of the
    program. `frames` are the frames between the user's line and the wait, one per line of text, the
    innermost first.
    """
    asking = (each for each in frames.splitlines() if not (each.startswith("<") or TENSORS_OWN.search(each)))
    return _OURS.match(next(asking, "")) is not None
