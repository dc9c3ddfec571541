"""Signatures: what the log's plain tuples say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides, nonzero, parse, plain

sizes = st.lists(st.integers(1, 5), max_size=4).map(tuple)
tensors = st.builds(
    lambda shape, *where: TensorSpec("float32", shape, contiguous_strides(shape), *where),
    sizes,
    st.booleans(),
    st.booleans(),
)
values = st.one_of(
    st.none(), st.booleans(), st.integers(0, 9), tensors, st.lists(tensors, min_size=1, max_size=3).map(tuple)
)


@given(st.lists(values, max_size=5).map(tuple), st.lists(tensors, max_size=2).map(tuple))
def test_a_signature_survives_its_plain_form(inputs: tuple[object, ...], outputs: tuple[object, ...]) -> None:
    signature = Signature("aten::add", "Tensor", inputs, outputs)

    assert parse(plain(signature)) == signature


def test_an_expanded_dimension_covers_its_memory_once() -> None:
    assert TensorSpec("float32", (8, 100), (0, 1)).distinct_bytes == 400


def test_a_permuted_image_is_dense_and_lies_as_nhwc() -> None:
    image = TensorSpec("float32", (2, 3, 4, 5), (60, 1, 15, 3))

    assert image.dense
    assert image.layout == "l"
    assert not image.contiguous


def test_a_slice_of_columns_is_not_dense() -> None:
    assert not TensorSpec("float32", (4, 3), (9, 1)).dense


def test_a_float_says_whether_it_is_zero_only_where_that_is_known() -> None:
    inputs = parse(("aten::dropout", "", (("s",), ("s", True), ("s", False)), ())).inputs

    assert [nonzero(value) for value in inputs] == [False, True, False]
