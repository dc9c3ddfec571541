"""Suggests changes that may make kernels faster, if the device's own work limits a step.

Whether a change helps is not predicted: users must try it and measure the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from unstall.diagnose.run import Group, Run, costliest
from unstall.figures import counted, duration, share
from unstall.locate.kinds import named
from unstall.locate.step_optimizer import OPTIMIZER_STEP
from unstall.locate.tensor_cores import only_float16
from unstall.result import Finding
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I64, Bool, DeviceKind, HostKind

_WORTH = 0.03  # of the window: device time of the kernels in question
_BUSY = 0.5  # of the window: with less the device's work does not hold a step up
_ROW = 4  # elementwise kernels one after the other on a stream; two or three are an activation and its bias
_MOST = 0.5  # of the busy time: kernels with blocks for at most half of the SMs
_LONGEST_NAME = 72  # characters of a kernel's name that are printed

# Matrix products and convolutions whose inputs are fp32, and which multiply in fp32 rather than TF32: by the names of
# cuBLAS, CUTLASS and cuDNN. In the xmma names the second pair of types is that of the multiplication. Kernels of
# tensor cores (s884, s1688, s16816, h…, i…, nvjet, wgmma) are none. The last line has the virtual GPU's names.
_FP32 = re.compile(
    r".*(?:(?<![a-z0-9])sgemm|scudnn|implicit_convolve_sgemm"
    r"|f32f32_f32f32_f32"
    r"|(?:mm|mv|convolution\w*)_float32_kernel$)"
)
_TENSOR_CORES = re.compile(r".*(?:tf32|bf16|f16|s884|s1688|s16816|h884|h1688|h16816|tensorop)")
# Inputs in fp32, multiplied in TF32 on tensor cores. CUTLASS's s1688gemm without a type is TF32, too.
_TF32 = re.compile(r".*(?:tf32|tensorop_s1688gemm)")
_CONVOLUTION = re.compile(r".*(?:cudnn|convol|fprop|dgrad|wgrad)", re.IGNORECASE)
_HALF = re.compile(r".*(?:bf16|f16_s1688)")
# Products in bfloat16 whatever multiplies them; the last name is the virtual GPU's.
_BF16 = re.compile(r"(?=.*(?:bf16|bfloat16)).*(?:gemm|gemv|convol|m[mv]_bfloat16_kernel$)", re.IGNORECASE)
_LAYOUT = re.compile(r".*(?:nchwToNhwc|nhwcToNchw|nchw_to_nhwc|nhwc_to_nchw)", re.IGNORECASE)
_FOREACH = re.compile(r".*(?:multi_tensor_apply|elementwise_kernel|CatArrayBatchedCopy)")
_FUSED = re.compile(r".*(?:Fused(?:Adam|SGD|Sgd|Adagrad)|fused_adam|FusedOptimizer)", re.IGNORECASE)
_ELEMENTWISE = re.compile(r".*(?:elementwise_kernel|CatArrayBatchedCopy)")
_OPTIMIZER_FILE = re.compile(r"(?:.*/)?torch/optim/")


@dataclass(frozen=True, slots=True)
class Trial:
    """A change that may make some kernels faster, with the texts of its finding.

    Attributes:
        rule: The name of the kind of finding.
        title: The title of the finding.
        fix: What to try.
        safe_if: The condition under which the change keeps the program correct.
        ops: The kernels that the change may make faster, as indices of rows of `timeline.device`.
        saw: The evidence. If "", the finding says how many kernels there are, and their share of
            the time.
    """

    rule: str
    title: str
    fix: str
    safe_if: str
    ops: I64  # device rows
    saw: str = ""


def device_work(run: Run) -> list[Finding]:
    """Returns a finding for each change that may make kernels faster. A finding is at the line
    whose kernels take longest.

    The finding's exposed time is the time in which only these kernels run. The change cannot gain
    more than this time. Returns no findings if the device computes for less than half of the time.
    """
    if run.accounts.busy_ns.compute + run.accounts.busy_ns.both < _BUSY * run.wall:
        return []
    return [_finding(run, trial) for trial in _trials(run) if _taken(run, trial.ops) >= _WORTH * run.wall]


def _trials(run: Run) -> Iterator[Trial]:
    device = run.timeline.device
    kernels = run.ops_inside & (device.kind == DeviceKind.KERNEL) & ~run.comm

    def ops(pattern: re.Pattern[str]) -> Bool:
        chosen: Bool = kernels & named(run.timeline, pattern, device.name)
        return chosen

    yield _in_fp32(run, ops(_FP32) & ~ops(_TENSOR_CORES), ops(_TF32), ops(_CONVOLUTION))
    yield Trial(
        "tf32-products",
        "Matrix products and convolutions multiply in TF32, at half the rate of bfloat16",
        "try torch.autocast('cuda', torch.bfloat16) around the forward pass, or the model in bfloat16; then measure "
        "again",
        "the model trains as well with products of 7 bits of mantissa: compare its loss",
        np.flatnonzero(ops(_TF32) & ~ops(_HALF)),
    )
    yield Trial(
        "layout-copies",
        "Convolutions copy their tensors to another memory layout and back",
        "try model.to(memory_format=torch.channels_last), and the same of the images; then measure again",
        "no code of the model relies on strides (.view of a feature map may raise: .reshape does not)",
        np.flatnonzero(ops(_LAYOUT)),
    )
    of_optimizer = _of_optimizer(run)
    stepping = np.flatnonzero(ops(_FOREACH) & ~ops(_FUSED) & of_optimizer)
    yield Trial(
        "unfused-optimizer",
        "The optimizer reads and writes its parameters several times",
        "try the optimizer with fused=True (Adam, AdamW, SGD, Adagrad), which updates each parameter in one pass; "
        "then measure again",
        "rounding may differ; parameters are of a floating-point type",
        stepping,
    )
    yield Trial(
        "elementwise-rows",
        "Elementwise kernels follow each other, and each reads and writes all of its data",
        "try torch.compile on the module there, which fuses them into few kernels; then measure again",
        "rounding may differ; shapes change rarely (each new one compiles again)",
        _rows(run, ops(_ELEMENTWISE) & ~of_optimizer, kernels),
    )
    if only_float16(run.timeline):
        yield Trial(
            "bf16-products",
            "Matrix products and convolutions multiply in bfloat16, which this GPU's tensor cores do not",
            "try torch.autocast('cuda', torch.float16) with torch.amp.GradScaler, and the optimizer with fused=True; "
            "then measure again",
            "the model trains as well in the range of float16: compare its loss",
            np.flatnonzero(ops(_BF16) & ~ops(_LAYOUT)),
        )
    yield from _larger_batch(run, kernels)


def _in_fp32(run: Run, fp32: Bool, tf32: Bool, convolutions: Bool) -> Trial:
    """Returns the trial of a faster type for products in fp32. If some convolutions multiply in TF32, torch's settings
    allow it for all of them. cuDNN then chose fp32 for the others, for example because they have few input channels,
    so they are left out. The same holds for matrix products. Of convolutions, the recording may tell the setting.

    The arguments `fp32`, `tf32` and `convolutions` are masks of the device ops.
    """
    switches, slow = [], np.zeros(len(fp32), dtype=np.bool_)
    for switch, mine, allowed in (
        ("torch.set_float32_matmul_precision('high')", ~convolutions, False),
        ("torch.backends.cudnn.conv.fp32_precision = 'tf32'", convolutions, run.timeline.meta.tf32_convolutions),
    ):
        if (fp32 & mine).any() and not (tf32 & mine).any() and not allowed:
            switches.append(switch)
            slow |= fp32 & mine
    if only_float16(run.timeline):
        fix = (
            "try torch.autocast('cuda', torch.float16) with torch.amp.GradScaler (this GPU multiplies neither in TF32 "
            "nor in bfloat16); then measure again"
        )
        safe_if = "the model trains as well with products of 10 bits of mantissa (float16): compare its loss"
    else:
        fix = (
            f"try {' and '.join(switches)}, which multipl{'y' if len(switches) > 1 else 'ies'} in TF32; or "
            "torch.autocast('cuda', torch.bfloat16); then measure again"
        )
        safe_if = (
            "the model trains as well with products of 10 (TF32) or 7 (bfloat16) bits of mantissa: compare its loss"
        )
    what = {1: "Convolutions" if convolutions[slow].any() else "Matrix products"}
    title = f"{what.get(len(switches), 'Matrix products and convolutions')} multiply in fp32, not on tensor cores"
    return Trial("fp32-products", title, fix, safe_if, np.flatnonzero(slow))


def _larger_batch(run: Run, kernels: Bool) -> Iterator[Trial]:
    """Yields a trial if most of the busy time goes to kernels that leave at least half of the SMs without a block.

    If the batch is twice as large, all blocks of such a kernel still fit on the device at the same time. Kernels that
    leave fewer SMs without a block do not count, because they may fill the device. For example, matrix products that
    loop over their tiles have about one block per SM at any size.
    """
    device = run.timeline.device
    sms = _multiprocessors(run)
    small = kernels & (device.blocks > 0) & (2 * device.blocks.astype(np.int64) <= sms)
    taken, busy = _alone(run, np.flatnonzero(small)), sum(msgspec.structs.astuple(run.accounts.busy_ns))
    if not small.any() or taken < _MOST * busy:
        return
    length = (device.end - device.start)[small]
    # Kernels of several streams fill the device together.
    room = sum(int(sms[device.device == number].max()) * at.total for number, at in run.work(small).items())
    if 2 * int(device.blocks[small] @ length) > room:
        return
    most, of = int(device.blocks[small].max()), int(sms[small].max())
    yield Trial(
        "small-grids",
        "Kernels leave half of the device's SMs without work: a larger batch costs little more time",
        "try a larger batch, and measure samples per second: twice as many blocks still run at once",
        "the larger batch fits into memory, and the model trains as well with it (another learning rate may be needed)",
        np.flatnonzero(small),
        f"{counted(int(small.sum()), 'kernel')} of at most {counted(most, 'block')}, on {of} SMs, take "
        f"{share(taken, busy)} of the busy time",
    )


def _multiprocessors(run: Run) -> I64:
    """Returns, for each device op, the number of SMs of its device, or 0 if that is unknown."""
    known = np.array((*run.timeline.meta.multiprocessors, 0), np.int64)
    device = run.timeline.device.device
    of_ops: I64 = known[np.where((device >= 0) & (device < len(known)), device, -1)]
    return of_ops


def _alone(run: Run, ops: I64) -> int:
    """Returns how long the device ops `ops` run in the window while no other device op runs, in ns."""
    others = run.ops_inside.copy()
    others[ops] = False
    return run.alone(ops, run.work(others))


def _finding(run: Run, trial: Trial) -> Finding:
    group = _costliest(run, trial.ops)
    saw = trial.saw or f"{counted(len(trial.ops), 'kernel')}, {share(_taken(run, trial.ops), run.wall)} of the time"
    return run.finding(
        trial.rule,
        group,
        title=trial.title,
        saw=f"{saw}; {_mostly(run, trial.ops)}",
        fix=trial.fix,
        safe_if=trial.safe_if,
        total_exposed_ns=_alone(run, trial.ops),
        total_wait_ns=0,
        count=len(trial.ops),
        confidence="medium",
        spans=_spans(run, trial.ops),
    )


def _taken(run: Run, ops: I64) -> int:
    """Returns how long the device ops `ops` run in the window, in ns."""
    chosen = np.zeros(len(run.timeline.device), dtype=np.bool_)
    chosen[ops] = True
    return sum(work.clip(*run.window).total for work in run.work(chosen).values())


def _costliest(run: Run, ops: I64) -> Group:
    """Returns the launches of the device ops `ops` as one group.

    The place of the group is the place in the code whose kernels take the most time.
    """
    device = run.timeline.device
    known = ops[device.launch[ops] >= 0]
    if not len(known):
        return Group(-1, None, np.zeros(0, dtype=np.int64))
    launch, length = device.launch[known].astype(np.int64), (device.end - device.start)[known]
    places, which = np.unique(run.places.place[launch], return_inverse=True)
    return Group(int(places[np.bincount(which, length).argmax()]), None, np.unique(launch))


def _mostly(run: Run, ops: I64) -> str:
    """Returns a text that names the kernel with the longest total time among the device ops `ops`.

    The text gives the kernel's time in a step, or in the whole run if the run counts as one step.
    """
    device = run.timeline.device
    names, which = np.unique(device.name[ops], return_inverse=True)
    taken = np.bincount(which, (device.end - device.start)[ops])
    name = run.timeline.text(int(names[taken.argmax()]))
    name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    over = "in all" if run.steps.unit == "the run" else run.steps.unit
    return f"longest {name}, {duration(run.per_step(int(taken.max())))} {over}"


def _of_optimizer(run: Run) -> Bool:
    """Returns a mask of the device ops that an optimizer's step launched.

    Torch's annotations and the frames of torch.optim show which ops these are.
    """
    timeline, host, stacks = run.timeline, run.timeline.host, run.timeline.stacks
    steps = (host.kind == HostKind.ANNOTATION) & named(timeline, OPTIMIZER_STEP, host.name)
    stepping = nearest(host.parent, steps) >= 0
    frames = nearest(stacks.parent, named(timeline, _OPTIMIZER_FILE, timeline.lines.file)[stacks.line]) >= 0
    stepping |= np.append(frames, False)[host.stack]
    return np.append(stepping, False)[timeline.device.launch]


def _rows(run: Run, chosen: Bool, kernels: Bool) -> I64:
    """Returns the kernels in the mask `chosen` that run in a series of at least _ROW kernels, as
    indices of rows of `timeline.device`.

    The kernels of a series follow each other on a stream, with no other kernel between them.
    """
    device = run.timeline.device
    order = np.flatnonzero(kernels)
    order = order[np.argsort(device.stream[order], kind="stable")]
    mine, stream = chosen[order], device.stream[order]
    cuts = np.flatnonzero(np.append(True, (mine[1:] != mine[:-1]) | (stream[1:] != stream[:-1])))[: len(order)]
    length = np.diff(np.append(cuts, len(order)))
    return np.sort(order[np.repeat(mine[cuts] & (length >= _ROW), length)])


def _spans(run: Run, ops: I64) -> tuple[tuple[int, int], ...]:
    device = run.timeline.device
    return costliest(device.start[ops], device.end[ops], (device.end - device.start)[ops])


DEVICE_WORK = (
    *("fp32-products", "tf32-products", "layout-copies", "unfused-optimizer", "elementwise-rows", "small-grids"),
    "bf16-products",
)
"""The names of the kinds of findings that this module makes."""
