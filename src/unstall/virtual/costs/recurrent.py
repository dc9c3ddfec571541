"""Splits cuDNN's recurrent layers into the kernels of their steps.

If the weights of a layer fit into the registers of the device, cuDNN runs all steps of the layer in
one kernel. If not, each step launches a matrix product and a kernel for the gates. All figures were
measured with cuDNN 9 on an H100; except for the times of products, they are taken to hold for all
GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unstall.virtual.costs.piece import Piece
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

NAMES = {"aten::_cudnn_rnn": 6, "aten::_cudnn_rnn_backward": 10}
"""By operator, the position of its argument `mode`. The arguments after it are the sizes of the
layers.
"""
_GATES = (1, 1, 4, 3)  # of each mode: ReLU, tanh, LSTM, GRU
_IN_REGISTERS = 512 << 10  # bytes of weights. Backward, the gradients of the weights are there too.
_STEP_NS, _NS_PER_KIB = 200, 11.0  # of a step in one kernel
_BACKWARD = 2.5  # how much longer such a step takes backward
_CALL_NS, _LAUNCH_NS = 200_000, 8_000  # of the host: for the call, and for each launch that a step makes


@dataclass(frozen=True, slots=True)
class _Layers:
    """The sizes of a call of a recurrent operator.

    Attributes:
        steps: The number of steps of the sequence.
        batch: The size of the batch.
        inputs: The number of input features.
        hidden: The size of the hidden state.
        results: The size of the projection, if there is one; else `hidden`.
        gates: The number of gates: 4 for an LSTM, 3 for a GRU, else 1.
        layers: The number of layers.
        directions: 2 if the layers are bidirectional, else 1.
    """

    steps: int
    batch: int
    inputs: int
    hidden: int
    results: int
    gates: int
    layers: int
    directions: int


def recurrent(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces in which cuDNN runs a call of `_cudnn_rnn` or `_cudnn_rnn_backward`, in
    order.
    """
    x, at = signature.tensor(0), NAMES[signature.name]
    mode, hidden, projected, layers, batch_first, _, _, both, batches = (
        signature.value(at + place, 0) for place in range(9)
    )
    if x is None or not 0 <= mode < len(_GATES):
        return (Piece(signature),)
    if batches:  # a packed sequence, with the sizes of the batches of its steps
        steps, batch = len(batches), max(batches)
    else:
        steps, batch = x.sizes[:2][::-1] if batch_first else x.sizes[:2]
    directions = 2 if both else 1
    sizes = _Layers(steps, batch, x.sizes[-1], hidden, projected or hidden, _GATES[mode], layers, directions)
    return _pieces(sizes, x.dtype, x.item_bytes, backward=signature.name.endswith("backward"))


def _pieces(of: _Layers, dtype: str, item_bytes: int, *, backward: bool) -> tuple[Piece, ...]:
    width = of.gates * of.hidden
    weights = width * of.results * item_bytes * (2 if backward else 1)
    found: list[Piece] = []
    for layer in range(of.layers):
        inputs = of.inputs if layer == 0 else of.results * of.directions
        for _ in range(of.directions):
            found.append(_product(dtype, of.steps * of.batch, inputs, width))
            if weights <= _IN_REGISTERS:
                ns = of.steps * (_STEP_NS + _NS_PER_KIB * weights / 1024) * (_BACKWARD if backward else 1)
                found.append(Piece(_gates(dtype, of.batch, width), ns=round(ns)))
            else:
                step = _product(dtype, of.batch, of.results, width, host_ns=_LAUNCH_NS)
                found += [step, Piece(_gates(dtype, of.batch, width), host_ns=_LAUNCH_NS)] * of.steps
            if backward:  # the gradients of the weights
                found.append(_product(dtype, width, of.steps * of.batch, inputs))
                found.append(_product(dtype, width, of.steps * of.batch, of.results))
    found[0] = replace(found[0], host_ns=_CALL_NS)
    return tuple(found)


def _product(dtype: str, rows: int, deep: int, columns: int, host_ns: int = 0) -> Piece:
    one, other, result = (_tensor(dtype, *sizes) for sizes in ((rows, deep), (deep, columns), (rows, columns)))
    return Piece(Signature("aten::mm", "", (one, other), (result,)), host_ns=host_ns, takes_workspace=False)


def _gates(dtype: str, batch: int, width: int) -> Signature:
    each = _tensor(dtype, batch, width)
    return Signature("aten::add", "Tensor", (each, each), (each,))


def _tensor(dtype: str, *sizes: int) -> TensorSpec:
    return TensorSpec(dtype, sizes, contiguous_strides(sizes))
