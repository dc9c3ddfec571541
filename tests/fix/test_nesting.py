"""Tensors are found and changed in whatever they come in, and the rest stays what it was."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence

from unstall.fix.tensors.nesting import map_tensors, tensors_in

Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True, slots=True)
class Batch:
    images: torch.Tensor
    name: str


def _one() -> torch.Tensor:
    return torch.ones(2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: _one(),
        lambda: (_one(), 3),
        lambda: [_one(), "text"],
        lambda: Pair(_one(), None),
        lambda: {"a": _one(), "b": 1},
        lambda: OrderedDict(a=_one()),
        lambda: defaultdict[str, object](list, a=_one()),
        lambda: UserDict(a=_one()),
        lambda: Batch(_one(), "a"),
        lambda: torch.max(_one()[None], 0),
        lambda: {"deep": [(Batch(_one(), "b"), {"x": _one()})]},
    ],
)
def test_each_tensor_is_changed_and_each_type_kept(make: Any) -> None:
    value = make()
    doubled = map_tensors(value, lambda tensor: tensor * 2)
    assert type(doubled) is type(value)
    assert len(tensors_in(value)) == len(tensors_in(doubled)) > 0
    for old, new in zip(tensors_in(value), tensors_in(doubled), strict=True):
        assert torch.equal(old * 2, new)


def test_what_holds_no_tensor_is_handed_through() -> None:
    value = {"a": [1, "b", (None, 2.0)]}
    assert map_tensors(value, lambda tensor: tensor * 2) is value


def test_a_default_stays() -> None:
    changed = map_tensors(defaultdict[str, object](int, a=_one()), lambda tensor: tensor * 2)
    assert changed["unknown"] == 0


def test_lengths_of_packed_sequences_stay_where_they_are() -> None:
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    changed = map_tensors(packed, lambda tensor: tensor.to("meta"))
    assert changed.data.device.type == "meta"
    assert changed.batch_sizes is packed.batch_sizes


class _OfItsOwn(MutableMapping[str, Any]):
    """Keeps its items in a dict of its own, as mappings that are written by hand do."""

    def __init__(self, **items: Any) -> None:
        self.items_of = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self.items_of[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.items_of[key] = value

    def __delitem__(self, key: str) -> None:
        del self.items_of[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_of)

    def __len__(self) -> int:
        return len(self.items_of)


class _Named(Pair):
    def __new__(cls, left: Any) -> _Named:
        return super().__new__(cls, left, "right")


class _Sized(list[Any]):
    def __init__(self, size: int) -> None:
        super().__init__([torch.ones(size)])
        self.size = size


@dataclass(frozen=True)
class _HalfSet:
    images: torch.Tensor
    later: Any = field(init=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: MappingProxyType({"a": _one()}),
        lambda: _OfItsOwn(a=_one(), b=[_one()]),
        lambda: _Named(_one()),
        lambda: _Sized(3),
        lambda: _HalfSet(_one()),
        lambda: {1: _one(), ("b", 2): None},
    ],
)
def test_types_that_are_made_in_ways_of_their_own_are_copied_and_left_as_they_were(make: Any) -> None:
    value = make()
    before = [tensor.clone() for tensor in tensors_in(value)]
    doubled = map_tensors(value, lambda tensor: tensor * 2)
    assert type(doubled) is type(value)
    assert all(map(torch.equal, tensors_in(value), before))
    assert all(torch.equal(new, 2 * old) for new, old in zip(tensors_in(doubled), before, strict=True))
    assert getattr(doubled, "__dict__", {}).get("size", 3) == 3


def test_batches_of_a_tokenizer_and_results_of_a_model_stay_what_they_are() -> None:
    transformers = pytest.importorskip("transformers")
    batch = transformers.BatchEncoding({"input_ids": _one(), "text": ["a"]})
    output = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=_one(), attentions=(_one(), _one()))
    for value in (batch, output):
        doubled = map_tensors(value, lambda tensor: tensor * 2)
        assert type(doubled) is type(value)
        assert list(doubled) == list(value)
        assert [float(tensor[0]) for tensor in tensors_in(doubled)] == [2.0] * len(tensors_in(value))
        assert all(float(tensor[0]) == 1.0 for tensor in tensors_in(value))
    assert float(map_tensors(output, lambda tensor: tensor * 2).last_hidden_state[0]) == 2.0


_KEYS = st.one_of(st.integers(0, 5), st.text(max_size=2))
_LEAVES = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.floats(-9, 9).map(torch.tensor))
_NESTS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(_KEYS, inner, max_size=3),
        st.dictionaries(_KEYS, inner, max_size=3).map(OrderedDict),
        st.tuples(inner, inner).map(lambda two: Pair(*two)),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(lambda items: _OfItsOwn(**items)),
    ),
    max_leaves=12,
)


@given(_NESTS)
def test_any_nest_keeps_its_shape_and_order_and_comes_back_by_the_inverse(value: Any) -> None:
    before = [float(tensor) for tensor in tensors_in(value)]
    changed = map_tensors(value, lambda tensor: tensor + 1)
    assert _shape(changed) == _shape(value)
    assert [float(tensor) for tensor in tensors_in(value)] == before
    assert [float(tensor) for tensor in tensors_in(changed)] == [float(torch.tensor(each) + 1) for each in before]
    assert map_tensors(value, lambda tensor: tensor) is value


def _shape(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, Mapping):
        return type(value), [(key, _shape(item)) for key, item in value.items()]
    if isinstance(value, (tuple, list)):
        return type(value), [_shape(item) for item in value]
    return value
