"""Tensors are found and changed in whatever they come in, and the rest stays what it was."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from unstall.fix.nesting import map_tensors, tensors_in

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
        lambda: defaultdict(list, a=_one()),
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
    changed = map_tensors(defaultdict(int, a=_one()), lambda tensor: tensor * 2)
    assert changed["unknown"] == 0


def test_lengths_of_packed_sequences_stay_where_they_are() -> None:
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    changed = map_tensors(packed, lambda tensor: tensor.to("meta"))
    assert changed.data.device.type == "meta"
    assert changed.batch_sizes is packed.batch_sizes
