"""The signature of a call of an operator: its name, arguments and outputs, without the values of
tensors.

The shim's log has it in a raw form. There, a tensor is `("t", dtype, sizes, strides)`; with True at
the end if an earlier argument has the same memory; or `("t", dtype, sizes, strides, repeated,
True)` if its memory is the host's. A list of tensors is `("l", (tensor, …))`. A Scalar or float is
`("s", nonzero)`, and `("s",)` if its value is unknown. None, bools, ints, strings and tuples of
ints stand for themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from unstall.virtual.log import RawSignature

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor without its values.

    Attributes:
        dtype: The data type.
        sizes: The size of each dimension.
        strides: The stride of each dimension, in elements.
        repeated: Whether an earlier argument of the same call has the same memory.
        in_host_memory: Whether it is a tensor of the device in pinned memory of the host. Kernels
            read and write it over the link.
    """

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    repeated: bool = False
    in_host_memory: bool = False

    @property
    def numel(self) -> int:
        """The number of elements."""
        return prod(self.sizes)

    @property
    def item_bytes(self) -> int:
        """The size of an element in bytes."""
        return ITEM_BYTES.get(self.dtype, 4)

    @property
    def distinct_bytes(self) -> int:
        """How many bytes of memory the elements take. An expanded dimension counts once."""
        return self.item_bytes * prod(size for size, stride in zip(self.sizes, self.strides, strict=True) if stride)

    @property
    def dense(self) -> bool:
        """Whether the elements lie in memory without gaps, in any order of the dimensions."""
        return _side_by_side(sorted(zip(self.strides, self.sizes, strict=True)))

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in memory without gaps, in the order of the dimensions."""
        return _side_by_side(zip(reversed(self.strides), reversed(self.sizes), strict=True))

    @property
    def layout(self) -> str:
        """The layout as a letter: "c" if the tensor is contiguous (NCHW), "l" if it is channels
        last (NHWC), and "s" for any other strides.
        """
        return "c" if self.contiguous else "l" if self.channels_last else "s"

    @property
    def channels_last(self) -> bool:
        """Whether the tensor is channels last (NHWC). False if it is contiguous too, as with only one channel."""
        if len(self.sizes) != 4 or self.contiguous:
            return False
        order = [self.strides[dim] for dim in (1, 3, 2, 0)]
        return order == sorted(order) and self.strides[1] == 1


@dataclass(frozen=True)
class Signature:
    """A call of an operator, as CUDA's code gets it from the dispatcher.

    Attributes:
        name: The name of the operator, such as "aten::add".
        overload: The overload, such as "Tensor"; may be "".
        inputs: The arguments, in the order of the schema.
        outputs: What the call returns.
        precision: How torch's settings let an operator multiply in float32: "tf32", "ieee", or ""
            for what the operator does by default: "tf32" for convolutions, "ieee" for other
            products.
    """

    name: str
    overload: str
    inputs: tuple[object, ...]
    outputs: tuple[object, ...]
    precision: str = ""

    @cached_property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """The tensors among the arguments, with those in lists."""
        return tuple(_flat(self.inputs))

    @cached_property
    def results(self) -> tuple[TensorSpec, ...]:
        """The tensors among the outputs, with those in lists."""
        return tuple(_flat(self.outputs))

    @property
    def shapes(self) -> str:
        """The shapes of the arguments as JSON, as torch's profiler writes them: [] stands for an argument that is no
        tensor.
        """
        return json.dumps([_shape(value) for value in self.inputs], separators=(",", ":"))

    @property
    def repeated_bytes(self) -> int:
        """How many bytes of arguments kernels find in a cache, because an earlier argument has the
        same memory. In `mul(x, x)`, these are the bytes of one `x`. What is only written, `out`, does not count.
        """
        read = self.tensors[: -len(self.results)] if "out" in self.overload and self.results else self.tensors
        return sum(tensor.distinct_bytes for tensor in read if tensor.repeated)

    @property
    def host_bytes(self) -> tuple[int, int]:
        """`(read, written)`: how many bytes of the host's memory the call reads and writes."""
        read = sum(each.distinct_bytes for each in self.tensors if each.in_host_memory and not each.repeated)
        return read, sum(each.distinct_bytes for each in self.results if each.in_host_memory)

    def tensor(self, position: int) -> TensorSpec | None:
        """Returns the argument at `position`. Returns None if it is missing or not a tensor."""
        value = self.inputs[position] if position < len(self.inputs) else None
        return value if isinstance(value, TensorSpec) else None

    def value(self, position: int, default: Any = None) -> Any:
        """Returns the argument at `position`. Returns `default` if it is missing or None."""
        value = self.inputs[position] if position < len(self.inputs) else None
        return default if value is None else value


def _shape(value: object) -> list[object]:
    if isinstance(value, TensorSpec):
        return list(value.sizes)
    tensors = isinstance(value, tuple) and any(isinstance(each, TensorSpec) for each in value)
    return [_shape(each) for each in value] if isinstance(value, tuple) and tensors else []


def nonzero(value: object) -> bool:
    """Returns whether `value`, a Scalar or float among the arguments of a signature, is known to be nonzero."""
    return isinstance(value, tuple) and len(value) == 2 and value[0] == "s" and bool(value[1])


def parse(raw: RawSignature) -> Signature:
    """Returns the signature that the shim's log has in a raw form: `(name, overload, inputs,
    outputs)`, with or without the precision at the end.
    """
    name, overload, inputs, outputs = raw[:4]
    precision = raw[4] if len(raw) == 5 else ""
    return Signature(name, overload, tuple(map(_argument, inputs)), tuple(map(_argument, outputs)), precision)


def plain(signature: Signature) -> RawSignature:
    """Returns a signature in the raw form of the shim's log. `parse` turns it back."""
    inputs, outputs = (tuple(map(_raw, values)) for values in (signature.inputs, signature.outputs))
    return (signature.name, signature.overload, inputs, outputs, signature.precision)


def _argument(raw: object) -> object:
    if isinstance(raw, (tuple, list)) and raw:
        match raw[0]:
            case "t":
                sizes = tuple(raw[2])
                strides = tuple(raw[3]) if len(raw) > 3 else contiguous_strides(sizes)
                return TensorSpec(raw[1], sizes, strides, len(raw) > 4 and bool(raw[4]), len(raw) > 5)
            case "l":
                return tuple(map(_argument, raw[1]))
            case "s":
                return tuple(raw)
    return tuple(raw) if isinstance(raw, list) else raw


def _raw(value: object) -> object:
    if isinstance(value, TensorSpec):
        last = (value.repeated, True) if value.in_host_memory else (True,) if value.repeated else ()
        return ("t", value.dtype, value.sizes, value.strides, *last)
    if isinstance(value, tuple) and any(isinstance(part, TensorSpec) for part in value):
        return ("l", tuple(map(_raw, value)))
    return value


def contiguous_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the strides, in elements, of a contiguous tensor with the given sizes."""
    strides = []
    step = 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _side_by_side(dims: Iterable[tuple[int, int]]) -> bool:
    """Returns whether elements lie in memory without gaps.

    Args:
        dims: The stride and the size of each dimension, the innermost first.
    """
    expected = 1
    for stride, size in dims:
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _flat(values: tuple[object, ...]) -> list[TensorSpec]:
    found: list[TensorSpec] = []
    for value in values:
        if isinstance(value, TensorSpec):
            found.append(value)
        elif isinstance(value, tuple):
            found.extend(part for part in value if isinstance(part, TensorSpec))
    return found
