"""Whether facts are as they were: in C as in Python, for whatever happens to a program's objects."""

from __future__ import annotations

import collections
import gc
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fix.graphed.harness import on_tape
from hypothesis import given
from hypothesis import strategies as st

from unstall.fix.graphs.examine.guard_sources import Cells
from unstall.fix.graphs.examine.guards import EXCHANGE, ReferenceGuards, layout_of

try:
    from unstall.fix.graphs.examine import _guards
except ImportError:
    _guards = None  # type: ignore[assignment]  # built only where there is a C compiler

Facts = tuple[tuple[Any, ...], ...]


def in_python(*facts: Any) -> Any:
    return ReferenceGuards(*facts)


def in_c(*facts: Any) -> Any:
    return _guards.Guards(*(*facts, layout_of, EXCHANGE))


def in_c_without_dlpack(*facts: Any) -> Any:
    return _guards.Guards(*(*facts, layout_of, None))


needs_c = pytest.mark.skipif(_guards is None, reason="the C extension is not built")
MAKERS = [in_python, *(pytest.param(maker, marks=needs_c) for maker in (in_c, in_c_without_dlpack))]
each_maker = pytest.mark.parametrize("make", MAKERS)


class Missing(dict[Any, Any]):
    def __missing__(self, key: Any) -> Any:
        raise AssertionError(f"{key} was guards for")


class Translated(dict[Any, Any]):
    def __getitem__(self, key: Any) -> Any:
        return dict.get(self, key, 0)


class Backwards(list[Any]):
    def __getitem__(self, place: Any) -> Any:
        return list.__getitem__(self, -1 - place)


