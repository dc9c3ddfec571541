"""Splits cuDNN's recurrent layers into the kernels of their steps.

torch asks cuDNN to run all steps of a layer in one kernel if the layer is small enough for that.
Otherwise, each step launches a matrix product and a kernel for the gates. In the backward pass, a
memset before the product zeroes what it adds to. cuDNN also asks for a workspace, which torch
allocates for the time of the call. All figures were measured with cuDNN 9 on an H100. Except for the
times of products, they are taken to hold for all GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from unstall.virtual.costs.piece import Piece
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

NAMES = {"aten::_cudnn_rnn": 6, "aten::_cudnn_rnn_backward": 10}
"""By operator, the position of its argument `mode`. The arguments after it are the sizes of the layers."""
_GATES = (1, 1, 4, 3)  # of each mode: ReLU, tanh, LSTM, GRU
_REGISTERS = 256  # KiB of a multiprocessor
_NS_PER_KIB = (10.0, 15.0)  # of a step in one kernel, for each KiB of its weights: if they fit into registers, or not
_STATIC_STEP_NS = 2_600  # of a step in one kernel on all multiprocessors
# Of the host: each launch of a step beside its usual cost (cuDNN records and waits for events, and asks for the
# attributes of kernels; 44 layers on an H100), a call, and each layer of it in each direction (34 layers on an H200).
# In the backward pass, torch also asks cuDNN where the matrices of each gate are (RNN.cpp: get_parameters).
_LAUNCH_NS = 5_200
_CALL_NS, _BACKWARD_CALL_NS = 30_000, 150_000
_OF_LAYER_NS, _BACKWARD_OF_LAYER_NS, _OF_MATRIX_NS = 25_000, 150_000, 30_000
_CHUNKS, _BACKWARD_CHUNKS, _SMALLEST = 5, 10, 4  # see _chunks_of
_OF_LAYER = 8 << 20  # bytes of a layer's workspace, in each direction, whatever its sizes
# What else a workspace holds, as multiples of the sizes: for each position of each sequence, of the inputs and of the
# hidden size; for each sequence, layer and direction, of the hidden size. By gates and directions. Of cuDNN 9.19
# (benchmarks/results/recurrent_workspaces_h100.json).
_USUAL = {
    (4, 1): (1, 5, 10),
    (4, 2): (1, 14, 12),
    (3, 1): (1, 4, 9),
    (3, 2): (1, 12, 7),
    (1, 1): (2, 3, 13),
    (1, 2): (2, 12, 14),
}
_SMALL = {
    (4, 1): (1, 21, 8),
    (4, 2): (1, 30, 9),
    (3, 1): (2, 19, 6),
    (3, 2): (2, 26, 7),
    (1, 1): (2, 14, 6),
    (1, 2): (2, 21, 7),
}
# Up to these hidden sizes, torch asks for the algorithm for small layers (RNN.cpp: use_rnn_persist_small_h): forward,
# backward. By whether there are gates.
_SMALL_HIDDEN = {True: (192, 128), False: (384, 256)}
_STATIC_WIDTH, _STATIC_HIDDEN = 128, 1024  # RNN.cpp: use_persist_common_heuristics
_STATIC_BATCH, _STATIC_BATCH_OF_WIDE, _WIDE_HIDDEN = 128, 96, 896  # RNN.cpp: use_persist_device_heuristics


@dataclass(frozen=True, slots=True)
class Layers:
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
        positions: The number of positions of all sequences of the batch together.
        packed: Whether the sequences are packed: each has its own number of steps.
        dropout: Whether there is dropout between layers.
    """

    steps: int
    batch: int
    inputs: int
    hidden: int
    results: int
    gates: int
    layers: int
    directions: int
    positions: int
    packed: bool
    dropout: bool = False