class Raising:
    """Raises what it is told to raise."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __getitem__(self, _: Any) -> Any:
        return self._answer()

    def __len__(self) -> int:
        return int(self._answer())

    @property
    def attribute(self) -> Any:
        return self._answer()

    def _answer(self) -> Any:
        if self.error is not None:
            raise self.error
        return 1


KEYS = ("a", "b", 0, 1, (1, 2), True, -1)
VALUES = tuple(object() for _ in range(3))
DICTS: tuple[Callable[[], Any], ...] = (
    dict,
    collections.OrderedDict,
    lambda: collections.defaultdict(list),
    Missing,
    Translated,
)
LISTS: tuple[Callable[[], Any], ...] = (list, Backwards, collections.deque)

containers = st.one_of(st.sampled_from(DICTS), st.sampled_from(LISTS))
kinds = st.sampled_from(("set", "drop", "clear"))
changes = st.tuples(st.integers(0, 5), kinds, st.sampled_from(KEYS), st.integers(0, 2), st.integers(0, 9))
"""Which container, what is done to it, where, with which value; and what is expected next."""


def changed(container: Any, what: str, key: Any, value: int) -> None:
    if what == "clear":
        container.clear()
    elif isinstance(container, dict):
        if what == "set":
            dict.__setitem__(container, key, VALUES[value])
        else:
            dict.pop(container, key, None)
    elif what == "set" and isinstance(key, int) and 0 <= key < len(container):
        container[key] = VALUES[value]
    elif what == "drop" and container:
        container.pop()
    else:
        container.append(VALUES[value])


def answered(guards: Any) -> Any:
    try:
        return guards.hold()
    except Exception as error:
        return type(error), str(error)


def items_of(container: Any) -> list[tuple[Any, Any, Any]]:
    if isinstance(container, dict):
        return [(container, key, container[key]) for key in KEYS if dict.__contains__(container, key)]
    return [(container, place, container[place]) for place in range(-len(container), len(container))]


@needs_c
@given(st.lists(containers, min_size=1, max_size=6), st.lists(changes), st.lists(changes))
def test_c_and_python_agree_on_containers(made: Any, before: Any, after: Any) -> None:
    held = [make() for make in made]
    for which, what, key, value, _ in before:
        changed(held[which % len(held)], what, key, value)
    items = tuple(item for container in held for item in items_of(container))
    facts: Facts = (items, tuple((container, len(container)) for container in held), (), (), ())
    checks = [in_python(*facts), in_c(*facts)]
    assert [check.hold() for check in checks] == [True, True]
    for which, what, key, value, expected in after:
        changed(held[which % len(held)], what, key, value)
        one, other = map(answered, checks)
        assert one == other
        for check in checks if expected < len(items) else ():
            check.expect(expected, VALUES[value])


TENSOR_CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "resized": lambda tensor: tensor.resize_(2),
    "grown": lambda tensor: tensor.resize_(100),
    "other memory": lambda tensor: setattr(tensor, "data", tensor.data.clone()),
    "part of its memory": lambda tensor: setattr(tensor, "data", tensor.data[1:]),
    "set": lambda tensor: tensor.set_(torch.zeros(3).untyped_storage()),
    "transposed": lambda tensor: tensor.t_(),
    "another dimension": lambda tensor: tensor.unsqueeze_(0),
    "the same values in another shape": lambda tensor: setattr(tensor, "data", tensor.data.view(-1)),
    "its storage freed": lambda tensor: tensor.untyped_storage().resize_(0),
    "written to": lambda tensor: tensor.zero_(),
    "to be trained": lambda tensor: tensor.requires_grad_(),
    "itself again": lambda tensor: setattr(tensor, "data", tensor.data),
}
KEEP = {"written to", "to be trained", "itself again"}


@each_maker
@pytest.mark.parametrize("change", TENSOR_CHANGES)
def test_a_tensor_is_to_lie_where_it_lay_in_the_same_shape(make: Any, change: str) -> None:
    tensor = torch.ones(3, 4)
    guards = make((), (), (), (), (torch.ones(()), torch.ones(0, 2), tensor))
    assert guards.hold()
    TENSOR_CHANGES[change](tensor)
    assert guards.hold() == (change in KEEP)


@needs_c
@given(st.lists(st.sampled_from(sorted({*TENSOR_CHANGES} - {"its storage freed"})), max_size=6), st.booleans())
def test_c_and_python_agree_on_tensors(steps: list[str], is_parameter: bool) -> None:
    tensor = torch.ones(3, 4)
    tensor = torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor
    checks = [make((), (), (), (), (tensor,)) for make in (in_python, in_c, in_c_without_dlpack)]
    for step in steps:
        try:
            with torch.no_grad():
                TENSOR_CHANGES[step](tensor)
        except RuntimeError:  # it cannot be done to what the tensor is by now
            continue
        assert len({check.hold() for check in checks}) == 1


@each_maker
def test_a_tensor_that_dlpack_has_no_name_for_is_looked_at_too(make: Any) -> None:
    tensor = torch.empty(3, dtype=torch.bits8)
    guards = make((), (), (), (), (tensor,))
    assert guards.hold()
    tensor.data = torch.empty(3, dtype=torch.bits8)
    assert not guards.hold()


@each_maker
@pytest.mark.parametrize("other", [torch.eye(3).to_sparse(), torch.empty(3, device="meta")])
def test_a_tensor_that_is_of_another_kind_by_now_does_not_hold(make: Any, other: torch.Tensor) -> None:
    tensor = torch.ones(3)
    guards = make((), (), (), (), (tensor,))
    torch.utils.swap_tensors(tensor, other.clone())
    assert not guards.hold()


@each_maker
def test_what_is_read_as_its_conjugate_does_not_hold(make: Any) -> None:
    tensor = torch.ones(3, dtype=torch.complex64)
    guards = make((), (), (), (), (tensor,))
    assert guards.hold()
    tensor.data = tensor.conj()
    assert not guards.hold()


@each_maker
def test_attributes_are_the_very_same_objects(make: Any) -> None:
    leaf = torch.ones(2, requires_grad=True)
    guards = make((), (), ((leaf, "requires_grad", True), (leaf, "grad", None)), (), ())
    assert guards.hold()
    leaf.grad = torch.ones(2)
    assert not guards.hold()


@each_maker
def test_an_attribute_that_is_none_has_no_items(make: Any) -> None:
    leaf = torch.ones(2, requires_grad=True)
    guards = make((), (), (), ((leaf, "_backward_hooks", 0), (leaf, "_post_accumulate_grad_hooks", 0)), ())
    assert guards.hold()
    hook = leaf.register_hook(lambda grad: grad)
    assert not guards.hold()
    hook.remove()
    assert guards.hold()


@each_maker
@pytest.mark.parametrize("error", [KeyError("k"), IndexError("i"), ValueError("v"), AttributeError("a")])
@pytest.mark.parametrize("kind", ["item", "size", "attribute", "count"])
def test_only_an_item_that_is_gone_is_no_error(make: Any, error: Exception, kind: str) -> None:
    held = Raising()
    facts = {
        "item": (((held, 0, 1),), (), (), (), ()),
        "size": ((), ((held, 1),), (), (), ()),
        "attribute": ((), (), ((held, "attribute", 1),), (), ()),
        "count": ((), (), (), ((types.SimpleNamespace(held=held), "held", 1),), ()),
    }
    guards = make(*facts[kind])
    assert guards.hold()
    held.error = error
    if kind == "item" and isinstance(error, LookupError):
        assert not guards.hold()
    else:
        with pytest.raises(type(error)):
            guards.hold()


@each_maker
def test_a_default_dict_is_not_filled_by_being_asked(make: Any) -> None:
    held = collections.defaultdict(int, a=1)
    guards = make(((held, "a", 1),), (), (), (), ())
    del held["a"]
    assert not guards.hold()
    assert not held


@each_maker
def test_closures_and_namespaces_are_read_by_key(make: Any) -> None:
    inner = 1.5
    function: Any = lambda: inner  # noqa: E731 - a def has no type that Cells takes

    class Settings:
        scale = 2.5

    guards = make(((Cells(function), "inner", inner), (vars(Settings), "scale", Settings.scale)), (), (), (), ())
    assert guards.hold()
    inner = 3.5
    assert not guards.hold()
    inner = 1.5  # the same constant of this code
    Settings.scale = 2.0
    assert not guards.hold()


@each_maker
def test_what_is_expected_can_be_exchanged_for_items_alone(make: Any) -> None:
    held = {"a": VALUES[0]}
    guards = make(((held, "a", VALUES[1]),), ((held, 1),), (), (), ())
    assert not guards.hold()
    guards.expect(0, VALUES[0])
    assert guards.hold()
    for place in (-1, 1):
        with pytest.raises(IndexError):
            guards.expect(place, VALUES[0])


@each_maker
def test_a_container_may_change_itself_and_the_facts_while_it_is_asked(make: Any) -> None:
    class Restless:
        def __getitem__(self, key: Any) -> Any:
            guards.expect(0, object())
            inside.clear()
            gc.collect()
            return object()

    inside = {"a": object()}
    guards = make(((Restless(), 0, object()), (inside, "a", inside["a"])), (), (), (), ())
    assert not guards.hold()


@each_maker
def test_facts_that_hold_themselves_are_freed(make: Any) -> None:
    class Owner:
        guards: Any

    owner = Owner()
    owner.guards = make(((vars(owner), "x", owner),), ((vars(owner), 1),), ((owner, "y", owner),), (), (torch.ones(2),))
    alive = weakref.ref(owner)
    del owner
    gc.collect()
    assert alive() is None


@needs_c
@pytest.mark.parametrize(
    "facts",
    [
        (((1, 2),), (), (), (), ()),
        ((), (({}, "1"),), (), (), ()),
        ((), (), ((1, 2, 3),), (), ()),
        ((), (), (), ((1, "a"),), ()),
        ([], (), (), (), ()),
    ],
)
def test_what_are_no_facts_is_refused(facts: Any) -> None:
    with pytest.raises(TypeError):
        in_c(*facts)


@pytest.mark.parametrize("change", [torch.Tensor.t_, lambda weight: weight.resize_(5, 6)])
def test_a_tensor_that_is_read_in_another_way_is_not_served(change: Callable[[torch.Tensor], Any]) -> None:
    weight = torch.randn(6, 6)
    function = on_tape(lambda x: x.exp() * weight.sum())
    x = torch.randn(6, 6)
    for _ in range(4):
        function(x)
    hits = function.stats().hits
    assert hits
    change(weight)
    function(x)
    assert function.stats().hits == hits


def test_a_default_dict_that_is_watched_is_not_filled() -> None:
    held: collections.defaultdict[str, float] = collections.defaultdict(lambda: 3.0, scale=1.0)
    function = on_tape(lambda x: x.exp() * held.get("scale", 2.0))
    x = torch.randn(3)
    for _ in range(4):
        function(x)
    operator.delitem(held, "scale")
    assert torch.equal(function(x), x.exp() * 2.0)
    assert not held