def recurrent(signature: Signature) -> tuple[Piece, ...]:
    """Returns the pieces in which cuDNN runs a call of `_cudnn_rnn` or `_cudnn_rnn_backward`, in order."""
    x, at = signature.tensor(0), NAMES[signature.name]
    mode, hidden, projected, layers, batch_first, dropout, training, both, batches = (
        signature.value(at + place, 0) for place in range(9)
    )
    if x is None or not 0 <= mode < len(_GATES):
        return (Piece(signature),)
    if batches:  # a packed sequence, with the sizes of the batches of its steps
        steps, batch, positions = len(batches), max(batches), x.sizes[0]
    else:
        steps, batch = x.sizes[:2][::-1] if batch_first else x.sizes[:2]
        positions = steps * batch
    directions = 2 if both else 1
    sizes = Layers(
        steps,
        batch,
        x.sizes[-1],
        hidden,
        projected or hidden,
        _GATES[mode],
        layers,
        directions,
        positions,
        bool(batches),
        bool(dropout and training),
    )
    return _pieces(sizes, x, signature.precision, backward=signature.name.endswith("backward"))


def _pieces(of: Layers, x: TensorSpec, precision: str, *, backward: bool) -> tuple[Piece, ...]:
    dtype, item_bytes = x.dtype, x.item_bytes
    width, gates, product_of = of.gates * of.hidden, _gates(dtype, of), partial(_product, dtype, precision)
    step_ns = _step_in_one_kernel_ns(of, dtype, item_bytes, backward=backward)
    chunks = 1 if step_ns is not None else _chunks_of(of, backward=backward)
    positions = -(-of.steps // chunks) * of.batch
    found: list[Piece] = []
    for layer in range(of.layers):
        inputs = of.inputs if layer == 0 else of.results * of.directions
        for _ in range(of.directions):
            if chunks == 1:
                found.append(product_of(positions, inputs, width))
            else:
                of_chunk = product_of(positions, inputs, width, host_ns=_LAUNCH_NS)
                found += [replace(of_chunk, zeroes=positions * width * item_bytes)] * chunks
            if of.dropout and layer:
                dropped = _tensor(dtype, positions, inputs)
                found += [Piece(Signature("aten::mul", "Tensor", (dropped, dropped), (dropped,)))] * chunks
            if step_ns is not None:
                found.append(Piece(gates, ns=round(of.steps * step_ns)))
            else:
                # A backward rounds to TF32, too, and is not faster for it.
                rounded = "" if backward else precision
                product = _product(dtype, rounded, of.batch, of.results, width, host_ns=_LAUNCH_NS)
                if backward:
                    product = replace(product, zeroes=of.batch * of.results * item_bytes)
                found += [product, Piece(gates, host_ns=_LAUNCH_NS)] * of.steps
            if backward:  # the gradients of the weights
                found.append(product_of(width, of.steps * of.batch, inputs))
                found.append(product_of(width, of.steps * of.batch, of.results))
    workspace = workspace_bytes(of, dtype, item_bytes, backward=backward)
    found[0] = replace(found[0], host_ns=found[0].host_ns + _call_ns(of, backward=backward), holds=(workspace,))
    return tuple(found)


def _call_ns(of: Layers, *, backward: bool) -> int:
    """Returns how long the host works for a call besides its launches, in ns."""
    layers = of.layers * of.directions
    if not backward:
        return _CALL_NS + layers * _OF_LAYER_NS
    return _BACKWARD_CALL_NS + layers * (_BACKWARD_OF_LAYER_NS + 2 * of.gates * _OF_MATRIX_NS)


def _chunks_of(of: Layers, *, backward: bool) -> int:
    """Returns by how many products a layer multiplies its inputs. If several layers run in one direction, each works on
    a part of the steps while others work on other parts. Of LSTMs, GRUs and RNNs of 10 and 35 steps on an H200: a
    product for a fifth of the steps, and in the backward pass for at least four steps.
    """
    if of.layers == 1 or of.directions == 2:
        return 1
    most, smallest = (_BACKWARD_CHUNKS, _SMALLEST) if backward else (_CHUNKS, 1)
    return -(-of.steps // max(-(-of.steps // most), smallest))


def _step_in_one_kernel_ns(of: Layers, dtype: str, item_bytes: int, *, backward: bool) -> float | None:
    """Returns how long a step takes, in ns, if all steps of a layer run in one kernel. Returns None
    if each step launches kernels of its own.

    Args:
        of: The sizes of the call.
        dtype: The dtype of the input, such as "float32".
        item_bytes: The bytes of an element.
        backward: Whether the call is of the backward pass.
    """
    if _is_small(of, dtype, backward=backward):
        weights = of.gates * of.hidden * of.hidden * item_bytes / 1024
        return _NS_PER_KIB[weights > _REGISTERS] * weights
    if dtype != "float16" or of.packed or of.results != of.hidden or of.layers * of.directions > 1:
        return None
    fits = of.hidden % _STATIC_WIDTH == of.inputs % _STATIC_WIDTH == 0 and of.hidden <= _STATIC_HIDDEN
    batches = _STATIC_BATCH_OF_WIDE - 1 if of.gates == 1 and of.hidden >= _WIDE_HIDDEN else _STATIC_BATCH
    fits = fits and of.gates != _GATES[3] and of.batch % 8 == 0 and of.batch <= batches
    return _STATIC_STEP_NS if fits else None


def _is_small(of: Layers, dtype: str, *, backward: bool) -> bool:
    """Returns whether a call runs cuDNN's algorithm for small layers. torch asks for it neither with
    projections nor for float64, nor if sequences are packed (RNN.cpp: get_algo). cuDNN lacks it for
    bfloat16.
    """
    asked = of.results == of.hidden and not of.packed and dtype in ("float32", "float16")
    return asked and of.hidden <= _SMALL_HIDDEN[of.gates > 1][backward]


def workspace_bytes(of: Layers, dtype: str, item_bytes: int, *, backward: bool) -> int:
    """Returns the bytes of the workspace that cuDNN asks for in training. Inference needs up to a
    tenth less.

    The workspace holds a copy of the weights, and what the products of all positions and of one
    step need.

    Args:
        of: The sizes of the call.
        dtype: The dtype of the input, such as "float32".
        item_bytes: The bytes of an element.
        backward: Whether the call is of the backward pass.
    """
    width = of.gates * of.hidden
    deeper = (of.layers - 1) * (of.results * of.directions + of.results)
    weights = of.directions * width * (of.inputs + of.results + deeper)
    if of.results != of.hidden:
        weights += of.layers * of.directions * of.hidden * of.results
    small = _is_small(of, dtype, backward=backward)
    inputs, hidden, of_sequence = (_SMALL if small else _USUAL)[of.gates, of.directions]
    layers = of.layers * of.directions
    elements = weights + of.positions * (inputs * of.inputs + hidden * of.hidden)
    elements += of.batch * layers * of_sequence * of.hidden
    return layers * _OF_LAYER + elements * item_bytes


def _product(dtype: str, precision: str, rows: int, deep: int, columns: int, host_ns: int = 0) -> Piece:
    one, other, result = (_tensor(dtype, *sizes) for sizes in ((rows, deep), (deep, columns), (rows, columns)))
    product = Signature("aten::mm", "", (one, other), (result,), precision)
    return Piece(product, host_ns=host_ns, takes_workspace=False)


def _gates(dtype: str, of: Layers) -> Signature:
    """Returns a call that does what the gates of a step do: that of torch's own cell."""
    each, state = _tensor(dtype, of.batch, of.gates * of.hidden), _tensor(dtype, of.batch, of.hidden)
    if of.gates == 1:
        return Signature("aten::add", "Tensor", (each, each), (each,))
    cell = "_thnn_fused_lstm_cell" if of.gates == _GATES[2] else "_thnn_fused_gru_cell"
    return Signature(f"aten::{cell}", "", (each, each, state), (state, state, each))


def _tensor(dtype: str, *sizes: int) -> TensorSpec:
    return TensorSpec(dtype, sizes, contiguous_strides(sizes))
